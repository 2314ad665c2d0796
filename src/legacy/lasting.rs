//! A client that leaves has not cancelled: what it asked for goes on for a while, unheard.
//!
//! spec: 2025-11-25 basic/transports, Sending Messages to the Server (Disconnection)

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Context;
use std::task::Poll;
use std::time::Duration;

use futures_util::Stream;
use futures_util::StreamExt;
use tokio::runtime::Handle;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::exchange::Frame;
use crate::exchange::Frames;
use crate::exchange::Reply;
use crate::model::limits::Limits;
use crate::model::name::TenantName;
use crate::model::tally::Tally;

/// A tenant may have one of so many parts of all calls that go on.
const PARTS: usize = 4;

/// What the work takes of something that there is a limit for: given back when the work is over.
pub type Kept = Box<dyn Send>;

/// Work on an answer, and nothing that is borrowed for it.
pub type Work<E> = Pin<Box<dyn Future<Output = Result<Reply<E>, E>> + Send>>;

/// Where work goes whose client has left. Clones are the same place.
#[derive(Clone)]
pub struct Orphanage {
    orphans: Arc<Tally<TenantName>>,
    tasks: TaskTracker,
    time: Duration,
    most: usize,
}

impl Orphanage {
    /// An empty one, whose work is done on `tasks`.
    pub fn new(limits: &Limits, tasks: TaskTracker) -> Self {
        Self { orphans: Arc::default(), tasks, time: limits.orphan_time, most: limits.orphan_calls }
    }

    /// Does `work` to its end, or until its time is over. Where there is no room it is dropped.
    fn take(&self, tenant: &TenantName, work: impl Future<Output = ()> + Send + 'static) {
        // What died by a fault of ours is not touched again, and without a runtime nothing goes on.
        if std::thread::panicking() || Handle::try_current().is_err() {
            return;
        }
        let Some(counted) = self.orphans.take(tenant.clone(), self.most / PARTS, self.most) else { return };
        let time = self.time;
        self.tasks.spawn(async move {
            // Nobody hears how it ends.
            let _ = timeout(time, work).await;
            drop(counted);
        });
    }
}

/// `work`, which outlives whoever waits for it, and so does the stream in its reply. `kept` is dropped
/// when nothing of it is left, and `left` is cancelled as soon as nobody hears the work any more.
///
/// # Cancel safety
/// Dropping the future, or that stream, leaves the rest of the work to the orphanage.
pub async fn outlive<E: Send + 'static>(
    work: Work<E>,
    kept: Kept,
    tenant: TenantName,
    after: Orphanage,
    left: CancellationToken,
) -> Result<Reply<E>, E> {
    let rest = Rest { tenant, after, left };
    let mut lasting = Lasting { work: Some((work, kept)), rest, kept: None };
    let end = (&mut lasting).await;
    match end {
        Ok(Reply::Stream(frames)) => {
            let frames = lasting.kept.take().map(|kept| (frames, kept));
            Ok(Reply::Stream(Box::pin(LastingFrames { frames, rest: lasting.rest.clone() })))
        }
        other => other,
    }
}

/// What becomes of work when its client leaves.
#[derive(Clone)]
struct Rest {
    tenant: TenantName,
    after: Orphanage,
    left: CancellationToken,
}

impl Rest {
    fn take(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.left.cancel();
        self.after.take(&self.tenant, work);
    }
}

struct Lasting<E: Send + 'static> {
    work: Option<(Work<E>, Kept)>,
    rest: Rest,
    /// Of work that is done, for the stream that may be left of it.
    kept: Option<Kept>,
}

impl<E: Send + 'static> Future for Lasting<E> {
    type Output = Result<Reply<E>, E>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Some((work, _)) = &mut self.work else { return Poll::Pending };
        let end = work.as_mut().poll(cx);
        if end.is_ready() {
            self.kept = self.work.take().map(|(_, kept)| kept);
        }
        end
    }
}

impl<E: Send + 'static> Drop for Lasting<E> {
    fn drop(&mut self) {
        let Some((work, kept)) = self.work.take() else { return };
        self.rest.take(async move {
            if let Ok(Reply::Stream(frames)) = work.await {
                finish(frames).await;
            }
            drop(kept);
        });
    }
}

struct LastingFrames<E: Send + 'static> {
    frames: Option<(Frames<E>, Kept)>,
    rest: Rest,
}

impl<E: Send + 'static> Stream for LastingFrames<E> {
    type Item = Frame<E>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Frame<E>>> {
        let Some((frames, _)) = &mut self.frames else { return Poll::Ready(None) };
        let frame = frames.poll_next_unpin(cx);
        if let Poll::Ready(None | Some(Frame::End(_))) = &frame {
            self.frames = None;
        }
        frame
    }
}

impl<E: Send + 'static> Drop for LastingFrames<E> {
    fn drop(&mut self) {
        if let Some((frames, kept)) = self.frames.take() {
            self.rest.take(async move {
                finish(frames).await;
                drop(kept);
            });
        }
    }
}

/// Reads `frames` to their end.
async fn finish<E>(mut frames: Frames<E>) {
    while let Some(Frame::Notice(_)) = frames.next().await {}
}
