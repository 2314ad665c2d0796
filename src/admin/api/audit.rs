//! The record of changes, oldest first. A deleted tenant has its own still.

use axum::body::Body;
use http::Response;

use crate::admin::api::backends::need;
use crate::admin::api::problem::Refused;
use crate::admin::api::reply;
use crate::admin::api::request::Ask;
use crate::protocol::json::Json;
use crate::protocol::json::compose::Object;
use crate::store::audit::Entry;
use crate::store::error::StoreError;

pub(super) async fn list(ask: &Ask<'_>) -> Result<Response<Body>, Refused> {
    let after = ask.page.after.as_deref().map(str::parse).transpose().map_err(|_| Refused::NotFound)?;
    let rows = ask.store.audit().list(ask.whose(), after, ask.page.limit + 1).await?;
    if let (true, None, Some(tenant)) = (rows.is_empty(), after, ask.whose()) {
        need(ask, tenant).await?;
    }
    reply::page(ask, &rows, |row| row.number.to_string(), |row| show(ask, row))
}

fn show(ask: &Ask<'_>, entry: &Entry) -> Result<Json, Refused> {
    let document = |text: &Option<String>| match text {
        None => Ok(Json::null()),
        Some(text) => Json::parse(text.clone().into(), ask.api.limits.json_depth)
            .map_err(|_| StoreError::Corrupt("document")),
    };
    let item = Object::new()
        .put_u64("number", entry.number)
        .put_u64("at", entry.at)
        .put_str("actor", &entry.actor)
        .put_str("action", &entry.action)
        .put_str("object", &entry.object)
        .put("was", &document(&entry.was)?)
        .put("became", &document(&entry.became)?)
        .put_str("previous", &hex(&entry.previous))
        .put_str("hash", &hex(&entry.hash));
    Ok(item.finish())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
