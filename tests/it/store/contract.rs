//! What the store promises, whichever engine is behind it: each function runs over both.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use fondaco::store::Revision;
use fondaco::store::answers::Answer;
use fondaco::store::answers::Once;
use fondaco::store::audit::Verdict;
use fondaco::store::changes::What;
use fondaco::store::claims::Claim;
use fondaco::store::error::StoreError;
use fondaco::store::operators::OperatorId;
use fondaco::store::operators::Role;
use fondaco::store::write::Actor;
use fondaco::store::write::Write;
use fondaco::store::write::Written;
use secrecy::ExposeSecret;
use secrecy::SecretString;
use tokio_util::sync::CancellationToken;

use crate::harness::database::Database;
use crate::harness::wait::eventually;
use crate::store::backend;
use crate::store::hosts;
use crate::store::now;
use crate::store::tenant;
use crate::store::write;

/// The tests, once for each engine.
macro_rules! both {
    ($($name:ident,)*) => {
        mod over_sqlite {
            use crate::harness::database::Database;
            $(#[tokio::test(flavor = "multi_thread")] async fn $name() { super::$name(Database::sqlite().await).await })*
        }
        mod over_postgres {
            use crate::harness::database::Database;
            $(#[tokio::test(flavor = "multi_thread")] async fn $name() { super::$name(Database::postgres().await).await })*
        }
    };
}

both! {
    tenants_are_written_read_and_listed,
    a_state_is_never_used_twice,
    of_two_that_make_one_name_one_does,
    what_is_one_tenants_is_no_others,
    backends_keep_their_order,
    secrets_are_sealed_and_never_given_back,
    a_secret_that_does_not_open_fails_alone,
    shared_issuers_are_written_and_listed,
    operators_are_found_by_their_keys,
    the_last_owner_stays,
    every_write_is_recorded,
    an_edited_record_is_noticed,
    the_same_request_twice_is_written_once,
    changes_are_told_in_their_order,
    what_is_served_is_read_whole,
}

async fn tenants_are_written_read_and_listed(database: Database) {
    let store = database.open().await;
    let (acme, beta) = (tenant("acme"), tenant("beta"));
    let none = BTreeSet::new();
    assert_eq!(store.tenants().get(&acme).await.unwrap(), None);
    let first = now(store.tenants().create(&write(), &acme, r#"{"legacy":false}"#, &none).await.unwrap());
    now(store.tenants().create(&write(), &beta, "{}", &none).await.unwrap());
    let found = store.tenants().get(&acme).await.unwrap().unwrap();
    assert_eq!((found.document.as_str(), found.revision), (r#"{"legacy":false}"#, first));

    database.clock.advance(60);
    let second = now(store.tenants().replace(&write(), &acme, "{ }", &none, Some(first)).await.unwrap());
    let changed = store.tenants().get(&acme).await.unwrap().unwrap();
    assert_eq!((changed.document.as_str(), changed.revision), ("{ }", second));
    assert_eq!(changed.created, found.created);
    assert!(changed.changed >= found.changed + 60);
    let stale = store.tenants().replace(&write(), &acme, "{}", &none, Some(first)).await;
    assert!(matches!(stale, Err(StoreError::Conflict { current }) if current == second), "{stale:?}");
    let stale = store.tenants().delete(&write(), &acme, Some(first)).await;
    assert!(matches!(stale, Err(StoreError::Conflict { .. })), "{stale:?}");

    let names = async |after, limit| {
        let page = store.tenants().list(after, limit).await.unwrap();
        page.into_iter().map(|tenant| tenant.name.as_str().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(names(None, 10).await, ["acme", "beta"]);
    assert_eq!(names(None, 1).await, ["acme"]);
    assert_eq!(names(Some(&acme), 10).await, ["beta"]);
    assert_eq!(names(Some(&beta), 10).await, [""; 0]);

    now(store.tenants().delete(&write(), &acme, Some(second)).await.unwrap());
    assert_eq!(names(None, 10).await, ["beta"]);
    for missing in [
        store.tenants().delete(&write(), &acme, None).await,
        store.tenants().replace(&write(), &acme, "{}", &none, None).await,
        store.backends().create(&write(), &acme, &backend("x"), "{}").await,
        store.backends().replace(&write(), &beta, &backend("x"), "{}", None).await,
        store.secrets().create(&write(), &acme, "x", &"y".into()).await,
        store.secrets().delete(&write(), &beta, "x", None).await,
        store.issuers().delete(&write(), "https://x", None).await,
    ] {
        assert!(matches!(missing, Err(StoreError::NotFound)), "{missing:?}");
    }
}

async fn a_state_is_never_used_twice(database: Database) {
    let store = database.open().await;
    let (acme, crm, none) = (tenant("acme"), backend("crm"), BTreeSet::new());
    let mut seen = BTreeSet::new();
    for _ in 0..3 {
        seen.insert(now(store.tenants().create(&write(), &acme, "{}", &none).await.unwrap()));
        seen.insert(now(store.backends().create(&write(), &acme, &crm, "{}").await.unwrap()));
        seen.insert(now(store.backends().replace(&write(), &acme, &crm, "{}", None).await.unwrap()));
        seen.insert(now(store.backends().delete(&write(), &acme, &crm, None).await.unwrap()));
        seen.insert(now(store.tenants().delete(&write(), &acme, None).await.unwrap()));
    }
    assert_eq!(seen.len(), 15);
}

/// ADM-15.
async fn of_two_that_make_one_name_one_does(database: Database) {
    let store = database.open().await;
    now(store.tenants().create(&write(), &tenant("acme"), "{}", &BTreeSet::new()).await.unwrap());
    for round in 0..100 {
        let one = async |document: &'static str| {
            let store = store.clone();
            tokio::spawn(async move {
                let name = backend(&format!("b{round}"));
                store.backends().create(&write(), &tenant("acme"), &name, document).await
            })
            .await
            .unwrap()
        };
        let ends = tokio::join!(one(r#"{"n":1}"#), one(r#"{"n":2}"#));
        match ends {
            (Ok(_), Err(StoreError::Exists)) | (Err(StoreError::Exists), Ok(_)) => {}
            other => panic!("round {round}: {other:?}"),
        }
    }
    assert_eq!(store.audit().list(Some(&tenant("acme")), None, 1000).await.unwrap().len(), 101);
    assert_eq!(store.backends().list(&tenant("acme"), None, 1000).await.unwrap().len(), 100);
}

async fn what_is_one_tenants_is_no_others(database: Database) {
    let store = database.open().await;
    let pair = |audience: &str| Claim::Audience { issuer: "https://i".into(), audience: audience.into() };
    let mut claims = hosts(&["acme.example", "acme.example:443"]);
    claims.insert(pair("x"));
    now(store.tenants().create(&write(), &tenant("acme"), "{}", &claims).await.unwrap());
    for taken in [hosts(&["acme.example"]), BTreeSet::from([pair("x")])] {
        let refused = store.tenants().create(&write(), &tenant("beta"), "{}", &taken).await;
        let claim = taken.first().unwrap();
        assert!(matches!(&refused, Err(StoreError::Claimed(found)) if found == claim), "{refused:?}");
        // It says neither which host, nor whose.
        let said = refused.unwrap_err().to_string();
        assert!(!said.contains("acme") && !said.contains("https"), "{said}");
    }
    assert_eq!(store.tenants().get(&tenant("beta")).await.unwrap(), None);
    // What it does not claim any more is free, and its own it may keep.
    let other = hosts(&["other.example"]);
    now(store.tenants().replace(&write(), &tenant("acme"), "{}", &other, None).await.unwrap());
    now(store.tenants().replace(&write(), &tenant("acme"), "{}", &other, None).await.unwrap());
    now(store.tenants().create(&write(), &tenant("beta"), "{}", &claims).await.unwrap());
    now(store.tenants().delete(&write(), &tenant("beta"), None).await.unwrap());
    now(store.tenants().create(&write(), &tenant("gamma"), "{}", &claims).await.unwrap());
}

async fn backends_keep_their_order(database: Database) {
    let store = database.open().await;
    let acme = tenant("acme");
    now(store.tenants().create(&write(), &acme, "{}", &BTreeSet::new()).await.unwrap());
    now(store.tenants().create(&write(), &tenant("beta"), "{}", &BTreeSet::new()).await.unwrap());
    for name in ["zeta", "alpha", "mid"] {
        now(store.backends().create(&write(), &acme, &backend(name), "{}").await.unwrap());
    }
    now(store.backends().replace(&write(), &acme, &backend("zeta"), "{\"a\":1}", None).await.unwrap());
    let listed = store.backends().list(&acme, None, 2).await.unwrap();
    let names: Vec<_> = listed.iter().map(|placed| placed.backend.name.as_str()).collect();
    assert_eq!(names, ["zeta", "alpha"]);
    let rest = store.backends().list(&acme, Some(listed[1].place), 2).await.unwrap();
    assert_eq!(rest.len(), 1);
    assert_eq!(rest[0].backend.name, backend("mid"));
    // Another tenant's is not there.
    assert_eq!(store.backends().get(&tenant("beta"), &backend("zeta")).await.unwrap(), None);
    assert_eq!(store.backends().list(&tenant("beta"), None, 9).await.unwrap(), []);
    let whole = store.tenant(&acme).await.unwrap().unwrap();
    let names: Vec<_> = whole.backends.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["zeta", "alpha", "mid"]);
    assert_eq!(whole.backends[0].1, "{\"a\":1}");
}

/// ADM-11.
async fn secrets_are_sealed_and_never_given_back(database: Database) {
    const CANARY: &str = "canary-4711-of-the-secret";
    let store = database.open().await;
    let acme = tenant("acme");
    now(store.tenants().create(&write(), &acme, "{}", &BTreeSet::new()).await.unwrap());
    let value = SecretString::from(CANARY);
    let request = format!("POST {CANARY}");
    let once = Once {
        key: "k",
        request: request.as_bytes(),
        answer: &|revision| Answer { status: 201, body: "{}".into(), revision },
    };
    let actor = Actor::Cli;
    let kept = Write { once: Some(once), ..Write::by(&actor) };
    now(store.secrets().create(&kept, &acme, "token", &value).await.unwrap());
    let again = store.secrets().create(&write(), &acme, "token", &value).await;
    assert!(matches!(again, Err(StoreError::Exists)), "{again:?}");
    now(store.secrets().replace(&write(), &acme, "token", &value, None).await.unwrap());
    let shown = store.secrets().get(&acme, "token").await.unwrap().unwrap();
    assert_eq!(store.secrets().list(&acme, None, 5).await.unwrap(), std::slice::from_ref(&shown));
    let whole = store.tenant(&acme).await.unwrap().unwrap();
    assert_eq!(whole.secrets[0].value.as_ref().unwrap().expose_secret(), CANARY);
    assert_eq!(whole.secrets[0].revision, shown.revision);
    for said in [format!("{whole:?}"), format!("{store:?}"), format!("{again:?}")] {
        assert!(!said.contains("canary"), "{said}");
    }
    let bytes = database.everything().await;
    assert!(bytes.windows(6).any(|window| window == b"secret"), "there is nothing to look through");
    assert!(!bytes.windows(6).any(|window| window == b"canary"));
    let long = SecretString::from("x".repeat(database.limits.secret_bytes + 1));
    let refused = store.secrets().replace(&write(), &acme, "token", &long, None).await;
    assert!(matches!(refused, Err(StoreError::TooLong)), "{refused:?}");
}

/// STO-09.
async fn a_secret_that_does_not_open_fails_alone(database: Database) {
    let store = database.open().await;
    for name in ["acme", "beta"] {
        now(store.tenants().create(&write(), &tenant(name), "{}", &BTreeSet::new()).await.unwrap());
        for secret in ["one", "two"] {
            let value = format!("{name}-{secret}").into();
            now(store.secrets().create(&write(), &tenant(name), secret, &value).await.unwrap());
        }
    }
    let values = async |store: &fondaco::store::Store, name: &str| {
        let whole = store.tenant(&tenant(name)).await.unwrap().unwrap();
        let values = whole.secrets.into_iter().map(|s| s.value.map(|v| v.expose_secret().to_owned()));
        values.collect::<Vec<_>>()
    };
    assert_eq!(values(&store, "acme").await, [Some("acme-one".to_owned()), Some("acme-two".to_owned())]);
    // Acme's row becomes beta's, and beta's second is put under another name.
    database
        .sql("update secrets set sealed = (select s.sealed from secrets s where s.tenant = 'acme' and s.name = 'one') \
              where tenant = 'beta' and name = 'one'")
        .await;
    assert_eq!(values(&store, "beta").await, [None, Some("beta-two".to_owned())]);
    database.sql("update secrets set name = 'three' where tenant = 'beta' and name = 'two'").await;
    assert_eq!(values(&store, "beta").await, [None, None]);
    assert_eq!(values(&store, "acme").await, [Some("acme-one".to_owned()), Some("acme-two".to_owned())]);
    // With another ring nothing opens; with the old key behind a new one, everything.
    store.close().await;
    drop(store);
    let other = "8Z2kQ0hBv3m1u9w7r5t3y1i0o2p4a6s8d0f1g2h3j4k=";
    let foreign = database.open_with(other).await;
    assert_eq!(values(&foreign, "acme").await, [None, None]);
    foreign.close().await;
    drop(foreign);
    let rotated = database.open_with(&format!("{other}\n{}", crate::harness::database::KEY)).await;
    assert_eq!(values(&rotated, "acme").await[0].as_deref(), Some("acme-one"));
}

async fn shared_issuers_are_written_and_listed(database: Database) {
    let store = database.open().await;
    let (one, two) = ("https://one.example", "https://two.example");
    let first = now(store.issuers().create(&write(), one, r#"{"tenant_claim":"org"}"#).await.unwrap());
    now(store.issuers().create(&write(), two, "{}").await.unwrap());
    let again = store.issuers().create(&write(), one, "{}").await;
    assert!(matches!(again, Err(StoreError::Exists)), "{again:?}");
    let listed = store.issuers().list(None, 5).await.unwrap();
    assert_eq!(listed.iter().map(|issuer| issuer.name.as_str()).collect::<Vec<_>>(), [one, two]);
    assert_eq!(store.issuers().list(Some(one), 5).await.unwrap().len(), 1);
    let second = now(store.issuers().replace(&write(), one, "{ }", Some(first)).await.unwrap());
    let stale = store.issuers().delete(&write(), one, Some(first)).await;
    assert!(matches!(stale, Err(StoreError::Conflict { current }) if current == second), "{stale:?}");
    assert_eq!(store.issuers().get(one).await.unwrap().unwrap().document, "{ }");
    now(store.issuers().delete(&write(), one, None).await.unwrap());
    assert_eq!(store.issuers().get(one).await.unwrap(), None);
}

/// ADM-17, as far as there are keys: what is compared is a digest.
async fn operators_are_found_by_their_keys(database: Database) {
    let store = database.open().await;
    let (cli, acme) = (Actor::Cli, tenant("acme"));
    now(store.tenants().create(&write(), &acme, "{}", &BTreeSet::new()).await.unwrap());
    let (root, key) = store.operators().create(&cli, "root", Role::Owner, None).await.unwrap();
    let by_root = Actor::Operator(root.id.clone());
    let (ann, anns) = store.operators().create(&by_root, "ann", Role::Auditor, Some(&acme)).await.unwrap();
    let again = store.operators().create(&cli, "ann", Role::Owner, None).await;
    assert!(matches!(again, Err(StoreError::Exists)), "{again:?}");
    let nowhere = store.operators().create(&cli, "bob", Role::Owner, Some(&tenant("nobody"))).await;
    assert!(matches!(nowhere, Err(StoreError::NotFound)), "{nowhere:?}");

    let found = store.operators().find(key.expose_secret()).await.unwrap();
    assert_eq!(found.as_ref(), Some(&root));
    assert_eq!(store.operators().find(anns.expose_secret()).await.unwrap(), Some(ann.clone()));
    let text = key.expose_secret();
    assert!(text.starts_with("fdo_") && text.len() == 4 + 64 + 1 + 8, "{text}");
    for wrong in [&text[1..], &text[..text.len() - 1], "", "fdo_", &text.replacen("fdo_", "fdk_", 1)] {
        assert_eq!(store.operators().find(wrong).await.unwrap(), None, "{wrong}");
    }
    let bytes = database.everything().await;
    let random = &text.as_bytes()[4..68];
    assert!(!bytes.windows(64).any(|window| window == random));

    assert_eq!(store.operators().list(None, None, 9).await.unwrap().len(), 2);
    assert_eq!(store.operators().list(Some(&acme), None, 9).await.unwrap(), std::slice::from_ref(&ann));
    let foreign = store.operators().revoke(&cli, &ann.id, Some(&tenant("beta"))).await;
    assert!(matches!(foreign, Err(StoreError::NotFound)), "{foreign:?}");
    store.operators().revoke(&by_root, &ann.id, Some(&acme)).await.unwrap();
    assert_eq!(store.operators().find(anns.expose_secret()).await.unwrap(), None);
    let entries = store.audit().list(Some(&acme), None, 9).await.unwrap();
    let said: Vec<_> = entries.iter().map(|e| (e.action.as_str(), e.actor.as_str())).collect();
    let root = root.id.as_str();
    assert_eq!(said, [("tenant.create", "cli"), ("operator.create", root), ("operator.revoke", root)]);
}

/// ADM-16.
async fn the_last_owner_stays(database: Database) {
    let store = database.open().await;
    let cli = Actor::Cli;
    let (one, _) = store.operators().create(&cli, "one", Role::Owner, None).await.unwrap();
    let (helper, _) = store.operators().create(&cli, "helper", Role::Operator, None).await.unwrap();
    let refused = store.operators().revoke(&cli, &one.id, None).await;
    assert!(matches!(refused, Err(StoreError::LastOwner)), "{refused:?}");
    store.operators().revoke(&cli, &helper.id, None).await.unwrap();
    let (two, _) = store.operators().create(&cli, "two", Role::Owner, None).await.unwrap();
    // Two that remove each other at once: one of them stays.
    let operators = store.operators();
    let ends = tokio::join!(operators.revoke(&cli, &one.id, None), operators.revoke(&cli, &two.id, None));
    assert!(
        matches!(ends, (Ok(()), Err(StoreError::LastOwner)) | (Err(StoreError::LastOwner), Ok(()))),
        "{ends:?}"
    );
    let nobody = store.operators().revoke(&cli, &OperatorId::from("op-0"), None).await;
    assert!(matches!(nobody, Err(StoreError::NotFound)), "{nobody:?}");
}

/// STO-03: a row and its record are one.
async fn every_write_is_recorded(database: Database) {
    let store = database.open().await;
    let (acme, crm) = (tenant("acme"), backend("crm"));
    now(store.tenants().create(&write(), &acme, "{\"a\":1}", &BTreeSet::new()).await.unwrap());
    now(store.backends().create(&write(), &acme, &crm, "{\"b\":1}").await.unwrap());
    now(store.backends().replace(&write(), &acme, &crm, "{\"b\":2}", None).await.unwrap());
    now(store.secrets().create(&write(), &acme, "token", &"v".into()).await.unwrap());
    // What is refused leaves no trace.
    store.backends().create(&write(), &acme, &crm, "{}").await.unwrap_err();
    store.backends().replace(&write(), &acme, &crm, "{}", Some(Revision(77))).await.unwrap_err();
    now(store.backends().delete(&write(), &acme, &crm, None).await.unwrap());
    now(store.tenants().delete(&write(), &acme, None).await.unwrap());
    let entries = store.audit().list(Some(&acme), None, 100).await.unwrap();
    let said: Vec<_> = entries
        .iter()
        .map(|e| (e.number, e.action.as_str(), e.object.as_str(), e.was.as_deref(), e.became.as_deref()))
        .collect();
    let expected = [
        (1, "tenant.create", "tenants/acme", None, Some("{\"a\":1}")),
        (2, "backend.create", "backends/crm", None, Some("{\"b\":1}")),
        (3, "backend.replace", "backends/crm", Some("{\"b\":1}"), Some("{\"b\":2}")),
        (4, "secret.create", "secrets/token", None, None),
        (5, "backend.delete", "backends/crm", Some("{\"b\":2}"), None),
        (6, "tenant.delete", "tenants/acme", Some("{\"a\":1}"), None),
    ];
    assert_eq!(said, expected);
    assert_eq!(store.audit().list(Some(&acme), Some(4), 1).await.unwrap()[0].number, 5);
    // The deployment's own chain is another.
    now(store.issuers().create(&write(), "https://one.example", "{}").await.unwrap());
    assert_eq!(store.audit().list(None, None, 9).await.unwrap()[0].action, "issuer.create");
    let verdict = store.audit().verify(Some(&acme)).await.unwrap();
    let head = entries[5].hash.clone();
    assert_eq!(verdict, Verdict::Whole { entries: 6, head });
}

async fn an_edited_record_is_noticed(database: Database) {
    let store = database.open().await;
    let acme = tenant("acme");
    now(store.tenants().create(&write(), &acme, "{}", &BTreeSet::new()).await.unwrap());
    // More than are looked at together.
    for name in 1..=520 {
        let name = backend(&format!("b{name}"));
        now(store.backends().create(&write(), &acme, &name, "{}").await.unwrap());
    }
    let whole = store.audit().verify(Some(&acme)).await.unwrap();
    assert!(matches!(whole, Verdict::Whole { entries: 521, .. }), "{whole:?}");
    let nothing = store.audit().verify(Some(&tenant("nobody"))).await.unwrap();
    assert_eq!(nothing, Verdict::Whole { entries: 0, head: vec![0; 32] });
    for (edit, undo) in [
        (
            "update audit set actor = 'x' where number = 510",
            "update audit set actor = 'cli' where number = 510",
        ),
        (
            "update audit set became = null where number = 510",
            "update audit set became = '{}' where number = 510",
        ),
        (
            "update audit set at = at + 1 where number = 510",
            "update audit set at = at - 1 where number = 510",
        ),
        ("update audit set number = 9510 where number = 510", ""),
    ] {
        database.sql(edit).await;
        let broken = store.audit().verify(Some(&acme)).await.unwrap();
        assert_eq!(broken, Verdict::Broken { number: 510 }, "{edit}");
        database.sql(undo).await;
    }
}

/// ADM-10.
async fn the_same_request_twice_is_written_once(database: Database) {
    let store = database.open().await;
    let (acme, cli) = (tenant("acme"), Actor::Cli);
    let answer = |revision| Answer { status: 201, body: format!("{{\"revision\":{revision}}}"), revision };
    let once = |key, request| Write { once: Some(Once { key, request, answer: &answer }), ..Write::by(&cli) };
    let none = BTreeSet::new();
    let first = now(store.tenants().create(&once("k1", b"r1"), &acme, "{}", &none).await.unwrap());
    let again = store.tenants().create(&once("k1", b"r1"), &acme, "{}", &none).await.unwrap();
    assert_eq!(again, Written::Before(answer(first)));
    let other = store.tenants().create(&once("k1", b"r2"), &acme, "{}", &none).await;
    assert!(matches!(other, Err(StoreError::KeyReused)), "{other:?}");
    let fresh = store.tenants().create(&once("k2", b"r1"), &acme, "{}", &none).await;
    assert!(matches!(fresh, Err(StoreError::Exists)), "{fresh:?}");
    // What was refused has no answer: the same request may succeed later.
    now(store.tenants().delete(&write(), &acme, None).await.unwrap());
    now(store.tenants().create(&once("k2", b"r1"), &acme, "{}", &none).await.unwrap());
    // Another actor's key is another key, and so is that of another tenant.
    let ann = Actor::Operator(OperatorId::from("op-1"));
    let theirs = Write { once: Some(Once { key: "k2", request: b"r9", answer: &answer }), ..Write::by(&ann) };
    now(store.tenants().replace(&theirs, &acme, "{}", &none, None).await.unwrap());
    now(store.tenants().create(&once("k2", b"r3"), &tenant("beta"), "{}", &none).await.unwrap());
    assert_eq!(store.audit().list(Some(&acme), None, 99).await.unwrap().len(), 4);
    // Many at once under one key: one writes, the others hear of it.
    let store = Arc::new(store);
    let tries = (0..8).map(|_| {
        let store = Arc::clone(&store);
        tokio::spawn(async move {
            let cli = Actor::Cli;
            let answer = |revision| Answer { status: 201, body: String::new(), revision };
            let once = Once { key: "k3", request: b"r", answer: &answer };
            let write = Write { once: Some(once), ..Write::by(&cli) };
            store.backends().create(&write, &tenant("acme"), &backend("crm"), "{}").await.unwrap()
        })
    });
    let ends = futures_util::future::join_all(tries).await;
    let written = ends.into_iter().filter(|end| matches!(end.as_ref().unwrap(), Written::Now(_)));
    assert_eq!(written.count(), 1);
    // An old answer is forgotten.
    database.clock.advance(25 * 3600);
    let late = store.tenants().replace(&once("k1", b"r7"), &acme, "{}", &none, None).await.unwrap();
    assert!(matches!(late, Written::Now(_)), "{late:?}");
}

async fn changes_are_told_in_their_order(database: Database) {
    let store = database.open().await;
    let stop = CancellationToken::new();
    let following = tokio::spawn({
        let (store, stop) = (store.clone(), stop.clone());
        async move { store.follow(stop).await }
    });
    let mut told = store.changes();
    let start = store.changed_since(0).await.unwrap();
    assert_eq!(start.what, What::Tenants(BTreeSet::new()));
    now(store.tenants().create(&write(), &tenant("acme"), "{}", &BTreeSet::new()).await.unwrap());
    tokio::time::timeout(Duration::from_secs(2), told.changed()).await.unwrap().unwrap();
    now(store.backends().create(&write(), &tenant("acme"), &backend("crm"), "{}").await.unwrap());
    now(store.tenants().create(&write(), &tenant("beta"), "{}", &BTreeSet::new()).await.unwrap());
    let two = store.changed_since(start.seq).await.unwrap();
    assert_eq!(two.what, What::Tenants(BTreeSet::from([tenant("acme"), tenant("beta")])));
    assert_eq!(store.changed_since(two.seq).await.unwrap().what, What::Tenants(BTreeSet::new()));
    // Operators concern nobody who serves; shared issuers concern everybody.
    store.operators().create(&Actor::Cli, "root", Role::Owner, None).await.unwrap();
    assert_eq!(store.changed_since(two.seq).await.unwrap().seq, two.seq);
    now(store.issuers().create(&write(), "https://one.example", "{}").await.unwrap());
    let all = store.changed_since(two.seq).await.unwrap();
    assert_eq!(all.what, What::Everything);
    // Who was there before the database was set back reads everything.
    assert_eq!(store.changed_since(all.seq + 1).await.unwrap().what, What::Everything);
    eventually("the feed says the last number", async || *store.changes().borrow() == all.seq).await;
    stop.cancel();
    following.await.unwrap();
}

async fn what_is_served_is_read_whole(database: Database) {
    let store = database.open().await;
    now(store.issuers().create(&write(), "https://one.example", "{\"i\":1}").await.unwrap());
    for name in ["acme", "beta", "gamma"] {
        now(store.tenants().create(&write(), &tenant(name), "{}", &BTreeSet::new()).await.unwrap());
    }
    for (name, backends) in [("acme", &["b", "a"][..]), ("gamma", &["c"])] {
        for name_of in backends {
            now(store.backends().create(&write(), &tenant(name), &backend(name_of), "{}").await.unwrap());
        }
        now(store.secrets().create(&write(), &tenant(name), "s", &name.into()).await.unwrap());
    }
    let all = store.everything().await.unwrap();
    assert_eq!(all.issuers[0].document, "{\"i\":1}");
    let shape: Vec<_> = all
        .tenants
        .iter()
        .map(|whole| {
            let backends = whole.backends.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>();
            let values = whole.secrets.iter().map(|s| s.value.as_ref().unwrap().expose_secret().to_owned());
            (whole.tenant.name.as_str(), backends, values.collect::<Vec<_>>())
        })
        .collect();
    let expected = [
        ("acme", vec!["b", "a"], vec!["acme".to_owned()]),
        ("beta", vec![], vec![]),
        ("gamma", vec!["c"], vec!["gamma".to_owned()]),
    ];
    assert_eq!(shape, expected);
    assert_eq!(all.seq, store.changed_since(0).await.unwrap().seq);
    assert!(store.tenant(&tenant("nobody")).await.unwrap().is_none());
}
