//! Slow names against quick ones, with a resolver that sleeps as the system's does.

use std::io;
use std::net::IpAddr;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::Mutex;
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http_body_util::Full;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::FAILED_TIME;
use super::LOOKUPS;
use super::Resolver;
use crate::egress::Egress;
use crate::egress::connect::Dial;
use crate::egress::error::EgressError;
use crate::egress::rules::Allow;
use crate::egress::rules::Rules;

const ADDRESS: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// How often a name was asked for, how many lookups are in flight, and the most there were.
#[derive(Default)]
struct Seen {
    asked: Vec<String>,
    flying: usize,
    most: usize,
}

/// A resolver for which names with `slow` in them take `time`, and those with `missing` have no
/// address.
fn resolver(time: Duration) -> (Arc<Resolver>, Arc<Mutex<Seen>>) {
    let seen = Arc::new(Mutex::new(Seen::default()));
    let shared = seen.clone();
    let resolver = Resolver::new(move |name| {
        {
            let mut seen = shared.lock().unwrap();
            seen.asked.push(name.to_owned());
            seen.flying += 1;
            seen.most = seen.most.max(seen.flying);
        }
        if name.contains("slow") {
            std::thread::sleep(time);
        }
        shared.lock().unwrap().flying -= 1;
        if name.contains("missing") { Err(io::ErrorKind::NotFound.into()) } else { Ok(vec![ADDRESS]) }
    });
    (resolver, seen)
}

#[tokio::test]
async fn a_slow_name_takes_one_lookup_and_nothing_from_other_names() {
    let (resolver, seen) = resolver(Duration::from_secs(2));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let rules = Rules { allow: vec![Allow::Net("127.0.0.1".parse::<IpAddr>().unwrap().into())] };
    let patience = Duration::from_millis(300);
    let shared = Egress::over(Dial::new(rules, resolver.clone(), patience, &[]).unwrap());
    let get = |host: &str| {
        let url = format!("http://{host}:{port}/");
        Request::get(url).body(Full::<Bytes>::default()).unwrap()
    };
    let mut callers = JoinSet::new();
    for n in 0..300 {
        // Each backend has connections of its own; names are looked up for all of them.
        let (egress, request) = (shared.apart(), get("slow.example"));
        callers.spawn(async move {
            let other = request.clone();
            let first = egress.send(request).await.unwrap_err();
            (n, first, egress.send(other).await.unwrap_err())
        });
    }
    tokio::time::sleep(Duration::from_millis(50)).await;
    let started = Instant::now();
    let quick = tokio::spawn({
        let (egress, request) = (shared.apart(), get("quick.example"));
        async move { egress.send(request).await }
    });
    let accepted = tokio::time::timeout(Duration::from_millis(200), listener.accept()).await;
    assert!(accepted.is_ok(), "a quick name waited {:?} for a slow one", started.elapsed());
    quick.abort();
    while let Some(caller) = callers.join_next().await {
        let (n, first, second) = caller.unwrap();
        for error in [first, second] {
            let late = matches!(error, EgressError::ConnectTime { .. });
            assert!(late && !error.was_sent(), "{n}: {error:?}");
        }
    }
    let asked = seen.lock().unwrap().asked.clone();
    assert_eq!(asked.iter().filter(|name| *name == "slow.example").count(), 1, "{asked:?}");
    assert_eq!(resolver.addresses("slow.example").await.unwrap()[..], [ADDRESS], "its answer is kept");
}

#[tokio::test]
async fn lookups_in_flight_are_limited_and_the_others_wait() {
    let (resolver, seen) = resolver(Duration::from_millis(100));
    let names = (0..LOOKUPS + 40).map(|n| format!("slow-{n}.example")).collect::<Vec<_>>();
    let found = futures_util::future::join_all(names.iter().map(|name| resolver.addresses(name))).await;
    assert!(found.iter().all(Result::is_ok));
    let seen = seen.lock().unwrap();
    assert_eq!((seen.asked.len(), seen.most), (names.len(), LOOKUPS));
}

#[tokio::test]
async fn answers_are_kept_for_a_moment_and_failures_for_a_shorter_one() {
    let (resolver, seen) = resolver(Duration::ZERO);
    let asked = || std::mem::take(&mut seen.lock().unwrap().asked);
    for _ in 0..3 {
        for (name, found) in [("a.example", true), ("A.Example", true), ("missing.example", false)] {
            assert_eq!(resolver.addresses(name).await.is_ok(), found, "{name}");
        }
    }
    assert_eq!(asked(), ["a.example", "missing.example"]);
    tokio::time::sleep(FAILED_TIME + Duration::from_millis(50)).await;
    assert!(resolver.addresses("a.example").await.is_ok());
    assert!(resolver.addresses("b.example").await.is_ok());
    assert_eq!(resolver.names.lock().unwrap().len(), 2, "what is over is not kept");
    assert!(resolver.addresses("missing.example").await.is_err());
    assert_eq!(asked(), ["b.example", "missing.example"]);
}

#[tokio::test]
async fn a_lookup_that_panics_is_a_failure() {
    let resolver = Resolver::new(|_| panic!("a resolver that panics"));
    let error = resolver.addresses("a.example").await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::Other);
}
