//! Operators: who may use this API. Their keys are given once, to who makes them.

use axum::body::Body;
use http::Response;
use secrecy::ExposeSecret;

use crate::admin::api::problem::Refused;
use crate::admin::api::reply;
use crate::admin::api::request::Ask;
use crate::model::name::TenantName;
use crate::protocol::json::Json;
use crate::protocol::json::compose::Object;
use crate::store::error::StoreError;
use crate::store::operators;
use crate::store::operators::Operator;
use crate::store::operators::OperatorId;
use crate::store::operators::Role;

pub(super) async fn list(ask: &Ask<'_>) -> Result<Response<Body>, Refused> {
    let after = ask.page.after.as_deref().map(OperatorId::from);
    let rows = ask.store.operators().list(None, after.as_ref(), ask.page.limit + 1).await?;
    reply::page(ask, &rows, |row| row.id.to_string(), |row| Ok(show(row).finish()))
}

pub(super) async fn get(ask: &Ask<'_>) -> Result<Response<Body>, Refused> {
    let found = ask.store.operators().get(&OperatorId::from(&*ask.name)).await?.ok_or(Refused::NotFound)?;
    Ok(reply::json(&show(&found).finish()))
}

pub(super) async fn create(ask: &Ask<'_>) -> Result<Response<Body>, Refused> {
    let mut form = ask.form(&["name", "role", "tenant"]);
    let name = form.text("name").and_then(|name| match operators::is_name(&name) {
        true => Some(name),
        false => form.refuse("name", "expected at most 100 bytes, without control characters"),
    });
    let role = form.text("role").and_then(|word| {
        let role = Role::ALL.into_iter().find(|role| role.as_str() == word);
        role.or_else(|| form.refuse("role", "expected `owner`, `operator` or `auditor`"))
    });
    let tenant = match form.optional("tenant") {
        Some(tenant) => match TenantName::new(&tenant) {
            Ok(tenant) => Some(tenant),
            Err(error) => form.refuse("tenant", &error.to_string()),
        },
        None => None,
    };
    let (name, role) = form.finish(name.zip(role))?;
    let made = ask.store.operators().create(&ask.actor, &name, role, tenant.as_ref()).await;
    let (operator, key) = made.map_err(|error| match error {
        StoreError::NotFound => Refused::invalid("tenant", "there is no such tenant"),
        other => other.into(),
    })?;
    let body = show(&operator).put_str("key", key.expose_secret()).finish();
    Ok(reply::located(reply::fresh(&body), "/operators", operator.id.as_str()))
}

pub(super) async fn delete(ask: &Ask<'_>) -> Result<Response<Body>, Refused> {
    ask.store.operators().revoke(&ask.actor, &OperatorId::from(&*ask.name), None).await?;
    Ok(reply::deleted())
}

fn show(operator: &Operator) -> Object {
    let tenant = operator.tenant.as_ref().map_or_else(Json::null, |name| Json::from_str_value(name.as_str()));
    Object::new()
        .put_str("id", operator.id.as_str())
        .put_str("name", &operator.name)
        .put_str("role", operator.role.as_str())
        .put("tenant", &tenant)
        .put_u64("created", operator.created)
}
