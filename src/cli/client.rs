//! What the commands that speak to the admin API share: where it is, whose key is used, and how a
//! refusal is told.

use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use bytes::Bytes;
use clap::Args;
use http::Method;
use http::Request;
use http_body_util::BodyExt;
use http_body_util::Full;
use http_body_util::Limited;
use secrecy::ExposeSecret;
use secrecy::SecretString;
use serde_json::Value;
use url::Url;

use crate::admin::api::operations::BASE;
use crate::cli::BadInput;
use crate::config::secret;
use crate::egress::Egress;
use crate::egress::rules::Allow;
use crate::egress::rules::Rules;

/// The variable that holds the operator's key. There is no argument for it: others would see it.
const KEY: &str = "FONDACO_ADMIN_KEY";

/// The longest answer that is read.
const LONGEST: usize = 64 << 20;

/// How long an answer is waited for.
const PATIENCE: Duration = Duration::from_secs(60);

/// Entries that are asked for at a time.
const PAGE: usize = 500;

/// Where the admin API is, and whose key is used.
#[derive(Args)]
pub struct Access {
    /// Where the admin API is
    #[arg(
        long,
        value_name = "URL",
        default_value = "http://127.0.0.1:8081",
        env = "FONDACO_ADMIN_URL",
        global = true
    )]
    pub url: String,
    /// A file with an operator's key; without it, the variable FONDACO_ADMIN_KEY holds it
    #[arg(long, value_name = "FILE", global = true)]
    pub key_file: Option<PathBuf>,
    /// Print JSON
    #[arg(long, global = true)]
    pub json: bool,
}

/// The admin API, as an operator.
pub struct Client {
    egress: Egress,
    base: String,
    key: SecretString,
}

/// An answer of it.
pub struct Answer {
    /// The HTTP status.
    pub status: u16,
    /// The body; null where there is none.
    pub body: Value,
}

/// Where something is in the API, from its names.
pub fn path(parts: &[&str]) -> String {
    parts.iter().map(|part| format!("/{}", crate::model::uri::segment(part))).collect()
}

impl Access {
    /// The client that this describes.
    pub fn open(&self) -> anyhow::Result<Client> {
        let url = Url::parse(&self.url).ok().filter(|url| {
            let plain = url.username().is_empty() && url.password().is_none() && url.query().is_none();
            matches!(url.scheme(), "http" | "https") && url.path() == "/" && plain && url.fragment().is_none()
        });
        let url = url.ok_or_else(|| {
            let text = "--url: expected a scheme and an authority, as `http://127.0.0.1:8081`";
            BadInput(text.to_owned())
        })?;
        let key = match &self.key_file {
            Some(file) => {
                let read = secret::read(file);
                read.map_err(|error| BadInput(format!("--key-file: {} {error}", file.display())))?.to_string()
            }
            None => std::env::var(KEY).unwrap_or_default().trim().to_owned(),
        };
        if key.is_empty() {
            let text = format!(
                "there is no operator's key\n  hint: set {KEY}, or name a file with `--key-file`; `fondaco operator \
                 create NAME` makes one"
            );
            return Err(BadInput(text).into());
        }
        // Wherever the operator says that it is.
        let rules = Rules { allow: vec!["0.0.0.0/0".parse::<Allow>()?, "::/0".parse::<Allow>()?] };
        let egress = Egress::new(rules, Duration::from_secs(5), &[])?;
        Ok(Client { egress, base: format!("{}{BASE}", url.origin().ascii_serialization()), key: key.into() })
    }
}

impl Client {
    /// What is at a path; none where there is nothing.
    pub async fn get(&self, path: &str) -> anyhow::Result<Option<Value>> {
        let answer = self.ask(Method::GET, path, None, None).await?;
        match answer.status {
            404 => Ok(None),
            _ => Ok(Some(answer.good()?)),
        }
    }

    /// A whole list, page after page; none where what it belongs to is not there.
    pub async fn list(&self, path: &str) -> anyhow::Result<Option<Vec<Value>>> {
        let (mut items, mut cursor) = (Vec::new(), String::new());
        loop {
            let Some(mut page) = self.get(&format!("{path}?limit={PAGE}{cursor}")).await? else {
                return Ok(None);
            };
            if let Value::Array(more) = page["items"].take() {
                items.extend(more);
            }
            match page["next"].as_str() {
                Some(next) => cursor = format!("&cursor={next}"),
                None => return Ok(Some(items)),
            }
        }
    }

    /// Makes something.
    pub async fn create(&self, path: &str, body: &Value) -> anyhow::Result<Value> {
        self.ask(Method::POST, path, None, Some(body)).await?.good()
    }

    /// Replaces something, whatever it is or in the state `revision`.
    pub async fn replace(&self, path: &str, revision: Option<u64>, body: &Value) -> anyhow::Result<Answer> {
        self.ask(Method::PUT, path, Some(state(revision)), Some(body)).await
    }

    /// Deletes something, whatever it is or in the state `revision`.
    pub async fn delete(&self, path: &str, revision: Option<u64>) -> anyhow::Result<Answer> {
        self.ask(Method::DELETE, path, Some(state(revision)), None).await
    }

    async fn ask(
        &self,
        method: Method,
        path: &str,
        state: Option<String>,
        body: Option<&Value>,
    ) -> anyhow::Result<Answer> {
        let mut request = Request::builder()
            .method(method)
            .uri(format!("{}{path}", self.base))
            .header("authorization", format!("Bearer {}", self.key.expose_secret()))
            .header("accept", "application/json");
        if let Some(state) = state {
            request = request.header("if-match", state);
        }
        if body.is_some() {
            request = request.header("content-type", "application/json");
        }
        let body = body.map(Value::to_string).unwrap_or_default();
        let request = request.body(Full::new(Bytes::from(body)));
        // Its own words might show the key.
        let request = request.map_err(|_| BadInput("the operator's key is not one".to_owned()))?;
        let exchange = async {
            let response = self.egress.send(request).await?;
            let status = response.status().as_u16();
            let text = Limited::new(response.into_body(), LONGEST).collect().await;
            let text = text.map_err(|_| anyhow::anyhow!("the answer was cut"))?.to_bytes();
            anyhow::Ok((status, text))
        };
        let answered = tokio::time::timeout(PATIENCE, exchange).await;
        let (status, text) = answered
            .unwrap_or_else(|_| Err(anyhow::anyhow!("no answer within {} s", PATIENCE.as_secs())))
            .with_context(|| format!("the admin API at {} does not answer", self.base))?;
        if text.is_empty() {
            return Ok(Answer { status, body: Value::Null });
        }
        let body = serde_json::from_slice(&text)
            .with_context(|| format!("what answers at {} is no admin API", self.base))?;
        Ok(Answer { status, body })
    }
}

impl Answer {
    /// The body, or the refusal as an error.
    pub fn good(self) -> anyhow::Result<Value> {
        if self.status < 300 {
            return Ok(self.body);
        }
        let mut text = self.body["detail"].as_str().unwrap_or("the request was refused").to_owned();
        for error in self.body["errors"].as_array().into_iter().flatten() {
            let part = |name: &str| error[name].as_str().unwrap_or_default();
            text.push_str(&format!("\n  {}: {}", part("path"), part("message")));
            if let Some(hint) = error["hint"].as_str() {
                text.push_str(&format!("\n    hint: {hint}"));
            }
        }
        match self.status {
            401 => text.push_str("\n  hint: `fondaco operator list` says which operators there are"),
            412 => text.push_str("\n  hint: somebody else writes too; run the command again"),
            _ => {}
        }
        Err(anyhow::anyhow!(text))
    }
}

/// `If-Match` of a state, or of whatever it is.
fn state(revision: Option<u64>) -> String {
    revision.map_or_else(|| "*".to_owned(), |revision| format!("\"{revision}\""))
}

/// Prints rows with columns that are as wide as they need to be.
fn table(out: &mut impl Write, heads: &[&str], rows: &[Vec<String>]) -> std::io::Result<()> {
    let width = |at: usize| {
        let cells = rows.iter().map(|row| row[at].chars().count());
        cells.chain([heads[at].len()]).max().unwrap_or_default()
    };
    let widths: Vec<usize> = (0..heads.len()).map(width).collect();
    let heads: Vec<String> = heads.iter().map(|head| (*head).to_owned()).collect();
    for row in std::iter::once(&heads).chain(rows) {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
        writeln!(out, "{}", cells.collect::<Vec<_>>().join("  ").trim_end())?;
    }
    Ok(())
}

/// Prints JSON for machines, or for people who read it.
pub fn print(out: &mut impl Write, value: &Value) -> anyhow::Result<()> {
    writeln!(out, "{}", serde_json::to_string_pretty(value)?)?;
    Ok(())
}

/// Prints a list, as JSON or as a table of what `row` makes of each item.
pub fn listed(
    out: &mut impl Write,
    items: Vec<Value>,
    json: bool,
    heads: &[&str],
    row: impl Fn(&Value) -> Vec<String>,
) -> anyhow::Result<()> {
    if json {
        return print(out, &Value::Array(items));
    }
    table(out, heads, &items.iter().map(row).collect::<Vec<_>>())?;
    Ok(())
}

/// A value as a cell of a table.
pub fn cell(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// Several words as a cell of a table.
pub fn joined<'w>(words: impl Iterator<Item = &'w str>) -> String {
    match words.collect::<Vec<_>>().join(", ") {
        none if none.is_empty() => "-".to_owned(),
        words => words,
    }
}
