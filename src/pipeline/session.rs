//! The road of the handshake era: a message is judged by its session, and what is a call then goes the
//! same way as every other.
//!
//! The order is that of ARCHITECTURE.md: version, session, envelope; from step 14 on as ever.

mod asking;
mod batch;

use std::sync::Arc;

use futures_util::FutureExt;
use http::HeaderMap;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use crate::app::App;
use crate::catalog::viewer::Viewer;
use crate::error::Refusal;
use crate::exchange::Reply;
use crate::legacy::LegacyError;
use crate::legacy::front;
use crate::legacy::front::Asked;
use crate::legacy::initialize;
use crate::legacy::initialize::Offer;
use crate::legacy::lasting;
use crate::legacy::lasting::Work;
use crate::legacy::session::Session;
use crate::legacy::shape::Shape;
use crate::methods;
use crate::model::endpoint::Endpoint;
use crate::pipeline::Party;
use crate::pipeline::Trail;
use crate::pipeline::admit;
use crate::pipeline::begin;
use crate::pipeline::listen;
use crate::pipeline::route;
use crate::pipeline::session::asking::perform_asking;
use crate::protocol::ProtocolError;
use crate::protocol::call::Outcome;
use crate::protocol::json::Json;
use crate::protocol::media;
use crate::protocol::media::Accept;
use crate::protocol::message::Envelope;
use crate::protocol::message::Message;
use crate::protocol::message::Request;
use crate::protocol::methods::INITIALIZE;
use crate::protocol::methods::Method;
use crate::router::Route;
use crate::router::RouteError;
use crate::stream::budget::Held;
use crate::tenant::index::Directory;

/// A POST whose body is of the handshake era.
pub(super) struct Posted {
    pub(super) party: Party,
    pub(super) headers: HeaderMap,
    pub(super) accept: Accept,
    pub(super) json: Json,
    pub(super) envelope: Envelope,
    /// What its body holds of what all bodies may hold: the call holds it for as long as it goes on.
    pub(super) held: Held,
}

/// A GET or DELETE that names a session.
pub struct Visit {
    /// Its header fields.
    pub headers: HeaderMap,
    /// The endpoint it reached.
    pub endpoint: Arc<Endpoint>,
    /// The tenants as they were when it arrived.
    pub directory: Arc<Directory>,
    /// What it is for.
    pub purpose: Purpose,
}

/// What a visit is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// GET: to hear what belongs to no request.
    Listen,
    /// DELETE: to end the session.
    End,
}

/// What all messages of a POST have in common.
#[derive(Clone)]
struct Context {
    app: Arc<App>,
    party: Party,
    session: Arc<Session>,
    accept: Accept,
    /// Until when, at the latest, any of them is worth answering.
    deadline: Instant,
    /// Cancelled when nobody hears the answers any more.
    left: CancellationToken,
}

/// What a message in a session comes to.
enum Found {
    /// An answer.
    Reply(Reply<Refusal>),
    /// Work on one.
    Work(Work<Refusal>),
}

/// Carries a message, or a batch of them.
///
/// # Cancel safety
/// Dropping the future, or the stream in the answer, lets calls go on for a while.
pub(super) async fn post(
    app: &Arc<App>,
    posted: Posted,
    trail: &mut Trail,
) -> Result<Reply<Refusal>, Refusal> {
    let Posted { party, headers, accept, json, envelope, held } = posted;
    if envelope.method() == Some(INITIALIZE) && !envelope.is_notification() {
        return open(app, &party, envelope, trail).await;
    }
    let session = app.sessions.enter(&app.keys, &party.caller, &headers, app.clock.now())?;
    let tenant = party.tenant.name.clone();
    let deadline = Instant::now() + app.limits.call_time;
    let (session, left) = (Arc::new(session), CancellationToken::new());
    let context = Context { app: app.clone(), party, session, accept, deadline, left: left.clone() };
    let work = if envelope.is_object() {
        match take(&context, read(&context, envelope)?, trail).await? {
            Found::Reply(reply) => return Ok(reply),
            Found::Work(work) => work,
        }
    } else {
        batch::work(context, &json)?
    };
    lasting::outlive(work, Box::new(held), tenant, app.orphanage.clone(), left).await
}

/// Answers `initialize`.
async fn open(
    app: &App,
    party: &Party,
    envelope: Envelope,
    trail: &mut Trail,
) -> Result<Reply<Refusal>, Refusal> {
    trail.facts.method = Some(INITIALIZE);
    let Message::Request(request) = Message::of(envelope)? else { return Ok(Reply::Accepted) };
    let offer = Offer::read(request.params.as_ref(), app.limits.capabilities_bytes)?;
    let viewer = Viewer { caller: &party.caller, capabilities: &offer.capabilities };
    let snapshot = app.catalogs.snapshot(&party.tenant, viewer).await;
    let capabilities = methods::discover::capabilities(&snapshot);
    let result = initialize::result(offer.revision, &capabilities, snapshot.instructions.as_deref());
    let expires_at = app.clock.now().saturating_add(app.limits.session_time.as_secs());
    let session = Session::new(offer.revision, offer.capabilities, expires_at);
    app.metrics.session_opened();
    let session = session.seal(&app.keys, &party.caller);
    Ok(Reply::Opened { outcome: Outcome::Result(result), session })
}

/// A well-formed message, if it is none that answers what we have asked: that is taken here.
fn read(context: &Context, envelope: Envelope) -> Result<Option<Message>, ProtocolError> {
    match envelope.response() {
        Some(response) => {
            context.app.sessions.questions.answer(&context.session, response);
            Ok(None)
        }
        None => Message::of(envelope).map(Some),
    }
}

async fn take(context: &Context, message: Option<Message>, trail: &mut Trail) -> Result<Found, Refusal> {
    match message {
        None => Ok(Found::Reply(Reply::Accepted)),
        Some(Message::Notification(notification)) => {
            trail.facts.method = front::label(&notification.method);
            if let Some(id) = front::cancels(&notification) {
                context.app.sessions.cancel(&context.session, &id);
            }
            Ok(Found::Reply(Reply::Accepted))
        }
        Some(Message::Request(request)) => find(context, request, trail).await,
    }
}

/// Steps 14 to 18 of a request. Its work ends early when it is cancelled.
async fn find(context: &Context, request: Request, trail: &mut Trail) -> Result<Found, Refusal> {
    let Context { app, party, session, accept, deadline, .. } = context;
    trail.facts.method = front::label(&request.method);
    let flight = app.sessions.begin(&party.tenant.name, session, &request.id)?;
    trail.in_band = true;
    let mut call = match front::ask(request, session, *accept)? {
        Asked::Ping => return Ok(Found::Reply(listen::done())),
        Asked::SetLevel(level) => {
            app.sessions.set_level(&party.tenant.name, session, level);
            return Ok(Found::Reply(listen::done()));
        }
        Asked::Subscribe(uri) => {
            let subscribed = listen::subscribe(app, party, session, uri);
            let subscribed = flight.unless_cancelled(subscribed).await.ok_or(LegacyError::Withdrawn)?;
            return Ok(Found::Reply(subscribed?));
        }
        Asked::Unsubscribe(uri) => return Ok(Found::Reply(listen::unsubscribe(app, session, &uri))),
        Asked::Call(call) => *call,
    };
    call.meta.log_level = call.meta.log_level.or_else(|| app.sessions.level(&party.tenant.name, session));
    let exchange = begin(app, party.clone(), call, *deadline, trail);
    let span = trail.span.clone();
    let routed = route(app, &exchange, &mut trail.facts).instrument(span.clone());
    let routed = flight.unless_cancelled(routed).await.ok_or(LegacyError::Withdrawn)?;
    let routed = routed.map_err(|refusal| in_era(refusal, exchange.call.method))?;
    let tool = match &routed.route {
        Route::Tool(tool) => Some(&**tool),
        _ => None,
    };
    let shape = Shape::new(session.revision, exchange.call.method, tool);
    let context = context.clone();
    let work = async move { shape.reply(perform_asking(context, exchange, routed).await?) };
    Ok(Found::Work(flight.carry(work.instrument(span)).boxed()))
}

/// The refusal that this era has for the same thing.
fn in_era(refusal: Refusal, method: Method) -> Refusal {
    match refusal {
        Refusal::Route(RouteError::UnknownResource { uri }) if method == Method::ResourcesRead => {
            LegacyError::NoSuchResource(uri).into()
        }
        other => other,
    }
}

/// Carries a GET or a DELETE.
pub async fn visit(app: &Arc<App>, visit: Visit, trail: &mut Trail) -> Result<Reply<Refusal>, Refusal> {
    let party = admit(app, &visit.headers, visit.endpoint, &visit.directory, trail).await?;
    if !party.tenant.handshake {
        return Err(LegacyError::NotServed.into());
    }
    if visit.purpose == Purpose::Listen {
        media::check_stream(&visit.headers)?;
    }
    let now = app.clock.now();
    let session = app.sessions.enter(&app.keys, &party.caller, &visit.headers, now)?;
    match visit.purpose {
        Purpose::Listen => listen::stream(app, party, &session),
        Purpose::End => {
            app.sessions.end(&party.caller, &session, now)?;
            app.metrics.session_ended();
            Ok(Reply::Ended)
        }
    }
}
