//! What is served after what was read, without a database.

use std::collections::BTreeSet;
use std::sync::Arc;

use secrecy::ExposeSecret;
use secrecy::SecretString;
use url::Url;

use super::*;
use crate::config::public::PublicUrls;
use crate::model::tenant::Tenant;
use crate::store::Revision;
use crate::store::claims::Claim;
use crate::store::serving::Value;
use crate::tenant::document;

fn sources() -> Sources {
    Sources {
        public: PublicUrls {
            primary: Url::parse("https://mcp.example.com").unwrap(),
            aliases: Vec::new(),
            origins: Vec::new(),
        },
        built_in: None,
        file: None,
        env: Arc::new(|_| Some("of the environment".to_owned())),
        own_dir: None,
    }
}

fn name(text: &str) -> TenantName {
    TenantName::new(text).unwrap()
}

fn stored<N>(name: N, document: &str) -> Stored<N> {
    Stored { name, document: document.to_owned(), revision: Revision(1), created: 0, changed: 0 }
}

fn whole(tenant: &str, document: &str, backends: &[(&str, &str)], secrets: &[(&str, Option<&str>)]) -> Whole {
    let backends = backends.iter().map(|(name, document)| ((*name).to_owned(), (*document).to_owned()));
    let secrets = secrets.iter().map(|(name, value)| Value {
        name: (*name).to_owned(),
        revision: Revision(1),
        value: value.map(SecretString::from),
    });
    Whole { tenant: stored(name(tenant), document), backends: backends.collect(), secrets: secrets.collect() }
}

fn changed(known: Known, seq: u64, wholes: Vec<Whole>) -> (Known, Loaded) {
    let news = wholes.into_iter().map(|whole| (whole.tenant.name.clone(), Some(whole))).collect();
    known.after(&sources(), News::Tenants(seq, news))
}

fn served(loaded: &Loaded) -> Vec<&str> {
    loaded.tenants.iter().map(|entry| entry.tenant.name.as_str()).collect()
}

fn one<'l>(loaded: &'l Loaded, name: &str) -> &'l Tenant {
    &loaded.tenants.iter().find(|entry| entry.tenant.name.as_str() == name).unwrap().tenant
}

const CRM: (&str, &str) =
    ("crm", r#"{"kind":"mcp","url":"https://crm.example","credential":{"kind":"bearer","secret":"token"}}"#);

#[test]
fn a_new_value_reaches_those_who_hold_the_old_one() {
    let first = whole("acme", "{}", &[CRM], &[("token", Some("one"))]);
    let (known, loaded) = changed(Known::default(), 1, vec![first]);
    let (digest, credential) = {
        let tenant = one(&loaded, "acme");
        (tenant.digest, tenant.backends[0].credential.clone().unwrap())
    };
    let value = || credential.value.get().map(|value| value.value.expose_secret().to_owned());
    assert_eq!(value().as_deref(), Some("one"));
    let (known, loaded) = changed(known, 2, vec![whole("acme", "{}", &[CRM], &[("token", Some("two"))])]);
    assert_eq!(value().as_deref(), Some("two"));
    assert_eq!(one(&loaded, "acme").digest, digest);
    // What is read of others changes nothing.
    let (known, _) = changed(known, 3, vec![whole("beta", "{}", &[], &[])]);
    assert_eq!(value().as_deref(), Some("two"));
    // One that does not open, or cannot be sent, is none.
    for bad in [None, Some("two\nlines")] {
        let (known, _) = changed(Known::default(), 4, vec![whole("acme", "{}", &[CRM], &[("token", bad)])]);
        assert!(known.tenants[&name("acme")].refused.is_none());
    }
    let (_, loaded) = changed(known, 5, vec![whole("acme", "{}", &[CRM], &[("token", None)])]);
    assert_eq!((value(), served(&loaded)), (None, vec!["acme", "beta"]));
}

#[test]
fn what_does_not_load_stays_and_loses_what_another_claims() {
    let host = r#"{"hosts":["a.example.com"]}"#;
    let (known, loaded) = changed(Known::default(), 1, vec![whole("acme", host, &[], &[])]);
    assert_eq!(served(&loaded), ["acme"]);
    let odd = || whole("acme", r#"{"host":["b.example.com"]}"#, &[], &[]);
    let (known, loaded) = changed(known, 2, vec![odd(), whole("beta", "{}", &[], &[])]);
    assert_eq!(served(&loaded), ["acme", "beta"]);
    assert_eq!(loaded.tenants[0].hosts, ["a.example.com"]);
    // Its rows do not claim it any more, so that somebody else may.
    let (known, loaded) = changed(known, 3, vec![whole("beta", host, &[], &[])]);
    assert_eq!(served(&loaded), ["beta"]);
    let (known, loaded) = changed(known, 4, vec![whole("acme", "{}", &[], &[])]);
    assert_eq!(served(&loaded), ["acme", "beta"]);
    // Of two that would both have it, whoever was there keeps it.
    let (known, loaded) = changed(known, 5, vec![whole("acme", host, &[], &[])]);
    assert_eq!(served(&loaded), ["acme", "beta"]);
    assert!(loaded.tenants[0].hosts.is_empty() && known.tenants[&name("acme")].refused.is_some());
    // Who is gone is gone, and what it had is free.
    let gone =
        News::Tenants(6, vec![(name("beta"), None), (name("acme"), Some(whole("acme", host, &[], &[])))]);
    let (_, loaded) = known.after(&sources(), gone);
    assert_eq!(served(&loaded), ["acme"]);
    assert_eq!(loaded.tenants[0].hosts, ["a.example.com"]);
}

#[test]
fn shared_issuers_are_everybodys() {
    let issuer =
        stored("https://i.example".to_owned(), r#"{"issuer":"https://i.example","tenant_claim":"org"}"#);
    let trusting = || whole("acme", r#"{"issuers":[{"shared":"https://i.example"}]}"#, &[], &[]);
    let all = |seq, issuers: &[&Stored<String>]| {
        News::Everything(Deployment {
            seq,
            issuers: issuers.iter().map(|issuer| (*issuer).clone()).collect(),
            tenants: vec![trusting()],
        })
    };
    let (known, loaded) = Known::default().after(&sources(), all(1, &[&issuer]));
    assert_eq!((served(&loaded), loaded.shared.len()), (vec!["acme"], 1));
    // One that does not load stays what it was; one that is another's name is refused.
    let odd =
        stored("https://i.example".to_owned(), r#"{"issuer":"https://x.example","tenant_claim":"org"}"#);
    let (known, loaded) = known.after(&sources(), all(2, &[&odd]));
    assert_eq!((served(&loaded), &*loaded.shared[0].issuer.url), (vec!["acme"], "https://i.example"));
    // Without it the tenant does not load, and stays what it was.
    let (known, loaded) = known.after(&sources(), all(3, &[]));
    assert_eq!((served(&loaded), loaded.shared.len()), (vec!["acme"], 0));
    assert!(known.tenants[&name("acme")].refused.is_some());
}

#[test]
fn a_document_says_what_is_wrong_with_it() {
    for (document, backends, said) in [
        (
            r#"{"secrets":{}}"#,
            &[][..],
            "tenant `acme` in the database: secrets: secrets are no part of this document",
        ),
        (r#"{"backends":{}}"#, &[], "tenant `acme` in the database: backends: the key is there twice"),
        ("[]", &[], "tenant `acme` in the database: found a list, expected a map"),
        ("{", &[], "tenant `acme` in the database: not JSON, in line 1 column 1"),
        ("{}", &[("crm", "[1")], "tenant `acme` in the database: not JSON, in line 1 column 2"),
        (
            "{}",
            &[("C", r#"{"kind":"demo"}"#)],
            "tenant `acme` in the database: backends.C: a name starts with",
        ),
        (
            "{}",
            &[CRM],
            "tenant `acme` in the database: backends.crm.credential.secret: the tenant has no secret",
        ),
    ] {
        let (known, loaded) = changed(Known::default(), 1, vec![whole("acme", document, backends, &[])]);
        let refused = known.tenants[&name("acme")].refused.as_ref().unwrap().to_string();
        assert!(refused.starts_with(said), "{refused}");
        assert_eq!(served(&loaded), [""; 0]);
    }
}

#[test]
fn what_a_tenant_claims_is_what_it_has_alone() {
    let document = r#"{"hosts":["a.example.com"],"issuers":[{"issuer":"https://i.example"},
        {"issuer":"https://j.example","audiences":["x"]}]}"#;
    let (_, loaded) = changed(Known::default(), 1, vec![whole("acme", document, &[], &[])]);
    let pair =
        |issuer: &str, audience: &str| Claim::Audience { issuer: issuer.into(), audience: audience.into() };
    let expected = BTreeSet::from([
        Claim::Host("a.example.com".to_owned()),
        Claim::Host("a.example.com:443".to_owned()),
        pair("https://i.example", "https://mcp.example.com/t/acme/mcp"),
        pair("https://i.example", "https://a.example.com/mcp"),
        pair("https://j.example", "x"),
    ]);
    assert_eq!(document::claims(&sources().public, &loaded.tenants[0]), expected);
}
