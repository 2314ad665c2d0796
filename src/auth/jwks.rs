//! The keys of an issuer: which of a JWK set we take, and which of them may verify what.

use jsonwebtoken::Algorithm;
use jsonwebtoken::DecodingKey;
use jsonwebtoken::jwk::AlgorithmParameters;
use jsonwebtoken::jwk::EllipticCurve;
use jsonwebtoken::jwk::Jwk;
use jsonwebtoken::jwk::KeyOperations;
use jsonwebtoken::jwk::PublicKeyUse;
use serde_json::Value;

use crate::auth::error::Reason;

/// The usable keys of one JWK set.
pub(super) struct KeySet(Vec<Key>);

struct Key {
    id: Option<String>,
    algorithms: Vec<Algorithm>,
    key: DecodingKey,
}

impl KeySet {
    /// Takes the usable ones of the first `most` keys. Keys that are not for signatures, or of
    /// a kind that we do not know, are left out and their siblings stay; `None` if none is left.
    pub fn parse(document: &[u8], most: usize) -> Option<Self> {
        let document: Value = serde_json::from_slice(document).ok()?;
        let keys = document.get("keys")?.as_array()?;
        let taken: Vec<_> = keys.iter().take(most).filter_map(Key::parse).collect();
        if taken.is_empty() { None } else { Some(Self(taken)) }
    }

    /// Whether a key has this id.
    pub fn knows(&self, id: &str) -> bool {
        self.0.iter().any(|key| key.id.as_deref() == Some(id))
    }

    /// The key of this id that may verify `algorithm`; without an id, the only key that may.
    pub fn find(&self, id: Option<&str>, algorithm: Algorithm) -> Result<&DecodingKey, Reason> {
        let mut fitting = self.0.iter().filter(|key| key.algorithms.contains(&algorithm));
        match id {
            Some(id) if !self.knows(id) => Err(Reason::Key),
            // Two keys may share an id where their kinds differ (RFC 7517, section 4.5).
            Some(id) => {
                let key = fitting.find(|key| key.id.as_deref() == Some(id));
                key.map(|key| &key.key).ok_or(Reason::Algorithm)
            }
            None => match (fitting.next(), fitting.next()) {
                (Some(key), None) => Ok(&key.key),
                _ => Err(Reason::Key),
            },
        }
    }
}

impl Key {
    fn parse(value: &Value) -> Option<Self> {
        let jwk: Jwk = serde_json::from_value(value.clone()).ok()?;
        let signs = matches!(jwk.common.public_key_use, None | Some(PublicKeyUse::Signature));
        let verifies =
            jwk.common.key_operations.as_ref().is_none_or(|ops| ops.contains(&KeyOperations::Verify));
        if !signs || !verifies {
            return None;
        }
        let of_kind: &[Algorithm] = match &jwk.algorithm {
            AlgorithmParameters::RSA(_) => &[
                Algorithm::RS256,
                Algorithm::RS384,
                Algorithm::RS512,
                Algorithm::PS256,
                Algorithm::PS384,
                Algorithm::PS512,
            ],
            AlgorithmParameters::EllipticCurve(key) if key.curve == EllipticCurve::P256 => {
                &[Algorithm::ES256]
            }
            AlgorithmParameters::EllipticCurve(key) if key.curve == EllipticCurve::P384 => {
                &[Algorithm::ES384]
            }
            AlgorithmParameters::OctetKeyPair(key) if key.curve == EllipticCurve::Ed25519 => {
                &[Algorithm::EdDSA]
            }
            // Shared secrets above all: a published one would make everybody an issuer.
            _ => return None,
        };
        // An algorithm that the key names pins it; one that does not fit the kind leaves nothing.
        let named = value.get("alg").map(|alg| alg.as_str().and_then(|a| a.parse::<Algorithm>().ok()));
        let fits = |algorithm: &Algorithm| named.is_none_or(|named| named == Some(*algorithm));
        let algorithms: Vec<_> = of_kind.iter().copied().filter(fits).collect();
        if algorithms.is_empty() {
            return None;
        }
        Some(Self { id: jwk.common.key_id.clone(), algorithms, key: DecodingKey::from_jwk(&jwk).ok()? })
    }
}

#[cfg(test)]
mod tests {
    use jsonwebtoken::Algorithm;
    use serde_json::Value;
    use serde_json::json;

    use super::KeySet;
    use crate::auth::error::Reason;

    fn set(keys: Value) -> Option<KeySet> {
        KeySet::parse(json!({ "keys": keys }).to_string().as_bytes(), 3)
    }

    fn key(extra: Value) -> Value {
        let mut key = json!({"kty": "EC", "crv": "P-256", "x": "AA", "y": "AA"});
        key.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        key
    }

    #[test]
    fn only_keys_for_signatures_that_we_know_are_taken() {
        let good = [
            json!({}),
            json!({"use": "sig", "alg": "ES256", "key_ops": ["verify"]}),
            json!({"kty": "RSA", "n": "AA", "e": "AQAB"}),
            json!({"kty": "OKP", "crv": "Ed25519"}),
        ];
        for extra in good {
            assert!(set(json!([key(extra.clone())])).is_some(), "{extra}");
        }
        let bad = [
            json!({"use": "enc"}),
            json!({"key_ops": ["sign"]}),
            json!({"key_ops": []}),
            json!({"alg": "HS256"}),
            json!({"alg": "RS256"}),
            json!({"alg": 7}),
            json!({"crv": "P-521"}),
            json!({"crv": "secp256k1"}),
            json!({"kty": "oct", "k": "c2VjcmV0"}),
            json!({"kty": "new"}),
            json!({"x": "!"}),
            json!({"kid": 7}),
        ];
        for extra in bad {
            assert!(set(json!([key(extra.clone())])).is_none(), "{extra}");
        }
        assert!(set(json!([{"kty": "new"}, key(json!({}))])).is_some());
        assert!(set(json!([1, 2, 3, key(json!({}))])).is_none(), "past the most that are taken");
        assert!(set(json!({})).is_none());
    }

    #[test]
    fn a_key_is_found_by_id_and_without_one_only_where_it_is_the_only_one() {
        let rsa = |id: &str| json!({"kty": "RSA", "n": "AA", "e": "AQAB", "kid": id});
        let keys = set(json!([key(json!({"kid": "a"})), rsa("a"), rsa("b")])).unwrap();
        let found = |id, algorithm| keys.find(id, algorithm).map(|_| ());
        assert_eq!(found(Some("a"), Algorithm::ES256), Ok(()));
        assert_eq!(found(Some("a"), Algorithm::PS256), Ok(()));
        assert_eq!(found(Some("b"), Algorithm::ES256), Err(Reason::Algorithm));
        assert_eq!(found(Some("a"), Algorithm::HS256), Err(Reason::Algorithm));
        assert_eq!(found(Some("c"), Algorithm::ES256), Err(Reason::Key));
        assert_eq!(found(None, Algorithm::ES256), Ok(()));
        assert_eq!(found(None, Algorithm::RS256), Err(Reason::Key), "two fit");
        assert_eq!(found(None, Algorithm::EdDSA), Err(Reason::Key), "none fits");
    }
}
