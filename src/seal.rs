//! Handles: what we give to a client and take back, sealed so that it opens for nobody else; and
//! secrets at rest, likewise.
//!
//! A handle is `base64url(key id ‖ nonce ‖ AES-256-GCM-SIV(expiry ‖ payload))`. Everything that it
//! is bound to is associated data, and every purpose has a key of its own, so that a handle
//! minted for one (tenant, principal, purpose) opens for no other. Keys rotate: the first key of
//! the ring seals, all of them open. The ring's file is in [`keyring`].

pub mod keyring;
#[cfg(test)]
mod tests;

use std::fmt;
use std::io;
use std::path::PathBuf;

use aws_lc_rs::aead;
use aws_lc_rs::constant_time;
use aws_lc_rs::digest;
use aws_lc_rs::hkdf;
use aws_lc_rs::hmac;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use zeroize::Zeroize;
use zeroize::Zeroizing;

use crate::model::name::TenantName;

/// Longest handle that is looked at.
pub const HANDLE_BYTES: usize = 64 << 10;

const KEY_ID: usize = 4;
const NONCE: usize = aead::NONCE_LEN;
const EXPIRY: usize = 8;
const TAG: usize = 16;

/// What a handle is for. A handle of one purpose opens for no other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// A place in a list.
    Cursor,
    /// A session of the handshake era.
    Session,
    /// What a backend wants back when a call goes on.
    State,
    /// A task that goes on at a backend.
    Task,
    /// A tenant's secret, at rest.
    Secret,
}

impl Purpose {
    const ALL: [Purpose; 5] =
        [Purpose::Cursor, Purpose::Session, Purpose::State, Purpose::Task, Purpose::Secret];

    /// The HKDF label. Labels are never reused with another meaning.
    fn label(self) -> &'static [u8] {
        match self {
            Purpose::Cursor => b"fondaco handle 1: cursor",
            Purpose::Session => b"fondaco handle 1: session",
            Purpose::State => b"fondaco handle 1: state",
            Purpose::Task => b"fondaco handle 1: task",
            Purpose::Secret => b"fondaco stored 1: secret",
        }
    }
}

/// What a handle belongs to. It opens only where all of this is the same again.
#[derive(Clone, Copy, Debug)]
pub struct Binding<'a> {
    /// What it is for.
    pub purpose: Purpose,
    /// Whose.
    pub tenant: &'a TenantName,
    /// For whom: [`crate::model::caller::Caller::principal`].
    pub principal: &'a str,
    /// A digest of what it belongs to, or nothing.
    pub digest: &'a [u8],
}

impl Binding<'_> {
    /// Every part behind its length, so that no two bindings have the same text.
    fn associated(&self, key_id: [u8; KEY_ID]) -> Vec<u8> {
        let parts = [
            &key_id[..],
            self.purpose.label(),
            self.tenant.as_str().as_bytes(),
            self.principal.as_bytes(),
            self.digest,
        ];
        let mut text = Vec::with_capacity(parts.iter().map(|part| part.len() + 8).sum());
        for part in parts {
            text.extend_from_slice(&(part.len() as u64).to_be_bytes());
            text.extend_from_slice(part);
        }
        text
    }
}

/// Why a handle or a key ring was refused.
#[derive(Debug, thiserror::Error)]
pub enum SealError {
    /// Any handle that does not open, whatever the reason.
    #[error("not a handle that is valid here and now")]
    Refused,
    /// A ring without a key.
    #[error("there is no key in it")]
    Empty,
    /// A line of a ring that is no key.
    #[error("its line {0} is not 32 bytes in base64")]
    BadKey(usize),
    /// A ring's file with something wrong in it.
    #[error("the key ring {path} cannot be used")]
    Ring {
        /// Where it is.
        path: PathBuf,
        /// What is wrong.
        #[source]
        source: Box<SealError>,
    },
    /// Others may read the ring's file.
    #[error("{0} can be read by others; `chmod 600` it")]
    Exposed(PathBuf),
    /// The ring's file cannot be read or made.
    #[error("the key ring {path} cannot be used")]
    File {
        /// Where it is.
        path: PathBuf,
        /// What happened.
        #[source]
        source: io::Error,
    },
}

/// Bytes that nobody can guess.
pub fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    aws_lc_rs::rand::fill(&mut bytes).expect("the system's randomness was there when the keys were made");
    bytes
}

/// Whether two digests are the same, in a time that says nothing of where they differ.
pub fn is_same(one: &[u8], other: &[u8]) -> bool {
    constant_time::verify_slices_are_equal(one, other).is_ok()
}

/// The keys that handles are sealed with.
pub struct KeyRing(Vec<Key>);

/// One key of the ring: its id, and what is derived from it for each purpose.
struct Key {
    id: [u8; KEY_ID],
    derived: Vec<aead::RandomizedNonceKey>,
    marking: hmac::Key,
}

impl KeyRing {
    /// A ring of these keys. The first seals, all open.
    pub fn new(keys: Vec<[u8; 32]>) -> Result<Self, SealError> {
        if keys.is_empty() {
            return Err(SealError::Empty);
        }
        let ring = keys.iter().map(Key::derive).collect();
        keys.into_iter().for_each(|mut key| key.zeroize());
        Ok(Self(ring))
    }

    /// Seals `payload`. The handle opens until `expires_at`, in seconds since the Unix epoch.
    pub fn seal(&self, binding: &Binding<'_>, expires_at: u64, payload: &[u8]) -> String {
        let key = &self.0[0];
        let mut sealed = Vec::with_capacity(EXPIRY + payload.len() + TAG);
        sealed.extend_from_slice(&expires_at.to_be_bytes());
        sealed.extend_from_slice(payload);
        let nonce = key.derived[binding.purpose as usize]
            .seal_in_place_append_tag(aead::Aad::from(binding.associated(key.id)), &mut sealed)
            .expect("AES-GCM-SIV seals anything that fits in memory");
        let mut handle = Vec::with_capacity(KEY_ID + NONCE + sealed.len());
        handle.extend_from_slice(&key.id);
        handle.extend_from_slice(nonce.as_ref());
        handle.extend_from_slice(&sealed);
        URL_SAFE_NO_PAD.encode(handle)
    }

    /// The payload of `handle`, if it was sealed by a key of this ring with the same `binding`
    /// and has not expired. A refusal does not tell why.
    pub fn open(&self, binding: &Binding<'_>, handle: &str, now: u64) -> Result<Vec<u8>, SealError> {
        self.open_with_expiry(binding, handle, now).map(|(payload, _)| payload)
    }

    /// As [`KeyRing::open`], and until when the handle opens.
    pub fn open_with_expiry(
        &self,
        binding: &Binding<'_>,
        handle: &str,
        now: u64,
    ) -> Result<(Vec<u8>, u64), SealError> {
        if handle.len() > HANDLE_BYTES {
            return Err(SealError::Refused);
        }
        let bytes = URL_SAFE_NO_PAD.decode(handle).map_err(|_| SealError::Refused)?;
        let (id, rest) = bytes.split_first_chunk::<KEY_ID>().ok_or(SealError::Refused)?;
        let (nonce, sealed) = rest.split_first_chunk::<NONCE>().ok_or(SealError::Refused)?;
        // Two keys may share an id: each that has it is tried.
        let plain = self
            .0
            .iter()
            .filter(|key| key.id == *id)
            .find_map(|key| key.open(binding, nonce, sealed))
            .ok_or(SealError::Refused)?;
        let (expires_at, payload) = plain.split_first_chunk::<EXPIRY>().ok_or(SealError::Refused)?;
        let expires_at = u64::from_be_bytes(*expires_at);
        if now >= expires_at {
            return Err(SealError::Refused);
        }
        Ok((payload.to_vec(), expires_at))
    }
}

impl KeyRing {
    /// A digest of `text` by which it is known again, and that says nothing of it to who has no key.
    pub fn mark(&self, text: &[u8]) -> Vec<u8> {
        hmac::sign(&self.0[0].marking, text).as_ref().to_vec()
    }

    /// Whether `mark` is of `text`, by any key of the ring.
    pub fn is_mark(&self, text: &[u8], mark: &[u8]) -> bool {
        self.0.iter().any(|key| hmac::verify(&key.marking, text, mark).is_ok())
    }
}

impl fmt::Debug for KeyRing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KeyRing({} keys)", self.0.len())
    }
}

impl Key {
    fn derive(key: &[u8; 32]) -> Self {
        let hash = digest::digest(&digest::SHA256, &[b"fondaco key id".as_slice(), key].concat());
        let id = *hash.as_ref().first_chunk().expect("a SHA-256 digest is longer than a key id");
        let secret = hkdf::Salt::new(hkdf::HKDF_SHA256, b"fondaco").extract(key);
        let derived = Purpose::ALL.iter().map(|purpose| derived_key(&secret, *purpose)).collect();
        let marking = hmac::Key::new(hmac::HMAC_SHA256, &*derived_bytes(&secret, b"fondaco stored 1: mark"));
        Self { id, derived, marking }
    }

    fn open(&self, binding: &Binding<'_>, nonce: &[u8; NONCE], sealed: &[u8]) -> Option<Vec<u8>> {
        let mut text = sealed.to_vec();
        let aad = aead::Aad::from(binding.associated(self.id));
        let key = &self.derived[binding.purpose as usize];
        let plain = key.open_in_place(aead::Nonce::assume_unique_for_key(*nonce), aad, &mut text).ok()?;
        Some(plain.to_vec())
    }
}

fn derived_key(secret: &hkdf::Prk, purpose: Purpose) -> aead::RandomizedNonceKey {
    let bytes = derived_bytes(secret, purpose.label());
    aead::RandomizedNonceKey::new(&aead::AES_256_GCM_SIV, &*bytes).expect("the key has AES-256's length")
}

fn derived_bytes(secret: &hkdf::Prk, label: &[u8]) -> Zeroizing<[u8; 32]> {
    let mut bytes = Zeroizing::new([0; 32]);
    secret
        .expand(&[label], hkdf::HKDF_SHA256)
        .and_then(|okm| okm.fill(&mut *bytes))
        .expect("HKDF-SHA256 gives 32 bytes in one block");
    bytes
}
