//! The issuers that the deployment shares, by their URLs. What one tenant needs of them is checked
//! against all tenants before they change.

use axum::body::Body;
use http::Response;

use crate::admin::api::check;
use crate::admin::api::check::DOCUMENT;
use crate::admin::api::problem::Refused;
use crate::admin::api::reply;
use crate::admin::api::request::Ask;
use crate::config::report::Problem;
use crate::store::write::Write;
use crate::tenant::file::SharedIssuer;

pub(super) async fn list(ask: &Ask<'_>) -> Result<Response<Body>, Refused> {
    let rows = ask.store.issuers().list(ask.page.after.as_deref(), ask.page.limit + 1).await?;
    reply::page(ask, &rows, |row| row.name.clone(), |row| reply::stored(ask, row))
}

pub(super) async fn get(ask: &Ask<'_>) -> Result<Response<Body>, Refused> {
    let found = ask.store.issuers().get(&ask.name).await?.ok_or(Refused::NotFound)?;
    Ok(reply::item(&reply::stored(ask, &found)?, found.revision))
}

pub(super) async fn create(ask: &Ask<'_>) -> Result<Response<Body>, Refused> {
    let mut form = ask.form(&[DOCUMENT]);
    let read = form.object(DOCUMENT).and_then(|document| match check::issuer(ask.api, None, &document) {
        Ok(issuer) => Some((issuer, document)),
        Err(problems) => {
            form.extend(problems);
            None
        }
    });
    let (issuer, document) = form.finish(read)?;
    let url = issuer.issuer.url.to_string();
    if ask.store.issuers().get(&url).await?.is_none() {
        let hurt = hurt(ask, |shared| shared.push(issuer)).await?;
        if !hurt.is_empty() {
            return Err(Refused::InUse(hurt));
        }
    }
    let answer = |revision| reply::made(&url, revision);
    let written = ask.store.issuers().create(&ask.write(&answer), &url, document.text()).await?;
    Ok(reply::created("/issuers", &url, written))
}

pub(super) async fn replace(ask: &Ask<'_>) -> Result<Response<Body>, Refused> {
    let mut form = ask.form(&[DOCUMENT]);
    let read =
        form.object(DOCUMENT).and_then(|document| match check::issuer(ask.api, Some(&ask.name), &document) {
            Ok(_) => Some(document),
            Err(problems) => {
                form.extend(problems);
                None
            }
        });
    let document = form.finish(read)?;
    let write = Write::by(&ask.actor);
    let written = ask.store.issuers().replace(&write, &ask.name, document.text(), ask.expected).await?;
    Ok(reply::replaced(&ask.name, reply::revision(&written)))
}

pub(super) async fn delete(ask: &Ask<'_>) -> Result<Response<Body>, Refused> {
    let hurt = hurt(ask, |shared| shared.retain(|one| *one.issuer.url != ask.name)).await?;
    if !hurt.is_empty() {
        return Err(Refused::InUse(hurt));
    }
    ask.store.issuers().delete(&Write::by(&ask.actor), &ask.name, ask.expected).await?;
    Ok(reply::deleted())
}

/// The tenants that would not load any more.
async fn hurt(ask: &Ask<'_>, change: impl FnOnce(&mut Vec<SharedIssuer>)) -> Result<Vec<Problem>, Refused> {
    let before = check::shared(ask.store).await?;
    let mut after = before.clone();
    change(&mut after);
    let (api, deployment) = (ask.api.clone(), ask.store.everything().await?);
    let looked = tokio::task::spawn_blocking(move || check::hurt(&api, &deployment, &before, &after)).await;
    looked.map_err(|_| Refused::Fault)
}
