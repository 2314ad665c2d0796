//! Session ids: sealed handles. Everything that a session is lies in its id, so that nothing is stored
//! and any replica with the keys opens it.
//!
//! spec: 2025-11-25 basic/transports, Session Management

use bytes::Bytes;

use crate::legacy::LegacyError;
use crate::model::caller::Caller;
use crate::protocol::json::Json;
use crate::protocol::version::Handshake;
use crate::seal;
use crate::seal::Binding;
use crate::seal::KeyRing;
use crate::seal::Purpose;

const KEY_BYTES: usize = 16;
/// Capabilities are bounded by their length; this is deeper than any that fits.
const DEPTH: usize = usize::MAX;

/// What tells a session from all others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Key([u8; KEY_BYTES]);

/// A session: what `initialize` agreed on.
#[derive(Clone, Debug)]
pub struct Session {
    /// Which one it is.
    pub key: Key,
    /// The revision that its messages follow.
    pub revision: Handshake,
    /// What its client can do, an object.
    pub capabilities: Json,
    /// When it is over, in seconds since the Unix epoch.
    pub expires_at: u64,
}

impl Key {
    /// The key of these bytes.
    #[cfg(test)]
    pub(super) fn new(bytes: [u8; KEY_BYTES]) -> Self {
        Self(bytes)
    }
}

impl Session {
    /// A session that nobody else has.
    pub fn new(revision: Handshake, capabilities: Json, expires_at: u64) -> Self {
        Self { key: Key(seal::random()), revision, capabilities, expires_at }
    }

    /// Its id, for `caller` alone.
    pub fn seal(&self, ring: &KeyRing, caller: &Caller) -> String {
        let payload =
            [&self.key.0, self.revision.name().as_bytes(), self.capabilities.bytes().as_ref()].concat();
        ring.seal(&binding(caller, &caller.principal()), self.expires_at, &payload)
    }

    /// The session of this id, if it was opened for `caller` and is not over.
    pub fn open(ring: &KeyRing, caller: &Caller, id: &str, now: u64) -> Result<Self, LegacyError> {
        let (payload, expires_at) = ring
            .open_with_expiry(&binding(caller, &caller.principal()), id, now)
            .map_err(|_| LegacyError::NoSuchSession)?;
        Self::read(&payload, expires_at).ok_or(LegacyError::NoSuchSession)
    }

    fn read(payload: &[u8], expires_at: u64) -> Option<Self> {
        let (key, rest) = payload.split_first_chunk::<KEY_BYTES>()?;
        let (revision, capabilities) = rest.split_at_checked(Handshake::LATEST.name().len())?;
        let revision = Handshake::named(std::str::from_utf8(revision).ok()?)?;
        let capabilities = Json::parse(Bytes::copy_from_slice(capabilities), DEPTH).ok()?;
        Some(Self { key: Key(*key), revision, capabilities, expires_at })
    }
}

fn binding<'a>(caller: &'a Caller, principal: &'a str) -> Binding<'a> {
    Binding { purpose: Purpose::Session, tenant: &caller.tenant, principal, digest: b"" }
}

#[cfg(test)]
mod tests;
