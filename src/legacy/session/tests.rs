//! Session ids that open, and all that do not.

use bytes::Bytes;

use super::Session;
use crate::legacy::LegacyError;
use crate::model::caller::Caller;
use crate::model::name::TenantName;
use crate::protocol::json::Json;
use crate::protocol::methods::List;
use crate::protocol::version::Handshake;
use crate::seal::KeyRing;

const NOW: u64 = 1_000;

fn ring(byte: u8) -> KeyRing {
    KeyRing::new(vec![[byte; 32]]).unwrap()
}

fn caller(tenant: &str, subject: &str, client: Option<&str>) -> Caller {
    Caller {
        tenant: TenantName::new(tenant).unwrap(),
        issuer: "https://issuer.example".into(),
        subject: subject.into(),
        client: client.map(Into::into),
        scopes: ["a"].into_iter().collect(),
        expires_at: NOW + 10,
    }
}

fn open(ring: &KeyRing, caller: &Caller, id: &str, now: u64) -> Result<Session, LegacyError> {
    Session::open(ring, caller, id, now)
}

// spec: rows LG-04, LG-05
#[test]
fn a_session_opens_for_its_principal_alone_and_until_its_end() {
    let capabilities = Json::parse(Bytes::from(r#"{"elicitation":{"n":1e400}}"#), 8).unwrap();
    let alice = caller("acme", "alice", Some("app"));
    for revision in Handshake::ALL {
        let session = Session::new(revision, capabilities.clone(), NOW + 100);
        let id = session.seal(&ring(7), &alice);
        assert!(id.bytes().all(|byte| (0x21..=0x7e).contains(&byte)), "{id}");
        let opened = open(&ring(7), &alice, &id, NOW + 99).unwrap();
        assert_eq!((opened.key, opened.revision), (session.key, revision));
        assert_eq!((opened.capabilities, opened.expires_at), (capabilities.clone(), NOW + 100));
        // A later token of the same principal, with other scopes.
        let later = Caller { expires_at: NOW + 500, scopes: ["b"].into_iter().collect(), ..alice.clone() };
        assert!(open(&ring(7), &later, &id, NOW).is_ok());

        let refused = |caller: &Caller, ring: &KeyRing, id: &str, now| {
            assert_eq!(open(ring, caller, id, now).unwrap_err(), LegacyError::NoSuchSession);
        };
        refused(&alice, &ring(7), &id, NOW + 100);
        refused(&alice, &ring(8), &id, NOW);
        refused(&caller("globex", "alice", Some("app")), &ring(7), &id, NOW);
        refused(&caller("acme", "bob", Some("app")), &ring(7), &id, NOW);
        refused(&caller("acme", "alice", None), &ring(7), &id, NOW);
        for cut in 0..id.len() {
            refused(&alice, &ring(7), &id[..cut], NOW);
        }
    }
}

#[test]
fn no_two_sessions_are_one_and_another_handle_is_none() {
    let alice = caller("acme", "alice", None);
    let new = || Session::new(Handshake::June, Json::parse(Bytes::from("{}"), 8).unwrap(), NOW + 100);
    assert_ne!(new().key, new().key);
    let principal = alice.principal();
    let cursor = crate::catalog::cursor::seal_cursor(
        &ring(7),
        &alice.tenant,
        &principal,
        List::Tools,
        "0123456789abcdef2025-06-18{}",
        NOW,
    );
    assert_eq!(open(&ring(7), &alice, &cursor, NOW).unwrap_err(), LegacyError::NoSuchSession);
}
