//! Who was authenticated.

use std::sync::Arc;

use crate::model::name::TenantName;
use crate::model::scope::Scopes;

/// How far a credential's clock and ours may differ, in seconds.
pub const LEEWAY: u64 = 30;

/// Who sent a request, as the verified credential says and nothing else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    /// The tenant that the credential is good for.
    pub tenant: TenantName,
    /// The issuer that vouches for the rest.
    pub issuer: Arc<str>,
    /// The `sub` claim.
    pub subject: Arc<str>,
    /// The OAuth client, where the credential names one.
    pub client: Option<Arc<str>>,
    /// The scopes granted, before a tenant's hierarchies are applied.
    pub scopes: Scopes,
    /// When the credential ends, in seconds since the Unix epoch.
    pub expires_at: u64,
}

impl Caller {
    /// Until when requests with the credential are taken, in seconds since the Unix epoch.
    pub fn good_until(&self) -> u64 {
        self.expires_at.saturating_add(LEEWAY)
    }

    /// What handles are bound to: (tenant, issuer, subject, client), unambiguously joined.
    pub fn principal(&self) -> String {
        let client = self.client.as_deref().unwrap_or_default();
        [self.tenant.as_str(), &self.issuer, &self.subject, client]
            .iter()
            .map(|part| format!("{}:{part}", part.len()))
            .collect()
    }
}
