//! Secrets: their values come in and are never given out.

use std::sync::Mutex;
use std::sync::PoisonError;

use axum::body::Body;
use http::Response;
use secrecy::ExposeSecret;
use secrecy::SecretString;

use crate::admin::api::backends::need;
use crate::admin::api::check;
use crate::admin::api::problem::Refused;
use crate::admin::api::reply;
use crate::admin::api::request::Ask;
use crate::admin::api::request::Form;
use crate::model::name::TenantName;
use crate::protocol::json::Json;
use crate::protocol::json::compose::Object;
use crate::seal;
use crate::store::Revision;
use crate::store::error::StoreError;
use crate::store::secrets::Secret;
use crate::store::serving::Whole;
use crate::store::write::Write;
use crate::tenant::secret;

pub(super) async fn list(ask: &Ask<'_>) -> Result<Response<Body>, Refused> {
    let tenant = ask.tenant()?;
    let rows = ask.store.secrets().list(tenant, ask.page.after.as_deref(), ask.page.limit + 1).await?;
    if rows.is_empty() {
        need(ask, tenant).await?;
    }
    reply::page(ask, &rows, |row| row.name.clone(), |row| Ok(show(row)))
}

pub(super) async fn get(ask: &Ask<'_>) -> Result<Response<Body>, Refused> {
    let found = ask.store.secrets().get(ask.tenant()?, &ask.name).await?.ok_or(Refused::NotFound)?;
    Ok(reply::item(&show(&found), found.revision))
}

pub(super) async fn create(ask: &Ask<'_>) -> Result<Response<Body>, Refused> {
    let tenant = ask.tenant()?;
    let mut form = ask.form(&["name", "value"]);
    let name = form.text("name").and_then(|name| match secret::is_name(&name) {
        true => Some(name),
        false => form.refuse("name", secret::NAMES),
    });
    let value = value(&mut form);
    let (name, value) = form.finish(name.zip(value))?;
    let answer = |revision| reply::made(&name, revision);
    let written = ask.store.secrets().create(&ask.write(&answer), tenant, &name, &value).await?;
    Ok(reply::created(&format!("/tenants/{tenant}/secrets"), &name, written))
}

/// The same value again is no change: whoever applies a file twice changes nothing the second time.
pub(super) async fn replace(ask: &Ask<'_>) -> Result<Response<Body>, Refused> {
    let tenant = ask.tenant()?;
    let mut form = ask.form(&["value"]);
    let value = value(&mut form);
    let value = form.finish(value)?;
    if let Some(revision) = holding(ask, tenant, &value).await? {
        return match ask.expected {
            Some(expected) if expected != revision => Err(Refused::Stale),
            Some(_) | None => Ok(reply::replaced(&ask.name, revision)),
        };
    }
    let write = Write::by(&ask.actor);
    let written = ask.store.secrets().replace(&write, tenant, &ask.name, &value, ask.expected).await?;
    Ok(reply::replaced(&ask.name, reply::revision(&written)))
}

/// Refused while a backend uses it: the tenant would not load.
pub(super) async fn delete(ask: &Ask<'_>) -> Result<Response<Body>, Refused> {
    let found = Mutex::new(Vec::new());
    let check = |whole: &Whole| {
        let users = check::users(ask.api, whole, &ask.name);
        let unused = users.is_empty();
        *found.lock().unwrap_or_else(PoisonError::into_inner) = users;
        unused
    };
    let write = Write { check: Some(&check), ..Write::by(&ask.actor) };
    match ask.store.secrets().delete(&write, ask.tenant()?, &ask.name, ask.expected).await {
        Ok(_) => Ok(reply::deleted()),
        Err(StoreError::Refused) => {
            Err(Refused::InUse(std::mem::take(&mut *found.lock().unwrap_or_else(PoisonError::into_inner))))
        }
        Err(other) => Err(other.into()),
    }
}

/// The state of the secret that is asked for, if it has this value.
async fn holding(
    ask: &Ask<'_>,
    tenant: &TenantName,
    value: &SecretString,
) -> Result<Option<Revision>, Refused> {
    let whole = ask.store.tenant(tenant).await?.ok_or(Refused::NotFound)?;
    let stored = whole.secrets.iter().find(|secret| secret.name == ask.name);
    let same = stored.filter(|stored| {
        let held = stored.value.as_ref();
        held.is_some_and(|held| {
            seal::is_same(held.expose_secret().as_bytes(), value.expose_secret().as_bytes())
        })
    });
    Ok(same.map(|same| same.revision))
}

fn value(form: &mut Form<'_>) -> Option<SecretString> {
    let value = form.text("value")?;
    match secret::is_sendable(&value) {
        true => Some(value.into()),
        false => form.refuse("value", "cannot be sent in a header"),
    }
}

fn show(secret: &Secret) -> Json {
    let item = Object::new().put_str("name", &secret.name).put_u64("revision", secret.revision.0);
    item.put_u64("created", secret.created).put_u64("changed", secret.changed).finish()
}
