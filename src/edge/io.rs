//! One client's socket, with what its connection may still wait for.
//!
//! hyper reads and writes through [`Io`]; `accept` asks [`Socket::watch`] each time the
//! connection's task is woken. Both are the same task, so the lock is never contended.

use std::io;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::pin::pin;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::MutexGuard;
use std::sync::PoisonError;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering;
use std::task::Context;
use std::task::Poll;
use std::task::Waker;
use std::time::Duration;

use socket2::SockRef;
use tokio::io::AsyncRead;
use tokio::io::AsyncWrite;
use tokio::io::Interest;
use tokio::io::ReadBuf;
use tokio::net::TcpStream;
use tokio::time::Instant;

use crate::model::limits::Limits;

/// How often a busy connection that hyper does not read is asked whether its client is gone.
const GONE_TICK: Duration = Duration::from_millis(200);

/// A head that takes longer may make room for another connection, like one that rests.
const HEAD_GRACE: Duration = Duration::from_secs(1);

/// Whether a new connection waits for the next one that comes to rest to leave.
#[derive(Default)]
pub(super) struct Wanted(AtomicBool);

impl Wanted {
    /// A slot is wanted, or no longer.
    pub(super) fn say(&self, wanted: bool) {
        self.0.store(wanted, Ordering::Release);
    }

    fn is_said(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }

    /// Whether the asker is the one to leave.
    fn take(&self) -> bool {
        self.0.swap(false, Ordering::AcqRel)
    }
}

/// A socket and the clock of its connection.
pub(super) struct Socket {
    limits: Arc<Limits>,
    wanted: Arc<Wanted>,
    state: Mutex<State>,
}

struct State {
    stream: TcpStream,
    phase: Phase,
    // hyper waits for bytes: it will see a client that leaves.
    reading: bool,
    // The client has sent a byte.
    heard: bool,
    // The client has sent its last byte.
    ended: bool,
    blocked: Option<Instant>,
    // Told to leave by who saw it rest.
    dismissed: bool,
    // The connection's task.
    task: Option<Waker>,
}

/// What the connection does, since when.
#[derive(Clone, Copy)]
enum Phase {
    Head(Instant),
    Idle(Instant),
    /// A request is being answered; since when the client was last known to be there.
    Busy(Instant),
    /// HTTP has ended.
    Closing,
}

/// What a look at the clock says.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Watch {
    /// Look again then, if not woken before; `None` is no deadline.
    Wait(Option<Instant>),
    /// A deadline is over or the client is gone: drop the connection.
    Cut,
}

impl Socket {
    /// A connection that begins now.
    pub(super) fn new(stream: TcpStream, limits: Arc<Limits>, wanted: Arc<Wanted>) -> Arc<Self> {
        let state = State {
            stream,
            phase: Phase::Head(Instant::now()),
            reading: false,
            heard: false,
            ended: false,
            blocked: None,
            dismissed: false,
            task: None,
        };
        Arc::new(Self { limits, wanted, state: Mutex::new(state) })
    }

    /// Since when the connection has had nothing to do, if it may make room for another one.
    pub(super) fn rests(&self, now: Instant) -> Option<Instant> {
        self.state().rests(now)
    }

    /// Tells the connection to leave, if it has rested since `since`; a request that comes before
    /// it does is answered, and another connection leaves.
    pub(super) fn dismiss(&self, since: Instant, now: Instant) -> bool {
        let mut state = self.state();
        state.dismissed = state.rests(now) == Some(since);
        let (dismissed, task) = (state.dismissed, state.task.take());
        drop(state);
        if let Some(task) = task {
            task.wake();
        }
        dismissed
    }

    /// HTTP has ended: what follows has its own time.
    pub(super) fn close(&self) {
        self.state().phase = Phase::Closing;
    }

    /// What the connection may still wait for. `task` is woken if it is to look again.
    pub(super) fn watch(&self, now: Instant, task: &Waker) -> Watch {
        let mut state = self.state();
        if self.makes_room(&mut state, now) {
            return Watch::Cut;
        }
        if !state.task.as_ref().is_some_and(|known| known.will_wake(task)) {
            state.task = Some(task.clone());
        }
        let deadline = match state.phase {
            Phase::Head(since) => Some(since + self.limits.head_time),
            Phase::Idle(since) => Some(since + self.limits.idle_time),
            Phase::Busy(_) | Phase::Closing => None,
        };
        let blocked = state.blocked.map(|since| since + self.limits.write_time);
        let deadline = [deadline, blocked].into_iter().flatten().min();
        if deadline.is_some_and(|at| at <= now) {
            return Watch::Cut;
        }
        let Phase::Busy(seen) = state.phase else { return Watch::Wait(deadline) };
        // Requests behind this one, or its own unread body, keep hyper from reading, and so
        // from seeing that the client has left.
        if state.reading {
            return Watch::Wait(deadline);
        }
        let mut tick = seen + GONE_TICK;
        if tick <= now {
            if is_gone(&state.stream) {
                return Watch::Cut;
            }
            state.phase = Phase::Busy(now);
            tick = now + GONE_TICK;
        }
        Watch::Wait(Some(deadline.map_or(tick, |at| at.min(tick))))
    }

    /// Whether the connection leaves for another one. Only its own task knows for sure that
    /// nothing has come meanwhile.
    fn makes_room(&self, state: &mut State, now: Instant) -> bool {
        if std::mem::take(&mut state.dismissed) {
            let leaves = state.rests(now).is_some();
            if !leaves {
                self.wanted.say(true);
            }
            return leaves;
        }
        self.wanted.is_said() && state.rests(now).is_some() && self.wanted.take()
    }

    /// Whether a request is on its way that nobody else will answer: part of its head is here, or
    /// it is the first, and first ones are waited for.
    pub(super) fn awaits_request(&self, first: bool) -> bool {
        let state = self.state();
        match state.phase {
            Phase::Head(_) => first || state.heard || has_bytes(&state.stream),
            Phase::Idle(_) => has_bytes(&state.stream),
            Phase::Busy(_) | Phase::Closing => false,
        }
    }

    /// Whether the client has sent its last byte.
    pub(super) fn ended(&self) -> bool {
        self.state().ended
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn rests(&self, now: Instant) -> Option<Instant> {
        let since = match self.phase {
            Phase::Idle(since) => since,
            Phase::Head(since) if since + HEAD_GRACE <= now => since,
            _ => return None,
        };
        // Not with an answer on its way out, nor with bytes that hyper has not looked at.
        (self.reading && self.blocked.is_none() && !is_readable(&self.stream)).then_some(since)
    }
}

fn is_readable(stream: &TcpStream) -> bool {
    pin!(stream.readable()).poll(&mut Context::from_waker(Waker::noop())).is_ready()
}

/// Asks the kernel: the runtime learns of bytes only when it next looks.
fn has_bytes(stream: &TcpStream) -> bool {
    SockRef::from(stream).peek(&mut [MaybeUninit::uninit()]).is_ok_and(|bytes| bytes > 0)
}

/// A half-closed client counts as gone, as it does for hyper while nothing is unread.
fn is_gone(stream: &TcpStream) -> bool {
    let ready = pin!(stream.ready(Interest::READABLE | Interest::ERROR));
    match ready.poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(Ok(ready)) => ready.is_read_closed() || ready.is_error(),
        Poll::Ready(Err(_)) => true,
        Poll::Pending => false,
    }
}

/// While it lives, the connection answers a request: no deadline for the client's next bytes.
pub(super) struct Busy(Arc<Socket>);

impl Busy {
    /// A request's head is complete.
    pub(super) fn begin(socket: &Arc<Socket>) -> Self {
        socket.state().phase = Phase::Busy(Instant::now());
        Self(socket.clone())
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.state().phase = Phase::Idle(Instant::now());
    }
}

/// The socket as hyper sees it.
pub(super) struct Io(pub(super) Arc<Socket>);

impl AsyncRead for Io {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let mut state = self.0.state();
        let before = buf.remaining();
        let result = Pin::new(&mut state.stream).poll_read(cx, buf);
        state.reading = result.is_pending();
        if let Poll::Ready(Ok(())) = result {
            let read = before - buf.remaining();
            state.heard |= read > 0;
            state.ended |= read == 0 && before > 0;
            if let (true, Phase::Idle(_)) = (read > 0, state.phase) {
                state.phase = Phase::Head(Instant::now());
            }
        }
        result
    }
}

impl Io {
    fn write<T>(
        &self,
        write: impl FnOnce(Pin<&mut TcpStream>) -> Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        let mut state = self.0.state();
        let result = write(Pin::new(&mut state.stream));
        state.blocked = match result {
            Poll::Pending => state.blocked.or_else(|| Some(Instant::now())),
            Poll::Ready(_) => None,
        };
        result
    }
}

impl AsyncWrite for Io {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.write(|stream| stream.poll_write(cx, buf))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.write(|stream| stream.poll_write_vectored(cx, bufs))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0.state().stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0.state().stream).poll_shutdown(cx)
    }
}
