//! Steps 16 to 18 of the ladder: may the caller do this, are the params right, is the target there?

mod complete;
pub mod listen;
mod prompt;
mod resource;
pub mod state;
pub mod task;
mod tool;

use std::sync::Arc;

use crate::catalog::cursor::open_cursor;
use crate::catalog::entry::Entry;
use crate::catalog::entry::Prompt;
use crate::catalog::snapshot::Snapshot;
use crate::catalog::tool::Tool;
use crate::exchange::Exchange;
use crate::model::caller::Caller;
use crate::model::scope::Scopes;
use crate::model::tenant::Tenant;
use crate::policy;
use crate::policy::Decision;
use crate::policy::Operation;
use crate::protocol::call::INPUT_RESPONSES;
use crate::protocol::call::REQUEST_STATE;
use crate::protocol::headers::Mismatch;
use crate::protocol::json::Json;
use crate::protocol::json::Kind;
use crate::protocol::methods::List;
use crate::protocol::methods::Method;
use crate::protocol::tasks;
use crate::router::listen::Filter;
pub use crate::router::tool::tool;
use crate::seal::KeyRing;

/// Where a request goes.
pub enum Route {
    /// Answered here: `server/discover`.
    Discover,
    /// Answered here: a page of a list after a public name.
    List {
        /// Which list.
        list: List,
        /// The last name of the page before.
        after: Option<String>,
    },
    /// To the backend of this tool.
    Tool(Arc<Tool>),
    /// To the backend of this prompt.
    Prompt(Arc<Prompt>),
    /// To the backend of this resource.
    Resource(Arc<Entry>),
    /// To the backend of what is completed.
    Complete(Completion),
    /// Answered here, for as long as the client listens to what it asks for.
    Listen(Filter),
    /// To the backend of this task.
    Task(Arc<Entry>),
}

impl Route {
    /// What is asked for, where that is a backend's.
    pub fn entry(&self) -> Option<&Arc<Entry>> {
        match self {
            Self::Discover | Self::List { .. } | Self::Listen(_) => None,
            Self::Tool(tool) => Some(&tool.entry),
            Self::Prompt(prompt) => Some(&prompt.entry),
            Self::Resource(entry) | Self::Complete(Completion { of: entry, .. }) | Self::Task(entry) => {
                Some(entry)
            }
        }
    }
}

/// A completion of an argument.
pub struct Completion {
    /// The prompt or resource template whose argument it is.
    pub of: Arc<Entry>,
    /// The client's params, under the backend's own name.
    pub params: Json,
}

/// Why a proven request goes nowhere. `Display` is what the caller reads.
#[derive(Debug, thiserror::Error)]
pub enum RouteError {
    /// Step 16: the caller's scopes do not cover all of these.
    #[error("this needs the scopes {:?}", .0.joined())]
    NeedsScopes(Scopes),
    /// Step 17: the answer is a stream, and the client does not take one.
    #[error("the answer is a stream: `Accept` has to admit `text/event-stream`")]
    NeedsStream,
    /// Step 17: params of the wrong shape.
    #[error("{0}")]
    InvalidParams(&'static str),
    /// Step 17: a cursor that we did not mint for this caller, or that ended.
    #[error("the cursor is not valid for this list: start again without one")]
    InvalidCursor,
    /// Step 17: a state that we did not mint for this caller and call, or that ended.
    #[error(
        "the request state is not valid for this call, or not any more: check what it has done before you call again"
    )]
    InvalidState,
    /// The client does not know tasks, and asks about one.
    #[error("this needs the client capability `extensions[\"{}\"]`", tasks::EXTENSION)]
    NeedsTasks,
    /// Steps 17 and 18: a task id that we did not mint for this caller, or that ended; or of a backend, or a
    /// tool, that the caller may not use any more. Nobody can tell which.
    #[error("unknown task")]
    UnknownTask,
    /// Step 18: absent, or hidden from this caller; nobody can tell which.
    #[error("unknown tool: {0}")]
    UnknownTool(String),
    /// Step 18, likewise.
    #[error("unknown prompt: {0}")]
    UnknownPrompt(String),
    /// Step 18, likewise; also of a URI that no server should follow.
    #[error("unknown resource: {}", shown(.uri))]
    UnknownResource {
        /// The URI that was asked for.
        uri: String,
    },
    /// Step 17: a prompt does not go without this argument.
    #[error("the prompt needs the argument {0:?}, a string")]
    MissingArgument(Arc<str>),
    /// Step 19: a parameter's mirror header disagrees.
    #[error("{header}: {problem}")]
    ParamMismatch {
        /// The header, as the tool's schema spells it.
        header: String,
        /// What is wrong with it.
        problem: Mismatch,
    },
}

/// The longest part of an unknown name that an error repeats, in characters.
const NAME_SHOWN: usize = 128;

/// Routes `exchange` by `snapshot`.
pub fn route(
    snapshot: &Snapshot,
    exchange: &Exchange,
    keys: &KeyRing,
    now: u64,
) -> Result<Route, RouteError> {
    let page = |list| Ok(Route::List { list, after: after(exchange, list, keys, now)? });
    match exchange.call.method {
        Method::Discover => Ok(Route::Discover),
        Method::ToolsList => page(List::Tools),
        Method::PromptsList => page(List::Prompts),
        Method::ResourcesList => page(List::Resources),
        Method::TemplatesList => page(List::Templates),
        Method::ToolsCall => tool(snapshot, exchange).map(Route::Tool),
        Method::PromptsGet => prompt::prompt(snapshot, exchange).map(Route::Prompt),
        Method::ResourcesRead => resource::resource(snapshot, exchange).map(Route::Resource),
        Method::Complete => complete::completion(snapshot, exchange).map(Route::Complete),
        Method::Listen => listen::filter(exchange).map(Route::Listen),
        Method::TasksGet | Method::TasksUpdate | Method::TasksCancel => {
            task::task(snapshot, exchange, keys, now).map(Route::Task)
        }
    }
}

/// The public name that a list's cursor stands on.
fn after(exchange: &Exchange, list: List, keys: &KeyRing, now: u64) -> Result<Option<String>, RouteError> {
    let Some(cursor) = exchange.call.params.member("cursor").filter(|c| c.kind() != Kind::Null) else {
        return Ok(None);
    };
    let handle = cursor.string().ok_or(RouteError::InvalidParams("`cursor` must be a string"))?;
    let principal = exchange.caller.principal();
    open_cursor(keys, &exchange.tenant.name, &principal, list, &handle, now)
        .map(Some)
        .map_err(|_| RouteError::InvalidCursor)
}

/// Step 16: what the caller may do with what it names; `false` where it is not there, to anybody or to
/// this caller.
fn may(exchange: &Exchange, operation: Operation, found: Option<&Arc<Entry>>) -> Result<bool, RouteError> {
    allows(&exchange.caller, &exchange.tenant, operation, found)
}

/// The same, whether anything was asked or not.
fn allows(
    caller: &Caller,
    tenant: &Tenant,
    operation: Operation,
    found: Option<&Arc<Entry>>,
) -> Result<bool, RouteError> {
    let Some(entry) = found else { return Ok(false) };
    match policy::decide(caller, tenant, operation, &entry.target()) {
        Decision::Allow => Ok(true),
        Decision::NeedsScopes(needed) => Err(RouteError::NeedsScopes(needed)),
        Decision::Hidden => Ok(false),
    }
}

/// Step 17 for the methods that a backend may ask for more input in. What the state is worth is known
/// with the target: [`state::open`].
fn check_retry(params: &Json) -> Result<(), RouteError> {
    let are_objects = |all: Json| all.is_object() && all.members().all(|(_, response)| response.is_object());
    if params.member(INPUT_RESPONSES).is_some_and(|responses| !are_objects(responses)) {
        return Err(RouteError::InvalidParams("`params.inputResponses` must be an object of objects"));
    }
    match params.member(REQUEST_STATE).map(|state| state.kind()) {
        None | Some(Kind::String) => Ok(()),
        Some(_) => Err(RouteError::InvalidParams("`params.requestState` must be a string")),
    }
}

/// An unknown name, as an error repeats it.
fn shown(name: &str) -> String {
    name.chars().take(NAME_SHOWN).collect()
}
