//! Steps 1 to 4 of the ladder, then the road.

use std::any::Any;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use http::HeaderMap;
use http::Method;
use http::Request;
use http::Response;
use http::StatusCode;
use http::request::Parts;
use http_body::Body as _;
use tower_http::catch_panic::CatchPanicLayer;

use crate::app::App;
use crate::edge::EdgeError;
use crate::edge::discovery;
use crate::edge::framing;
use crate::edge::log::RequestLog;
use crate::edge::origin;
use crate::edge::respond;
use crate::model::endpoint::Endpoint;
use crate::pipeline;
use crate::pipeline::Post;
use crate::pipeline::session;
use crate::pipeline::session::Purpose;
use crate::pipeline::session::Visit;
use crate::protocol::headers;
use crate::protocol::headers::Single;
use crate::telemetry::metrics::Outcome;
use crate::telemetry::request::PathKind;
use crate::tenant::index::Directory;

/// The service of the public listener.
pub fn service(app: Arc<App>) -> Router {
    let metrics = app.metrics.clone();
    let panicked = move |_: Box<dyn Any + Send>| {
        metrics.panic();
        respond::panicked()
    };
    Router::new()
        .fallback(|State(app): State<Arc<App>>, request: Request<Body>| serve(app, request))
        .layer(CatchPanicLayer::custom(panicked))
        .with_state(app)
}

/// Answers one request on the public listener, whatever it is.
///
/// # Cancel safety
/// Dropping the future, or the response's body, cancels the request upstream.
async fn serve(app: Arc<App>, request: Request<Body>) -> Response<Body> {
    let (parts, body) = request.into_parts();
    let directory = app.tenants.current();
    let mut origin = None;
    let entered = enter(&app, &directory, &parts, &mut origin);
    let log = RequestLog::begin(&app, &parts, path_kind(parts.uri.path()));
    let mut response = match entered {
        Err(error) => respond::refuse_early(&error, &log),
        Ok(To::Preflight(origin)) => preflight(&origin, &parts.headers, &log),
        Ok(To::Document(response)) => document(response, &parts.method, &log),
        Ok(To::Session(endpoint, purpose)) => {
            let visit = Visit { headers: parts.headers, endpoint: endpoint.clone(), directory, purpose };
            let mut learning = log.trail();
            let outcome = session::visit(&app, visit, &mut learning.trail).await;
            respond::answer(&app, &learning.trail, outcome, &endpoint, &log)
        }
        Ok(To::Endpoint(endpoint)) => {
            let post = Post { headers: parts.headers, endpoint: endpoint.clone(), directory, body };
            let mut learning = log.trail();
            let outcome = pipeline::handle(&app, post, &mut learning.trail).await;
            respond::answer(&app, &learning.trail, outcome, &endpoint, &log)
        }
    };
    log.status(response.status());
    // On errors too: a page has to be able to read why.
    if let Some(origin) = origin {
        origin::cors_headers(&origin, response.headers_mut());
    }
    response
}

/// Where a request that passed steps 1 to 4 goes.
enum To {
    Preflight(String),
    Document(Response<Body>),
    Endpoint(Arc<Endpoint>),
    Session(Arc<Endpoint>, Purpose),
}

/// Steps 1 to 4. `origin` is told an admitted origin as soon as it is known to be one.
fn enter(
    app: &App,
    directory: &Directory,
    parts: &Parts,
    origin: &mut Option<String>,
) -> Result<To, EdgeError> {
    framing::check(parts, &app.limits)?;
    let path = parts.uri.path();
    let known = |authority: &str| directory.host(authority).is_some();
    let allowed = |authority: &str, origin: &str| {
        // A page reads its endpoint's metadata before it calls it.
        let endpoint = directory.endpoint(authority, path).or_else(|| directory.metadata(authority, path));
        directory.origin_allowed(endpoint.as_deref(), origin)
    };
    let (authority, named) = origin::admit(parts, known, allowed)?;
    if let Some(named) = named {
        if origin::is_preflight(parts) {
            return Ok(To::Preflight(named.to_owned()));
        }
        *origin = Some(named.to_owned());
    }
    let endpoint = directory.endpoint(&authority, path);
    let is_read = matches!(parts.method, Method::GET | Method::HEAD);
    match endpoint {
        Some(endpoint) if parts.method == Method::POST => Ok(To::Endpoint(endpoint)),
        Some(endpoint) => session(parts, endpoint),
        None => match discovery::document(app, directory, &authority, path) {
            Some(document) if is_read => Ok(To::Document(document)),
            Some(_) => Err(EdgeError::MethodNotAllowed { allow: "GET, HEAD" }),
            None => Err(EdgeError::NotFound),
        },
    }
}

/// GET and DELETE are for sessions, where there can be some.
fn session(parts: &Parts, endpoint: Arc<Endpoint>) -> Result<To, EdgeError> {
    if !endpoint.handshake {
        return Err(EdgeError::MethodNotAllowed { allow: "POST" });
    }
    let names_session = headers::single(&parts.headers, headers::SESSION) != Single::Zero;
    match parts.method {
        Method::GET if names_session => Ok(To::Session(endpoint, Purpose::Listen)),
        Method::DELETE if names_session => Ok(To::Session(endpoint, Purpose::End)),
        _ => Err(EdgeError::MethodNotAllowed { allow: "POST, GET, DELETE" }),
    }
}

/// What a path names, whatever becomes of the request.
fn path_kind(path: &str) -> PathKind {
    let own = path.strip_suffix('/').unwrap_or(path);
    match own.rsplit_once('/') {
        Some(("", "mcp")) => PathKind::Mcp,
        Some((tenant, "mcp")) if tenant.starts_with("/t/") => PathKind::TenantMcp,
        _ if own.starts_with("/.well-known/") => PathKind::Metadata,
        _ if own.starts_with("/dev-issuer/") => PathKind::DevIssuer,
        _ => PathKind::Other,
    }
}

fn preflight(origin: &str, requested: &HeaderMap, log: &RequestLog) -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    origin::preflight_headers(origin, "POST, GET, DELETE", requested, response.headers_mut());
    log.ended(Outcome::Ok);
    response
}

fn document(response: Response<Body>, method: &Method, log: &RequestLog) -> Response<Body> {
    let sent = if method == Method::HEAD { 0 } else { response.body().size_hint().lower() };
    log.sent(usize::try_from(sent).unwrap_or_default());
    log.ended(Outcome::Ok);
    response
}
