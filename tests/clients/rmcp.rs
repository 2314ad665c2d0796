//! An MCP client of 2026-07-28 on rmcp, the official Rust SDK. It takes the same road as
//! `ts.mjs` and `python.py`, and returns a line per step; the first that fails is an error.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::Mutex;
use std::time::Duration;

use anyhow::Context;
use anyhow::Result;
use anyhow::bail;
use anyhow::ensure;
use rmcp::ClientHandler;
use rmcp::RoleClient;
use rmcp::ServiceError;
use rmcp::model::CallToolRequestParams;
use rmcp::model::CallToolResult;
use rmcp::model::PaginatedRequestParams;
use rmcp::model::ProgressNotificationParam;
use rmcp::model::ProtocolVersion;
use rmcp::service::ClientLifecycleMode;
use rmcp::service::ClientServiceExt;
use rmcp::service::NotificationContext;
use rmcp::service::RunningService;
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use serde_json::Value;
use serde_json::json;

/// Hears progress.
#[derive(Clone, Default)]
struct Listener(Arc<Mutex<Vec<f64>>>);

impl ClientHandler for Listener {
    async fn on_progress(&self, params: ProgressNotificationParam, _: NotificationContext<RoleClient>) {
        self.0.lock().unwrap().push(params.progress);
    }
}

struct Road {
    client: RunningService<RoleClient, Listener>,
    progress: Arc<Mutex<Vec<f64>>>,
    prefix: String,
}

/// Takes the road against a gateway whose pages hold `page_size` tools.
pub async fn drive(url: &str, token: &str, prefix: &str, page_size: usize) -> Result<Vec<String>> {
    let listener = Listener::default();
    let progress = listener.0.clone();
    let transport = StreamableHttpClientTransport::from_config(
        StreamableHttpClientTransportConfig::with_uri(url).auth_header(token),
    );
    let mode = ClientLifecycleMode::Discover { preferred_versions: vec![ProtocolVersion::V_2026_07_28] };
    let client = listener.serve_with_lifecycle(transport, mode).await.context("connect")?;
    let road = Road { client, progress, prefix: prefix.to_owned() };
    let mut lines = vec!["ok connect".to_owned()];
    lines.push(road.pages(page_size).await.context("pages")?);
    lines.push(road.results().await.context("results")?);
    lines.push(road.parallel().await.context("parallel")?);
    lines.push(road.progress().await.context("progress")?);
    lines.push(road.cancel().await.context("cancel")?);
    lines.push(road.unknown_tool().await.context("unknown tool")?);
    road.client.cancel().await?;
    Ok(lines)
}

impl Road {
    async fn call(&self, tool: &str, arguments: Value) -> Result<CallToolResult, ServiceError> {
        let arguments = arguments.as_object().cloned().unwrap_or_default();
        let params = CallToolRequestParams::new(format!("{}{tool}", self.prefix)).with_arguments(arguments);
        self.client.call_tool(params).await
    }

    async fn pages(&self, page_size: usize) -> Result<String> {
        let (mut pages, mut cursor) = (Vec::new(), None);
        loop {
            let params = PaginatedRequestParams::default().with_cursor(cursor);
            let page = self.client.list_tools(Some(params)).await?;
            pages.push(page.tools.iter().map(|tool| tool.name.to_string()).collect::<Vec<_>>());
            cursor = page.next_cursor;
            if cursor.is_none() {
                break;
            }
            ensure!(pages.len() < 100, "the list has no end");
        }
        let names = pages.concat();
        let sorted: Vec<String> = names.iter().cloned().collect::<BTreeSet<_>>().into_iter().collect();
        ensure!(names == sorted, "not every name once and in order: {names:?}");
        ensure!(pages.len() > 1 && pages[0].len() == page_size, "pages: {pages:?}");
        let all = self.client.list_all_tools().await?.len();
        ensure!(all == names.len(), "the SDK's own walk sees {all} tools, not {}", names.len());
        Ok(format!("ok pages ({all} tools on {} pages)", pages.len()))
    }

    async fn results(&self) -> Result<String> {
        let text = self.call("echo", json!({"text": "héllo \"wörld\"\n"})).await?;
        ensure!(text_of(&text) == "héllo \"wörld\"\n", "{text:?}");
        let structured = self.call("add", json!({"a": 2, "b": 40})).await?.structured_content;
        let values = structured.as_ref().and_then(Value::as_object).context("no structuredContent")?;
        ensure!(values.values().any(|value| *value == json!(42)), "{structured:?}");
        let failed = self.call("fail", json!({})).await?;
        ensure!(failed.is_error == Some(true), "{failed:?}");
        Ok("ok text, structured, is_error".to_owned())
    }

    async fn parallel(&self) -> Result<String> {
        let markers: Vec<String> = (0..20).map(|i| format!("marker {i}")).collect();
        let calls = markers.iter().map(|text| self.call("echo", json!({"text": text})));
        let results = futures_util::future::join_all(calls).await;
        for (marker, result) in markers.iter().zip(results) {
            ensure!(text_of(&result?) == *marker, "another call's answer");
        }
        Ok("ok parallel".to_owned())
    }

    async fn progress(&self) -> Result<String> {
        self.progress.lock().unwrap().clear();
        self.call("slow", json!({"ms": 500})).await?;
        let seen = self.progress.lock().unwrap().clone();
        ensure!(seen.len() >= 2, "{} progress notifications", seen.len());
        ensure!(seen.windows(2).all(|pair| pair[0] < pair[1]), "progress does not increase: {seen:?}");
        Ok(format!("ok progress ({} notifications)", seen.len()))
    }

    async fn cancel(&self) -> Result<String> {
        let before = self.cancelled().await?;
        let wait = Duration::from_millis(500);
        let call = tokio::time::timeout(wait, self.call("slow", json!({"ms": 10_000}))).await;
        ensure!(call.is_err(), "the call was over before it was cancelled");
        for _ in 0..100 {
            if self.cancelled().await? > before {
                return Ok("ok cancel (noticed by the backend)".to_owned());
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        bail!("the backend did not notice within 5 s")
    }

    async fn cancelled(&self) -> Result<u64> {
        let result = self.call("cancelled_count", json!({})).await?;
        result.structured_content.and_then(|value| value["count"].as_u64()).context("no count")
    }

    async fn unknown_tool(&self) -> Result<String> {
        match self.call("no_such_tool", json!({})).await {
            Err(ServiceError::McpError(error)) if error.code.0 == -32602 => Ok("ok unknown_tool".to_owned()),
            other => bail!("{other:?}"),
        }
    }
}

fn text_of(result: &CallToolResult) -> &str {
    result.content.first().and_then(|block| block.as_text()).map_or("", |text| &text.text)
}
