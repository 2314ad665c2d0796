//! The way to one MCP server: where it is, what it is reached with, what is in flight to it.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use http::HeaderValue;
use http::Request;
use http::Response;
use http::header::ACCEPT;
use http::header::CONTENT_TYPE;
use http_body_util::Full;
use hyper::body::Incoming;
use tokio::sync::Notify;
use tokio::sync::OwnedSemaphorePermit;
use tokio::sync::Semaphore;

use crate::backend::BackendError;
use crate::backend::Surroundings;
use crate::backend::credential::Identity;
use crate::egress::Egress;
use crate::egress::error::EgressError;
use crate::model::limits::Limits;
use crate::model::name::TenantName;
use crate::model::tenant;
use crate::protocol::json::Json;

/// One MCP server, as one tenant configured it. Which era it speaks is not known here.
pub(in crate::backend) struct Upstream {
    pub(in crate::backend) config: Arc<tenant::Backend>,
    pub(in crate::backend) tenant: TenantName,
    pub(in crate::backend) limits: Arc<Limits>,
    pub(in crate::backend) around: Surroundings,
    /// Connections of its own: what a server leaves on one never meets another tenant.
    egress: Egress,
    /// `None` where the URL is none that HTTP can name.
    target: Option<http::Uri>,
    /// Ids and progress tokens of this backend's requests. No client has a say in them.
    next_id: AtomicU64,
    /// A permit is held while a call is in flight, and returned when its stream is dropped.
    slots: Arc<Semaphore>,
    suspected: Notify,
}

impl Upstream {
    /// The server at `url`.
    pub(in crate::backend) fn new(
        url: &url::Url,
        config: Arc<tenant::Backend>,
        tenant: TenantName,
        around: Surroundings,
    ) -> Self {
        let limits = around.limits.clone();
        let slots = Arc::new(Semaphore::new(limits.upstream_calls));
        let target = url.as_str().parse().ok();
        let egress = around.egress.apart();
        Self {
            config,
            tenant,
            limits,
            around,
            egress,
            target,
            next_id: AtomicU64::new(1),
            slots,
            suspected: Notify::new(),
        }
    }

    /// An id that no other request to this server has.
    pub(in crate::backend) fn mint_id(&self) -> u64 {
        self.next_id.fetch_add(1, Ordering::Relaxed)
    }

    /// The server may not be what it was: its lists are worth asking for.
    pub(in crate::backend) fn suspect(&self) {
        self.suspected.notify_one();
    }

    /// Waits until the server may not be what it was.
    ///
    /// # Cancel safety
    /// Dropping the future loses nothing.
    pub(in crate::backend) async fn suspected(&self) {
        self.suspected.notified().await;
    }

    /// A place among the calls in flight.
    pub(in crate::backend) fn slot(&self) -> Result<OwnedSemaphorePermit, BackendError> {
        self.slots.clone().try_acquire_owned().map_err(|_| BackendError::Busy)
    }

    /// The credential that is good now.
    pub(in crate::backend) fn identity(&self) -> Result<Identity, BackendError> {
        Identity::now(self.config.credential.as_ref())
    }

    /// A POST of one message, with this credential of ours and nothing of a client's.
    ///
    /// spec: streamable-http, Sending Messages
    pub(in crate::backend) fn post(
        &self,
        identity: &Identity,
        message: &Json,
    ) -> Result<Request<Full<Bytes>>, BackendError> {
        let body = Full::new(message.bytes().clone());
        let mut request = self.request(identity, http::Method::POST, body)?;
        let headers = request.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(ACCEPT, HeaderValue::from_static("application/json, text/event-stream"));
        Ok(request)
    }

    /// A request of any method, likewise.
    pub(in crate::backend) fn request(
        &self,
        identity: &Identity,
        method: http::Method,
        body: Full<Bytes>,
    ) -> Result<Request<Full<Bytes>>, BackendError> {
        let target = self.target.clone().ok_or(EgressError::BadUrl("it is not a URL of HTTP"));
        let mut request = Request::new(body);
        *request.method_mut() = method;
        *request.uri_mut() = target.map_err(BackendError::Unreachable)?;
        identity.sign(request.headers_mut());
        Ok(request)
    }

    /// Sends a request and returns the head of the answer.
    ///
    /// # Cancel safety
    /// Dropping the future, or the body of the answer, closes the connection.
    pub(in crate::backend) fn send(
        &self,
        request: Request<Full<Bytes>>,
    ) -> impl Future<Output = Result<Response<Incoming>, BackendError>> + Send + use<> {
        let egress = self.egress.clone();
        async move { egress.send(request).await.map_err(BackendError::from_egress) }
    }
}
