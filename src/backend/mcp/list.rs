//! Everything that a backend lists, page by page, within the limits.

use std::collections::HashSet;

use crate::backend::BackendError;
use crate::backend::Listing;
use crate::backend::clock::Clock;
use crate::backend::mcp::Mcp;
use crate::protocol::call::Outcome;
use crate::protocol::code;
use crate::protocol::json::Json;
use crate::protocol::json::Kind;
use crate::protocol::json::compose::Object;
use crate::protocol::methods::Method;

/// The longest `ttlMs` that is believed: an hour.
const MAX_TTL_MS: u64 = 3_600_000;

/// A listing is at most so many times the size of the largest single answer.
const LARGEST_ANSWERS: usize = 4;

/// Every list, and the instructions.
pub(super) async fn everything(mcp: &Mcp) -> Result<Listing, BackendError> {
    let time = mcp.upstream.limits.list_time;
    let both = async { tokio::join!(tokio::time::timeout(time / 4, mcp.instructions()), tools(mcp)) };
    let late = |_| BackendError::TimedOut { clock: Clock::Total, sent: true };
    let (instructions, listing) = tokio::time::timeout(time, both).await.map_err(late)?;
    let mut listing = listing?;
    // Instructions are worth having, not worth failing for; a refused credential is news, though.
    listing.instructions = match instructions {
        Ok(Err(BackendError::Unauthorized)) => return Err(BackendError::Unauthorized),
        Ok(Ok(instructions)) => instructions,
        Ok(Err(_)) | Err(_) => None,
    };
    Ok(listing)
}

/// spec: server/utilities/pagination
async fn tools(mcp: &Mcp) -> Result<Listing, BackendError> {
    let limits = &mcp.upstream.limits;
    let mut listing = Listing::default();
    let mut seen = HashSet::new();
    let mut bytes = 0;
    let mut cursor: Option<Json> = None;
    for _ in 0..limits.upstream_pages {
        let Some(page) = page(mcp, cursor.as_ref()).await? else {
            return Ok(listing);
        };
        // Whole pages count: a small tool keeps all of the page that it is a slice of.
        bytes += page.bytes().len();
        if bytes > LARGEST_ANSWERS * limits.upstream_bytes {
            listing.truncated = Some("its list is larger than is taken from one backend");
            return Ok(listing);
        }
        listing.ttl_ms = match (listing.ttl_ms, ttl(&page)) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        };
        let tools = page.member("tools").filter(|tools| tools.kind() == Kind::Array);
        let tools = tools.ok_or(BackendError::Invalid("its `tools` is no array"))?;
        cursor = match page.member("nextCursor") {
            None => None,
            Some(next) if next.kind() == Kind::Null => None,
            Some(next) if next.kind() == Kind::String => Some(next),
            Some(_) => return Err(BackendError::Invalid("its `nextCursor` is no string")),
        };
        let known = listing.tools.len();
        let mut fresh = false;
        for tool in tools.elements() {
            if listing.tools.len() >= limits.upstream_tools {
                listing.truncated = Some("it lists more tools than are taken from one backend");
                return Ok(listing);
            }
            fresh |= seen.insert(tool.member("name").unwrap_or_else(|| tool.clone()).bytes().clone());
            listing.tools.push(tool);
        }
        if !fresh {
            listing.tools.truncate(known);
        }
        if cursor.is_none() {
            return Ok(listing);
        }
        if !fresh {
            listing.truncated = Some("a page of its list has nothing new, but names a next one");
            return Ok(listing);
        }
    }
    listing.truncated = Some("its list has more pages than are read");
    Ok(listing)
}

/// One page; `None` where the backend has no such list at all.
async fn page(mcp: &Mcp, cursor: Option<&Json>) -> Result<Option<Json>, BackendError> {
    match mcp.ask(Method::ToolsList, Object::new().put_some("cursor", cursor)).await {
        Ok(Outcome::Result(result)) => Ok(Some(result)),
        Ok(Outcome::Error(error)) if error.code == code::METHOD_NOT_FOUND && cursor.is_none() => Ok(None),
        Ok(Outcome::Error(_)) | Err(BackendError::Stale) => {
            Err(BackendError::Invalid("it answered `tools/list` with an error"))
        }
        // spec: patterns/mrtr: lists never ask for input.
        Err(BackendError::InputRequired) => {
            Err(BackendError::Invalid("it answered `tools/list` with `input_required`"))
        }
        Err(error) => Err(error),
    }
}

/// spec: server/utilities/caching, Time-to-Live (TTL) Field
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped to what fits")]
fn ttl(page: &Json) -> Option<u64> {
    let ttl = page.member("ttlMs").filter(|ttl| ttl.kind() == Kind::Number)?;
    let ttl: f64 = ttl.text().parse().ok()?;
    Some(ttl.clamp(0.0, MAX_TTL_MS as f64) as u64)
}
