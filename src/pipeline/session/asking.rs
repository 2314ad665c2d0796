//! Calls of sessions whose backend asks back: the client is asked on the stream that answers its call,
//! and the call goes to the backend once more, as a request with an authorisation of its own.
//!
//! spec: rows Y-05, Y-06; patterns/mrtr

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream;
use tokio::time::Instant;
use tokio::time::sleep;
use tokio::time::timeout_at;

use crate::catalog::entry::Entry;
use crate::error::Refusal;
use crate::exchange::Exchange;
use crate::exchange::Frame;
use crate::exchange::Frames;
use crate::exchange::Reply;
use crate::legacy::LegacyError;
use crate::legacy::asking;
use crate::legacy::asking::Question;
use crate::legacy::asking::Turn;
use crate::methods::rounds;
use crate::methods::rounds::Sealing;
use crate::methods::rounds::Waiting;
use crate::pipeline::Facts;
use crate::pipeline::Routed;
use crate::pipeline::perform;
use crate::pipeline::route;
use crate::pipeline::session::Context;
use crate::pipeline::standing::is_served;
use crate::protocol::call::Call;
use crate::protocol::call::INPUT_RESPONSES;
use crate::protocol::call::Outcome;
use crate::protocol::call::REQUEST_STATE;
use crate::protocol::json::Json;
use crate::protocol::json::compose::Object;

/// How long a call waits whose backend asks for nothing but to be called again.
const PACE: Duration = Duration::from_millis(250);

const TOO_MANY: &str = "the backend asks for input, and too many questions are open already: answer those first, then call again";

/// A call whose client may be asked.
struct Asking {
    context: Context,
    exchange: Exchange,
    /// What is called, where that is a backend's.
    entry: Option<Arc<Entry>>,
    /// How often the backend has asked so far.
    round: usize,
    stage: Stage,
}

enum Stage {
    /// The backend answers.
    Backend(Frames<Refusal>),
    /// The client is asked.
    Client(Box<Round>),
    /// It is over.
    Over,
}

/// What is asked in one round, one question at a time.
struct Round {
    left: VecDeque<(String, Json)>,
    asked: Option<(String, Question)>,
    /// Held for as long as something is asked.
    turn: Option<Turn>,
    answers: Object,
    /// Of all answers so far.
    bytes: usize,
    state: Option<Json>,
    /// The call, where it waits in this process: given up with the round.
    waiting: Option<Waiting>,
    /// Until when the client has time for all of it.
    end: Instant,
}

/// Performs a call, and asks its client what the backend asks, as long as there is a stream for it.
///
/// # Cancel safety
/// Dropping the future, or the stream in the reply, cancels the call upstream and asks nothing more.
pub(super) async fn perform_asking(
    context: Context,
    exchange: Exchange,
    routed: Routed,
) -> Result<Reply<Refusal>, Refusal> {
    let entry = routed.route.entry().cloned();
    let reply = perform(&context.app, &exchange, routed).await?;
    if !context.accept.sse {
        return Ok(reply);
    }
    let mut asking = Asking { context, exchange, entry, round: 0, stage: Stage::Over };
    asking.stage = match reply {
        Reply::Once(Outcome::Asks(result)) => match asking.begin(&result) {
            Ok(stage) => stage,
            Err(outcome) => return Ok(Reply::Once(outcome)),
        },
        Reply::Stream(frames) => Stage::Backend(frames),
        other => return Ok(other),
    };
    Ok(Reply::Stream(stream::unfold(Box::new(asking), Asking::next).boxed()))
}

impl Asking {
    async fn next(mut self: Box<Self>) -> Option<(Frame<Refusal>, Box<Self>)> {
        loop {
            let step = match std::mem::replace(&mut self.stage, Stage::Over) {
                Stage::Over => return None,
                Stage::Backend(frames) => self.hear(frames).await?,
                Stage::Client(round) => self.ask(round).await,
            };
            match step {
                Step::Frame(frame) => return Some((frame, self)),
                Step::Goes(stage) => self.stage = stage,
            }
        }
    }

    /// What the backend says next.
    async fn hear(&mut self, mut frames: Frames<Refusal>) -> Option<Step> {
        let frame = frames.next().await?;
        Some(match frame {
            Frame::End(Ok(Outcome::Asks(result))) => self.go_on(&result),
            Frame::Notice(notice) => {
                self.stage = Stage::Backend(frames);
                Step::Frame(Frame::Notice(notice))
            }
            end @ Frame::End(_) => Step::Frame(end),
        })
    }

    fn go_on(&mut self, result: &Json) -> Step {
        match self.begin(result) {
            Ok(stage) => Step::Goes(stage),
            Err(outcome) => Step::Frame(Frame::End(Ok(outcome))),
        }
    }

    /// Begins a round; an outcome where there is none any more.
    fn begin(&mut self, result: &Json) -> Result<Stage, Outcome> {
        let limits = &self.context.app.limits;
        let waiting = self.waiting(result);
        self.round += 1;
        if self.round > limits.session_rounds {
            return Err(self.failed("the backend has asked for more input too often in this call"));
        }
        let left = questions(result);
        let turn = match left.is_empty() {
            true => None,
            false => Some(self.turn()?),
        };
        let end = self.exchange.deadline.min(Instant::now() + limits.answer_time);
        let state = result.member(REQUEST_STATE).map(|state| state.alone());
        let (answers, bytes) = (Object::new(), 0);
        let round = Round { left, asked: None, turn, answers, bytes, state, waiting, end };
        Ok(Stage::Client(Box::new(round)))
    }

    /// The call that waits for the answers to this, if one does.
    fn waiting(&self, result: &Json) -> Option<Waiting> {
        let app = &self.context.app;
        let sealing = Sealing { keys: app.keys.clone(), clock: app.clock.clone() };
        Waiting::of(&self.exchange, self.entry.as_ref()?, &sealing, result)
    }

    fn turn(&self) -> Result<Turn, Outcome> {
        let turn = self.context.app.sessions.questions.turn(&self.exchange.caller);
        turn.ok_or_else(|| self.failed(TOO_MANY))
    }

    /// Asks the next question, or waits for the answer to the last one.
    async fn ask(&mut self, mut round: Box<Round>) -> Step {
        if let Some((key, mut question)) = round.asked.take() {
            let answered = timeout_at(round.end, question.answered());
            // Who has left reads no question, and nobody would hear what the answer leads to.
            let Some(answered) = self.context.left.run_until_cancelled(answered).await else {
                return self.ends("the client has left, and cannot be asked");
            };
            let Ok(Some(response)) = answered else {
                return self.ends("nobody answered what the backend asks in time");
            };
            let Some(result) = response.result.filter(Json::is_object) else {
                return self.ends("the client answered what the backend asks with an error");
            };
            round.bytes += result.bytes().len();
            if round.bytes > self.context.app.limits.input_bytes {
                return self.ends("the client's answers to what the backend asks are more than is taken");
            }
            round.answers = round.answers.put(&key, &result);
            if round.left.is_empty() {
                return self.again(round).await;
            }
        }
        let Some((key, entry)) = round.left.pop_front() else {
            sleep(PACE).await;
            return self.again(round).await;
        };
        let question = self.context.app.sessions.questions.ask(&self.context.session);
        let Some(request) = asking::request(self.context.session.revision, question.id(), &entry) else {
            return self.ends("the backend asks something that nobody can be asked");
        };
        round.asked = Some((key, question));
        self.stage = Stage::Client(round);
        Step::Frame(Frame::Notice(request))
    }

    /// Calls the backend with the answers. Who may do that is judged as of now.
    ///
    /// spec: row GW-01
    async fn again(&mut self, round: Box<Round>) -> Step {
        match self.retry(round).await {
            Ok(Reply::Once(Outcome::Asks(result))) => self.go_on(&result),
            Ok(Reply::Once(outcome)) => Step::Frame(Frame::End(Ok(outcome))),
            Ok(Reply::Stream(frames)) => Step::Goes(Stage::Backend(frames)),
            Ok(_) => self.ends("the call has no answer"),
            Err(refusal) => Step::Frame(Frame::End(Err(refusal))),
        }
    }

    async fn retry(&mut self, round: Box<Round>) -> Result<Reply<Refusal>, Refusal> {
        let Context { app, party, session, .. } = &self.context;
        let ends_at = party.caller.good_until().min(session.expires_at);
        if ends_at <= app.clock.now() || !is_served(app, party) {
            return Err(LegacyError::NoSuchSession.into());
        }
        drop(round.turn);
        let Exchange { caller, endpoint, tenant, call, deadline } = &self.exchange;
        let answers = round.answers.finish();
        let given = call.params.members();
        let given = given.filter(|(key, _)| !matches!(&**key, INPUT_RESPONSES | REQUEST_STATE));
        let params = given.fold(Object::new(), |all, (key, value)| all.put(&key, &value));
        let params = params.put(INPUT_RESPONSES, &answers).put_some(REQUEST_STATE, round.state.as_ref());
        let tenant = app.tenants.current().tenant(&tenant.name).unwrap_or_else(|| tenant.clone());
        let exchange = Exchange {
            caller: caller.clone(),
            endpoint: endpoint.clone(),
            tenant,
            call: Call { params: params.finish(), ..call.clone() },
            deadline: *deadline,
        };
        let routed = route(app, &exchange, &mut Facts::default()).await?;
        let entry = routed.route.entry().cloned();
        let reply = perform(app, &exchange, routed).await;
        // Where the answers were none, nobody will give others.
        drop(round.waiting);
        (self.exchange, self.entry) = (exchange, entry);
        reply
    }

    fn ends(&self, why: &str) -> Step {
        Step::Frame(Frame::End(Ok(self.failed(why))))
    }

    fn failed(&self, why: &str) -> Outcome {
        rounds::stopped(self.exchange.call.method, why)
    }
}

/// What `result` asks, in bytes of its own: the result need not wait with it.
fn questions(result: &Json) -> VecDeque<(String, Json)> {
    let requests = result.member(rounds::INPUT_REQUESTS);
    let all = requests.iter().flat_map(Json::members);
    all.map(|(key, entry)| (key.into_owned(), entry.alone())).collect()
}

/// What comes next.
enum Step {
    /// Something for the client.
    Frame(Frame<Refusal>),
    /// Nothing yet: it goes on there.
    Goes(Stage),
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::questions;
    use crate::protocol::json::Json;

    #[test]
    fn what_waits_for_answers_holds_nothing_of_the_result() {
        let text = r#"{"inputRequests":{"a":{"method":"roots/list"},"b":{}},"_meta":{"large":"..."}}"#;
        let result = Json::parse(Bytes::copy_from_slice(text.as_bytes()), 64).unwrap();
        let all = questions(&result);
        assert_eq!(all[0], ("a".to_owned(), result.member("inputRequests").unwrap().member("a").unwrap()));
        assert!(all.len() == 2 && all.iter().all(|(_, entry)| entry.bytes().is_unique()));
    }
}
