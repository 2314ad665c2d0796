//! What we authenticate with upstream. The caller's own token never gets here.

use http::HeaderName;
use http::HeaderValue;
use http::header::AUTHORIZATION;
use secrecy::ExposeSecret;
use zeroize::Zeroizing;

use crate::backend::BackendError;
use crate::model::tenant::Credential;
use crate::model::tenant::CredentialPlace;

/// The header that carries `credential` now. Its value is marked sensitive, so that nothing that
/// prints headers shows it.
pub(super) fn header(credential: &Credential) -> Result<(HeaderName, HeaderValue), BackendError> {
    let secret = credential.value.get().ok_or(BackendError::CredentialMissing)?;
    let secret = secret.expose_secret();
    let (name, value) = match &credential.place {
        CredentialPlace::Bearer => {
            (AUTHORIZATION, HeaderValue::from_str(&Zeroizing::new(format!("Bearer {secret}"))))
        }
        CredentialPlace::Header(name) => {
            let name =
                HeaderName::from_bytes(name.as_bytes()).map_err(|_| BackendError::CredentialMissing)?;
            (name, HeaderValue::from_str(secret))
        }
    };
    // The error of a value that is no header value may not carry the value on.
    let mut value = value.map_err(|_| BackendError::CredentialMissing)?;
    value.set_sensitive(true);
    Ok((name, value))
}
