//! The echo backend: modern MCP on plain hyper, as little work per call as can be.

use std::borrow::Cow;
use std::convert::Infallible;
use std::fmt::Write;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream;
use futures_util::stream::BoxStream;
use http::Response;
use http::StatusCode;
use http_body_util::BodyExt;
use http_body_util::Either;
use http_body_util::Full;
use http_body_util::StreamBody;
use hyper::body::Frame;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::sync::watch;

use crate::REVISION;

/// How many tools the backend lists.
const TOOLS: usize = 200;
/// Held calls are let go when no other came for this long.
const PATIENCE: Duration = Duration::from_millis(20);

#[derive(clap::Args)]
pub struct Options {
    /// Where to listen; port 0 takes a free one. The address is printed.
    #[arg(long, default_value = "127.0.0.1:0")]
    listen: String,
    /// Hold calls until this many wait, then answer them in reverse. 0 answers at once.
    #[arg(long, default_value_t = 0)]
    hold: usize,
    /// Answer each n-th call with the text of the call before it, to see the judge catch it.
    #[arg(long, default_value_t = 0)]
    betray: u64,
    /// Say that tools may change, and let listeners hear of it: `GET /change` changes one.
    #[arg(long)]
    changing: bool,
}

struct Backend {
    tools: Bytes,
    changes: Option<watch::Sender<u64>>,
    hold: usize,
    waiting: Mutex<Vec<oneshot::Sender<()>>>,
    betray: u64,
    calls: AtomicU64,
    last: Mutex<String>,
}

#[derive(Deserialize)]
struct Message<'a> {
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    #[serde(borrow)]
    method: Cow<'a, str>,
    #[serde(borrow)]
    params: Option<Params<'a>>,
}

#[derive(Deserialize)]
struct Params<'a> {
    #[serde(borrow)]
    arguments: Option<Arguments<'a>>,
}

#[derive(Deserialize)]
struct Arguments<'a> {
    #[serde(borrow)]
    text: &'a RawValue,
}

pub async fn serve(options: Options) -> anyhow::Result<()> {
    let listener = TcpListener::bind(&options.listen).await?;
    crate::print(&format!("{}\n", listener.local_addr()?))?;
    let backend = Arc::new(Backend {
        tools: tools(),
        changes: options.changing.then(|| watch::Sender::new(0)),
        hold: options.hold,
        waiting: Mutex::default(),
        betray: options.betray,
        calls: AtomicU64::new(0),
        last: Mutex::default(),
    });
    if backend.hold > 0 {
        tokio::spawn(release_stragglers(Arc::clone(&backend)));
    }
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        let backend = Arc::clone(&backend);
        tokio::spawn(async move {
            let service = service_fn(|request| answer(&backend, request));
            // A client that leaves is no event here.
            let _ = hyper::server::conn::http1::Builder::new()
                .serve_connection(TokioIo::new(stream), service)
                .await;
        });
    }
}

async fn answer(backend: &Backend, request: http::Request<Incoming>) -> Result<Response<Body>, Infallible> {
    if let Some(changes) = backend.changes.as_ref().filter(|_| request.uri().path() == "/change") {
        changes.send_modify(|count| *count += 1);
        return Ok(respond(StatusCode::OK, Bytes::from_static(b"changed\n")));
    }
    let label = request.uri().path().trim_matches('/').split('/').next().unwrap_or_default().to_owned();
    let Ok(body) = request.into_body().collect().await else {
        return Ok(respond(StatusCode::BAD_REQUEST, Bytes::new()));
    };
    let body = body.to_bytes();
    let Ok(message) = serde_json::from_slice::<Message>(&body) else {
        return Ok(respond(StatusCode::BAD_REQUEST, Bytes::from_static(b"not understood")));
    };
    let Some(id) = message.id.map(RawValue::get) else {
        return Ok(respond(StatusCode::ACCEPTED, Bytes::new()));
    };
    let result = match (&*message.method, message.params.and_then(|params| params.arguments)) {
        ("server/discover", _) => discover(backend.changes.is_some()),
        ("tools/list", _) => backend.list(),
        ("subscriptions/listen", _) if backend.changes.is_some() => return Ok(backend.listen(id)),
        ("tools/call", Some(arguments)) => backend.call(&label, arguments.text.get()).await,
        _ => {
            let error = format!(
                r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":-32601,"message":"method not found"}}}}"#
            );
            return Ok(respond(StatusCode::NOT_FOUND, error.into()));
        }
    };
    Ok(respond(StatusCode::OK, format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#).into()))
}

/// A whole answer, or a stream.
type Body = Either<Full<Bytes>, StreamBody<BoxStream<'static, Result<Frame<Bytes>, Infallible>>>>;

fn respond(status: StatusCode, body: Bytes) -> Response<Body> {
    let mut response = Response::new(Either::Left(Full::new(body)));
    *response.status_mut() = status;
    let json = http::HeaderValue::from_static("application/json");
    response.headers_mut().insert(http::header::CONTENT_TYPE, json);
    response
}

fn discover(changing: bool) -> String {
    let tools = if changing { r#"{"listChanged":true}"# } else { "{}" };
    format!(
        r#"{{"resultType":"complete","supportedVersions":["{REVISION}"],"capabilities":{{"tools":{tools}}},"_meta":{{"io.modelcontextprotocol/serverInfo":{{"name":"echo","version":"1"}}}},"ttlMs":3600000,"cacheScope":"public"}}"#
    )
}

impl Backend {
    /// The list; its first tool's title says how often it has changed, if it has.
    fn list(&self) -> String {
        let list = String::from_utf8_lossy(&self.tools);
        match self.changes.as_ref().map_or(0, |changes| *changes.borrow()) {
            0 => list.into_owned(),
            count => list.replacen("Echo 0", &format!("Echo 0, changed {count} times"), 1),
        }
    }

    /// A stream that acknowledges this request and then tells of each change.
    fn listen(&self, id: &str) -> Response<Body> {
        let frame = move |method: &str, more: &str| {
            Ok(Frame::data(Bytes::from(format!(
                "data: {{\"jsonrpc\":\"2.0\",\"method\":\"notifications/{method}\",\"params\":{{{more}\"_meta\":{{\"io.modelcontextprotocol/subscriptionId\":{id}}}}}}}\n\n"
            ))))
        };
        let honoured = r#""notifications":{"toolsListChanged":true},"#;
        let first = stream::iter([frame("subscriptions/acknowledged", honoured)]);
        let changed: Result<Frame<Bytes>, Infallible> = frame("tools/list_changed", "");
        let changed = changed.ok().and_then(|frame| frame.into_data().ok()).unwrap_or_default();
        let changes = self.changes.as_ref().map(watch::Sender::subscribe);
        let later = stream::unfold((changes, changed), |(changes, changed)| async move {
            let mut changes = changes?;
            changes.changed().await.ok()?;
            Some((Ok(Frame::data(changed.clone())), (Some(changes), changed)))
        });
        let mut response = Response::new(Either::Right(StreamBody::new(first.chain(later).boxed())));
        let events = http::HeaderValue::from_static("text/event-stream");
        response.headers_mut().insert(http::header::CONTENT_TYPE, events);
        response
    }

    /// Echoes `text`, a JSON string, with the path's first segment before it.
    async fn call(&self, label: &str, text: &str) -> String {
        let mut text = format!(r#""{label}:{}"#, text.strip_prefix('"').unwrap_or(text));
        if self.hold > 0 {
            self.wait().await;
        }
        if self.betray > 0 {
            let foreign = std::mem::replace(&mut *lock(&self.last), text.clone());
            if self.calls.fetch_add(1, Ordering::Relaxed) % self.betray == self.betray - 1 {
                text = foreign;
            }
        }
        format!(r#"{{"resultType":"complete","content":[{{"type":"text","text":{text}}}],"isError":false}}"#)
    }

    async fn wait(&self) {
        let (sender, receiver) = oneshot::channel();
        let full = {
            let mut waiting = lock(&self.waiting);
            waiting.push(sender);
            waiting.len() >= self.hold
        };
        if full {
            self.release();
        }
        // The sender is never dropped unused: `release` fires each.
        let _ = receiver.await;
    }

    /// Lets the held calls go, the last one first: tasks run in the order in which they wake.
    fn release(&self) {
        let waiting = std::mem::take(&mut *lock(&self.waiting));
        for sender in waiting.into_iter().rev() {
            let _ = sender.send(());
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().expect("no holder of this lock panics")
}

/// Fewer calls than `hold` may be left at the end, or be all that a gateway lets through.
async fn release_stragglers(backend: Arc<Backend>) {
    let mut before = 0;
    loop {
        tokio::time::sleep(PATIENCE).await;
        let now = lock(&backend.waiting).len();
        if now > 0 && now == before {
            backend.release();
        }
        before = now;
    }
}

/// A `tools/list` result of a realistic size, about 1 KiB a tool.
fn tools() -> Bytes {
    let mut list =
        String::from(r#"{"resultType":"complete","ttlMs":3600000,"cacheScope":"public","tools":["#);
    for number in 0..TOOLS {
        let comma = if number == 0 { "" } else { "," };
        let name = format!("echo_{number:03}");
        write!(
            list,
            r#"{comma}{{"name":"{name}","title":"Echo {number}","description":"Returns the text that it is given, unchanged. Use it to check that a request reaches the service and that its answer comes back to the one who asked. The optional arguments are accepted and ignored; they are here because tools of this size have about as many.","inputSchema":{{"type":"object","properties":{{"text":{{"type":"string","description":"What to return","maxLength":65536}},"language":{{"type":"string","description":"The language of the text, as a BCP 47 tag","pattern":"^[A-Za-z-]+$"}},"repeat":{{"type":"integer","description":"How often to return it","minimum":1,"maximum":10,"default":1}},"format":{{"type":"string","description":"How to format the answer","enum":["plain","markdown","html"]}},"labels":{{"type":"array","description":"Labels to file the request under","items":{{"type":"string"}},"maxItems":16}},"trim":{{"type":"boolean","description":"Whether to remove white space around the text","default":false}}}},"required":["text"],"additionalProperties":false}},"annotations":{{"readOnlyHint":true,"openWorldHint":false}}}}"#
        )
        .expect("writing to a string cannot fail");
    }
    list.push_str("]}");
    list.into()
}
