//! Opaque tokens: their issuer is asked about each, believed for a moment, and missed when it is away.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use fondaco::config::Settings;
use futures_util::future::join_all;
use serde_json::Value;
use serde_json::json;

use crate::harness::gateway::Caller;
use crate::harness::gateway::Gateway;
use crate::harness::issuer::Behaviour;
use crate::harness::issuer::Issuer;
use crate::harness::issuer::Signer;
use crate::harness::process;
use crate::harness::process::Peers;
use crate::harness::process::Process;
use crate::harness::serving::Serving;
use crate::harness::wait::eventually;
use crate::harness::wire::Answer;

const OWN: &str = "/t/acme/mcp";

/// One issuer whose tokens are opaque, acme's own and shared, and one of acme's whose keys are known.
struct House {
    gw: Gateway,
    asked: Issuer,
    signing: Issuer,
    _secret: tempfile::TempDir,
}

impl House {
    async fn open(change: impl FnOnce(&mut Settings)) -> Self {
        let (asked, signing) = (Issuer::start("").await, Issuer::start("/as").await);
        let secret = tempfile::tempdir().unwrap();
        let file = secret.path().join("secret");
        std::fs::write(&file, "for tests: a+b").unwrap();
        let tenants = format!(
            r#"
issuers:
  - issuer: "{asked}"
    tenant_claim: tenant
    introspection: {{endpoint: "{at}", client_id: "gate:1", secret: {{file: "{file}"}}}}
tenants:
  acme:
    issuers: [{{shared: "{asked}"}}, {{issuer: "{signing}"}}]
    backends: {{demo: {{kind: demo, prefix: "", scopes: {{"*": [demo.use]}}}}}}
  beta:
    secrets: {{own: {{file: "{file}"}}}}
    issuers: [{{issuer: "{asked}/beta", introspection: {{endpoint: "{at}", client_id: beta, secret: own}}}}]
    backends: {{demo: {{kind: demo, prefix: ""}}}}
"#,
            asked = asked.url(),
            at = asked.introspection(),
            signing = signing.url(),
            file = file.display(),
        );
        Self { gw: Gateway::start_with(&tenants, change).await, asked, signing, _secret: secret }
    }

    fn good(&self, path: &str) -> Value {
        let mut answer =
            self.asked.claims(&format!("http://{}{path}", self.gw.addr), self.gw.app.clock.now());
        answer["active"] = json!(true);
        answer["scope"] = json!("demo.use");
        answer
    }

    async fn knock(&self, path: &str, token: &str) -> Answer {
        let caller = Caller { addr: self.gw.addr, path: path.to_owned(), token: token.to_owned() };
        caller.rpc("server/discover", json!({})).await
    }
}

fn challenge(answer: &Answer) -> &str {
    answer.header("www-authenticate").unwrap_or_default()
}

// spec: RFC 7662, section 2; security.md T14
#[tokio::test]
async fn an_opaque_token_is_asked_about_once_for_all_who_send_it() {
    let house = House::open(|_| {}).await;
    house.asked.says("opaque.token_1", house.good(OWN));
    let all = join_all((0..50).map(|_| house.knock(OWN, "opaque.token_1"))).await;
    assert!(all.iter().all(|answer| answer.status == 200), "{}", all[0].text());
    let questions = house.asked.questions();
    assert_eq!(questions.len(), 1);
    let basic = STANDARD.encode("gate%3A1:for+tests%3A+a%2Bb");
    assert_eq!(questions[0].authorization, format!("Basic {basic}"));
    assert_eq!(questions[0].form["token"], "opaque.token_1");
    assert_eq!(questions[0].form["token_type_hint"], "access_token");
    // Another endpoint is another resource.
    assert_eq!(house.knock("/mcp", "opaque.token_1").await.status, 401);
    house.asked.says("2", house.good("/mcp"));
    assert_eq!(house.knock("/mcp", "2").await.status, 200);
    // A tenant's own is asked as that tenant.
    let mut own = house.good("/t/beta/mcp");
    own["iss"] = json!(format!("{}/beta", house.asked.url()));
    house.asked.says("3", own);
    assert_eq!(house.knock("/t/beta/mcp", "3").await.status, 200);
    let last = house.asked.questions().pop().unwrap();
    assert_eq!(last.authorization, format!("Basic {}", STANDARD.encode("beta:for+tests%3A+a%2Bb")));
    house.gw.stop().await;
}

// spec: RFC 7662, section 2.2; RFC 8707; authorization, Token Audience Binding and Validation
#[tokio::test]
async fn what_an_issuer_says_of_a_token_has_to_make_a_caller_of_this_endpoint() {
    let house = House::open(|_| {}).await;
    let now = house.gw.app.clock.now();
    let mut asked = 0;
    for (change, said) in [
        (json!({"active": false}), "not active"),
        (json!({"aud": "https://other.example/mcp"}), "another resource"),
        (json!({"aud": null}), "wrong type"),
        (json!({"iss": "https://other.example"}), "issuer is not accepted"),
        (json!({"exp": now - 60}), "expired"),
        (json!({"exp": "never"}), "wrong type"),
        (json!({"nbf": now + 600}), "not valid yet"),
        (json!({"sub": ""}), "no sub claim"),
        (json!({"tenant": "beta"}), "not good for a tenant"),
        (json!({"token_type": "refresh_token"}), "not an access token"),
        (json!({"scope": ["demo.use"]}), "wrong type"),
    ] {
        asked += 1;
        let token = format!("token-{asked}");
        let mut answer = house.good(OWN);
        answer.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        house.asked.says(&token, answer);
        for _ in 0..2 {
            let refused = house.knock(OWN, &token).await;
            assert_eq!(refused.status, 401, "{change}");
            let challenge = challenge(&refused);
            assert!(
                challenge.contains(r#"error="invalid_token""#) && challenge.contains(said),
                "{challenge}"
            );
            assert!(!challenge.contains(&token) && !refused.text().contains(&token));
        }
        assert_eq!(house.asked.questions().len(), asked, "that it is not good is remembered for a while");
    }
    for (n, member) in ["exp", "aud", "tenant"].iter().enumerate() {
        let mut answer = house.good(OWN);
        answer.as_object_mut().unwrap().shift_remove(*member);
        house.asked.says(&format!("without-{n}"), answer);
        assert_eq!(house.knock(OWN, &format!("without-{n}")).await.status, 401, "{member}");
    }
    for (n, change) in [json!({"token_type": "Bearer"}), json!({"iss": house.asked.url()})].iter().enumerate()
    {
        let mut answer = house.good(OWN);
        answer.as_object_mut().unwrap().shift_remove("iss");
        answer.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        house.asked.says(&format!("good-{n}"), answer);
        assert_eq!(house.knock(OWN, &format!("good-{n}")).await.status, 200, "{change}");
    }
    let mut machine = house.good(OWN);
    machine.as_object_mut().unwrap().shift_remove("sub");
    house.asked.says("machine", machine);
    assert_eq!(house.knock(OWN, "machine").await.status, 200, "it is its client");
    let mut answer = house.good(OWN);
    answer["scope"] = json!("");
    house.asked.says("scopeless", answer);
    let caller = Caller { addr: house.gw.addr, path: OWN.to_owned(), token: "scopeless".to_owned() };
    let refused = caller.rpc("tools/call", json!({"name": "echo", "arguments": {"text": "hi"}})).await;
    assert_eq!(refused.status, 403);
    house.gw.stop().await;
}

// spec: security.md T14, AUTH-31
#[tokio::test]
async fn a_revoked_token_is_good_for_a_moment_and_no_longer() {
    let house = House::open(|s| s.limits.introspection_time = Duration::from_secs(2)).await;
    house.asked.says("opaque", house.good(OWN));
    assert_eq!(house.knock(OWN, "opaque").await.status, 200);
    house.asked.says("opaque", json!({"active": false}));
    assert_eq!(house.knock(OWN, "opaque").await.status, 200, "it was asked about a moment ago");
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(house.knock(OWN, "opaque").await.status, 401);
    // Nor longer than it says itself.
    let mut answer = house.good(OWN);
    answer["exp"] = json!(house.gw.app.clock.now() + 1);
    house.asked.says("short", answer);
    assert_eq!(house.knock(OWN, "short").await.status, 200);
    house.asked.says("short", json!({"active": false}));
    eventually("its time is over", async || house.knock(OWN, "short").await.status == 401).await;
    house.gw.stop().await;
}

// spec: RFC 7662, section 2.3; fail closed
#[tokio::test]
async fn who_cannot_be_asked_vouches_for_nobody() {
    let house = House::open(|s| s.limits.issuer_time = Duration::from_millis(300)).await;
    house.asked.says("opaque", house.good(OWN));
    for behaviour in [
        Behaviour::Status(500),
        Behaviour::Status(401),
        Behaviour::Status(302),
        Behaviour::Hang,
        Behaviour::Garbage,
        Behaviour::Flood,
    ] {
        house.asked.behave(behaviour);
        let refused = house.knock(OWN, "opaque").await;
        assert_eq!(refused.status, 503, "{behaviour:?}");
        assert_eq!(refused.header("retry-after"), Some("1"), "{behaviour:?}");
    }
    house.asked.behave(Behaviour::Serve);
    for (n, odd) in
        [r#"{"active":"true"}"#, r#"{"active":1}"#, "{}", "[]", r#"{"active":false,"active":true}"#]
            .into_iter()
            .enumerate()
    {
        house.asked.says(&format!("odd-{n}"), odd);
        assert_eq!(house.knock(OWN, &format!("odd-{n}")).await.status, 503, "{odd}");
    }
    assert_eq!(house.knock(OWN, "opaque").await.status, 200, "a failure is not remembered");
    house.gw.stop().await;
}

// spec: DESIGN section 3, Credentials: configuration, never a token's shape
#[tokio::test]
async fn a_token_of_an_issuer_with_keys_is_shown_to_no_other() {
    let house = House::open(|_| {}).await;
    let now = house.gw.app.clock.now();
    let good = house.signing.token(&format!("http://{}{OWN}", house.gw.addr), now);
    assert_eq!(house.knock(OWN, &good).await.status, 200);
    let forgeries = house.signing.forgeries(&format!("http://{}{OWN}", house.gw.addr), now);
    // Whose the tenant's own issuer is needs no claim.
    for (name, forged) in forgeries.into_iter().filter(|(name, _)| !name.contains("tenant")) {
        assert_eq!(house.knock(OWN, &forged).await.status, 401, "{name}");
    }
    let claims = json!({"iss": house.signing.url(), "sub": "alice"});
    let id_token = house.signing.mint(&json!({"alg": "ES256", "typ": "JWT"}), &claims, Signer::Stranger);
    assert_eq!(house.knock(OWN, &id_token).await.status, 401);
    let named = |text: &str| {
        let claims = text.split('.').nth(1).and_then(|part| URL_SAFE_NO_PAD.decode(part).ok());
        let claims = claims.map(|claims| String::from_utf8_lossy(&claims).into_owned());
        claims.is_some_and(|claims| claims.contains(&format!(r#""iss":"{}""#, house.signing.url())))
    };
    let leaked: Vec<_> =
        house.asked.questions().into_iter().filter(|asked| named(&asked.form["token"])).collect();
    assert!(leaked.is_empty(), "{leaked:?}");
    house.gw.stop().await;
}

// spec: RFC 7662; security.md T29
#[tokio::test]
async fn an_issuer_that_hangs_takes_its_part_of_the_questions_alone() {
    let house = House::open(|s| {
        (s.limits.introspections, s.limits.issuer_time) = (64, Duration::from_secs(3));
        s.limits.introspection_time = Duration::from_millis(10);
    })
    .await;
    house.asked.says("known", house.good(OWN));
    assert_eq!(house.knock(OWN, "known").await.status, 200);
    house.asked.behave(Behaviour::Hang);
    let tokens: Vec<_> = (0..10).map(|n| format!("t{n}")).collect();
    let all = join_all(tokens.iter().map(|token| house.knock(OWN, token)));
    let known = async {
        eventually("others are asked about", async || house.asked.questions().len() == 4).await;
        house.knock(OWN, "known").await
    };
    let (all, known) = tokio::join!(all, known);
    assert!(all.iter().all(|answer| answer.status == 503));
    // Who was good lately has a place that nobody takes by guessing.
    assert_eq!((known.status, house.asked.questions().len()), (503, 5));
    house.gw.stop().await;
}

// spec: RFC 7662, RFC 7009: npm's oidc-provider, whose access tokens are opaque
#[tokio::test]
async fn a_real_authorization_server_is_asked_and_revokes() {
    let peers = Peers::find();
    let config = r#"{"clients": {"acme": {"secret": "for-tests-acme", "tenant": "acme"}, "gate": {"secret": "for-tests-gate"}},
        "resources": {"*": ["demo.use"]}, "opaque": true}"#;
    let mut issuing = Process::start(peers.node("tests/fixtures/issuer.mjs").args(["--config", config]));
    let issuer = issuing.line("listening ").await;
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let base = format!("http://127.0.0.1:{port}");
    let tenants = format!(
        r#"
tenants:
  acme:
    secrets: {{gate: {{env: GATE_SECRET}}}}
    issuers: [{{issuer: "{issuer}", introspection: {{endpoint: "{issuer}/token/introspection", client_id: gate, secret: gate}}}}]
    backends: {{demo: {{kind: demo, prefix: "", scopes: {{"*": [demo.use]}}}}}}
"#
    );
    let variables = [
        ("FONDACO_LISTEN", base.strip_prefix("http://").unwrap()),
        ("FONDACO_PUBLIC_URL", &*base),
        ("FONDACO_LIMITS__INTROSPECTION_TIME", "1s"),
        ("GATE_SECRET", "for-tests-gate"),
    ];
    let serving = Serving::start(&tenants, &variables).await;
    let mut command = peers.node("tests/fixtures/token.mjs");
    command.args(["--issuer", &issuer, "--resource", &format!("{base}{OWN}"), "--scope", "demo.use"]);
    command.args(["--client", "acme", "--secret", "for-tests-acme"]);
    let token = process::run(&mut command).await.trim().to_owned();
    assert!(!token.contains('.'), "an opaque token");
    let addr = base.strip_prefix("http://").unwrap().parse().unwrap();
    let caller = Caller { addr, path: OWN.to_owned(), token: token.clone() };
    let call = async || caller.rpc("tools/call", json!({"name": "echo", "arguments": {"text": "hi"}})).await;
    assert_eq!(call().await.result()["content"][0]["text"], "hi");
    let mut command = peers.node("tests/fixtures/revoke.mjs");
    command.args(["--issuer", &issuer, "--token", &token, "--client", "acme", "--secret", "for-tests-acme"]);
    process::run(&mut command).await;
    eventually("it is revoked", async || call().await.status == 401).await;
    drop(serving);
}
