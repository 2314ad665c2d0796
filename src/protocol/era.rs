//! Step 9, the era: whether a client speaks a revision that sends everything with each request, or one
//! that begins with a handshake.

use http::HeaderMap;

use crate::protocol::ProtocolError;
use crate::protocol::headers;
use crate::protocol::headers::Mismatch;
use crate::protocol::headers::Single;
use crate::protocol::json::Json;
use crate::protocol::message::Envelope;
use crate::protocol::meta;
use crate::protocol::methods::INITIALIZE;
use crate::protocol::version;

/// The longest revision that is repeated in an answer; a longer one is none.
const REVISION_BYTES: usize = 64;

/// How a message is to be judged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Era {
    /// By itself: everything that is needed comes with it.
    Modern,
    /// By the session that it is of, or opens.
    Handshake {
        /// The revision asked for, or what else shows the era: for who does not serve it.
        requested: String,
    },
}

/// Tells the era of a message. A notification that shows none is modern.
///
/// A session that does not open still shows the era: its client has to hear that the session is gone,
/// and the oldest revision served has no version header to tell it by.
///
/// spec: basic/versioning, Backward Compatibility with Initialization-Based Versions
pub fn tell(headers: &HeaderMap, envelope: &Envelope) -> Result<Era, ProtocolError> {
    let handshake = match headers::single(headers, headers::VERSION) {
        Single::Zero => None,
        Single::One(value) => match headers::visible(value) {
            Ok(revision) if version::is_handshake(revision) => Some(revision),
            _ => return Ok(Era::Modern),
        },
        Single::Many => return Ok(Era::Modern),
    };
    let is_initialize = envelope.method() == Some(INITIALIZE);
    // Some clients mirror the method in whatever they send; the modern era has no `initialize`.
    let mirrors = headers::single(headers, headers::METHOD) != Single::Zero && !is_initialize;
    if mirrors || envelope.meta.as_ref().and_then(meta::version).is_some() {
        return Ok(Era::Modern);
    }
    let requested = match handshake {
        _ if is_initialize => offered(envelope.params.as_ref()).unwrap_or_else(|| INITIALIZE.to_owned()),
        Some(revision) => revision.to_owned(),
        None if headers::single(headers, headers::SESSION) != Single::Zero => headers::SESSION.to_owned(),
        None if envelope.is_notification() || !envelope.is_object() => return Ok(Era::Modern),
        None => return Err(headers::mismatch(headers::VERSION, Mismatch::Missing)),
    };
    Ok(Era::Handshake { requested })
}

/// The revision that an `initialize` offers.
fn offered(params: Option<&Json>) -> Option<String> {
    let revision = params?.member("protocolVersion")?.string()?;
    (revision.len() <= REVISION_BYTES).then_some(revision)
}
