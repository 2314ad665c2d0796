//! The sessions with one server: no two owners share one, and each is opened once for all who need it.
//!
//! The pool belongs to one backend of one tenant. In it a session is keyed by its owner, by the value of
//! the credential that it was opened with and by the capabilities that it declares: two callers never
//! meet in one, also where there is no credential and the server could not tell them apart.

use std::sync::Arc;
use std::sync::Mutex;
use std::sync::MutexGuard;
use std::sync::PoisonError;
use std::sync::Weak;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::StreamExt;
use futures_util::stream;
use tokio::sync::oneshot;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::backend::BackendError;
use crate::backend::backoff::Backoff;
use crate::backend::clock::Clock;
use crate::backend::credential::Identity;
use crate::backend::legacy::parking::Parking;
use crate::backend::legacy::session::Evidence;
use crate::backend::legacy::session::Session;
use crate::backend::legacy::session::Unopened;
use crate::backend::legacy::sessions::Fate;
use crate::backend::legacy::sessions::Found;
use crate::backend::legacy::sessions::Held;
use crate::backend::legacy::sessions::Holder;
use crate::backend::legacy::sessions::Key;
use crate::backend::legacy::sessions::Opened;
use crate::backend::legacy::sessions::Sessions;
use crate::backend::mcp::upstream::Upstream;
use crate::model::limits::Limits;
use crate::model::name::TenantName;
use crate::model::tally::Counted;
use crate::protocol::json::Json;
use crate::telemetry::metrics::SessionEvent;

/// How often a session is looked for that was open a moment ago.
const TRIES: usize = 3;

/// A tenant may hold one of so many parts of all sessions of callers.
const PARTS: usize = 4;

/// How many sessions are ended at a time.
const ENDINGS: usize = 32;

/// How long a session of a retired pool waits for who needed it.
const RETIRED_IDLE: Duration = Duration::from_secs(1);

/// The sessions with one server.
pub(in crate::backend) struct Pool {
    upstream: Arc<Upstream>,
    backoff: Backoff,
    sessions: Mutex<Sessions>,
    parking: Parking,
    /// Cancelled when no new owner will come.
    retired: CancellationToken,
}

/// Leave to send one request in a session. The session does not end before this is dropped, unless the
/// process does.
pub(in crate::backend) struct Lease {
    pool: Arc<Pool>,
    serial: u64,
    session: Arc<Session>,
}

impl Pool {
    /// No sessions yet.
    pub(in crate::backend) fn new(upstream: Arc<Upstream>) -> Self {
        let backoff = Backoff::new(&upstream.limits);
        let retired = upstream.around.stop.child_token();
        Self { upstream, backoff, sessions: Mutex::default(), parking: Parking::new(), retired }
    }

    /// The limits of this process.
    pub(super) fn limits(&self) -> &Limits {
        &self.upstream.limits
    }

    /// The way to the server.
    pub(super) fn upstream(&self) -> &Arc<Upstream> {
        &self.upstream
    }

    /// The calls that wait for their clients.
    pub(super) fn parking(&self) -> &Parking {
        &self.parking
    }

    /// Cancelled when no new owner will come.
    pub(super) fn retired(&self) -> &CancellationToken {
        &self.retired
    }

    /// Whether it is worth trying to open the server.
    pub(in crate::backend) fn backoff(&self) -> &Backoff {
        &self.backoff
    }

    /// Whether there is a session that the server is not known to have forgotten.
    pub(super) fn has_sessions(&self) -> bool {
        self.sessions().has_any()
    }

    /// A session of `holder` that declares these capabilities, opened if there is none. `again` says that
    /// there was one which was lost.
    ///
    /// # Cancel safety
    /// Dropping the future leaves an opening to whoever needs the session next.
    pub(in crate::backend) async fn lease(
        self: Arc<Self>,
        holder: Holder,
        capabilities: Json,
        again: bool,
    ) -> Result<Lease, Unopened> {
        for _ in 0..TRIES {
            let identity = self.upstream.identity()?;
            let declared = capabilities.bytes().clone();
            let key = Key { holder: holder.clone(), credential: identity.version, capabilities: declared };
            match self.find(&key, identity, &capabilities, again)? {
                Some(Found::Open(serial, session)) => return Ok(Lease { pool: self, serial, session }),
                Some(Found::Opening(opened)) => opened.await?,
                // The credential changed while it was read.
                None => {}
            }
        }
        Err(BackendError::Busy.into())
    }

    /// What there is for `key`; an opening, begun if there is none. `None` if there is a newer credential.
    fn find(
        self: &Arc<Self>,
        key: &Key,
        identity: Identity,
        capabilities: &Json,
        again: bool,
    ) -> Result<Option<Found>, BackendError> {
        let mut sessions = self.sessions();
        let mut ended = sessions.renew(key.credential);
        let found = if sessions.is_outdated(key) {
            Ok(None)
        } else if let Some(found) = sessions.find(key) {
            Ok(Some(found))
        } else {
            let around = &self.upstream.around;
            let most = self.limits().all_upstream_sessions;
            let seat = || around.seats.sessions.take(self.upstream.tenant.clone(), most / PARTS, most);
            sessions.make_room(&key.holder, self.limits().upstream_sessions, seat).map(|room| {
                ended.extend(room.oldest);
                let (pool, holder) = (self.clone(), key.holder.clone());
                let capabilities = capabilities.clone();
                let opening = async move { pool.open(&holder, identity, &capabilities, again).await };
                let opened = self.begin(key.clone(), room.seat, opening);
                sessions.opening(key.clone(), opened.clone());
                Some(Found::Opening(opened))
            })
        };
        drop(sessions);
        self.end(ended);
        found
    }

    /// Opens a session beside the requests: it does not end with who needed it first.
    fn begin(
        self: &Arc<Self>,
        key: Key,
        seat: Option<Counted<TenantName>>,
        opening: impl Future<Output = Result<Session, Unopened>> + Send + 'static,
    ) -> Opened {
        let (tell, told) = oneshot::channel();
        let pool = self.clone();
        self.upstream.around.background(async move {
            let begun = Begun { pool: &pool, key: Some(key) };
            let opened = pool.upstream.around.stop.run_until_cancelled(opening).await;
            let opened = opened.unwrap_or_else(|| Err(stopped()));
            let _ = tell.send(begun.place(seat, opened));
        });
        told.map(|opened| opened.unwrap_or_else(|_| Err(given_up()))).boxed().shared()
    }

    async fn open(
        &self,
        holder: &Holder,
        identity: Identity,
        capabilities: &Json,
        again: bool,
    ) -> Result<Session, Unopened> {
        let opening = self.backoff.enter().await?;
        let session = Session::open(&self.upstream, identity, capabilities, *holder == Holder::Gateway);
        let late = |_| Unopened::from(BackendError::TimedOut { clock: Clock::Open, sent: false });
        let opened = tokio::time::timeout(self.limits().open_time, session).await;
        let opened = opened.map_err(late).and_then(|opened| opened);
        self.upstream.around.metrics.upstream_session(match &opened {
            Ok(_) if again => SessionEvent::Reopened,
            Ok(_) => SessionEvent::Opened,
            Err(_) => SessionEvent::Failed,
        });
        match &opened {
            Ok(_) => opening.succeeded(),
            // Whoever refuses like that is well.
            Err(unopened) if unopened.evidence == Evidence::Modern => drop(opening),
            Err(unopened) => opening.failed(&unopened.error),
        }
        opened
    }

    /// Takes care that sessions which nobody uses end.
    fn watch(self: &Arc<Self>) {
        if !std::mem::replace(&mut self.sessions().watched, true) {
            let (pool, idle) = (Arc::downgrade(self), self.limits().upstream_session_idle);
            let (retired, stop) = (self.retired.clone(), self.upstream.around.stop.clone());
            self.upstream.around.background(async move {
                if stop.run_until_cancelled(watch_idle(pool.clone(), retired, idle)).await.is_some() {
                    return;
                }
                // The process ends: a pool of an earlier configuration is known to nobody else.
                if let Some(pool) = pool.upgrade() {
                    pool.shutdown().await;
                }
            });
        }
    }

    /// No new owner will come: what is not in use ends now, the rest when it is given back.
    pub(in crate::backend) fn retire(&self) {
        self.retired.cancel();
        let ended = self.sessions().take_idle(|_| true);
        self.end(ended);
    }

    /// Ends all calls that wait for their clients, then all sessions, in use or not, each within
    /// `limits.notice_time`.
    ///
    /// # Cancel safety
    /// Dropping the future leaves the rest to the server.
    pub(in crate::backend) async fn shutdown(&self) {
        self.retired.cancel();
        // Before the sessions that they are in.
        self.parking.give_all_up().await;
        let all = {
            let mut sessions = self.sessions();
            sessions.watched = false;
            sessions.take_all()
        };
        end_all(self.ended(all), self.upstream.limits.notice_time).await;
    }

    fn end(&self, ended: Vec<Held>) {
        let ended = self.ended(ended);
        if !ended.is_empty() {
            self.upstream.around.background(end_all(ended, self.upstream.limits.notice_time));
        }
    }

    /// Counts sessions that are over; those whose servers have to be told.
    fn ended(&self, ended: Vec<Held>) -> Vec<Arc<Session>> {
        ended.iter().for_each(|_| self.upstream.around.metrics.upstream_session(SessionEvent::Ended));
        ended.into_iter().filter(|held| held.fate != Fate::Gone).map(|held| held.session).collect()
    }

    /// Ends what nobody used for `idle`; when the next one may be due, if there is any.
    fn end_idle(&self, idle: Duration) -> Option<Instant> {
        let now = Instant::now();
        let mut sessions = self.sessions();
        let ended = sessions.take_idle(|held| held.used + idle <= now);
        let next = sessions.next_idle(idle);
        sessions.watched = next.is_some();
        drop(sessions);
        self.end(ended);
        next
    }

    fn sessions(&self) -> MutexGuard<'_, Sessions> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An opening that has begun. Whatever becomes of it, the place that it has ends with it.
struct Begun<'p> {
    pool: &'p Arc<Pool>,
    key: Option<Key>,
}

impl Begun<'_> {
    /// Puts what was opened where it is looked for.
    fn place(
        mut self,
        seat: Option<Counted<TenantName>>,
        opened: Result<Session, Unopened>,
    ) -> Result<(), Unopened> {
        let Some(key) = self.key.take() else { return Ok(()) };
        let mut sessions = self.pool.sessions();
        sessions.opened(&key);
        let outdated = sessions.put(key, Arc::new(opened?), seat);
        drop(sessions);
        self.pool.end(outdated.into_iter().collect());
        self.pool.watch();
        Ok(())
    }
}

impl Drop for Begun<'_> {
    fn drop(&mut self) {
        if let Some(key) = self.key.take() {
            self.pool.sessions().opened(&key);
        }
    }
}

impl Lease {
    /// The session.
    pub(in crate::backend) fn session(&self) -> &Arc<Session> {
        &self.session
    }

    /// The server does not know it any more.
    pub(super) fn lost(&self) {
        self.pool.sessions().let_go(self.serial, Fate::Gone);
        self.session.ear().watchers.end();
    }

    /// Nobody else should be given it.
    pub(super) fn discard(&self) {
        self.pool.sessions().let_go(self.serial, Fate::Ends);
        self.session.ear().watchers.end();
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let ended = self.pool.sessions().give_back(self.serial, self.pool.retired.is_cancelled());
        self.pool.end(ended.into_iter().collect());
    }
}

fn stopped() -> Unopened {
    BackendError::NotOpened("this gateway is about to end").into()
}

/// For who waits for an opening whose task has died.
fn given_up() -> Unopened {
    BackendError::NotOpened("its opening was given up").into()
}

async fn end_all(sessions: Vec<Arc<Session>>, time: Duration) {
    let ending = stream::iter(sessions).for_each_concurrent(ENDINGS, async |session| session.end(time).await);
    let _ = tokio::time::timeout(time, ending).await;
}

/// Ends sessions that nobody uses, for as long as there are any. In a pool that is retired they do not
/// wait for others.
async fn watch_idle(pool: Weak<Pool>, retired: CancellationToken, idle: Duration) {
    loop {
        let idle = if retired.is_cancelled() { idle.min(RETIRED_IDLE) } else { idle };
        let Some(next) = pool.upgrade().and_then(|pool| pool.end_idle(idle)) else { return };
        let waiting = tokio::time::sleep_until(next);
        match retired.is_cancelled() {
            true => waiting.await,
            false => drop(retired.run_until_cancelled(waiting).await),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::Pool;
    use crate::backend::BackendError;
    use crate::backend::legacy::sessions::Holder;
    use crate::backend::legacy::sessions::Key;
    use crate::backend::mcp::tests::way;

    #[tokio::test]
    async fn an_opening_that_dies_is_told_to_who_waits_and_leaves_its_place() {
        let pool = Arc::new(Pool::new(way("http://127.0.0.1:9/")));
        let key = Key { holder: Holder::Gateway, credential: 0, capabilities: "{}".into() };
        for _ in 0..3 {
            let opened = pool.begin(key.clone(), None, async { panic!("on purpose") });
            pool.sessions().opening(key.clone(), opened.clone());
            let unopened = opened.await.unwrap_err();
            assert!(matches!(unopened.error, BackendError::NotOpened(reason) if reason.contains("given up")));
            assert!(pool.sessions().find(&key).is_none());
        }
    }
}
