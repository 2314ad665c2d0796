//! The one table of operations: what is routed, who may do it, and what the description says.

use http::Method;

use crate::store::operators::Role;

/// Where the API begins.
pub const BASE: &str = "/api/v1";

/// One operation.
pub struct Operation {
    /// Which.
    pub does: Does,
    /// Its name in the description.
    pub id: &'static str,
    /// Its method.
    pub method: Method,
    /// Its path behind [`BASE`]; a part in braces is a name.
    pub path: &'static str,
    /// What it does, in a few words.
    pub summary: &'static str,
}

/// Everything that can be asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "each is named as its operation, which says what it does")]
pub enum Does {
    Describe,
    ListTenants,
    CreateTenant,
    GetTenant,
    ReplaceTenant,
    DeleteTenant,
    ListBackends,
    CreateBackend,
    GetBackend,
    ReplaceBackend,
    DeleteBackend,
    ListSecrets,
    CreateSecret,
    GetSecret,
    ReplaceSecret,
    DeleteSecret,
    ListTenantAudit,
    ListIssuers,
    CreateIssuer,
    GetIssuer,
    ReplaceIssuer,
    DeleteIssuer,
    ListOperators,
    CreateOperator,
    GetOperator,
    DeleteOperator,
    ListAudit,
}

const TENANTS: &str = "/tenants";
const TENANT: &str = "/tenants/{tenant}";
const BACKENDS: &str = "/tenants/{tenant}/backends";
const BACKEND: &str = "/tenants/{tenant}/backends/{backend}";
const SECRETS: &str = "/tenants/{tenant}/secrets";
const SECRET: &str = "/tenants/{tenant}/secrets/{secret}";
const TENANT_AUDIT: &str = "/tenants/{tenant}/audit";
const ISSUERS: &str = "/issuers";
const ISSUER: &str = "/issuers/{issuer}";
const OPERATORS: &str = "/operators";
const OPERATOR: &str = "/operators/{operator}";
const AUDIT: &str = "/audit";

const fn get(does: Does, id: &'static str, path: &'static str, summary: &'static str) -> Operation {
    Operation { does, id, method: Method::GET, path, summary }
}

const fn post(does: Does, id: &'static str, path: &'static str, summary: &'static str) -> Operation {
    Operation { does, id, method: Method::POST, path, summary }
}

const fn put(does: Does, id: &'static str, path: &'static str, summary: &'static str) -> Operation {
    Operation { does, id, method: Method::PUT, path, summary }
}

const fn delete(does: Does, id: &'static str, path: &'static str, summary: &'static str) -> Operation {
    Operation { does, id, method: Method::DELETE, path, summary }
}

/// Every operation.
pub const OPERATIONS: &[Operation] = &[
    get(Does::Describe, "getDescription", "/openapi.json", "This description"),
    get(Does::ListTenants, "listTenants", TENANTS, "The tenants, by name"),
    post(Does::CreateTenant, "createTenant", TENANTS, "Make a tenant"),
    get(Does::GetTenant, "getTenant", TENANT, "One tenant"),
    put(Does::ReplaceTenant, "replaceTenant", TENANT, "Replace a tenant's document"),
    delete(Does::DeleteTenant, "deleteTenant", TENANT, "Delete a tenant with all that is its own"),
    get(Does::ListBackends, "listBackends", BACKENDS, "A tenant's backends, in their order"),
    post(Does::CreateBackend, "createBackend", BACKENDS, "Make a backend, behind those that are there"),
    get(Does::GetBackend, "getBackend", BACKEND, "One backend"),
    put(Does::ReplaceBackend, "replaceBackend", BACKEND, "Replace a backend's document"),
    delete(Does::DeleteBackend, "deleteBackend", BACKEND, "Delete a backend"),
    get(Does::ListSecrets, "listSecrets", SECRETS, "A tenant's secrets, by name and without their values"),
    post(Does::CreateSecret, "createSecret", SECRETS, "Make a secret"),
    get(Does::GetSecret, "getSecret", SECRET, "One secret, without its value"),
    put(Does::ReplaceSecret, "replaceSecret", SECRET, "Give a secret another value"),
    delete(Does::DeleteSecret, "deleteSecret", SECRET, "Delete a secret that no backend uses"),
    get(Does::ListTenantAudit, "listTenantAudit", TENANT_AUDIT, "The record of a tenant's changes"),
    get(Does::ListIssuers, "listIssuers", ISSUERS, "The shared issuers, by their URLs"),
    post(Does::CreateIssuer, "createIssuer", ISSUERS, "Make a shared issuer"),
    get(Does::GetIssuer, "getIssuer", ISSUER, "One shared issuer, by its percent-encoded URL"),
    put(Does::ReplaceIssuer, "replaceIssuer", ISSUER, "Replace a shared issuer's document"),
    delete(Does::DeleteIssuer, "deleteIssuer", ISSUER, "Delete a shared issuer that no tenant names"),
    get(Does::ListOperators, "listOperators", OPERATORS, "The operators, by id and without their keys"),
    post(
        Does::CreateOperator,
        "createOperator",
        OPERATORS,
        "Make an operator; the answer holds its key, once",
    ),
    get(Does::GetOperator, "getOperator", OPERATOR, "One operator, without its key"),
    delete(Does::DeleteOperator, "deleteOperator", OPERATOR, "Revoke an operator"),
    get(Does::ListAudit, "listAudit", AUDIT, "The record of the deployment's own changes"),
];

impl Operation {
    /// Whether it is about one tenant, whose name is in its path.
    pub fn is_of_tenant(&self) -> bool {
        self.path.starts_with(TENANT)
    }

    /// Whether somebody of this role may do it.
    pub fn is_for(&self, role: Role) -> bool {
        let reads = self.method == Method::GET;
        match role {
            Role::Owner => true,
            Role::Operator => !self.path.starts_with(OPERATORS),
            Role::Auditor => reads,
        }
    }

    /// Whether it needs `If-Match`. Operators are never changed, so that they have no state.
    pub fn is_conditional(&self) -> bool {
        match self.does {
            Does::ReplaceTenant
            | Does::DeleteTenant
            | Does::ReplaceBackend
            | Does::DeleteBackend
            | Does::ReplaceSecret
            | Does::DeleteSecret
            | Does::ReplaceIssuer
            | Does::DeleteIssuer => true,
            Does::Describe
            | Does::ListTenants
            | Does::CreateTenant
            | Does::GetTenant
            | Does::ListBackends
            | Does::CreateBackend
            | Does::GetBackend
            | Does::ListSecrets
            | Does::CreateSecret
            | Does::GetSecret
            | Does::ListTenantAudit
            | Does::ListIssuers
            | Does::CreateIssuer
            | Does::GetIssuer
            | Does::ListOperators
            | Does::CreateOperator
            | Does::GetOperator
            | Does::DeleteOperator
            | Does::ListAudit => false,
        }
    }

    /// Whether it answers a page of a list.
    pub fn is_list(&self) -> bool {
        self.id.starts_with("list")
    }

    /// Whether it takes a body.
    pub fn has_body(&self) -> bool {
        self.method == Method::POST || self.method == Method::PUT
    }

    /// The names in `path`, if it is one of this operation's: as many as there are parts in braces.
    pub fn names<'p>(&self, path: &'p str) -> Option<Vec<&'p str>> {
        let (mut wanted, mut given) = (self.path.split('/'), path.split('/'));
        let mut names = Vec::new();
        loop {
            match (wanted.next(), given.next()) {
                (None, None) => return Some(names),
                (Some(part), Some(name)) if part.starts_with('{') && !name.is_empty() => names.push(name),
                (Some(part), Some(name)) if part == name => {}
                _ => return None,
            }
        }
    }
}
