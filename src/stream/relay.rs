//! From frames to an answer: one JSON object while that is possible, else a stream that a slow
//! reader cannot make grow.

use std::sync::Arc;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::Stream;
use futures_util::StreamExt;
use futures_util::stream;
use tokio::sync::Notify;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::sync::DropGuard;
use tokio_util::task::TaskTracker;

use crate::exchange::Frame;
use crate::exchange::Frames;
use crate::exchange::Reply;
use crate::protocol::call::Outcome;
use crate::protocol::json::Json;
use crate::stream::sse;

/// Decides between one answer and a stream, late: a stream begins with the first notification,
/// or after `late` without an answer, and only for a client that takes SSE.
///
/// # Cancel safety
/// Dropping the future drops `frames`, which cancels the request.
pub async fn settle<E: Send + 'static>(
    mut frames: Frames<E>,
    sse: bool,
    late: Duration,
) -> Result<Reply<E>, E> {
    let first = async {
        loop {
            match frames.next().await {
                Some(Frame::Progress(_)) if !sse => {}
                other => return other,
            }
        }
    };
    let first = if sse { timeout(late, first).await.ok() } else { Some(first.await) };
    match first {
        Some(Some(Frame::End(end))) => end.map(Reply::Once),
        Some(Some(frame)) => Ok(Reply::Stream(stream::iter([frame]).chain(frames).boxed())),
        // `Frames` promises an end; a source that broke the promise has an empty stream.
        Some(None) | None => Ok(Reply::Stream(frames)),
    }
}

/// What waits for the client to read it: at most one progress and one end, whatever arrives.
#[derive(Default)]
struct Mailbox {
    slots: Mutex<Slots>,
    changed: Notify,
}

#[derive(Default)]
struct Slots {
    progress: Option<Json>,
    end: Option<Json>,
}

impl Mailbox {
    fn put(&self, fill: impl FnOnce(&mut Slots)) {
        fill(&mut self.slots.lock().unwrap_or_else(PoisonError::into_inner));
        self.changed.notify_one();
    }

    /// The next message and whether it is the last.
    fn take(&self) -> Option<(Json, bool)> {
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        let progress = slots.progress.take().map(|json| (json, false));
        progress.or_else(|| slots.end.take().map(|json| (json, true)))
    }
}

/// Writes frames as SSE. The frames are read as they arrive, however slowly the client reads:
/// progress is coalesced, the end is never dropped. `render` makes the final message.
///
/// # Cancel safety
/// Dropping the stream stops the reading of `frames` and drops them.
pub fn write<E: Send + 'static>(
    mut frames: Frames<E>,
    render: impl FnOnce(Option<Result<Outcome, E>>) -> Json + Send + 'static,
    keep_alive: Duration,
    tasks: &TaskTracker,
) -> impl Stream<Item = Bytes> + Send + 'static {
    let mailbox = Arc::new(Mailbox::default());
    let cancel = CancellationToken::new();
    let (inbox, stop) = (mailbox.clone(), cancel.clone());
    let read = async move {
        let end = loop {
            match frames.next().await {
                Some(Frame::Progress(json)) => inbox.put(|slots| slots.progress = Some(json)),
                Some(Frame::End(end)) => break Some(end),
                None => break None,
            }
        };
        inbox.put(|slots| slots.end = Some(render(end)));
    };
    tasks.spawn(async move { stop.run_until_cancelled(read).map(drop).await });
    let state = Writer { mailbox, ended: false, _cancel: cancel.drop_guard() };
    stream::unfold(state, move |state| state.next(keep_alive))
}

struct Writer {
    mailbox: Arc<Mailbox>,
    ended: bool,
    _cancel: DropGuard,
}

impl Writer {
    async fn next(mut self, keep_alive: Duration) -> Option<(Bytes, Self)> {
        if self.ended {
            return None;
        }
        let mailbox = self.mailbox.clone();
        loop {
            // Armed before the slots are read, so that nothing put in between is missed.
            let changed = mailbox.changed.notified();
            if let Some((json, last)) = mailbox.take() {
                self.ended = last;
                return Some((sse::event(&json), self));
            }
            if timeout(keep_alive, changed).await.is_err() {
                return Some((Bytes::from_static(sse::KEEP_ALIVE), self));
            }
        }
    }
}
