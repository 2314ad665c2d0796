//! The stream of one listener: what is dirty becomes messages as the client reads.

use std::future::Future;
use std::future::ready;
use std::pin::pin;
use std::sync::Arc;

use futures_util::StreamExt;
use futures_util::stream;
use tokio::time::Instant;
use tokio::time::sleep_until;

use crate::exchange::Notice;
use crate::exchange::Notices;
use crate::listen::hub::Member;
use crate::listen::listener::Due;
use crate::listen::listener::Round;
use crate::listen::notice;
use crate::protocol::json::Json;
use crate::protocol::subscription::Kinds;

/// Who listens, as those know it who admitted it.
pub trait Audience: Send + Sync + 'static {
    /// Waits until nobody may listen any more.
    ///
    /// # Cancel safety
    /// Dropping the future loses nothing.
    fn over(&mut self) -> impl Future<Output = Over> + Send;

    /// Whether it may read this resource now: what it may not read it is not told of.
    fn may_read(&self, uri: &str) -> impl Future<Output = bool> + Send;
}

/// Why nobody may listen any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Over {
    /// Its time is over: what has changed until now is still told.
    Due,
    /// Who listens would not be admitted any more, and is told nothing.
    Barred,
}

/// What is said on a stream beside what changes.
pub enum Form {
    /// First what is honoured, and a result at the end: the answer to the request with this id.
    Subscription {
        /// The id.
        id: Json,
        /// The lists that were asked for.
        kinds: Kinds,
        /// The resources that are honoured, as the client spells them.
        uris: Vec<Arc<str>>,
    },
    /// Nothing.
    Session,
}

struct Writer<A> {
    member: Arc<Member>,
    audience: A,
    /// The id that its messages name.
    subscription: Option<Json>,
    /// What is said before all else.
    first: Option<Json>,
    /// What is being told.
    round: Round,
    /// When the next round may begin.
    free_at: Instant,
    phase: Phase,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Open,
    Draining,
    Ending,
    Over,
}

/// What `audience` hears of what `member` wants.
///
/// # Cancel safety
/// Dropping the stream ends the listening. What it has not told is told by the next one of the same member.
pub fn write<A: Audience>(member: Arc<Member>, audience: A, form: Form) -> Notices {
    let (subscription, first) = match form {
        Form::Subscription { id, kinds, uris } => {
            let first = notice::acknowledged(&id, kinds, &uris);
            (Some(id), Some(first))
        }
        Form::Session => (None, None),
    };
    let writer = Writer {
        member,
        audience,
        subscription,
        first,
        round: Round::default(),
        free_at: Instant::now(),
        phase: Phase::Open,
    };
    stream::unfold(writer, Writer::next).boxed()
}

impl<A: Audience> Writer<A> {
    async fn next(mut self) -> Option<(Notice, Self)> {
        if let Some(first) = self.first.take() {
            return Some((Notice::Message(first), self));
        }
        loop {
            while let Some(due) = self.round.next() {
                let told = self.tell(&due).await;
                self.round.done(&due);
                if let Some(message) = told {
                    return Some((Notice::Message(message), self));
                }
            }
            match self.phase {
                Phase::Open => self.wait().await,
                // spec: patterns/subscriptions, Graceful Closure: nothing comes after the result.
                Phase::Draining => {
                    self.phase = Phase::Ending;
                    self.round = self.member.listener().take();
                }
                Phase::Ending => {
                    self.phase = Phase::Over;
                    let result = notice::ended(self.subscription.as_ref()?);
                    return Some((Notice::End(result), self));
                }
                Phase::Over => return None,
            }
        }
    }

    /// Waits for what is to be told next, or for the end.
    async fn wait(&mut self) {
        let listener = self.member.listener().clone();
        // Armed before the bits are read, so that nothing marked in between is missed.
        let mut woken = pin!(listener.woken());
        woken.as_mut().enable();
        let is_dirty = listener.is_dirty();
        let is_free = self.free_at <= Instant::now();
        let over = tokio::select! {
            // First: who would not be admitted any more is told nothing more.
            biased;
            over = self.audience.over() => over,
            () = ready(()), if is_dirty && is_free => {
                self.round = listener.take();
                self.free_at = Instant::now() + self.member.pause();
                return;
            }
            () = sleep_until(self.free_at), if is_dirty => return,
            () = woken, if !is_dirty => return,
        };
        self.phase = match (over, &self.subscription) {
            // A session's stream has no end of its own: the next one tells what this one has not.
            (Over::Due, Some(_)) => Phase::Draining,
            (Over::Due | Over::Barred, _) => Phase::Ending,
        };
    }

    async fn tell(&self, due: &Due) -> Option<Json> {
        let label = match due {
            Due::List(kind) => kind.label(),
            Due::Resource(uri) => {
                if !self.audience.may_read(uri).await {
                    return None;
                }
                "updated"
            }
        };
        self.member.metrics().notification_sent(label);
        Some(notice::changed(self.subscription.as_ref(), due))
    }
}

impl<A> Drop for Writer<A> {
    fn drop(&mut self) {
        self.member.listener().put_back(&self.round);
    }
}
