//! The state of a call that goes on in rounds: what its backend wants back with the client's answers,
//! sealed. It opens for the same principal, at the same tenant, on the same call, and for a while.
//!
//! spec: patterns/mrtr, Server Requirements

use std::sync::Arc;

use aws_lc_rs::digest;

use crate::catalog::entry::Entry;
use crate::exchange::Exchange;
use crate::model::caller::Caller;
use crate::model::name::BackendName;
use crate::model::name::TenantName;
use crate::protocol::call::INPUT_RESPONSES;
use crate::protocol::call::REQUEST_STATE;
use crate::protocol::json::Json;
use crate::protocol::json::canonical::canonical;
use crate::protocol::json::compose::Object;
use crate::protocol::methods::Method;
use crate::router::RouteError;
use crate::seal::Binding;
use crate::seal::KeyRing;
use crate::seal::Purpose;

/// Where a call stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    /// How often its backend has asked so far.
    pub round: u8,
    /// What the backend wants back, as it sent it.
    pub upstream: String,
}

/// The call that a state belongs to: who makes it, and what exactly is asked for.
pub struct Occasion {
    caller: Arc<Caller>,
    tenant: TenantName,
    method: Method,
    backend: BackendName,
    own: Arc<str>,
    params: Json,
}

impl Occasion {
    /// This exchange, which goes to the backend of `entry`.
    pub fn of(exchange: &Exchange, entry: &Entry) -> Self {
        Self {
            caller: exchange.caller.clone(),
            tenant: exchange.tenant.name.clone(),
            method: exchange.call.method,
            backend: entry.backend().clone(),
            own: entry.own.clone(),
            params: exchange.call.params.clone(),
        }
    }

    /// The method that is called.
    pub fn method(&self) -> Method {
        self.method
    }

    /// A handle for `state`, which opens until `expires_at`, in seconds since the Unix epoch.
    ///
    /// spec: row MR-04
    pub fn seal(&self, ring: &KeyRing, state: &State, expires_at: u64) -> String {
        let payload = [&[state.round], state.upstream.as_bytes()].concat();
        self.bound(|binding| ring.seal(binding, expires_at, &payload))
    }

    /// The state in `handle`. Forged, of somebody else, of another call or too old: there is one answer.
    ///
    /// spec: row MR-04
    pub fn open(&self, ring: &KeyRing, handle: &str, now: u64) -> Result<State, RouteError> {
        let payload = self.bound(|binding| ring.open(binding, handle, now));
        let payload = payload.map_err(|_| RouteError::InvalidState)?;
        let (round, upstream) = payload.split_first().ok_or(RouteError::InvalidState)?;
        let upstream = String::from_utf8(upstream.to_vec()).map_err(|_| RouteError::InvalidState)?;
        Ok(State { round: *round, upstream })
    }

    fn bound<T>(&self, act: impl FnOnce(&Binding<'_>) -> T) -> T {
        let (principal, digest) = (self.caller.principal(), self.digest());
        let purpose = Purpose::State;
        act(&Binding { purpose, tenant: &self.tenant, principal: &principal, digest: digest.as_ref() })
    }

    /// What is called, where, with which params; without what differs from one round to the next.
    fn digest(&self) -> digest::Digest {
        let members = self.params.members();
        let members = members.filter(|(key, _)| !matches!(&**key, "_meta" | INPUT_RESPONSES | REQUEST_STATE));
        let params = members.fold(Object::new(), |all, (key, value)| all.put(&key, &value)).finish();
        let mut context = digest::Context::new(&digest::SHA256);
        let names = [self.method.name(), self.backend.as_str(), &self.own].map(str::as_bytes);
        for part in [names[0], names[1], names[2], &canonical(&params)] {
            context.update(&(part.len() as u64).to_be_bytes());
            context.update(part);
        }
        context.finish()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bytes::Bytes;

    use super::Occasion;
    use super::State;
    use crate::model::caller::Caller;
    use crate::model::name::BackendName;
    use crate::model::name::TenantName;
    use crate::model::scope::Scopes;
    use crate::protocol::json::Json;
    use crate::protocol::methods::Method;
    use crate::seal::KeyRing;

    const PARAMS: &str =
        r#"{"_meta":{"x":1},"name":"crm_echo","arguments":{"b":[1.0,{"d":2,"c":"é"}],"a":null}}"#;

    fn caller(tenant: &str, subject: &str, client: Option<&str>) -> Caller {
        Caller {
            tenant: TenantName::new(tenant).unwrap(),
            issuer: "https://login.example".into(),
            subject: subject.into(),
            client: client.map(Into::into),
            scopes: Scopes::default(),
            expires_at: u64::MAX,
        }
    }

    fn occasion(caller: Caller, method: Method, backend: &str, own: &str, params: &str) -> Occasion {
        Occasion {
            tenant: caller.tenant.clone(),
            caller: Arc::new(caller),
            method,
            backend: BackendName::new(backend).unwrap(),
            own: own.into(),
            params: Json::parse(Bytes::copy_from_slice(params.as_bytes()), 64).unwrap(),
        }
    }

    fn with(params: &str) -> Occasion {
        occasion(caller("acme", "alice", None), Method::ToolsCall, "crm", "echo", params)
    }

    // spec: row MR-04
    #[test]
    fn a_state_opens_on_the_same_call_alone() {
        let ring = KeyRing::new(vec![[7; 32]]).unwrap();
        let state = State { round: 3, upstream: "\u{0}\"\\ö\u{1f512}".to_owned() };
        let handle = with(PARAMS).seal(&ring, &state, 100);
        for same in [
            PARAMS,
            r#"{"name":"crm_echo","arguments":{"a":null,"b":[ 1.0, {"c":"\u00e9","d":2} ]},"inputResponses":{"k":{}},"requestState":"s"}"#,
        ] {
            assert_eq!(with(same).open(&ring, &handle, 99).unwrap(), state, "{same}");
        }
        assert!(with(PARAMS).open(&ring, &handle, 100).is_err(), "it is over");
        for changed in [
            PARAMS.replace("1.0", "1"),
            PARAMS.replace("crm_echo", "crm_other"),
            PARAMS.replace("null", "false"),
            PARAMS.replace(r#","a":null"#, ""),
            PARAMS.replace(r#""a":null"#, r#""a":null,"e":0"#),
            PARAMS.replace(r#""name""#, r#""x":{},"name""#),
        ] {
            assert_ne!(changed, PARAMS);
            assert!(with(&changed).open(&ring, &handle, 0).is_err(), "{changed}");
        }
        let alice = || caller("acme", "alice", None);
        for other in [
            occasion(caller("acme", "bob", None), Method::ToolsCall, "crm", "echo", PARAMS),
            occasion(caller("acme", "alice", Some("app")), Method::ToolsCall, "crm", "echo", PARAMS),
            occasion(caller("globex", "alice", None), Method::ToolsCall, "crm", "echo", PARAMS),
            occasion(alice(), Method::PromptsGet, "crm", "echo", PARAMS),
            occasion(alice(), Method::ToolsCall, "erp", "echo", PARAMS),
            occasion(alice(), Method::ToolsCall, "crm", "ech", PARAMS),
        ] {
            assert!(other.open(&ring, &handle, 0).is_err());
        }
        assert!(with(PARAMS).open(&KeyRing::new(vec![[8; 32]]).unwrap(), &handle, 0).is_err());
        for n in 0..handle.len() {
            let mut bent = handle.clone().into_bytes();
            bent[n] = if bent[n] == b'A' { b'B' } else { b'A' };
            assert!(with(PARAMS).open(&ring, std::str::from_utf8(&bent).unwrap(), 0).is_err(), "{n}");
        }
    }
}
