//! Why an outbound request got no answer, and whether the peer may have seen it.

use std::error::Error;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

/// A cause, for the log. Shared, since one failed connection may fail several requests.
pub type Cause = Arc<dyn Error + Send + Sync>;

/// Why an outbound request got no answer.
#[derive(Clone, Debug, thiserror::Error)]
pub enum EgressError {
    /// The client could not be made.
    #[error("a bundle of CA certificates in PEM form cannot be read")]
    Certificates(#[source] Cause),
    /// TLS could not be set up.
    #[error("TLS cannot be set up")]
    Tls(#[source] Cause),
    /// A URL that is never sent to.
    #[error("the URL cannot be used: {0}")]
    BadUrl(&'static str),
    /// No address was found.
    #[error("the host `{host}` cannot be resolved")]
    Resolve {
        /// The host of the URL.
        host: Arc<str>,
        /// The resolver's words.
        #[source]
        cause: Cause,
    },
    /// The rules do not permit the address.
    #[error("the address {address} of `{host}` is not dialled: {reason}; the setting `egress.allow` decides")]
    Refused {
        /// The host of the URL.
        host: Arc<str>,
        /// What it resolved to.
        address: IpAddr,
        /// What the address is.
        reason: &'static str,
    },
    /// Nobody could be connected to.
    #[error("`{host}` cannot be connected to")]
    Connect {
        /// The host of the URL.
        host: Arc<str>,
        /// What the system said.
        #[source]
        cause: Cause,
    },
    /// The connection, TLS included, took too long.
    #[error("`{host}` was not connected to within {} ms", .time.as_millis())]
    ConnectTime {
        /// The host of the URL.
        host: Arc<str>,
        /// The time it had.
        time: Duration,
    },
    /// TLS failed: among other reasons, because the certificate is not trusted.
    #[error("the TLS handshake with `{host}` failed")]
    Handshake {
        /// The host of the URL.
        host: Arc<str>,
        /// What failed.
        #[source]
        cause: Cause,
    },
    /// The connection failed under the request or the answer.
    #[error("the connection failed before the answer was complete")]
    Exchange(#[source] Cause),
    /// A document was answered with another status than 200.
    #[error("the answer has the status {0} in place of 200")]
    Status(u16),
    /// A document was too large.
    #[error("the answer is larger than {0} bytes")]
    TooLarge(usize),
    /// A document took too long.
    #[error("the answer was not complete within {} ms", .0.as_millis())]
    TooSlow(Duration),
}

impl EgressError {
    /// Whether the peer may have seen the request. False only where nothing can have reached it.
    pub fn was_sent(&self) -> bool {
        match self {
            Self::Certificates(_)
            | Self::Tls(_)
            | Self::BadUrl(_)
            | Self::Resolve { .. }
            | Self::Refused { .. }
            | Self::Connect { .. }
            | Self::ConnectTime { .. }
            | Self::Handshake { .. } => false,
            // A document's deadline covers connecting too, but cannot tell afterwards which it was.
            Self::Exchange(_) | Self::Status(_) | Self::TooLarge(_) | Self::TooSlow(_) => true,
        }
    }

    /// Reads the client's error: ours, if the connection could not be made, else the exchange's.
    pub(super) fn of_client(error: hyper_util::client::legacy::Error) -> Self {
        let mut cause: Option<&(dyn Error + 'static)> = error.source();
        while let Some(inner) = cause {
            if let Some(ours) = inner.downcast_ref::<Self>() {
                return ours.clone();
            }
            cause = inner.source();
        }
        Self::Exchange(Arc::new(error))
    }
}
