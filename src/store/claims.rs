//! What can be one tenant's alone in the deployment: a host, and an issuer with an audience. The
//! database keeps each once, so that two writers at once cannot both have it.

use std::collections::BTreeSet;

use crate::model::name::TenantName;
use crate::store::engine::Arg;
use crate::store::engine::Tx;
use crate::store::error::StoreError;
use crate::store::write::Stop;

/// One thing that a tenant claims for itself.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Claim {
    /// An authority, `host[:port]`, as requests name it. A host whose port goes without saying has
    /// two, with and without it.
    Host(String),
    /// Tokens of this issuer for this audience.
    Audience {
        /// The issuer's identifier.
        issuer: String,
        /// The audience.
        audience: String,
    },
}

impl Claim {
    /// What kind of thing it is, for a message.
    pub fn noun(&self) -> &'static str {
        match self {
            Self::Host(_) => "the host",
            Self::Audience { .. } => "the issuer with the audience",
        }
    }

    fn kind(&self) -> &'static str {
        match self {
            Self::Host(_) => "host",
            Self::Audience { .. } => "audience",
        }
    }

    fn value(&self) -> String {
        match self {
            Self::Host(authority) => authority.clone(),
            // No URL has a newline in it.
            Self::Audience { issuer, audience } => format!("{issuer}\n{audience}"),
        }
    }
}

/// Makes `claims` all that `tenant` has, or says what it cannot have.
pub(super) async fn replace(tx: &mut Tx, tenant: &TenantName, claims: &BTreeSet<Claim>) -> Result<(), Stop> {
    let whose = Arg::Text(tenant.as_str());
    tx.run("delete from claims where tenant = $1", &[whose]).await?;
    for claim in claims {
        let value = claim.value();
        let args = [Arg::Text(claim.kind()), Arg::Text(&value), whose];
        let sql = "insert into claims (kind, value, tenant) values ($1, $2, $3) on conflict do nothing";
        if tx.run(sql, &args).await? == 0 {
            return Err(StoreError::Claimed(claim.clone()).into());
        }
    }
    Ok(())
}
