//! The keys of an issuer: which of a JWK set we take, and which of them may verify what.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering;

use jsonwebtoken::Algorithm;
use jsonwebtoken::DecodingKey;
use jsonwebtoken::jwk::AlgorithmParameters;
use jsonwebtoken::jwk::EllipticCurve;
use jsonwebtoken::jwk::Jwk;
use jsonwebtoken::jwk::KeyOperations;
use jsonwebtoken::jwk::PublicKeyUse;
use jsonwebtoken::jwk::ThumbprintHash;
use serde_json::Value;

use crate::auth::error::Reason;

/// The usable keys of one JWK set.
pub(super) struct KeySet {
    keys: Vec<Key>,
    good: Good,
}

/// Whether what was verified with a set of keys still counts. Clones agree.
#[derive(Clone, Default)]
pub(super) struct Good(Arc<AtomicBool>);

impl Good {
    /// No key of the set has been withdrawn since.
    pub fn is_good(&self) -> bool {
        !self.0.load(Ordering::Acquire)
    }
}

struct Key {
    id: Option<String>,
    algorithms: Vec<Algorithm>,
    key: DecodingKey,
    /// What the key is, whatever it is called (RFC 7638).
    thumbprint: String,
}

impl KeySet {
    /// Takes the usable ones of the first `most` keys; `None` if the document is no JWK set. Keys
    /// that are not for signatures, or of a kind that we do not know, are left out and their
    /// siblings stay. A set without any is one: so an issuer withdraws all its keys.
    pub fn parse(document: &[u8], most: usize) -> Option<Self> {
        let document: Value = serde_json::from_slice(document).ok()?;
        let keys = document.get("keys")?.as_array()?;
        let keys = keys.iter().take(most).filter_map(Key::parse).collect();
        Some(Self { keys, good: Good::default() })
    }

    /// Takes the place of `old`. What was verified with it counts further if every key of it is
    /// kept, and else no more.
    pub fn follow(&mut self, old: &Self) {
        if self.keeps(old) {
            self.good = old.good.clone();
        } else {
            old.good.0.store(true, Ordering::Release);
        }
    }

    /// Whether what was verified with this set still counts, now and later.
    pub fn good(&self) -> Good {
        self.good.clone()
    }

    /// Whether every key of `old` is in this set, for all that it was good for.
    fn keeps(&self, old: &Self) -> bool {
        let same = |old: &Key, new: &Key| {
            let algorithms = || old.algorithms.iter().all(|name| new.algorithms.contains(name));
            old.id == new.id && old.thumbprint == new.thumbprint && algorithms()
        };
        old.keys.iter().all(|old| self.keys.iter().any(|new| same(old, new)))
    }

    /// Whether a key has this id.
    pub fn knows(&self, id: &str) -> bool {
        self.keys.iter().any(|key| key.id.as_deref() == Some(id))
    }

    /// The key of this id that may verify `algorithm`; without an id, the only key that may.
    pub fn find(&self, id: Option<&str>, algorithm: Algorithm) -> Result<&DecodingKey, Reason> {
        let mut fitting = self.keys.iter().filter(|key| key.algorithms.contains(&algorithm));
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
        let key = DecodingKey::from_jwk(&jwk).ok()?;
        let thumbprint = jwk.thumbprint(ThumbprintHash::SHA256).ok()?;
        Some(Self { id: jwk.common.key_id, algorithms, key, thumbprint })
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

    fn taken(keys: Value) -> Option<usize> {
        set(keys).map(|set| set.keys.len())
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
            assert_eq!(taken(json!([key(extra.clone())])), Some(1), "{extra}");
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
            assert_eq!(taken(json!([key(extra.clone())])), Some(0), "{extra}");
        }
        assert_eq!(taken(json!([{"kty": "new"}, key(json!({}))])), Some(1));
        assert_eq!(taken(json!([1, 2, 3, key(json!({}))])), Some(0), "past the most that are taken");
        assert_eq!(taken(json!([])), Some(0), "all keys are withdrawn");
        for no_set in [json!({}), json!(null), json!("")] {
            assert_eq!(taken(no_set.clone()), None, "{no_set}");
        }
        assert!(KeySet::parse(b"<html>", 3).is_none());
        assert!(KeySet::parse(b"{}", 3).is_none());
    }

    #[test]
    fn a_set_keeps_another_if_no_key_of_it_is_less_than_it_was() {
        let named = |id: &str, extra: Value| {
            let mut key = key(json!({"kid": id, "x": id}));
            key.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
            key
        };
        let keeps = |new: Value, old: Value| set(new).unwrap().keeps(&set(old).unwrap());
        let (a, b) = (named("AAAA", json!({})), named("BBBB", json!({})));
        assert!(keeps(json!([]), json!([])) && keeps(json!([a]), json!([])));
        assert!(keeps(json!([b, a]), json!([a])));
        assert!(keeps(json!([named("AAAA", json!({"x5t": "new", "alg": "ES256"}))]), json!([a])));
        assert!(!keeps(json!([]), json!([a])) && !keeps(json!([b]), json!([a, b])));
        assert!(!keeps(json!([named("AAAA", json!({"kid": "other"}))]), json!([a])));
        assert!(!keeps(json!([named("AAAA", json!({"x": "CCCC"}))]), json!([a])));
        let rsa = |alg: Value| {
            let mut key = json!({"kty": "RSA", "n": "AA", "e": "AQAB"});
            key.as_object_mut().unwrap().extend(alg.as_object().unwrap().clone());
            json!([key])
        };
        assert!(keeps(rsa(json!({})), rsa(json!({"alg": "RS256"}))));
        assert!(!keeps(rsa(json!({"alg": "RS256"})), rsa(json!({}))));
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
