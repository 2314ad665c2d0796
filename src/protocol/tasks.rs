//! The extension for tasks: who knows it, and the form of a task.
//!
//! spec: SEP-2663

use crate::protocol::json::Json;
use crate::protocol::json::Kind;
use crate::protocol::json::compose::Object;

/// What the extension is called among `extensions`.
pub const EXTENSION: &str = "io.modelcontextprotocol/tasks";

/// The member of capabilities that has the extensions.
pub const EXTENSIONS: &str = "extensions";

/// The member that names a task.
pub const TASK_ID: &str = "taskId";

/// What these capabilities, of a client or a server, say of tasks. The form of before the extension, `tasks`
/// beside `extensions`, says nothing.
///
/// spec: SEP-2663, Capability Negotiation, Backward Compatibility
pub fn declared(capabilities: &Json) -> Option<Json> {
    capabilities.member(EXTENSIONS)?.member(EXTENSION).filter(Json::is_object)
}

/// The extensions of who knows tasks, and no other.
pub fn extensions() -> Json {
    Object::new().put(EXTENSION, &Object::new().finish()).finish()
}

/// The capabilities that a client lacks who does not know tasks.
pub fn required() -> Json {
    Object::new().put(EXTENSIONS, &extensions()).finish()
}

/// What a task is at, in words of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// It goes on.
    Working,
    /// It waits for answers of the client.
    InputRequired,
    /// It has its result.
    Completed,
    /// It was called off.
    Cancelled,
    /// It ended in a JSON-RPC error.
    Failed,
}

/// A task, as far as it is read here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Task {
    /// Its id, as its server has it.
    pub id: String,
    /// What it is at.
    pub status: Status,
    /// How long its server keeps it, from its creation; `None` for as long as may be.
    pub ttl_ms: Option<u64>,
}

impl Task {
    /// The task that `json` is, if it has what every task has.
    ///
    /// spec: SEP-2663, Tasks
    pub fn read(json: &Json) -> Result<Self, &'static str> {
        let text = |key| json.member(key).and_then(|member| member.string());
        let id = text(TASK_ID).filter(|id| !id.is_empty()).ok_or("its task has no `taskId`")?;
        let status = match text("status").as_deref() {
            Some("working") => Status::Working,
            Some("input_required") => Status::InputRequired,
            Some("completed") => Status::Completed,
            Some("cancelled") => Status::Cancelled,
            Some("failed") => Status::Failed,
            _ => return Err("its task has no `status` that is known"),
        };
        if ["createdAt", "lastUpdatedAt"].iter().any(|key| text(key).is_none()) {
            return Err("its task does not say when it was created and last updated");
        }
        if json.member("statusMessage").is_some_and(|message| message.kind() != Kind::String) {
            return Err("its task's `statusMessage` is no string");
        }
        if json.member("pollIntervalMs").is_some_and(|interval| milliseconds(&interval).is_none()) {
            return Err("its task's `pollIntervalMs` is no whole number");
        }
        let ttl = json.member("ttlMs").ok_or("its task has no `ttlMs`")?;
        let ttl_ms = match ttl.kind() {
            Kind::Null => None,
            _ => Some(milliseconds(&ttl).ok_or("its task's `ttlMs` is neither a whole number nor null")?),
        };
        Ok(Self { id, status, ttl_ms })
    }

    /// The same of a task in detail, which also has what its status promises.
    ///
    /// spec: SEP-2663, Task Status
    pub fn read_detailed(json: &Json) -> Result<Self, &'static str> {
        let task = Self::read(json)?;
        let has = |key| json.member(key).is_some_and(|member| member.is_object());
        match task.status {
            Status::Completed if !has("result") => Err("its completed task has no `result`"),
            Status::Failed if !has("error") => Err("its failed task has no `error`"),
            Status::InputRequired if !has("inputRequests") => Err("its task asks for nothing"),
            _ => Ok(task),
        }
    }
}

fn milliseconds(value: &Json) -> Option<u64> {
    let whole = value.is_integer() && !value.bytes().starts_with(b"-");
    // More than fits is as good as the most that does.
    whole.then(|| value.integer().and_then(|ms| u64::try_from(ms).ok()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::Status;
    use super::Task;
    use super::declared;
    use super::required;
    use crate::protocol::json::Json;

    fn json(text: &str) -> Json {
        Json::parse(Bytes::copy_from_slice(text.as_bytes()), 64).unwrap()
    }

    const WHEN: &str = r#""createdAt":"2026-01-01T00:00:00Z","lastUpdatedAt":"2026-01-01T00:00:01Z""#;

    #[test]
    fn only_the_extension_itself_declares_tasks() {
        assert!(declared(&required()).is_some());
        let with = json(r#"{"extensions":{"io.modelcontextprotocol/tasks":{"x":1}}}"#);
        assert_eq!(declared(&with).unwrap().text(), r#"{"x":1}"#);
        for without in [
            "{}",
            r#"{"tasks":{"requests":{"tools":{"call":{}}}}}"#,
            r#"{"extensions":{"io.modelcontextprotocol/tasks":true}}"#,
            r#"{"extensions":{"io.modelcontextprotocol/ui":{}}}"#,
            r#"{"extensions":["io.modelcontextprotocol/tasks"]}"#,
            r#"{"io.modelcontextprotocol/tasks":{}}"#,
        ] {
            assert_eq!(declared(&json(without)), None, "{without}");
        }
    }

    #[test]
    fn a_task_has_what_every_task_has() {
        let read = |members: &str| Task::read(&json(&format!("{{{members}}}")));
        let right = format!(r#""taskId":"a","status":"working",{WHEN},"ttlMs":null,"x":1e400"#);
        assert_eq!(read(&right), Ok(Task { id: "a".into(), status: Status::Working, ttl_ms: None }));
        let bounded = right.replace("null", "60000");
        assert_eq!(read(&bounded).unwrap().ttl_ms, Some(60_000));
        assert_eq!(read(&right.replace("null", "99999999999999999999")).unwrap().ttl_ms, Some(u64::MAX));
        for (from, to) in [
            (r#""taskId":"a""#, r#""taskId":7"#),
            (r#""taskId":"a""#, r#""taskId":"""#),
            (r#""taskId":"a""#, r#""task":{"taskId":"a"}"#),
            ("working", "resting"),
            (r#""createdAt""#, r#""created""#),
            (r#""2026-01-01T00:00:01Z""#, "0"),
            ("null", "1.5"),
            ("null", "-1"),
            ("null", r#""60000""#),
            (r#""ttlMs":null"#, r#""ttl":60000"#),
            (r#""x":1e400"#, r#""pollIntervalMs":0.5"#),
            (r#""x":1e400"#, r#""statusMessage":{}"#),
        ] {
            assert_ne!(right.replace(from, to), right);
            assert!(read(&right.replace(from, to)).is_err(), "{to}");
        }
    }

    #[test]
    fn a_task_in_detail_has_what_its_status_promises() {
        for (status, member) in [
            ("completed", r#""result":{}"#),
            ("failed", r#""error":{}"#),
            ("input_required", r#""inputRequests":{}"#),
        ] {
            let bare = format!(r#"{{"taskId":"a","status":"{status}",{WHEN},"ttlMs":null}}"#);
            assert!(Task::read(&json(&bare)).is_ok(), "{status}");
            assert!(Task::read_detailed(&json(&bare)).is_err(), "{status}");
            let whole = bare.replace("null", &format!("null,{member}"));
            assert!(Task::read_detailed(&json(&whole)).is_ok(), "{status}");
            assert!(Task::read_detailed(&json(&whole.replace("{}", "[]"))).is_err(), "{status}");
        }
        for status in ["working", "cancelled"] {
            let bare = format!(r#"{{"taskId":"a","status":"{status}",{WHEN},"ttlMs":null}}"#);
            assert!(Task::read_detailed(&json(&bare)).is_ok(), "{status}");
        }
    }
}
