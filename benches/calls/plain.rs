//! A server of plain hyper streams, to compare with: each request is answered with a first event, a
//! comment now and then, and an event for each change. `GET /change` makes one.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::Stream;
use futures_util::StreamExt;
use futures_util::stream;
use http::Response;
use http_body_util::StreamBody;
use hyper::body::Frame;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::time::timeout;

/// How often a stream without events says something: as often as the gateway.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

#[derive(clap::Args)]
pub struct Options {
    /// Where to listen; port 0 takes a free one. The address is printed.
    #[arg(long, default_value = "127.0.0.1:0")]
    listen: String,
}

pub async fn serve(options: Options) -> anyhow::Result<()> {
    let listener = TcpListener::bind(&options.listen).await?;
    crate::print(&format!("{}\n", listener.local_addr()?))?;
    let changes = Arc::new(watch::Sender::new(0_u64));
    loop {
        let (socket, _) = listener.accept().await?;
        socket.set_nodelay(true)?;
        let changes = Arc::clone(&changes);
        tokio::spawn(async move {
            let service = service_fn(|request: http::Request<Incoming>| {
                let body = if request.uri().path() == "/change" {
                    changes.send_modify(|count| *count += 1);
                    StreamBody::new(stream::iter([frame("changed\n")]).boxed())
                } else {
                    StreamBody::new(events(changes.subscribe()).boxed())
                };
                async { Ok::<_, Infallible>(Response::new(body)) }
            });
            // A client that leaves is no event here.
            let _ = hyper::server::conn::http1::Builder::new()
                .serve_connection(TokioIo::new(socket), service)
                .await;
        });
    }
}

/// `acknowledged` first, then what there is to say.
pub fn events(changes: watch::Receiver<u64>) -> impl Stream<Item = Result<Frame<Bytes>, Infallible>> {
    let told = |method: &str| format!("data: {{\"jsonrpc\":\"2.0\",\"method\":\"{method}\"}}\n\n");
    let first = stream::iter([frame(&told("notifications/subscriptions/acknowledged"))]);
    let changed = frame(&told("notifications/tools/list_changed"));
    let later = stream::unfold((changes, changed), |(mut changes, changed)| async move {
        let next = match timeout(KEEP_ALIVE, changes.changed()).await {
            Ok(Ok(())) => changed.as_ref().map(|frame| frame.data_ref().cloned().unwrap_or_default()).ok()?,
            Ok(Err(_)) => return None,
            Err(_) => Bytes::from_static(b":\n\n"),
        };
        Some((Ok(Frame::data(next)), (changes, changed)))
    });
    first.chain(later)
}

fn frame(text: &str) -> Result<Frame<Bytes>, Infallible> {
    Ok(Frame::data(Bytes::copy_from_slice(text.as_bytes())))
}
