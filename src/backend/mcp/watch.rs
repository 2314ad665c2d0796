//! Subscriptions to what changes at a server, in whichever era it speaks.
//!
//! Here is what both have in common: how many there may be, and what is remembered of a server that has no
//! such thing; and the modern one, a `subscriptions/listen` whose answer is a stream. The other is
//! `legacy::watch`.
//!
//! spec: patterns/subscriptions

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::MutexGuard;
use std::sync::PoisonError;

use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream;
use http::StatusCode;
use tokio::sync::OwnedSemaphorePermit;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use crate::backend::BackendError;
use crate::backend::clock::Clock;
use crate::backend::legacy;
use crate::backend::mcp::probe;
use crate::backend::mcp::probe::Era;
use crate::backend::mcp::probe::Probe;
use crate::backend::mcp::request;
use crate::backend::mcp::response::Reader;
use crate::backend::mcp::upstream::Upstream;
use crate::backend::meter::Meter;
use crate::backend::watch::Change;
use crate::backend::watch::Interest;
use crate::backend::watch::Watching;
use crate::protocol::code;
use crate::protocol::json::Json;
use crate::protocol::json::compose::Array;
use crate::protocol::json::compose::Object;
use crate::telemetry::metrics::Open;

const ACKNOWLEDGED: &str = "notifications/subscriptions/acknowledged";

/// The subscriptions to one server.
pub(super) struct Watches {
    places: Arc<Semaphore>,
    unheard: Mutex<Unheard>,
    /// Held by each that is open for resources or tasks, and here.
    hearing: Arc<()>,
}

/// What the server turned out to have no subscriptions to: the era, and until when that is believed.
#[derive(Default)]
struct Unheard {
    lists: Option<(Era, Instant)>,
    resources: Option<(Era, Instant)>,
}

/// One subscription is open, or about to be, until it is dropped.
pub(in crate::backend) struct Place {
    _permit: OwnedSemaphorePermit,
    _counted: Open,
}

/// What became of asking for a subscription.
pub(in crate::backend) enum Asked {
    /// It is open.
    Open(Watching),
    /// The server has none of what was asked for.
    Without,
}

impl Watches {
    /// None yet.
    pub(super) fn new(upstream: &Upstream) -> Self {
        let places = Arc::new(Semaphore::new(upstream.limits.upstream_watches));
        Self { places, unheard: Mutex::default(), hearing: Arc::new(()) }
    }

    /// Opens one. A server that has none to lists, or none to resources, is not asked for those again for
    /// `limits.refresh_time`.
    ///
    /// # Cancel safety
    /// Dropping the future, or the stream of changes, ends the subscription.
    pub(super) async fn open(
        &self,
        probe: &Arc<Probe>,
        interest: Interest,
    ) -> Result<Watching, BackendError> {
        let upstream = probe.upstream();
        let permit = self.places.clone().try_acquire_owned().map_err(|_| BackendError::Busy)?;
        let place =
            Place { _permit: permit, _counted: Open::new(&upstream.around.metrics.upstream_watches_open) };
        let era = probe.era().await?;
        // Whoever tells nothing else may tell what its tasks are at.
        if interest.tasks.is_empty()
            && let Some(until) = self.unheard().until(era, &interest)
        {
            return Ok(Watching::unheard(until));
        }
        let asked = Interest { uris: interest.uris.iter().take(1).cloned().collect(), ..interest.clone() };
        let late = || Err(BackendError::TimedOut { clock: Clock::Total, sent: true });
        let time = upstream.limits.watch_time;
        let opening: BoxFuture<'_, _> = match era {
            Era::Modern => {
                let listening = tokio::time::timeout(time, listen(probe, interest, place));
                Box::pin(async move { listening.await.unwrap_or_else(|_| late()) })
            }
            Era::Handshake => Box::pin(legacy::watch::open(probe, interest, place)),
        };
        match opening.await? {
            Asked::Open(watching) => Ok(self.opened(watching)),
            // What is open would give way to nothing.
            Asked::Without if self.has_open(era, &asked) => {
                Err(BackendError::Invalid("it has subscriptions, and none to this"))
            }
            Asked::Without => {
                let (tenant, backend) = (&upstream.tenant, &upstream.config.name);
                tracing::debug!(%tenant, %backend, "a backend does not tell what changes");
                let until = Instant::now() + upstream.limits.refresh_time;
                self.unheard().remember(era, &asked, until);
                Ok(Watching::unheard(until))
            }
        }
    }

    /// Whether the server is known to have what it says it has not. One of the handshake era has no tasks.
    fn has_open(&self, era: Era, asked: &Interest) -> bool {
        let may_be = asked.is_of_some() && (era == Era::Modern || !asked.uris.is_empty());
        may_be && Arc::strong_count(&self.hearing) > 1
    }

    /// One is open: what it honours, the server has.
    fn opened(&self, watching: Watching) -> Watching {
        let Watching { honoured, changes } = watching;
        let mut unheard = self.unheard();
        if honoured.is_of_lists() {
            unheard.lists = None;
        }
        if !honoured.is_of_some() {
            return Watching { honoured, changes };
        }
        unheard.resources = None;
        let hearing = self.hearing.clone();
        let changes = changes.inspect(move |_| {
            let _held = &hearing;
        });
        Watching { honoured, changes: Box::pin(changes) }
    }

    fn unheard(&self) -> MutexGuard<'_, Unheard> {
        self.unheard.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Unheard {
    /// Until when nothing of this interest is worth asking for.
    fn until(&self, era: Era, interest: &Interest) -> Option<Instant> {
        let believed = |known: Option<(Era, Instant)>| {
            known.filter(|(of, until)| *of == era && Instant::now() < *until).map(|(_, until)| until)
        };
        let lists = interest.is_of_lists().then(|| believed(self.lists));
        let resources = (!interest.uris.is_empty()).then(|| believed(self.resources));
        [lists, resources].into_iter().flatten().min().flatten()
    }

    /// The server has none of what was asked for.
    fn remember(&mut self, era: Era, asked: &Interest, until: Instant) {
        if asked.is_of_lists() {
            self.lists = Some((era, until));
        }
        if !asked.uris.is_empty() {
            self.resources = Some((era, until));
        }
    }
}

/// Asks for a subscription and waits for its acknowledgement.
async fn listen(probe: &Probe, interest: Interest, place: Place) -> Result<Asked, BackendError> {
    let upstream = probe.upstream();
    let (id, limits) = (upstream.mint_id(), &upstream.limits);
    let response = upstream.send(request::listen(upstream, id, &filter(&interest), &interest)?).await?;
    let status = response.status();
    if let StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED | StatusCode::NOT_IMPLEMENTED = status {
        return Ok(Asked::Without);
    }
    // What a task has come to is as large as any answer.
    let event_bytes =
        if interest.tasks.is_empty() { limits.listen_event_bytes } else { limits.upstream_bytes };
    let meter = Arc::new(Meter::new(limits));
    let mut reader = Reader::open(response, event_bytes, limits.json_depth)?.metered(meter.clone());
    loop {
        let message = reader.message().await?;
        if !meter.message() {
            return Err(BackendError::Invalid("it says more than is heard"));
        }
        if message.member("result").is_some() {
            reader.finish();
            // It ended before it began, or never knew what was asked.
            return Ok(Asked::Without);
        }
        if let Some(error) = message.member("error") {
            if error.member("code").and_then(|code| code.integer()) == Some(code::METHOD_NOT_FOUND) {
                reader.finish();
                return Ok(Asked::Without);
            }
            if probe::contradicts(status, Some(&message), id).is_some() {
                probe.forget(Era::Modern);
            }
            return Err(BackendError::Invalid("it refuses a subscription"));
        }
        // What comes before the acknowledgement is nothing that may.
        if let Some(honoured) = acknowledged(&message, &interest) {
            let rest = Watching::unheard(Instant::now() + limits.refresh_time).changes;
            let upstream = upstream.clone();
            let listening = Listening { upstream, reader, meter, interest, _place: place };
            let changes = stream::unfold(listening, Listening::next);
            // Nothing of this is honoured; something else may be.
            let is_empty = honoured.is_empty();
            let changes = if is_empty { changes.chain(rest).boxed() } else { changes.boxed() };
            return Ok(Asked::Open(Watching { honoured, changes }));
        }
    }
}

/// The filter of a subscription to this.
fn filter(interest: &Interest) -> Json {
    let mut filter = Object::new();
    for (key, wanted) in [
        ("toolsListChanged", interest.tools),
        ("promptsListChanged", interest.prompts),
        ("resourcesListChanged", interest.resources),
    ] {
        if wanted {
            filter = filter.put_bool(key, true);
        }
    }
    for (key, wanted) in [("resourceSubscriptions", &interest.uris), ("taskIds", &interest.tasks)] {
        if !wanted.is_empty() {
            let each = wanted.iter().fold(Array::new(), |each, one| each.push_str(one));
            filter = filter.put(key, &each.finish());
        }
    }
    filter.finish()
}

/// What of the interest a message acknowledges; `None` if it is no acknowledgement.
///
/// spec: patterns/subscriptions, Acknowledgment
fn acknowledged(message: &Json, interest: &Interest) -> Option<Interest> {
    message.member("method")?.string_ref().filter(|method| method == ACKNOWLEDGED)?;
    let filter = message.member("params").and_then(|params| params.member("notifications"));
    let filter = filter.unwrap_or_else(|| Object::new().finish());
    let agrees = |key: &str| filter.member(key).and_then(|value| value.boolean()) == Some(true);
    let agreed = |key: &str, wanted: &[Arc<str>]| {
        let named = filter.member(key);
        let named: HashSet<String> =
            named.iter().flat_map(|list| list.elements()).filter_map(|one| one.string()).collect();
        wanted.iter().filter(|one| named.contains(&***one)).cloned().collect()
    };
    Some(Interest {
        tools: interest.tools && agrees("toolsListChanged"),
        prompts: interest.prompts && agrees("promptsListChanged"),
        resources: interest.resources && agrees("resourcesListChanged"),
        uris: agreed("resourceSubscriptions", &interest.uris),
        tasks: agreed("taskIds", &interest.tasks),
    })
}

/// A subscription that was acknowledged. Dropped, its stream is closed, which ends it.
///
/// spec: patterns/subscriptions, Cancellation
struct Listening {
    upstream: Arc<Upstream>,
    reader: Reader,
    meter: Arc<Meter>,
    interest: Interest,
    _place: Place,
}

impl Listening {
    /// The next change, until the server ends the stream or says too much.
    async fn next(mut self) -> Option<(Change, Self)> {
        loop {
            // Its end is an end, however it comes.
            let message = self.reader.message().await.ok();
            if message.is_some() && !self.meter.message() || self.meter.is_spent() {
                let (tenant, backend) = (&self.upstream.tenant, &self.upstream.config.name);
                tracing::warn!(%tenant, %backend, "a backend says too much of what changes; its subscription is over");
                return None;
            }
            let message = message?;
            if message.member("method").is_none() {
                self.reader.finish();
                return None;
            }
            if let Some(change) = self.interest.change(&message) {
                return Some((change, self));
            }
        }
    }
}
