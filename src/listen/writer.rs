//! The stream of one listener: what is dirty becomes messages as the client reads.

use std::future::Future;
use std::future::ready;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::StreamExt;
use futures_util::stream;
use tokio::time::Instant;
use tokio::time::sleep_until;
use tokio::time::timeout_at;

use crate::exchange::Notice;
use crate::exchange::Notices;
use crate::listen::hub::Member;
use crate::listen::listener::Due;
use crate::listen::listener::Round;
use crate::listen::notice;
use crate::listen::task::Late;
use crate::protocol::json::Json;
use crate::protocol::subscription::Kinds;

/// When that is looked up again that could not be looked up.
const AGAIN: Duration = Duration::from_secs(1);

/// How long one task, or one resource, is looked up, and everything that is still told at the end.
const LOOK_UP: Duration = Duration::from_secs(2);

/// Who listens, as those know it who admitted it.
pub trait Audience: Send + Sync + 'static {
    /// Waits until nobody may listen any more. Where that is so, the first poll says it.
    ///
    /// # Cancel safety
    /// Dropping the future loses nothing.
    fn over(&self) -> impl Future<Output = Over> + Send;

    /// Whether it may read this resource now: what it may not read it is not told of.
    fn may_read(&self, uri: &str) -> impl Future<Output = bool> + Send;

    /// What the task with this key is at, if it is one that is listened to and may be asked for now.
    fn task(&self, _key: &str) -> impl Future<Output = Result<Option<Json>, Late>> + Send {
        ready(Ok(None))
    }
}

/// Why nobody may listen any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Over {
    /// The process leaves: what has changed until now, and is known here, is still told.
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
        /// The tasks that are honoured, as the client knows them.
        tasks: Vec<Arc<str>>,
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
    /// What could not be looked up.
    late: Vec<Arc<str>>,
    /// When that is dirty again.
    late_at: Option<Instant>,
    phase: Phase,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Open,
    /// Nothing new is told, and nothing is looked up after that.
    Ending(Instant),
    Over,
}

/// What `audience` hears of what `member` wants.
///
/// # Cancel safety
/// Dropping the stream ends the listening. What it has not told is told by the next one of the same member.
pub fn write<A: Audience>(member: Arc<Member>, audience: A, form: Form) -> Notices {
    let (subscription, first) = match form {
        Form::Subscription { id, kinds, uris, tasks } => {
            let first = notice::acknowledged(&id, kinds, &uris, &tasks);
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
        late: Vec::new(),
        late_at: None,
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
            if let Some(due) = self.round.next() {
                match self.tell(&due).await {
                    Some(message) => return Some((Notice::Message(message), self)),
                    None => continue,
                }
            }
            match self.phase {
                Phase::Open => self.wait().await,
                // spec: patterns/subscriptions, Graceful Closure: nothing comes after the result.
                Phase::Ending(_) => {
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
        let rate = self.member.limits().notification_rate;
        // Armed before the bits are read, so that nothing marked in between is missed.
        let mut woken = pin!(listener.woken());
        woken.as_mut().enable();
        let now = Instant::now();
        if self.late_at.is_some_and(|at| at <= now) {
            self.late_at = None;
            self.late.drain(..).for_each(|uri| listener.mark_resource(&uri));
        }
        let (at, late_at) = (listener.due(rate).map(|at| at.max(self.free_at)), self.late_at);
        let over = tokio::select! {
            // First: who would not be admitted any more is told nothing more.
            biased;
            over = self.audience.over() => over,
            () = ready(()), if at.is_some_and(|at| at <= Instant::now()) => {
                self.round = listener.take(rate);
                self.free_at = Instant::now() + self.member.limits().notification_pause;
                return;
            }
            () = sleep_until(at.unwrap_or(now)), if at.is_some() => return,
            () = sleep_until(late_at.unwrap_or(now)), if late_at.is_some() => return,
            // Lists do not wait for the next second.
            () = woken, if at.is_none_or(|at| at > self.free_at) => return,
        };
        self.end(over);
    }

    /// What has not been told is told at the end, or by the next stream of a session.
    fn end(&mut self, over: Over) {
        let listener = self.member.listener();
        listener.put_back(&std::mem::take(&mut self.round));
        self.late.drain(..).for_each(|uri| listener.mark_resource(&uri));
        if over == Over::Due && self.subscription.is_some() {
            self.round = listener.take(usize::MAX);
        }
        self.phase = Phase::Ending(Instant::now() + LOOK_UP);
    }

    /// Looks that up, and what there is to say of it. It is asked for as long as somebody may listen.
    async fn tell(&mut self, due: &Due) -> Option<Json> {
        let over = self.audience.over();
        let found = match self.phase {
            Phase::Open => tokio::select! {
                biased;
                over = over => Err(over),
                found = self.look_up(due, Instant::now() + LOOK_UP) => Ok(found),
            },
            Phase::Ending(until) => match over.now_or_never() {
                Some(Over::Barred) => Err(Over::Barred),
                // What needs a backend is not told at the end.
                Some(Over::Due) | None if due.is_task() => Ok(Ok(None)),
                Some(Over::Due) | None => Ok(self.look_up(due, until).await),
            },
            Phase::Over => return None,
        };
        let found = match found {
            Ok(found) => found,
            Err(over) => {
                self.end(over);
                return None;
            }
        };
        self.round.done(due);
        if found.is_err() {
            self.late.extend(due.uri().cloned());
            self.late_at.get_or_insert_with(|| Instant::now() + AGAIN);
        }
        // Who takes long to be looked up keeps nothing else waiting.
        if self.phase == Phase::Open && due.is_task() && self.free_at <= Instant::now() {
            self.member.listener().put_back(&std::mem::take(&mut self.round));
        }
        let message = found.ok().flatten()?;
        self.member.metrics().notification_sent(due.label());
        Some(message)
    }

    /// What there is to say of that, as far as it is known by `until`.
    async fn look_up(&self, due: &Due, until: Instant) -> Result<Option<Json>, Late> {
        let subscription = self.subscription.as_ref();
        match due {
            Due::List(_) => {}
            Due::Resource(key) if due.is_task() => {
                // In a box of their own: there is a writer for every stream, and most have nothing to look up.
                let asked = Box::pin(self.audience.task(key));
                let task = timeout_at(until, asked).await.unwrap_or(Err(Late))?;
                return Ok(task.map(|task| notice::task(subscription, &task)));
            }
            Due::Resource(uri) => {
                let asked = Box::pin(self.audience.may_read(uri));
                if !timeout_at(until, asked).await.map_err(|_| Late)? {
                    return Ok(None);
                }
            }
        }
        Ok(Some(notice::changed(subscription, due)))
    }
}

impl<A> Drop for Writer<A> {
    fn drop(&mut self) {
        let listener = self.member.listener();
        listener.put_back(&self.round);
        self.late.iter().for_each(|uri| listener.mark_resource(uri));
    }
}
