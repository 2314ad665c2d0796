//! JWTs as access tokens (RFC 9068): read strictly, believed only after their signature.
//!
//! Of the header, `typ`, `alg`, `kid` and `crit` are read. `jku`, `x5u`, `jwk` and `x5c` are
//! never: a token does not say where its own key is.

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::Algorithm;
use jsonwebtoken::DecodingKey;
use serde::Deserialize;
use serde::Deserializer;
use serde::de::Error;
use serde::de::MapAccess;
use serde::de::Visitor;
use serde_json::Map;
use serde_json::Value;

use crate::auth::error::Reason;
use crate::model::endpoint::Issuer;

/// A JWT whose parts were read. Nothing in it is proven until [`Token::verify`] says so.
pub(super) struct Token<'a> {
    signed: &'a str,
    signature: &'a str,
    header: Object,
    /// The claims.
    pub claims: Object,
}

/// A JSON object without duplicate members.
pub(super) struct Object(Map<String, Value>);

impl<'a> Token<'a> {
    /// Reads a JWS in compact form that says it is an access token.
    pub fn parse(text: &'a str) -> Result<Self, Reason> {
        let (signed, signature) = text.rsplit_once('.').ok_or(Reason::Malformed)?;
        let (header, claims) = signed.split_once('.').ok_or(Reason::Malformed)?;
        let token = Self { signed, signature, header: Object::part(header)?, claims: Object::part(claims)? };
        // RFC 7515, section 4.1.11: what is critical and not known is refused. We know none.
        if token.header.0.contains_key("crit") {
            return Err(Reason::Critical);
        }
        let typ = token.header.0.get("typ").and_then(Value::as_str).ok_or(Reason::Type)?;
        let access = ["at+jwt", "application/at+jwt"].iter().any(|t| typ.eq_ignore_ascii_case(t));
        if access { Ok(token) } else { Err(Reason::Type) }
    }

    /// Which issuer a text names that may be a JWT, or was one; nothing else about it is looked at.
    pub fn issuer(text: &str) -> Option<String> {
        let claims = URL_SAFE_NO_PAD.decode(text.split('.').nth(1)?).ok()?;
        let claims = serde_json::Deserializer::from_slice(&claims).into_iter::<Value>().next()?.ok()?;
        claims.get("iss")?.as_str().map(str::to_owned)
    }

    /// The algorithm, if it is one that `issuer` may sign with. Only asymmetric ones ever are.
    pub fn algorithm(&self, issuer: &Issuer) -> Result<Algorithm, Reason> {
        let name = self.header.0.get("alg").and_then(Value::as_str).ok_or(Reason::Malformed)?;
        if !issuer.algorithms.iter().any(|a| **a == *name) {
            return Err(Reason::Algorithm);
        }
        match name.parse().map_err(|_| Reason::Algorithm)? {
            Algorithm::HS256 | Algorithm::HS384 | Algorithm::HS512 => Err(Reason::Algorithm),
            algorithm => Ok(algorithm),
        }
    }

    /// The key's id, if the token names one.
    pub fn key_id(&self) -> Result<Option<&str>, Reason> {
        match self.header.0.get("kid") {
            None => Ok(None),
            Some(Value::String(id)) => Ok(Some(id)),
            Some(_) => Err(Reason::Malformed),
        }
    }

    /// Proves that `key` signed this token.
    pub fn verify(&self, key: &DecodingKey, algorithm: Algorithm) -> Result<(), Reason> {
        let proven = jsonwebtoken::crypto::verify(self.signature, self.signed.as_bytes(), key, algorithm);
        if proven.unwrap_or(false) { Ok(()) } else { Err(Reason::Signature) }
    }
}

impl Object {
    fn part(text: &str) -> Result<Self, Reason> {
        let bytes = URL_SAFE_NO_PAD.decode(text).map_err(|_| Reason::Malformed)?;
        serde_json::from_slice(&bytes).map_err(|_| Reason::Malformed)
    }

    /// Says `text` where nothing else is said under this name.
    pub fn or_insert(&mut self, name: &str, text: &str) {
        self.0.entry(name).or_insert_with(|| Value::from(text));
    }

    /// The member of this name.
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.0.get(name)
    }

    /// The string of this name.
    pub fn text(&self, name: &'static str) -> Result<Option<&str>, Reason> {
        match self.0.get(name) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(_) => Err(Reason::Mistyped(name)),
        }
    }

    /// The NumericDate of this name, in whole seconds.
    pub fn time(&self, name: &'static str) -> Result<Option<u64>, Reason> {
        let Some(value) = self.0.get(name) else { return Ok(None) };
        let whole = value.as_u64();
        // Fractions are allowed; what is before 1970, or after all time, saturates.
        let seconds = whole.or_else(|| value.as_f64().map(|fraction| fraction as u64));
        seconds.map(Some).ok_or(Reason::Mistyped(name))
    }
}

impl<'de> Deserialize<'de> for Object {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Members)
    }
}

struct Members;

impl<'de> Visitor<'de> for Members {
    type Value = Object;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Object, A::Error> {
        let mut members = Map::new();
        while let Some((name, value)) = access.next_entry::<String, Value>()? {
            if members.insert(name, value).is_some() {
                return Err(A::Error::custom("a member is there twice"));
            }
        }
        Ok(Object(members))
    }
}
