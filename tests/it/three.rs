//! One tenant over three servers that have nothing in common but their names: on the TypeScript, the
//! Python and the Rust SDK, of both eras, with the same tools, prompts and resources.

use std::time::Duration;

use serde_json::Value;
use serde_json::json;

use crate::harness::gateway::Caller;
use crate::harness::gateway::Gateway;
use crate::harness::gateway::acme_and_other;
use crate::harness::gateway::text;
use crate::harness::process::Peers;
use crate::harness::process::Process;
use crate::harness::session::Session;
use crate::harness::wire::Answer;
use crate::harness::wire::Connection;
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

/// How long after a change nothing more may come of it.
const AFTERMATH: Duration = Duration::from_secs(2);

/// What somebody hears of changes, in either era.
struct Ear {
    open: Connection,
    heard: Vec<Value>,
}

impl Ear {
    /// A listener to the tools and these resources, from now on.
    async fn of(front: &Front, uris: &[String]) -> Self {
        match front {
            Front::Modern(caller) => {
                let filter = json!({"toolsListChanged": true, "resourceSubscriptions": uris});
                let mut open = Connection::open(caller.addr).await;
                let body = text("1", "subscriptions/listen", &format!(r#","notifications":{filter}"#), "");
                open.post(&caller.path, &caller.headers("subscriptions/listen", None), &body).await;
                assert_eq!(open.head().await.status, 200);
                let mut ear = Self { open, heard: Vec::new() };
                let first = ear.next().await;
                assert_eq!(first["params"]["notifications"]["resourceSubscriptions"], json!(uris), "{first}");
                ear
            }
            Front::Session(session) => {
                let mut open = session.listen().await;
                assert_eq!(open.head().await.status, 200);
                for uri in uris {
                    session.rpc("resources/subscribe", json!({"uri": uri})).await.result();
                }
                Self { open, heard: Vec::new() }
            }
        }
    }

    /// The next message.
    async fn next(&mut self) -> Value {
        loop {
            let event = self.open.event().await.expect("the stream goes on");
            if let Some(data) = event.lines().find_map(|line| line.strip_prefix("data: ")) {
                return serde_json::from_str(data).unwrap();
            }
        }
    }

    /// Listens until something like this comes.
    async fn hears(&mut self, method: &str, uri: Option<&str>) {
        loop {
            let message = self.next().await;
            let found = message["method"] == method && uri.is_none_or(|uri| message["params"]["uri"] == uri);
            self.heard.push(message);
            if found {
                return;
            }
        }
    }

    /// How often this method was heard since the last time, once nothing more comes.
    async fn count(&mut self, method: &str) -> usize {
        while let Ok(message) = tokio::time::timeout(AFTERMATH, self.next()).await {
            self.heard.push(message);
        }
        self.heard.drain(..).filter(|message| message["method"] == method).count()
    }
}

const TOOLS_CHANGED: &str = "notifications/tools/list_changed";
const UPDATED: &str = "notifications/resources/updated";

// spec: rows RU-3, old-H
#[tokio::test]
async fn each_servers_changes_are_told_at_least_once_and_at_most_twice() {
    let three = Three::start().await;
    let gw = Gateway::start(&three.tenants("")).await;
    let uris = SERVERS.map(|(name, _)| format!("{name}+test://watched-resource"));
    let fronts = Front::both(&gw).await;
    let [mut modern, mut session] = [Ear::of(&fronts[0], &uris).await, Ear::of(&fronts[1], &uris).await];
    for ((name, _), uri) in SERVERS.iter().zip(&uris) {
        let trigger = async |kind: &str| {
            let tool = format!("{name}_test_trigger_{kind}_change");
            fronts[0].ask("tools/call", json!({"name": tool, "arguments": {}})).await.result();
        };
        for ear in [&mut modern, &mut session] {
            ear.count("").await;
        }
        trigger("tool").await;
        for ear in [&mut modern, &mut session] {
            ear.hears(TOOLS_CHANGED, None).await;
            let count = ear.count(TOOLS_CHANGED).await;
            assert!((1..=2).contains(&count), "{name}: {count} times");
        }
        trigger("resource").await;
        for ear in [&mut modern, &mut session] {
            ear.hears(UPDATED, Some(uri)).await;
            assert_eq!(ear.count(TOOLS_CHANGED).await, 0, "{name}");
        }
    }
    // Who has unsubscribed is told no more.
    let [Front::Modern(_), Front::Session(subscriber)] = &fronts else { unreachable!() };
    for uri in &uris {
        subscriber.rpc("resources/unsubscribe", json!({"uri": uri})).await.result();
    }
    for (name, _) in SERVERS {
        let tool = format!("{name}_test_trigger_resource_change");
        fronts[0].ask("tools/call", json!({"name": tool, "arguments": {}})).await.result();
    }
    assert_eq!(session.count(UPDATED).await, 0);
    assert!(modern.count(UPDATED).await >= 3, "the other still is");
    drop((modern, session));
    gw.stop().await;
}
