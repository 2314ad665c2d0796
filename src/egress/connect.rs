//! Making a connection: resolve, check, dial what passed, TLS; one deadline over all of it.

use std::future::Future;
use std::io;
use std::net::IpAddr;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Context;
use std::task::Poll;
use std::time::Duration;

use http::Uri;
use http::uri::Scheme;
use hyper_rustls::HttpsConnector;
use hyper_rustls::HttpsConnectorBuilder;
use hyper_rustls::MaybeHttpsStream;
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use tokio::net::TcpStream;
use tokio::time::Instant;
use tower::Service;

use crate::egress::error::Cause;
use crate::egress::error::EgressError;
use crate::egress::resolve::Resolver;
use crate::egress::rules::Rules;

type Connecting<T> = Pin<Box<dyn Future<Output = Result<T, EgressError>> + Send>>;

/// Connects to the authority of a URI, with TLS where its scheme says so.
#[derive(Clone)]
pub(super) struct Dial {
    https: HttpsConnector<Tcp>,
    connect_time: Duration,
}

/// Connects to addresses that passed the rules, and to no others.
#[derive(Clone)]
pub(super) struct Tcp {
    rules: Arc<Rules>,
    resolver: Arc<Resolver>,
    connect_time: Duration,
}

impl Dial {
    pub(super) fn new(
        rules: Rules,
        resolver: Arc<Resolver>,
        connect_time: Duration,
        extra_ca: &[Vec<u8>],
    ) -> Result<Self, EgressError> {
        let https = HttpsConnectorBuilder::new()
            .with_tls_config(tls(extra_ca)?)
            .https_or_http()
            .enable_http1()
            .wrap_connector(Tcp { rules: Arc::new(rules), resolver, connect_time });
        Ok(Self { https, connect_time })
    }
}

fn tls(extra_ca: &[Vec<u8>]) -> Result<ClientConfig, EgressError> {
    let mut roots = RootCertStore::empty();
    let platform = rustls_native_certs::load_native_certs();
    for error in &platform.errors {
        tracing::warn!(%error, "some of the platform's CA certificates cannot be read");
    }
    roots.add_parsable_certificates(platform.certs);
    for certificate in extra_ca.iter().flat_map(|pem| CertificateDer::pem_slice_iter(pem)) {
        let certificate = certificate.map_err(|error| EgressError::Certificates(Arc::new(error)))?;
        roots.add(certificate).map_err(|error| EgressError::Certificates(Arc::new(error)))?;
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let versions = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let config = versions.map_err(|error| EgressError::Tls(Arc::new(error)))?;
    Ok(config.with_root_certificates(roots).with_no_client_auth())
}

impl Service<Uri> for Dial {
    type Response = MaybeHttpsStream<TokioIo<TcpStream>>;
    type Error = EgressError;
    type Future = Connecting<Self::Response>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), EgressError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let time = self.connect_time;
        let host: Arc<str> = uri.host().unwrap_or_default().into();
        let connecting = self.https.call(uri);
        Box::pin(async move {
            match tokio::time::timeout(time, connecting).await {
                Ok(Ok(stream)) => Ok(stream),
                // What is not our own error comes from the TLS layer around us.
                Ok(Err(error)) => Err(match error.downcast::<EgressError>() {
                    Ok(ours) => *ours,
                    Err(other) => EgressError::Handshake { host, cause: Cause::from(other) },
                }),
                Err(_) => Err(EgressError::ConnectTime { host, time }),
            }
        })
    }
}

impl Service<Uri> for Tcp {
    type Response = TokioIo<TcpStream>;
    type Error = EgressError;
    type Future = Connecting<Self::Response>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), EgressError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let tcp = self.clone();
        Box::pin(async move { tcp.connect(&uri).await.map(TokioIo::new) })
    }
}

impl Tcp {
    async fn connect(&self, uri: &Uri) -> Result<TcpStream, EgressError> {
        let until = Instant::now() + self.connect_time;
        let secure = uri.scheme() == Some(&Scheme::HTTPS);
        let host: Arc<str> = uri.host().ok_or(EgressError::BadUrl("it has no host"))?.into();
        let port = uri.port_u16().unwrap_or(if secure { 443 } else { 80 });

        let mut refusal = None;
        let mut addresses = Vec::new();
        for address in self.resolve(&host, port).await? {
            match self.rules.check(&host, address.ip(), secure) {
                Ok(()) => addresses.push(address),
                Err(error) => refusal = refusal.or(Some(error)),
            }
        }
        let mut failure = refusal.unwrap_or_else(|| unresolved(&host, "it has no address"));
        for (tried, address) in addresses.iter().enumerate() {
            let left = until.saturating_duration_since(Instant::now());
            // An equal share each, so that a dead first address leaves time for the others.
            let share = left / u32::try_from(addresses.len() - tried).unwrap_or(u32::MAX);
            failure = match tokio::time::timeout(share, TcpStream::connect(address)).await {
                Ok(Ok(stream)) => {
                    // Best effort: without it a small request only waits longer.
                    stream.set_nodelay(true).ok();
                    return Ok(stream);
                }
                Ok(Err(error)) => EgressError::Connect { host: host.clone(), cause: Arc::new(error) },
                Err(_) => EgressError::ConnectTime { host: host.clone(), time: self.connect_time },
            };
        }
        Err(failure)
    }

    /// The addresses of `host`. Literal addresses take the same road as names: whatever the
    /// notation, what comes out is checked.
    async fn resolve(&self, host: &Arc<str>, port: u16) -> Result<Vec<SocketAddr>, EgressError> {
        let bare = host.strip_prefix('[').and_then(|h| h.strip_suffix(']')).unwrap_or(host);
        if let Ok(address) = bare.parse::<IpAddr>() {
            return Ok(vec![SocketAddr::new(address, port)]);
        }
        match self.resolver.addresses(bare).await {
            Ok(found) => Ok(found.iter().map(|&address| SocketAddr::new(address, port)).collect()),
            Err(cause) => Err(EgressError::Resolve { host: host.clone(), cause }),
        }
    }
}

fn unresolved(host: &Arc<str>, why: &'static str) -> EgressError {
    EgressError::Resolve { host: host.clone(), cause: Arc::new(io::Error::new(io::ErrorKind::NotFound, why)) }
}
