//! An MCP client on rmcp, the official Rust SDK, in each of its modes. It takes the road that
//! `road.mjs` describes and returns a line per step; the first that fails is an error.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::Mutex;
use std::time::Duration;

use anyhow::Context;
use anyhow::Result;
use anyhow::bail;
use anyhow::ensure;
use rmcp::ClientHandler;
use rmcp::ErrorData;
use rmcp::RoleClient;
use rmcp::ServiceError;
use rmcp::model::ArgumentInfo;
use rmcp::model::CallToolRequestParams;
use rmcp::model::CallToolResult;
use rmcp::model::ClientCapabilities;
use rmcp::model::ClientConfig;
use rmcp::model::CompleteRequestParams;
use rmcp::model::ElicitRequestParams;
use rmcp::model::ElicitResult;
use rmcp::model::ElicitationAction;
use rmcp::model::GetPromptRequestParams;
use rmcp::model::Implementation;
use rmcp::model::PaginatedRequestParams;
use rmcp::model::ProgressNotificationParam;
use rmcp::model::ProtocolVersion;
use rmcp::model::ReadResourceRequestParams;
use rmcp::model::Reference;
use rmcp::model::ResourceContents;
use rmcp::model::ResourceUpdatedNotificationParam;
use rmcp::model::ServerNotification;
use rmcp::model::SubscribeRequestParams;
use rmcp::model::SubscriptionFilter;
use rmcp::model::UnsubscribeRequestParams;
use rmcp::service::ClientLifecycleMode;
use rmcp::service::ClientServiceExt;
use rmcp::service::NotificationContext;
use rmcp::service::RequestContext;
use rmcp::service::RunningService;
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use serde_json::Value;
use serde_json::json;

const MODERN: &str = "2026-07-28";
const HANDSHAKE: &str = "2025-11-25";

/// How the client opens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// By `server/discover` alone.
    Discover,
    /// By `server/discover`, and by the handshake where that is not known.
    Auto,
    /// By the handshake alone.
    Initialize,
}

/// A backend on the road.
#[derive(Clone, Copy, Debug)]
pub struct Backend {
    /// What its tools' names begin with.
    pub prefix: &'static str,
    /// How the gateway speaks to it: `modern` or `legacy`.
    pub era: &'static str,
}

/// The name that it gives when it is asked for one.
const NAME: &str = "Ada";
/// A resource that changes.
const WATCHED: &str = "test://watched-resource";

/// Hears progress and changes, and answers what is asked.
#[derive(Clone, Default)]
struct Listener {
    progress: Arc<Mutex<Vec<f64>>>,
    heard: Arc<Mutex<BTreeSet<String>>>,
}

impl ClientHandler for Listener {
    fn get_info(&self) -> ClientConfig {
        let capabilities = ClientCapabilities::builder().enable_elicitation().build();
        ClientConfig::new(capabilities, Implementation::new("rmcp-client", "1.0.0"))
    }

    async fn on_progress(&self, params: ProgressNotificationParam, _: NotificationContext<RoleClient>) {
        self.progress.lock().unwrap().push(params.progress);
    }

    async fn on_tool_list_changed(&self, _: NotificationContext<RoleClient>) {
        self.heard.lock().unwrap().insert("tools".to_owned());
    }

    async fn on_resource_updated(
        &self,
        params: ResourceUpdatedNotificationParam,
        _: NotificationContext<RoleClient>,
    ) {
        self.heard.lock().unwrap().insert(params.uri);
    }

    async fn create_elicitation(
        &self,
        _: ElicitRequestParams,
        _: RequestContext<RoleClient>,
    ) -> Result<ElicitResult, ErrorData> {
        Ok(ElicitResult::new(ElicitationAction::Accept).with_content(json!({"name": NAME})))
    }
}

/// A connected client.
pub struct Client {
    service: RunningService<RoleClient, Listener>,
    progress: Arc<Mutex<Vec<f64>>>,
    heard: Arc<Mutex<BTreeSet<String>>>,
    mode: Mode,
}

/// Takes the road against a gateway whose pages hold `page_size` tools.
pub async fn take(
    url: &str,
    token: &str,
    mode: Mode,
    backends: &[Backend],
    page_size: usize,
) -> Result<Vec<String>> {
    let client = Client::connect(url, token, mode).await.context("connect")?;
    let revision = client.revision()?;
    let mut lines = vec![format!("ok connect ({revision})"), client.session(&revision)];
    lines.push(client.pages(backends, page_size).await.context("pages")?);
    for backend in backends {
        let road = Road { client: &client, backend, token };
        let steps = road.steps().await.with_context(|| backend.prefix)?;
        let of = if backends.len() > 1 { format!(" of {}", backend.prefix) } else { String::new() };
        lines.extend(steps.into_iter().map(|(name, remark)| match remark {
            Some(remark) => format!("ok {name}{of} ({remark})"),
            None => format!("ok {name}{of}"),
        }));
    }
    lines.push(client.unknown_tool(backends[0].prefix).await.context("unknown_tool")?);
    lines.push(client.close(&revision).await.context("close")?);
    Ok(lines)
}

impl Client {
    /// Opens a connection in this mode.
    pub async fn connect(url: &str, token: &str, mode: Mode) -> Result<Self> {
        let listener = Listener::default();
        let (progress, heard) = (listener.progress.clone(), listener.heard.clone());
        let mut config = StreamableHttpClientTransportConfig::with_uri(url).auth_header(token);
        config.allow_stateless = mode != Mode::Initialize;
        let transport = StreamableHttpClientTransport::from_config(config);
        let preferred_versions = vec![ProtocolVersion::V_2026_07_28];
        let lifecycle = match mode {
            Mode::Discover => ClientLifecycleMode::Discover { preferred_versions },
            Mode::Auto => ClientLifecycleMode::Auto { preferred_versions, legacy_version: None },
            Mode::Initialize => ClientLifecycleMode::Initialize,
        };
        let service = listener.serve_with_lifecycle(transport, lifecycle).await?;
        Ok(Self { service, progress, heard, mode })
    }

    /// The negotiated revision.
    pub fn revision(&self) -> Result<String> {
        let peer = self.service.peer_info().context("nothing was negotiated")?;
        let revision = peer.protocol_version.as_str();
        let expected: &[&str] = match self.mode {
            Mode::Discover => &[MODERN],
            Mode::Auto => &[MODERN, HANDSHAKE],
            Mode::Initialize => &[HANDSHAKE],
        };
        ensure!(expected.contains(&revision), "negotiated {revision}");
        ensure!(peer.capabilities.tools.is_some(), "no tools are advertised");
        Ok(revision.to_owned())
    }

    fn session(&self, revision: &str) -> String {
        match self.mode {
            // It is configured to refuse a handshake without a session.
            Mode::Initialize => "ok session".to_owned(),
            Mode::Auto if revision == HANDSHAKE => "skip session: rmcp does not show it".to_owned(),
            Mode::Auto | Mode::Discover => format!("ok session (none in {MODERN})"),
        }
    }

    /// Calls a tool.
    pub async fn call(&self, tool: &str, arguments: Value) -> Result<CallToolResult, ServiceError> {
        let arguments = arguments.as_object().cloned().unwrap_or_default();
        self.service.call_tool(CallToolRequestParams::new(tool.to_owned()).with_arguments(arguments)).await
    }

    /// Calls a tool and returns the progress that was heard until its answer came.
    pub async fn progress_of(&self, tool: &str, arguments: Value) -> Result<Vec<f64>> {
        self.progress.lock().unwrap().clear();
        let result = self.call(tool, arguments).await?;
        ensure!(result.is_error != Some(true), "{result:?}");
        let seen = self.progress.lock().unwrap().clone();
        ensure!(seen.windows(2).all(|pair| pair[0] < pair[1]), "progress does not increase: {seen:?}");
        Ok(seen)
    }

    /// The names of all tools, by pages.
    pub async fn tools(&self) -> Result<Vec<Vec<String>>> {
        let (mut pages, mut cursor) = (Vec::new(), None);
        loop {
            let params = PaginatedRequestParams::default().with_cursor(cursor);
            let page = self.service.list_tools(Some(params)).await?;
            pages.push(page.tools.iter().map(|tool| tool.name.to_string()).collect::<Vec<_>>());
            cursor = page.next_cursor;
            if cursor.is_none() {
                return Ok(pages);
            }
            ensure!(pages.len() < 100, "the list has no end");
        }
    }

    async fn pages(&self, backends: &[Backend], page_size: usize) -> Result<String> {
        let pages = self.tools().await?;
        let names = pages.concat();
        let sorted: Vec<String> = names.iter().cloned().collect::<BTreeSet<_>>().into_iter().collect();
        ensure!(names == sorted, "not every name once and in order: {names:?}");
        ensure!(pages.len() > 1 && pages[0].len() == page_size, "pages: {pages:?}");
        for Backend { prefix, .. } in backends {
            ensure!(names.contains(&format!("{prefix}echo")), "no {prefix}echo in {names:?}");
        }
        let all = self.service.list_all_tools().await?.len();
        ensure!(all == names.len(), "the SDK's own walk sees {all} tools, not {}", names.len());
        Ok(format!("ok pages ({all} tools on {} pages)", pages.len()))
    }

    async fn unknown_tool(&self, prefix: &str) -> Result<String> {
        match self.call(&format!("{prefix}no_such_tool"), json!({})).await {
            Err(ServiceError::McpError(error)) if error.code.0 == -32602 => Ok("ok unknown_tool".to_owned()),
            other => bail!("{other:?}"),
        }
    }

    async fn close(self, revision: &str) -> Result<String> {
        self.service.cancel().await?;
        Ok(match revision {
            MODERN => "ok close (no session to end)".to_owned(),
            _ => "skip close: rmcp does not show its session".to_owned(),
        })
    }
}

/// The steps that are taken for every backend.
struct Road<'a> {
    client: &'a Client,
    backend: &'a Backend,
    token: &'a str,
}

/// A step that was taken, and its remark.
type Step = (&'static str, Option<String>);

impl Road<'_> {
    async fn steps(&self) -> Result<Vec<Step>> {
        self.results().await.context("results")?;
        self.parallel().await.context("parallel")?;
        let progress = self.client.progress_of(&self.named("slow"), json!({"ms": 500})).await;
        let progress = progress.context("progress")?.len();
        ensure!(progress >= 2, "{progress} progress notifications");
        self.cancel().await.context("cancel")?;
        self.headers().await.context("headers")?;
        let resources = self.read().await.context("read")?;
        self.templates().await.context("templates")?;
        let prompts = self.prompts().await.context("prompts")?;
        self.completion().await.context("completion")?;
        let elicitation = self.elicitation().await.context("elicitation")?;
        let listening = self.listen().await.context("listen")?;
        let steps = [
            ("text", None),
            ("structured", None),
            ("is_error", None),
            ("parallel", None),
            ("progress", Some(format!("{progress} notifications"))),
            ("cancel", Some("noticed by the backend".to_owned())),
            ("mirrored_header", None),
            ("token_stays", None),
            ("read", Some(format!("{resources} resources"))),
            ("templates", None),
            ("prompts", Some(format!("{prompts} prompts"))),
            ("completion", None),
            ("elicitation", Some(elicitation)),
            ("listen", Some(listening)),
        ];
        Ok(steps.into_iter().collect())
    }

    fn named(&self, tool: &str) -> String {
        format!("{}{tool}", self.backend.prefix)
    }

    async fn call(&self, tool: &str, arguments: Value) -> Result<CallToolResult, ServiceError> {
        self.client.call(&self.named(tool), arguments).await
    }

    async fn results(&self) -> Result<()> {
        let text = self.call("echo", json!({"text": "héllo \"wörld\"\n"})).await?;
        ensure!(text_of(&text) == "héllo \"wörld\"\n", "{text:?}");
        let structured = self.call("add", json!({"a": 2, "b": 40})).await?.structured_content;
        let values = structured.as_ref().and_then(Value::as_object).context("no structuredContent")?;
        ensure!(values.values().any(|value| value.as_f64() == Some(42.0)), "{structured:?}");
        let failed = self.call("fail", json!({})).await?;
        ensure!(failed.is_error == Some(true), "{failed:?}");
        Ok(())
    }

    async fn parallel(&self) -> Result<()> {
        let markers: Vec<String> = (0..20).map(|i| format!("marker {i}")).collect();
        let calls = markers.iter().map(|text| self.call("echo", json!({"text": text})));
        let results = futures_util::future::join_all(calls).await;
        for (marker, result) in markers.iter().zip(results) {
            ensure!(text_of(&result?) == *marker, "another call's answer");
        }
        Ok(())
    }

    async fn cancel(&self) -> Result<()> {
        let before = self.cancelled().await?;
        let wait = Duration::from_millis(500);
        let call = tokio::time::timeout(wait, self.call("slow", json!({"ms": 10_000}))).await;
        ensure!(call.is_err(), "the call was over before it was cancelled");
        for _ in 0..100 {
            if self.cancelled().await? > before {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        bail!("the backend did not notice within 5 s")
    }

    async fn cancelled(&self) -> Result<u64> {
        let result = self.call("cancelled_count", json!({})).await?;
        result.structured_content.and_then(|value| value["count"].as_u64()).context("no count")
    }

    /// What a backend's URI becomes: its prefix is its name and `_`.
    fn uri(&self, own: &str) -> String {
        match self.backend.prefix.strip_suffix('_') {
            Some(name) => format!("{name}+{own}"),
            None => own.to_owned(),
        }
    }

    async fn contents(&self, uri: &str) -> Result<String> {
        let result = self.client.service.read_resource(ReadResourceRequestParams::new(uri)).await?;
        match result.contents.first() {
            Some(ResourceContents::TextResourceContents { uri: said, text, .. }) if said == uri => {
                Ok(text.clone())
            }
            other => bail!("{other:?}"),
        }
    }

    async fn read(&self) -> Result<usize> {
        let listed = self.client.service.list_all_resources().await?;
        let uri = self.uri("test://static-text");
        ensure!(listed.iter().any(|entry| entry.uri == uri), "no {uri} in {listed:?}");
        ensure!(self.contents(&uri).await?.contains("static text resource"));
        Ok(listed.len())
    }

    async fn templates(&self) -> Result<()> {
        let listed = self.client.service.list_all_resource_templates().await?;
        let template = self.uri("test://template/{id}/data");
        ensure!(listed.iter().any(|entry| entry.uri_template == template), "no {template} in {listed:?}");
        ensure!(self.contents(&self.uri("test://template/n7/data")).await?.contains("n7"));
        Ok(())
    }

    async fn prompts(&self) -> Result<usize> {
        let listed = self.client.service.list_all_prompts().await?;
        let name = self.named("test_prompt_with_arguments");
        ensure!(listed.iter().any(|entry| entry.name == name), "no {name} in {listed:?}");
        let arguments = json!({"arg1": "hé", "arg2": "b"}).as_object().cloned().unwrap_or_default();
        let params = GetPromptRequestParams::new(name).with_arguments(arguments);
        let got = self.client.service.get_prompt(params).await?;
        ensure!(format!("{:?}", got.messages).contains("hé"), "{got:?}");
        Ok(listed.len())
    }

    async fn completion(&self) -> Result<()> {
        let prompt = Reference::for_prompt(self.named("test_prompt_with_arguments"));
        let argument = ArgumentInfo::new("arg1", "te");
        let found = self.client.service.complete(CompleteRequestParams::new(prompt, argument)).await?;
        ensure!(found.completion.values.contains(&"testing".to_owned()), "{found:?}");
        Ok(())
    }

    async fn elicitation(&self) -> Result<String> {
        let answer = self.call("ask_name", json!({})).await?;
        ensure!(text_of(&answer) == format!("Hello, {NAME}!"), "{answer:?}");
        Ok(self.how("by a second round", "by a request in the session"))
    }

    fn how(&self, modern: &str, handshake: &str) -> String {
        let is_modern = self.client.revision().is_ok_and(|revision| revision == MODERN);
        if is_modern { modern.to_owned() } else { handshake.to_owned() }
    }

    #[expect(deprecated, reason = "the handshake era subscribes by it")]
    async fn listen(&self) -> Result<String> {
        let uri = self.uri(WATCHED);
        let wanted = BTreeSet::from(["tools".to_owned(), uri.clone()]);
        self.client.heard.lock().unwrap().clear();
        let how = self.how("by subscriptions/listen", "by the GET stream and resources/subscribe");
        let listening = if self.client.revision()? == MODERN {
            let filter =
                SubscriptionFilter::builder().tools_list_changed().resource_subscription(uri.clone()).build();
            let mut subscription = self.client.service.listen(filter).await?;
            let heard = self.client.heard.clone();
            Some(tokio::spawn(async move {
                while let Ok(Some(notification)) = subscription.next().await {
                    match notification {
                        ServerNotification::ToolListChangedNotification(_) => {
                            heard.lock().unwrap().insert("tools".to_owned());
                        }
                        ServerNotification::ResourceUpdatedNotification(updated) => {
                            heard.lock().unwrap().insert(updated.params.uri);
                        }
                        _ => {}
                    }
                }
            }))
        } else {
            self.client.service.subscribe(SubscribeRequestParams::new(uri.clone())).await?;
            None
        };
        // Said again until it is heard: a session's stream opens beside its requests.
        for _ in 0..40 {
            if *self.client.heard.lock().unwrap() == wanted {
                break;
            }
            for kind in ["tool", "resource"] {
                self.call(&format!("test_trigger_{kind}_change"), json!({})).await?;
            }
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
        let heard = self.client.heard.lock().unwrap().clone();
        ensure!(heard == wanted, "heard of {heard:?}");
        match listening {
            Some(listening) => listening.abort(),
            None => self.client.service.unsubscribe(UnsubscribeRequestParams::new(uri)).await?,
        }
        Ok(how)
    }

    async fn headers(&self) -> Result<()> {
        let region = self.call("region_lookup", json!({"region": "eu-wést"})).await?;
        ensure!(text_of(&region).contains("eu-wést"), "{region:?}");
        let headers = self.call("whoami_headers", json!({})).await?;
        let headers = text_of(&headers);
        let modern = self.backend.era == "modern";
        let seen: Value = serde_json::from_str(headers).context("whoami_headers answers no JSON")?;
        ensure!((seen["mcp-method"] == "tools/call") == modern, "{headers}");
        ensure!(seen["mcp-protocol-version"] == if modern { MODERN } else { HANDSHAKE }, "{headers}");
        ensure!(seen["mcp-session-id"].is_string() != modern, "{headers}");
        ensure!(!headers.contains(self.token), "the token reached the backend");
        Ok(())
    }
}

fn text_of(result: &CallToolResult) -> &str {
    result.content.first().and_then(|block| block.as_text()).map_or("", |text| &text.text)
}
