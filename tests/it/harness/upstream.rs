//! An MCP server (2026-07-28, Streamable HTTP) that misbehaves on demand, for tests of what stands
//! before it.
//!
//! ```ignore
//! let upstream = Upstream::start().await;                  // tools: `echo`; no prompts, no resources
//! upstream.tool("forecast", r#"{"name":"forecast","inputSchema":{"type":"object"}}"#);
//! upstream.prompt("greet", r#"{"name":"greet"}"#);         // advertised from now on, as resources are
//! upstream.resource("x://1", r#"{"uri":"x://1","name":"one"}"#);
//! upstream.behave("forecast", Behaviour::Hang);            // by name or URI …
//! upstream.behave("tools/list", Behaviour::EndlessPages);  // … or by method
//! // point a backend at upstream.url(), call, then look:
//! assert_eq!(upstream.requests()[0].header("mcp-name"), ["forecast"]);
//! upstream.cancellations();                                // closed by the peer before the answer
//! ```
//!
//! [`Upstream::handshake`] makes a server of the handshake era of it; see [`sessions`].
//!
//! A call of a tool without a behaviour of its own is echoed: `structuredContent` is its
//! `arguments`, byte for byte; a prompt says its arguments, a resource its URI, a completion what it was
//! asked. It speaks raw HTTP/1.1 on a raw socket, so that nothing corrects
//! what it says. Dropping it, or [`Upstream::stop`], closes its port and its connections.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::MutexGuard;
use std::sync::PoisonError;
use std::time::Duration;

#[path = "sessions.rs"]
pub mod sessions;

use serde_json::Value;
use serde_json::value::RawValue;
use tokio::io::AsyncReadExt;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpListener;
use tokio::net::TcpStream;
use tokio::net::tcp::OwnedReadHalf;
use tokio::net::tcp::OwnedWriteHalf;
use tokio::sync::broadcast;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::task::JoinSet;

use self::sessions::Admitted;
use self::sessions::Handshake;
use self::sessions::Session;
use self::sessions::Sessions;

/// How one tool or one method is answered.
#[derive(Clone, Debug)]
pub enum Behaviour {
    /// As it should be, as `application/json`.
    Echo,
    /// As it should be, as an SSE stream.
    EchoSse,
    /// As it should be, after this long.
    Late(Duration),
    /// This `result`, verbatim but for `$ID`, which stands for the request's id.
    Result(String),
    /// This `error`, verbatim, under this HTTP status.
    Error(u16, String),
    /// These SSE events: each is one `data` line in which `$ID` and `$TOKEN` stand for the request's
    /// id and progress token as JSON; then the answer as it should be.
    Events(Vec<String>),
    /// These bytes instead of an HTTP response, in which `$ID` stands for the request's id; then
    /// the connection is closed.
    Raw(String),
    /// These bytes instead of an HTTP response, after which the connection stays open.
    Verbatim(String),
    /// An SSE stream of what is [said](Upstream::say) from now on.
    Listen,
    /// No answer, ever.
    Hang,
    /// The head of an SSE stream, and no event, ever.
    HangInStream,
    /// The right answer, one byte a second.
    Drip,
    /// A TCP reset instead of an answer.
    Reset,
    /// A TCP reset in the middle of a JSON answer.
    ResetInBody,
    /// A TCP reset after the first event of a stream.
    ResetInStream,
    /// A complete HTTP answer with half of the JSON.
    HalfJson,
    /// Another id than the request's.
    WrongId,
    /// The request's id as a string.
    StringId,
    /// Two final responses in one stream; the second says `"second"`.
    TwoFinals,
    /// A result of this many bytes.
    Huge(usize),
    /// `sampling/createMessage` on the stream, and no answer, ever.
    ServerRequest,
    /// Requests of these methods on the stream, the first with the id `"ask-0"`; when each of them is
    /// answered, the answer as it should be.
    Asks(Vec<&'static str>),
    /// Requests on the stream, round by round, each a method and its params; when each of a round is answered, the next round, and then the answer, whose
    /// `structuredContent` is what was answered, a list for each round.
    Talks(Vec<Vec<(&'static str, String)>>),
    /// The same, with the requests on all open GET streams.
    TalksBeside(Vec<Vec<(&'static str, String)>>),
    /// This many bytes of this media type without an end in sight, in chunks.
    Flood(&'static str, usize),
    /// This many progress notifications, then the answer.
    Progress(usize),
    /// As many, a kilobyte each and without a pause.
    Burst(usize),
    /// The last of so many calls is answered first, and the first last; each says this text.
    Reversed(usize, String),
    /// As it should be for who sends this header; -32020 for all others.
    Mirrored(&'static str),
    /// Like this the next time, and as it should be from then on.
    Once(Box<Behaviour>),
    /// Every page has a new tool and a new cursor.
    EndlessPages,
    /// Every page is the first page, with the same cursor.
    SameCursor,
    /// A 307 to this URL.
    Redirect(String),
    /// The right answer with `Content-Encoding: gzip`.
    Gzip,
}

/// A request as it was received.
#[derive(Clone, Debug)]
pub struct Received {
    /// Method, target and version.
    pub line: String,
    /// Every header field in order, names as they were sent.
    pub headers: Vec<(String, String)>,
    /// The body, byte for byte.
    pub body: String,
    /// Which connection it came on, counted from 1.
    pub connection: usize,
}

impl Received {
    /// Every value of the header `name`.
    pub fn header(&self, name: &str) -> Vec<&str> {
        self.headers.iter().filter(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, v)| v.as_str()).collect()
    }

    /// The body, parsed.
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or(Value::Null)
    }

    /// The JSON text at this path, also where its numbers are none that could be converted.
    fn raw(&self, path: &[&str]) -> Option<String> {
        let mut text = self.body.clone();
        for key in path {
            let mut members: HashMap<String, Box<RawValue>> = serde_json::from_str(&text).ok()?;
            text = members.remove(*key)?.get().to_owned();
        }
        Some(text)
    }

    /// The string at this path.
    fn string(&self, path: &[&str]) -> Option<String> {
        serde_json::from_str(&self.raw(path)?).ok()
    }
}

#[derive(Default)]
struct State {
    tools: Vec<(String, String)>,
    prompts: Vec<(String, String)>,
    resources: Vec<(String, String)>,
    templates: Vec<(String, String)>,
    capabilities: Option<String>,
    behaviours: HashMap<String, Behaviour>,
    instructions: Option<String>,
    hints: Option<String>,
    page_size: usize,
    requests: Vec<Received>,
    connections: usize,
    cancellations: usize,
    flooded: usize,
    sessions: Sessions,
    /// Our own requests that were answered, by their ids: the last answer as it came.
    replies: HashMap<String, String>,
    /// How many calls have asked something.
    talks: usize,
    /// How everything is answered, whatever is asked.
    always: Option<Behaviour>,
    /// What is said on open GET streams.
    said: Option<broadcast::Sender<String>>,
    /// Calls that wait for later ones to be answered.
    parked: Vec<oneshot::Sender<Turn>>,
}

/// The calls of a round that are still to be answered, from the last on.
#[derive(Default)]
struct Turn(Vec<oneshot::Sender<Turn>>);

/// A running server; see the module.
pub struct Upstream {
    address: SocketAddr,
    state: Arc<Mutex<State>>,
    task: JoinHandle<()>,
}

impl Upstream {
    /// Starts a server with the tool `echo` on a free port of 127.0.0.1.
    pub async fn start() -> Self {
        Self::start_at(([127, 0, 0, 1], 0).into()).await
    }

    /// Starts one at this address, which has to be free.
    pub async fn start_at(address: SocketAddr) -> Self {
        let listener = TcpListener::bind(address).await.expect("a free port");
        let address = listener.local_addr().expect("a bound listener has an address");
        let state = Arc::new(Mutex::new(State { page_size: usize::MAX, ..State::default() }));
        let task = tokio::spawn(accept(listener, state.clone()));
        let upstream = Self { address, state, task };
        upstream
            .tool("echo", r#"{"name":"echo","description":"Says it back.","inputSchema":{"type":"object"}}"#);
        upstream
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Where it serves MCP.
    pub fn url(&self) -> String {
        format!("http://{}/mcp", self.address)
    }

    /// It as a backend of this name, in YAML's flow style, with more settings, each with a comma in front.
    pub fn backend(&self, name: &str, more: &str) -> String {
        format!("{name}: {{kind: mcp, url: \"{}\"{more}}}", self.url())
    }

    /// Adds a tool, with its definition verbatim, or replaces the one of this name.
    pub fn tool(&self, name: &str, definition: &str) -> &Self {
        self.set(|state| &mut state.tools, name, definition)
    }

    /// Adds a prompt, or replaces the one of this name.
    pub fn prompt(&self, name: &str, definition: &str) -> &Self {
        self.set(|state| &mut state.prompts, name, definition)
    }

    /// Adds a resource, or replaces the one of this URI.
    pub fn resource(&self, uri: &str, definition: &str) -> &Self {
        self.set(|state| &mut state.resources, uri, definition)
    }

    /// Adds a resource template, or replaces the one of this text.
    pub fn template(&self, text: &str, definition: &str) -> &Self {
        self.set(|state| &mut state.templates, text, definition)
    }

    fn set(
        &self,
        list: impl FnOnce(&mut State) -> &mut Vec<(String, String)>,
        name: &str,
        definition: &str,
    ) -> &Self {
        let mut state = lock(&self.state);
        let list = list(&mut state);
        list.retain(|(known, _)| known != name);
        list.push((name.to_owned(), definition.to_owned()));
        drop(state);
        self
    }

    /// Sets the `capabilities` of `server/discover`, verbatim, whatever there is.
    pub fn capabilities(&self, text: &str) -> &Self {
        lock(&self.state).capabilities = Some(text.to_owned());
        self
    }

    /// Sets how a tool or prompt (by name), a resource (by URI) or a method is answered from now on. The
    /// name goes before the method.
    pub fn behave(&self, target: &str, behaviour: Behaviour) -> &Self {
        lock(&self.state).behaviours.insert(target.to_owned(), behaviour);
        self
    }

    /// Sets the `instructions` of `server/discover`.
    pub fn instructions(&self, text: &str) -> &Self {
        lock(&self.state).instructions = Some(text.to_owned());
        self
    }

    /// Sets the members of a right `resources/read` that say how long it may be kept: by default not at all.
    pub fn hints(&self, members: &str) -> &Self {
        lock(&self.state).hints = Some(members.to_owned());
        self
    }

    /// Sets how many entries a page of a list has; the cursor of the second page is `""`.
    pub fn page_size(&self, size: usize) -> &Self {
        lock(&self.state).page_size = size;
        self
    }

    /// Speaks the handshake era from now on, and knows none of the sessions that there were.
    pub fn handshake(&self, mode: Handshake) -> &Self {
        self.forget_sessions();
        lock(&self.state).sessions.mode = Some(mode);
        self
    }

    /// Speaks the modern era from now on.
    pub fn modern(&self) -> &Self {
        lock(&self.state).sessions.mode = None;
        self
    }

    /// Forgets every session, as a restart does.
    pub fn forget_sessions(&self) -> &Self {
        lock(&self.state).sessions.all.iter_mut().for_each(|session| session.forgotten = true);
        self
    }

    /// Says this on every open GET stream; how many there were.
    pub fn say(&self, message: &str) -> usize {
        lock(&self.state).said.as_ref().and_then(|said| said.send(message.to_owned()).ok()).unwrap_or(0)
    }

    /// Ends every open GET stream.
    pub fn hang_up(&self) {
        lock(&self.state).said = None;
    }

    /// Every session so far, in order.
    pub fn sessions(&self) -> Vec<Session> {
        lock(&self.state).sessions.all.clone()
    }

    /// Answers everything like this, until that is taken back.
    pub fn always(&self, behaviour: Option<Behaviour>) -> &Self {
        lock(&self.state).always = behaviour;
        self
    }

    /// The methods of all requests so far; an empty one for a message without.
    pub fn methods(&self) -> Vec<String> {
        let method = |request: &Received| request.json()["method"].as_str().unwrap_or_default().to_owned();
        self.requests().iter().map(method).collect()
    }

    /// How often this method was asked for so far.
    pub fn count(&self, method: &str) -> usize {
        self.methods().iter().filter(|asked| *asked == method).count()
    }

    /// Every request so far, in order of arrival.
    pub fn requests(&self) -> Vec<Received> {
        lock(&self.state).requests.clone()
    }

    /// Every request on a caller's behalf so far: without what the gateway asks on its own account.
    pub fn asked(&self) -> Vec<Received> {
        let own = |request: &Received| {
            let said = |method: &str| request.body.contains(&format!(r#""method":"{method}""#));
            ["server/discover", "subscriptions/listen", "tools/list", "prompts/list"].into_iter().any(said)
                || ["resources/list", "resources/templates/list"].into_iter().any(said)
        };
        self.requests().into_iter().filter(|request| !own(request)).collect()
    }

    /// How many connections were accepted so far.
    pub fn connections(&self) -> usize {
        lock(&self.state).connections
    }

    /// How many requests the peer gave up, by closing the connection before the answer was complete.
    pub fn cancellations(&self) -> usize {
        lock(&self.state).cancellations
    }

    /// How many bytes of floods and bursts the peer, and the system between, took.
    pub fn flooded(&self) -> usize {
        lock(&self.state).flooded
    }

    /// Closes the port and all connections; [`Upstream::url`] goes on to name the closed port.
    pub fn stop(&self) {
        self.task.abort();
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn accept(listener: TcpListener, state: Arc<Mutex<State>>) {
    let mut connections = JoinSet::new();
    while let Ok((socket, _)) = listener.accept().await {
        let number = {
            let mut state = lock(&state);
            state.connections += 1;
            state.connections
        };
        while connections.try_join_next().is_some() {}
        connections.spawn(serve(socket, number, state.clone()));
    }
}

async fn serve(socket: TcpStream, number: usize, state: Arc<Mutex<State>>) {
    let _ = socket.set_nodelay(true);
    let (mut reading, mut writing) = socket.into_split();
    let mut buffer = Vec::new();
    while let Some(request) = receive(&mut reading, &mut buffer, number).await {
        let answer = Answer::to(&request, &state);
        lock(&state).requests.push(request);
        let gone = async {
            let mut byte = [0];
            // The peer sends nothing before it has its answer: whatever comes is its end.
            let _ = reading.read(&mut byte).await;
        };
        let end = tokio::select! {
            biased;
            () = gone => Err(io::ErrorKind::ConnectionReset.into()),
            end = answer.write(&mut writing, &state) => end,
        };
        match end {
            Ok(End::KeepAlive) => {}
            Ok(End::Close) => return,
            Ok(End::Reset) => {
                if let Ok(socket) = reading.reunite(writing) {
                    let _ = socket.set_zero_linger();
                }
                return;
            }
            Err(_) => {
                lock(&state).cancellations += 1;
                return;
            }
        }
    }
}

async fn receive(reading: &mut OwnedReadHalf, buffer: &mut Vec<u8>, connection: usize) -> Option<Received> {
    let head_end = loop {
        if let Some(at) = buffer.windows(4).position(|bytes| bytes == b"\r\n\r\n") {
            break at;
        }
        if reading.read_buf(buffer).await.ok()? == 0 {
            return None;
        }
    };
    let head = String::from_utf8_lossy(&buffer[..head_end]).into_owned();
    buffer.drain(..head_end + 4);
    let mut lines = head.split("\r\n").map(str::to_owned);
    let line = lines.next()?;
    let headers: Vec<(String, String)> =
        lines.filter_map(|l| l.split_once(": ").map(|(name, value)| (name.into(), value.into()))).collect();
    let mut request = Received { line, headers, body: String::new(), connection };
    let length = request.header("content-length").first().map_or("0", |length| *length);
    let length: usize = length.parse().ok()?;
    while buffer.len() < length {
        if reading.read_buf(buffer).await.ok()? == 0 {
            return None;
        }
    }
    request.body = String::from_utf8_lossy(&buffer[..length]).into_owned();
    buffer.drain(..length);
    Some(request)
}

/// What becomes of the connection after an answer.
enum End {
    KeepAlive,
    Close,
    Reset,
}

/// One answer that is about to be written.
struct Answer {
    behaviour: Behaviour,
    id: String,
    token: String,
    result: String,
    /// Header lines.
    extra: String,
}

impl Answer {
    fn to(request: &Received, state: &Mutex<State>) -> Self {
        let method = request.string(&["method"]).unwrap_or_default();
        let name = request.string(&["params", "name"]).or_else(|| request.string(&["params", "uri"]));
        let name = name.unwrap_or_default();
        let mut state = lock(state);
        if method.is_empty() {
            state.replies.extend(request.string(&["id"]).map(|id| (id, request.body.clone())));
        }
        let admitted = match &state.always {
            Some(_) => Admitted::Goes(String::new()),
            None => state.sessions.admit(request),
        };
        let modern = state.sessions.mode.is_none();
        let target = if state.behaviours.contains_key(&name) { &name } else { &method };
        let behaviour = match state.behaviours.get(target).cloned() {
            Some(Behaviour::Once(behaviour)) => {
                state.behaviours.remove(target);
                *behaviour
            }
            Some(Behaviour::Mirrored(header)) if request.header(header).is_empty() => {
                Behaviour::Error(400, format!(r#"{{"code":-32020,"message":"{header} is missing"}}"#))
            }
            None if state.lacks(&method) && !state.sessions.are_personal() => {
                let status = if modern { 404 } else { 200 };
                Behaviour::Error(status, r#"{"code":-32601,"message":"Method not found"}"#.to_owned())
            }
            behaviour => behaviour.unwrap_or(Behaviour::Echo),
        };
        let behaviour = match state.sessions.personal(request) {
            Some(Some(result)) if matches!(behaviour, Behaviour::Echo) => Behaviour::Result(result),
            Some(None) => Behaviour::Error(200, r#"{"code":-32602,"message":"not yours"}"#.to_owned()),
            Some(Some(_)) | None => behaviour,
        };
        let behaviour = state.always.clone().unwrap_or(behaviour);
        let (behaviour, extra) = match admitted {
            Admitted::Goes(extra) => (behaviour, extra),
            Admitted::Ends(status, body) => {
                let whole = head(status, "application/json", "", body.len()) + &body;
                (Behaviour::Verbatim(whole), String::new())
            }
            Admitted::As(behaviour) => (behaviour, String::new()),
        };
        let result = match &*method {
            "tools/call" => {
                let arguments = request.raw(&["params", "arguments"]).unwrap_or_else(|| "{}".into());
                format!(r#"{{"resultType":"complete","content":[],"structuredContent":{arguments}}}"#)
            }
            "initialize" => state.initialized(),
            "tools/list" | "prompts/list" | "resources/list" | "resources/templates/list" => {
                page(&state, &method, &behaviour, request.string(&["params", "cursor"]).as_deref())
            }
            "prompts/get" => {
                let arguments = request.raw(&["params", "arguments"]).unwrap_or_else(|| "{}".into());
                let text = Value::from(arguments);
                let message = format!(r#"{{"role":"user","content":{{"type":"text","text":{text}}}}}"#);
                format!(r#"{{"resultType":"complete","messages":[{message}]}}"#)
            }
            "resources/read" => {
                let uri = Value::from(name.as_str());
                let part = format!(r#"{{"uri":{uri},"text":{uri}}}"#);
                let hints = state.hints.as_deref().unwrap_or(r#""ttlMs":0,"cacheScope":"private""#);
                format!(r#"{{"resultType":"complete","contents":[{part}],{hints}}}"#)
            }
            "completion/complete" => {
                let asked = Value::from(request.raw(&["params", "argument", "value"]).unwrap_or_default());
                format!(r#"{{"resultType":"complete","completion":{{"values":[{asked}]}}}}"#)
            }
            "server/discover" => state.discover(),
            _ => "{}".into(),
        };
        let raw = |path: &[&str]| request.raw(path).unwrap_or_else(|| "null".into());
        let (id, token) = (raw(&["id"]), raw(&["params", "_meta", "progressToken"]));
        let result = if modern { result } else { of_handshake(&result) };
        Self { behaviour, id, token, result, extra }
    }

    async fn write(&self, out: &mut OwnedWriteHalf, state: &Mutex<State>) -> io::Result<End> {
        let right = self.response(&self.id, &self.result);
        match &self.behaviour {
            Behaviour::Flood(media, bytes) => flood(out, media, *bytes, state).await,
            Behaviour::Reversed(of, text) => self.reversed(out, *of, text, state).await,
            Behaviour::Echo
            | Behaviour::EndlessPages
            | Behaviour::SameCursor
            | Behaviour::Mirrored(_)
            | Behaviour::Once(_) => self.right(out).await,
            Behaviour::Verbatim(bytes) => text(out, bytes, End::KeepAlive).await,
            Behaviour::Asks(methods) => self.ask(out, methods, state).await,
            Behaviour::Talks(rounds) => self.talk(out, rounds, false, state).await,
            Behaviour::TalksBeside(rounds) => self.talk(out, rounds, true, state).await,
            Behaviour::EchoSse => self.events(out, &[]).await,
            Behaviour::Late(time) => {
                tokio::time::sleep(*time).await;
                self.right(out).await
            }
            Behaviour::Result(result) => {
                json(out, 200, &self.response(&self.id, &result.replace("$ID", &self.id))).await
            }
            Behaviour::Error(status, error) => {
                let body = format!(r#"{{"jsonrpc":"2.0","id":{},"error":{error}}}"#, self.id);
                json(out, *status, &body).await
            }
            Behaviour::Events(events) => self.events(out, events).await,
            Behaviour::Raw(bytes) => text(out, &bytes.replace("$ID", &self.id), End::Close).await,
            Behaviour::Listen => listen(out, state).await,
            Behaviour::Hang => std::future::pending().await,
            Behaviour::HangInStream => {
                out.write_all(STREAM.as_bytes()).await?;
                std::future::pending().await
            }
            Behaviour::Drip => drip(out, &right).await,
            Behaviour::Reset => Ok(End::Reset),
            Behaviour::ResetInBody => {
                let whole = head(200, "application/json", "", right.len()) + &right[..right.len() / 2];
                out.write_all(whole.as_bytes()).await?;
                linger().await;
                Ok(End::Reset)
            }
            Behaviour::ResetInStream => {
                let first = chunk(&format!("data: {}\n\n", self.progress(1)));
                out.write_all((STREAM.to_owned() + &first).as_bytes()).await?;
                linger().await;
                Ok(End::Reset)
            }
            Behaviour::HalfJson => json(out, 200, &right[..right.len() / 2]).await,
            Behaviour::WrongId => json(out, 200, &self.response("999999999", &self.result)).await,
            Behaviour::StringId => {
                json(out, 200, &self.response(&format!("\"{}\"", self.id), &self.result)).await
            }
            Behaviour::TwoFinals => {
                let second = self.response(&self.id, r#"{"content":[],"structuredContent":"second"}"#);
                let both = chunk(&format!("data: {right}\n\ndata: {second}\n\n"));
                out.write_all((STREAM.to_owned() + &both + "0\r\n\r\n").as_bytes()).await?;
                Ok(End::Close)
            }
            Behaviour::Huge(size) => {
                let text = "x".repeat(*size);
                let result = format!(r#"{{"content":[{{"type":"text","text":"{text}"}}]}}"#);
                json(out, 200, &self.response(&self.id, &result)).await
            }
            Behaviour::ServerRequest => server_request(out).await,
            Behaviour::Progress(steps) => {
                let events: Vec<String> = (1..=*steps).map(|step| self.progress(step)).collect();
                self.events(out, &events).await
            }
            Behaviour::Burst(steps) => self.burst(out, *steps, state).await,
            Behaviour::Redirect(url) => {
                let extra = format!("Location: {url}\r\n");
                text(out, &head(307, "text/plain", &extra, 0), End::KeepAlive).await
            }
            Behaviour::Gzip => {
                let whole = head(200, "application/json", "Content-Encoding: gzip\r\n", right.len()) + &right;
                text(out, &whole, End::KeepAlive).await
            }
        }
    }

    async fn burst(&self, out: &mut OwnedWriteHalf, steps: usize, state: &Mutex<State>) -> io::Result<End> {
        out.write_all(STREAM.as_bytes()).await?;
        let message = format!(r#""message":"{}","progress":"#, "x".repeat(1 << 10));
        for step in 1..=steps {
            let event =
                chunk(&format!("data: {}\n\n", self.progress(step).replace(r#""progress":"#, &message)));
            out.write_all(event.as_bytes()).await?;
            lock(state).flooded += event.len();
        }
        let last = chunk(&format!("data: {}\n\n", self.response(&self.id, &self.result))) + "0\r\n\r\n";
        out.write_all(last.as_bytes()).await?;
        Ok(End::KeepAlive)
    }

    /// Waits until `of` calls are here, unless it is the last of them, and for those behind it.
    async fn reversed(
        &self,
        out: &mut OwnedWriteHalf,
        of: usize,
        text: &str,
        state: &Mutex<State>,
    ) -> io::Result<End> {
        let waiting = {
            let mut state = lock(state);
            if state.parked.len() + 1 < of {
                let (turn, mine) = oneshot::channel();
                state.parked.push(turn);
                Err(mine)
            } else {
                Ok(Turn(std::mem::take(&mut state.parked)))
            }
        };
        let turn = match waiting {
            Ok(last) => last,
            Err(mine) => mine.await.unwrap_or_default(),
        };
        let content = format!(r#""content":[{{"type":"text","text":"{text}"}}],"structuredContent""#);
        let result = self.result.replace(r#""content":[],"structuredContent""#, &content);
        let end = json(out, 200, &self.response(&self.id, &result)).await;
        let mut earlier = turn.0;
        if let Some(next) = earlier.pop() {
            let _ = next.send(Turn(earlier));
        }
        end
    }

    fn response(&self, id: &str, result: &str) -> String {
        format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#)
    }

    fn progress(&self, step: usize) -> String {
        let params = format!(r#"{{"progressToken":{},"progress":{step}}}"#, self.token);
        format!(r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{params}}}"#)
    }

    /// The right answer, as JSON.
    async fn right(&self, out: &mut OwnedWriteHalf) -> io::Result<End> {
        let right = self.response(&self.id, &self.result);
        let whole = head(200, "application/json", &self.extra, right.len()) + &right;
        out.write_all(whole.as_bytes()).await?;
        Ok(End::KeepAlive)
    }

    /// Asks on the stream, and waits for what is answered.
    async fn ask(&self, out: &mut OwnedWriteHalf, methods: &[&str], state: &Mutex<State>) -> io::Result<End> {
        lock(state).replies.clear();
        out.write_all(STREAM.as_bytes()).await?;
        for (n, method) in methods.iter().enumerate() {
            let ask = format!(r#"{{"jsonrpc":"2.0","id":"ask-{n}","method":"{method}","params":{{}}}}"#);
            out.write_all(chunk(&format!("data: {ask}\n\n")).as_bytes()).await?;
        }
        let missing =
            |state: &State| (0..methods.len()).any(|n| !state.replies.contains_key(&format!("ask-{n}")));
        while missing(&lock(state)) {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        let last = chunk(&format!("data: {}\n\n", self.response(&self.id, &self.result))) + "0\r\n\r\n";
        out.write_all(last.as_bytes()).await?;
        Ok(End::KeepAlive)
    }

    /// Asks round by round, on the stream or beside it, and says what was answered.
    async fn talk(
        &self,
        out: &mut OwnedWriteHalf,
        rounds: &[Vec<(&'static str, String)>],
        beside: bool,
        state: &Mutex<State>,
    ) -> io::Result<End> {
        out.write_all(STREAM.as_bytes()).await?;
        let talk = {
            let mut state = lock(state);
            state.talks += 1;
            state.talks
        };
        let mut heard = Vec::new();
        for (round, questions) in rounds.iter().enumerate() {
            let id = |n: usize| format!("talk-{talk}-{}-{}", round + 1, n + 1);
            for (n, (method, params)) in questions.iter().enumerate() {
                let ask =
                    format!(r#"{{"jsonrpc":"2.0","id":"{}","method":"{method}","params":{params}}}"#, id(n));
                match beside {
                    true => lock(state).said.as_ref().map_or(0, |said| said.send(ask).unwrap_or(0)),
                    false => {
                        out.write_all(chunk(&format!("data: {ask}\n\n")).as_bytes()).await.map(|()| 1)?
                    }
                };
            }
            if !self.token.is_empty() && self.token != "null" {
                let step = chunk(&format!("data: {}\n\n", self.progress(round + 1)));
                out.write_all(step.as_bytes()).await?;
            }
            loop {
                let replies: Vec<_> =
                    (0..questions.len()).filter_map(|n| lock(state).replies.get(&id(n)).cloned()).collect();
                if replies.len() == questions.len() {
                    heard.push(format!("[{}]", replies.join(",")));
                    break;
                }
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        }
        let log = r#"{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"goes on"}}"#;
        out.write_all(chunk(&format!("data: {log}\n\n")).as_bytes()).await?;
        let heard = format!("[{}]", heard.join(","));
        let result = match self.result.contains(r#""messages""#) || self.result.contains(r#""contents""#) {
            true => self.result.clone(),
            false => format!(r#"{{"content":[],"structuredContent":{{"heard":{heard}}}}}"#),
        };
        let last = chunk(&format!("data: {}\n\n", self.response(&self.id, &result))) + "0\r\n\r\n";
        out.write_all(last.as_bytes()).await?;
        Ok(End::KeepAlive)
    }

    /// A stream of `events` and the right answer, each event written on its own.
    async fn events(&self, out: &mut OwnedWriteHalf, events: &[String]) -> io::Result<End> {
        let stream = STREAM.replace("\r\n\r\n", &format!("\r\n{}\r\n", self.extra));
        out.write_all(stream.as_bytes()).await?;
        for event in events {
            let event = event.replace("$ID", &self.id).replace("$TOKEN", &self.token);
            out.write_all(chunk(&format!("data: {event}\n\n")).as_bytes()).await?;
            out.flush().await?;
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let last = self.response(&self.id, &self.result);
        let last = chunk(&format!("event: message\ndata: {last}\n\n")) + "0\r\n\r\n";
        out.write_all(last.as_bytes()).await?;
        Ok(End::KeepAlive)
    }
}

impl State {
    /// Whether the method is about something of which nothing was added.
    fn lacks(&self, method: &str) -> bool {
        match method.split_once('/') {
            Some(("prompts", _)) => self.prompts.is_empty(),
            Some(("resources", _)) => self.resources.is_empty() && self.templates.is_empty(),
            _ => false,
        }
    }

    /// What it says it has, as text: tools, and of everything else what was added.
    fn advertised(&self) -> String {
        let mut capabilities = serde_json::json!({"tools": {}});
        if !self.prompts.is_empty() {
            capabilities["prompts"] = serde_json::json!({});
        }
        if !self.resources.is_empty() || !self.templates.is_empty() {
            capabilities["resources"] = serde_json::json!({"subscribe": true});
        }
        self.capabilities.clone().unwrap_or_else(|| capabilities.to_string())
    }

    fn initialized(&self) -> String {
        let revision = self.sessions.mode.as_ref().map_or("", |mode| mode.revision);
        let capabilities = self.advertised();
        let instructions = self.said();
        format!(
            r#"{{"protocolVersion":"{revision}","capabilities":{capabilities},"serverInfo":{{"name":"upstream","version":"1"}}{instructions}}}"#
        )
    }

    /// Its instructions, as a member that follows others.
    fn said(&self) -> String {
        let instructions = self.instructions.as_deref().map(|text| Value::from(text).to_string());
        instructions.map(|text| format!(r#","instructions":{text}"#)).unwrap_or_default()
    }

    fn discover(&self) -> String {
        let capabilities = self.advertised();
        let instructions = self.said();
        format!(
            r#"{{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{capabilities},"ttlMs":60000,"cacheScope":"private"{instructions}}}"#
        )
    }
}

const STREAM: &str =
    "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";

/// A result without what only the modern era knows.
fn of_handshake(result: &str) -> String {
    let hints = [r#","ttlMs":60000,"cacheScope":"private""#, r#","ttlMs":0,"cacheScope":"private""#];
    let parts = [r#""resultType":"complete","#, hints[0], hints[1]];
    parts.iter().fold(result.to_owned(), |result, part| result.replacen(part, "", 1))
}

/// One page of a list as the state, or the misbehaviour, has it.
fn page(state: &State, method: &str, behaviour: &Behaviour, cursor: Option<&str>) -> String {
    let (member, list) = match method {
        "prompts/list" => ("prompts", &state.prompts),
        "resources/list" => ("resources", &state.resources),
        "resources/templates/list" => ("resourceTemplates", &state.templates),
        _ => ("tools", &state.tools),
    };
    // `""` is a cursor like any other: here it names the second page.
    let number = match cursor {
        None => 0,
        Some("") => 1,
        Some(cursor) => cursor.parse().unwrap_or(0),
    };
    let (entries, next) = match behaviour {
        Behaviour::EndlessPages => {
            let name = format!(r#"{{"name":"t{number}","inputSchema":{{"type":"object"}}}}"#);
            (vec![name], Some(number + 1))
        }
        _ => {
            let definitions: Vec<String> = list.iter().map(|(_, d)| d.clone()).collect();
            let page = definitions.chunks(state.page_size).nth(number).unwrap_or_default().to_vec();
            let more = number.saturating_add(1).saturating_mul(state.page_size) < definitions.len();
            match behaviour {
                Behaviour::SameCursor => (definitions, Some(0)),
                _ => (page, more.then_some(number + 1)),
            }
        }
    };
    let next = match next {
        None => String::new(),
        Some(1) => r#","nextCursor":"""#.to_owned(),
        Some(next) => format!(r#","nextCursor":"{next}""#),
    };
    let entries = entries.join(",");
    format!(
        r#"{{"resultType":"complete","{member}":[{entries}],"ttlMs":60000,"cacheScope":"private"{next}}}"#
    )
}

fn head(status: u16, media: &str, extra: &str, length: usize) -> String {
    format!("HTTP/1.1 {status} Status\r\nContent-Type: {media}\r\n{extra}Content-Length: {length}\r\n\r\n")
}

fn chunk(text: &str) -> String {
    format!("{:x}\r\n{text}\r\n", text.len())
}

async fn text(out: &mut OwnedWriteHalf, text: &str, end: End) -> io::Result<End> {
    out.write_all(text.as_bytes()).await?;
    Ok(end)
}

async fn listen(out: &mut OwnedWriteHalf, state: &Mutex<State>) -> io::Result<End> {
    let mut said = lock(state).said.get_or_insert_with(|| broadcast::channel(1024).0).subscribe();
    out.write_all(STREAM.as_bytes()).await?;
    while let Ok(message) = said.recv().await {
        out.write_all(chunk(&format!("data: {message}\n\n")).as_bytes()).await?;
    }
    out.write_all(b"0\r\n\r\n").await?;
    Ok(End::KeepAlive)
}

async fn json(out: &mut OwnedWriteHalf, status: u16, body: &str) -> io::Result<End> {
    out.write_all(head(status, "application/json", "", body.len()).as_bytes()).await?;
    out.write_all(body.as_bytes()).await?;
    Ok(End::KeepAlive)
}

async fn server_request(out: &mut OwnedWriteHalf) -> io::Result<End> {
    let ask = r#"{"jsonrpc":"2.0","id":1,"method":"sampling/createMessage","params":{}}"#;
    out.write_all((STREAM.to_owned() + &chunk(&format!("data: {ask}\n\n"))).as_bytes()).await?;
    std::future::pending().await
}

async fn flood(out: &mut OwnedWriteHalf, media: &str, bytes: usize, state: &Mutex<State>) -> io::Result<End> {
    let head = format!("HTTP/1.1 200 OK\r\nContent-Type: {media}\r\nTransfer-Encoding: chunked\r\n\r\n");
    out.write_all(head.as_bytes()).await?;
    let first = if media == "text/event-stream" { "data: " } else { "" };
    out.write_all(chunk(&format!("{first}{{\"")).as_bytes()).await?;
    let piece = chunk(&"x".repeat(64 << 10));
    for _ in 0..bytes / (64 << 10) {
        out.write_all(piece.as_bytes()).await?;
        lock(state).flooded += 64 << 10;
    }
    Ok(End::Close)
}

async fn drip(out: &mut OwnedWriteHalf, body: &str) -> io::Result<End> {
    out.write_all(head(200, "application/json", "", body.len()).as_bytes()).await?;
    for byte in body.as_bytes() {
        out.write_all(&[*byte]).await?;
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    Ok(End::KeepAlive)
}

/// Lets what was written arrive before a reset may overtake it.
async fn linger() {
    tokio::time::sleep(Duration::from_millis(20)).await;
}
