//! What changes at a server of the handshake era: said on the GET stream of the gateway's own session,
//! for resources to whoever has subscribed to them there.
//!
//! A watch belongs to its session and ends with it, or with the stream; the next one subscribes anew.
//!
//! spec: 2025-11-25 server/resources, Subscriptions; basic/transports, Listening for Messages from the Server

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::MutexGuard;
use std::sync::PoisonError;

use futures_util::StreamExt;
use futures_util::stream;
use tokio::time::Instant;
use tokio::time::timeout;
use tokio::time::timeout_at;

use crate::backend::BackendError;
use crate::backend::clock::Clock;
use crate::backend::legacy::ear::Stage;
use crate::backend::legacy::pool::Lease;
use crate::backend::legacy::pool::Pool;
use crate::backend::legacy::session::Answered;
use crate::backend::legacy::session::Evidence;
use crate::backend::legacy::sessions::Holder;
use crate::backend::legacy::watchers::Watcher;
use crate::backend::mcp::probe::Era;
use crate::backend::mcp::probe::Probe;
use crate::backend::mcp::request::own_capabilities;
use crate::backend::mcp::watch::Asked;
use crate::backend::mcp::watch::Place;
use crate::backend::watch::Change;
use crate::backend::watch::Interest;
use crate::backend::watch::Watching;
use crate::protocol::json::Json;
use crate::protocol::json::compose::Object;

const SUBSCRIBE: &str = "resources/subscribe";
const UNSUBSCRIBE: &str = "resources/unsubscribe";

/// How many subscriptions of one watch are on their way at a time.
const AT_ONCE: usize = 8;

/// The resources that a session has subscribed to, by their own URI.
#[derive(Default)]
pub(super) struct Subscriptions(Mutex<HashMap<Arc<str>, Arc<Cell>>>);

/// One of them. Locked while the server is being told: what it hears of one resource is in order.
type Cell = tokio::sync::Mutex<Holding>;

#[derive(Default)]
struct Holding {
    /// How many watches hold it.
    watches: usize,
    /// Whether the server may think that it is subscribed to.
    told: bool,
    /// Whether it has said so.
    granted: bool,
}

/// A watch. Dropped, it takes its subscriptions back, and then gives the session back.
struct Watch {
    lease: Arc<Lease>,
    watcher: Arc<Watcher>,
    subscribed: Vec<Subscribed>,
    place: Option<Place>,
}

/// A subscription, until it is dropped. The last one of a resource unsubscribes.
struct Subscribed {
    lease: Arc<Lease>,
    uri: Arc<str>,
    cell: Arc<Cell>,
}

/// Why a resource is not subscribed to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Missing {
    /// The server says so.
    Refused,
    /// It has not said anything in time, or knows the session no more.
    Unknown,
}

/// What became of trying one session.
enum Tried {
    /// What is wanted may be said in it from now on, if it is subscribed to.
    Begun(Watch, Interest),
    /// It is over, and its successor may be better.
    Over,
    /// The server has nothing of what is wanted.
    Without,
}

/// Opens a watch in the gateway's own session. It begins within `limits.watch_time`, and subscribes to
/// resources for as long at most; what is not granted by then is not honoured.
pub(in crate::backend) async fn open(
    probe: &Probe,
    interest: Interest,
    place: Place,
) -> Result<Asked, BackendError> {
    let time = probe.upstream().limits.watch_time;
    let late = || BackendError::TimedOut { clock: Clock::Total, sent: true };
    let beginning = async {
        match attempt(probe, &interest, false).await? {
            Tried::Over => attempt(probe, &interest, true).await,
            tried => Ok(tried),
        }
    };
    let begun = timeout(time, beginning).await.unwrap_or_else(|_| Err(late()))?;
    let Tried::Begun(mut watch, wanted) = begun else { return Ok(Asked::Without) };
    let (honoured, is_answered) = watch.subscribe(wanted, Instant::now() + time).await;
    if honoured.is_empty() && !is_answered {
        return Err(late());
    }
    watch.place = Some(place);
    let changes = Box::pin(stream::unfold(watch, Watch::next));
    Ok(Asked::Open(Watching { honoured, changes }))
}

async fn attempt(probe: &Probe, interest: &Interest, again: bool) -> Result<Tried, BackendError> {
    let lease = Arc::new(lease(probe, again).await?);
    let session = lease.session().clone();
    let wanted = offered(session.about(), interest);
    if wanted.is_empty() {
        return Ok(Tried::Without);
    }
    // Before anything can be said: what it hears and does not want is dropped with it.
    let watcher = session.ear().watchers.add(wanted.clone());
    let watch = Watch { lease, watcher, subscribed: Vec::new(), place: None };
    session.listen().await;
    let ear = session.ear();
    match ear.stage() {
        Stage::Open | Stage::Silent => Ok(Tried::Begun(watch, wanted)),
        Stage::Shut | Stage::Opening => {
            Err(BackendError::NotOpened("its stream of notifications ends at once"))
        }
        // It has said too much in this session: in the next one it may begin anew.
        Stage::Deaf if ear.meter().is_spent() => {
            watch.lease.discard();
            Ok(Tried::Over)
        }
        // It does not know the session any more.
        Stage::Deaf if ear.was_open() => {
            watch.lease.lost();
            Ok(Tried::Over)
        }
        Stage::Deaf => Ok(Tried::Without),
    }
}

/// The gateway's own session.
async fn lease(probe: &Probe, again: bool) -> Result<Lease, BackendError> {
    let pool = probe.pool();
    let leased = Pool::lease(pool.clone(), Holder::Gateway, own_capabilities(), again).await;
    leased.map_err(|unopened| {
        match unopened.evidence {
            Evidence::None => {}
            Evidence::Unlike if pool.has_sessions() => {}
            Evidence::Unlike | Evidence::Modern => drop(probe.forget(Era::Handshake)),
        }
        unopened.error
    })
}

/// What of the interest a server with this `InitializeResult` may say.
///
/// spec: 2025-11-25 server/tools, server/prompts, server/resources, Capabilities
fn offered(about: Option<&Json>, interest: &Interest) -> Interest {
    let capabilities = about.and_then(|about| about.member("capabilities"));
    let has = |capability: &str, feature: &str| {
        let value = capabilities.as_ref().and_then(|all| all.member(capability)?.member(feature));
        value.and_then(|value| value.boolean()) == Some(true)
    };
    Interest {
        tools: interest.tools && has("tools", "listChanged"),
        prompts: interest.prompts && has("prompts", "listChanged"),
        resources: interest.resources && has("resources", "listChanged"),
        uris: if has("resources", "subscribe") { interest.uris.clone() } else { Vec::new() },
        tasks: Vec::new(),
    }
}

impl Watch {
    /// The next change, until the session ends or its stream does.
    async fn next(self) -> Option<(Change, Self)> {
        let change = self.watcher.next().await?;
        Some((change, self))
    }

    /// Subscribes to the resources that are wanted, each for half of the time until `deadline`; what is
    /// honoured with that, and whether the server has answered at all.
    async fn subscribe(&mut self, wanted: Interest, deadline: Instant) -> (Interest, bool) {
        let (lease, half) = (&self.lease, (deadline - Instant::now()) / 2);
        let each: Vec<_> = wanted.uris.iter().map(|uri| subscribed(lease.clone(), uri.clone())).collect();
        let each = each.into_iter().map(|one| async move {
            let by = deadline.min(Instant::now() + half);
            timeout_at(by, one).await.unwrap_or(Err(Missing::Unknown))
        });
        let granted: Vec<_> = stream::iter(each).buffer_unordered(AT_ONCE).collect().await;
        let is_answered = granted.iter().all(|one| !matches!(one, Err(Missing::Unknown)));
        self.subscribed = granted.into_iter().flatten().collect();
        let uris = self.subscribed.iter().map(|one| one.uri.clone()).collect();
        (Interest { uris, ..wanted }, is_answered)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.lease.session().ear().watchers.remove(&self.watcher);
    }
}

/// A subscription to `uri`: what there is of it in the session, or a new one.
///
/// # Cancel safety
/// Dropping the future takes back what the server may have granted.
async fn subscribed(lease: Arc<Lease>, uri: Arc<str>) -> Result<Subscribed, Missing> {
    let cell = lease.session().subscriptions().cell(&uri);
    let mut holding = cell.clone().lock_owned().await;
    holding.watches += 1;
    let subscribed = Subscribed { lease, uri, cell };
    if !holding.granted {
        holding.told = true;
        let session = subscribed.lease.session();
        match session.ask(SUBSCRIBE, &subscribed.params()).await {
            Answered::Granted => holding.granted = true,
            Answered::Refused => {
                holding.told = false;
                return Err(Missing::Refused);
            }
            Answered::NoSession => {
                holding.told = false;
                subscribed.lease.lost();
                return Err(Missing::Unknown);
            }
        }
    }
    Ok(subscribed)
}

impl Subscribed {
    fn params(&self) -> Json {
        Object::new().put_str("uri", &self.uri).finish()
    }
}

impl Drop for Subscribed {
    /// Unsubscribes beside the requests, for at most `limits.notice_time`.
    fn drop(&mut self) {
        let (lease, uri, cell) = (self.lease.clone(), self.uri.clone(), self.cell.clone());
        let params = self.params();
        let upstream = lease.session().upstream().clone();
        let time = upstream.limits.notice_time;
        upstream.around.background(async move {
            let mut holding = cell.clone().lock_owned().await;
            holding.watches -= 1;
            if holding.watches == 0 && std::mem::take(&mut holding.told) {
                holding.granted = false;
                // Best effort: what is said all the same, nobody hears.
                let _ = tokio::time::timeout(time, lease.session().ask(UNSUBSCRIBE, &params)).await;
            }
            drop(holding);
            lease.session().subscriptions().forget(&uri, cell);
        });
    }
}

impl Subscriptions {
    /// What there is of this resource.
    fn cell(&self, uri: &Arc<str>) -> Arc<Cell> {
        self.all().entry(uri.clone()).or_default().clone()
    }

    /// Gives `cell` back. It goes if nobody else has it.
    fn forget(&self, uri: &str, cell: Arc<Cell>) {
        let mut all = self.all();
        // Ours, and the one in here: others are handed out under this lock alone.
        if Arc::strong_count(&cell) == 2 {
            all.remove(uri);
        }
    }

    fn all(&self) -> MutexGuard<'_, HashMap<Arc<str>, Arc<Cell>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
