//! The client against servers that misbehave.

#[expect(dead_code, reason = "the tests through the front door use the rest")]
#[path = "../../../../tests/it/harness/upstream.rs"]
mod upstream;

mod answers;
mod calls;
mod ears;
mod eras;
mod lists;
mod sessions;
mod watches;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::backend::Backend;
use crate::backend::BackendCall;
use crate::backend::BackendError;
use crate::backend::Surroundings;
use crate::backend::mcp::upstream::Upstream as Way;
use crate::egress::Egress;
use crate::egress::rules::Rules;
use crate::exchange::Frame;
use crate::exchange::Frames;
use crate::model::caller::Caller;
use crate::model::limits::Limits;
use crate::model::name::BackendName;
use crate::model::name::TenantName;
use crate::model::scope::Scopes;
use crate::model::tenant;
use crate::model::tenant::BackendEra;
use crate::model::tenant::BackendKind;
use crate::protocol::call::Outcome;
use crate::protocol::json::Json;
use crate::protocol::meta::Meta;
use crate::protocol::methods::Method;
use crate::telemetry::metrics::Metrics;

const INFO: &str = concat!(r#"{"name":"fondaco","version":""#, env!("CARGO_PKG_VERSION"), r#""}"#);

fn json(text: &str) -> Json {
    Json::parse(Bytes::copy_from_slice(text.as_bytes()), 64).expect(text)
}

fn config(url: &str) -> tenant::Backend {
    config_of(url, BackendEra::Modern)
}

fn config_of(url: &str, era: BackendEra) -> tenant::Backend {
    tenant::Backend {
        name: BackendName::new("crm").unwrap(),
        kind: BackendKind::Mcp { url: url.parse().unwrap(), era },
        prefix: "crm_".into(),
        uris: tenant::Uris::Keep,
        timeout: Duration::from_secs(10),
        extensions: Vec::new(),
        idle_timeout: Duration::from_secs(5),
        scopes: vec![tenant::ScopeRule { kind: None, glob: "*".into(), needs: Scopes::default() }],
        credential: None,
        refused: Vec::new(),
        validate: tenant::Validate::default(),
        catalog: tenant::Catalog::default(),
    }
}

fn backend_of(config: tenant::Backend, limits: Limits) -> Backend {
    backend_in(config, around(limits))
}

fn backend_in(config: tenant::Backend, around: Surroundings) -> Backend {
    Backend::new(Arc::new(config), TenantName::new("acme").unwrap(), around)
}

/// The way to the server at `url`.
pub(in crate::backend) fn way(url: &str) -> Arc<Way> {
    let (config, tenant) = (Arc::new(config(url)), TenantName::new("acme").unwrap());
    Arc::new(Way::new(&url.parse().unwrap(), config, tenant, around(Limits::default())))
}

fn around(limits: Limits) -> Surroundings {
    let rules = Rules { allow: vec!["127.0.0.0/8".parse().unwrap()] };
    Surroundings {
        egress: Egress::new(rules, limits.connect_time, &[]).unwrap(),
        seats: Arc::default(),
        limits: Arc::new(limits),
        metrics: Arc::new(Metrics::new()),
        tasks: TaskTracker::new(),
        stop: CancellationToken::new(),
    }
}

fn backend(url: &str) -> Backend {
    let limits =
        Limits { upstream_bytes: 64 << 10, connect_time: Duration::from_secs(1), ..Limits::default() };
    backend_of(config(url), limits)
}

/// Of a server whose era is to be found out.
fn auto(url: &str, limits: Limits) -> Backend {
    backend_of(config_of(url, BackendEra::Auto), limits)
}

fn alice() -> Caller {
    Caller {
        tenant: TenantName::new("acme").unwrap(),
        issuer: "https://login.example".into(),
        subject: "alice".into(),
        client: None,
        scopes: Scopes::default(),
        expires_at: u64::MAX,
    }
}

fn call(tool: &str) -> BackendCall {
    BackendCall {
        caller: Arc::new(alice()),
        method: Method::ToolsCall,
        name: tool.into(),
        params: json(r#"{"name":"crm_echo","arguments":{"text":"hi"}}"#),
        meta: Meta {
            capabilities: json("{}"),
            progress_token: None,
            traceparent: None,
            tracestate: None,
            baggage: None,
            log_level: None,
            unknown: Vec::new(),
        },
        capabilities: json("{}"),
        responses: None,
        state: None,
        param_headers: Vec::new(),
        deadline: Instant::now() + Duration::from_secs(60),
    }
}

fn call_with_progress(tool: &str) -> BackendCall {
    let mut call = call(tool);
    call.meta.progress_token = Some(json(r#""theirs""#));
    call
}

type End = Result<Outcome, BackendError>;

async fn end_of(mut frames: Frames<BackendError>) -> (Vec<String>, End) {
    let mut progress = Vec::new();
    while let Some(frame) = frames.next().await {
        match frame {
            Frame::Notice(message) => progress.push(message.text().to_owned()),
            Frame::End(end) => {
                assert!(frames.next().await.is_none(), "nothing comes after the end");
                return (progress, end);
            }
        }
    }
    panic!("a stream ends with its end");
}

async fn run(backend: &Backend, call: BackendCall) -> (Vec<String>, End) {
    match backend.call(call).await {
        Ok(frames) => end_of(frames).await,
        Err(error) => (Vec::new(), Err(error)),
    }
}

async fn result(backend: &Backend, call: BackendCall) -> String {
    match run(backend, call).await.1 {
        Ok(Outcome::Result(result)) => result.text().to_owned(),
        other => panic!("{other:?}"),
    }
}

async fn eventually(what: impl Fn() -> bool) {
    for _ in 0..200 {
        if what() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("it never came");
}
