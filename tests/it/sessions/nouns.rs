//! Prompts, resources and completion in a session: the modern road, in the era's shape and with its code.

use serde_json::Value;
use serde_json::json;

use super::DEMO;
use super::before;
use crate::harness::gateway::Gateway;
use crate::harness::session::REVISIONS;
use crate::harness::session::Session;
use crate::harness::upstream::Behaviour;
use crate::harness::upstream::Upstream;

/// The members of a result, `_meta` included, as the session's client gets them.
fn members(result: &Value) -> Vec<&str> {
    result.as_object().unwrap().keys().map(String::as_str).collect()
}

#[tokio::test]
async fn every_list_read_get_and_completion_has_the_shape_of_the_era() {
    let gw = Gateway::start(DEMO).await;
    let alice = gw.caller("demo", "alice", "demo.use");
    let note = json!({"uri": "demo://note/1"});
    let greet = json!({"name": "greet", "arguments": {"name": "Ada"}});
    let prompt =
        json!({"ref": {"type": "ref/prompt", "name": "greet"}, "argument": {"name": "name", "value": ""}});
    for revision in REVISIONS {
        let session = Session::open(&alice, revision).await;
        for (method, params, expected) in [
            ("resources/list", json!({}), &["resources"][..]),
            ("resources/templates/list", json!({}), &["resourceTemplates"]),
            ("resources/read", note.clone(), &["contents"]),
            ("prompts/list", json!({}), &["prompts"]),
            ("prompts/get", greet.clone(), &["description", "messages"]),
            ("completion/complete", prompt.clone(), &["completion"]),
        ] {
            let result = session.rpc(method, params).await.result();
            let mut found = members(&result);
            found.sort_unstable();
            assert_eq!(found, expected, "{revision} {method}: {result}");
        }
        // The capabilities are those of all of this.
        let advertised = members(&session.opened["capabilities"]);
        for name in ["tools", "prompts", "resources", "completions", "logging"] {
            assert!(advertised.contains(&name), "{advertised:?}");
        }
    }
    gw.stop().await;
}

// Row Y-13: the error codes of the era.
#[tokio::test]
async fn a_resource_that_is_not_there_has_the_code_of_the_era() {
    let upstream = Upstream::start().await;
    for uri in ["x://old", "x://new", "x://other"] {
        upstream.resource(uri, &format!(r#"{{"uri":"{uri}","name":"n"}}"#));
    }
    let error = |text: &str| Behaviour::Error(200, text.to_owned());
    upstream.behave("x://old", error(r#"{"code":-32002,"message":"gone"}"#));
    upstream.behave("x://new", error(r#"{"code":-32602,"message":"gone","data":{"uri":"x://new"}}"#));
    upstream.behave("x://other", error(r#"{"code":-32603,"message":"broken"}"#));
    let (gw, alice) = before(&upstream, |_| ()).await;
    for revision in REVISIONS {
        let session = Session::open(&alice, revision).await;
        for (uri, code) in
            [("x://a/../b", -32002), ("x://old", -32002), ("x://new", -32002), ("x://other", -32603)]
        {
            let answer = session.rpc("resources/read", json!({"uri": uri})).await;
            assert_eq!(answer.refusal(), (200, code), "{revision} {uri}: {}", answer.text());
            if code == -32002 {
                assert_eq!(answer.message()["error"]["data"]["uri"], uri, "{}", answer.text());
            }
        }
        // A reference is a parameter, not a resource that is read.
        let reference = json!({"type": "ref/resource", "uri": "x://{absent}"});
        let params = json!({"ref": reference, "argument": {"name": "absent", "value": ""}});
        assert_eq!(session.rpc("completion/complete", params).await.refusal(), (200, -32602));
    }
    assert_eq!(alice.read("x://a/../b").await.refusal(), (200, -32602), "modern clients have one code");
    gw.stop().await;
}
