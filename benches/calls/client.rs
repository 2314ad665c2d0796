//! A client: one kept-alive connection that sends `tools/call` and `tools/list` with everything a
//! modern request must carry.

use std::time::Duration;

use anyhow::Context;
use bytes::Bytes;
use http::HeaderValue;
use http::Request;
use http::StatusCode;
use http::Uri;
use http_body_util::BodyExt;
use http_body_util::Full;
use hyper::client::conn::http1::SendRequest;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::REVISION;

/// A call that takes longer is an error of the run.
const PATIENCE: Duration = Duration::from_secs(20);

/// One kept-alive connection to one endpoint.
pub struct Client {
    authority: String,
    path: String,
    sender: SendRequest<Full<Bytes>>,
}

/// The `Authorization` values of `file`, one token a line; without a file, none is sent.
pub fn credentials(file: Option<&std::path::Path>) -> anyhow::Result<Vec<Option<HeaderValue>>> {
    let Some(file) = file else { return Ok(vec![None]) };
    let tokens = std::fs::read_to_string(file).with_context(|| format!("reading {}", file.display()))?;
    let credentials: Vec<_> = tokens
        .lines()
        .filter(|line| !line.is_empty())
        .map(|token| Ok(Some(HeaderValue::from_str(&format!("Bearer {token}"))?)))
        .collect::<anyhow::Result<_>>()?;
    anyhow::ensure!(!credentials.is_empty(), "{} holds no token", file.display());
    Ok(credentials)
}

impl Client {
    pub async fn connect(url: &str) -> anyhow::Result<Self> {
        let uri: Uri = url.parse().with_context(|| format!("{url} is no URL"))?;
        let authority = uri.authority().context("the URL has no authority")?.to_string();
        let path = uri.path().to_owned();
        let sender = open(&authority).await?;
        Ok(Self { authority, path, sender })
    }

    /// Calls `tool` with `text`, which must need no escaping in JSON. A connection that the
    /// server closed between two calls is opened anew.
    pub async fn call(
        &mut self,
        credential: Option<&HeaderValue>,
        tool: &str,
        id: u64,
        text: &str,
    ) -> anyhow::Result<(StatusCode, Bytes)> {
        let params = format!(r#""name":"{tool}","arguments":{{"text":"{text}"}},"#);
        self.ask(credential, "tools/call", Some(tool), id, &params).await
    }

    /// Asks for the first page of tools.
    pub async fn list(
        &mut self,
        credential: Option<&HeaderValue>,
        id: u64,
    ) -> anyhow::Result<(StatusCode, Bytes)> {
        self.ask(credential, "tools/list", None, id, "").await
    }

    /// Gets the URL itself, as a file.
    pub async fn get(&mut self) -> anyhow::Result<(StatusCode, Bytes)> {
        let request = Request::get(&self.path).header("host", &self.authority).body(Full::default())?;
        self.send(request).await
    }

    /// A request with these members of `params`, each with a comma behind it.
    async fn ask(
        &mut self,
        credential: Option<&HeaderValue>,
        method: &str,
        name: Option<&str>,
        id: u64,
        params: &str,
    ) -> anyhow::Result<(StatusCode, Bytes)> {
        let body = format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{{{params}"_meta":{{"io.modelcontextprotocol/protocolVersion":"{REVISION}","io.modelcontextprotocol/clientInfo":{{"name":"bench","version":"1"}},"io.modelcontextprotocol/clientCapabilities":{{}}}}}}}}"#
        );
        let mut request = Request::post(&self.path)
            .header("host", &self.authority)
            .header("content-type", "application/json")
            .header("accept", "application/json, text/event-stream")
            .header("mcp-protocol-version", REVISION)
            .header("mcp-method", method);
        if let Some(name) = name {
            request = request.header("mcp-name", name);
        }
        if let Some(credential) = credential {
            request = request.header("authorization", credential);
        }
        self.send(request.body(Full::new(body.into()))?).await
    }

    async fn send(&mut self, request: Request<Full<Bytes>>) -> anyhow::Result<(StatusCode, Bytes)> {
        if self.sender.ready().await.is_err() {
            self.sender = open(&self.authority).await?;
        }
        let exchange = async {
            let response = self.sender.send_request(request).await?;
            let status = response.status();
            anyhow::Ok((status, response.into_body().collect().await?.to_bytes()))
        };
        timeout(PATIENCE, exchange).await.context("no answer in time")?
    }
}

async fn open(authority: &str) -> anyhow::Result<SendRequest<Full<Bytes>>> {
    let stream = TcpStream::connect(authority).await.with_context(|| format!("connecting to {authority}"))?;
    stream.set_nodelay(true)?;
    let (sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    // Its end shows as a sender that is not ready.
    tokio::spawn(connection);
    Ok(sender)
}
