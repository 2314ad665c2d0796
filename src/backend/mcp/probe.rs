//! Which era a server speaks: as configured, or as it turns out.
//!
//! A server is asked `server/discover`. A discover result, or an error that only the modern era has, is
//! the modern one; after any other answer, or silence, `initialize` is tried, and the handshake era is
//! believed only of who answers that as it should be answered. A refused credential, a server's failure
//! and no connection are no evidence. What was learnt holds until it is contradicted.
//!
//! spec: basic/versioning, Backward Compatibility with Initialization-Based Versions;
//! streamable-http, Backward Compatibility

use std::fmt;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::MutexGuard;
use std::sync::PoisonError;
use std::sync::atomic::AtomicU8;
use std::sync::atomic::Ordering;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use futures_util::future::Shared;
use http::StatusCode;
use tokio::sync::oneshot;

use crate::backend::Account;
use crate::backend::BackendError;
use crate::backend::legacy::pool::Pool;
use crate::backend::legacy::session::Evidence;
use crate::backend::legacy::sessions::Holder;
use crate::backend::mcp::request;
use crate::backend::mcp::response::Reader;
use crate::backend::mcp::upstream::Upstream;
use crate::model::tenant::BackendEra;
use crate::protocol::code;
use crate::protocol::json::Json;
use crate::protocol::json::Kind;
use crate::protocol::json::compose::Object;
use crate::protocol::methods::Method;
use crate::protocol::version;
use crate::protocol::version::Handshake;
use crate::telemetry::metrics::Probed;

/// The era that a server is spoken to in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::backend) enum Era {
    /// Every request says all that is needed.
    Modern,
    /// Sessions that begin with `initialize`.
    Handshake,
}

impl fmt::Display for Era {
    /// As the tenants file names it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Modern => "modern",
            Self::Handshake => "legacy",
        })
    }
}

/// What is known of one server's era, and how it is found out.
pub(in crate::backend) struct Probe {
    upstream: Arc<Upstream>,
    pool: Arc<Pool>,
    setting: BackendEra,
    /// [`UNKNOWN`], or an era plus one.
    learnt: AtomicU8,
    /// The probe that is going on: who does not know waits for it, too.
    going_on: Mutex<Option<Learning>>,
}

type Learning = Shared<BoxFuture<'static, Result<Era, BackendError>>>;

const UNKNOWN: u8 = 0;
const MODERN: u8 = 1;
const HANDSHAKE: u8 = 2;

/// What an answer to `server/discover` says about who gave it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sign {
    /// It speaks our revision, or an error of its era.
    Modern,
    /// It may speak the handshake.
    Unlike,
    /// It says which revisions it speaks, and none is ours.
    Foreign,
}

impl Probe {
    /// Of a server that is spoken to as `setting` says.
    pub(in crate::backend) fn new(setting: BackendEra, upstream: Arc<Upstream>, pool: Arc<Pool>) -> Self {
        let learnt = AtomicU8::new(match setting {
            BackendEra::Auto => UNKNOWN,
            BackendEra::Modern => MODERN,
            BackendEra::Handshake => HANDSHAKE,
        });
        Self { upstream, pool, setting, learnt, going_on: Mutex::default() }
    }

    /// The way to the server.
    pub(in crate::backend) fn upstream(&self) -> &Arc<Upstream> {
        &self.upstream
    }

    /// The sessions with it.
    pub(in crate::backend) fn pool(&self) -> &Arc<Pool> {
        &self.pool
    }

    /// The era, if it is known.
    pub(in crate::backend) fn known(&self) -> Option<Era> {
        match self.learnt.load(Ordering::Acquire) {
            MODERN => Some(Era::Modern),
            HANDSHAKE => Some(Era::Handshake),
            _ => None,
        }
    }

    /// The era, found out if it is not known.
    ///
    /// # Cancel safety
    /// Dropping the future leaves the probe to whoever asks next.
    pub(in crate::backend) async fn era(self: &Arc<Self>) -> Result<Era, BackendError> {
        match self.known() {
            Some(era) => Ok(era),
            None => self.join().await,
        }
    }

    /// Forgets `era`, unless something else was learnt since, or it is configured. Whether it did.
    pub(in crate::backend) fn forget(&self, era: Era) -> bool {
        let was = stored(era);
        let forgets = self.setting == BackendEra::Auto
            && self.learnt.compare_exchange(was, UNKNOWN, Ordering::AcqRel, Ordering::Acquire).is_ok();
        if forgets {
            let (tenant, backend) = (&self.upstream.tenant, &self.upstream.config.name);
            tracing::info!(%tenant, %backend, %era, "a backend answers as if it were of another era");
        }
        forgets
    }

    /// Joins the probe that is going on, or begins one. It does not end with who began it.
    fn join(self: &Arc<Self>) -> Learning {
        let probe = self.clone();
        self.join_with(async move { probe.learn().await })
    }

    fn join_with(
        self: &Arc<Self>,
        learning: impl Future<Output = Result<Era, BackendError>> + Send + 'static,
    ) -> Learning {
        let mut going_on = self.going_on();
        if let Some(running) = &*going_on {
            return running.clone();
        }
        let (tell, told) = oneshot::channel();
        let probe = self.clone();
        self.upstream.around.background(async move {
            let going_on = GoingOn(&probe);
            let found = probe.upstream.around.stop.run_until_cancelled(learning).await;
            drop(going_on);
            let _ = tell.send(found.unwrap_or(Err(STOPPED)));
        });
        let joined = told.map(|found| found.unwrap_or(Err(GIVEN_UP))).boxed().shared();
        *going_on = Some(joined.clone());
        joined
    }

    fn going_on(&self) -> MutexGuard<'_, Option<Learning>> {
        self.going_on.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn learn(&self) -> Result<Era, BackendError> {
        let found = self.find().await;
        let (tenant, backend) = (&self.upstream.tenant, &self.upstream.config.name);
        match &found {
            Ok(era) => {
                self.learnt.store(stored(*era), Ordering::Release);
                tracing::info!(%tenant, %backend, %era, "the era of a backend is known");
            }
            Err(error) => tracing::debug!(%tenant, %backend, %error, "the era of a backend is not known"),
        }
        found
    }

    async fn find(&self) -> Result<Era, BackendError> {
        let metrics = &self.upstream.around.metrics;
        let opening = self.pool.backoff().enter().await?;
        let silence = self.upstream.limits.probe_time;
        // Silence is how some servers take what they do not understand.
        let sign = tokio::time::timeout(silence, self.discover()).await.unwrap_or(Ok(Sign::Unlike));
        let found = match sign.map_err(BackendError::before_request) {
            Ok(Sign::Modern) => {
                opening.succeeded();
                Ok(Era::Modern)
            }
            Ok(Sign::Foreign) => {
                let error = BackendError::NotOpened("it speaks no revision that this gateway speaks");
                opening.failed(&error);
                Err(error)
            }
            Ok(Sign::Unlike) => {
                drop(opening);
                self.shake_hands().await
            }
            Err(error) => {
                opening.failed(&error);
                Err(error)
            }
        };
        metrics.probe(match &found {
            Ok(Era::Modern) => Probed::Modern,
            Ok(Era::Handshake) => Probed::Handshake,
            Err(_) => Probed::Failed,
        });
        found
    }

    /// Begins the session that the gateway needs for lists; whoever can do that speaks the handshake.
    async fn shake_hands(&self) -> Result<Era, BackendError> {
        match Pool::lease(self.pool.clone(), Holder::Gateway, request::own_capabilities(), false).await {
            Ok(_) => Ok(Era::Handshake),
            // It was only slow before.
            Err(unopened) if unopened.evidence == Evidence::Modern => Ok(Era::Modern),
            Err(unopened) => Err(unopened.error),
        }
    }

    async fn discover(&self) -> Result<Sign, BackendError> {
        let (upstream, limits) = (&self.upstream, &self.upstream.limits);
        let params = Object::new().finish();
        let request =
            request::own(upstream, upstream.mint_id(), &Account::Gateway, Method::Discover, &params)?;
        let response = upstream.send(request).await?;
        let evident = is_evidence(response.status());
        let mut reader = match Reader::open(response, limits.upstream_bytes, limits.json_depth) {
            Ok(reader) => reader,
            Err(_) if evident => return Ok(Sign::Unlike),
            Err(error) => return Err(error),
        };
        let message = loop {
            match reader.message().await {
                Ok(message) if message.member("method").is_some() => {}
                Ok(message) => break message,
                Err(BackendError::Invalid(_)) if evident => return Ok(Sign::Unlike),
                Err(error) => return Err(error),
            }
        };
        match sign(&message) {
            Sign::Unlike if !evident => Err(BackendError::Invalid("its HTTP status is a failure")),
            sign => {
                reader.finish();
                Ok(sign)
            }
        }
    }
}

/// The probe that is going on. Whatever becomes of it, nobody waits for it after that.
struct GoingOn<'p>(&'p Probe);

impl Drop for GoingOn<'_> {
    fn drop(&mut self) {
        *self.0.going_on() = None;
    }
}

/// For who waits for a probe whose task has died.
const GIVEN_UP: BackendError = BackendError::NotOpened("telling which revisions it speaks was given up");

const STOPPED: BackendError = BackendError::NotOpened("this gateway is about to end");

fn stored(era: Era) -> u8 {
    match era {
        Era::Modern => MODERN,
        Era::Handshake => HANDSHAKE,
    }
}

/// Whether an answer with this status says anything about what its server speaks. A refused
/// credential, a redirect, a full or a failing server, and one that finds a request too large, say nothing.
pub(in crate::backend) fn is_evidence(status: StatusCode) -> bool {
    let elsewhere = [
        StatusCode::UNAUTHORIZED,
        StatusCode::FORBIDDEN,
        StatusCode::PROXY_AUTHENTICATION_REQUIRED,
        StatusCode::REQUEST_TIMEOUT,
        StatusCode::PAYLOAD_TOO_LARGE,
        StatusCode::URI_TOO_LONG,
        StatusCode::TOO_MANY_REQUESTS,
        StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
    ];
    !(status.is_server_error() || status.is_redirection() || elsewhere.contains(&status))
}

/// The code of the error that a message is.
pub(in crate::backend) fn error_code(message: &Json) -> Option<i64> {
    message.member("error")?.member("code")?.integer()
}

fn sign(message: &Json) -> Sign {
    match error_code(message) {
        Some(code::HEADER_MISMATCH | code::MISSING_CAPABILITY) => Sign::Modern,
        Some(code::UNSUPPORTED_VERSION) => {
            let data = message.member("error").and_then(|error| error.member("data"));
            let supported = data.and_then(|data| data.member("supported"));
            supported.as_ref().and_then(revisions).unwrap_or(Sign::Modern)
        }
        Some(_) => Sign::Unlike,
        None => {
            let supported = message.member("result").and_then(|result| result.member("supportedVersions"));
            supported.as_ref().and_then(revisions).unwrap_or(Sign::Unlike)
        }
    }
}

/// What a list of revisions says; `None` if it is none, or empty.
fn revisions(list: &Json) -> Option<Sign> {
    let named: Vec<String> = list.elements().filter_map(|revision| revision.string()).collect();
    let any = |ours: &dyn Fn(&str) -> bool| named.iter().any(|revision| ours(revision));
    match named.is_empty() {
        true => None,
        false if any(&version::is_served) => Some(Sign::Modern),
        false if any(&|revision| Handshake::named(revision).is_some()) => Some(Sign::Unlike),
        false => Some(Sign::Foreign),
    }
}

/// Whether this answer to the modern request `id` is none that a modern server gives; and if so, whether
/// the request surely was not acted on.
pub(super) fn contradicts(status: StatusCode, message: Option<&Json>, id: u64) -> Option<bool> {
    if !status.is_client_error() || !is_evidence(status) {
        return None;
    }
    match message.and_then(error_code) {
        Some(code::HEADER_MISMATCH | code::MISSING_CAPABILITY) => return None,
        // It says that it does not speak our revision, which nobody says who has acted.
        Some(code::UNSUPPORTED_VERSION) => return Some(true),
        Some(_) | None => {}
    }
    let answers = message.is_some_and(|message| answers(message, id));
    match (status, message.and_then(error_code)) {
        // How servers of the handshake era say that there is no session; under our id, it may as well be
        // what the request came to.
        (StatusCode::BAD_REQUEST, Some(code::NO_SESSION)) => Some(!answers),
        _ if answers => None,
        (StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED, _) => Some(true),
        _ => Some(false),
    }
}

/// Whether a message answers the request `id`, whatever its HTTP status: then the request may have been
/// acted on. What says that it was not is without an id, or has one of its server's own.
pub(in crate::backend) fn answers(message: &Json, id: u64) -> bool {
    let ours = |own: Json| own.text().trim_matches('"') == id.to_string();
    // No server refuses with several messages; one of them may be ours.
    message.kind() == Kind::Array || message.member("id").is_some_and(ours)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::Era;
    use super::Probe;
    use crate::backend::BackendError;
    use crate::backend::legacy::pool::Pool;
    use crate::backend::mcp::tests::way;
    use crate::model::tenant::BackendEra;

    #[tokio::test]
    async fn a_probe_that_dies_is_told_to_who_waits_and_the_next_one_begins() {
        let upstream = way("http://127.0.0.1:9/");
        let pool = Arc::new(Pool::new(upstream.clone()));
        let probe = Arc::new(Probe::new(BackendEra::Auto, upstream, pool));
        let first = probe.join_with(async { panic!("on purpose") });
        let second = probe.join_with(async { Ok(Era::Modern) });
        for waits in [first, second] {
            let error = waits.await.unwrap_err();
            assert!(matches!(error, BackendError::NotOpened(reason) if reason.contains("given up")));
        }
        assert_eq!(probe.join_with(async { Ok(Era::Handshake) }).await.unwrap(), Era::Handshake);
        assert!(probe.going_on().is_none());
    }
}
