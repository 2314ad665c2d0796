//! The built-in backend of `fondaco dev`: tools, notes and a prompt that show what the gateway does.
//!
//! `tools.json` and `documents.json` define them. Nothing here trusts that arguments were validated: what does not fit
//! is an `isError` result that says what would.

mod arithmetic;
mod confirm;
mod documents;
mod draft;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;

use crate::backend::BackendCall;
use crate::backend::BackendError;
use crate::backend::clock::Clocks;
use crate::backend::demo::confirm::Confirmations;
use crate::backend::demo::draft::Drafts;
use crate::backend::listing::Listed;
use crate::backend::listing::Listing;
use crate::exchange::Frame;
use crate::exchange::Frames;
use crate::model::tenant;
use crate::protocol::call::Outcome;
use crate::protocol::call::RpcError;
use crate::protocol::code;
use crate::protocol::json::Json;
use crate::protocol::json::compose::Array;
use crate::protocol::json::compose::Object;
use crate::protocol::meta::SERVER_INFO;
use crate::protocol::meta::our_info;
use crate::protocol::methods::List;
use crate::protocol::methods::Method;

const TOOLS: &str = include_str!("tools.json");
const DOCUMENTS: &str = include_str!("documents.json");
const DEPTH: usize = 16;
const INSTRUCTIONS: &str = "Demonstrations, which show what the gateway does and touch nothing.";

const REGIONS: [(&str, &str); 5] = [
    ("asia-northeast1", "Tokyo"),
    ("eu-central1", "Frankfurt"),
    ("eu-west1", "Saint-Ghislain"),
    ("us-east1", "Moncks Corner"),
    ("us-west1", "The Dalles"),
];

/// The demonstration backend, as one tenant has it.
pub struct Demo {
    config: Arc<tenant::Backend>,
    drafts: Drafts,
    confirmations: Confirmations,
}

/// What a tool says: a structured result, a text, or what was wrong with its arguments.
enum Said {
    Structured(Json),
    Text(String),
    Wrong(String),
}

/// A run of `slow`.
struct Work {
    step: u64,
    steps: u64,
    delay: Duration,
    token: Option<Json>,
    clocks: Clocks,
    over: bool,
}

impl Demo {
    /// The backend that `config` describes.
    pub fn new(config: Arc<tenant::Backend>) -> Self {
        Self { config, drafts: Drafts::default(), confirmations: Confirmations::default() }
    }

    /// All that it has.
    pub fn list(&self) -> Result<Listing, BackendError> {
        let read = |text: &'static str| {
            let definitions = Json::parse(Bytes::from_static(text.as_bytes()), DEPTH);
            definitions.map_err(|_| BackendError::Invalid("its definitions are not JSON"))
        };
        let (tools, documents) = (read(TOOLS)?, read(DOCUMENTS)?);
        let listed = |list: List| {
            Listed::whole(documents.member(list.member()).iter().flat_map(Json::elements).collect())
        };
        Ok(Listing {
            tools: Listed::whole(tools.elements().collect()),
            prompts: listed(List::Prompts),
            resources: listed(List::Resources),
            templates: listed(List::Templates),
            instructions: Some(INSTRUCTIONS.to_owned()),
            ..Listing::default()
        })
    }

    /// Begins a call; see [`Backend::call`](crate::backend::Backend::call).
    pub fn call(&self, call: BackendCall) -> Result<Frames<BackendError>, BackendError> {
        let arguments = call.params.member("arguments").unwrap_or_else(|| Object::new().finish());
        match call.method {
            Method::ResourcesRead => return Ok(once(documents::read(&call.name))),
            Method::PromptsGet => return Ok(once(documents::get(&call.name, &arguments))),
            Method::Complete => return Ok(once(documents::suggest(&call.params))),
            method if method.is_about_a_task() => return Ok(once(unknown("Unknown task"))),
            _ => {}
        }
        if !arguments.is_object() {
            return Ok(once(said(Said::Wrong("`arguments` is an object".to_owned()))));
        }
        let outcome = match &*call.name {
            "echo" => said(text_of(&arguments, "text").map_or_else(Said::Wrong, Said::Text)),
            "add" => said(arithmetic::add(&arguments).map_or_else(Said::Wrong, Said::Structured)),
            "subtract" => said(arithmetic::subtract(&arguments).map_or_else(Said::Wrong, Said::Structured)),
            "slow" => match self.work(&arguments, call) {
                Ok(work) => return Ok(Box::pin(stream::unfold(work, Work::next))),
                Err(wrong) => said(Said::Wrong(wrong)),
            },
            "confirm" => self.confirmations.answer(&call, &arguments),
            "region_lookup" => said(region(&arguments).map_or_else(Said::Wrong, Said::Text)),
            "draft_create" => said(self.drafts.create(&arguments).map_or_else(Said::Wrong, Said::Structured)),
            "draft_append" => said(self.drafts.append(&arguments).map_or_else(Said::Wrong, Said::Structured)),
            _ => unknown("Unknown tool"),
        };
        Ok(once(outcome))
    }

    fn work(&self, arguments: &Json, call: BackendCall) -> Result<Work, String> {
        let steps = whole_number(arguments, "steps", 1..=1000, 5)?;
        let delay = Duration::from_millis(whole_number(arguments, "delay_ms", 0..=10_000, 500)?);
        let clocks = Clocks::start(self.config.idle_timeout, self.config.timeout, call.deadline);
        Ok(Work { step: 0, steps, delay, token: call.meta.progress_token, clocks, over: false })
    }
}

fn unknown(message: &str) -> Outcome {
    Outcome::Error(RpcError { code: code::INVALID_PARAMS, message: message.to_owned(), data: None })
}

impl Work {
    async fn next(mut self) -> Option<(Frame<BackendError>, Self)> {
        while !self.over && self.step < self.steps {
            if let Err(clock) = self.clocks.race(tokio::time::sleep(self.delay)).await {
                self.over = true;
                return Some((Frame::End(Err(BackendError::TimedOut { clock, sent: true })), self));
            }
            self.step += 1;
            self.clocks.progressed();
            if let Some(token) = &self.token {
                return Some((Frame::Notice(progress(token, self.step, self.steps)), self));
            }
        }
        if self.over {
            return None;
        }
        self.over = true;
        let done = said(Said::Structured(Object::new().put_u64("steps", self.steps).finish()));
        Some((Frame::End(Ok(done)), self))
    }
}

fn progress(token: &Json, step: u64, steps: u64) -> Json {
    let params = Object::new()
        .put("progressToken", token)
        .put_u64("progress", step)
        .put_u64("total", steps)
        .put_str("message", &format!("step {step} of {steps}"))
        .finish();
    Object::new()
        .put_str("jsonrpc", "2.0")
        .put_str("method", "notifications/progress")
        .put("params", &params)
        .finish()
}

fn once(outcome: Outcome) -> Frames<BackendError> {
    Box::pin(stream::iter([Frame::End(Ok(outcome))]))
}

/// The result of a tool.
///
/// spec: server/tools, Tool Result, Error Handling
fn said(said: Said) -> Outcome {
    let (text, structured, is_error) = match said {
        Said::Structured(value) => (value.text().to_owned(), Some(value), false),
        Said::Text(text) => (text, None, false),
        Said::Wrong(text) => (text, None, true),
    };
    let block = Object::new().put_str("type", "text").put_str("text", &text).finish();
    let meta = Object::new().put(SERVER_INFO, &our_info()).finish();
    let result = Object::new()
        .put_str("resultType", "complete")
        .put("content", &Array::new().push(&block).finish())
        .put_some("structuredContent", structured.as_ref())
        .put_bool("isError", is_error)
        .put("_meta", &meta);
    Outcome::Result(result.finish())
}

/// The string under `name`.
fn text_of(arguments: &Json, name: &str) -> Result<String, String> {
    let value = arguments.member(name).and_then(|value| value.string());
    value.ok_or_else(|| format!("`{name}` is a string, and required"))
}

fn whole_number(
    arguments: &Json,
    name: &str,
    range: std::ops::RangeInclusive<u64>,
    default: u64,
) -> Result<u64, String> {
    let Some(value) = arguments.member(name) else { return Ok(default) };
    let number = value.integer().and_then(|number| u64::try_from(number).ok());
    let fitting = number.filter(|number| range.contains(number));
    fitting.ok_or_else(|| format!("`{name}` is a whole number from {} to {}", range.start(), range.end()))
}

fn region(arguments: &Json) -> Result<String, String> {
    let Some(value) = arguments.member("region").filter(|value| *value != Json::null()) else {
        return Ok(REGIONS.map(|(name, place)| format!("{name}: {place}")).join("\n"));
    };
    let wanted = value.string().ok_or("`region` is a string")?;
    let known = REGIONS.iter().find(|(name, _)| *name == wanted);
    Ok(known.map_or_else(|| format!("{wanted}: not known here"), |(name, place)| format!("{name}: {place}")))
}
