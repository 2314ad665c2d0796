//! Who may come in: tokens of a tenant's own issuer and of a shared one, forged and good, while
//! issuers rotate their keys, lie, flood, hang and go away.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use fondaco::config::Settings;
use fondaco::model::clock::Clock;
use serde_json::Value;
use serde_json::json;

use crate::harness::gateway::Caller;
use crate::harness::gateway::Gateway;
use crate::harness::gateway::meta;
use crate::harness::issuer::Behaviour;
use crate::harness::issuer::Issuer;
use crate::harness::issuer::Signer;
use crate::harness::serving::Serving;
use crate::harness::wait::eventually;
use crate::harness::wire;
use crate::harness::wire::Answer;
use crate::harness::wire::Connection;

/// A shared issuer and a tenant's own, both honest until told otherwise.
struct House {
    gw: Gateway,
    shared: Issuer,
    own: Issuer,
}

impl House {
    async fn open() -> Self {
        Self::open_with("", "", |_| {}).await
    }

    /// With more to say about the shared issuer and about acme's own.
    async fn open_with(of_shared: &str, of_own: &str, change: impl FnOnce(&mut Settings)) -> Self {
        let (shared, own) = (Issuer::start("").await, Issuer::start("/as").await);
        let tenants = format!(
            r#"
issuers: [{{issuer: "{shared}", tenant_claim: tenant{of_shared}}}]
tenants:
  acme:
    issuers: [{{issuer: "{own}"{of_own}}}, {{shared: "{shared}"}}]
    backends: {{demo: {{kind: demo, prefix: "", scopes: {{"*": [demo.use]}}}}}}
  beta:
    issuers: [{{shared: "{shared}"}}]
    backends: {{demo: {{kind: demo, prefix: "", scopes: {{"*": [demo.use]}}}}}}
  closed:
    backends: {{demo: {{kind: demo}}}}
"#,
            shared = shared.url(),
            own = own.url(),
        );
        Self { gw: Gateway::start_with(&tenants, change).await, shared, own }
    }

    fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.gw.addr)
    }

    fn now(&self) -> u64 {
        self.gw.app.clock.now()
    }

    async fn knock(&self, path: &str, token: &str) -> Answer {
        let caller = Caller { addr: self.gw.addr, path: path.to_owned(), token: token.to_owned() };
        caller.rpc("server/discover", json!({})).await
    }

    /// `issuer`'s good token for the endpoint at `path`, changed.
    fn token(&self, issuer: &Issuer, path: &str, change: Value) -> String {
        let mut claims = issuer.claims(&self.url(path), self.now());
        claims.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        issuer.mint(&issuer.header(Signer::Ec), &claims, Signer::Ec)
    }
}

/// A 401's challenge begins like this, whoever is asked.
fn challenge(house: &House, path: &str, scope: Option<&str>) -> String {
    let metadata = house.url(&format!("/.well-known/oauth-protected-resource{path}"));
    let scope = scope.map_or_else(String::new, |scope| format!(", scope=\"{scope}\""));
    format!("Bearer resource_metadata=\"{metadata}\"{scope}")
}

/// What is wrong with the refusal of `token`, if anything is.
fn fault(house: &House, path: &str, scope: Option<&str>, token: &str, answer: &Answer) -> Option<String> {
    let said = answer.header("www-authenticate").unwrap_or("no challenge");
    let start = format!("{}, error=\"invalid_token\", error_description=\"", challenge(house, path, scope));
    let description = said.strip_prefix(&start).and_then(|rest| rest.strip_suffix('"'));
    let part_shown = token.split('.').any(|part| part.len() > 8 && said.contains(part));
    let right = answer.status == 401
        && description.is_some_and(|text| !text.is_empty() && !text.contains('"'))
        && answer.body.is_empty()
        && answer.header("cache-control") == Some("no-store")
        && !part_shown;
    (!right).then(|| format!("{} {said:?} {:?}", answer.status, answer.text()))
}

#[tokio::test]
async fn a_forged_token_is_refused_with_the_endpoints_own_challenge() {
    let house = House::open().await;
    let places = [
        (&house.own, "/t/acme/mcp", Some("demo.use")),
        (&house.shared, "/t/acme/mcp", Some("demo.use")),
        (&house.shared, "/mcp", None),
    ];
    let mut faults = Vec::new();
    for (issuer, path, scope) in places {
        let good = issuer.token(&house.url(path), house.now());
        assert_eq!(house.knock(path, &good).await.status, 200, "the good token at {path}");
        for (name, token) in issuer.forgeries(&house.url(path), house.now()) {
            // A tenant's own issuer says nothing about tenants.
            if name.contains("tenant") && std::ptr::eq(issuer, &house.own) {
                continue;
            }
            let answer = house.knock(path, &token).await;
            faults.extend(fault(&house, path, scope, &token, &answer).map(|f| format!("{path} {name}: {f}")));
        }
    }
    assert!(faults.is_empty(), "{faults:#?}");
    house.gw.stop().await;
}

#[tokio::test]
async fn without_a_token_no_error_is_named() {
    let house = House::open().await;
    for (path, scope) in [
        ("/mcp", None),
        ("/mcp/", None),
        ("/t/acme/mcp", Some("demo.use")),
        ("/t/acme/mcp/", Some("demo.use")),
        ("/t/closed/mcp", None),
        ("/t/nobody/mcp", None),
    ] {
        let canonical = path.trim_end_matches('/');
        for headers in [vec![], vec![("Authorization".to_owned(), "Basic YWxpY2U6c2VjcmV0".to_owned())]] {
            let answer = wire::request(house.gw.addr, "POST", path, &headers, b"{}").await;
            assert_eq!(answer.status, 401, "{path}");
            let said = answer.header("www-authenticate").unwrap();
            assert_eq!(said, challenge(&house, canonical, scope), "{path}");
            assert!(answer.body.is_empty(), "{path}: {}", answer.text());
        }
    }
    let query = format!("/mcp?access_token={}", house.token(&house.shared, "/mcp", json!({})));
    assert_eq!(wire::request(house.gw.addr, "POST", &query, &[], b"{}").await.status, 401, "in the query");
    house.gw.stop().await;
}

#[tokio::test]
async fn a_key_that_is_new_is_fetched_before_its_token_is_judged() {
    let house = House::open().await;
    let path = "/t/acme/mcp";
    let old = house.token(&house.own, path, json!({}));
    assert_eq!(house.knock(path, &old).await.status, 200);
    house.own.rotate();
    let new = house.token(&house.own, path, json!({}));
    let answers = futures_util::future::join_all((0..20).map(|_| house.knock(path, &new))).await;
    let statuses: Vec<_> = answers.iter().map(|answer| answer.status).collect();
    assert_eq!(statuses, [200; 20]);
    assert_eq!(house.own.key_fetches(), 2, "one for the first keys, one for all who brought the new");
    // What was verified is remembered for as long as its key is trusted, and no longer.
    assert_eq!(house.knock(path, &old).await.status, 401);
    let unseen = house.own.mint(
        &json!({"alg": "ES256", "typ": "at+jwt", "kid": "ec-1"}),
        &house.own.claims(&house.url(path), house.now()),
        Signer::Ec,
    );
    assert_eq!(house.knock(path, &unseen).await.status, 401);
    house.gw.stop().await;
}

#[tokio::test]
async fn ten_thousand_unknown_key_ids_cost_one_fetch() {
    const EACH: usize = 2_500;
    let house = House::open().await;
    let path = "/t/acme/mcp";
    assert_eq!(house.knock(path, &house.token(&house.own, path, json!({}))).await.status, 200);
    let good = house.token(&house.own, path, json!({}));
    let (_, rest) = good.split_once('.').unwrap();
    let storm = |part: usize| {
        let (addr, rest) = (house.gw.addr, rest.to_owned());
        async move {
            let mut connection = Connection::open(addr).await;
            for number in 0..EACH {
                let header = json!({"alg": "ES256", "typ": "at+jwt", "kid": format!("{part}-{number}")});
                let header = URL_SAFE_NO_PAD.encode(header.to_string());
                let head = format!("POST {path} HTTP/1.1\r\nHost: {addr}\r\nContent-Length: 0\r\n");
                connection.send(format!("{head}Authorization: Bearer {header}.{rest}\r\n\r\n")).await;
                assert_eq!(connection.answer().await.status, 401);
            }
        }
    };
    let began = tokio::time::Instant::now();
    let tasks: Vec<_> = (0..4).map(|part| tokio::spawn(storm(part))).collect();
    for task in tasks {
        task.await.unwrap();
    }
    // One more for each cool-down that the storm has lasted.
    let cooldown = house.gw.app.limits.keys_cooldown;
    let most = 2 + began.elapsed().div_duration_f64(cooldown) as usize;
    assert!(house.own.key_fetches() <= most, "{} fetches", house.own.key_fetches());
    assert!(house.own.metadata_fetches() <= most, "{} fetches", house.own.metadata_fetches());
    assert_eq!(house.knock(path, &good).await.status, 200);
    house.gw.stop().await;
}

#[tokio::test]
async fn keys_that_were_had_go_on_while_their_issuer_is_away() {
    let house = House::open_with("", "", |s| s.limits.keys_refresh = Duration::from_millis(300)).await;
    let path = "/t/acme/mcp";
    assert_eq!(house.knock(path, &house.token(&house.own, path, json!({}))).await.status, 200);
    for away in [Behaviour::Status(503), Behaviour::Garbage, Behaviour::OtherIssuer, Behaviour::Flood] {
        house.own.behave(away);
        let before = house.own.metadata_fetches();
        eventually("the issuer was asked again, in vain", async || {
            let fetches = house.own.metadata_fetches();
            let token = house.token(
                &house.own,
                path,
                json!({"jti": format!("{away:?} {fetches} {:?}", tokio::time::Instant::now())}),
            );
            assert_eq!(house.knock(path, &token).await.status, 200, "{away:?}");
            fetches > before + 1
        })
        .await;
    }
    house.gw.stop().await;
}

#[tokio::test]
async fn an_issuer_whose_keys_were_never_had_is_503_with_retry_after() {
    for behaviour in [
        Behaviour::Status(500),
        Behaviour::Garbage,
        Behaviour::OtherIssuer,
        Behaviour::Flood,
        Behaviour::Hang,
    ] {
        let house = House::open_with("", "", |s| s.limits.issuer_time = Duration::from_millis(500)).await;
        house.own.behave(behaviour);
        let path = "/t/acme/mcp";
        let token = house.token(&house.own, path, json!({}));
        for _ in 0..2 {
            let answer = house.knock(path, &token).await;
            assert_eq!(answer.status, 503, "{behaviour:?}");
            let retry: u64 = answer.header("retry-after").unwrap().parse().unwrap();
            assert!((1..=30).contains(&retry), "{behaviour:?}: {retry}");
            assert!(answer.header("www-authenticate").is_none(), "{behaviour:?}");
            assert!(!answer.text().contains(&token), "{behaviour:?}");
        }
        // The neighbour's keys are another matter.
        assert_eq!(house.knock("/mcp", &house.token(&house.shared, "/mcp", json!({}))).await.status, 200);
        // It comes back by itself, and soon.
        house.own.behave(Behaviour::Serve);
        eventually("the issuer is back", async || house.knock(path, &token).await.status == 200).await;
        house.gw.stop().await;
    }
}

#[tokio::test]
async fn keys_are_found_by_either_metadata_document_or_where_the_file_says() {
    let house = House::open().await;
    house.own.behave(Behaviour::OpenId);
    let token = house.token(&house.own, "/t/acme/mcp", json!({}));
    assert_eq!(house.knock("/t/acme/mcp", &token).await.status, 200, "OpenID metadata below the path");
    house.gw.stop().await;

    let keys = Issuer::start("").await;
    let explicit = format!(", jwks_uri: \"{}\"", keys.jwks_uri());
    let house = House::open_with("", &explicit, |_| {}).await;
    house.own.behave(Behaviour::Status(500));
    let claims = house.own.claims(&house.url("/t/acme/mcp"), house.now());
    let token = keys.mint(&keys.header(Signer::Rsa), &claims, Signer::Rsa);
    assert_eq!(house.knock("/t/acme/mcp", &token).await.status, 200);
    assert_eq!((house.own.metadata_fetches(), keys.metadata_fetches(), keys.key_fetches()), (0, 0, 1));
    keys.behave(Behaviour::Flood);
    assert_eq!(house.knock("/t/acme/mcp", &token).await.status, 200);
    house.gw.stop().await;
}

#[tokio::test]
async fn algorithms_that_the_file_does_not_list_are_refused() {
    let house = House::open_with("", ", algorithms: [RS256]", |_| {}).await;
    let path = "/t/acme/mcp";
    let claims = house.own.claims(&house.url(path), house.now());
    let rsa = house.own.mint(&house.own.header(Signer::Rsa), &claims, Signer::Rsa);
    assert_eq!(house.knock(path, &rsa).await.status, 200);
    let ec = house.own.mint(&house.own.header(Signer::Ec), &claims, Signer::Ec);
    assert_eq!(house.knock(path, &ec).await.status, 401);
    house.gw.stop().await;
}

#[tokio::test]
async fn an_issuer_counts_only_where_it_is_accepted() {
    let house = House::open().await;
    let (own, shared) = (&house.own, &house.shared);
    let at = |issuer, path: &'static str, change| (path, house.token(issuer, path, change));
    let refused = [
        ("acme's own issuer at beta", at(own, "/t/beta/mcp", json!({"tenant": "beta"}))),
        ("acme's own issuer at /mcp", at(own, "/mcp", json!({}))),
        ("acme's own issuer at nobody's", at(own, "/t/nobody/mcp", json!({}))),
        ("another tenant", at(shared, "/t/acme/mcp", json!({"tenant": "beta"}))),
        ("an unknown tenant at a tenant's", at(shared, "/t/acme/mcp", json!({"tenant": "nobody"}))),
        ("an unknown tenant", at(shared, "/mcp", json!({"tenant": "nobody"}))),
        ("no tenant", at(shared, "/mcp", json!({"tenant": ""}))),
        ("a tenant that does not list the issuer", at(shared, "/t/closed/mcp", json!({"tenant": "closed"}))),
        ("a token for another endpoint", ("/t/acme/mcp", house.token(shared, "/mcp", json!({})))),
        ("a token for a tenant's endpoint", ("/mcp", house.token(shared, "/t/acme/mcp", json!({})))),
        ("an unknown URL's, other audience", ("/t/nobody/mcp", house.token(shared, "/mcp", json!({})))),
        ("an unknown URL's, no JWT", ("/t/nobody/mcp", "abc".to_owned())),
    ];
    let mut faults = Vec::new();
    for (name, (path, token)) in refused {
        let scope = ["/t/acme/mcp", "/t/beta/mcp"].contains(&path).then_some("demo.use");
        let answer = house.knock(path, &token).await;
        faults.extend(fault(&house, path, scope, &token, &answer).map(|f| format!("{name}: {f}")));
    }
    assert!(faults.is_empty(), "{faults:#?}");
    let accepted = [
        ("/t/acme/mcp", house.token(own, "/t/acme/mcp", json!({"tenant": "beta"}))),
        ("/t/acme/mcp", house.token(shared, "/t/acme/mcp", json!({}))),
        ("/t/beta/mcp", house.token(shared, "/t/beta/mcp", json!({"tenant": "beta"}))),
        ("/mcp", house.token(shared, "/mcp", json!({"tenant": "closed", "scope": ""}))),
        ("/mcp", house.token(shared, "/mcp", json!({"aud": ["https://x.example", house.url("/mcp")]}))),
    ];
    for (path, token) in accepted {
        assert_eq!(house.knock(path, &token).await.status, 200, "{path} {token}");
    }
    house.gw.stop().await;
}

#[tokio::test]
async fn who_holds_a_shared_issuers_token_may_know_that_a_tenant_does_not_exist() {
    let house = House::open().await;
    let path = "/t/nobody/mcp";
    for tenant in ["nobody", "acme"] {
        let token = house.token(&house.shared, path, json!({"tenant": tenant}));
        let answer = house.knock(path, &token).await;
        assert_eq!((answer.status, answer.body.len()), (404, 0), "{tenant}: {}", answer.text());
        assert!(answer.header("www-authenticate").is_none());
    }
    let host = house.gw.addr.to_string();
    let metadata = house.gw.get(&host, "/.well-known/oauth-protected-resource/t/nobody/mcp").await;
    assert_eq!(metadata.status, 404);
    house.gw.stop().await;
}

#[tokio::test]
async fn the_default_audience_is_the_endpoints_url_under_each_name() {
    let house = House::open().await;
    let port = house.gw.addr.port();
    let names = [format!("127.0.0.1:{port}"), format!("localhost:{port}"), format!("[::1]:{port}")];
    for audience in &names {
        let audience = format!("http://{audience}/mcp");
        let token = house.token(&house.shared, "/mcp", json!({"aud": audience}));
        for host in &names {
            let caller = Caller { addr: house.gw.addr, path: "/mcp".into(), token: token.clone() };
            let mut headers = caller.headers("server/discover", None);
            headers.push(("Host".to_owned(), host.clone()));
            let body = json!({"jsonrpc": "2.0", "id": 1, "method": "server/discover",
                "params": {"_meta": meta()}});
            let answer = caller.post(&headers, &body.to_string()).await;
            assert_eq!(answer.status, 200, "aud {audience} at {host}: {}", answer.text());
        }
    }
    for wrong in ["http://127.0.0.1/mcp", "https://localhost/mcp", "http://LOCALHOST:80/mcp", "/mcp", ""] {
        let token = house.token(&house.shared, "/mcp", json!({"aud": wrong}));
        assert_eq!(house.knock("/mcp", &token).await.status, 401, "{wrong}");
    }
    house.gw.stop().await;
}

#[tokio::test]
async fn audiences_in_the_file_replace_the_default() {
    let house = House::open_with(", audiences: [\"urn:gate\", \"https://api.example\"]", "", |_| {}).await;
    for path in ["/mcp", "/t/acme/mcp"] {
        for (audience, status) in [("urn:gate", 200), ("https://api.example", 200), ("urn:gate2", 401)] {
            let token = house.token(&house.shared, path, json!({"aud": audience}));
            assert_eq!(house.knock(path, &token).await.status, status, "{audience} at {path}");
        }
        let default = house.token(&house.shared, path, json!({}));
        assert_eq!(house.knock(path, &default).await.status, 401, "the default at {path}");
        // The tenant's own issuer keeps its own default.
        let own = house.token(&house.own, "/t/acme/mcp", json!({}));
        assert_eq!(house.knock("/t/acme/mcp", &own).await.status, 200);
    }
    house.gw.stop().await;
}

#[tokio::test]
async fn a_token_that_was_good_ends_with_its_time() {
    let house = House::open().await;
    let path = "/t/acme/mcp";
    let token = house.token(&house.own, path, json!({}));
    for _ in 0..2 {
        assert_eq!(house.knock(path, &token).await.status, 200);
    }
    house.gw.app.clock.advance(320);
    assert_eq!(house.knock(path, &token).await.status, 200, "within the leeway");
    house.gw.app.clock.advance(15);
    let answer = house.knock(path, &token).await;
    assert_eq!(answer.status, 401);
    let said = answer.header("www-authenticate").unwrap();
    assert!(said.ends_with("error_description=\"the token has expired\""), "{said}");
    house.gw.stop().await;
}

#[tokio::test]
async fn repeated_and_broken_credentials_are_an_invalid_token() {
    let house = House::open().await;
    let good = house.token(&house.shared, "/mcp", json!({}));
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "server/discover",
        "params": {"_meta": meta()}});
    let values: [&[String]; 5] = [
        &[format!("Bearer {good}"), format!("Bearer {good}")],
        &[format!("Bearer {good}"), "Basic abc".to_owned()],
        &[format!("Bearer {good}, Bearer {good}")],
        &["Bearer".to_owned()],
        &[format!("Bearer {}", "a".repeat(17 << 10))],
    ];
    for values in values {
        let caller = Caller { addr: house.gw.addr, path: "/mcp".into(), token: good.clone() };
        let mut headers = caller.headers("server/discover", None);
        headers.retain(|(name, _)| name != "Authorization");
        headers.extend(values.iter().map(|value| ("Authorization".to_owned(), value.clone())));
        let answer = caller.post(&headers, &body.to_string()).await;
        let fault = fault(&house, "/mcp", None, &good, &answer);
        assert_eq!(fault, None, "{:?}", &values[0][..values[0].len().min(60)]);
    }
    house.gw.stop().await;
}

#[tokio::test]
async fn no_token_is_ever_logged() {
    let own = Issuer::start("/as").await;
    let tenants = format!(
        "tenants: {{acme: {{issuers: [{{issuer: '{}'}}], backends: {{demo: {{kind: demo, prefix: ''}}}}}}}}",
        own.url()
    );
    let serving = Serving::start(&tenants, &[("FONDACO_TELEMETRY__LEVEL", "trace")]).await;
    let (path, now) = ("/t/acme/mcp", Clock::default().now());
    let audience = format!("http://{}{path}", serving.addr);
    let mut tokens = own.forgeries(&audience, now);
    tokens.push(("good".to_owned(), own.token(&audience, now)));
    for (name, token) in &tokens {
        let mut caller = Caller { addr: serving.addr, path: path.to_owned(), token: token.clone() };
        let answer = caller.rpc("tools/list", json!({})).await;
        assert_eq!(answer.status == 200, name == "good" || name.contains("tenant"), "{name}");
        // Where tokens do not belong.
        caller.path = format!("{path}?access_token={token}");
        let elsewhere = wire::request(caller.addr, "POST", &caller.path, &[], b"").await;
        let unknown = caller.rpc(token, json!({"name": token})).await;
        for answer in [elsewhere, unknown] {
            assert!(answer.status >= 400, "{name}");
            let shown = format!("{:?}{}", answer.headers, answer.text());
            // The client's own method name may come back to it; its token's parts may not.
            assert!(!shown.contains(token) || token.len() < 32, "{name}: {shown}");
        }
    }
    let log = serving.log();
    assert!(log.matches("\"target\":\"request\"").count() >= tokens.len(), "requests are logged");
    for (name, token) in &tokens {
        for part in token.split('.').filter(|part| part.len() > 8) {
            // Headers of tokens are not secret, and equal for many; claims and signatures are.
            assert!(!log.contains(part), "{name}");
        }
    }
    assert!(serving.process.terminate().await.success());
}
