//! The admin API, `/api/v1`: what operators declare, where it is kept in the database.
//!
//! A request passes: the listener's own checks (`admin`), whose key it has, which operation it is
//! ([`operations`], the one table), whether that operator may do it, its body, and then the one
//! handler of its kind. [`problem`] is the one table of refusals. A document is read as `serve` will
//! read it before it is written (`check.rs`).

mod audit;
mod backends;
mod check;
mod issuers;
pub mod openapi;
pub mod operations;
mod operators;
pub mod problem;
mod reply;
mod request;
mod secrets;
mod tenants;

use std::sync::Arc;

use axum::body::Body;
use http::HeaderMap;
use http::HeaderValue;
use http::Method;
use http::Request;
use http::Response;
use http::header;
use http::request::Parts;

use crate::admin::api::operations::BASE;
use crate::admin::api::operations::Does;
use crate::admin::api::operations::OPERATIONS;
use crate::admin::api::operations::Operation;
use crate::admin::api::problem::Refused;
use crate::admin::api::request::Ask;
use crate::egress::rules::Rules;
use crate::model::limits::Limits;
use crate::model::name::TenantName;
use crate::model::uri;
use crate::seal::KeyRing;
use crate::store::Store;
use crate::store::operators::Operator;
use crate::tenant::source::Sources;

/// What the API works with.
#[derive(Clone)]
pub struct Api {
    /// Where tenants live; none where a file declares them.
    pub store: Option<Store>,
    /// How documents are read.
    pub sources: Sources,
    /// What backends may be at.
    pub rules: Rules,
    /// What cursors are marked with.
    pub keys: Arc<KeyRing>,
    /// The limits.
    pub limits: Arc<Limits>,
}

/// Whether a path is the API's.
pub(super) fn is_at(path: &str) -> bool {
    path.strip_prefix(BASE).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// What every answer has.
pub(super) fn decorate(headers: &mut HeaderMap) {
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
}

/// Answers one request.
pub(super) async fn serve(api: &Api, request: Request<Body>) -> Response<Body> {
    let (parts, body) = request.into_parts();
    match answer(api, &parts, body).await {
        Ok(response) => response,
        Err(refused) => refused.into_response(),
    }
}

async fn answer(api: &Api, parts: &Parts, body: Body) -> Result<Response<Body>, Refused> {
    let store = api.store.as_ref().ok_or(Refused::File)?;
    let operator = operator(store, &parts.headers).await?;
    let (operation, names) = route(parts)?;
    let (tenant, name) = admit(&operator, operation, &names)?;
    let ask = Ask::read(api, store, operator, operation, (tenant, name), parts, body).await?;
    dispatch(&ask).await
}

/// The operator whose key the request has. What cannot be a key costs no query.
async fn operator(store: &Store, headers: &HeaderMap) -> Result<Operator, Refused> {
    let mut values = headers.get_all(header::AUTHORIZATION).iter();
    let (Some(value), None) = (values.next(), values.next()) else { return Err(Refused::Key) };
    let (scheme, key) = value.to_str().ok().and_then(|value| value.split_once(' ')).ok_or(Refused::Key)?;
    if !scheme.eq_ignore_ascii_case("bearer") {
        return Err(Refused::Key);
    }
    store.operators().find(key.trim_matches(' ')).await?.ok_or(Refused::Key)
}

/// Which operation it is, and the names in its path, decoded.
fn route(parts: &Parts) -> Result<(&'static Operation, Vec<String>), Refused> {
    let path = parts.uri.path().strip_prefix(BASE).unwrap_or_default();
    let found: Vec<_> = OPERATIONS.iter().filter_map(|one| Some((one, one.names(path)?))).collect();
    if found.is_empty() {
        return Err(Refused::NotFound);
    }
    let method = if parts.method == Method::HEAD { &Method::GET } else { &parts.method };
    let Some((operation, names)) = found.iter().find(|(one, _)| one.method == method) else {
        let allowed: Vec<_> = found.iter().map(|(one, _)| one.method.as_str()).collect();
        return Err(Refused::Method(allowed.join(", ")));
    };
    let decoded = names.iter().map(|name| String::from_utf8(uri::decode(name.as_bytes())));
    let names = decoded.collect::<Result<_, _>>().map_err(|_| Refused::NotFound)?;
    Ok((operation, names))
}

/// Whether the operator may do that; the tenant and the name that it is about. What is another
/// tenant's is not there, whatever was asked.
fn admit(
    operator: &Operator,
    operation: &Operation,
    names: &[String],
) -> Result<(Option<TenantName>, String), Refused> {
    let tenant = match operation.is_of_tenant() {
        true => Some(TenantName::new(&names[0]).map_err(|_| Refused::NotFound)?),
        false => None,
    };
    match (&operator.tenant, &tenant) {
        (Some(own), Some(asked)) if own != asked => return Err(Refused::NotFound),
        (Some(_), None) if operation.does != Does::Describe => {
            return Err(Refused::Forbidden("the operator is for one tenant, and this is the deployment's"));
        }
        _ => {}
    }
    if !operation.is_for(operator.role) {
        return Err(Refused::Forbidden("the operator's role does not permit this"));
    }
    let name = names.last().cloned().unwrap_or_default();
    // No name has them, and no database takes them.
    if name.chars().any(char::is_control) {
        return Err(Refused::NotFound);
    }
    Ok((tenant, name))
}

async fn dispatch(ask: &Ask<'_>) -> Result<Response<Body>, Refused> {
    match ask.operation.does {
        Does::Describe => Ok(reply::json(&openapi::document())),
        Does::ListTenants => tenants::list(ask).await,
        Does::CreateTenant => tenants::create(ask).await,
        Does::GetTenant => tenants::get(ask).await,
        Does::ReplaceTenant => tenants::replace(ask).await,
        Does::DeleteTenant => tenants::delete(ask).await,
        Does::ListBackends => backends::list(ask).await,
        Does::CreateBackend => backends::create(ask).await,
        Does::GetBackend => backends::get(ask).await,
        Does::ReplaceBackend => backends::replace(ask).await,
        Does::DeleteBackend => backends::delete(ask).await,
        Does::ListSecrets => secrets::list(ask).await,
        Does::CreateSecret => secrets::create(ask).await,
        Does::GetSecret => secrets::get(ask).await,
        Does::ReplaceSecret => secrets::replace(ask).await,
        Does::DeleteSecret => secrets::delete(ask).await,
        Does::ListTenantAudit | Does::ListAudit => audit::list(ask).await,
        Does::ListIssuers => issuers::list(ask).await,
        Does::CreateIssuer => issuers::create(ask).await,
        Does::GetIssuer => issuers::get(ask).await,
        Does::ReplaceIssuer => issuers::replace(ask).await,
        Does::DeleteIssuer => issuers::delete(ask).await,
        Does::ListOperators => operators::list(ask).await,
        Does::CreateOperator => operators::create(ask).await,
        Does::GetOperator => operators::get(ask).await,
        Does::DeleteOperator => operators::delete(ask).await,
    }
}
