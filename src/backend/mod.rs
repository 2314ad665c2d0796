//! Where a tenant's tools, prompts and resources live, and how they are asked.
//!
//! A [`Backend`] lists what it has and answers calls. An answer that a backend gave, its own
//! JSON-RPC errors included, is an [`Outcome`](crate::protocol::call::Outcome); a [`BackendError`]
//! is only for not getting one. [`mcp`] speaks to MCP servers, with `legacy` where they only know the
//! handshake; [`demo`] is built in.

mod backoff;
pub mod clock;
mod credential;
pub mod demo;
mod legacy;
pub mod listing;
pub mod mcp;
mod meter;
pub mod waiting;
pub mod watch;

use std::collections::BTreeSet;
use std::future::Future;
use std::sync::Arc;

use futures_util::stream;
use http::HeaderName;
use http::HeaderValue;
use tokio::runtime::Handle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::backend::clock::Clock;
use crate::backend::listing::Listing;
use crate::backend::waiting::Interruption;
use crate::backend::waiting::Seats;
use crate::backend::waiting::Unanswered;
use crate::backend::watch::Interest;
use crate::backend::watch::Watching;
use crate::egress::Egress;
use crate::egress::error::EgressError;
use crate::exchange::Frames;
use crate::model::caller::Caller;
use crate::model::limits::Limits;
use crate::model::name::TenantName;
use crate::model::tenant;
use crate::model::tenant::BackendKind;
use crate::protocol::able::Able;
use crate::protocol::json::Json;
use crate::protocol::meta::Meta;
use crate::protocol::methods::Method;
use crate::telemetry::metrics::Metrics;

/// What all backends of a process share.
#[derive(Clone)]
pub struct Surroundings {
    /// The way out.
    pub egress: Egress,
    /// The limits of this process.
    pub limits: Arc<Limits>,
    /// What is counted.
    pub metrics: Arc<Metrics>,
    /// What callers have of all of them together.
    pub seats: Arc<Seats>,
    /// What goes on when nobody waits for it: beginning sessions, telling that they have ended.
    pub tasks: TaskTracker,
    /// Cancelled when the process ends.
    pub stop: CancellationToken,
}

/// One backend of one tenant, as it is asked. Shared in an `Arc`.
pub enum Backend {
    /// An MCP server over Streamable HTTP.
    Mcp(mcp::Mcp),
    /// The built-in demonstration tools.
    Demo(demo::Demo),
}

/// On whose account a backend is asked for its lists.
#[derive(Clone, Debug)]
pub enum Account {
    /// The gateway's own.
    Gateway,
    /// A caller's, as a client of it that declares this: what the backend keeps of its calls, it keeps of
    /// this, too.
    Caller {
        /// The caller.
        caller: Arc<Caller>,
        /// The names of its extensions.
        extensions: BTreeSet<String>,
        /// What it can be asked.
        able: Able,
    },
}

/// One request of a caller, already routed to this backend.
#[derive(Clone, Debug)]
pub struct BackendCall {
    /// For whom: what a backend keeps of one caller never meets another.
    pub caller: Arc<Caller>,
    /// The method.
    pub method: Method,
    /// The backend's own name, or URI, of what is asked for: it takes the place of the client's where
    /// the method has one that is mirrored.
    pub name: Arc<str>,
    /// The client's `params`, an object.
    pub params: Json,
    /// The client's checked `_meta`.
    pub meta: Meta,
    /// What the backend is told that its client can do, an object: what this gateway carries of it.
    pub capabilities: Json,
    /// The client's answers to what the backend asked before, an object.
    pub responses: Option<Json>,
    /// What the backend wants back with them, as it sent it.
    pub state: Option<String>,
    /// `Mcp-Param-*`, minted from `params` and the backend's own schema.
    pub param_headers: Vec<(HeaderName, HeaderValue)>,
    /// When the answer is worth nothing any more.
    pub deadline: Instant,
}

/// Why there is no answer from a backend. `Display` is what the caller may read: it names no URL,
/// no address and nothing that the backend said.
#[derive(Clone, Debug, thiserror::Error)]
pub enum BackendError {
    /// No connection; nothing was sent.
    #[error("the backend cannot be reached")]
    Unreachable(#[source] EgressError),
    /// One of the clocks ran out.
    #[error("the backend did not answer in time: {clock}")]
    TimedOut {
        /// Which clock it was.
        clock: Clock,
        /// Whether the request may have reached the backend.
        sent: bool,
    },
    /// The backend refused our credential, or asks for one.
    #[error("the backend refuses the gateway's credential")]
    Unauthorized,
    /// The connection was lost after the request was sent: the outcome is unknown.
    #[error("the connection to the backend was lost before it answered")]
    Broken(#[source] EgressError),
    /// It answered with something that is no MCP answer.
    #[error("the backend gave no valid answer: {0}")]
    Invalid(&'static str),
    /// What has to come before the first request went wrong: telling which revisions it speaks, or
    /// beginning a session. The request itself was not sent.
    #[error("the backend gave no valid answer when it was opened: {0}")]
    NotOpened(&'static str),
    /// It found our mirror headers wrong (-32020): its schema has changed since the catalog was
    /// built. The call was refused unseen; refresh the catalog, then try once more.
    #[error("the backend has changed since it was listed")]
    Stale,
    /// As many calls are in flight to it as are allowed.
    #[error("as many calls to this backend, or sessions with it, are in progress as may be")]
    Busy,
    /// The secret that it needs cannot be read, or is no header value.
    #[error("the gateway's credential for the backend cannot be read")]
    CredentialMissing,
    /// It asked its client back, and the call does not go on.
    #[error("{0}")]
    Interrupted(Interruption),
}

impl BackendError {
    /// Reads the outbound client's error.
    fn from_egress(error: EgressError) -> Self {
        match error {
            EgressError::ConnectTime { .. } => Self::TimedOut { clock: Clock::Connect, sent: false },
            error if error.was_sent() => Self::Broken(error),
            error => Self::Unreachable(error),
        }
    }

    /// Whether the backend may have acted on the request: only then is it wrong to try again.
    pub fn sent(&self) -> bool {
        match self {
            Self::TimedOut { sent, .. } => *sent,
            Self::Broken(_) | Self::Invalid(_) | Self::Interrupted(_) => true,
            Self::Unreachable(_)
            | Self::Unauthorized
            | Self::NotOpened(_)
            | Self::Stale
            | Self::Busy
            | Self::CredentialMissing => false,
        }
    }

    /// This error of an opening, for a request that waited for it: of that, nothing was sent.
    fn before_request(self) -> Self {
        match self {
            Self::TimedOut { clock, .. } => Self::TimedOut { clock, sent: false },
            Self::Broken(error) => Self::Unreachable(error),
            Self::Invalid(reason) => Self::NotOpened(reason),
            Self::Stale => Self::NotOpened("it asks for something before anything began"),
            other => other,
        }
    }
}

impl Surroundings {
    /// Does `work` beside the requests. Where the runtime is gone already, it is not done.
    fn background(&self, work: impl Future<Output = ()> + Send + 'static) {
        if let Ok(runtime) = Handle::try_current() {
            self.tasks.spawn_on(work, &runtime);
        }
    }
}

impl Backend {
    /// The backend that `config` describes, for the tenant that it belongs to.
    pub fn new(config: Arc<tenant::Backend>, tenant: TenantName, around: Surroundings) -> Self {
        match &config.kind {
            BackendKind::Mcp { url, era } => {
                Self::Mcp(mcp::Mcp::new(url, *era, config.clone(), tenant, around))
            }
            BackendKind::Demo => Self::Demo(demo::Demo::new(config)),
        }
    }

    /// Every list that it has for `account`, page by page, within the limits and `limits.list_time`. One
    /// that is not had does not take the others away; without any there is an error.
    ///
    /// # Cancel safety
    /// Dropping the future closes its connections.
    pub async fn list(&self, account: &Account) -> Result<Listing, BackendError> {
        match self {
            Self::Mcp(backend) => backend.list(account).await,
            Self::Demo(backend) => backend.list(),
        }
    }

    /// Waits until the backend may not be what it was when it was last listed: it has forgotten its
    /// sessions, or answers as if it were of another era.
    ///
    /// # Cancel safety
    /// Dropping the future loses nothing.
    pub async fn suspected(&self) {
        match self {
            Self::Mcp(backend) => backend.suspected().await,
            Self::Demo(_) => std::future::pending().await,
        }
    }

    /// Opens a subscription to what changes. It is open, and nothing is missed from now on, when this
    /// returns.
    ///
    /// # Cancel safety
    /// Dropping the future, or the stream of changes, ends the subscription.
    pub async fn watch(&self, interest: Interest) -> Result<Watching, BackendError> {
        match self {
            Self::Mcp(backend) => backend.watch(interest).await,
            Self::Demo(_) => Ok(Watching { honoured: interest, changes: Box::pin(stream::pending()) }),
        }
    }

    /// Begins a call. What fails before it could be sent may be an `Err` here, everything later is
    /// the stream's one [`Frame::End`](crate::exchange::Frame::End). The call is not sent before the
    /// stream is polled.
    ///
    /// # Cancel safety
    /// Dropping the stream tells the backend to stop, and closes the connection.
    pub async fn call(&self, call: BackendCall) -> Result<Frames<BackendError>, BackendError> {
        match self {
            Self::Mcp(backend) => backend.call(call).await,
            Self::Demo(backend) => backend.call(call),
        }
    }

    /// Gives up a call of `caller` that waits for answers under this state, if it does: the backend is told
    /// that there are none.
    pub fn forsake(&self, caller: &Caller, state: &str, why: Unanswered) {
        match self {
            Self::Mcp(backend) => backend.forsake(caller, state, why),
            Self::Demo(_) => {}
        }
    }

    /// Nobody new will ask it: what it keeps of its server ends as soon as it is not in use.
    pub fn retire(&self) {
        match self {
            Self::Mcp(backend) => backend.retire(),
            Self::Demo(_) => {}
        }
    }

    /// Ends what it keeps of its server, in use or not, within `limits.notice_time`.
    ///
    /// # Cancel safety
    /// Dropping the future leaves the rest to the server.
    pub async fn shutdown(&self) {
        match self {
            Self::Mcp(backend) => backend.shutdown().await,
            Self::Demo(_) => {}
        }
    }
}
