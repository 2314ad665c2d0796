//! The accept loop: sockets, connection deadlines and drain.
//!
//! HTTP/1.1 in clear text. Every connection is one owned task; dropping [`serve`] cuts them all.
//! When a client leaves, its connection is dropped, and with it the handler's future and the
//! answer's body, also when the client had pipelined requests behind. A client that half-closes
//! has left: hyper sees it so, and so do we where hyper does not look.

mod crowd;
mod files;
mod gate;

use std::convert::Infallible;
use std::future::pending;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::pin::pin;
use std::sync::Arc;
use std::task::Context;
use std::task::Poll;
use std::task::ready;
use std::time::Duration;

use http::HeaderValue;
use http::Request;
use http::Response;
use http::header;
use http_body::Body;
use http_body::Frame;
use http_body::SizeHint;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use prometheus_client::metrics::gauge::Gauge;
use socket2::SockRef;
use socket2::TcpKeepalive;
use tokio::io::AsyncReadExt;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpListener;
use tokio::time::Instant;
use tokio::time::sleep;
use tokio::time::sleep_until;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::Service;
use tower::ServiceExt;

pub use crate::edge::accept::files::fitted;

use crate::edge::accept::crowd::Crowd;
use crate::edge::accept::gate::Entered;
use crate::edge::accept::gate::Gate;
use crate::edge::io::Busy;
use crate::edge::io::Io;
use crate::edge::io::Socket;
use crate::edge::io::Watch;
use crate::model::limits::Limits;
use crate::telemetry::metrics::Open;

type Fault = Box<dyn std::error::Error + Send + Sync>;

// How long a connection that has never asked anything may still begin to, once no new one is
// taken: its client took this process for one that serves.
const FIRST_GRACE: Duration = Duration::from_secs(1);
// A closed socket with unread bytes resets the connection and may destroy the answer on its
// way, so what the client still sends is read for a while, and thrown away.
const LINGER_TIME: Duration = Duration::from_secs(2);
const LINGER_CHUNK: usize = 16 << 10;
// A client that vanishes without a word is noticed after this time, with or without bytes for it.
const GONE_TIME: Duration = Duration::from_secs(120);
const GONE_PROBES: u32 = 4;
// What the kernel takes of an answer before it is sent; what is on its way is not limited by it.
const UNSENT_BYTES: u32 = 128 << 10;
const HYPER_LEAST_BUFFER: usize = 8 << 10;
const HYPER_HEADERS: usize = 100;

/// How a process ends: it begins to drain, stops accepting, and is cut. Clones are the same one.
#[derive(Clone, Debug, Default)]
pub struct Drain {
    begun: CancellationToken,
    stopped: CancellationToken,
    cut: CancellationToken,
}

impl Drain {
    /// A process that is not ending.
    pub fn new() -> Self {
        Self::default()
    }

    /// Begins: not ready any more, answers say `Connection: close`, new connections are still
    /// taken for `drain_accept`.
    pub fn begin(&self) {
        self.begun.cancel();
    }

    /// Ends at once: open connections are dropped.
    pub fn cut(&self) {
        self.begun.cancel();
        self.cut.cancel();
    }

    /// Whether draining has begun.
    pub fn is_begun(&self) -> bool {
        self.begun.is_cancelled()
    }

    /// Waits until draining begins.
    pub async fn begun(&self) {
        self.begun.cancelled().await;
    }

    /// Waits until no new connection is taken: the time for long streams to end, since their
    /// clients will find another replica.
    pub async fn stopped(&self) {
        self.stopped.cancelled().await;
    }
}

/// Serves `service` on `listener` until `drain` is over; `open` counts the connections.
///
/// Returns once every connection has ended: `drain_total` after the beginning of the drain, or
/// at the cut, at the latest.
///
/// # Cancel safety
/// Dropping the future closes the listener and cuts every connection.
pub async fn serve<S, B>(listener: TcpListener, limits: Arc<Limits>, service: S, drain: Drain, open: Gauge)
where
    S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible> + Clone + Send + 'static,
    S::Future: Send,
    B: Body + Unpin + Send + 'static,
    B::Data: Send,
    B::Error: Into<Fault>,
{
    fit_out(&listener, &limits);
    let mut gate = Gate::new(listener, limits.connections);
    let cut = drain.cut.child_token();
    let _cut_if_dropped = cut.clone().drop_guard();
    let tasks = TaskTracker::new();
    let enter = |(stream, slot): Entered, crowd: &mut Crowd| {
        let socket = Socket::new(stream, limits.clone(), crowd.wanted());
        crowd.add(&socket);
        let connection =
            Connection { socket, limits: limits.clone(), drain: drain.clone(), cut: cut.clone() };
        let service = service.clone();
        let counted = Open::new(&open);
        tasks.spawn(async move {
            connection.run(service).await;
            drop((slot, counted));
        });
    };
    let stop = async {
        drain.begun().await;
        sleep(limits.drain_accept).await;
    };
    let mut stop = pin!(stop);
    loop {
        let entered = tokio::select! {
            biased;
            () = cut.cancelled() => break,
            () = &mut stop => break,
            entered = gate.next() => entered,
        };
        enter(entered, gate.crowd());
    }
    let rest = async {
        let (mut crowd, waiting) = gate.close();
        drain.stopped.cancel();
        for stream in waiting {
            let Some(slot) = cut.run_until_cancelled(crowd.slot()).await else { break };
            enter((stream, slot), &mut crowd);
        }
        tasks.close();
        tasks.wait().await;
    };
    if timeout(limits.drain_total.saturating_sub(limits.drain_accept), rest).await.is_err() {
        tracing::warn!(connections = tasks.len(), "connections were cut at the end of the drain");
        cut.cancel();
        // Also where the time was over before the gate was closed.
        drain.stopped.cancel();
        tasks.close();
        tasks.wait().await;
    }
}

/// Says what every connection that `listener` accepts begins with.
fn fit_out(listener: &TcpListener, limits: &Limits) {
    let socket = SockRef::from(listener);
    let probes = TcpKeepalive::new()
        .with_time(GONE_TIME / 2)
        .with_interval(GONE_TIME / 2 / GONE_PROBES)
        .with_retries(GONE_PROBES);
    let fitted = socket.set_tcp_keepalive(&probes);
    #[cfg(target_os = "linux")]
    let fitted = fitted
        // A reader that takes nothing for longer than a write may be blocked is cut elsewhere.
        .and_then(|()| socket.set_tcp_user_timeout(Some(GONE_TIME.max(limits.write_time))))
        .and_then(|()| socket.set_tcp_notsent_lowat(UNSENT_BYTES));
    if let Err(error) = fitted {
        tracing::warn!(%error, "clients that vanish or do not read may hold their connections for longer");
    }
}

/// One connection, from its acceptance to its close.
struct Connection {
    socket: Arc<Socket>,
    limits: Arc<Limits>,
    drain: Drain,
    cut: CancellationToken,
}

impl Connection {
    async fn run<S, B>(self, service: S)
    where
        S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible> + Clone,
        B: Body + Unpin + 'static,
        B::Error: Into<Fault>,
    {
        let cut = self.cut.clone();
        tokio::select! {
            biased;
            () = cut.cancelled() => {}
            finished = self.serve(service) => if finished && !self.socket.ended() {
                self.socket.close();
                // Nothing hangs on how this ends.
                let _ = timeout(LINGER_TIME, linger(Io(self.socket.clone()))).await;
            },
        }
    }

    /// Whether HTTP came to its end; false is a connection that must be dropped as it is.
    async fn serve<S, B>(&self, service: S) -> bool
    where
        S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible> + Clone,
        B: Body + Unpin + 'static,
        B::Error: Into<Fault>,
    {
        // In a box of its own, which goes with the head of the answer: hyper keeps its place for as long as
        // the connection lasts, and a stream may be open for hours.
        let service = service_fn(move |request| Box::pin(self.answer(service.clone(), request)));
        let io = TokioIo::new(Io(self.socket.clone()));
        let mut http = pin!(self.builder().serve_connection(io, service));
        let mut leave = pin!(self.has_to_leave());
        let mut stopping = false;
        let mut timer = pin!(sleep_until(Instant::now() + self.limits.head_time));
        poll_fn(|cx| {
            if !stopping && leave.as_mut().poll(cx).is_ready() {
                stopping = true;
                http.as_mut().graceful_shutdown();
            }
            // An error is the client's bad bytes or its leaving: hyper has answered what can be.
            if http.as_mut().poll(cx).is_ready() {
                return Poll::Ready(true);
            }
            loop {
                let at = match self.socket.watch(Instant::now(), cx.waker()) {
                    Watch::Cut => return Poll::Ready(false),
                    Watch::Wait(None) => return Poll::Pending,
                    Watch::Wait(Some(at)) => at,
                };
                // A timer that is early is left alone: re-arming it at every request costs more.
                if timer.deadline() > at || timer.is_elapsed() {
                    timer.as_mut().reset(at);
                }
                ready!(timer.as_mut().poll(cx));
            }
        })
        .await
    }

    /// Waits until no new connection is taken, and no request is on its way on this one.
    async fn has_to_leave(&self) {
        self.drain.stopped.cancelled().await;
        if !self.socket.awaits_request(true) {
            return;
        }
        sleep(FIRST_GRACE).await;
        if self.socket.awaits_request(false) {
            // The head has its time, and the answer to it says that the connection ends.
            pending().await
        }
    }

    fn builder(&self) -> http1::Builder {
        let mut builder = http1::Builder::new();
        // Time is the socket's watch's: hyper's header timer is also its idle timer.
        builder.header_read_timeout(None).max_buf_size(self.limits.head_bytes.max(HYPER_LEAST_BUFFER));
        if self.limits.header_fields > HYPER_HEADERS {
            builder.max_headers(self.limits.header_fields);
        }
        builder
    }

    async fn answer<S, B>(
        &self,
        service: S,
        request: Request<Incoming>,
    ) -> Result<Response<Tracked<B>>, Infallible>
    where
        S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible>,
    {
        let busy = Busy::begin(&self.socket);
        // spec: RFC 9112 6.1: with Transfer-Encoding and Content-Length, close after the answer.
        // hyper hides the second field, so every chunked request counts as such.
        let chunked = request.headers().contains_key(header::TRANSFER_ENCODING);
        let mut response = service.oneshot(request).await?;
        if chunked || self.drain.is_begun() {
            response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        Ok(response.map(|body| Tracked { body, _busy: busy }))
    }
}

/// Says that nothing follows, and reads what does until the client has closed.
async fn linger(mut io: Io) -> io::Result<()> {
    io.shutdown().await?;
    let mut unread = vec![0; LINGER_CHUNK];
    while io.read(&mut unread).await? > 0 {}
    Ok(())
}

/// An answer's body, which keeps the connection busy until it ends or is dropped.
struct Tracked<B> {
    body: B,
    _busy: Busy,
}

impl<B: Body + Unpin> Body for Tracked<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests;
