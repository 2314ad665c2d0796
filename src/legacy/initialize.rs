//! `initialize`: what a client offers, and what is answered.
//!
//! spec: 2025-11-25 basic/lifecycle, Initialization

use crate::protocol::ProtocolError;
use crate::protocol::json::Json;
use crate::protocol::json::Kind;
use crate::protocol::json::compose::Object;
use crate::protocol::meta::our_info;
use crate::protocol::tasks;
use crate::protocol::version::Handshake;

/// The capabilities of a client that can matter to a call: what a server may ask of it, and what it
/// shows.
const KEPT: [&str; 2] = ["elicitation", "sampling"];

/// What a client offers.
#[derive(Debug, PartialEq, Eq)]
pub struct Offer {
    /// The revision that is spoken from now on.
    pub revision: Handshake,
    /// What it can do, as far as that can matter.
    pub capabilities: Json,
}

impl Offer {
    /// Reads the params of an `initialize`. Of capabilities that are longer than `most` bytes when they
    /// are reduced, none is kept.
    pub fn read(params: Option<&Json>, most: usize) -> Result<Self, ProtocolError> {
        let params = params.filter(|params| params.is_object());
        let params = params.ok_or(refuse("`params` has to be an object"))?;
        let requested = params.member("protocolVersion").and_then(|version| version.string());
        let requested = requested.ok_or(refuse("`protocolVersion` has to be a string"))?;
        let declared = params.member("capabilities").filter(Json::is_object);
        let declared = declared.ok_or(refuse("`capabilities` has to be an object"))?;
        let client = params.member("clientInfo").filter(Json::is_object);
        let is_text = |name: &str| {
            client
                .as_ref()
                .and_then(|client| client.member(name))
                .is_some_and(|text| text.kind() == Kind::String)
        };
        if !is_text("name") || !is_text("version") {
            return Err(refuse("`clientInfo` has to be an object with `name` and `version`, strings"));
        }
        let reduced = reduced(&declared);
        let fits = reduced.bytes().len() <= most;
        Ok(Self {
            // spec: 2025-11-25 basic/lifecycle, Version Negotiation
            revision: Handshake::named(&requested).unwrap_or(Handshake::LATEST),
            capabilities: if fits { reduced } else { Object::new().finish() },
        })
    }
}

/// The result of an `initialize`.
pub fn result(revision: Handshake, capabilities: &Json, instructions: Option<&str>) -> Json {
    let result = Object::new()
        .put_str("protocolVersion", revision.name())
        .put("capabilities", capabilities)
        .put("serverInfo", &our_info());
    match instructions {
        Some(instructions) => result.put_str("instructions", instructions).finish(),
        None => result.finish(),
    }
}

fn reduced(declared: &Json) -> Json {
    let mut kept = Object::new();
    for (name, value) in declared.members().filter(|(_, value)| value.is_object()) {
        if name == tasks::EXTENSIONS {
            kept = kept.put(&name, &without_tasks(&value));
        } else if KEPT.contains(&&*name) {
            kept = kept.put(&name, &value);
        } else if name == "roots" {
            // Nobody can tell the gateway's peers that a list of roots has changed.
            kept = kept.put("roots", &Object::new().finish());
        }
    }
    kept.finish()
}

/// Extensions as far as this era knows them: it cannot declare tasks.
///
/// spec: SEP-2663, Backward Compatibility
fn without_tasks(extensions: &Json) -> Json {
    let others = extensions.members().filter(|(name, _)| name != tasks::EXTENSION);
    others.fold(Object::new(), |all, (name, value)| all.put(&name, &value)).finish()
}

fn refuse(reason: &'static str) -> ProtocolError {
    ProtocolError::InvalidParams(reason)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::Offer;
    use crate::protocol::ProtocolError;
    use crate::protocol::json::Json;
    use crate::protocol::version::Handshake;

    fn read(params: &str, most: usize) -> Result<Offer, ProtocolError> {
        Offer::read(Some(&Json::parse(Bytes::copy_from_slice(params.as_bytes()), 64).unwrap()), most)
    }

    fn offer(version: &str, capabilities: &str) -> String {
        format!(
            r#"{{"protocolVersion":{version},"capabilities":{capabilities},"clientInfo":{{"name":"n","version":"1"}}}}"#
        )
    }

    // spec: row LG-01
    #[test]
    fn a_served_revision_is_taken_and_any_other_becomes_the_latest() {
        for (requested, revision) in [
            ("2025-03-26", Handshake::March),
            ("2025-06-18", Handshake::June),
            ("2025-11-25", Handshake::November),
            ("2024-11-05", Handshake::November),
            ("1999-01-01", Handshake::November),
            ("2026-07-28", Handshake::November),
            ("", Handshake::November),
        ] {
            let offered = read(&offer(&format!("{requested:?}"), "{}"), 1024).unwrap();
            assert_eq!(offered.revision, revision, "{requested}");
        }
    }

    #[test]
    fn params_of_another_form_are_refused() {
        let right = offer("\"2025-11-25\"", "{}");
        assert!(read(&right, 1024).is_ok());
        for (part, wrong) in [
            (r#""protocolVersion":"2025-11-25""#, r#""protocolVersion":20251125"#),
            (r#""protocolVersion":"2025-11-25","#, ""),
            (r#""capabilities":{}"#, r#""capabilities":[]"#),
            (r#""capabilities":{},"#, ""),
            (r#""clientInfo""#, r#""client""#),
            (r#""name":"n","#, ""),
            (r#""version":"1""#, r#""version":1"#),
        ] {
            let text = right.replacen(part, wrong, 1);
            assert_ne!(text, right);
            assert!(matches!(read(&text, 1024), Err(ProtocolError::InvalidParams(_))), "{text}");
        }
        for text in ["[]", "null", "\"x\""] {
            assert!(read(text, 1024).is_err(), "{text}");
        }
        assert!(Offer::read(None, 1024).is_err());
    }

    #[test]
    fn capabilities_are_reduced_to_what_matters_and_bounded() {
        let declared = r#"{"tasks":{"x":1},"roots":{"listChanged":true},"elicitation":{"form":{},"n":1e400},"sampling":7,"extensions":{"io.modelcontextprotocol/tasks":{},"io.modelcontextprotocol/ui":{"mimeTypes":["a"]}}}"#;
        let kept = r#"{"roots":{},"elicitation":{"form":{},"n":1e400},"extensions":{"io.modelcontextprotocol/ui":{"mimeTypes":["a"]}}}"#;
        let read = |most| read(&offer("\"2025-11-25\"", declared), most).unwrap().capabilities;
        assert_eq!(read(kept.len()).text(), kept);
        assert_eq!(read(kept.len() - 1).text(), "{}");
    }
}
