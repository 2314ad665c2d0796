//! Tenants.

use axum::body::Body;
use http::Response;

use crate::admin::api::check;
use crate::admin::api::check::DOCUMENT;
use crate::admin::api::problem::Refused;
use crate::admin::api::reply;
use crate::admin::api::request::Ask;
use crate::model::name::TenantName;
use crate::store::write::Write;

pub(super) async fn list(ask: &Ask<'_>) -> Result<Response<Body>, Refused> {
    let after = ask.page.after.as_deref().map(TenantName::new).transpose();
    let after = after.map_err(|_| Refused::NotFound)?;
    let rows = ask.store.tenants().list(after.as_ref(), ask.page.limit + 1).await?;
    reply::page(ask, &rows, |row| row.name.to_string(), |row| reply::stored(ask, row))
}

pub(super) async fn get(ask: &Ask<'_>) -> Result<Response<Body>, Refused> {
    let found = ask.store.tenants().get(ask.tenant()?).await?.ok_or(Refused::NotFound)?;
    Ok(reply::item(&reply::stored(ask, &found)?, found.revision))
}

pub(super) async fn create(ask: &Ask<'_>) -> Result<Response<Body>, Refused> {
    let shared = check::shared(ask.store).await?;
    let mut form = ask.form(&["name", DOCUMENT]);
    let name = form.parsed("name", TenantName::new);
    let document = form.object(DOCUMENT);
    let read = name.zip(document).and_then(|(name, document)| {
        match check::tenant(ask.api, shared, &name, &document) {
            Ok(claims) => Some((name, document, claims)),
            Err(problems) => {
                form.extend(problems);
                None
            }
        }
    });
    let (name, document, claims) = form.finish(read)?;
    let answer = |revision| reply::made(name.as_str(), revision);
    let write = ask.write(&answer);
    let written = ask.store.tenants().create(&write, &name, document.text(), &claims).await?;
    Ok(reply::created("/tenants", name.as_str(), written))
}

pub(super) async fn replace(ask: &Ask<'_>) -> Result<Response<Body>, Refused> {
    let name = ask.tenant()?;
    let shared = check::shared(ask.store).await?;
    let mut form = ask.form(&[DOCUMENT]);
    let read =
        form.object(DOCUMENT).and_then(|document| match check::tenant(ask.api, shared, name, &document) {
            Ok(claims) => Some((document, claims)),
            Err(problems) => {
                form.extend(problems);
                None
            }
        });
    let (document, claims) = form.finish(read)?;
    let write = Write::by(&ask.actor);
    let written = ask.store.tenants().replace(&write, name, document.text(), &claims, ask.expected).await?;
    Ok(reply::replaced(name.as_str(), reply::revision(&written)))
}

pub(super) async fn delete(ask: &Ask<'_>) -> Result<Response<Body>, Refused> {
    ask.store.tenants().delete(&Write::by(&ask.actor), ask.tenant()?, ask.expected).await?;
    Ok(reply::deleted())
}
