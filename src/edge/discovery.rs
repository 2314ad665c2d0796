//! Documents that anybody may read: each endpoint's OAuth metadata, and the development issuer's.

use axum::body::Body;
use http::HeaderValue;
use http::Response;
use http::StatusCode;
use http::header;
use serde_json::Value;

use crate::app::App;
use crate::auth::challenge;
use crate::edge::respond::body;
use crate::protocol::json::Json;
use crate::tenant::index::Directory;
use crate::tenant::index::HostKind;

/// The prefix of RFC 9728 metadata; the path of the resource follows.
const RESOURCE: &str = "/.well-known/oauth-protected-resource";

/// The document at `path`, if there is one.
///
/// spec: authorization, Protected Resource Metadata Discovery
pub fn document(app: &App, directory: &Directory, authority: &str, path: &str) -> Option<Response<Body>> {
    if path.starts_with(RESOURCE) {
        let endpoint = directory.metadata(authority, path)?;
        return Some(public(&challenge::resource_metadata(&endpoint)));
    }
    // On a tenant's host there is the tenant's endpoint and nothing else.
    let issuer = app.dev_issuer.as_ref().filter(|_| directory.host(authority) == Some(HostKind::Public))?;
    match path {
        "/.well-known/oauth-authorization-server/dev-issuer"
        | "/dev-issuer/.well-known/openid-configuration" => Some(public(&issuer.metadata())),
        "/dev-issuer/jwks" => Some(public(&issuer.jwks())),
        _ => None,
    }
}

fn public(document: &Value) -> Response<Body> {
    let mut response = body::json(StatusCode::OK, &Json::from_value(document));
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("max-age=300"));
    response
}
