//! Authentication against issuers on loopback: forgeries, rotation, storms, absences, mix-ups.

use std::collections::HashSet;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;
use std::time::Duration;

use http::HeaderMap;
use http::HeaderValue;
use http::header::AUTHORIZATION;
use serde_json::Value;
use serde_json::json;

use crate::auth::Authenticator;
use crate::auth::dev_issuer::DevIssuer;
use crate::auth::dev_issuer::Grant;
use crate::auth::error::AuthError;
use crate::auth::error::Reason;
use crate::auth::tests::issuer::Behaviour;
use crate::auth::tests::issuer::Issuer;
use crate::auth::tests::issuer::Signer;
use crate::egress::Egress;
use crate::egress::rules::Rules;
use crate::model::caller::Caller;
use crate::model::clock::Clock;
use crate::model::endpoint;
use crate::model::endpoint::Endpoint;
use crate::model::endpoint::Owner;
use crate::model::endpoint::TenantRule;
use crate::model::endpoint::Trust;
use crate::model::limits::Limits;
use crate::model::name::TenantName;
use crate::model::scope::Scopes;

#[path = "../../tests/it/harness/issuer.rs"]
#[expect(dead_code, reason = "opaque tokens are tried from outside")]
mod issuer;

const MCP: &str = "https://gw.example/mcp";

struct Gate {
    auth: Authenticator,
    clock: Clock,
}

impl Gate {
    fn new(limits: Limits) -> Self {
        let allow = vec!["127.0.0.1".parse().unwrap()];
        let egress = Egress::new(Rules { allow }, limits.connect_time, &[]).unwrap();
        let clock = Clock::default();
        Self { auth: Authenticator::new(egress, clock.clone(), &limits, Arc::default()), clock }
    }

    fn now(&self) -> u64 {
        self.clock.now()
    }

    async fn ask(&self, token: &str, endpoint: &Endpoint) -> Result<Arc<Caller>, AuthError> {
        let mut headers = HeaderMap::new();
        headers.insert(AUTHORIZATION, HeaderValue::from_str(&format!("Bearer {token}")).unwrap());
        self.auth.authenticate(&headers, endpoint).await
    }

    /// Why `token` is refused at `endpoint`.
    async fn refusal(&self, token: &str, endpoint: &Endpoint) -> Reason {
        match self.ask(token, endpoint).await {
            Err(AuthError::InvalidToken(reason)) => reason,
            other => panic!("not refused: {other:?}"),
        }
    }
}

fn name(text: &str) -> TenantName {
    TenantName::new(text).unwrap()
}

fn issuer_of(issuer: &Issuer) -> endpoint::Issuer {
    let algorithms = vec!["ES256".into(), "RS256".into()];
    endpoint::Issuer {
        owner: None,
        url: issuer.url().into(),
        jwks_uri: None,
        algorithms,
        introspection: None,
    }
}

fn trust(issuer: endpoint::Issuer, tenant: TenantRule) -> Trust {
    Trust { issuer: Arc::new(issuer), audiences: Arc::new([MCP.into()]), tenant }
}

/// An endpoint of its own revision, as a change of what is trusted has.
fn endpoint(owner: Owner, trust: Trust) -> Endpoint {
    static REVISION: AtomicU64 = AtomicU64::new(1);
    Endpoint {
        owner,
        resource: MCP.into(),
        metadata: "https://gw.example/.well-known/oauth-protected-resource/mcp".into(),
        trust: Arc::new([trust]),
        scopes_offered: Scopes::default(),
        handshake: true,
        revision: REVISION.fetch_add(1, Ordering::Relaxed),
    }
}

/// `/mcp`, where `issuer` is shared.
fn shared(issuer: &Issuer) -> Endpoint {
    endpoint(Owner::Shared, trust(issuer_of(issuer), TenantRule::Claim("tenant".into())))
}

fn with(mut value: Value, change: Value) -> Value {
    value.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
    value
}

async fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    for _ in 0..1000 {
        if holds() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("it never came to pass that {what}");
}

async fn within<T>(time: Duration, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(time, future).await.expect("it took too long")
}

#[tokio::test]
async fn a_good_token_names_its_caller() {
    let (issuer, gate) = (Issuer::start("/as").await, Gate::new(Limits::default()));
    let mcp = shared(&issuer);
    let caller = gate.ask(&issuer.token(MCP, gate.now()), &mcp).await.unwrap();
    let expected = Caller {
        tenant: name("acme"),
        issuer: issuer.url().into(),
        subject: "alice".into(),
        client: Some("test-client".into()),
        scopes: Scopes::parse("demo.use"),
        expires_at: caller.expires_at,
    };
    assert_eq!(*caller, expected);

    let claims = issuer.claims(MCP, gate.now());
    let now = gate.now();
    let variants = [
        (Signer::Rsa, json!({}), json!({})),
        (Signer::Ec, json!({"typ": "application/AT+JWT"}), json!({})),
        (Signer::Ec, json!({"jku": "http://127.0.0.1:1/", "x5c": 7}), json!({})),
        (Signer::Ec, json!({}), json!({"aud": ["https://other.example", MCP]})),
        (Signer::Ec, json!({}), json!({"exp": now - 20})),
        (Signer::Ec, json!({}), json!({"exp": now as f64 + 60.5, "nbf": now + 20, "iat": now + 20})),
    ];
    for (signer, header, change) in variants {
        let token =
            issuer.mint(&with(issuer.header(signer), header.clone()), &with(claims.clone(), change), signer);
        assert!(gate.ask(&token, &mcp).await.is_ok(), "{signer:?} {header} {token}");
    }
    let mut bare = issuer.header(Signer::Ec);
    bare.as_object_mut().unwrap().shift_remove("kid");
    assert!(gate.ask(&issuer.mint(&bare, &claims, Signer::Ec), &mcp).await.is_ok(), "the only key that fits");
    assert_eq!((issuer.metadata_fetches(), issuer.key_fetches()), (1, 1));
}

#[tokio::test]
async fn every_forgery_is_refused() {
    let (issuer, gate) = (Issuer::start("/as").await, Gate::new(Limits::default()));
    // Even where a configuration lists what it should not.
    let loose = ["HS256", "none", "None", "RS256", "PS256", "ES256", "ES384"];
    let algorithms = loose.iter().map(|&name| name.into()).collect();
    let loose = endpoint::Issuer { algorithms, ..issuer_of(&issuer) };
    for at in [shared(&issuer), endpoint(Owner::Shared, trust(loose, TenantRule::Claim("tenant".into())))] {
        let before = issuer.key_fetches();
        for (forgery, token) in issuer.forgeries(MCP, gate.now()) {
            let answer = gate.ask(&token, &at).await;
            assert!(matches!(answer, Err(AuthError::InvalidToken(_))), "{forgery}: {answer:?}");
            let said = answer.unwrap_err().to_string();
            assert!(said.is_ascii() && !said.contains(['"', '\\', '\n']) && !said.contains(&token), "{said}");
        }
        assert!(gate.ask(&issuer.token(MCP, gate.now()), &at).await.is_ok());
        let fetches = issuer.key_fetches() - before;
        assert_eq!(fetches, 2, "the first, and one for all the unknown key ids");
    }
}

#[tokio::test]
async fn the_tenant_is_what_the_rule_says() {
    let (issuer, gate) = (Issuer::start("").await, Gate::new(Limits::default()));
    let claim = |claim: &str| TenantRule::Claim(claim.into());
    let is = |tenant: &str| TenantRule::ClaimIs("tenant".into(), name(tenant));
    let cases = [
        (Owner::Shared, TenantRule::Owned(name("owner")), Some("owner")),
        (Owner::Shared, claim("tenant"), Some("acme")),
        (Owner::Shared, claim("org"), None),
        (Owner::Shared, claim("aud"), None),
        (Owner::Nobody, claim("tenant"), Some("acme")),
        (Owner::Tenant(name("acme")), is("acme"), Some("acme")),
        (Owner::Tenant(name("other")), is("other"), None),
        (Owner::Tenant(name("other")), claim("tenant"), None),
    ];
    for (owner, rule, expected) in cases {
        let at = endpoint(owner, trust(issuer_of(&issuer), rule.clone()));
        let answer = gate.ask(&issuer.token(MCP, gate.now()), &at).await;
        match expected {
            Some(tenant) => assert_eq!(answer.unwrap().tenant, name(tenant), "{rule:?}"),
            None => {
                assert!(matches!(answer, Err(AuthError::InvalidToken(Reason::Tenant))), "{rule:?} {answer:?}")
            }
        }
    }
}

#[tokio::test]
async fn metadata_is_found_where_openid_keeps_it_and_not_needed_with_a_jwks_uri() {
    let (issuer, gate) = (Issuer::start("/deep/as").await, Gate::new(Limits::default()));
    issuer.behave(Behaviour::OpenId);
    assert!(gate.ask(&issuer.token(MCP, gate.now()), &shared(&issuer)).await.is_ok());
    assert_eq!(issuer.metadata_fetches(), 3, "each place once");

    let explicit = endpoint::Issuer { jwks_uri: Some(issuer.jwks_uri().into()), ..issuer_of(&issuer) };
    let at = endpoint(Owner::Shared, trust(explicit, TenantRule::Claim("tenant".into())));
    assert!(gate.ask(&issuer.token(MCP, gate.now()), &at).await.is_ok());
    assert_eq!((issuer.metadata_fetches(), issuer.key_fetches()), (3, 2));
}

#[tokio::test]
async fn an_issuer_that_misbehaves_is_no_issuer_until_it_behaves() {
    let short = Duration::from_millis(200);
    let limits = Limits { issuer_time: short, keys_cooldown: Duration::from_millis(20), ..Limits::default() };
    let bad = [
        Behaviour::Status(500),
        Behaviour::Status(302),
        Behaviour::Hang,
        Behaviour::OtherIssuer,
        Behaviour::Flood,
        Behaviour::Garbage,
    ];
    for behaviour in bad {
        let (issuer, gate) = (Issuer::start("/as").await, Gate::new(limits.clone()));
        issuer.behave(behaviour);
        let token = issuer.token(MCP, gate.now());
        let answer = within(Duration::from_secs(5), gate.ask(&token, &shared(&issuer))).await;
        let unavailable = matches!(&answer, Err(AuthError::KeysUnavailable { cause: Some(_), .. }));
        assert!(unavailable, "{behaviour:?}: {answer:?}");
        issuer.behave(Behaviour::Serve);
        for _ in 0..1000 {
            if gate.ask(&token, &shared(&issuer)).await.is_ok() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        assert!(gate.ask(&token, &shared(&issuer)).await.is_ok(), "{behaviour:?}");
    }
}

#[tokio::test]
async fn an_issuer_that_is_away_is_not_asked_once_per_request() {
    let (issuer, gate) = (Issuer::start("").await, Gate::new(Limits::default()));
    issuer.behave(Behaviour::Status(503));
    let (mcp, token) = (shared(&issuer), issuer.token(MCP, gate.now()));
    for _ in 0..100 {
        let answer = gate.ask(&token, &mcp).await;
        let Err(AuthError::KeysUnavailable { retry_after, .. }) = answer else { panic!("{answer:?}") };
        assert!(retry_after <= Duration::from_secs(1), "{retry_after:?}");
    }
    assert!(issuer.metadata_fetches() <= 4, "{}", issuer.metadata_fetches());
}

#[tokio::test]
async fn a_rotated_key_is_fetched_at_once_and_the_old_one_is_gone() {
    let (issuer, gate) = (Issuer::start("").await, Gate::new(Limits::default()));
    let mcp = shared(&issuer);
    let unseen = issuer.mint(&issuer.header(Signer::Ec), &issuer.claims(MCP, gate.now() - 1), Signer::Ec);
    assert!(gate.ask(&issuer.token(MCP, gate.now()), &mcp).await.is_ok());
    let seen = issuer.token(MCP, gate.now() - 2);
    assert!(gate.ask(&seen, &mcp).await.is_ok());
    issuer.rotate();
    assert!(gate.ask(&issuer.token(MCP, gate.now()), &mcp).await.is_ok());
    assert_eq!(gate.refusal(&unseen, &mcp).await, Reason::Key);
    assert_eq!(gate.refusal(&seen, &mcp).await, Reason::Key);
    assert_eq!(issuer.key_fetches(), 2);
}

#[tokio::test]
async fn withdrawn_keys_take_what_they_verified_with_them() {
    let (issuer, gate) = (Issuer::start("").await, Gate::new(Limits::default()));
    let (other, mcp) = (Issuer::start("").await, shared(&issuer));
    let (others, others_token) = (shared(&other), other.token(MCP, gate.now()));
    let (token, later) = (issuer.token(MCP, gate.now()), issuer.token(MCP, gate.now() - 1));
    assert!(gate.ask(&token, &mcp).await.is_ok() && gate.ask(&others_token, &others).await.is_ok());
    issuer.behave(Behaviour::Withdrawn);
    other.behave(Behaviour::Status(500));
    // An unknown key id makes the gate look.
    let header = with(issuer.header(Signer::Ec), json!({"kid": "unknown"}));
    let unknown = issuer.mint(&header, &issuer.claims(MCP, gate.now()), Signer::Ec);
    for refused in [&unknown, &later, &token] {
        assert_eq!(gate.refusal(refused, &mcp).await, Reason::Key);
    }
    assert_eq!(issuer.key_fetches(), 2);
    assert!(gate.ask(&others_token, &others).await.is_ok(), "another issuer's are not concerned");
}

#[tokio::test]
async fn an_issuer_without_keys_refuses_and_is_not_away() {
    let (issuer, gate) = (Issuer::start("").await, Gate::new(Limits::default()));
    issuer.behave(Behaviour::Withdrawn);
    let token = issuer.token(MCP, gate.now());
    assert_eq!(gate.refusal(&token, &shared(&issuer)).await, Reason::Key);
}

#[tokio::test]
async fn a_storm_of_unknown_key_ids_causes_one_fetch() {
    let (issuer, gate) = (Issuer::start("").await, Gate::new(Limits::default()));
    let mcp = shared(&issuer);
    assert!(gate.ask(&issuer.token(MCP, gate.now()), &mcp).await.is_ok());
    let claims = issuer.claims(MCP, gate.now());
    let storm = (0..2000).map(|n| {
        let header = with(issuer.header(Signer::Ec), json!({"kid": format!("random-{n}")}));
        issuer.mint(&header, &claims, Signer::Nobody)
    });
    let storm: Vec<_> = storm.collect();
    let refused = futures_util::future::join_all(storm.iter().map(|token| gate.refusal(token, &mcp))).await;
    assert!(refused.iter().all(|reason| *reason == Reason::Key));
    assert_eq!(issuer.key_fetches(), 2);
}

#[tokio::test]
async fn unknown_key_ids_wait_for_the_fetch_in_flight_and_no_longer() {
    let limits = Limits { issuer_time: Duration::from_millis(500), ..Limits::default() };
    let (issuer, gate) = (Issuer::start("").await, Gate::new(limits));
    let mcp = shared(&issuer);
    assert!(gate.ask(&issuer.token(MCP, gate.now()), &mcp).await.is_ok());
    issuer.behave(Behaviour::Hang);
    let (header, claims) = (issuer.header(Signer::Ec), issuer.claims(MCP, gate.now()));
    let unknown = |n| issuer.mint(&with(header.clone(), json!({"kid": n})), &claims, Signer::Ec);
    let patience = Duration::from_secs(5);
    let first = within(patience, gate.refusal(&unknown("a"), &mcp)).await;
    let fetches = issuer.metadata_fetches();
    let second = within(patience, gate.refusal(&unknown("b"), &mcp)).await;
    assert_eq!((first, second), (Reason::Key, Reason::Key));
    assert_eq!(issuer.metadata_fetches(), fetches, "the cool-down is not over");
    let known = issuer.mint(&header, &issuer.claims(MCP, gate.now() - 1), Signer::Ec);
    assert!(gate.ask(&known, &mcp).await.is_ok(), "the keys that were had stay");
}

#[tokio::test]
async fn keys_are_kept_while_newer_ones_cannot_be_had() {
    let quick = Duration::from_millis(20);
    let limits = Limits { keys_refresh: quick, keys_cooldown: quick, ..Limits::default() };
    let (issuer, gate) = (Issuer::start("").await, Gate::new(limits));
    let mcp = shared(&issuer);
    assert!(gate.ask(&issuer.token(MCP, gate.now()), &mcp).await.is_ok());
    issuer.behave(Behaviour::Status(500));
    let (before, mut asked) = (issuer.metadata_fetches(), 0);
    while issuer.metadata_fetches() < before + 6 {
        asked += 1;
        let token = issuer.mint(
            &issuer.header(Signer::Ec),
            &issuer.claims(MCP, gate.now() - asked % 200),
            Signer::Ec,
        );
        assert!(gate.ask(&token, &mcp).await.is_ok(), "after {asked} tokens");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

#[tokio::test]
async fn an_issuer_that_nobody_uses_is_left_alone_and_asked_afresh_when_it_is() {
    let limits = Limits { keys_refresh: Duration::from_millis(20), ..Limits::default() };
    let (issuer, gate) = (Issuer::start("").await, Gate::new(limits));
    let mcp = shared(&issuer);
    let withdrawn = issuer.token(MCP, gate.now() - 1);
    assert!(gate.ask(&issuer.token(MCP, gate.now()), &mcp).await.is_ok());
    // Ten times as long as keys are good for: whatever was going to be fetched has been.
    tokio::time::sleep(Duration::from_millis(200)).await;
    let fetches = issuer.key_fetches();
    assert!(fetches <= 2, "{fetches}");
    issuer.rotate();
    assert_eq!(gate.refusal(&withdrawn, &mcp).await, Reason::Key);
    assert!(issuer.key_fetches() > fetches);
}

#[tokio::test]
async fn a_verified_token_is_served_until_it_expires_and_not_a_second_longer() {
    let (issuer, gate) = (Issuer::start("").await, Gate::new(Limits::default()));
    let (mcp, token) = (shared(&issuer), issuer.token(MCP, gate.now()));
    let end = gate.ask(&token, &mcp).await.unwrap().expires_at;
    // Without its keys, only what was verified is left.
    gate.auth.forget_unused(&HashSet::new());
    issuer.behave(Behaviour::Status(500));
    gate.clock.advance((end - 5 - gate.now()) as i64);
    assert!(gate.ask(&token, &mcp).await.is_ok());
    gate.clock.advance(5);
    assert!(matches!(gate.ask(&token, &mcp).await, Err(AuthError::KeysUnavailable { .. })));
}

#[tokio::test]
async fn expiry_has_half_a_minute_of_leeway() {
    let (issuer, gate) = (Issuer::start("").await, Gate::new(Limits::default()));
    let (mcp, token) = (shared(&issuer), issuer.token(MCP, gate.now()));
    gate.clock.advance(300 + 20);
    assert!(gate.ask(&token, &mcp).await.is_ok());
    gate.clock.advance(10);
    assert_eq!(gate.refusal(&token, &mcp).await, Reason::Expired);
}

#[tokio::test]
async fn a_new_revision_forgets_what_was_verified() {
    let (issuer, gate) = (Issuer::start("").await, Gate::new(Limits::default()));
    let (before, token) = (shared(&issuer), issuer.token(MCP, gate.now()));
    assert!(gate.ask(&token, &before).await.is_ok());
    let nobody_trusted = Endpoint { trust: Arc::new([]), ..before.clone() };
    assert!(gate.ask(&token, &nobody_trusted).await.is_ok(), "within a revision it is remembered");
    let changed = Endpoint { revision: before.revision + 1, ..nobody_trusted };
    assert_eq!(gate.refusal(&token, &changed).await, Reason::Issuer);
}

#[tokio::test]
async fn one_owners_keys_for_an_issuer_are_no_other_owners() {
    let (real, fake, gate) = (Issuer::start("").await, Issuer::start("").await, Gate::new(Limits::default()));
    let owned = |owner: &str, keys: &Issuer| {
        let owner = name(owner);
        let jwks_uri = Some(keys.jwks_uri().into());
        let issuer = endpoint::Issuer { owner: Some(owner.clone()), jwks_uri, ..issuer_of(&real) };
        endpoint(Owner::Tenant(owner.clone()), trust(issuer, TenantRule::Owned(owner)))
    };
    let (acme, evil) = (owned("acme", &real), owned("evil", &fake));
    // What `evil` signs in the real issuer's name is good at `evil`'s own endpoint alone.
    let claims = real.claims(MCP, gate.now());
    let forged = fake.mint(&fake.header(Signer::Ec), &claims, Signer::Ec);
    assert_eq!(gate.ask(&forged, &evil).await.unwrap().tenant, name("evil"));
    assert_eq!(gate.refusal(&forged, &acme).await, Reason::Signature);
    assert_eq!(gate.refusal(&forged, &shared(&real)).await, Reason::Signature);

    let same = owned("third", &real);
    assert!(gate.ask(&real.token(MCP, gate.now()), &same).await.is_ok());
    assert_eq!(real.key_fetches(), 3, "one for each owner");
}

#[tokio::test]
async fn audiences_and_issuers_are_not_mixed_up() {
    let (one, two, gate) = (Issuer::start("").await, Issuer::start("").await, Gate::new(Limits::default()));
    let token = one.token(MCP, gate.now());
    assert!(gate.ask(&token, &shared(&one)).await.is_ok());
    assert_eq!(gate.refusal(&token, &shared(&two)).await, Reason::Issuer);
    assert_eq!((two.metadata_fetches(), two.key_fetches()), (0, 0), "nobody asks for a foreign token");
    let impersonated = two.mint(&two.header(Signer::Ec), &one.claims(MCP, gate.now()), Signer::Ec);
    assert_eq!(gate.refusal(&impersonated, &shared(&one)).await, Reason::Signature);

    let elsewhere: Arc<str> = "https://gw.example/t/acme/mcp".into();
    let mut other = trust(issuer_of(&one), TenantRule::Claim("tenant".into()));
    other.audiences = Arc::new([elsewhere.clone()]);
    let other = Endpoint { resource: elsewhere, ..endpoint(Owner::Tenant(name("acme")), other) };
    assert_eq!(gate.refusal(&token, &other).await, Reason::Audience);
}

#[tokio::test]
async fn tasks_end_with_their_issuer_and_with_the_gate() {
    let (issuer, gate) = (Issuer::start("").await, Gate::new(Limits::default()));
    let mcp = shared(&issuer);
    assert!(gate.ask(&issuer.token(MCP, gate.now()), &mcp).await.is_ok());
    gate.auth.forget_unused(&HashSet::from([mcp.trust[0].issuer.clone()]));
    assert_eq!(gate.auth.keys.tasks.len(), 1);
    gate.auth.forget_unused(&HashSet::new());
    eventually("the task has ended", || gate.auth.keys.tasks.is_empty()).await;
    // A request in flight, which still trusts the issuer, does not bring its task back.
    let late = gate.ask(&issuer.token(MCP, gate.now() - 1), &mcp).await;
    assert!(matches!(late, Err(AuthError::KeysUnavailable { .. })), "{late:?}");
    assert!(gate.auth.keys.tasks.is_empty());
    gate.auth.forget_unused(&HashSet::from([mcp.trust[0].issuer.clone()]));
    assert!(gate.ask(&issuer.token(MCP, gate.now() - 1), &mcp).await.is_ok());

    issuer.behave(Behaviour::Hang);
    let header = with(issuer.header(Signer::Ec), json!({"kid": "unknown"}));
    let waiting = issuer.mint(&header, &issuer.claims(MCP, gate.now()), Signer::Ec);
    let (refused, ()) = tokio::join!(gate.refusal(&waiting, &mcp), async {
        eventually("a fetch hangs", || issuer.metadata_fetches() == 3).await;
        within(Duration::from_secs(1), gate.auth.shutdown()).await;
    });
    assert_eq!(refused, Reason::Key);
    let late = gate.ask(&issuer.token(MCP, gate.now() - 2), &shared(&Issuer::start("").await)).await;
    assert!(late.is_err(), "{late:?}");
}

#[tokio::test]
async fn the_development_issuers_tokens_are_good() {
    let data = tempfile::tempdir().unwrap();
    let (host, gate) = (Issuer::start("").await, Gate::new(Limits::default()));
    let dev = DevIssuer::open(data.path(), host.url()).unwrap();
    assert_eq!(dev.metadata()["jwks_uri"], host.jwks_uri());
    let grant = Grant {
        subject: "dev",
        client: "fondaco-cli",
        tenant: "demo",
        scope: "demo.use demo.admin",
        audience: MCP,
        ttl: 60,
        now: gate.now(),
    };
    let keys = crate::auth::jwks::KeySet::parse(dev.jwks().to_string().as_bytes(), 1).unwrap();
    let text = dev.token(grant);
    let token = crate::auth::jwt::Token::parse(&text).unwrap();
    let trusted = shared(&host);
    let algorithm = token.algorithm(&trusted.trust[0].issuer).unwrap();
    token.verify(keys.find(token.key_id().unwrap(), algorithm).unwrap(), algorithm).unwrap();
    let caller = crate::auth::claims::caller(&token.claims, &trusted.trust[0], &trusted, gate.now()).unwrap();
    assert_eq!((caller.tenant, &*caller.subject), (name("demo"), "dev"));
    assert!(caller.scopes.covers(&Scopes::parse("demo.use demo.admin")));
}

#[test]
fn a_caller_weighs_what_its_issuer_put_into_it() {
    let caller = |subject: &str, scopes: &str| Caller {
        tenant: name("acme"),
        issuer: "https://as.example".into(),
        subject: subject.into(),
        client: Some("client".into()),
        scopes: Scopes::parse(scopes),
        expires_at: 0,
    };
    assert_eq!(crate::auth::weight(&caller("alice", "crm.read crm.write")), 1);
    assert_eq!(crate::auth::weight(&caller(&"a".repeat(8 << 10), "")), 5);
    let many: Vec<_> = (0..1000).map(|n| n.to_string()).collect();
    assert!(crate::auth::weight(&caller("alice", &many.join(" "))) > 30);
}
