//! One tenant over three servers that have nothing in common but their names: on the TypeScript, the
//! Python and the Rust SDK, of both eras, with the same tools, prompts and resources.

use serde_json::Value;
use serde_json::json;

use crate::harness::gateway::Caller;
use crate::harness::gateway::Gateway;
use crate::harness::gateway::acme_and_other;
use crate::harness::process::Peers;
use crate::harness::process::Process;
use crate::harness::session::Session;
use crate::harness::wire::Answer;
use crate::rmcp_server;
use crate::rmcp_server::Running;

/// The backends' names, and what each server calls itself.
const SERVERS: [(&str, &str); 3] = [("ts", "everything"), ("py", "python-fixture"), ("rs", "rmcp")];

/// The three servers.
struct Three {
    _processes: [Process; 2],
    _rmcp: Running,
    urls: [String; 3],
}

impl Three {
    async fn start() -> Self {
        let peers = Peers::find();
        let mut ts = Process::start(&mut peers.node("tests/fixtures/everything.mjs"));
        let mut py = Process::start(&mut peers.python("tests/fixtures/server.py"));
        let rmcp = rmcp_server::start().await;
        let urls = [ts.line("listening ").await, py.line("listening ").await, rmcp.url().to_owned()];
        Self { _processes: [ts, py], _rmcp: rmcp, urls }
    }

    /// A tenants file with all of them, and more settings for each.
    fn tenants(&self, more: &str) -> String {
        let backend = |((name, _), url): (&(&str, &str), &String)| {
            format!(r#"{name}: {{kind: mcp, url: "{url}"{more}}}"#)
        };
        acme_and_other(&SERVERS.iter().zip(&self.urls).map(backend).collect::<Vec<_>>())
    }
}

/// A caller of either era.
enum Front {
    Modern(Caller),
    Session(Session),
}

impl Front {
    /// Somebody of each era.
    async fn both(gw: &Gateway) -> [Self; 2] {
        let caller = gw.caller("acme", "alice", "");
        let session = Session::open(&caller, "2025-11-25").await;
        [Self::Modern(caller), Self::Session(session)]
    }

    async fn ask(&self, method: &str, params: Value) -> Answer {
        match self {
            Self::Modern(caller) => caller.rpc(method, params).await,
            Self::Session(session) => session.rpc(method, params).await,
        }
    }

    /// A whole list.
    async fn list(&self, method: &str, member: &str, key: &str) -> Vec<String> {
        let (mut names, mut params) = (Vec::new(), json!({}));
        loop {
            let page = self.ask(method, params).await.result();
            let entries = page[member].as_array().unwrap();
            names.extend(entries.iter().map(|entry| entry[key].as_str().unwrap().to_owned()));
            match page.get("nextCursor") {
                Some(cursor) => params = json!({"cursor": cursor}),
                None => return names,
            }
        }
    }

    async fn search(&self, tool: &str) -> String {
        let params = json!({"name": tool, "arguments": {"text": "x"}});
        let result = self.ask("tools/call", params).await.result();
        result["content"][0]["text"].as_str().unwrap_or_default().to_owned()
    }
}

fn has(list: &[String], entry: &str) {
    assert!(list.iter().any(|known| known == entry), "no {entry} in {list:?}");
}

// spec: row old-H
#[tokio::test]
async fn servers_with_the_same_names_are_told_apart() {
    let three = Three::start().await;
    let gw = Gateway::start_with(&three.tenants(""), |settings| settings.limits.page_size = 7).await;
    for front in Front::both(&gw).await {
        let tools = front.list("tools/list", "tools", "name").await;
        let prompts = front.list("prompts/list", "prompts", "name").await;
        let resources = front.list("resources/list", "resources", "uri").await;
        let templates = front.list("resources/templates/list", "resourceTemplates", "uriTemplate").await;
        assert!(tools.is_sorted() && prompts.is_sorted(), "{tools:?} {prompts:?}");
        for (name, server) in SERVERS {
            has(&tools, &format!("{name}_search"));
            assert_eq!(front.search(&format!("{name}_search")).await, format!("{server} found x"));

            let prompt = format!("{name}_test_prompt_with_arguments");
            has(&prompts, &prompt);
            let arguments = json!({"arg1": "hé", "arg2": "b"});
            let got =
                front.ask("prompts/get", json!({"name": prompt, "arguments": arguments})).await.result();
            assert!(got["messages"][0]["content"]["text"].as_str().unwrap().contains("hé"), "{got}");
            let wanted = json!({
                "ref": {"type": "ref/prompt", "name": prompt},
                "argument": {"name": "arg1", "value": "te"},
            });
            let completed = front.ask("completion/complete", wanted).await.result();
            assert_eq!(completed["completion"]["values"], json!(["tea", "test", "testing"]), "{name}");

            let [listed, template] =
                ["static-text", "template/{id}/data"].map(|own| format!("{name}+test://{own}"));
            has(&resources, &listed);
            has(&templates, &template);
            for (uri, says) in [(listed, "static text"), (format!("{name}+test://template/n7/data"), "n7")] {
                let read = front.ask("resources/read", json!({"uri": uri})).await.result();
                assert_eq!(read["contents"][0]["uri"], uri, "{read}");
                assert!(read["contents"][0]["text"].as_str().unwrap().contains(says), "{read}");
            }
        }
    }
    gw.stop().await;
}

// spec: row old-H
#[tokio::test]
async fn without_prefixes_the_first_owns_a_name_and_nothing_shadows_it() {
    let three = Three::start().await;
    let gw = Gateway::start(&three.tenants(", prefix: \"\"")).await;
    for front in Front::both(&gw).await {
        let tools = front.list("tools/list", "tools", "name").await;
        let count = |name: &str| tools.iter().filter(|known| *known == name).count();
        assert_eq!([count("search"), count("echo"), count("offer_subtract")], [1, 1, 1], "{tools:?}");
        assert_eq!(front.search("search").await, "everything found x");
        let prompts = front.list("prompts/list", "prompts", "name").await;
        assert_eq!(prompts.iter().filter(|name| *name == "test_prompt_with_arguments").count(), 1);
        let read = front.ask("resources/read", json!({"uri": "test://static-text"})).await.result();
        assert_eq!(read["contents"][0]["uri"], "test://static-text");
    }
    gw.stop().await;
}
