//! The handshake era's side of [`Upstream`](super::Upstream): sessions, and what each of them saw.
//!
//! ```ignore
//! upstream.handshake(Handshake::default());                     // from now on, sessions only
//! upstream.handshake(Handshake { ids: Ids::None, ..Handshake::default() });
//! upstream.forget_sessions();                                   // as a restart would
//! upstream.sessions()[0].calls;                                 // what it saw, in order
//! upstream.handshake(Handshake { listen: 200, ..Handshake::default() });
//! upstream.say(r#"{"jsonrpc":"2.0","method":"notifications/x"}"#);  // on every open GET stream
//! ```

use serde_json::Value;

use super::Behaviour;
use super::Received;

/// How sessions are kept.
#[derive(Clone, Debug)]
pub struct Handshake {
    /// The revision that `initialize` is answered with.
    pub revision: &'static str,
    /// Which ids sessions get.
    pub ids: Ids,
    /// The status, and the JSON-RPC code, of a request in a session that is not known.
    pub unknown: (u16, i64),
    /// The status that a DELETE is answered with; 405 ends nothing.
    pub delete: u16,
    /// The status that notifications and responses are answered with.
    pub accepted: u16,
    /// The status that a GET is answered with; 200 is a stream, 0 is no answer.
    pub listen: u16,
    /// Whether each session has one tool, prompt, resource and template alone, named after it, and nothing
    /// else: `of_s1`, `of://s1/` …
    pub personal: bool,
}

/// The ids of sessions.
#[derive(Clone, Debug)]
pub enum Ids {
    /// `s1`, `s2` …
    Counted,
    /// None, and none is asked for.
    None,
    /// This one, whatever it is, as a header line.
    Line(String),
}

impl Default for Handshake {
    fn default() -> Self {
        Self {
            revision: "2025-11-25",
            ids: Ids::Counted,
            unknown: (404, -32001),
            delete: 200,
            accepted: 202,
            listen: 405,
            personal: false,
        }
    }
}

/// One session, and what it saw.
#[derive(Clone, Debug, Default)]
pub struct Session {
    /// Its id.
    pub id: String,
    /// The headers of its `initialize`.
    pub opened_by: Vec<(String, String)>,
    /// Whether `notifications/initialized` came.
    pub initialized: bool,
    /// Every later message, in order of arrival.
    pub calls: Vec<Value>,
    /// How many GETs came.
    pub listens: usize,
    /// Whether it was ended by a DELETE.
    pub ended: bool,
    /// Whether the server has forgotten it.
    pub forgotten: bool,
}

/// The sessions of one server.
#[derive(Default)]
pub(super) struct Sessions {
    pub(super) mode: Option<Handshake>,
    pub(super) all: Vec<Session>,
}

/// What the era makes of a request.
pub(super) enum Admitted {
    /// It is answered as its method says, with these header lines.
    Goes(String),
    /// It is answered with this status and this body.
    Ends(u16, String),
    /// It is answered like this, whatever it asks.
    As(Behaviour),
}

impl Sessions {
    /// Judges a request and keeps what its session has to remember.
    pub(super) fn admit(&mut self, request: &Received) -> Admitted {
        let Some(mode) = &self.mode else { return Admitted::Goes(String::new()) };
        // Read apart: the text may have numbers that no `Value` holds.
        let (method, has_id) = (request.string(&["method"]), request.raw(&["id"]).is_some());
        let method = method.as_deref();
        let refused = |status: u16, code: i64, text: &str| {
            let error = serde_json::json!({"code": code, "message": text});
            Admitted::Ends(
                status,
                serde_json::json!({"jsonrpc": "2.0", "id": null, "error": error}).to_string(),
            )
        };
        if method == Some("initialize") {
            return Admitted::Goes(self.open(request));
        }
        let given = request.header("mcp-session-id").first().map(|id| (*id).to_owned());
        let session = match (&mode.ids, given) {
            (Ids::None, _) => self.all.last_mut(),
            (_, None) => return refused(400, -32000, "Bad Request: Mcp-Session-Id header is required"),
            (_, Some(id)) => self.all.iter_mut().rfind(|session| session.id == id && session.lives()),
        };
        let Some(session) = session else {
            return refused(mode.unknown.0, mode.unknown.1, "Session not found");
        };
        if request.line.starts_with("DELETE ") {
            session.ended = mode.delete < 300;
            return Admitted::Ends(mode.delete, String::new());
        }
        if request.line.starts_with("GET ") {
            session.listens += 1;
            return match mode.listen {
                200 => Admitted::As(Behaviour::Listen),
                0 => Admitted::As(Behaviour::Hang),
                status => Admitted::Ends(status, String::new()),
            };
        }
        match method {
            Some("notifications/initialized") => session.initialized = true,
            _ => session.calls.push(request.json()),
        }
        match method.is_some() && has_id {
            true if !session.initialized => refused(400, -32600, "not initialized"),
            true => Admitted::Goes(String::new()),
            false => Admitted::Ends(mode.accepted, String::new()),
        }
    }

    /// Whether sessions have things of their own.
    pub(super) fn are_personal(&self) -> bool {
        self.mode.as_ref().is_some_and(|mode| mode.personal)
    }

    /// What a session says to this request where sessions have things of their own: a result, or nothing
    /// where it has no such thing. `None` where that is not so.
    pub(super) fn personal(&self, request: &Received) -> Option<Option<String>> {
        if !self.are_personal() {
            return None;
        }
        let id = request.header("mcp-session-id").first().map(|id| (*id).to_owned())?;
        let name = request.string(&["params", "name"]);
        let named = name.or_else(|| request.string(&["params", "ref", "name"]));
        let has = named.as_deref().is_none_or(|name| name == format!("of_{id}"));
        let uri = request.string(&["params", "uri"]).or_else(|| request.string(&["params", "ref", "uri"]));
        let has = has && uri.as_deref().is_none_or(|uri| uri.starts_with(&format!("of://{id}/")));
        Some(match request.string(&["method"]).as_deref()? {
            "tools/list" => {
                Some(format!(r#"{{"tools":[{{"name":"of_{id}","inputSchema":{{"type":"object"}}}}]}}"#))
            }
            "prompts/list" => {
                Some(format!(r#"{{"prompts":[{{"name":"of_{id}","arguments":[{{"name":"a"}}]}}]}}"#))
            }
            "resources/list" => Some(format!(r#"{{"resources":[{{"uri":"of://{id}/one","name":"one"}}]}}"#)),
            "resources/templates/list" => Some(format!(
                r#"{{"resourceTemplates":[{{"uriTemplate":"of://{id}/any/{{n}}","name":"any"}}]}}"#
            )),
            "tools/call" | "prompts/get" | "resources/read" | "completion/complete" => match has {
                true => return None,
                false => None,
            },
            _ => return None,
        })
    }

    fn open(&mut self, request: &Received) -> String {
        let ids = self.mode.as_ref().map(|mode| mode.ids.clone());
        let id = format!("s{}", self.all.len() + 1);
        let (id, line) = match ids {
            Some(Ids::Line(line)) => {
                let id = line.split_once(": ").map_or("", |(_, id)| id).trim().to_owned();
                (id, format!("{line}\r\n"))
            }
            Some(Ids::None) | None => (String::new(), String::new()),
            Some(Ids::Counted) => (id.clone(), format!("Mcp-Session-Id: {id}\r\n")),
        };
        self.all.push(Session { id, opened_by: request.headers.clone(), ..Session::default() });
        line
    }
}

impl Session {
    fn lives(&self) -> bool {
        !self.ended && !self.forgotten
    }

    /// Every value of a header of its `initialize`.
    pub fn opened_with(&self, name: &str) -> Vec<&str> {
        let fields = self.opened_by.iter().filter(|(n, _)| n.eq_ignore_ascii_case(name));
        fields.map(|(_, value)| value.as_str()).collect()
    }
}
