//! Everything that a backend lists, page by page, within the limits.

use std::collections::HashSet;
use std::sync::Arc;

use futures_util::future::join_all;
use tokio::time::Instant;
use tokio::time::timeout;
use tokio::time::timeout_at;

use crate::backend::Account;
use crate::backend::BackendError;
use crate::backend::clock::Clock;
use crate::backend::listing::Listed;
use crate::backend::listing::Listing;
use crate::backend::mcp::Mcp;
use crate::backend::mcp::probe::Era;
use crate::model::limits::Limits;
use crate::protocol::caching;
use crate::protocol::call::Outcome;
use crate::protocol::code;
use crate::protocol::json::Json;
use crate::protocol::json::Kind;
use crate::protocol::json::compose::Object;
use crate::protocol::methods::List;
use crate::protocol::tasks;

/// A list is at most so many times the size of the largest single answer.
const LARGEST_ANSWERS: usize = 4;

/// Longest thing that a backend may say of an extension, in bytes.
const EXTENSION_BYTES: usize = 4 << 10;

/// One list, and the shortest `ttlMs` of its pages.
type Had = Result<(Listed, Option<u64>), BackendError>;

/// Every list, and the instructions, for `account`.
pub(super) async fn everything(mcp: &Mcp, account: &Account) -> Result<Listing, BackendError> {
    let time = mcp.upstream.limits.list_time;
    let deadline = Instant::now() + time;
    // What it says of itself is worth having, not worth failing for; a refused credential is news, though.
    let about = match timeout(time / 4, mcp.about(account)).await {
        Ok(Err(BackendError::Unauthorized)) => return Err(BackendError::Unauthorized),
        Ok(Ok(about)) => about,
        Ok(Err(_)) | Err(_) => None,
    };
    let capabilities = about.as_ref().and_then(|about| about.member("capabilities"));
    let lists = List::ALL.map(async |list| match offers(capabilities.as_ref(), list) {
        true => timeout_at(deadline, one(mcp, account, list)).await.unwrap_or_else(|_| Err(late())),
        false => Ok((Listed::Absent, None)),
    });
    // The extension is none of the handshake era's.
    let speaks = about.is_some().then(|| mcp.probe.known() == Some(Era::Modern));
    let tasks = speaks.map(|modern| modern && capabilities.as_ref().is_some_and(knows_tasks));
    let extensions = extensions(capabilities.as_ref(), &mcp.upstream.config.extensions);
    let instructions = about.and_then(|about| about.member("instructions")?.string());
    let mut listing = Listing { instructions, extensions, tasks, ..Listing::default() };
    for (list, had) in List::ALL.into_iter().zip(join_all(lists).await) {
        match had {
            Ok((listed, ttl)) => {
                *listing.of_mut(list) = listed;
                listing.ttl_ms = shortest(listing.ttl_ms, ttl);
            }
            Err(error) => listing.failed.push((list, error)),
        }
    }
    let none = List::ALL.iter().all(|list| !listing.of(*list).is_known());
    match none && !listing.failed.is_empty() {
        true => Err(listing.failed.swap_remove(0).1),
        false => Ok(listing),
    }
}

/// Whether a backend with these capabilities has the list. One that does not tell is asked.
///
/// spec: server/discover, Response
fn offers(capabilities: Option<&Json>, list: List) -> bool {
    capabilities
        .filter(|all| all.is_object())
        .is_none_or(|all| all.member(list.capability()).is_some_and(|capability| capability.is_object()))
}

/// spec: SEP-2663, Capability Negotiation
fn knows_tasks(capabilities: &Json) -> bool {
    tasks::declared(capabilities).is_some()
}

/// What a backend with these capabilities says of the extensions that are allowed.
///
/// spec: row EX-14; basic/versioning, Extension Negotiation
fn extensions(capabilities: Option<&Json>, allowed: &[Arc<str>]) -> Vec<(Arc<str>, Json)> {
    let offered = capabilities.and_then(|all| all.member("extensions"));
    let fits = |value: &Json| value.is_object() && value.bytes().len() <= EXTENSION_BYTES;
    let offer = |name: &Arc<str>| {
        let value = offered.as_ref()?.member(name).filter(fits)?;
        Some((name.clone(), value.alone()))
    };
    allowed.iter().filter_map(offer).collect()
}

fn late() -> BackendError {
    BackendError::TimedOut { clock: Clock::Total, sent: true }
}

fn shortest(one: Option<u64>, other: Option<u64>) -> Option<u64> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}

/// Most entries of a list that are taken.
fn most(list: List, limits: &Limits) -> usize {
    match list {
        List::Tools => limits.upstream_tools,
        List::Prompts => limits.upstream_prompts,
        List::Resources => limits.upstream_resources,
        List::Templates => limits.upstream_templates,
    }
}

/// spec: server/utilities/pagination
async fn one(mcp: &Mcp, account: &Account, list: List) -> Had {
    let limits = &mcp.upstream.limits;
    let (mut entries, mut ttl_ms) = (Vec::new(), None);
    let mut seen = HashSet::new();
    let mut bytes = 0;
    let mut cursor: Option<Json> = None;
    let cut = |entries, ttl_ms, why| Ok((Listed::Known { entries, truncated: Some(why) }, ttl_ms));
    for _ in 0..limits.upstream_pages {
        let Some(page) = page(mcp, account, list, cursor.as_ref()).await? else {
            return Ok((Listed::Absent, None));
        };
        // Whole pages count: a small entry keeps all of the page that it is a slice of.
        bytes += page.bytes().len();
        if bytes > LARGEST_ANSWERS * limits.upstream_bytes {
            return cut(entries, ttl_ms, "it is larger than is taken from one backend");
        }
        ttl_ms = shortest(ttl_ms, caching::ttl_ms(&page));
        let shown = page.member(list.member()).filter(|entries| entries.kind() == Kind::Array);
        let shown = shown.ok_or(BackendError::Invalid("a page of its list has no array of entries"))?;
        cursor = match page.member("nextCursor") {
            None => None,
            Some(next) if next.kind() == Kind::Null => None,
            Some(next) if next.kind() == Kind::String => Some(next),
            Some(_) => return Err(BackendError::Invalid("its `nextCursor` is no string")),
        };
        let known = entries.len();
        let mut fresh = false;
        for entry in shown.elements() {
            if entries.len() >= most(list, limits) {
                return cut(entries, ttl_ms, "it has more entries than are taken from one backend");
            }
            fresh |= seen.insert(entry.member(list.key()).unwrap_or_else(|| entry.clone()).bytes().clone());
            entries.push(entry);
        }
        if !fresh {
            entries.truncate(known);
        }
        if cursor.is_none() {
            return Ok((Listed::whole(entries), ttl_ms));
        }
        if !fresh {
            return cut(entries, ttl_ms, "a page of it has nothing new, but names a next one");
        }
    }
    cut(entries, ttl_ms, "it has more pages than are read")
}

/// One page; `None` where the backend has no such list at all.
async fn page(
    mcp: &Mcp,
    account: &Account,
    list: List,
    cursor: Option<&Json>,
) -> Result<Option<Json>, BackendError> {
    match mcp.ask(account, list.method(), Object::new().put_some("cursor", cursor)).await {
        Ok(Outcome::Result(result)) => Ok(Some(result)),
        Ok(Outcome::Error(error)) if error.code == code::METHOD_NOT_FOUND && cursor.is_none() => Ok(None),
        Ok(Outcome::Error(_)) | Err(BackendError::Stale) => {
            Err(BackendError::Invalid("it answered a list with an error"))
        }
        Ok(Outcome::Asks(_) | Outcome::Task(_)) => {
            Err(BackendError::Invalid("it answered a list with something else"))
        }
        Err(error) => Err(error),
    }
}
