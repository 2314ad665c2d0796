//! Opaque tokens: their issuer is asked what they are, and believed for a moment.
//!
//! An answer counts for one token at one endpoint. A token that is good is asked about again after
//! `limits.introspection_time` at the latest, so that one that was revoked is not good for longer; one that
//! is not, after a few seconds. Who cannot be asked vouches for nobody.
//!
//! spec: RFC 7662

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::HeaderValue;
use http::Request;
use http::header;
use http_body_util::Full;
use moka::Expiry;
use moka::future::Cache;
use secrecy::ExposeSecret;
use url::form_urlencoded;
use zeroize::Zeroizing;

use crate::auth::claims;
use crate::auth::error::AuthError;
use crate::auth::error::Reason;
use crate::auth::jwt::Object;
use crate::auth::weight;
use crate::egress::Egress;
use crate::egress::error::EgressError;
use crate::model::caller::Caller;
use crate::model::clock::Clock;
use crate::model::endpoint::Endpoint;
use crate::model::endpoint::Introspection;
use crate::model::endpoint::Issuer;
use crate::model::endpoint::Trust;
use crate::model::limits::Limits;
use crate::model::tally::Tally;
use crate::telemetry::metrics::Metrics;
use crate::telemetry::metrics::Outcome;

/// How long a token that is not good is not asked about again.
const REFUSED_TIME: Duration = Duration::from_secs(5);

/// When it is worth asking again who could not be asked.
const RETRY_TIME: Duration = Duration::from_secs(1);

/// One issuer's part of all questions at a time.
const PART: usize = 16;

/// How long a token that was good is known as one, to be asked about before those that nobody knows.
const KNOWN_TIME: Duration = Duration::from_secs(60 * 60);

/// Why an issuer was not asked, or its answer is none. For the log: nothing of a token is in it.
#[derive(Clone, Debug, thiserror::Error)]
pub enum IntrospectionError {
    /// As many questions as may be are on their way.
    #[error("too many tokens are being asked about")]
    Busy,
    /// The gateway's own credential.
    #[error("the secret that the issuer is asked with cannot be read")]
    NoSecret,
    /// No answer, or none that counts.
    #[error("its introspection endpoint: {0}")]
    Asked(#[from] EgressError),
    /// An answer that says nothing.
    #[error("its introspection endpoint does not say whether the token is active")]
    NoAnswer,
}

/// Asks issuers about tokens.
pub(super) struct Introspector {
    egress: Egress,
    clock: Clock,
    limits: Arc<Limits>,
    metrics: Arc<Metrics>,
    answers: Cache<[u8; 32], Answer>,
    /// Tokens that were good lately, which says nothing about now.
    known: moka::sync::Cache<[u8; 32], ()>,
    flights: Arc<Tally<Arc<Issuer>>>,
    /// Who could not be asked the last time.
    away: Mutex<HashSet<Arc<Issuer>>>,
}

/// What an issuer says of a token, and for how long that counts.
#[derive(Clone)]
struct Answer {
    verdict: Result<Arc<Caller>, Reason>,
    time: Duration,
}

struct Times;

#[expect(clippy::disallowed_types, reason = "the cache's own clock")]
impl Expiry<[u8; 32], Answer> for Times {
    fn expire_after_create(&self, _: &[u8; 32], answer: &Answer, _: std::time::Instant) -> Option<Duration> {
        Some(answer.time)
    }
}

impl Introspector {
    pub fn new(egress: Egress, clock: Clock, limits: &Limits, metrics: Arc<Metrics>) -> Self {
        let answers = Cache::builder()
            .weigher(|_, answer: &Answer| answer.verdict.as_ref().map_or(1, |caller| weight(caller)))
            .max_capacity(limits.token_cache as u64)
            .expire_after(Times)
            .build();
        let known = moka::sync::Cache::builder()
            .max_capacity(limits.token_cache as u64)
            .time_to_live(KNOWN_TIME)
            .build();
        let (limits, flights) = (Arc::new(limits.clone()), Arc::default());
        Self { egress, clock, limits, metrics, answers, known, flights, away: Mutex::default() }
    }

    /// Who sends `token`, which `digest` names at this endpoint. Many who send the same wait for one answer.
    ///
    /// # Cancel safety
    /// Dropping the future ends the question unless others wait for it.
    pub async fn caller(
        &self,
        token: &str,
        digest: [u8; 32],
        (trust, introspection): (&Trust, &Introspection),
        endpoint: &Endpoint,
    ) -> Result<Arc<Caller>, AuthError> {
        if let Some(known) = self.answers.get(&digest).await {
            self.metrics.auth.token_cache(true);
            return Ok(known.verdict?);
        }
        self.metrics.auth.token_cache(false);
        let most = self.part(self.known.contains_key(&digest));
        let asking = self.ask(token, (trust, introspection), endpoint, most);
        match self.answers.try_get_with(digest, asking).await {
            Ok(answer) => {
                if answer.verdict.is_ok() {
                    self.known.insert(digest, ());
                }
                Ok(answer.verdict?)
            }
            Err(cause) => Err(AuthError::IntrospectionUnavailable { retry_after: RETRY_TIME, cause }),
        }
    }

    /// How many questions an issuer may be asked at a time, so that there is one more. Anybody may send what
    /// looks like a token: those that were good lately have a quarter for themselves.
    fn part(&self, is_known: bool) -> usize {
        let part = self.limits.introspections.div_ceil(PART);
        if is_known { part } else { part - part / 4 }
    }

    /// Forgets who is not asked any more.
    pub fn forget_unused(&self, live: &HashSet<Arc<Issuer>>) {
        self.away.lock().unwrap_or_else(PoisonError::into_inner).retain(|issuer| live.contains(issuer));
    }

    async fn ask(
        &self,
        token: &str,
        (trust, introspection): (&Trust, &Introspection),
        endpoint: &Endpoint,
        part: usize,
    ) -> Result<Answer, IntrospectionError> {
        let most = self.limits.introspections;
        let _counted = self.flights.take(trust.issuer.clone(), part, most).ok_or(IntrospectionError::Busy)?;
        let request = request(token, introspection)?;
        let answer = self.egress.ask(request, self.limits.issuer_bytes, self.limits.issuer_time).await;
        let read = answer.map_err(IntrospectionError::from).and_then(|answer| {
            let answer: Object = serde_json::from_slice(&answer).map_err(|_| IntrospectionError::NoAnswer)?;
            self.judge(answer, trust, endpoint)
        });
        self.note(&trust.issuer, read.as_ref().err());
        read
    }

    fn judge(
        &self,
        answer: Object,
        trust: &Trust,
        endpoint: &Endpoint,
    ) -> Result<Answer, IntrospectionError> {
        let is_active = answer.get("active").and_then(serde_json::Value::as_bool);
        let now = self.clock.now();
        let verdict = match is_active.ok_or(IntrospectionError::NoAnswer)? {
            false => Err(Reason::Inactive),
            true => caller(answer, trust, endpoint, now).map(Arc::new),
        };
        let time = match &verdict {
            Ok(caller) => {
                let left = Duration::from_secs(caller.expires_at.saturating_sub(now));
                self.limits.introspection_time.min(left)
            }
            Err(_) => REFUSED_TIME,
        };
        Ok(Answer { verdict, time })
    }

    /// Says once that an issuer cannot be asked, and once that it can be again.
    fn note(&self, issuer: &Arc<Issuer>, error: Option<&IntrospectionError>) {
        let is_late = matches!(error, Some(IntrospectionError::Asked(EgressError::TooSlow(_))));
        self.metrics.auth.introspection(match error {
            None => Outcome::Ok,
            Some(_) if is_late => Outcome::TimedOut,
            Some(_) => Outcome::Failed,
        });
        let mut away = self.away.lock().unwrap_or_else(PoisonError::into_inner);
        let (url, owner) = (&issuer.url, &issuer.owner);
        match error {
            Some(error) if away.insert(issuer.clone()) => {
                tracing::warn!(issuer = %url, ?owner, %error, "an issuer cannot be asked about its tokens");
            }
            None if away.remove(issuer) => {
                tracing::info!(issuer = %url, ?owner, "an issuer can be asked about its tokens again");
            }
            Some(_) | None => {}
        }
    }
}

/// The caller that an active token makes. An answer without `iss` is of the issuer that was asked.
fn caller(mut answer: Object, trust: &Trust, endpoint: &Endpoint, now: u64) -> Result<Caller, Reason> {
    // A refresh token is active, too, and nobody's access.
    let kind = answer.text("token_type")?;
    let is_access = |kind: &str| ["bearer", "access_token"].iter().any(|of| kind.eq_ignore_ascii_case(of));
    if !kind.is_none_or(is_access) {
        return Err(Reason::Type);
    }
    answer.or_insert("iss", &trust.issuer.url);
    // What a machine does for itself it does as its client (RFC 9068, section 2.2).
    if let Some(client) = answer.text("client_id")?.map(str::to_owned) {
        answer.or_insert("sub", &client);
    }
    claims::caller(&answer, trust, endpoint, now)
}

/// spec: RFC 7662, section 2.1; RFC 6749, section 2.3.1
fn request(token: &str, introspection: &Introspection) -> Result<Request<Full<Bytes>>, IntrospectionError> {
    let secret = introspection.secret.get().ok_or(IntrospectionError::NoSecret)?;
    let encoded = |text: &str| form_urlencoded::byte_serialize(text.as_bytes()).collect::<String>();
    let id = encoded(&introspection.client_id);
    let pair = Zeroizing::new(format!("{id}:{}", encoded(secret.value.expose_secret())));
    let basic = Zeroizing::new(format!("Basic {}", STANDARD.encode(pair.as_bytes())));
    let mut basic = HeaderValue::from_str(&basic).map_err(|_| IntrospectionError::NoSecret)?;
    basic.set_sensitive(true);
    let body = form_urlencoded::Serializer::new(String::new())
        .append_pair("token", token)
        .append_pair("token_type_hint", "access_token")
        .finish();
    Request::post(&*introspection.endpoint)
        .header(header::AUTHORIZATION, basic)
        .header(header::CONTENT_TYPE, "application/x-www-form-urlencoded")
        .body(Full::from(body))
        .map_err(|_| EgressError::BadUrl("it is not a URL of HTTP").into())
}
