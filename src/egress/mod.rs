//! The only outbound client: every request that leaves the gateway passes here.
//!
//! What it promises: an address is dialled only after it was checked ([`address`], [`rules`]),
//! whichever name led to it; no redirect is followed; nothing is sent twice ([`Egress::send`]).

pub mod address;
mod connect;
pub mod error;
mod resolve;
pub mod rules;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use bytes::BytesMut;
use http::HeaderValue;
use http::Request;
use http::Response;
use http::StatusCode;
use http_body::Body;
use http_body_util::BodyExt;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::CaptureConnection;
use hyper_util::client::legacy::connect::capture_connection;
use hyper_util::rt::TokioExecutor;
use hyper_util::rt::TokioTimer;
use url::Url;

use crate::egress::connect::Dial;
use crate::egress::error::EgressError;
use crate::egress::resolve::Resolver;
use crate::egress::rules::Rules;

/// How long an unused connection is kept. Node and uvicorn close theirs after 5 s of silence;
/// ending ours first avoids the race in which a request meets that close and its fate is unknown.
const IDLE_TIME: Duration = Duration::from_secs(4);

/// Most unused connections kept to one authority.
const IDLE_CONNECTIONS: usize = 512;

/// The outbound client. Clones share their connections.
#[derive(Clone)]
pub struct Egress {
    client: Arc<Client<Dial, Full<Bytes>>>,
    dial: Dial,
}

/// The connection that an answer came on; [`Egress::send`] leaves it in the answer's extensions.
#[derive(Clone)]
pub struct Connection(CaptureConnection);

impl Connection {
    /// Nothing more is sent on it: its answers may be out of step with what is asked.
    pub fn distrust(&self) {
        if let Some(connection) = self.0.connection_metadata().as_ref() {
            connection.poison();
        }
    }
}

impl Egress {
    /// A client that dials what `rules` permit and gives a connection, TLS included, `connect_time`.
    /// Servers are trusted by the platform's roots and by `extra_ca`, bundles in PEM form.
    pub fn new(rules: Rules, connect_time: Duration, extra_ca: &[Vec<u8>]) -> Result<Self, EgressError> {
        Ok(Self::over(Dial::new(rules, Resolver::system(), connect_time, extra_ca)?))
    }

    /// The same client with connections of its own, for whom none may be shared with.
    pub fn apart(&self) -> Self {
        Self::over(self.dial.clone())
    }

    fn over(dial: Dial) -> Self {
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE_TIME)
            .pool_max_idle_per_host(IDLE_CONNECTIONS)
            // Safe for any method: it concerns only requests that hyper hands back whole, because
            // a kept connection had ended before it took the first byte of them.
            .retry_canceled_requests(true)
            .build(dial.clone());
        Self { client: Arc::new(client), dial }
    }

    /// Sends `request`, whose URI is absolute, and returns the head of the answer, redirects and
    /// errors included. The connection has a deadline; the exchange has the caller's.
    ///
    /// # Cancel safety
    /// Dropping the future, or the body, closes the connection: the peer sees its client leave.
    pub async fn send(&self, mut request: Request<Full<Bytes>>) -> Result<Response<Incoming>, EgressError> {
        let authority = request.uri().authority().ok_or(EgressError::BadUrl("it is not absolute"))?;
        if authority.as_str().contains('@') {
            return Err(EgressError::BadUrl("it carries a user name or a password"));
        }
        let connection = Connection(capture_connection(&mut request));
        let mut response = self.client.request(request).await.map_err(EgressError::of_client)?;
        response.extensions_mut().insert(connection);
        Ok(response)
    }

    /// Gets the JSON document at `url`: status 200 only, at most `max_bytes`, counted as they
    /// arrive, and all of it within `time`.
    pub async fn fetch(&self, url: &Url, max_bytes: usize, time: Duration) -> Result<Bytes, EgressError> {
        let request = Request::get(url.as_str())
            .body(Full::default())
            .map_err(|_| EgressError::BadUrl("it is not a URL of HTTP"))?;
        self.ask(request, max_bytes, time).await
    }

    /// The JSON document that `request` is answered with, under the same conditions.
    pub async fn ask(
        &self,
        request: Request<Full<Bytes>>,
        max_bytes: usize,
        time: Duration,
    ) -> Result<Bytes, EgressError> {
        let asked = tokio::time::timeout(time, self.document(request, max_bytes)).await;
        asked.unwrap_or(Err(EgressError::TooSlow(time)))
    }

    async fn document(
        &self,
        mut request: Request<Full<Bytes>>,
        max_bytes: usize,
    ) -> Result<Bytes, EgressError> {
        let headers = request.headers_mut();
        headers.insert(http::header::ACCEPT, HeaderValue::from_static("application/json"));
        let agent = concat!("fondaco/", env!("CARGO_PKG_VERSION"));
        headers.insert(http::header::USER_AGENT, HeaderValue::from_static(agent));
        let response = self.send(request).await?;
        if response.status() != StatusCode::OK {
            return Err(EgressError::Status(response.status().as_u16()));
        }
        let mut body = response.into_body();
        if body.size_hint().lower() > max_bytes as u64 {
            return Err(EgressError::TooLarge(max_bytes));
        }
        let mut bytes = BytesMut::new();
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| EgressError::Exchange(Arc::new(error)))?;
            let Some(data) = frame.data_ref() else { continue };
            if bytes.len() + data.len() > max_bytes {
                return Err(EgressError::TooLarge(max_bytes));
            }
            bytes.extend_from_slice(data);
        }
        Ok(bytes.freeze())
    }
}

impl std::fmt::Debug for Egress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Egress(…)")
    }
}

#[cfg(test)]
mod tests;
