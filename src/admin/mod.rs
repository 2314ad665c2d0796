//! The admin listener: health and metrics, for operators and their machines, and the API.
//!
//! It is on loopback unless configured otherwise, and answers only requests whose `Host` is a
//! loopback name or the configured authority, and that come from no web page: a page that rebinds
//! its own name to this address gets 403, and so does one that calls it across origins.

pub mod api;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::extract::State;
use axum::middleware;
use axum::middleware::Next;
use axum::response::IntoResponse;
use axum::response::Response;
use axum::routing::get;
use http::StatusCode;
use http::header;

use crate::admin::api::Api;
use crate::admin::api::problem::Refused;
use crate::telemetry::metrics::MEDIA_TYPE;
use crate::telemetry::metrics::Metrics;

/// What the admin listener tells.
#[derive(Clone)]
pub struct Admin {
    /// The instruments.
    pub metrics: Arc<Metrics>,
    /// Whether traffic should come here: false until started, and again while draining.
    pub ready: Arc<AtomicBool>,
    /// The authority, `host[:port]` in lower case, under which the listener is reached from
    /// elsewhere, if it is.
    pub authority: Option<Arc<str>>,
    /// The API.
    pub api: Arc<Api>,
}

/// `/livez`, `/readyz` and `/metrics`, for GET and HEAD alone, and the API.
pub fn router(state: Admin) -> Router {
    Router::new()
        .route("/livez", get(async || "live\n"))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics))
        .fallback(other)
        .layer(middleware::from_fn_with_state(state.clone(), local_only))
        .with_state(state)
}

async fn readyz(State(admin): State<Admin>) -> Response {
    if admin.ready.load(Ordering::Acquire) {
        "ready\n".into_response()
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, "unready\n").into_response()
    }
}

async fn metrics(State(admin): State<Admin>) -> Response {
    ([(header::CONTENT_TYPE, MEDIA_TYPE)], admin.metrics.encode()).into_response()
}

/// What is no path of its own: the API, or nothing.
async fn other(State(admin): State<Admin>, request: Request) -> Response {
    match api::is_at(request.uri().path()) {
        true => api::serve(&admin.api, request).await,
        false => StatusCode::NOT_FOUND.into_response(),
    }
}

/// Against DNS rebinding, a browser sends the name that it believes to be talking to; against pages
/// of other origins, theirs.
async fn local_only(State(admin): State<Admin>, request: Request, next: Next) -> Response {
    let is_api = api::is_at(request.uri().path());
    let mut response = match admitted(&admin, &request) {
        Ok(()) => next.run(request).await,
        Err(refused) if is_api => refused.into_response(),
        Err(refused) => (StatusCode::FORBIDDEN, format!("{refused}\n")).into_response(),
    };
    if is_api {
        api::decorate(response.headers_mut());
    }
    response
}

fn admitted(admin: &Admin, request: &Request<Body>) -> Result<(), Refused> {
    let mut hosts = request.headers().get_all(header::HOST).iter();
    let host = match (hosts.next(), hosts.next()) {
        (Some(host), None) => host.to_str().unwrap_or_default(),
        _ => "",
    };
    let target = request.uri().authority().map_or(host, |target| target.as_str());
    if target != host || !is_served(&host.to_ascii_lowercase(), admin.authority.as_deref()) {
        return Err(Refused::Host);
    }
    match request.headers().contains_key(header::ORIGIN) {
        true => Err(Refused::Origin),
        false => Ok(()),
    }
}

fn is_served(authority: &str, configured: Option<&str>) -> bool {
    let (host, port) = match authority.rfind(':') {
        Some(at) if !authority[at..].contains(']') => (&authority[..at], &authority[at + 1..]),
        _ => (authority, "0"),
    };
    let local = matches!(host, "localhost" | "127.0.0.1" | "[::1]") && port.parse::<u16>().is_ok();
    local || configured == Some(authority)
}

#[cfg(test)]
mod tests;
