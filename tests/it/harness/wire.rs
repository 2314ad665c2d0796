//! HTTP/1.1 by hand: what is sent is exactly what the test says.

use std::net::SocketAddr;
use std::time::Duration;

use serde_json::Value;
use tokio::io::AsyncReadExt;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpSocket;
use tokio::net::TcpStream;

/// How long an answer, or a part of one, is waited for.
const PATIENCE: Duration = Duration::from_secs(30);

/// A whole answer.
#[derive(Debug)]
pub struct Answer {
    /// The status; 0 if the connection closed without an answer.
    pub status: u16,
    /// Names in lower case, in order.
    pub headers: Vec<(String, String)>,
    /// The body, without transfer encoding.
    pub body: Vec<u8>,
}

impl Answer {
    /// The first value of a header.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_str())
    }

    /// The body as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The `data` of each event of a stream.
    pub fn events(&self) -> Vec<Value> {
        let text = self.text();
        let data =
            text.split("\n\n").filter_map(|event| event.lines().find_map(|l| l.strip_prefix("data: ")));
        data.map(|data| serde_json::from_str(data).unwrap()).collect()
    }

    /// The JSON-RPC message: the body, or the last event.
    pub fn message(&self) -> Value {
        if self.header("content-type").is_some_and(|t| t.starts_with("text/event-stream")) {
            return self.events().pop().unwrap_or_else(|| panic!("no event in {:?}", self.text()));
        }
        serde_json::from_slice(&self.body).unwrap_or_else(|_| panic!("{} {:?}", self.status, self.text()))
    }

    /// The result, or a panic that shows what came instead.
    pub fn result(&self) -> Value {
        let message = self.message();
        assert!(message.get("result").is_some(), "{} {message}", self.status);
        message["result"].clone()
    }

    /// The status and the error's code; 0 where there is no JSON-RPC error.
    pub fn refusal(&self) -> (u16, i64) {
        let message: Value = serde_json::from_slice(&self.body).unwrap_or_default();
        let message = if message.is_null() && !self.body.is_empty() && self.status == 200 {
            self.message()
        } else {
            message
        };
        (self.status, message["error"]["code"].as_i64().unwrap_or(0))
    }
}

/// Sends one request on a connection of its own.
pub async fn request(
    addr: SocketAddr,
    method: &str,
    path: &str,
    headers: &[(String, String)],
    body: &[u8],
) -> Answer {
    let mut head = format!("{method} {path} HTTP/1.1\r\n");
    if !headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("host")) {
        head.push_str(&format!("Host: {addr}\r\n"));
    }
    for (name, value) in headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    if !headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("content-length")) {
        head.push_str(&format!("Content-Length: {}\r\n", body.len()));
    }
    let bytes = [format!("{head}Connection: close\r\n\r\n").as_bytes(), body].concat();
    raw(addr, &bytes).await
}

/// Sends these bytes and reads until the other side closes.
pub async fn raw(addr: SocketAddr, bytes: &[u8]) -> Answer {
    let mut stream = TcpStream::connect(addr).await.unwrap();
    // A refusal may come, and the connection close, before all was written.
    let _ = stream.write_all(bytes).await;
    let mut text = Vec::new();
    let read = tokio::time::timeout(Duration::from_secs(30), stream.read_to_end(&mut text)).await;
    let _ = read.expect("no end of the answer within 30 s");
    parse(&text)
}

/// Reads a whole answer.
pub fn parse(text: &[u8]) -> Answer {
    let Some(end) = text.windows(4).position(|w| w == b"\r\n\r\n") else {
        return Answer { status: 0, headers: Vec::new(), body: text.to_vec() };
    };
    let head = String::from_utf8_lossy(&text[..end]).into_owned();
    let mut lines = head.split("\r\n");
    let status = lines.next().and_then(|l| l.split(' ').nth(1)).and_then(|s| s.parse().ok()).unwrap_or(0);
    let headers: Vec<(String, String)> = lines
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
        .collect();
    let body = &text[end + 4..];
    let chunked = headers.iter().any(|(n, v)| n == "transfer-encoding" && v == "chunked");
    let body = if chunked { unchunk(body) } else { body.to_vec() };
    Answer { status, headers, body }
}

fn unchunk(mut body: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    while let Some(line) = body.windows(2).position(|w| w == b"\r\n") {
        let size = std::str::from_utf8(&body[..line]).ok().and_then(|s| usize::from_str_radix(s, 16).ok());
        let Some(size) = size.filter(|&size| size > 0 && body.len() >= line + 2 + size) else { break };
        out.extend_from_slice(&body[line + 2..line + 2 + size]);
        body = body.get(line + 4 + size..).unwrap_or_default();
    }
    out
}

/// A connection that is kept from one request to the next, and whose answers can be read piece by
/// piece. Dropping it closes it.
pub struct Connection {
    stream: TcpStream,
    raw: Vec<u8>,
    body: Vec<u8>,
    /// How many bytes of the body are still to come; `None` for chunks.
    left: Option<usize>,
    ended: bool,
}

impl Connection {
    /// Connects.
    pub async fn open(addr: SocketAddr) -> Self {
        Self::over(TcpStream::connect(addr).await.unwrap())
    }

    /// Connects with as small a receive buffer as the system gives.
    pub async fn open_narrow(addr: SocketAddr) -> Self {
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(1).unwrap();
        Self::over(socket.connect(addr).await.unwrap())
    }

    fn over(stream: TcpStream) -> Self {
        stream.set_nodelay(true).unwrap();
        Self { stream, raw: Vec::new(), body: Vec::new(), left: None, ended: true }
    }

    /// Sends these bytes; whether the other side still took them.
    pub async fn send(&mut self, bytes: impl AsRef<[u8]>) -> bool {
        self.stream.write_all(bytes.as_ref()).await.is_ok()
    }

    /// Sends a POST without waiting for its answer.
    pub async fn post(&mut self, path: &str, headers: &[(String, String)], body: &str) {
        let mut text = format!("POST {path} HTTP/1.1\r\nHost: {}\r\n", self.stream.peer_addr().unwrap());
        for (name, value) in headers {
            text.push_str(&format!("{name}: {value}\r\n"));
        }
        text.push_str(&format!("Content-Length: {}\r\n\r\n{body}", body.len()));
        assert!(self.send(text).await, "closed before the request was sent");
    }

    /// The next answer's head, a 1xx's too; its body is empty. Status 0 if the connection has ended.
    pub async fn head(&mut self) -> Answer {
        let end = loop {
            match self.raw.windows(4).position(|bytes| bytes == b"\r\n\r\n") {
                Some(end) => break end + 4,
                None if self.fill(PATIENCE).await => {}
                None => {
                    let body = std::mem::take(&mut self.raw);
                    self.ended = true;
                    return Answer { status: 0, headers: Vec::new(), body };
                }
            }
        };
        let answer = parse(&self.raw.drain(..end).collect::<Vec<_>>());
        self.body.clear();
        self.left = match answer.header("transfer-encoding") {
            Some(_) => None,
            None => Some(answer.header("content-length").map_or(0, |length| length.parse().unwrap())),
        };
        self.ended = self.left == Some(0);
        answer
    }

    /// The next answer, whole.
    pub async fn answer(&mut self) -> Answer {
        let mut answer = self.head().await;
        self.decode();
        while !self.ended && self.fill(PATIENCE).await {
            self.decode();
        }
        if answer.status != 0 {
            answer.body = std::mem::take(&mut self.body);
        }
        answer
    }

    /// The next event with its lines, or the next comment; `None` at the end of the stream.
    pub async fn event(&mut self) -> Option<String> {
        loop {
            self.decode();
            if let Some(end) = self.body.windows(2).position(|bytes| bytes == b"\n\n") {
                let block = self.body.drain(..end + 2).collect::<Vec<_>>();
                return Some(String::from_utf8(block).unwrap());
            }
            if self.ended {
                assert!(self.body.is_empty(), "a stream ends with a whole event");
                return None;
            }
            assert!(self.fill(PATIENCE).await, "closed in the middle of a stream");
        }
    }

    /// Whether nothing at all comes within `time`, and the connection stays open.
    pub async fn is_silent(&mut self, time: Duration) -> bool {
        self.raw.is_empty() && tokio::time::timeout(time, self.stream.read_buf(&mut self.raw)).await.is_err()
    }

    /// Whether the other side closes, within 10 s and without another byte.
    pub async fn is_closed(&mut self) -> bool {
        self.raw.is_empty() && !self.fill(Duration::from_secs(10)).await
    }

    async fn fill(&mut self, time: Duration) -> bool {
        let read = tokio::time::timeout(time, self.stream.read_buf(&mut self.raw)).await;
        read.unwrap_or_else(|_| panic!("nothing came within {time:?}")).is_ok_and(|count| count > 0)
    }

    /// Moves what has come of the body from `raw` to `body`.
    fn decode(&mut self) {
        if self.ended {
            return;
        }
        if let Some(left) = &mut self.left {
            let taken = self.raw.len().min(*left);
            self.body.extend(self.raw.drain(..taken));
            *left -= taken;
            self.ended = *left == 0;
            return;
        }
        while let Some(line) = self.raw.windows(2).position(|bytes| bytes == b"\r\n") {
            let size = std::str::from_utf8(&self.raw[..line]).unwrap();
            let size = usize::from_str_radix(size, 16).unwrap();
            if self.raw.len() < line + 4 + size {
                return;
            }
            self.body.extend_from_slice(&self.raw[line + 2..line + 2 + size]);
            self.raw.drain(..line + 4 + size);
            if size == 0 {
                self.ended = true;
                return;
            }
        }
    }
}
