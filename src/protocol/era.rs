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
use crate::protocol::version;

/// The longest revision that is repeated in an answer; a longer one is none.
const REVISION_BYTES: usize = 64;

/// Admits the modern era. A notification is admitted where no era can be told, too.
///
/// spec: basic/versioning, Backward Compatibility with Initialization-Based Versions
pub(super) fn check(
    headers: &HeaderMap,
    method: Option<&str>,
    envelope: &Envelope,
    notification: bool,
) -> Result<(), ProtocolError> {
    let handshake = match headers::single(headers, headers::VERSION) {
        Single::Zero => None,
        Single::One(value) => match headers::visible(value) {
            Ok(revision) if version::is_handshake(revision) => Some(revision),
            _ => return Ok(()),
        },
        Single::Many => return Ok(()),
    };
    if headers::single(headers, headers::METHOD) != Single::Zero
        || envelope.meta.as_ref().and_then(meta::version).is_some()
    {
        return Ok(());
    }
    let initialize = method == Some("initialize");
    let requested = match handshake {
        _ if initialize => offered(envelope.params.as_ref()).unwrap_or_else(|| "initialize".to_owned()),
        Some(revision) => revision.to_owned(),
        None if notification => return Ok(()),
        None => return Err(headers::mismatch(headers::VERSION, Mismatch::Missing)),
    };
    Err(ProtocolError::HandshakeEra { requested })
}

/// The revision that an `initialize` offers.
fn offered(params: Option<&Json>) -> Option<String> {
    let revision = params?.member("protocolVersion")?.string()?;
    (revision.len() <= REVISION_BYTES).then_some(revision)
}
