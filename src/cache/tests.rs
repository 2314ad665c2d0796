//! What is kept, for whom and for how long; who asks and who waits; bounds.

use std::future::ready;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use tokio::task::yield_now;
use tokio::time::Instant;

use super::Cache;
use super::Found;
use super::Lead;
use super::Question;
use crate::model::limits::Limits;
use crate::model::name::BackendName;
use crate::model::name::TenantName;
use crate::protocol::json::Json;
use crate::telemetry::metrics::Metrics;

fn cache(change: impl FnOnce(&mut Limits)) -> (Arc<Cache>, Arc<Metrics>) {
    let mut limits = Limits::default();
    change(&mut limits);
    let metrics = Arc::new(Metrics::new());
    (Cache::new(&limits, metrics.clone()), metrics)
}

fn asks(tenant: &str, backend: &str, uri: &str, principal: u8) -> Question {
    Question {
        tenant: TenantName::new(tenant).unwrap(),
        backend: BackendName::new(backend).unwrap(),
        uri: uri.into(),
        variant: [0; 32],
        principal: [principal; 32],
        plain: true,
        private: false,
    }
}

fn result(text: &str, ttl: u64, scope: &str) -> Json {
    let text = format!(r#"{{"contents":"{text}","ttlMs":{ttl},"cacheScope":"{scope}"}}"#);
    Json::parse(Bytes::from(text), 8).unwrap()
}

/// What is kept; `None` if it has to be asked for, which the asker then does not.
async fn kept(cache: &Arc<Cache>, question: &Question) -> Option<String> {
    match cache.look(question.clone()).await {
        Found::Kept(kept) => Some(kept.result.member("contents").unwrap().string().unwrap()),
        Found::Ask(_) => None,
    }
}

async fn lead(cache: &Arc<Cache>, question: &Question) -> Lead {
    match cache.look(question.clone()).await {
        Found::Ask(lead) => lead,
        Found::Kept(kept) => panic!("{kept:?}"),
    }
}

async fn fill(cache: &Arc<Cache>, question: &Question, result: &Json) {
    lead(cache, question).await.end(Some(result));
}

#[tokio::test]
async fn what_is_kept_is_for_its_own_question_and_time() {
    let (cache, metrics) = cache(|limits| limits.cache_time = Duration::from_secs(60));
    let (public, private) = (asks("acme", "crm", "x://1", 1), asks("acme", "crm", "x://2", 1));
    fill(&cache, &public, &result("a", 10_000, "public")).await;
    fill(&cache, &private, &result("b", 3_600_000, "private")).await;
    fill(&cache, &asks("acme", "crm", "x://3", 1), &result("c", 0, "public")).await;
    let Found::Kept(found) = cache.look(public.clone()).await else { panic!("it is kept") };
    assert!(found.left_ms() < 10_000 && found.left_ms() > 5_000 && found.public, "{found:?}");
    for (question, expected) in [
        (asks("acme", "crm", "x://1", 2), Some("a")),
        (private.clone(), Some("b")),
        (asks("acme", "crm", "x://2", 2), None),
        (asks("globex", "crm", "x://1", 1), None),
        (asks("acme", "wiki", "x://1", 1), None),
        (asks("acme", "crm", "x://3", 1), None),
        (Question { variant: [1; 32], ..public.clone() }, None),
        // Who wants progress gets what is kept, too.
        (Question { plain: false, ..public.clone() }, Some("a")),
    ] {
        assert_eq!(
            kept(&cache, &question).await.as_deref(),
            expected,
            "{} {}",
            question.backend,
            question.uri
        );
    }
    // The backend's time, and where that is longer than any may be, ours.
    let now = Instant::now();
    for (question, shared, good_for) in [(&public, true, 10), (&private, false, 60)] {
        let mut rooms = cache.rooms();
        let mut at = |seconds: u64| {
            rooms.get(&question.tenant, &question.key(shared), now + Duration::from_secs(seconds)).is_some()
        };
        assert!(at(good_for - 5), "{}", question.uri);
        assert!(!at(good_for), "{}", question.uri);
        assert!(!at(0), "what is over is gone");
        drop(rooms);
    }
    assert_eq!(cache.rooms().bytes(), 0);
    let encoded = metrics.encode();
    assert!(encoded.contains(r#"fondaco_cache_total{result="hit"} 4"#), "{encoded}");
}

#[tokio::test]
async fn who_asks_with_progress_keeps_nothing_for_others() {
    let (cache, _) = cache(|_| {});
    let question = asks("acme", "crm", "x://1", 1);
    fill(&cache, &Question { plain: false, ..question.clone() }, &result("a", 10_000, "public")).await;
    assert_eq!(kept(&cache, &question).await, None);
}

#[tokio::test]
async fn a_purge_takes_what_is_kept_and_what_is_being_asked() {
    let (cache, _) = cache(|_| {});
    let [one, two, other] =
        [("crm", "x://1"), ("crm", "x://2"), ("wiki", "x://1")].map(|(b, u)| asks("acme", b, u, 1));
    let all = [&one, &two, &other];
    let (acme, crm) = (one.tenant.clone(), one.backend.clone());
    for (uri, left) in
        [(Some("x://1"), [false, true, true]), (None, [false, false, true]), (Some("x"), [true; 3])]
    {
        cache.purge(&acme, &crm, None);
        for question in all {
            if let Found::Ask(lead) = cache.look(question.clone()).await {
                lead.end(Some(&result("a", 10_000, "private")));
            }
        }
        cache.purge(&acme, &crm, uri);
        for (question, left) in all.into_iter().zip(left) {
            assert_eq!(kept(&cache, question).await.is_some(), left, "{uri:?}: {}", question.uri);
        }
    }
    cache.purge(&acme, &crm, None);
    // Asked before the change, answered after it.
    let (late, unharmed) = (lead(&cache, &one).await, lead(&cache, &two).await);
    cache.purge(&acme, &crm, Some("x://1"));
    late.end(Some(&result("old", 10_000, "private")));
    unharmed.end(Some(&result("a", 10_000, "private")));
    assert_eq!(kept(&cache, &one).await, None);
    assert_eq!(kept(&cache, &two).await.as_deref(), Some("a"));
}

#[tokio::test]
async fn a_purge_of_a_uri_takes_what_is_below_it() {
    let (cache, _) = cache(|_| {});
    let uris = ["x://a", "x://a!b", "x://a/", "x://a/b", "x://a/b/c", "x://ab", "x://a?q", "x://"];
    let all = uris.map(|uri| asks("acme", "crm", uri, 1));
    let other = asks("acme", "wiki", "x://a/b", 1);
    for (uri, gone) in [
        ("x://a", vec!["x://a", "x://a/", "x://a/b", "x://a/b/c"]),
        ("x://a/", vec!["x://a/", "x://a/b", "x://a/b/c"]),
        ("x://a/b", vec!["x://a/b", "x://a/b/c"]),
    ] {
        cache.purge(&other.tenant, &other.backend, None);
        for question in all.iter().chain([&other]) {
            if let Found::Ask(lead) = cache.look(question.clone()).await {
                lead.end(Some(&result("a", 10_000, "private")));
            }
        }
        let begun = asks("acme", "crm", "x://a/b/new", 1);
        let late = lead(&cache, &begun).await;
        cache.purge(&all[0].tenant, &all[0].backend, Some(uri));
        late.end(Some(&result("old", 10_000, "private")));
        for question in &all {
            let expected = !gone.contains(&&*question.uri);
            assert_eq!(kept(&cache, question).await.is_some(), expected, "{uri}: {}", question.uri);
        }
        assert_eq!(kept(&cache, &begun).await, None, "{uri}: asked before, answered after");
        assert!(kept(&cache, &other).await.is_some(), "another backend's");
    }
}

/// What becomes of a hundred who ask together while the first of them asks the backend: how many
/// others asked, and how many were given what the first one got.
async fn together(cache: &Arc<Cache>, principals: u8, end: impl FnOnce(Lead)) -> (usize, usize) {
    let first = lead(cache, &asks("acme", "crm", "x://1", 0)).await;
    let waiting =
        (0..100u8).map(async |n| match cache.look(asks("acme", "crm", "x://1", n % principals)).await {
            Found::Kept(_) => true,
            Found::Ask(lead) => {
                yield_now().await;
                lead.end(Some(&result("again", 10_000, "private")));
                false
            }
        });
    let mut waiting = pin!(join_all(waiting));
    // Polled once: all of them are waiting now.
    tokio::select! {
        biased;
        given = &mut waiting => panic!("nobody waits: {given:?}"),
        () = ready(()) => {}
    }
    end(first);
    let given = waiting.await.into_iter().filter(|given| *given).count();
    (100 - given, given)
}

#[tokio::test]
async fn one_asks_for_all_as_far_as_the_answer_is_everybodys() {
    let fresh = || cache(|_| {}).0;
    let public = |lead: Lead| lead.end(Some(&result("a", 10_000, "public")));
    assert_eq!(together(&fresh(), 10, public).await, (0, 100));
    let private = |lead: Lead| lead.end(Some(&result("a", 10_000, "private")));
    assert_eq!(together(&fresh(), 1, private).await, (0, 100));
    // The first principal's ten share its answer; the others ask for themselves.
    let (asked, given) = together(&fresh(), 10, private).await;
    assert_eq!((asked, given), (90, 10));
    // What may not be kept is nobody else's, and who waited asks without waiting again.
    let uncacheable = |lead: Lead| lead.end(Some(&result("a", 0, "public")));
    assert_eq!(together(&fresh(), 1, uncacheable).await, (100, 0));
    let failing = |lead: Lead| lead.end(None);
    assert_eq!(together(&fresh(), 1, failing).await, (100, 0));
    // Its client leaves: one of those who wait is the next, for all of them.
    assert_eq!(together(&fresh(), 1, drop).await, (1, 99));
}

#[tokio::test]
async fn nobody_waits_for_what_was_never_shared() {
    let (cache, _) = cache(|_| {});
    fill(&cache, &asks("acme", "crm", "x://1", 1), &result("a", 0, "private")).await;
    let first = lead(&cache, &asks("acme", "crm", "x://1", 1)).await;
    // Would it wait, nothing would ever wake it.
    let second = lead(&cache, &asks("acme", "crm", "x://1", 1)).await;
    second.end(Some(&result("a", 10_000, "private")));
    drop(first);
    // Private results are waited for by their principal alone.
    let first = lead(&cache, &asks("acme", "crm", "x://2", 1)).await;
    let _other = lead(&cache, &asks("acme", "crm", "x://2", 2)).await;
    drop(first);
}

#[tokio::test]
async fn nobody_waits_for_ever() {
    let (mut cache, _) = cache(|_| {});
    let wait = Duration::from_millis(50);
    Arc::get_mut(&mut cache).unwrap().wait = wait;
    let question = asks("acme", "crm", "x://1", 1);
    let _silent = lead(&cache, &question).await;
    let began = Instant::now();
    let _second = lead(&cache, &question).await;
    assert!(began.elapsed() >= wait);
}

#[tokio::test]
async fn tenants_have_their_bounds_and_the_largest_makes_room() {
    let (cache, metrics) = cache(|limits| {
        limits.tenant_cache_bytes = 10_000;
        limits.cache_bytes = 15_000;
    });
    let long = "x".repeat(1_400);
    let page = |n: usize| format!("x://{n}");
    let put = async |tenant: &str, n: usize| {
        fill(&cache, &asks(tenant, "crm", &page(n), 1), &result(&long, 10_000, "private")).await;
    };
    let has = async |tenant: &str| {
        let mut has = Vec::new();
        for n in 0..10 {
            if kept(&cache, &asks(tenant, "crm", &page(n), 1)).await.is_some() {
                has.push(n);
            }
        }
        has
    };
    for n in 0..5 {
        put("acme", n).await;
    }
    // The first was asked for last, so that it stays.
    assert!(kept(&cache, &asks("acme", "crm", &page(0), 1)).await.is_some());
    put("acme", 5).await;
    assert_eq!(has("acme").await, [0, 2, 3, 4, 5]);
    put("globex", 0).await;
    put("globex", 1).await;
    put("globex", 2).await;
    assert_eq!(has("globex").await, [0, 1, 2], "who has least loses nothing");
    assert_eq!(has("acme").await.len(), 4);
    // Larger than all that the tenant may have.
    let huge = result(&"x".repeat(10_000), 10_000, "private");
    fill(&cache, &asks("globex", "crm", "huge", 1), &huge).await;
    assert_eq!(kept(&cache, &asks("globex", "crm", "huge", 1)).await, None);
    assert_eq!(has("globex").await, [0, 1, 2]);
    assert!(metrics.encode().contains("fondaco_cache_evictions_total 2"), "{}", metrics.encode());
    assert!(cache.rooms().bytes() <= 15_000);
    for (tenant, backend) in [("acme", "crm"), ("globex", "crm")] {
        cache.purge(&TenantName::new(tenant).unwrap(), &BackendName::new(backend).unwrap(), None);
    }
    assert_eq!(cache.rooms().bytes(), 0);
}

#[tokio::test]
async fn a_cache_without_room_keeps_nothing_and_holds_nobody_up() {
    let (cache, _) = cache(|limits| limits.tenant_cache_bytes = 0);
    let question = asks("acme", "crm", "x://1", 1);
    let first = lead(&cache, &question).await;
    fill(&cache, &question, &result("a", 10_000, "public")).await;
    first.end(Some(&result("a", 10_000, "public")));
    assert_eq!(kept(&cache, &question).await, None);
}
