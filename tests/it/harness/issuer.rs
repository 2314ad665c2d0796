//! An authorization server in this process, which can also make every forged token.
//!
//! ```ignore
//! let issuer = Issuer::start("/as").await;            // http://127.0.0.1:<port>/as
//! let good = issuer.token("https://gw.example/mcp", now);
//! let odd = issuer.mint(&issuer.header(Signer::Rsa), &claims, Signer::Stranger);
//! for (name, token) in issuer.forgeries("https://gw.example/mcp", now) { /* all refused */ }
//! ```
//!
//! - It serves RFC 8414 metadata and a JWK set with one EC (ES256) and one RSA (RS256) key over
//!   loopback HTTP, counts what is fetched, and ends when it is dropped.
//! - A good token's claims are [`Issuer::claims`]: change one member and mint again. Trust the
//!   issuer with the algorithms `ES256` and `RS256` and the tenant claim `tenant` (`acme`).
//! - [`Issuer::behave`] makes it fail, hang, lie or flood, in metadata and keys alike.
//! - [`Issuer::rotate`] replaces its keys; tokens minted before are then signed with unknown ones.
//! - [`Issuer::says`] is what its introspection endpoint says of an opaque token; [`Issuer::questions`] what
//!   it was asked.
//! - The RSA key is one for the whole process (making one takes long); EC keys are never shared.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::LazyLock;
use std::sync::Mutex;
use std::sync::MutexGuard;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering;

use aws_lc_rs::encoding::AsDer;
use aws_lc_rs::rsa;
use aws_lc_rs::signature::ECDSA_P256_SHA256_FIXED_SIGNING;
use aws_lc_rs::signature::EcdsaKeyPair;
use aws_lc_rs::signature::KeyPair;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream;
use http_body_util::BodyExt;
use http_body_util::Full;
use http_body_util::StreamBody;
use http_body_util::combinators::UnsyncBoxBody;
use hyper::Request;
use hyper::Response;
use hyper::body::Frame;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use jsonwebtoken::Algorithm;
use jsonwebtoken::EncodingKey;
use jsonwebtoken::jwk::Jwk;
use serde_json::Value;
use serde_json::json;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio::task::JoinSet;

/// An authorization server on loopback. Dropping it closes its socket and its connections.
pub struct Issuer {
    shared: Arc<Shared>,
    serving: JoinHandle<()>,
}

/// With what a token is signed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signer {
    /// The published EC key.
    Ec,
    /// The published RSA key.
    Rsa,
    /// An EC key that was never published.
    Stranger,
    /// HMAC with the published RSA key, as PEM text, for its secret.
    RsaAsSecret,
    /// Nothing: an empty signature.
    Nobody,
}

/// How the server answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Behaviour {
    /// As it should.
    Serve,
    /// As it should, with metadata at OpenID Connect's place alone.
    OpenId,
    /// With this status.
    Status(u16),
    /// Never.
    Hang,
    /// With the metadata of an issuer of another name.
    OtherIssuer,
    /// With 50 MB, in chunks.
    Flood,
    /// With what is not JSON.
    Garbage,
    /// As it should, with all its keys withdrawn.
    Withdrawn,
}

struct Shared {
    url: String,
    path: String,
    now: Mutex<Now>,
    stranger: EncodingKey,
    metadata_fetches: AtomicUsize,
    key_fetches: AtomicUsize,
    answers: Mutex<HashMap<String, String>>,
    questions: Mutex<Vec<Question>>,
}

/// What the introspection endpoint was asked.
#[derive(Clone, Debug)]
pub struct Question {
    /// The `Authorization` header.
    pub authorization: String,
    /// The form.
    pub form: HashMap<String, String>,
}

struct Now {
    behaviour: Behaviour,
    generation: usize,
    ec: EncodingKey,
}

struct Rsa {
    key: EncodingKey,
    public_pem: String,
}

static RSA: LazyLock<Rsa> = LazyLock::new(|| {
    let pair = rsa::KeyPair::generate(rsa::KeySize::Rsa2048).expect("an RSA key");
    let private = pair.as_der().expect("the RSA key as DER");
    let public = pair.public_key().as_der().expect("the public RSA key as DER");
    let pem = pem("PRIVATE KEY", private.as_ref());
    let key = EncodingKey::from_rsa_pem(pem.as_bytes()).expect("the RSA key read back");
    Rsa { key, public_pem: self::pem("PUBLIC KEY", public.as_ref()) }
});

impl Issuer {
    /// Starts an issuer whose URL has this path (`""` or `"/…"`).
    pub async fn start(path: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a loopback port");
        let address = listener.local_addr().expect("a bound socket has an address");
        let shared = Arc::new(Shared {
            url: format!("http://{address}{path}"),
            path: path.to_owned(),
            now: Mutex::new(Now { behaviour: Behaviour::Serve, generation: 1, ec: ec_key() }),
            stranger: ec_key(),
            metadata_fetches: AtomicUsize::new(0),
            key_fetches: AtomicUsize::new(0),
            answers: Mutex::default(),
            questions: Mutex::default(),
        });
        let serving = tokio::spawn(serve(listener, shared.clone()));
        Self { shared, serving }
    }

    /// The issuer identifier.
    pub fn url(&self) -> &str {
        &self.shared.url
    }

    /// Where its keys are.
    pub fn jwks_uri(&self) -> String {
        format!("{}/jwks", self.shared.url)
    }

    /// From now on it answers so.
    pub fn behave(&self, behaviour: Behaviour) {
        self.shared.now().behaviour = behaviour;
    }

    /// Where it is asked about tokens.
    pub fn introspection(&self) -> String {
        format!("{}/introspect", self.shared.url)
    }

    /// From now on it says this text of a token; of any other, that it is not active.
    pub fn says(&self, token: &str, answer: impl ToString) {
        self.shared.answers.lock().unwrap().insert(token.to_owned(), answer.to_string());
    }

    /// What it was asked so far.
    pub fn questions(&self) -> Vec<Question> {
        self.shared.questions.lock().unwrap().clone()
    }

    /// Replaces its keys, and their ids.
    pub fn rotate(&self) {
        let mut now = self.shared.now();
        now.generation += 1;
        now.ec = ec_key();
    }

    /// How often metadata was asked for, at any place.
    pub fn metadata_fetches(&self) -> usize {
        self.shared.metadata_fetches.load(Ordering::SeqCst)
    }

    /// How often keys were asked for.
    pub fn key_fetches(&self) -> usize {
        self.shared.key_fetches.load(Ordering::SeqCst)
    }

    /// The claims of a good token of `alice` at tenant `acme`, good for five minutes.
    pub fn claims(&self, audience: &str, now: u64) -> Value {
        json!({
            "iss": self.url(), "sub": "alice", "client_id": "test-client", "tenant": "acme",
            "scope": "demo.use", "aud": audience, "iat": now, "exp": now + 300, "jti": "1",
        })
    }

    /// The header of a good token by `signer`; of those that forge, of the token they imitate.
    pub fn header(&self, signer: Signer) -> Value {
        let generation = self.shared.now().generation;
        let (alg, key) = match signer {
            Signer::Ec | Signer::Stranger => ("ES256", "ec"),
            Signer::Rsa => ("RS256", "rsa"),
            Signer::RsaAsSecret => ("HS256", "rsa"),
            Signer::Nobody => ("none", "ec"),
        };
        json!({"alg": alg, "typ": "at+jwt", "kid": format!("{key}-{generation}")})
    }

    /// Signs whatever it is given: `alg` of the header does not choose the key, `signer` does.
    pub fn mint(&self, header: &Value, claims: &Value, signer: Signer) -> String {
        self.mint_text(&header.to_string(), &claims.to_string(), signer)
    }

    /// Like [`Issuer::mint`], for what is no JSON value: duplicate members, broken text.
    pub fn mint_text(&self, header: &str, claims: &str, signer: Signer) -> String {
        let message = format!("{}.{}", URL_SAFE_NO_PAD.encode(header), URL_SAFE_NO_PAD.encode(claims));
        let sign = |key: &EncodingKey, algorithm| {
            jsonwebtoken::crypto::sign(message.as_bytes(), key, algorithm).expect("a signature")
        };
        let signature = match signer {
            Signer::Ec => sign(&self.shared.now().ec, Algorithm::ES256),
            Signer::Rsa => sign(&RSA.key, Algorithm::RS256),
            Signer::Stranger => sign(&self.shared.stranger, Algorithm::ES256),
            Signer::RsaAsSecret => {
                let secret = EncodingKey::from_secret(RSA.public_pem.as_bytes()).expect("a secret");
                sign(&secret, Algorithm::HS256)
            }
            Signer::Nobody => String::new(),
        };
        format!("{message}.{signature}")
    }

    /// A good token.
    pub fn token(&self, audience: &str, now: u64) -> String {
        self.mint(&self.header(Signer::Ec), &self.claims(audience, now), Signer::Ec)
    }

    /// Tokens that are good but for one thing, which their name says.
    pub fn forgeries(&self, audience: &str, now: u64) -> Vec<(String, String)> {
        let mut forged = self.forged_headers(audience, now);
        forged.extend(self.forged_claims(audience, now));
        forged.extend(self.forged_texts(audience, now));
        forged
    }

    fn forged_headers(&self, audience: &str, now: u64) -> Vec<(String, String)> {
        let claims = self.claims(audience, now);
        let stranger = public(&self.shared.stranger, "stranger");
        let changes = [
            (Signer::Nobody, json!({})),
            (Signer::Nobody, json!({"alg": "None"})),
            (Signer::Ec, json!({"alg": "none"})),
            (Signer::RsaAsSecret, json!({})),
            (Signer::RsaAsSecret, json!({"alg": "RS256"})),
            (Signer::Ec, json!({"alg": "RS256"})),
            (Signer::Ec, json!({"alg": "ES384"})),
            (Signer::Ec, json!({"alg": null})),
            (Signer::Rsa, json!({"alg": "PS256"})),
            (Signer::Rsa, json!({"alg": "ES256"})),
            (Signer::Stranger, json!({})),
            (Signer::Stranger, json!({"jwk": stranger})),
            (Signer::Stranger, json!({"kid": "stranger", "jku": "http://127.0.0.1:1/"})),
            (Signer::Stranger, json!({"kid": "stranger", "x5u": "http://127.0.0.1:1/", "x5c": ["AA"]})),
            (Signer::Ec, json!({"kid": "unknown"})),
            (Signer::Ec, json!({"kid": 7})),
            (Signer::Ec, json!({"kid": null})),
            (Signer::Ec, json!({"typ": "JWT"})),
            (Signer::Ec, json!({"typ": "at+jwt; x"})),
            (Signer::Ec, json!({"typ": null})),
            (Signer::Ec, json!({"crit": ["x"], "x": 1})),
            (Signer::Ec, json!({"crit": null})),
        ];
        let forge = |(signer, change): &(Signer, Value)| {
            let header = changed(self.header(*signer), change);
            (format!("{signer:?} with header {change}"), self.mint(&header, &claims, *signer))
        };
        changes.iter().map(forge).collect()
    }

    fn forged_claims(&self, audience: &str, now: u64) -> Vec<(String, String)> {
        let changes = [
            json!({"exp": "never"}),
            json!({"exp": null}),
            json!({"exp": now - 31}),
            json!({"exp": -1}),
            json!({"aud": 7}),
            json!({"aud": null}),
            json!({"aud": []}),
            json!({"aud": [audience, 7]}),
            json!({"aud": format!("{audience}/")}),
            json!({"aud": "https://other.example/mcp"}),
            json!({"iss": null}),
            json!({"iss": [self.url()]}),
            json!({"iss": format!("{}/", self.url())}),
            json!({"iss": "https://other.example"}),
            json!({"sub": null}),
            json!({"sub": ""}),
            json!({"sub": 7}),
            json!({"nbf": now + 3600}),
            json!({"nbf": "now"}),
            json!({"iat": now + 3600}),
            json!({"scope": ["demo.use"]}),
            json!({"client_id": 7}),
            json!({"tenant": null}),
            json!({"tenant": ["acme"]}),
            json!({"tenant": "Not A Tenant"}),
        ];
        let header = self.header(Signer::Ec);
        let forge = |change: &Value| {
            let claims = changed(self.claims(audience, now), change);
            (format!("claims {change}"), self.mint(&header, &claims, Signer::Ec))
        };
        let removed = ["exp", "aud", "iss", "sub", "tenant"].iter().map(|name| {
            let mut claims = self.claims(audience, now);
            claims.as_object_mut().expect("an object").shift_remove(*name);
            (format!("without {name}"), self.mint(&header, &claims, Signer::Ec))
        });
        changes.iter().map(forge).chain(removed).collect()
    }

    fn forged_texts(&self, audience: &str, now: u64) -> Vec<(String, String)> {
        let header = self.header(Signer::Ec).to_string();
        let claims = self.claims(audience, now).to_string();
        let good = self.mint_text(&header, &claims, Signer::Ec);
        let (signed, signature) = good.rsplit_once('.').expect("three parts");
        let (head, body) = signed.split_once('.').expect("two parts");
        let twice = |text: &str, member: &str| format!("{{{member},{}", &text[1..]);
        let admin = URL_SAFE_NO_PAD.encode(claims.replace("alice", "admin"));
        let texts = [
            ("claims changed after signing", format!("{head}.{admin}.{signature}")),
            ("signature cut", good[..good.len() - 8].to_owned()),
            ("no signature", format!("{signed}.")),
            ("two parts", signed.to_owned()),
            ("four parts", format!("{good}.{signature}")),
            ("a JWE's five parts", format!("{head}.{body}.{body}.{body}.{signature}")),
            ("padding", format!("{head}=.{body}.{signature}")),
            ("no JWT", "not-a-token".to_owned()),
            ("aud twice", self.mint_text(&header, &twice(&claims, r#""aud":"x""#), Signer::Ec)),
            ("alg twice", self.mint_text(&twice(&header, r#""alg":"none""#), &claims, Signer::Ec)),
            ("header is an array", self.mint_text(r#"["ES256","at+jwt"]"#, &claims, Signer::Ec)),
            ("claims are an array", self.mint_text(&header, "[]", Signer::Ec)),
            ("claims are followed by more", self.mint_text(&header, &format!("{claims}{{}}"), Signer::Ec)),
        ];
        texts.into_iter().map(|(name, token)| (name.to_owned(), token)).collect()
    }
}

impl Drop for Issuer {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

impl Shared {
    fn now(&self) -> MutexGuard<'_, Now> {
        self.now.lock().expect("nobody panicked while holding it")
    }

    async fn introspect(&self, request: Request<Incoming>) -> String {
        let all = request.headers().get_all("authorization");
        let authorization = all.iter().map(|value| value.to_str().unwrap()).collect::<Vec<_>>().join(", ");
        let body = request.into_body().collect().await.unwrap().to_bytes();
        let form: HashMap<_, _> = url::form_urlencoded::parse(&body).into_owned().collect();
        let answer = self.answers.lock().unwrap().get(&form["token"]).cloned();
        self.questions.lock().unwrap().push(Question { authorization, form });
        answer.unwrap_or_else(|| json!({"active": false}).to_string())
    }

    async fn answer(&self, request: Request<Incoming>) -> Response<UnsyncBoxBody<Bytes, Infallible>> {
        let path = request.uri().path().to_owned();
        let behaviour = self.now().behaviour;
        if path == format!("{}/introspect", self.path) {
            let answer = self.introspect(request).await;
            return match behaviour {
                Behaviour::Status(status) => document(status, &json!({"active": true})),
                Behaviour::Hang => std::future::pending().await,
                Behaviour::Garbage => document(200, &json!("<html>")),
                Behaviour::Flood => flood(),
                Behaviour::Serve | Behaviour::OpenId | Behaviour::OtherIssuer | Behaviour::Withdrawn => {
                    Response::new(Full::new(Bytes::from(answer)).boxed_unsync())
                }
            };
        }
        let openid = path == format!("{}/.well-known/openid-configuration", self.path);
        let oauth = path == format!("/.well-known/oauth-authorization-server{}", self.path);
        let keys = path == format!("{}/jwks", self.path);
        let fetches = if keys { &self.key_fetches } else { &self.metadata_fetches };
        fetches.fetch_add(1, Ordering::SeqCst);
        match behaviour {
            Behaviour::Status(status) => return document(status, &Value::Null),
            Behaviour::Hang => std::future::pending().await,
            Behaviour::Garbage => return document(200, &json!("<html>")),
            Behaviour::Flood => return flood(),
            Behaviour::Serve | Behaviour::OpenId | Behaviour::OtherIssuer | Behaviour::Withdrawn => {}
        }
        let metadata = if behaviour == Behaviour::OpenId { openid } else { oauth };
        if keys && behaviour == Behaviour::Withdrawn {
            document(200, &json!({"keys": []}))
        } else if keys {
            document(200, &self.jwks())
        } else if metadata {
            let lie = if behaviour == Behaviour::OtherIssuer { "/" } else { "" };
            let issuer = format!("{}{lie}", self.url);
            document(200, &json!({"issuer": issuer, "jwks_uri": format!("{}/jwks", self.url)}))
        } else {
            document(404, &Value::Null)
        }
    }

    fn jwks(&self) -> Value {
        let now = self.now();
        let (ec, rsa) = (format!("ec-{}", now.generation), format!("rsa-{}", now.generation));
        json!({"keys": [public(&now.ec, &ec), public(&RSA.key, &rsa)]})
    }
}

async fn serve(listener: TcpListener, shared: Arc<Shared>) {
    // Dropped with this future, and every connection with it.
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        let shared = shared.clone();
        connections.spawn(async move {
            let service = service_fn(|request: Request<Incoming>| {
                let shared = shared.clone();
                async move { Ok::<_, Infallible>(shared.answer(request).await) }
            });
            // A client that leaves early is no failure of the issuer's.
            http1::Builder::new().serve_connection(TokioIo::new(stream), service).await.ok();
        });
        while connections.try_join_next().is_some() {}
    }
}

fn document(status: u16, body: &Value) -> Response<UnsyncBoxBody<Bytes, Infallible>> {
    let body = Full::new(Bytes::from(body.to_string())).boxed_unsync();
    let response = Response::builder().status(status).header("content-type", "application/json");
    response.body(body).expect("a valid status")
}

fn flood() -> Response<UnsyncBoxBody<Bytes, Infallible>> {
    let chunk = Bytes::from_static(&[b' '; 64 << 10]);
    let frames = stream::repeat_with(move || Ok(Frame::data(chunk.clone()))).take(800);
    Response::new(StreamBody::new(frames).boxed_unsync())
}

fn ec_key() -> EncodingKey {
    let random = aws_lc_rs::rand::SystemRandom::new();
    let der = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &random).expect("an EC key");
    EncodingKey::from_ec_pem(pem("PRIVATE KEY", der.as_ref()).as_bytes()).expect("the EC key read back")
}

fn public(key: &EncodingKey, id: &str) -> Value {
    let algorithm =
        if key.family() == Algorithm::RS256.family() { Algorithm::RS256 } else { Algorithm::ES256 };
    let mut jwk = Jwk::from_encoding_key(key, algorithm).expect("the public part of a key");
    jwk.common.key_id = Some(id.to_owned());
    json!(jwk)
}

fn pem(label: &str, der: &[u8]) -> String {
    format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", STANDARD.encode(der))
}

fn changed(mut value: Value, change: &Value) -> Value {
    let members = value.as_object_mut().expect("an object");
    members.extend(change.as_object().expect("an object").clone());
    value
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::time::Duration;

    use bytes::Bytes;
    use http_body_util::BodyExt;
    use http_body_util::Full;
    use hyper_util::client::legacy::Client;
    use hyper_util::rt::TokioExecutor;

    use super::Behaviour;
    use super::Issuer;
    use super::Signer;

    async fn get(url: &str) -> (u16, Bytes) {
        let client = Client::builder(TokioExecutor::new()).build_http::<Full<Bytes>>();
        let response = client.get(url.parse().expect("a URL")).await.expect("an answer");
        let status = response.status().as_u16();
        (status, response.into_body().collect().await.expect("a body").to_bytes())
    }

    #[tokio::test]
    async fn the_test_issuer_behaves_as_it_is_told() {
        let issuer = Issuer::start("/as").await;
        let authority = issuer.url().trim_end_matches("/as");
        let oauth = format!("{authority}/.well-known/oauth-authorization-server/as");
        let openid = format!("{}/.well-known/openid-configuration", issuer.url());
        let statuses = [
            (Behaviour::Serve, [200, 404, 200]),
            (Behaviour::OpenId, [404, 200, 200]),
            (Behaviour::OtherIssuer, [200, 404, 200]),
            (Behaviour::Status(503), [503; 3]),
            (Behaviour::Garbage, [200; 3]),
            (Behaviour::Flood, [200; 3]),
        ];
        for (behaviour, expected) in statuses {
            issuer.behave(behaviour);
            let got = [get(&oauth).await, get(&openid).await, get(&issuer.jwks_uri()).await];
            assert_eq!(got.each_ref().map(|(status, _)| *status), expected, "{behaviour:?}");
            let flooded = got[2].1.len() == 50 << 20;
            assert_eq!(flooded, behaviour == Behaviour::Flood);
        }
        assert_eq!((issuer.metadata_fetches(), issuer.key_fetches()), (12, 6));

        issuer.behave(Behaviour::Hang);
        let answer = tokio::time::timeout(Duration::from_millis(50), get(&oauth)).await;
        assert!(answer.is_err());
        issuer.behave(Behaviour::Serve);
        let before = get(&issuer.jwks_uri()).await;
        issuer.rotate();
        assert_ne!(before, get(&issuer.jwks_uri()).await);
    }

    #[tokio::test]
    async fn every_forgery_is_another_token_than_the_good_one() {
        let issuer = Issuer::start("").await;
        let forged = issuer.forgeries("https://gw.example/mcp", 1_000_000);
        let mut tokens: HashSet<_> = forged.iter().map(|(_, token)| token.clone()).collect();
        tokens.insert(issuer.token("https://gw.example/mcp", 1_000_000));
        assert_eq!(tokens.len(), forged.len() + 1);
        assert!(forged.iter().any(|(name, _)| name.starts_with(&format!("{:?}", Signer::Rsa))));
    }
}
