//! What a client of the handshake era is asked: a request of ours on the stream that its call is
//! answered with, and an answer that it posts.
//!
//! An answer finds who waits for it in this process alone, by its session and an id of ours. Of each
//! call one question is open at a time, and a caller and a tenant have so many calls that are.
//!
//! spec: 2025-11-25 basic/transports, Sending Messages to the Server; client/elicitation, sampling, roots

use std::collections::HashMap;
use std::fmt::Write;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::MutexGuard;
use std::sync::PoisonError;

use tokio::sync::oneshot;

use crate::legacy::session::Key;
use crate::legacy::session::Session;
use crate::model::caller::Caller;
use crate::model::limits::Limits;
use crate::model::name::TenantName;
use crate::model::tally::Counted;
use crate::model::tally::Tally;
use crate::protocol::json::Json;
use crate::protocol::json::compose::Object;
use crate::protocol::message::Response;
use crate::protocol::version::Handshake;
use crate::seal;

/// What the client of `session` can be asked in a call; nothing where no stream brings it a question.
pub(super) fn capabilities(session: &Session, streams: bool) -> Json {
    let revision = session.revision;
    let told = |name: &str, declared: Json| match name {
        "elicitation" => elicitation(revision, declared).filter(|_| streams),
        // Its parts are younger than the others.
        "sampling" if revision < Handshake::LATEST => streams.then(|| Object::new().finish()),
        "sampling" | "roots" => Some(declared).filter(|_| streams),
        _ => Some(declared),
    };
    let members = session.capabilities.members();
    members
        .fold(Object::new(), |all, (name, value)| all.put_some(&name, told(&name, value).as_ref()))
        .finish()
}

fn elicitation(revision: Handshake, declared: Json) -> Option<Json> {
    match revision.has_elicitation() {
        false => None,
        true if revision.has_url_elicitation() => Some(declared),
        true => Some(Object::new().finish()),
    }
}

/// The request that asks a client of `revision` what `entry` of a backend does, under this id.
pub fn request(revision: Handshake, id: &str, entry: &Json) -> Option<Json> {
    let method = entry.member("method")?.string()?;
    let mut params = Object::with_capacity(entry.bytes().len() + 64);
    let given = entry.member("params");
    let is_url =
        given.as_ref().and_then(|params| params.member("mode")?.string()).is_some_and(|mode| mode == "url");
    for (key, value) in given.iter().flat_map(Json::members) {
        let known = key != "elicitationId" && (key != "mode" || revision.has_url_elicitation());
        if method != "elicitation/create" || known {
            params = params.put(&key, &value);
        }
    }
    if is_url && method == "elicitation/create" {
        params = params.put_str("elicitationId", id);
    }
    let request = Object::new().put_str("jsonrpc", "2.0").put_str("id", id).put_str("method", &method);
    Some(request.put("params", &params.finish()).finish())
}

/// Questions to clients that nobody has answered yet.
pub struct Questions {
    waiting: Mutex<HashMap<Place, oneshot::Sender<Response>>>,
    callers: Arc<Tally<String>>,
    tenants: Arc<Tally<TenantName>>,
    most_of_caller: usize,
    most_of_tenant: usize,
}

/// Whose question it is, and its id.
type Place = (Key, Box<str>);

/// Leave to ask in one call, until it is dropped.
pub struct Turn(#[expect(dead_code, reason = "held")] (Counted<String>, Counted<TenantName>));

/// One question, for as long as somebody waits for its answer.
pub struct Question {
    all: Arc<Questions>,
    place: Place,
    answer: oneshot::Receiver<Response>,
}

impl Questions {
    /// None yet.
    pub(super) fn new(limits: &Limits) -> Self {
        Self {
            waiting: Mutex::default(),
            callers: Arc::default(),
            tenants: Arc::default(),
            most_of_caller: limits.caller_questions,
            most_of_tenant: limits.tenant_questions,
        }
    }

    /// Leave to ask in one call of `caller`, unless it, or its tenant, has as many as it may.
    pub fn turn(&self, caller: &Caller) -> Option<Turn> {
        let own = self.callers.take(caller.principal(), self.most_of_caller, usize::MAX)?;
        let tenants = self.tenants.take(caller.tenant.clone(), self.most_of_tenant, usize::MAX)?;
        Some(Turn((own, tenants)))
    }

    /// A new question to the client of `session`.
    pub fn ask(self: &Arc<Self>, session: &Session) -> Question {
        let random = seal::random::<16>();
        let id = random.iter().fold("ask-".to_owned(), |mut id, byte| {
            // A String takes every write.
            let _ = write!(id, "{byte:02x}");
            id
        });
        let (told, answer) = oneshot::channel();
        let place = (session.key, id.into_boxed_str());
        self.waiting().insert(place.clone(), told);
        Question { all: self.clone(), place, answer }
    }

    /// Takes an answer from the client of `session`. One that nobody waits for is dropped.
    pub fn answer(&self, session: &Session, response: Response) {
        let Some(id) = response.id.as_ref().and_then(|id| id.string()) else { return };
        let waiting = self.waiting().remove(&(session.key, id.into_boxed_str()));
        if let Some(waiting) = waiting {
            // Who waited may have left.
            let _ = waiting.send(response);
        }
    }

    fn waiting(&self) -> MutexGuard<'_, HashMap<Place, oneshot::Sender<Response>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Question {
    /// Its id.
    pub fn id(&self) -> &str {
        &self.place.1
    }

    /// Waits for the answer; `None` where none will come any more.
    ///
    /// # Cancel safety
    /// Dropping the future loses nothing.
    pub async fn answered(&mut self) -> Option<Response> {
        (&mut self.answer).await.ok()
    }
}

impl Drop for Question {
    fn drop(&mut self) {
        self.all.waiting().remove(&self.place);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bytes::Bytes;

    use super::Questions;
    use super::capabilities;
    use super::request;
    use crate::legacy::session::Session;
    use crate::model::limits::Limits;
    use crate::protocol::json::Json;
    use crate::protocol::message::Envelope;
    use crate::protocol::version::Handshake;

    fn json(text: &str) -> Json {
        Json::parse(Bytes::copy_from_slice(text.as_bytes()), 64).expect(text)
    }

    fn session(revision: Handshake, capabilities: &str) -> Session {
        Session::new(revision, json(capabilities), u64::MAX)
    }

    // spec: row Y-05
    #[test]
    fn a_client_can_be_asked_what_its_revision_knows() {
        let all = r#"{"roots":{},"elicitation":{"form":{},"url":{}},"sampling":{"tools":{}},"extensions":{"a/b":{}}}"#;
        for (revision, streams, told) in [
            (Handshake::November, true, all),
            (Handshake::June, true, r#"{"roots":{},"elicitation":{},"sampling":{},"extensions":{"a/b":{}}}"#),
            (Handshake::March, true, r#"{"roots":{},"sampling":{},"extensions":{"a/b":{}}}"#),
            (Handshake::November, false, r#"{"extensions":{"a/b":{}}}"#),
        ] {
            assert_eq!(capabilities(&session(revision, all), streams).text(), told, "{revision:?}");
        }
    }

    // spec: row Y-05
    #[test]
    fn a_question_has_the_form_of_its_revision() {
        let form = r#"{"method":"elicitation/create","params":{"mode":"form","message":"m","requestedSchema":{"n":1e400}}}"#;
        let url = r#"{"method":"elicitation/create","params":{"mode":"url","message":"m","url":"https://x.example/"}}"#;
        for (revision, entry, expected) in [
            (
                Handshake::November,
                form,
                r#"{"jsonrpc":"2.0","id":"q","method":"elicitation/create","params":{"mode":"form","message":"m","requestedSchema":{"n":1e400}}}"#,
            ),
            (
                Handshake::June,
                form,
                r#"{"jsonrpc":"2.0","id":"q","method":"elicitation/create","params":{"message":"m","requestedSchema":{"n":1e400}}}"#,
            ),
            (
                Handshake::November,
                url,
                r#"{"jsonrpc":"2.0","id":"q","method":"elicitation/create","params":{"mode":"url","message":"m","url":"https://x.example/","elicitationId":"q"}}"#,
            ),
            (
                Handshake::March,
                r#"{"method":"roots/list"}"#,
                r#"{"jsonrpc":"2.0","id":"q","method":"roots/list","params":{}}"#,
            ),
        ] {
            assert_eq!(request(revision, "q", &json(entry)).unwrap().text(), expected);
        }
    }

    // spec: rows Y-05, GW-03
    #[tokio::test]
    async fn an_answer_reaches_the_question_of_its_session() {
        let questions = Arc::new(Questions::new(&Limits::default()));
        let [own, other] = [1, 2].map(|_| session(Handshake::November, "{}"));
        let mut question = questions.ask(&own);
        let told = |session: &Session, id: &str, n: u64| {
            let text = format!(r#"{{"jsonrpc":"2.0","id":"{id}","result":{{"n":{n}}}}}"#);
            questions.answer(session, Envelope::read(&json(&text), 256).response().unwrap());
        };
        let id = question.id().to_owned();
        told(&other, &id, 1);
        told(&own, "ask-1", 2);
        told(&own, &id, 3);
        told(&own, &id, 4);
        assert_eq!(question.answered().await.unwrap().result.unwrap().text(), r#"{"n":3}"#);
        drop((question, questions.ask(&own)));
        assert!(questions.waiting().is_empty());
    }
}
