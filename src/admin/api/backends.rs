//! Backends. One is checked in its tenant as that would be, by the transaction that writes it: no
//! secret that it names goes meanwhile.

use std::sync::Mutex;
use std::sync::PoisonError;

use axum::body::Body;
use http::Response;

use crate::admin::api::check;
use crate::admin::api::check::DOCUMENT;
use crate::admin::api::problem::Refused;
use crate::admin::api::reply;
use crate::admin::api::request::Ask;
use crate::config::report::Problem;
use crate::model::name::BackendName;
use crate::model::name::TenantName;
use crate::store::backends::Placed;
use crate::store::error::StoreError;
use crate::store::serving::Whole;
use crate::store::write::Write;

pub(super) async fn list(ask: &Ask<'_>) -> Result<Response<Body>, Refused> {
    let tenant = ask.tenant()?;
    let after = ask.page.after.as_deref().map(str::parse).transpose().map_err(|_| Refused::NotFound)?;
    let rows = ask.store.backends().list(tenant, after, ask.page.limit + 1).await?;
    if rows.is_empty() {
        need(ask, tenant).await?;
    }
    let show = |row: &Placed| reply::stored(ask, &row.backend);
    reply::page(ask, &rows, |row| row.place.to_string(), show)
}

pub(super) async fn get(ask: &Ask<'_>) -> Result<Response<Body>, Refused> {
    let found = ask.store.backends().get(ask.tenant()?, &name(ask)?).await?.ok_or(Refused::NotFound)?;
    Ok(reply::item(&reply::stored(ask, &found.backend)?, found.backend.revision))
}

pub(super) async fn create(ask: &Ask<'_>) -> Result<Response<Body>, Refused> {
    let tenant = ask.tenant()?;
    let mut form = ask.form(&["name", DOCUMENT]);
    let name = form.parsed("name", BackendName::new);
    let document = form.object(DOCUMENT);
    let (name, document) = form.finish(name.zip(document))?;
    let found = Mutex::new(Vec::new());
    let check = |whole: &Whole| passes(ask, whole, &name, &found);
    let answer = |revision| reply::made(name.as_str(), revision);
    let write = Write { check: Some(&check), ..ask.write(&answer) };
    let written = ask.store.backends().create(&write, tenant, &name, document.text()).await;
    let written = written.map_err(|error| refused(error, &found))?;
    Ok(reply::created(&format!("/tenants/{tenant}/backends"), name.as_str(), written))
}

pub(super) async fn replace(ask: &Ask<'_>) -> Result<Response<Body>, Refused> {
    let (tenant, name) = (ask.tenant()?, name(ask)?);
    let mut form = ask.form(&[DOCUMENT]);
    let document = form.object(DOCUMENT);
    let document = form.finish(document)?;
    let found = Mutex::new(Vec::new());
    let check = |whole: &Whole| passes(ask, whole, &name, &found);
    let write = Write { check: Some(&check), ..Write::by(&ask.actor) };
    let backends = ask.store.backends();
    let written = backends.replace(&write, tenant, &name, document.text(), ask.expected).await;
    let written = written.map_err(|error| refused(error, &found))?;
    Ok(reply::replaced(name.as_str(), reply::revision(&written)))
}

pub(super) async fn delete(ask: &Ask<'_>) -> Result<Response<Body>, Refused> {
    let write = Write::by(&ask.actor);
    ask.store.backends().delete(&write, ask.tenant()?, &name(ask)?, ask.expected).await?;
    Ok(reply::deleted())
}

/// Whether there is such a tenant, for lists that would be empty without one.
pub(super) async fn need(ask: &Ask<'_>, tenant: &TenantName) -> Result<(), Refused> {
    ask.store.tenants().get(tenant).await?.map(drop).ok_or(Refused::NotFound)
}

fn name(ask: &Ask<'_>) -> Result<BackendName, Refused> {
    BackendName::new(&ask.name).map_err(|_| Refused::NotFound)
}

/// Whether the backend is sound in its tenant; what is wrong with it is left in `found`.
fn passes(ask: &Ask<'_>, whole: &Whole, name: &BackendName, found: &Mutex<Vec<Problem>>) -> bool {
    let problems = check::backend(ask.api, whole, name);
    let passes = problems.is_empty();
    *found.lock().unwrap_or_else(PoisonError::into_inner) = problems;
    passes
}

fn refused(error: StoreError, found: &Mutex<Vec<Problem>>) -> Refused {
    match error {
        StoreError::Refused => {
            Refused::Invalid(std::mem::take(&mut *found.lock().unwrap_or_else(PoisonError::into_inner)))
        }
        other => other.into(),
    }
}
