//! What is taken, what is refused, and that what is stored loads.

use std::collections::BTreeSet;

use serde_json::Value;
use serde_json::json;

use crate::api::Deployment;
use crate::api::refusal;
use crate::harness::serving::Serving;
use crate::harness::wire;

/// ADM-05, ADM-06, ADM-07, ADM-13.
#[tokio::test(flavor = "multi_thread")]
async fn a_document_that_would_not_load_is_refused() {
    let deployment = Deployment::sqlite().await;
    let root = &deployment.root;
    root.make("/tenants", &json!({"name": "acme", "document": {"hosts": ["acme.example"]}})).await;
    let refused = async |path: &str, body: Value| {
        let (status, kind, paths) = refusal(&root.post(path, &body).await);
        assert_eq!((status, &*kind), (422, "invalid"), "{body}");
        paths
    };
    // Every problem at once.
    let odd = json!({"hosts": ["Odd.example"], "legacy": 1, "extra": 1, "allowed_origins": ["*"]});
    let paths = refused("/tenants", json!({"name": "a/b", "document": odd})).await;
    assert_eq!(paths, ["name"]);
    let paths = refused("/tenants", json!({"name": "beta", "document": odd})).await;
    let wanted = ["document.extra", "document.hosts[0]", "document.allowed_origins[0]", "document.legacy"];
    assert_eq!(paths.iter().map(String::as_str).collect::<BTreeSet<_>>(), BTreeSet::from(wanted));
    for (key, value) in [("backends", json!({})), ("secrets", json!({})), ("backends", json!({"x": {}}))] {
        let paths = refused("/tenants", json!({"name": "beta", "document": {key: value}})).await;
        assert_eq!(paths, [format!("document.{key}")]);
    }
    let unshared = json!({"name": "beta", "document": {"issuers": [{"shared": "https://login.example"}]}});
    assert_eq!(refused("/tenants", unshared).await, ["document.issuers[0].shared"]);
    let internal = json!({"name": "beta", "document": {"issuers": [{"issuer": "https://169.254.169.254"}]}});
    assert_eq!(refused("/tenants", internal).await, ["document.issuers[0].issuer"]);
    for name in ["", "..", "a__b", "A", &"a".repeat(300), "a\u{0}"] {
        let body = json!({"name": name, "document": {"kind": "demo"}});
        assert_eq!(refused("/tenants/acme/backends", body).await, ["name"], "{name}");
        if !["a__b", "A", ".."].contains(&name) {
            let body = json!({"name": name, "value": "v"});
            assert_eq!(refused("/tenants/acme/secrets", body).await, ["name"], "{name}");
        }
    }
    for url in [
        "http://169.254.169.254/latest",
        "https://[::ffff:169.254.169.254]/",
        "http://0x7f000001/",
        "http://2130706433/",
        "http://127.1/",
        "https://localhost./",
        "https://[fd00::1]/",
        "https://100.64.0.1/",
        "https://user:hidden@crm.example/",
        "https://crm.example/#x",
        "https://crm.example:0/",
        "https://crm.example/\nx",
        "//crm.example",
        "\\\\crm.example",
        "ftp://crm.example",
    ] {
        let body = json!({"name": "crm", "document": {"kind": "mcp", "url": url}});
        let answer = root.post("/tenants/acme/backends", &body).await;
        assert_eq!(refusal(&answer), (422, "invalid".into(), vec!["document.url".into()]), "{url}");
        assert!(!answer.text().contains("hidden"), "{}", answer.text());
    }
    for secret in ["**", "../x", "other"] {
        let credential = json!({"kind": "bearer", "secret": secret});
        let document = json!({"kind": "mcp", "url": "https://crm.example/", "credential": credential});
        let paths = refused("/tenants/acme/backends", json!({"name": "crm", "document": document})).await;
        assert_eq!(paths, ["document.credential.secret"], "{secret}");
    }
    // Nothing of all that is there, and what is there is served.
    assert_eq!(root.get("/tenants").await.message()["items"].as_array().unwrap().len(), 1);
    assert_eq!(root.get("/tenants/acme/backends").await.message(), json!({"items": []}));
    let metrics = wire::request(root.admin, "GET", "/metrics", &[], b"").await.text();
    assert!(metrics.contains("fondaco_tenants_refused 0"), "{metrics}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_others_need_stays() {
    let deployment = Deployment::sqlite().await;
    let root = &deployment.root;
    let shared = json!({"document": {"issuer": "https://login.example", "tenant_claim": "org"}});
    root.make("/issuers", &shared).await;
    let document = json!({"issuers": [{"shared": "https://login.example"}], "hosts": ["acme.example"]});
    root.make("/tenants", &json!({"name": "acme", "document": document})).await;
    // A backend is judged in its tenant, whatever issuers that has.
    root.make("/tenants/acme/backends", &json!({"name": "good", "document": {"kind": "demo"}})).await;
    let odd = json!({"name": "odd", "document": {"kind": "demo", "url": "x", "more": 1}});
    let odd = refusal(&root.post("/tenants/acme/backends", &odd).await);
    assert_eq!(odd, (422, "invalid".into(), vec!["document.more".into(), "document.url".into()]));
    let path = "/issuers/https%3A%2F%2Flogin.example";
    let named = root.delete(path, "*").await;
    assert_eq!(refusal(&named), (409, "in-use".into(), vec!["tenants/acme".into()]));
    // An issuer that is a tenant's own cannot become everybody's behind its back.
    let own = json!({"issuers": [{"issuer": "https://own.example"}]});
    root.make("/tenants", &json!({"name": "beta", "document": own})).await;
    let taken = json!({"document": {"issuer": "https://own.example", "tenant_claim": "org"}});
    assert_eq!(
        refusal(&root.post("/issuers", &taken).await),
        (409, "in-use".into(), vec!["tenants/beta".into()])
    );
    let other = root.put(path, "*", &taken).await;
    assert_eq!(refusal(&other).0, 422, "{}", other.text());
    // CFG-05: a host is one tenant's.
    let host = json!({"name": "gamma", "document": {"hosts": ["acme.example"]}});
    assert_eq!(refusal(&root.post("/tenants", &host).await), (409, "claimed".into(), vec![]));
    assert_eq!(root.delete("/tenants/acme", "*").await.status, 204);
    assert_eq!(root.post("/tenants", &host).await.status, 201);
    assert_eq!(root.delete(path, "*").await.status, 204);
    assert_eq!(root.get(path).await.status, 404);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_state_is_replaced_by_who_knows_it() {
    let deployment = Deployment::sqlite().await;
    let root = &deployment.root;
    let first = root.make("/tenants", &json!({"name": "acme", "document": {"legacy": "on"}})).await;
    let got = root.get("/tenants/acme").await;
    assert_eq!(got.header("etag"), Some(&*first));
    assert_eq!(got.message()["document"], json!({"legacy": "on"}));
    let put = root.put("/tenants/acme", &first, &json!({"document": {"legacy": "off"}})).await;
    let second = put.header("etag").unwrap().to_owned();
    assert!(put.status == 200 && second != first);
    for stale in [&*first, "W/\"2\"", "\"x\"", "2"] {
        let late = root.put("/tenants/acme", stale, &json!({"document": {}})).await;
        assert_eq!(refusal(&late), (412, "stale".into(), vec![]), "{stale}");
        assert_eq!(refusal(&root.delete("/tenants/acme", stale).await).0, 412, "{stale}");
    }
    let gone = root.put("/tenants/beta", "*", &json!({"document": {}})).await;
    assert_eq!(refusal(&gone).0, 404);
    assert_eq!(root.delete("/tenants/acme", &second).await.status, 204);
    let again = root.make("/tenants", &json!({"name": "acme", "document": {}})).await;
    assert!(again != first && again != second);
}

/// ADM-10.
#[tokio::test(flavor = "multi_thread")]
async fn the_same_request_twice_is_answered_once() {
    let deployment = Deployment::sqlite().await;
    let root = &deployment.root;
    let body = json!({"name": "acme", "document": {}});
    let key = [("idempotency-key", "one")];
    let first = root.ask("POST", "/tenants", &key, Some(&body)).await;
    let again = root.ask("POST", "/tenants", &key, Some(&body)).await;
    assert_eq!(first.status, 201);
    assert_eq!((again.status, &again.body), (201, &first.body));
    for name in ["etag", "location"] {
        assert_eq!(again.header(name), first.header(name), "{name}");
    }
    let other = json!({"name": "acme", "document": {"legacy": "off"}});
    let reused = root.ask("POST", "/tenants", &key, Some(&other)).await;
    assert_eq!(refusal(&reused), (422, "idempotency-key".into(), vec![]));
    let bare = root.post("/tenants", &body).await;
    assert_eq!(refusal(&bare), (409, "exists".into(), vec![]));
    let demo = json!({"name": "b", "document": {"kind": "demo"}});
    let one = root.ask("POST", "/tenants/acme/backends", &key, Some(&demo)).await;
    assert_eq!(refusal(&one).0, 422, "the key is the actor's in the tenant");
    let two = [("idempotency-key", "two")];
    let one = root.ask("POST", "/tenants/acme/backends", &two, Some(&demo)).await;
    let replay = root.ask("POST", "/tenants/acme/backends", &two, Some(&demo)).await;
    assert_eq!((one.status, replay.status, &replay.body), (201, 201, &one.body));
    let operator = json!({"name": "n", "role": "auditor"});
    let never = root.ask("POST", "/operators", &key, Some(&operator)).await;
    assert_eq!(refusal(&never), (422, "invalid".into(), vec!["Idempotency-Key".into()]));
    assert_eq!(root.get("/tenants/acme/audit").await.message()["items"].as_array().unwrap().len(), 2);
}

/// ADM-14.
#[tokio::test(flavor = "multi_thread")]
async fn lists_come_in_pages() {
    let deployment = Deployment::sqlite().await;
    let root = &deployment.root;
    for name in ["e", "d", "c", "b", "a"] {
        root.make("/tenants", &json!({"name": name, "document": {}})).await;
        root.make("/tenants/e/backends", &json!({"name": name, "document": {"kind": "demo", "prefix": ""}}))
            .await;
        root.make("/tenants/e/secrets", &json!({"name": name, "value": "v"})).await;
        let shared = json!({"issuer": format!("https://{name}.example"), "tenant_claim": "org"});
        root.make("/issuers", &json!({"document": shared})).await;
    }
    let mut cursors = Vec::new();
    for (path, key, whole) in [
        ("/tenants", "name", json!(["a", "b", "c", "d", "e"])),
        ("/tenants/e/backends", "name", json!(["e", "d", "c", "b", "a"])),
        ("/tenants/e/secrets", "name", json!(["a", "b", "c", "d", "e"])),
        ("/tenants/e/audit", "number", json!([1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11])),
        ("/audit", "number", json!([1, 2, 3, 4, 5, 6])),
        ("/operators", "name", json!(["root"])),
    ] {
        let (mut found, mut next) = (Vec::new(), String::new());
        loop {
            let page = root.get(&format!("{path}?limit=2{next}")).await;
            assert_eq!(page.status, 200, "{path}: {}", page.text());
            let page = page.message();
            let items = page["items"].as_array().unwrap();
            assert!(items.len() <= 2);
            found.extend(items.iter().map(|item| item[key].clone()));
            let Some(cursor) = page["next"].as_str() else { break };
            next = format!("&cursor={cursor}");
            cursors.push((path, cursor.to_owned()));
        }
        assert_eq!(Value::from(found), whole, "{path}");
    }
    for path in ["/tenants", "/tenants/e/backends", "/tenants/a/backends", "/issuers", "/audit"] {
        for (_, cursor) in cursors.iter().filter(|(own, _)| *own != path) {
            let answer = root.get(&format!("{path}?cursor={cursor}")).await;
            assert_eq!(refusal(&answer), (422, "invalid".into(), vec!["cursor".into()]), "{path}");
        }
    }
    for query in
        ["limit=0", "limit=-1", "limit=501", "limit=1000000000", "limit=abc", "limit=", "cursor=", "x=1"]
    {
        let answer = root.get(&format!("/tenants?{query}")).await;
        let name = query.split('=').next().unwrap().to_owned();
        assert_eq!(refusal(&answer), (422, "invalid".into(), vec![name]), "{query}");
    }
    assert_eq!(refusal(&root.get("/tenants/e?limit=1").await).0, 422);
    assert_eq!(root.get("/tenants?limit=500").await.status, 200);
    for path in
        ["/tenants/x/backends", "/tenants/x/secrets", "/tenants/x/audit", "/tenants/%00", "/issuers/%00"]
    {
        assert_eq!(refusal(&root.get(path).await).0, 404, "{path}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_is_json_of_a_size() {
    let deployment = Deployment::sqlite().await;
    let root = &deployment.root;
    let headers = |length: Option<usize>| {
        let mut all = vec![
            ("authorization".to_owned(), format!("Bearer {}", root.key)),
            ("content-type".to_owned(), "application/json".to_owned()),
        ];
        all.extend(length.map(|length| ("content-length".to_owned(), length.to_string())));
        all
    };
    let deep = format!("{{\"name\":\"a\",\"document\":{}{}}}", "[".repeat(100), "]".repeat(100));
    for (body, status) in [
        ("", 400),
        ("{", 400),
        ("{\"name\":\"a\",\"name\":\"b\",\"document\":{}}", 400),
        ("{\"name\":\"a\",\"document\":{\"hosts\":[],\"hosts\":[]}}", 400),
        ("{\"name\":\"\\ud800\",\"document\":{}}", 400),
        (&deep, 400),
        ("[]", 422),
        ("null", 422),
        ("{\"name\":1,\"document\":[]}", 422),
    ] {
        let answer =
            wire::request(root.admin, "POST", "/api/v1/tenants", &headers(None), body.as_bytes()).await;
        assert_eq!(refusal(&answer).0, status, "{body}: {}", answer.text());
    }
    let long = wire::request(root.admin, "POST", "/api/v1/tenants", &headers(Some(2 << 20)), b"{").await;
    assert_eq!(refusal(&long), (413, "too-long".into(), vec![]));
    let sent = vec![b' '; (1 << 20) + 1];
    let long = wire::request(root.admin, "POST", "/api/v1/tenants", &headers(None), &sent).await;
    assert_eq!(refusal(&long), (413, "too-long".into(), vec![]));
    let head = format!(
        "POST /api/v1/tenants HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\n\
         Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n{:x}\r\n",
        root.admin,
        root.key,
        sent.len(),
    );
    let long = wire::raw(root.admin, &[head.as_bytes(), &sent, b"\r\n0\r\n\r\n"].concat()).await;
    assert_eq!(refusal(&long), (413, "too-long".into(), vec![]));
}

/// ADM-15.
#[tokio::test(flavor = "multi_thread")]
async fn of_many_who_make_one_name_one_does() {
    let deployment = Deployment::sqlite().await;
    let root = &deployment.root;
    let body = json!({"name": "acme", "document": {}});
    let tries = (0..50).map(|_| root.post("/tenants", &body));
    let mut ends: Vec<_> = futures_util::future::join_all(tries).await.iter().map(|end| end.status).collect();
    ends.sort_unstable();
    assert_eq!(ends, [&[201][..], &[409; 49]].concat());
    assert_eq!(root.get("/tenants/acme/audit").await.message()["items"].as_array().unwrap().len(), 1);
    // A backend and the end of the secret that it needs: never both.
    let credential = json!({"kind": "bearer", "secret": "s"});
    let document = json!({"kind": "mcp", "url": "https://crm.example/", "credential": credential});
    for round in 0..10 {
        root.make("/tenants/acme/secrets", &json!({"name": "s", "value": "v"})).await;
        let name = format!("b{round}");
        let backend = json!({"name": name, "document": document});
        let (made, deleted) = tokio::join!(
            root.post("/tenants/acme/backends", &backend),
            root.delete("/tenants/acme/secrets/s", "*"),
        );
        assert!(
            matches!((made.status, deleted.status), (201, 409) | (422, 204)),
            "{} {}",
            made.text(),
            deleted.text()
        );
        if made.status == 201 {
            assert_eq!(root.delete(&format!("/tenants/acme/backends/{name}"), "*").await.status, 204);
            assert_eq!(root.delete("/tenants/acme/secrets/s", "*").await.status, 204);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_owns_its_tenants() {
    let serving = Serving::start("tenants: {acme: {}}", &[]).await;
    for method in ["GET", "POST", "PUT", "DELETE"] {
        let answer = wire::request(serving.admin, method, "/api/v1/tenants", &[], b"").await;
        assert_eq!(refusal(&answer), (409, "file".into(), vec![]), "{method}");
    }
}
