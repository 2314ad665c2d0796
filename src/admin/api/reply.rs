//! What is answered: items, pages, and what a write made.

use axum::body::Body;
use http::HeaderValue;
use http::Response;
use http::StatusCode;
use http::header;

use crate::admin::api::operations::BASE;
use crate::admin::api::problem::Refused;
use crate::admin::api::request::Ask;
use crate::protocol::json::Json;
use crate::protocol::json::compose::Array;
use crate::protocol::json::compose::Object;
use crate::store::Revision;
use crate::store::Stored;
use crate::store::answers::Answer;
use crate::store::error::StoreError;
use crate::store::write::Written;

/// This JSON.
pub(super) fn json(body: &Json) -> Response<Body> {
    text(StatusCode::OK, body.bytes().clone().into())
}

/// One item in its state.
pub(super) fn item(body: &Json, revision: Revision) -> Response<Body> {
    tagged(json(body), revision)
}

/// A page of the list that was asked for: of `rows`, which are one more than fit where another page
/// follows. `key` is where a row stands in the list.
pub(super) fn page<T>(
    ask: &Ask<'_>,
    rows: &[T],
    key: impl Fn(&T) -> String,
    show: impl Fn(&T) -> Result<Json, Refused>,
) -> Result<Response<Body>, Refused> {
    let shown = &rows[..rows.len().min(ask.page.limit)];
    let mut items = Array::new();
    for row in shown {
        items = items.push(&show(row)?);
    }
    let mut body = Object::new().put("items", &items.finish());
    if let Some(last) = shown.last().filter(|_| rows.len() > shown.len()) {
        body = body.put_str("next", &ask.cursor(&key(last)));
    }
    Ok(json(&body.finish()))
}

/// A stored document as an item.
pub(super) fn stored<N: AsRef<str>>(ask: &Ask<'_>, stored: &Stored<N>) -> Result<Json, Refused> {
    let document = Json::parse(stored.document.clone().into(), ask.api.limits.json_depth);
    let document = document.map_err(|_| StoreError::Corrupt("document"))?;
    let item = Object::new()
        .put_str("name", stored.name.as_ref())
        .put_u64("revision", stored.revision.0)
        .put_u64("created", stored.created)
        .put_u64("changed", stored.changed)
        .put("document", &document);
    Ok(item.finish())
}

/// What is answered to who made something.
pub(super) fn made(name: &str, revision: Revision) -> Answer {
    Answer { status: StatusCode::CREATED.as_u16(), body: state(name, revision), revision }
}

/// The answer to who made something, now or under the same idempotency key before.
pub(super) fn created(collection: &str, name: &str, written: Written) -> Response<Body> {
    let answer = match written {
        Written::Now(revision) => made(name, revision),
        Written::Before(answer) => answer,
    };
    let status = StatusCode::from_u16(answer.status).unwrap_or(StatusCode::CREATED);
    located(tagged(text(status, answer.body.into()), answer.revision), collection, name)
}

/// Says where something is that was made.
pub(super) fn located(mut response: Response<Body>, collection: &str, name: &str) -> Response<Body> {
    let place = format!("{BASE}{collection}/{}", crate::model::uri::segment(name));
    if let Ok(place) = HeaderValue::from_str(&place) {
        response.headers_mut().insert(header::LOCATION, place);
    }
    response
}

/// The answer to who replaced something.
pub(super) fn replaced(name: &str, revision: Revision) -> Response<Body> {
    tagged(text(StatusCode::OK, state(name, revision).into()), revision)
}

/// The answer to who deleted something.
pub(super) fn deleted() -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    response
}

/// The state that a write made.
pub(super) fn revision(written: &Written) -> Revision {
    match written {
        Written::Now(revision) => *revision,
        Written::Before(answer) => answer.revision,
    }
}

/// A response with this JSON that was just made, and is nowhere kept.
pub(super) fn fresh(body: &Json) -> Response<Body> {
    text(StatusCode::CREATED, body.bytes().clone().into())
}

fn state(name: &str, revision: Revision) -> String {
    Object::new().put_str("name", name).put_u64("revision", revision.0).finish().text().to_owned()
}

fn tagged(mut response: Response<Body>, revision: Revision) -> Response<Body> {
    if let Ok(tag) = HeaderValue::from_str(&format!("\"{revision}\"")) {
        response.headers_mut().insert(header::ETAG, tag);
    }
    response
}

fn text(status: StatusCode, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}
