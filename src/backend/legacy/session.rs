//! One session with a server of the handshake era, from `initialize` to its end.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;
use http::HeaderName;
use http::HeaderValue;
use http::Request;
use http::StatusCode;
use http::header::ACCEPT;
use http_body_util::Full;
use tokio::sync::Semaphore;

use crate::backend::BackendError;
use crate::backend::credential::Identity;
use crate::backend::legacy::ear::Ear;
use crate::backend::legacy::levels::Logs;
use crate::backend::legacy::request;
use crate::backend::legacy::watch::Subscriptions;
use crate::backend::mcp::answer::Heard;
use crate::backend::mcp::answer::Judge;
use crate::backend::mcp::probe;
use crate::backend::mcp::response::Reader;
use crate::backend::mcp::upstream::Upstream;
use crate::protocol::call::Outcome;
use crate::protocol::code;
use crate::protocol::headers;
use crate::protocol::headers::Single;
use crate::protocol::json::Json;
use crate::protocol::version;
use crate::protocol::version::Handshake;

/// Longest session id that is kept.
const ID_BYTES: usize = 1 << 10;

const SESSION: HeaderName = HeaderName::from_static("mcp-session-id");
const VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");

/// A session that is open. It has one owner, and one value of the credential, for all its life.
pub(in crate::backend) struct Session {
    upstream: Arc<Upstream>,
    identity: Identity,
    /// How the server knows it; `None` where the server has no use for that.
    id: Option<HeaderValue>,
    revision: Handshake,
    /// What the server said of itself: its `InitializeResult`, where it is kept.
    about: Option<Json>,
    ear: Ear,
    subscriptions: Subscriptions,
    logs: Logs,
    /// A permit is held for each answer to the server that is on its way.
    replies: Arc<Semaphore>,
}

/// How a request was answered whose result says nothing more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answered {
    /// With a result.
    Granted,
    /// In any other way, or not at all.
    Refused,
    /// The server does not know the session.
    NoSession,
}

/// Why a session was not opened, and what that says about the server.
#[derive(Clone, Debug)]
pub(in crate::backend) struct Unopened {
    /// For whoever wanted it: nothing of theirs was sent.
    pub(in crate::backend) error: BackendError,
    /// What it says about the server.
    pub(in crate::backend) evidence: Evidence,
}

/// What a failed opening says about the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::backend) enum Evidence {
    /// Nothing: it was not met, or it is failing, or it refuses us.
    None,
    /// Its answer is none that the handshake era knows.
    Unlike,
    /// It refused as only a modern server does.
    Modern,
}

impl From<BackendError> for Unopened {
    fn from(error: BackendError) -> Self {
        Self { error: error.before_request(), evidence: Evidence::None }
    }
}

impl Unopened {
    /// Of a server that answered as none of its era would.
    fn unlike(reason: &'static str) -> Self {
        Self { error: BackendError::NotOpened(reason), evidence: Evidence::Unlike }
    }
}

impl Session {
    /// Opens one for a client that can do this, and keeps what the server says of itself if `keeps_about`: it may be large, and one
    /// session that has it will do. There is no deadline in here.
    ///
    /// spec: 2025-11-25 basic/lifecycle, Initialization
    ///
    /// # Cancel safety
    /// Dropping the future leaves at most a session that its server will forget.
    pub(super) async fn open(
        upstream: &Arc<Upstream>,
        identity: Identity,
        capabilities: &Json,
        keeps_about: bool,
    ) -> Result<Self, Unopened> {
        let (id, about) = initialize(upstream, &identity, capabilities).await?;
        let revision = about.member("protocolVersion").and_then(|revision| revision.string());
        let revision = revision.ok_or(Unopened::unlike("its `initialize` result names no revision"))?;
        let revision = Handshake::named(&revision).ok_or_else(|| {
            Unopened::unlike(match version::is_handshake(&revision) {
                true => "it speaks only a revision of the protocol that is older than those spoken here",
                false => "it answers `initialize` with a revision that is not spoken here",
            })
        })?;
        let logs = Logs::of(&about);
        let (about, ear) = (keeps_about.then_some(about), Ear::new(&upstream.limits));
        let replies = Arc::new(Semaphore::new(upstream.limits.upstream_replies));
        let subscriptions = Subscriptions::default();
        let upstream = upstream.clone();
        let session = Self { upstream, identity, id, revision, about, ear, subscriptions, logs, replies };
        // spec: 2025-11-25 basic/lifecycle: nothing but pings before this.
        match session.tell(&request::initialized()).await? {
            StatusCode::ACCEPTED | StatusCode::OK | StatusCode::NO_CONTENT => Ok(session),
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Err(BackendError::Unauthorized.into()),
            status => {
                let reason = "it refuses `notifications/initialized`";
                let evidence = if probe::is_evidence(status) { Evidence::Unlike } else { Evidence::None };
                Err(Unopened { error: BackendError::NotOpened(reason), evidence })
            }
        }
    }

    /// The way to the server.
    pub(super) fn upstream(&self) -> &Arc<Upstream> {
        &self.upstream
    }

    /// What the server said of itself, in a session of the gateway's own.
    pub(in crate::backend) fn about(&self) -> Option<&Json> {
        self.about.as_ref()
    }

    /// Its revision.
    pub(super) fn revision(&self) -> Handshake {
        self.revision
    }

    /// What it hears beside its answers.
    pub(super) fn ear(&self) -> &Ear {
        &self.ear
    }

    /// The resources that it has subscribed to.
    pub(super) fn subscriptions(&self) -> &Subscriptions {
        &self.subscriptions
    }

    /// What its server logs.
    pub(super) fn logs(&self) -> &Logs {
        &self.logs
    }

    /// Whether the server knows it by an id, and can forget it.
    pub(super) fn has_id(&self) -> bool {
        self.id.is_some()
    }

    /// A POST of one message in this session.
    ///
    /// spec: 2025-11-25 basic/transports, Session Management, Protocol Version Header
    pub(super) fn post(&self, message: &Json) -> Result<Request<Full<Bytes>>, BackendError> {
        let mut request = self.upstream.post(&self.identity, message)?;
        self.mark(request.headers_mut());
        Ok(request)
    }

    /// Sends what has no answer, and says how it was taken.
    pub(super) async fn tell(&self, message: &Json) -> Result<StatusCode, BackendError> {
        Ok(self.upstream.send(self.post(message)?).await?.status())
    }

    /// Asks for what has no result that matters. There is no deadline in here.
    pub(super) async fn ask(self: &Arc<Self>, method: &'static str, params: &Json) -> Answered {
        let id = self.upstream.mint_id();
        let sending = self.post(&request::message(method, params, Some(id)));
        let Ok(request) = sending else { return Answered::Refused };
        let Ok(response) = self.upstream.send(request).await else { return Answered::Refused };
        // spec: 2025-11-25 basic/transports, Session Management
        if response.status() == StatusCode::NOT_FOUND && self.has_id() {
            return Answered::NoSession;
        }
        let limits = &self.upstream.limits;
        let reader = Reader::open(response, limits.listen_event_bytes, limits.json_depth);
        let Ok(mut reader) = reader else { return Answered::Refused };
        while let Ok(message) = reader.message().await {
            if probe::error_code(&message) == Some(code::NO_SESSION) && !probe::answers(&message, id) {
                return Answered::NoSession;
            }
            if message.member("method").is_some() {
                self.overhear(&message);
                tokio::task::consume_budget().await;
                continue;
            }
            let granted = probe::answers(&message, id) && message.member("result").is_some();
            reader.finish();
            return if granted { Answered::Granted } else { Answered::Refused };
        }
        Answered::Refused
    }

    /// Answers a request of the server's own with this message; `false` if as many answers are on their way
    /// as may be.
    pub(super) fn respond(self: &Arc<Self>, message: Json) -> bool {
        let permit = self.replies.clone().try_acquire_owned();
        let admitted = permit.is_ok();
        if admitted {
            self.tell_beside(message, permit);
        }
        admitted
    }

    /// Sends `message` beside the requests, and drops `kept` afterwards.
    pub(super) fn tell_beside(self: &Arc<Self>, message: Json, kept: impl Send + 'static) {
        let (session, time) = (self.clone(), self.upstream.limits.notice_time);
        self.upstream.around.background(async move {
            // Best effort: whoever does not hear it finds out later.
            let _ = tokio::time::timeout(time, session.tell(&message)).await;
            drop(kept);
        });
    }

    /// Asks for the stream of what belongs to no answer. `None` where the server has none.
    pub(super) fn open_ear(
        &self,
    ) -> impl Future<Output = Result<Option<Reader>, BackendError>> + Send + use<> {
        let (upstream, meter) = (self.upstream.clone(), self.ear.meter().clone());
        let request = upstream.request(&self.identity, http::Method::GET, Full::default());
        let request = request.map(|mut request| {
            self.mark(request.headers_mut());
            request.headers_mut().insert(ACCEPT, HeaderValue::from_static("text/event-stream"));
            request
        });
        async move {
            let response = upstream.send(request?).await?;
            let limits = &upstream.limits;
            let refuses = response.status().is_client_error();
            match Reader::open(response, limits.listen_event_bytes, limits.json_depth) {
                Ok(reader) => Ok(reader.is_stream().then(|| reader.metered(meter))),
                Err(_) if refuses => Ok(None),
                Err(error) => Err(error),
            }
        }
    }

    /// Tells the server that it is over. Whatever comes of that is fine: it also ends by itself.
    pub(super) async fn end(&self, time: Duration) {
        if !self.has_id() {
            return;
        }
        let request = self.upstream.request(&self.identity, http::Method::DELETE, Full::default());
        let Ok(mut request) = request else { return };
        self.mark(request.headers_mut());
        let (tenant, backend) = (&self.upstream.tenant, &self.upstream.config.name);
        match tokio::time::timeout(time, self.upstream.send(request)).await {
            Ok(Ok(response)) => {
                let status = response.status().as_u16();
                tracing::debug!(%tenant, %backend, status, "ended a session with a backend");
            }
            Ok(Err(error)) => tracing::debug!(%tenant, %backend, %error, "could not end a session"),
            Err(_) => tracing::debug!(%tenant, %backend, "could not end a session in time"),
        }
    }

    fn mark(&self, headers: &mut HeaderMap) {
        if let Some(id) = &self.id {
            headers.insert(SESSION, id.clone());
        }
        if self.revision.has_version_header() {
            headers.insert(VERSION, HeaderValue::from_static(self.revision.name()));
        }
    }
}

/// Sends `initialize`: the session's id, where the server gives it one, and the result.
async fn initialize(
    upstream: &Arc<Upstream>,
    identity: &Identity,
    capabilities: &Json,
) -> Result<(Option<HeaderValue>, Json), Unopened> {
    let id = upstream.mint_id();
    let (tenant, backend) = (&upstream.tenant, &upstream.config.name);
    tracing::debug!(%tenant, %backend, id, "opens a session");
    let request = upstream.post(identity, &request::initialize(id, capabilities))?;
    let response = upstream.send(request).await?;
    let status = response.status();
    let session = session_id(response.headers());
    let unlike = |error: BackendError| match error {
        BackendError::Invalid(reason) if probe::is_evidence(status) => Unopened::unlike(reason),
        error => error.into(),
    };
    let limits = &upstream.limits;
    let mut reader = Reader::open(response, limits.initialize_bytes, limits.json_depth).map_err(unlike)?;
    let mut judge = Judge::new(id, None);
    loop {
        let message = reader.message().await.map_err(unlike)?;
        if let Some(code::HEADER_MISMATCH | code::MISSING_CAPABILITY | code::UNSUPPORTED_VERSION) =
            probe::error_code(&message)
        {
            let error = BackendError::NotOpened("it speaks only revisions without a handshake");
            return Err(Unopened { error, evidence: Evidence::Modern });
        }
        match judge.hear(&message).map_err(unlike)? {
            Heard::Nothing | Heard::Progress(_) | Heard::Log(_) => {}
            Heard::Final(Outcome::Result(result)) => {
                reader.finish();
                return Ok((session.map_err(Unopened::unlike)?, result));
            }
            Heard::Final(Outcome::Error(_)) => {
                return Err(unlike(BackendError::Invalid("it answers `initialize` with an error")));
            }
            Heard::Final(Outcome::Asks(_) | Outcome::Task(_)) => {
                return Err(unlike(BackendError::Invalid("it answers `initialize` with no result")));
            }
        }
    }
}

/// The id that a server gives a session.
///
/// spec: 2025-11-25 basic/transports, Session Management
fn session_id(headers: &HeaderMap) -> Result<Option<HeaderValue>, &'static str> {
    let id = match headers::single(headers, headers::SESSION) {
        Single::Zero => return Ok(None),
        Single::One(id) => id,
        Single::Many => return Err("it gives a session more than one id"),
    };
    let visible = id.as_bytes().iter().all(|byte| (0x21..=0x7e).contains(byte));
    let fits = visible && !id.is_empty() && id.len() <= ID_BYTES;
    // Copied: what is received is part of the whole head, which is not kept with it.
    let copied = if fits { HeaderValue::from_bytes(id.as_bytes()).ok() } else { None };
    let mut id = copied.ok_or("the id that it gives a session is not 1 to 1024 visible ASCII characters")?;
    // Who knows it is in the session.
    id.set_sensitive(true);
    Ok(Some(id))
}
