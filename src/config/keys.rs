//! `[keys]`: what seals handles.

use std::collections::HashMap;
use std::collections::HashSet;
use std::sync::Arc;

use base64::Engine;
use base64::alphabet::STANDARD;
use base64::engine::DecodePaddingMode;
use base64::engine::general_purpose::GeneralPurpose;
use base64::engine::general_purpose::GeneralPurposeConfig;
use zeroize::Zeroizing;

use crate::config::reader::At;
use crate::config::secret;

/// The key ring: the first key seals, all of them open.
#[derive(Clone, Debug, Default)]
pub struct Keys {
    /// The keys, in the order of the configuration. Empty: `data_dir` holds a generated one.
    pub ring: Vec<RingKey>,
}

/// One key of the ring; clones share it, and it is wiped with the last of them.
#[derive(Clone)]
pub struct RingKey(Arc<Zeroizing<[u8; 32]>>);

/// Why a key was refused.
#[derive(Clone, Copy, Debug, thiserror::Error, PartialEq, Eq)]
pub enum KeyError {
    /// Not base64, or not of 32 bytes.
    #[error("is not the base64 form of exactly 32 bytes")]
    Form,
    /// Bytes that nobody drew at random.
    #[error("looks like a sample key, not like random bytes")]
    Sample,
}

impl RingKey {
    /// Reads the base64 form of 32 random bytes, padded or not.
    pub fn parse(text: &str) -> Result<Self, KeyError> {
        let lenient = GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);
        let decoded = GeneralPurpose::new(&STANDARD, lenient).decode(text.trim()).map(Zeroizing::new);
        let bytes = decoded.map_err(|_| KeyError::Form)?;
        let key: [u8; 32] = bytes.as_slice().try_into().map_err(|_| KeyError::Form)?;
        let distinct = key.iter().collect::<HashSet<_>>().len();
        let counting =
            key.windows(2).all(|pair| pair[1].wrapping_sub(pair[0]) == key[1].wrapping_sub(key[0]));
        // Random bytes have about 30 different ones; fewer than 12 is one in more than 10^20.
        if distinct < 12 || counting {
            Err(KeyError::Sample)
        } else {
            Ok(Self(Arc::new(Zeroizing::new(key))))
        }
    }

    /// The key's bytes.
    pub fn bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl std::fmt::Debug for RingKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("RingKey(…)")
    }
}

impl Keys {
    /// The keys of this section.
    pub const NAMES: &[&str] = &["ring"];

    /// Reads the section and every key that it names.
    pub(crate) fn read(at: &At<'_>, env: &HashMap<String, String>) -> Option<Self> {
        let mut ring: Vec<RingKey> = Vec::new();
        for item in at.map(Self::NAMES)?.need("ring")?.list() {
            let Some(key) = ring_key(&item, env) else { continue };
            if ring.iter().any(|other| other.bytes() == key.bytes()) {
                item.refuse::<()>("the same key is in the ring already");
            }
            ring.push(key);
        }
        Some(Self { ring })
    }
}

fn ring_key(at: &At<'_>, env: &HashMap<String, String>) -> Option<RingKey> {
    const MAKE: &str = "make one with `openssl rand -base64 32`";
    let fields = at.map(&["file", "env"])?;
    let (place, text) = match (fields.get("file"), fields.get("env")) {
        (Some(file), None) => match secret::read(&file.path()?) {
            Ok(text) => (file, text),
            Err(error) => return file.refuse_hint(format!("the file {error}"), MAKE),
        },
        (None, Some(variable)) => match env.get(variable.filled()?) {
            Some(text) => (variable, Zeroizing::new(text.clone())),
            None => return variable.refuse_hint("the variable is not set", MAKE),
        },
        _ => return at.refuse("expected either `file` or `env`"),
    };
    match RingKey::parse(&text) {
        Ok(key) => Some(key),
        Err(error) => place.refuse_hint(format!("the key {error}"), MAKE),
    }
}
