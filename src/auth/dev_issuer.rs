//! The development issuer: tokens for trying things out, signed with a key of this machine.
//!
//! Only `fondaco dev` trusts and serves it; `fondaco token` mints with the same key.

use std::fs;
use std::fs::DirBuilder;
use std::fs::OpenOptions;
use std::io;
use std::io::Write;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::path::PathBuf;
use std::sync::Arc;

use aws_lc_rs::signature::ECDSA_P256_SHA256_FIXED_SIGNING;
use aws_lc_rs::signature::EcdsaKeyPair;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::Algorithm;
use jsonwebtoken::EncodingKey;
use jsonwebtoken::Header;
use jsonwebtoken::jwk::Jwk;
use jsonwebtoken::jwk::PublicKeyUse;
use jsonwebtoken::jwk::ThumbprintHash;
use serde_json::Value;
use serde_json::json;
use zeroize::Zeroizing;

/// The name of the file that has the key, in the data directory.
pub const FILE: &str = "dev-issuer.pem";

/// Why there is no development issuer.
#[derive(Debug, thiserror::Error)]
pub enum DevIssuerError {
    /// The key's file cannot be read or written.
    #[error("the development issuer's key `{0}` cannot be read or written")]
    File(PathBuf, #[source] io::Error),
    /// The file holds something else, or no key could be made.
    #[error("`{0}` is not an ES256 key in PEM form; remove it and a new one is made")]
    Key(PathBuf),
    /// Others could sign with the key.
    #[error(
        "others than its owner may read or write `{0}`; `chmod 600` it, or remove it and a new key is made"
    )]
    Exposed(PathBuf),
}

/// An issuer with one ES256 key, kept in the data directory.
pub struct DevIssuer {
    url: Arc<str>,
    key: EncodingKey,
    public: Jwk,
    id: String,
}

/// What a token of the development issuer says.
#[derive(Clone, Copy, Debug)]
pub struct Grant<'a> {
    /// `sub`.
    pub subject: &'a str,
    /// `client_id`.
    pub client: &'a str,
    /// `tenant`, which is the development issuer's tenant claim.
    pub tenant: &'a str,
    /// `scope`, space-separated; may be empty.
    pub scope: &'a str,
    /// `aud`: the endpoint's resource URL.
    pub audience: &'a str,
    /// Seconds that it is good for.
    pub ttl: u64,
    /// Now, in seconds since the Unix epoch.
    pub now: u64,
}

impl DevIssuer {
    /// The issuer of this URL, with the key [`FILE`] in `data_dir`, which is made on
    /// first use, readable by its owner alone.
    pub fn open(data_dir: &Path, issuer_url: &str) -> Result<Self, DevIssuerError> {
        let path = data_dir.join(FILE);
        let failed = |error| DevIssuerError::File(path.clone(), error);
        if !path.try_exists().map_err(failed)? {
            create(data_dir, &path).map_err(failed)?;
        }
        let mode = fs::metadata(&path).map_err(failed)?.permissions().mode();
        if mode & 0o077 != 0 {
            return Err(DevIssuerError::Exposed(path));
        }
        let pem = fs::read(&path).map(Zeroizing::new).map_err(failed)?;
        Self::load(&pem, issuer_url).ok_or(DevIssuerError::Key(path))
    }

    fn load(pem: &[u8], issuer_url: &str) -> Option<Self> {
        let key = EncodingKey::from_ec_pem(pem).ok()?;
        let mut public = Jwk::from_encoding_key(&key, Algorithm::ES256).ok()?;
        let id = public.thumbprint(ThumbprintHash::SHA256).ok()?;
        public.common.key_id = Some(id.clone());
        public.common.public_key_use = Some(PublicKeyUse::Signature);
        // Proves that `mint` can sign with it.
        jsonwebtoken::crypto::sign(b"", &key, Algorithm::ES256).ok()?;
        Some(Self { url: issuer_url.into(), key, public, id })
    }

    /// Its metadata document (RFC 8414).
    pub fn metadata(&self) -> Value {
        json!({
            "issuer": &*self.url,
            "jwks_uri": format!("{}/jwks", self.url),
            "response_types_supported": [],
            "grant_types_supported": [],
        })
    }

    /// Its JWK set.
    pub fn jwks(&self) -> Value {
        json!({ "keys": [self.public] })
    }

    /// Signs `claims`, a map, as they are.
    pub fn mint(&self, claims: &Value) -> String {
        let mut header = Header::new(Algorithm::ES256);
        header.typ = Some("at+jwt".to_owned());
        header.kid = Some(self.id.clone());
        jsonwebtoken::encode(&header, claims, &self.key).expect("the key signed when it was opened")
    }

    /// An access token as RFC 9068 has them.
    pub fn token(&self, grant: Grant<'_>) -> String {
        let mut id = [0; 16];
        aws_lc_rs::rand::fill(&mut id).expect("the system's randomness does not fail once seeded");
        self.mint(&json!({
            "iss": &*self.url,
            "sub": grant.subject,
            "client_id": grant.client,
            "tenant": grant.tenant,
            "scope": grant.scope,
            "aud": grant.audience,
            "iat": grant.now,
            "exp": grant.now.saturating_add(grant.ttl),
            "jti": URL_SAFE_NO_PAD.encode(id),
        }))
    }
}

/// Makes a key and writes it, whole or not at all. Of two processes that do, the first wins.
fn create(data_dir: &Path, path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(data_dir)?;
    let random = &aws_lc_rs::rand::SystemRandom::new();
    let key = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, random)
        .map_err(|_| io::Error::other("no key could be made"))?;
    let text = Zeroizing::new(STANDARD.encode(key.as_ref()));
    let mut pem = Zeroizing::new(b"-----BEGIN PRIVATE KEY-----\n".to_vec());
    for line in text.as_bytes().chunks(64) {
        pem.extend_from_slice(line);
        pem.push(b'\n');
    }
    pem.extend_from_slice(b"-----END PRIVATE KEY-----\n");

    let draft = data_dir.join(format!("{FILE}.{}", std::process::id()));
    // Whatever is there is of a process that ended half-way, or was put there by somebody else.
    match fs::remove_file(&draft) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft)?;
    let linked =
        file.write_all(&pem).and_then(|()| file.sync_all()).and_then(|()| fs::hard_link(&draft, path));
    let removed = fs::remove_file(&draft);
    match linked {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => removed,
    }
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;

    use serde_json::json;

    use super::DevIssuer;
    use super::DevIssuerError;

    #[test]
    fn its_key_is_made_once_and_is_its_owners_alone() {
        let scratch = tempfile::tempdir().unwrap();
        let data = scratch.path().join("a/data");
        let first = DevIssuer::open(&data, "http://127.0.0.1:1/dev-issuer").unwrap();
        let again = DevIssuer::open(&data, "http://127.0.0.1:1/dev-issuer").unwrap();
        assert_eq!(first.jwks(), again.jwks());
        let mode = |path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(data.clone()), mode(data.join("dev-issuer.pem"))), (0o700, 0o600));
        assert_eq!(std::fs::read_dir(&data).unwrap().count(), 1, "nothing else is left there");
        let key = first.jwks()["keys"][0].clone();
        assert_eq!((&key["kty"], &key["crv"], &key["use"]), (&json!("EC"), &json!("P-256"), &json!("sig")));
        assert!(key.get("d").is_none(), "the private key is published");
    }

    #[test]
    fn a_file_that_is_no_key_is_named_and_kept() {
        let data = tempfile::tempdir().unwrap();
        let path = data.path().join("dev-issuer.pem");
        std::fs::write(&path, "not a key").unwrap();
        std::fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        let error = DevIssuer::open(data.path(), "http://127.0.0.1:1").err().unwrap();
        assert!(matches!(&error, DevIssuerError::Key(named) if *named == path), "{error}");
        assert_eq!(std::fs::read(&path).unwrap(), b"not a key");
    }
    #[test]
    fn a_key_that_others_may_read_is_refused() {
        let data = tempfile::tempdir().unwrap();
        DevIssuer::open(data.path(), "http://127.0.0.1:1").unwrap();
        let path = data.path().join("dev-issuer.pem");
        for mode in [0o644, 0o640, 0o604, 0o620] {
            std::fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            let error = DevIssuer::open(data.path(), "http://127.0.0.1:1").err().unwrap();
            assert!(matches!(&error, DevIssuerError::Exposed(named) if *named == path), "{mode:o} {error}");
        }
        std::fs::set_permissions(&path, Permissions::from_mode(0o400)).unwrap();
        assert!(DevIssuer::open(data.path(), "http://127.0.0.1:1").is_ok());
    }

    #[test]
    fn a_draft_that_is_there_is_not_written_through() {
        let data = tempfile::tempdir().unwrap();
        let elsewhere = data.path().join("elsewhere");
        std::fs::write(&elsewhere, "mine").unwrap();
        let draft = data.path().join(format!("dev-issuer.pem.{}", std::process::id()));
        std::os::unix::fs::symlink(&elsewhere, &draft).unwrap();
        DevIssuer::open(data.path(), "http://127.0.0.1:1").unwrap();
        assert_eq!(std::fs::read(&elsewhere).unwrap(), b"mine");
    }
}
