//! The wrong requests of tests/cases, sent to `fondaco dev` by their runner.

use std::collections::BTreeMap;
use std::path::Path;

use fondaco::auth::dev_issuer::DevIssuer;
use fondaco::model::clock::Clock;
use fondaco::model::limits::Limits;
use jsonwebtoken::Algorithm;
use jsonwebtoken::EncodingKey;
use jsonwebtoken::Header;
use serde_json::Value;
use serde_json::json;
use tokio::time::Instant;

use crate::harness::gateway::Caller;
use crate::harness::issuer::Issuer;
use crate::harness::process;
use crate::harness::process::Process;

/// A token that says nothing by itself.
const OPAQUE: &str = "opaque-and-revoked";

/// `fondaco dev` with a token for every variable of the cases.
struct Target {
    _process: Process,
    _issuer: Issuer,
    state: tempfile::TempDir,
    authority: String,
    /// When the opaque token was revoked, which was good until then.
    revoked: Instant,
}

async fn start() -> Target {
    let (state, issuer) = (tempfile::tempdir().unwrap(), Issuer::start("").await);
    let tenants = state.path().join("tenants.yaml");
    let asked = format!(
        "issuers: [{{issuer: \"{}\", tenant_claim: tenant, introspection: {{endpoint: \"{}\", client_id: cases, \
         secret: {{env: CASES_SECRET}}}}}}]\ntenants: {{}}\n",
        issuer.url(),
        issuer.introspection(),
    );
    std::fs::write(&tenants, asked).unwrap();
    let mut command = process::fondaco();
    command.args(["dev", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--data-dir"]);
    command.arg(state.path()).arg("--tenants").arg(&tenants).env("CASES_SECRET", "for tests");
    let mut process = Process::start(&mut command);
    let endpoint = process.line("endpoint: ").await;
    let authority = endpoint.strip_prefix("http://").unwrap().strip_suffix("/mcp").unwrap().to_owned();
    let good = json!({
        "active": true, "sub": "alice", "tenant": "demo", "scope": "demo.use", "aud": endpoint,
        "exp": Clock::default().now() + 3600,
    });
    issuer.says(OPAQUE, good);
    let caller =
        Caller { addr: authority.parse().unwrap(), path: "/mcp".to_owned(), token: OPAQUE.to_owned() };
    assert_eq!(caller.rpc("server/discover", json!({})).await.status, 200);
    issuer.says(OPAQUE, json!({"active": false}));
    Target { _process: process, _issuer: issuer, state, authority, revoked: Instant::now() }
}

/// The issuer's own signature under any header.
fn sign(key: &EncodingKey, header: &Header, claims: &Value) -> String {
    jsonwebtoken::encode(header, claims, key).unwrap()
}

fn variables(target: &Target) -> BTreeMap<&'static str, String> {
    let base = format!("http://{}", target.authority);
    let issuer_url = format!("{base}/dev-issuer");
    let issuer = DevIssuer::open(target.state.path(), &issuer_url).unwrap();
    let now = Clock::default().now();
    let good = json!({
        "iss": issuer_url, "sub": "alice", "client_id": "cases", "tenant": "demo", "scope": "demo.use",
        "aud": format!("{base}/mcp"), "iat": now, "exp": now + 3600, "jti": "1",
    });
    let with = |name: &str, value: Value| {
        let mut claims = good.clone();
        claims[name] = value;
        claims
    };
    let pem = std::fs::read(target.state.path().join("dev-issuer.pem")).unwrap();
    let key = EncodingKey::from_ec_pem(&pem).unwrap();
    let public = issuer.jwks()["keys"][0].clone();
    let header = |change: fn(&mut Header)| {
        let mut header = Header::new(Algorithm::ES256);
        header.typ = Some("at+jwt".to_owned());
        header.kid = public["kid"].as_str().map(str::to_owned);
        change(&mut header);
        header
    };
    let confused = {
        let mut header = header(|_| {});
        header.alg = Algorithm::HS256;
        let secret = EncodingKey::from_secret(public.to_string().as_bytes()).unwrap();
        sign(&secret, &header, &good)
    };
    BTreeMap::from([
        ("TOKEN", issuer.mint(&good)),
        ("TOKEN_EXPIRED", issuer.mint(&with("exp", json!(now - 3600)))),
        ("TOKEN_WRONG_AUD", issuer.mint(&with("aud", json!("https://other.example/mcp")))),
        ("TOKEN_OTHER_TENANT", issuer.mint(&with("tenant", json!("other")))),
        ("TOKEN_NO_SCOPE", issuer.mint(&with("scope", json!("")))),
        ("TOKEN_BROAD_SCOPE", issuer.mint(&with("scope", json!("demo.admin")))),
        ("TOKEN_AUD_NUMBER", issuer.mint(&with("aud", json!(5)))),
        ("TOKEN_NBF_FUTURE", issuer.mint(&with("nbf", json!(now + 3600)))),
        ("TOKEN_EXP_STRING", issuer.mint(&with("exp", json!("never")))),
        ("TOKEN_OTHER_ISS", issuer.mint(&with("iss", json!("https://issuer.example")))),
        ("TOKEN_TYP_ID", {
            let claims = with("aud", json!(["cases", format!("{base}/mcp")]));
            sign(&key, &header(|h| h.typ = Some("JWT".to_owned())), &claims)
        }),
        ("TOKEN_UNKNOWN_KID", sign(&key, &header(|h| h.kid = Some("unknown".to_owned())), &good)),
        (
            "TOKEN_JKU",
            sign(
                &key,
                &header(|h| {
                    h.jku = Some("http://127.0.0.1:1/".to_owned());
                    h.kid = Some("theirs".to_owned());
                }),
                &good,
            ),
        ),
        ("TOKEN_CRIT", critical(&pem, &public, &good)),
        ("TOKEN_HS_CONFUSION", confused),
        ("TOKEN_REVOKED", OPAQUE.to_owned()),
        ("ORIGIN_OK", base),
    ])
}

/// A token whose header names a critical parameter that nobody knows, rightly signed.
fn critical(pem: &[u8], public: &Value, claims: &Value) -> String {
    use base64::Engine;
    let encode = |value: &Value| base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(value.to_string());
    let header = json!({"alg": "ES256", "typ": "at+jwt", "kid": public["kid"], "crit": ["exp2"], "exp2": 1});
    let signed = format!("{}.{}", encode(&header), encode(claims));
    let key = EncodingKey::from_ec_pem(pem).unwrap();
    let signature = jsonwebtoken::crypto::sign(signed.as_bytes(), &key, Algorithm::ES256).unwrap();
    format!("{signed}.{signature}")
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// All cases, with the stricter expectations laid over them.
fn cases() -> Vec<Value> {
    let dir = process::root().join("tests/cases");
    let strict: BTreeMap<String, Value> = serde_json::from_str(&read(&dir.join("strict.json"))).unwrap();
    let text = read(&dir.join("badinput.jsonl")) + &read(&dir.join("badinput_raw.jsonl"));
    let mut cases: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let mut unused: Vec<&String> = strict.keys().collect();
    for case in &mut cases {
        let id = case["id"].as_str().unwrap().to_owned();
        for (key, value) in strict.get(&id).and_then(Value::as_object).into_iter().flatten() {
            let loose = &case["expect"][key];
            let narrows =
                loose.is_null() || loose == value || loose.as_array().is_some_and(|all| all.contains(value));
            assert!(narrows, "{id}: strict.json may only choose among the answers of the case");
            case["expect"][key] = value.clone();
        }
        unused.retain(|known| **known != id);
    }
    assert!(unused.is_empty(), "strict.json speaks of unknown cases: {unused:?}");
    cases
}

/// Runs these cases and returns the runner's lines.
async fn send(target: &Target, cases: &[&Value]) -> Vec<String> {
    let vars = target.state.path().join("vars.json");
    std::fs::write(&vars, serde_json::to_string(&variables(target)).unwrap()).unwrap();
    let file = target.state.path().join("cases.jsonl");
    let lines: String = cases.iter().map(|case| format!("{case}\n")).collect();
    std::fs::write(&file, lines).unwrap();
    let mut runner = tokio::process::Command::new("python3");
    runner.arg(process::root().join("tests/cases/run.py")).arg(&target.authority).args([&vars, &file]);
    let output = runner.kill_on_drop(true).output().await.expect("python3 runs the cases");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(said.contains(" passed, "), "{said}{}", String::from_utf8_lossy(&output.stderr));
    said.lines().map(str::to_owned).collect()
}

#[tokio::test]
async fn every_wrong_request_gets_the_one_right_answer() {
    let target = start().await;
    let cases = cases();
    // A token that was revoked is good for as long as its issuer's word counts.
    let (revoked, others): (Vec<&Value>, Vec<&Value>) = cases
        .iter()
        .partition(|case| case["needs"].as_array().is_some_and(|all| all.contains(&json!("TOKEN_REVOKED"))));
    assert_eq!(revoked.len(), 1);
    for some in [others, revoked] {
        let said = send(&target, &some).await;
        let expected = format!("{} passed, 0 failed, 0 skipped", some.len());
        assert_eq!(said.last(), Some(&expected), "{said:#?}");
        tokio::time::sleep_until(target.revoked + Limits::default().introspection_time).await;
    }
}
