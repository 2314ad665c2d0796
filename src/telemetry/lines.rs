//! Log lines on their way to standard error. Whoever reads them may stall: that holds up nobody,
//! and what does not fit meanwhile is dropped and counted.
//!
//! Lines are written a batch at a time. A queue that wakes its thread for each line costs an
//! eighth of a whole call.

use std::io;
use std::io::Write;
use std::sync::Arc;
use std::sync::Condvar;
use std::sync::Mutex;
use std::sync::MutexGuard;
use std::sync::PoisonError;
use std::thread;
use std::time::Duration;

use tracing_subscriber::fmt::MakeWriter;

/// Bytes of lines that may wait.
const MOST: usize = 1 << 20;

/// How long a batch gathers.
const GATHER: Duration = Duration::from_millis(20);

/// How long the end waits for the last batch to be taken.
const LAST: Duration = Duration::from_secs(1);

/// Where lines are put; clones are the same place.
#[derive(Clone, Default)]
pub(super) struct Lines(Arc<Shared>);

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    waiting: Vec<u8>,
    dropped: u64,
    ending: bool,
    ended: bool,
}

/// Ends the writing when it is dropped, after what waits, for at most a second.
pub(super) struct LinesGuard(Lines);

impl Lines {
    /// Starts to write to `out`; `note` makes the line that says how many were dropped.
    pub(super) fn start(mut out: impl Write + Send + 'static, note: fn(u64) -> String) -> (Self, LinesGuard) {
        let lines = Self::default();
        let source = lines.clone();
        // Detached: a write that stalls for ever must not hold up the end of the process.
        thread::spawn(move || {
            while let Some((batch, dropped)) = source.batch() {
                // Nobody is left to tell if standard error is gone.
                let _ = out.write_all(&batch);
                if dropped > 0 {
                    let _ = writeln!(out, "{}", note(dropped));
                }
                let _ = out.flush();
            }
        });
        (lines.clone(), LinesGuard(lines))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next batch, once there is one; `None` at the end.
    fn batch(&self) -> Option<(Vec<u8>, u64)> {
        let idle = |state: &mut State| state.waiting.is_empty() && !state.ending;
        let waited = self.0.changed.wait_while(self.state(), idle).unwrap_or_else(PoisonError::into_inner);
        let ending = waited.ending;
        drop(waited);
        if !ending {
            thread::sleep(GATHER);
        }
        let mut state = self.state();
        if state.waiting.is_empty() {
            state.ended = true;
            self.0.changed.notify_all();
            return None;
        }
        Some((std::mem::take(&mut state.waiting), std::mem::take(&mut state.dropped)))
    }
}

impl Drop for LinesGuard {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.ending = true;
        self.0.0.changed.notify_all();
        let open = |state: &mut State| !state.ended;
        drop(self.0.0.changed.wait_timeout_while(state, LAST, open));
    }
}

impl Write for Lines {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let mut state = self.state();
        if state.waiting.len() + line.len() > MOST {
            state.dropped += 1;
            return Ok(line.len());
        }
        let was_empty = state.waiting.is_empty();
        state.waiting.extend_from_slice(line);
        drop(state);
        if was_empty {
            self.0.changed.notify_one();
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Lines {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::io::Write;
    use std::sync::Arc;
    use std::sync::Mutex;

    use super::Lines;
    use super::MOST;

    #[derive(Clone, Default)]
    struct Sink(Arc<Mutex<Vec<u8>>>);

    impl Write for Sink {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn lines_come_whole_and_in_order_until_the_end() {
        let sink = Sink::default();
        let (mut lines, guard) = Lines::start(sink.clone(), |dropped| format!("{dropped} dropped"));
        let mut expected = String::new();
        for n in 0..1_000 {
            expected.push_str(&format!("line {n}\n"));
            lines.write_all(format!("line {n}\n").as_bytes()).unwrap();
        }
        drop(guard);
        assert_eq!(String::from_utf8(sink.0.lock().unwrap().clone()).unwrap(), expected);
    }

    #[test]
    fn what_does_not_fit_is_dropped_and_counted() {
        let sink = Sink::default();
        let stalled = sink.0.lock().unwrap();
        let (mut lines, guard) = Lines::start(sink.clone(), |dropped| format!("{dropped} dropped"));
        let line = vec![b'x'; MOST / 4];
        // One batch may be in the writer's hands; five quarters never fit beside it.
        for _ in 0..9 {
            lines.write_all(&line).unwrap();
        }
        drop(stalled);
        drop(guard);
        let text = String::from_utf8(sink.0.lock().unwrap().clone()).unwrap();
        assert!(text.contains(" dropped\n") && text.len() < 9 * MOST / 4, "{} bytes", text.len());
    }
}
