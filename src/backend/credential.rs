//! What we authenticate with upstream. The caller's own token never gets here.

use http::HeaderMap;
use http::HeaderName;
use http::HeaderValue;
use http::header::AUTHORIZATION;
use secrecy::ExposeSecret;
use zeroize::Zeroizing;

use crate::backend::BackendError;
use crate::model::tenant::Credential;
use crate::model::tenant::CredentialPlace;

/// The credential of one moment, ready to be sent; or that there is none to send.
#[derive(Clone)]
pub(super) struct Identity {
    header: Option<(HeaderName, HeaderValue)>,
    /// Which value of the secret it is.
    pub(super) version: u64,
}

impl Identity {
    /// What `configured` says now. Its value is marked sensitive, so that nothing that prints headers
    /// shows it.
    pub(super) fn now(configured: Option<&Credential>) -> Result<Self, BackendError> {
        let Some(credential) = configured else {
            return Ok(Self { header: None, version: 0 });
        };
        let secret = credential.value.get().ok_or(BackendError::CredentialMissing)?;
        let text = secret.value.expose_secret();
        let (name, value) = match &credential.place {
            CredentialPlace::Bearer => {
                (AUTHORIZATION, HeaderValue::from_str(&Zeroizing::new(format!("Bearer {text}"))))
            }
            CredentialPlace::Header(name) => {
                let name =
                    HeaderName::from_bytes(name.as_bytes()).map_err(|_| BackendError::CredentialMissing)?;
                (name, HeaderValue::from_str(text))
            }
        };
        // The error of a value that is no header value may not carry the value on.
        let mut value = value.map_err(|_| BackendError::CredentialMissing)?;
        value.set_sensitive(true);
        Ok(Self { header: Some((name, value)), version: secret.version })
    }

    /// Puts it into the headers of a request.
    pub(super) fn sign(&self, headers: &mut HeaderMap) {
        if let Some((name, value)) = &self.header {
            headers.insert(name.clone(), value.clone());
        }
    }
}
