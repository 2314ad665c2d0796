//! The road that every request takes, a line per stage. Start reading here.
//!
//! The order of the lines is the ladder of ARCHITECTURE.md from step 5 on; `edge::mcp` walked
//! steps 1 to 4. Nothing here knows HTTP statuses: `edge::respond` does. At step 9 the messages of the
//! handshake era turn off into [`session`], and come back to the road where they are a proven call.

mod listen;
pub mod session;
mod standing;

use std::sync::Arc;

use bytes::Bytes;
use futures_util::StreamExt;
use http::HeaderMap;
use tokio::time::Instant;
use tracing::Instrument;
use tracing::Span;

use crate::app::App;
use crate::catalog::snapshot::Snapshot;
use crate::catalog::viewer::Viewer;
use crate::error::Refusal;
use crate::exchange::Exchange;
use crate::exchange::Reply;
use crate::methods;
use crate::methods::Means;
use crate::methods::rounds::Sealing;
use crate::model::caller::Caller;
use crate::model::endpoint::Endpoint;
use crate::model::tenant::Tenant;
use crate::protocol::ProtocolError;
use crate::protocol::call;
use crate::protocol::call::Call;
use crate::protocol::era;
use crate::protocol::era::Era;
use crate::protocol::json::Json;
use crate::protocol::media;
use crate::protocol::media::Accept;
use crate::protocol::message::Envelope;
use crate::protocol::message::Message;
use crate::protocol::message::RequestId;
use crate::router;
use crate::router::Route;
use crate::stream::body;
use crate::telemetry::trace;
use crate::tenant::index::Directory;
use crate::tenant::resolve;

/// One POST to an endpoint that exists, from an origin that may send it.
pub struct Post<B> {
    /// Its header fields.
    pub headers: HeaderMap,
    /// The endpoint it reached.
    pub endpoint: Arc<Endpoint>,
    /// The tenants as they were when it arrived; it finishes on them.
    pub directory: Arc<Directory>,
    /// Its body, unread.
    pub body: B,
}

/// What a request turned out to be, as far as it came.
pub struct Trail {
    /// The id to answer under.
    pub id: Option<RequestId>,
    /// What the client takes.
    pub accept: Option<Accept>,
    /// Whether an answer with a JSON-RPC body is 200 whatever it says: so in a session, once its message
    /// is known to be one.
    pub in_band: bool,
    /// Its span, which lasts as long as its answer.
    pub span: Span,
    /// Who asks, of which tenant, for what: for the request's log line.
    pub facts: Facts,
}

impl Default for Trail {
    fn default() -> Self {
        Self { id: None, accept: None, in_band: false, span: Span::none(), facts: Facts::default() }
    }
}

/// What the log line of a request tells about it.
#[derive(Default, Clone)]
pub struct Facts {
    /// The proven tenant.
    pub tenant: Option<String>,
    /// The verified caller.
    pub caller: Option<Arc<Caller>>,
    /// The JSON-RPC method, if served.
    pub method: Option<&'static str>,
    /// The visible target's public name.
    pub target: Option<Arc<str>>,
    /// The backend that the target lives on.
    pub backend: Option<String>,
    /// Bytes of the request's body.
    pub bytes_in: usize,
    /// The W3C trace id that the client sent.
    pub trace_id: Option<String>,
}

/// Who asks, of which tenant, where: what all messages of one request have in common.
#[derive(Clone)]
struct Party {
    caller: Arc<Caller>,
    tenant: Arc<Tenant>,
    endpoint: Arc<Endpoint>,
}

/// The road: carries a request to its answer, and leaves in `trail` what is learnt on the way. A
/// body is not read before its sender is admitted.
///
/// # Cancel safety
/// Dropping the future, or the stream in the answer, cancels the request upstream, unless it is of a
/// session: then it goes on for a while. What was learnt until then is in `trail`.
pub async fn handle<B>(app: &Arc<App>, post: Post<B>, trail: &mut Trail) -> Result<Reply<Refusal>, Refusal>
where
    B: http_body::Body<Data = Bytes> + Send,
{
    let party = admit(app, &post.headers, post.endpoint, &post.directory, trail).await?;

    let accept = media::check(&post.headers)?;
    trail.accept = Some(accept);
    let mut held = app.bodies.open(&party.tenant.name);
    let text = body::read(post.body, &app.limits, &mut held).await?;
    trail.facts.bytes_in = text.len();
    let json = Json::parse(text, app.limits.json_depth)?;
    let envelope = Envelope::read(&json, app.limits.id_bytes);
    trail.id = envelope.id().cloned();
    if let Era::Handshake { requested } = era::tell(&post.headers, &envelope)? {
        if !party.tenant.handshake {
            return Err(ProtocolError::HandshakeEra { requested }.into());
        }
        // Boxed: who does not come here does not carry what is needed here.
        let posted = session::Posted { party, headers: post.headers, accept, json, envelope, held };
        return Box::pin(session::post(app, posted, trail)).await;
    }
    let request = match Message::of(envelope)? {
        Message::Request(request) => request,
        Message::Notification(notification) => {
            notification.check(&post.headers)?;
            return Ok(Reply::Accepted);
        }
    };
    let call = call::validate(request, &post.headers, accept)?;
    let exchange = begin(app, party, call, Instant::now() + app.limits.call_time, trail);
    let span = trail.span.clone();
    let reply = answer(app, exchange, &mut trail.facts).instrument(span).await?;
    // What goes on may still send the request once more.
    Ok(match reply {
        Reply::Stream(frames) => Reply::Stream(Box::pin(frames.inspect(move |_| {
            let _until_dropped = &held;
        }))),
        other => other,
    })
}

/// Step 5: who asks, and of which tenant.
async fn admit(
    app: &App,
    headers: &HeaderMap,
    endpoint: Arc<Endpoint>,
    directory: &Directory,
    trail: &mut Trail,
) -> Result<Party, Refusal> {
    let caller = app.auth.authenticate(headers, &endpoint).await?;
    let tenant = resolve::resolve(directory, &caller, &endpoint)?;
    trail.facts.tenant = Some(tenant.name.to_string());
    trail.facts.caller = Some(caller.clone());
    Ok(Party { caller, tenant, endpoint })
}

/// The exchange of a proven call, which begins now and has until `deadline`.
fn begin(app: &App, party: Party, mut call: Call, deadline: Instant, trail: &mut Trail) -> Exchange {
    call.meta.admit_baggage(&app.baggage);
    trail.facts.method = Some(call.method.name());
    trail.facts.trace_id = call.meta.trace_id().map(str::to_owned);
    trail.span = trace::request(call.method.name(), call.meta.traceparent.as_deref());
    if let Some(own) = trace::traceparent(&trail.span) {
        call.meta.traceparent = Some(own);
    }
    let Party { caller, tenant, endpoint } = party;
    Exchange { caller, endpoint, tenant, call, deadline }
}

/// The rest of the road, for a request that is proven.
async fn answer(app: &Arc<App>, exchange: Exchange, facts: &mut Facts) -> Result<Reply<Refusal>, Refusal> {
    let routed = route(app, &exchange, facts).await?;
    perform(app, &exchange, routed).await
}

/// Where a request goes, and the catalog that says so.
struct Routed {
    snapshot: Arc<Snapshot>,
    route: Route,
    /// In seconds since the Unix epoch.
    now: u64,
}

/// Steps 16 to 18.
async fn route(app: &App, exchange: &Exchange, facts: &mut Facts) -> Result<Routed, Refusal> {
    let snapshot = app.catalogs.snapshot(&exchange.tenant, Viewer::of(exchange)).await;
    let now = app.clock.now();
    let route = router::route(&snapshot, exchange, &app.keys, now)?;
    if let Some(entry) = route.entry() {
        facts.backend = Some(entry.backend().to_string());
        facts.target = entry.is_listed().then(|| entry.public.clone());
    }
    Ok(Routed { snapshot, route, now })
}

/// Steps 19 to 22.
async fn perform(app: &Arc<App>, exchange: &Exchange, routed: Routed) -> Result<Reply<Refusal>, Refusal> {
    let Routed { snapshot, route, now } = routed;
    let (keys, limits, metrics) = (&app.keys, &app.limits, &app.metrics);
    let means = Means {
        catalogs: &app.catalogs,
        cache: &app.cache,
        checks: &app.checks,
        sealing: Sealing { keys: keys.clone(), clock: app.clock.clone() },
        limits,
        metrics,
    };
    let reply = match route {
        Route::Discover => Ok(Reply::Once(methods::discover::answer(exchange, &snapshot, limits))),
        Route::List { list, after } => {
            Ok(Reply::Once(methods::lists::answer(exchange, &snapshot, list, after, keys, now, limits)))
        }
        Route::Tool(tool) => {
            trace::tool(&Span::current(), &tool.entry.public);
            methods::tools_call::answer(exchange, &tool, &snapshot, &means).await
        }
        Route::Prompt(prompt) => methods::prompts_get::answer(exchange, &prompt, &snapshot, &means).await,
        Route::Resource(resource) => {
            methods::resources_read::answer(exchange, &resource, &snapshot, &means).await
        }
        Route::Complete(completion) => methods::complete::answer(exchange, completion, limits, metrics).await,
        Route::Listen(filter) => {
            drop(snapshot);
            return listen::answer(app, exchange, filter).await;
        }
        Route::Task(task) => methods::tasks::answer(exchange, &task, &snapshot, limits, metrics).await,
    };
    Ok(reply?.map_err(Refusal::from))
}
