//! The request line: one structured event per request, target `request`.
//!
//! docs/reference/request-log.md documents every field. Never in it: tokens, queries,
//! arguments, results, resource URIs.

use std::borrow::Cow;
use std::fmt::Write;
use std::time::Duration;

use aws_lc_rs::digest;

/// The target of the event, for filters.
pub const TARGET: &str = "request";

const LONGEST: usize = 128;
const DIGEST_BYTES: usize = 8;

/// What is said of one request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestLine {
    /// The HTTP method, as sent.
    pub http_method: String,
    /// What the path names.
    pub path: PathKind,
    /// The HTTP status; 0 where the client left before there was one.
    pub status: u16,
    /// The JSON-RPC method, once read.
    pub rpc_method: Option<String>,
    /// The tenant, once known.
    pub tenant: Option<String>,
    /// The backend that was asked.
    pub backend: Option<String>,
    /// What was asked for.
    pub target: Option<Target>,
    /// Which refusal answered; the refusal's name, not its text.
    pub refusal: Option<&'static str>,
    /// How it ended, as the metrics say it.
    pub outcome: Option<&'static str>,
    /// What went wrong on our side or the backend's, with its cause.
    pub error: Option<String>,
    /// [`subject`] of the caller, once authenticated.
    pub subject: Option<String>,
    /// From the head to the end of the answer.
    pub duration: Duration,
    /// Bytes of the request's body.
    pub bytes_in: u64,
    /// Bytes of the answer's body.
    pub bytes_out: u64,
    /// The W3C trace id.
    pub trace_id: Option<String>,
}

/// What a path names. The path itself is the client's text, and a query may hold secrets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PathKind {
    /// `/mcp`, under the shared authority or a tenant's host.
    Mcp,
    /// `/t/{tenant}/mcp`.
    TenantMcp,
    /// Protected resource metadata.
    Metadata,
    /// The development issuer.
    DevIssuer,
    /// Anything else.
    #[default]
    Other,
}

impl PathKind {
    /// The field's value.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Mcp => "mcp",
            Self::TenantMcp => "tenant_mcp",
            Self::Metadata => "metadata",
            Self::DevIssuer => "dev_issuer",
            Self::Other => "other",
        }
    }
}

/// What a request asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// A tool's or prompt's public name.
    Name(String),
    /// A resource's URI, which may say more than a log should: its digest is logged.
    Resource(String),
}

impl RequestLine {
    /// Says it.
    pub fn emit(&self) {
        let (target_name, resource) = match &self.target {
            Some(Target::Name(name)) => (Some(clean(name)), None),
            Some(Target::Resource(uri)) => (None, Some(digest_of(&[uri]))),
            None => (None, None),
        };
        macro_rules! say {
            ($level:ident) => {
                tracing::$level!(
                    target: TARGET,
                    http_method = &*clean(&self.http_method),
                    path = self.path.as_str(),
                    status = self.status,
                    rpc_method = self.rpc_method.as_deref().map(clean).as_deref(),
                    tenant = self.tenant.as_deref().map(clean).as_deref(),
                    backend = self.backend.as_deref().map(clean).as_deref(),
                    name = target_name.as_deref(),
                    resource = resource.as_deref(),
                    outcome = self.outcome,
                    refusal = self.refusal,
                    error = self.error.as_deref().map(clean).as_deref(),
                    subject = self.subject.as_deref().map(clean).as_deref(),
                    duration_ms = u64::try_from(self.duration.as_millis()).unwrap_or(u64::MAX),
                    bytes_in = self.bytes_in,
                    bytes_out = self.bytes_out,
                    trace_id = self.trace_id.as_deref().map(clean).as_deref(),
                    "request"
                )
            };
        }
        // What is our fault, or a backend's, is worth somebody's attention.
        if self.error.is_some() { say!(error) } else { say!(info) }
    }
}

/// The pseudonym of a caller: equal for equal (issuer, subject), and neither of them.
pub fn subject(issuer: &str, subject: &str) -> String {
    digest_of(&[issuer, subject])
}

fn digest_of(parts: &[&str]) -> String {
    let mut context = digest::Context::new(&digest::SHA256);
    for part in parts {
        context.update(&part.len().to_be_bytes());
        context.update(part.as_bytes());
    }
    context.finish().as_ref().iter().take(DIGEST_BYTES).fold(String::new(), |mut hex, byte| {
        let _ = write!(hex, "{byte:02x}");
        hex
    })
}

/// At most 128 characters, each one that a terminal and a line-based reader take as text.
fn clean(text: &str) -> Cow<'_, str> {
    if text.len() <= LONGEST && text.bytes().all(|b| (b' '..=b'~').contains(&b) && b != b'\\') {
        return Cow::Borrowed(text);
    }
    let mut out = String::new();
    for (count, character) in text.chars().enumerate() {
        if count == LONGEST {
            out.push('…');
            break;
        }
        match character {
            '\\' => out.push_str("\\\\"),
            c if is_text(c) => out.push(c),
            c => out.extend(c.escape_unicode()),
        }
    }
    Cow::Owned(out)
}

// Controls, and the formatting characters that reorder or hide what a person reads.
fn is_text(c: char) -> bool {
    !matches!(c,
        '\0'..='\u{1f}' | '\u{7f}'..='\u{9f}' | '\u{ad}' | '\u{61c}' | '\u{200b}'..='\u{200f}'
        | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{e0000}'..='\u{e007f}')
}

#[cfg(test)]
mod tests;
