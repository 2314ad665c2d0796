//! The admin listener answers operators, and nobody who came by a rebound name.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering;

use axum::body::Body;
use http::Request;
use http_body_util::BodyExt;
use tower::ServiceExt;

use super::Admin;
use super::api::Api;
use super::router;
use crate::config::Settings;
use crate::egress::rules::Rules;
use crate::seal::KeyRing;
use crate::telemetry::metrics::Metrics;
use crate::tenant::source::Sources;

fn admin(ready: bool) -> Admin {
    Admin {
        metrics: Arc::new(Metrics::new()),
        ready: Arc::new(AtomicBool::new(ready)),
        authority: Some("admin.internal:8081".into()),
        api: Arc::new(Api {
            store: None,
            sources: Sources::of(&Settings::dev(([127, 0, 0, 1], 8080).into(), "data".into())),
            rules: Rules::default(),
            keys: Arc::new(KeyRing::new(vec![[7; 32]]).unwrap()),
            limits: Arc::default(),
        }),
    }
}

async fn ask(admin: &Admin, method: &str, path: &str, host: &str) -> (u16, String) {
    let request = Request::builder().method(method).uri(path).header("host", host);
    let answer = router(admin.clone()).oneshot(request.body(Body::empty()).unwrap()).await.unwrap();
    let status = answer.status().as_u16();
    let body = answer.into_body().collect().await.unwrap().to_bytes();
    (status, String::from_utf8(body.to_vec()).unwrap())
}

#[tokio::test]
async fn health_is_told() {
    let admin = admin(false);
    assert_eq!(ask(&admin, "GET", "/livez", "localhost").await, (200, "live\n".into()));
    assert_eq!(ask(&admin, "GET", "/readyz", "localhost").await, (503, "unready\n".into()));
    admin.ready.store(true, Ordering::Release);
    assert_eq!(ask(&admin, "GET", "/readyz", "localhost").await, (200, "ready\n".into()));
    let (status, metrics) = ask(&admin, "GET", "/metrics", "127.0.0.1:8081").await;
    assert_eq!(status, 200);
    assert!(metrics.contains("fondaco_connections_open") && metrics.ends_with("# EOF\n"), "{metrics}");
}

#[tokio::test]
async fn only_local_names_and_get_are_taken() {
    let admin = admin(true);
    for host in ["localhost:8081", "127.0.0.1", "[::1]:8081", "[::1]", "admin.internal:8081"] {
        assert_eq!(ask(&admin, "HEAD", "/livez", host).await.0, 200, "{host}");
    }
    for host in
        ["evil.example", "admin.internal", "localhost.", "127.0.0.1.evil.example", "[::2]", "localhost:x"]
    {
        assert_eq!(ask(&admin, "GET", "/livez", host).await.0, 403, "{host}");
    }
    assert_eq!(ask(&admin, "GET", "/metrics", "").await.0, 403);
    for method in ["POST", "PUT", "DELETE", "OPTIONS"] {
        assert_eq!(ask(&admin, method, "/livez", "localhost").await.0, 405, "{method}");
    }
    assert_eq!(ask(&admin, "GET", "/nothing", "localhost").await.0, 404);
    assert_eq!(ask(&admin, "GET", "/nothing", "evil.example").await.0, 403);
}
