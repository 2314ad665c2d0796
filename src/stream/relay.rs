//! From frames to an answer: one JSON object while that is possible, else a stream that a slow
//! reader cannot make grow.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::MutexGuard;
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
                Some(Frame::Notice(_)) if !sse => {}
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

/// What waits for the client to read it: progress within a bound, and one end, whatever arrives.
struct Mailbox {
    slots: Mutex<Slots>,
    changed: Notify,
    most: usize,
}

#[derive(Default)]
struct Slots {
    progress: VecDeque<Json>,
    bytes: usize,
    end: Option<Json>,
    closed: bool,
}

impl Mailbox {
    fn new(most: usize) -> Self {
        Self { slots: Mutex::default(), changed: Notify::new(), most }
    }

    fn slots(&self) -> MutexGuard<'_, Slots> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps a progress. Where it does not fit, the oldest ones go: the newest says it all.
    fn progressed(&self, json: Json) {
        let mut slots = self.slots();
        slots.bytes += json.bytes().len();
        slots.progress.push_back(json);
        while slots.bytes > self.most && slots.progress.len() > 1 {
            let oldest = slots.progress.pop_front().map_or(0, |json| json.bytes().len());
            slots.bytes -= oldest;
        }
        drop(slots);
        self.changed.notify_one();
    }

    fn ended(&self, json: Json) {
        self.slots().end = Some(json);
        self.changed.notify_one();
    }

    fn take(&self) -> Post {
        let mut slots = self.slots();
        if let Some(json) = slots.progress.pop_front() {
            slots.bytes -= json.bytes().len();
            return Post::Progress(json);
        }
        match slots.end.take() {
            Some(json) => Post::End(json),
            None if slots.closed => Post::Closed,
            None => Post::Nothing,
        }
    }
}

/// What lies in the mailbox.
enum Post {
    Progress(Json),
    End(Json),
    /// Nothing, and nothing will: there was no final message, or whoever read the frames has died.
    Closed,
    Nothing,
}

/// The reader's side; however the reader ends, the writer hears of it.
struct Inbox(Arc<Mailbox>);

impl Drop for Inbox {
    fn drop(&mut self) {
        self.0.slots().closed = true;
        self.0.changed.notify_one();
    }
}

/// What a stream may cost beside its connection.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Silence after which the client gets a comment.
    pub keep_alive: Duration,
    /// Bytes of progress that may wait for the client.
    pub buffer: usize,
}

/// Writes frames as SSE. The frames are read as they arrive, however slowly the client reads:
/// old progress gives way to new, the end is never dropped. `render` makes the final message, where
/// there is one.
///
/// # Cancel safety
/// Dropping the stream stops the reading of `frames` and drops them.
pub fn write<E: Send + 'static>(
    mut frames: Frames<E>,
    render: impl FnOnce(Option<Result<Outcome, E>>) -> Option<Json> + Send + 'static,
    bounds: Bounds,
    tasks: &TaskTracker,
) -> impl Stream<Item = Bytes> + Send + 'static {
    let mailbox = Arc::new(Mailbox::new(bounds.buffer));
    let cancel = CancellationToken::new();
    let (inbox, stop) = (Inbox(mailbox.clone()), cancel.clone());
    let read = async move {
        let end = loop {
            match frames.next().await {
                Some(Frame::Notice(json)) => inbox.0.progressed(json),
                Some(Frame::End(end)) => break Some(end),
                None => break None,
            }
        };
        if let Some(last) = render(end) {
            inbox.0.ended(last);
        }
    };
    tasks.spawn(async move { stop.run_until_cancelled(read).map(drop).await });
    let state = Writer { mailbox, ended: false, _cancel: cancel.drop_guard() };
    stream::unfold(state, move |state| state.next(bounds.keep_alive))
}

/// Writes messages as SSE, each when the client is ready for it.
///
/// # Cancel safety
/// Dropping the stream drops `messages`.
pub fn write_messages(
    messages: impl Stream<Item = Json> + Send + Unpin + 'static,
    keep_alive: Duration,
) -> impl Stream<Item = Bytes> + Send + 'static {
    stream::unfold(messages, move |mut messages| async move {
        match timeout(keep_alive, messages.next()).await {
            Ok(message) => Some((sse::event(&message?), messages)),
            Err(_) => Some((Bytes::from_static(sse::KEEP_ALIVE), messages)),
        }
    })
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
            match mailbox.take() {
                Post::Progress(json) => return Some((sse::event(&json), self)),
                Post::End(json) => {
                    self.ended = true;
                    return Some((sse::event(&json), self));
                }
                Post::Closed => return None,
                Post::Nothing => {}
            }
            if timeout(keep_alive, changed).await.is_err() {
                return Some((Bytes::from_static(sse::KEEP_ALIVE), self));
            }
        }
    }
}
