//! The road of the handshake era: a message is judged by its session, and what is a call then goes the
//! same way as every other.
//!
//! The order is that of ARCHITECTURE.md: version, session, envelope; from step 14 on as ever.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::StreamExt;
use futures_util::stream;
use http::HeaderMap;
use tokio::time::sleep;
use tracing::Instrument;

use crate::app::App;
use crate::error::Refusal;
use crate::exchange::Answered;
use crate::exchange::Notices;
use crate::exchange::Reply;
use crate::legacy::LegacyError;
use crate::legacy::front;
use crate::legacy::front::Asked;
use crate::legacy::initialize;
use crate::legacy::initialize::Offer;
use crate::legacy::lasting;
use crate::legacy::lasting::Work;
use crate::legacy::registry::Listening;
use crate::legacy::session::Session;
use crate::legacy::shape::Shape;
use crate::methods;
use crate::model::endpoint::Endpoint;
use crate::model::name::TenantName;
use crate::pipeline::Party;
use crate::pipeline::Trail;
use crate::pipeline::admit;
use crate::pipeline::begin;
use crate::pipeline::perform;
use crate::pipeline::route;
use crate::protocol::ProtocolError;
use crate::protocol::call::Outcome;
use crate::protocol::call::RpcError;
use crate::protocol::code;
use crate::protocol::json::Json;
use crate::protocol::json::compose::Object;
use crate::protocol::media;
use crate::protocol::media::Accept;
use crate::protocol::message::Envelope;
use crate::protocol::message::Message;
use crate::protocol::message::Request;
use crate::protocol::methods::INITIALIZE;
use crate::protocol::methods::Method;
use crate::router::Route;
use crate::router::RouteError;
use crate::tenant::index::Directory;

/// A POST whose body is of the handshake era.
pub(super) struct Posted {
    pub(super) party: Party,
    pub(super) headers: HeaderMap,
    pub(super) accept: Accept,
    pub(super) json: Json,
    pub(super) envelope: Envelope,
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
    let Posted { party, headers, accept, json, envelope } = posted;
    if envelope.method() == Some(INITIALIZE) && !envelope.is_notification() {
        return open(app, &party, envelope, trail).await;
    }
    let session = app.sessions.enter(&app.keys, &party.caller, &headers, app.clock.now())?;
    let tenant = party.tenant.name.clone();
    let context = Context { app: app.clone(), party, session: Arc::new(session), accept };
    let work = if envelope.is_object() {
        match take(&context, read(envelope)?, trail).await? {
            Found::Reply(reply) => return Ok(reply),
            Found::Work(work) => work,
        }
    } else {
        batch(context, &json)?
    };
    lasting::outlive(work, tenant, app.orphanage.clone()).await
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
    let snapshot = app.catalogs.snapshot(&party.tenant).await;
    let capabilities = methods::discover::capabilities();
    let result = initialize::result(offer.revision, &capabilities, snapshot.instructions.as_deref());
    let expires_at = app.clock.now().saturating_add(app.limits.session_time.as_secs());
    let session = Session::new(offer.revision, offer.capabilities, expires_at);
    app.metrics.session_opened();
    let session = session.seal(&app.keys, &party.caller);
    Ok(Reply::Opened { outcome: Outcome::Result(result), session })
}

/// A well-formed message, if it is one that is not an answer: we have asked nothing.
fn read(envelope: Envelope) -> Result<Option<Message>, ProtocolError> {
    match envelope.is_response() {
        true => Ok(None),
        false => Message::of(envelope).map(Some),
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
    let Context { app, party, session, accept } = context;
    trail.facts.method = front::label(&request.method);
    let flight = app.sessions.begin(&party.tenant.name, session, &request.id)?;
    trail.in_band = true;
    let call = match front::ask(request, session, *accept)? {
        Asked::Ping => {
            return Ok(Found::Reply(Reply::Once(Outcome::Result(Object::new().finish()))));
        }
        Asked::Call(call) => *call,
    };
    let exchange = begin(app, party.clone(), call, trail);
    let span = trail.span.clone();
    let routed = route(app, &exchange, &mut trail.facts).instrument(span.clone());
    let routed = flight.unless_cancelled(routed).await.ok_or(LegacyError::Withdrawn)?;
    let routed = routed.map_err(|refusal| in_era(refusal, exchange.call.method))?;
    let tool = match &routed.route {
        Route::Tool(tool) => Some(&**tool),
        _ => None,
    };
    let shape = Shape::new(session.revision, exchange.call.method, tool);
    let app = app.clone();
    let work = async move { Ok(shape.reply(perform(&app, &exchange, routed).await?)) };
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

/// Work on a batch: each message by itself, some at a time, the answers in the batch's order.
///
/// spec: 2025-03-26 basic/transports, Sending Messages to the Server
fn batch(context: Context, json: &Json) -> Result<Work<Refusal>, LegacyError> {
    if !context.session.revision.has_batches() {
        return Err(LegacyError::Batch(
            "a message is one JSON object: the session's revision has no batches",
        ));
    }
    let limits = context.app.limits.clone();
    let messages: Vec<Json> = json.elements().take(limits.batch_messages + 1).collect();
    if messages.is_empty() {
        return Err(LegacyError::Batch("a batch has at least one message"));
    }
    if messages.len() > limits.batch_messages {
        return Err(LegacyError::Batch("the batch has too many messages"));
    }
    // Progress of one would stand between the answers to others.
    let context = Context { accept: Accept { json: true, sse: false }, ..context };
    Ok(async move {
        let one = |message| in_batch(&context, message);
        let mut ends = stream::iter(messages).map(one).buffered(limits.batch_calls);
        let (mut answers, mut room) = (Vec::new(), limits.batch_bytes);
        while let Some(answer) = ends.next().await {
            answers.extend(answer.map(|answer| fitted(answer, &mut room)));
        }
        match answers.is_empty() {
            true => Ok(Reply::Accepted),
            false => Ok(Reply::Batch(answers)),
        }
    }
    .boxed())
}

/// The answer to one message of a batch, if it has one.
async fn in_batch(context: &Context, message: Json) -> Option<Answered<Refusal>> {
    let envelope = Envelope::read(&message, context.app.limits.id_bytes);
    let id = envelope.id().cloned();
    let end = async {
        if envelope.method() == Some(INITIALIZE) {
            return Err(LegacyError::Batch("`initialize` stands alone").into());
        }
        match take(context, read(envelope)?, &mut Trail::default()).await? {
            Found::Reply(reply) => Ok(reply),
            Found::Work(work) => work.await,
        }
    };
    match end.await {
        Ok(Reply::Once(outcome)) => Some(Answered { id, end: Ok(outcome) }),
        Ok(_) | Err(Refusal::Legacy(LegacyError::Withdrawn)) => None,
        Err(refusal) => Some(Answered { id, end: Err(refusal) }),
    }
}

/// `answer`, if there is `room` for it.
fn fitted(answer: Answered<Refusal>, room: &mut usize) -> Answered<Refusal> {
    let Answered { id, end: Ok(Outcome::Result(result)) } = &answer else { return answer };
    match room.checked_sub(result.bytes().len()) {
        Some(left) => {
            *room = left;
            answer
        }
        None => {
            let message = "the answers to this batch are too large together: this one is left out".to_owned();
            let error = RpcError { code: code::INTERNAL_ERROR, message, data: None };
            Answered { id: id.clone(), end: Ok(Outcome::Error(error)) }
        }
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
        Purpose::Listen => {
            let listening = app.sessions.listen(&party.caller, &session)?;
            let end = session.expires_at.min(party.caller.expires_at);
            Ok(Reply::Notices(notices(app.clone(), party.tenant.name.clone(), end, listening)))
        }
        Purpose::End => {
            app.sessions.end(&party.tenant.name, &session, now)?;
            app.metrics.session_ended();
            Ok(Reply::Ended)
        }
    }
}

/// What a session's listener hears. Nothing is said yet that belongs to no request.
fn notices(app: Arc<App>, tenant: TenantName, end: u64, listening: Listening) -> Notices {
    let over = async move {
        until_over(&app, &tenant, end, &listening).await;
    };
    over.into_stream().filter_map(async |()| None).boxed()
}

/// Waits until nobody may listen any more: it is the `end` of session or token, the session was ended,
/// the tenant is gone or serves no sessions, or this process ends.
async fn until_over(app: &App, tenant: &TenantName, end: u64, listening: &Listening) {
    let mut changes = app.tenants.changes();
    // It may have changed since the request was admitted.
    changes.mark_changed();
    loop {
        let Some(left) = end.checked_sub(app.clock.now()).filter(|left| *left > 0) else { return };
        // Looked at again now and then: the wall clock may be moved.
        let left = Duration::from_secs(left).min(app.limits.keep_alive);
        tokio::select! {
            () = listening.stopped() => return,
            () = app.leaving.cancelled() => return,
            Ok(()) = changes.changed() => {
                let tenant = app.tenants.current().tenant(tenant);
                if !tenant.is_some_and(|tenant| tenant.handshake) {
                    return;
                }
            }
            () = sleep(left) => {}
        }
    }
}
