//! The hub and its writers, without a network.

use std::collections::HashSet;
use std::future::pending;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::StreamExt;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio::time::sleep;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::hub::Hub;
use super::hub::Member;
use super::hub::lock;
use super::task;
use super::task::Late;
use super::writer;
use super::writer::Audience;
use super::writer::Form;
use super::writer::Over;
use crate::backend::Backend;
use crate::backend::Surroundings;
use crate::cache::Cache;
use crate::catalog::entry::Entry;
use crate::catalog::entry::Home;
use crate::catalog::herald::Changed;
use crate::catalog::herald::Herald;
use crate::egress::Egress;
use crate::egress::rules::Rules;
use crate::exchange::Notice;
use crate::exchange::Notices;
use crate::listen::ListenError;
use crate::model::caller::Caller;
use crate::model::limits::Limits;
use crate::model::name::BackendName;
use crate::model::name::TenantName;
use crate::model::scope::Scopes;
use crate::model::tenant;
use crate::protocol::json::Json;
use crate::protocol::subscription::Kind;
use crate::protocol::subscription::Kinds;
use crate::telemetry::metrics::Metrics;

const MANY: usize = 10_000;
const TOOLS: Changed = Changed { tools: true, prompts: false, resources: false };
const ALL: Changed = Changed { tools: true, prompts: true, resources: true };
const PATIENCE: Duration = Duration::from_secs(20);

fn json(text: &str) -> Json {
    Json::parse(Bytes::copy_from_slice(text.as_bytes()), 64).unwrap()
}

fn acme() -> TenantName {
    TenantName::new("acme").unwrap()
}

fn hub_with(change: impl FnOnce(&mut Limits)) -> Arc<Hub> {
    let mut limits = Limits { notification_pause: Duration::ZERO, ..Limits::default() };
    change(&mut limits);
    {
        let (limits, metrics) = (Arc::new(limits), Arc::new(Metrics::new()));
        let cache = Cache::new(&limits, metrics.clone());
        Hub::new(limits, metrics, TaskTracker::new(), cache)
    }
}

fn hub() -> Arc<Hub> {
    hub_with(|_| {})
}

fn caller(tenant: &str, subject: &str) -> Caller {
    Caller {
        tenant: TenantName::new(tenant).unwrap(),
        issuer: "https://issuer.example".into(),
        subject: subject.into(),
        client: None,
        scopes: Scopes::default(),
        expires_at: u64::MAX,
    }
}

fn alice() -> Caller {
    caller("acme", "alice")
}

/// The built-in backend, which honours everything.
fn home(name: &str) -> Arc<Home> {
    let config = Arc::new(tenant::Backend::demo(name));
    let around = Surroundings {
        egress: Egress::new(Rules { allow: Vec::new() }, Duration::from_secs(1), &[]).unwrap(),
        limits: Arc::new(Limits::default()),
        metrics: Arc::new(Metrics::new()),
        seats: Arc::default(),
        tasks: TaskTracker::new(),
        stop: CancellationToken::new(),
    };
    Arc::new(Home { live: Arc::new(Backend::new(config.clone(), acme(), around)), config, tasks: false })
}

fn entry(home: &Arc<Home>, uri: &str) -> Arc<Entry> {
    Arc::new(Entry::unlisted(home, uri, uri, Scopes::default()))
}

/// Somebody who may listen for ever, and read everything but what has `secret` in it.
struct Anybody;

impl Audience for Anybody {
    async fn over(&self) -> Over {
        pending().await
    }

    async fn may_read(&self, uri: &str) -> bool {
        !uri.contains("secret")
    }
}

/// Somebody who may listen until it is said.
struct Until(watch::Receiver<Option<Over>>);

impl Audience for Until {
    async fn over(&self) -> Over {
        self.0.clone().wait_for(Option::is_some).await.unwrap().unwrap()
    }

    async fn may_read(&self, _: &str) -> bool {
        true
    }
}

/// Somebody who may listen until it is said, and whose tasks are at nothing until it is said.
struct Waiting {
    until: watch::Receiver<Option<Over>>,
    tasks: watch::Receiver<bool>,
}

impl Audience for Waiting {
    async fn over(&self) -> Over {
        self.until.clone().wait_for(Option::is_some).await.unwrap().unwrap()
    }

    async fn may_read(&self, _: &str) -> bool {
        true
    }

    async fn task(&self, _: &str) -> Result<Option<Json>, Late> {
        self.tasks.clone().wait_for(|come| *come).await.unwrap();
        Ok(Some(json(r#"{"taskId":"1"}"#)))
    }
}

fn subscription(member: Member, id: &str, kinds: Kinds, uris: &[&str]) -> Notices {
    let uris = uris.iter().map(|uri| Arc::from(*uri)).collect();
    writer::write(
        Arc::new(member),
        Anybody,
        Form::Subscription { id: json(id), kinds, uris, tasks: Vec::new() },
    )
}

/// What is said next.
async fn next(notices: &mut Notices) -> String {
    match timeout(PATIENCE, notices.next()).await.unwrap() {
        Some(Notice::Message(json) | Notice::End(json)) => json.text().to_owned(),
        None => String::new(),
    }
}

/// Everything that is said now.
fn said(notices: &mut Notices) -> Vec<String> {
    std::iter::from_fn(|| match notices.next().now_or_never()?? {
        Notice::Message(json) | Notice::End(json) => Some(json.text().to_owned()),
    })
    .collect()
}

fn tools() -> Kinds {
    [Kind::Tools].into_iter().collect()
}

// spec: row SB-02
// spec: row SB-03
#[tokio::test]
async fn the_acknowledgement_comes_first_and_what_changed_before_it_is_told_after_it() {
    for id in ["1", r#""1""#, "9007199254740993", r#""a\nb""#] {
        let hub = hub();
        let member = hub.join(&alice(), tools());
        hub.changed(&acme(), ALL);
        let notices = &mut subscription(member, id, tools(), &["note://a"]);
        let meta = format!(r#""_meta":{{"io.modelcontextprotocol/subscriptionId":{id}}}"#);
        let expected = [
            format!(
                r#"{{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{{{meta},"notifications":{{"toolsListChanged":true,"resourceSubscriptions":["note://a"]}}}}}}"#
            ),
            format!(r#"{{"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{{{meta}}}}}"#),
        ];
        assert_eq!(said(notices), expected);
    }
}

// spec: row SB-04
#[tokio::test]
async fn only_what_was_asked_for_is_told_and_only_in_its_tenant() {
    let (hub, home) = (hub(), home("notes"));
    let member = hub.join(&alice(), tools());
    member.want(&"note://a".into(), &entry(&home, "note://a")).unwrap();
    member.want(&"note://secret".into(), &entry(&home, "note://secret")).unwrap();
    let notices = &mut subscription(member, "1", tools(), &[]);
    said(notices);
    let (other, backend) = (TenantName::new("other").unwrap(), home.config.name.clone());
    hub.changed(&other, ALL);
    hub.resource_changed(&other, &backend, "note://a").await;
    hub.resource_changed(&acme(), &BackendName::new("others").unwrap(), "note://a").await;
    hub.resource_changed(&acme(), &backend, "note://b").await;
    hub.resource_changed(&acme(), &backend, "note://secret").await;
    hub.changed(&acme(), Changed { tools: false, ..ALL });
    assert!(said(notices).is_empty());
    hub.resource_changed(&acme(), &backend, "note://a").await;
    let told = said(notices);
    assert!(told.len() == 1 && told[0].contains(r#""uri":"note://a""#), "{told:?}");
}

// spec: row SB-07
#[tokio::test]
async fn many_changes_are_one_event_and_the_last_event_comes_after_the_last_change() {
    for (pause, again) in [(Duration::from_secs(3_600), false), (Duration::from_millis(20), true)] {
        let hub = hub_with(|limits| limits.notification_pause = pause);
        let notices = &mut subscription(hub.join(&alice(), Kinds::all()), "1", Kinds::all(), &[]);
        assert_eq!(said(notices).len(), 1);
        (0..MANY).for_each(|_| hub.changed(&acme(), ALL));
        let begun = Instant::now();
        assert_eq!(said(notices).len(), 3, "one of each kind");
        (0..MANY).for_each(|_| hub.changed(&acme(), TOOLS));
        if !again {
            assert!(said(notices).is_empty(), "not so soon again");
            continue;
        }
        assert!(timeout(PATIENCE, notices.next()).await.unwrap().is_some());
        assert!(begun.elapsed() >= pause, "{:?}", begun.elapsed());
        assert!(said(notices).is_empty(), "nothing has changed since");
    }
}

#[tokio::test]
async fn who_waits_is_woken() {
    let hub = hub();
    let mut notices = subscription(hub.join(&alice(), tools()), "1", tools(), &[]);
    said(&mut notices);
    let waiting = tokio::spawn(async move { notices.next().await.is_some() });
    tokio::task::yield_now().await;
    hub.changed(&acme(), TOOLS);
    assert!(waiting.await.unwrap());
}

#[tokio::test]
async fn one_change_reaches_ten_thousand_in_a_moment() {
    let hub = hub();
    let join = |id: usize| subscription(hub.join(&alice(), tools()), &id.to_string(), tools(), &[]);
    let mut all: Vec<_> = (0..MANY).map(join).collect();
    all.iter_mut().for_each(|notices| assert_eq!(said(notices).len(), 1));
    let begun = Instant::now();
    hub.changed(&acme(), TOOLS);
    let told: usize = all.iter_mut().map(|notices| said(notices).len()).sum();
    assert_eq!(told, MANY);
    // A tenth of a second or so; a machine that is busy takes longer, and linear time is far from quadratic.
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
}

// spec: row SB-05
#[tokio::test]
async fn what_has_changed_is_told_before_the_result_and_nothing_after_it() {
    for (over, last) in [(Over::Due, 3), (Over::Barred, 1)] {
        let (hub, (say, until)) = (hub(), watch::channel(None));
        let form =
            Form::Subscription { id: json("7"), kinds: Kinds::all(), uris: Vec::new(), tasks: Vec::new() };
        let notices = &mut writer::write(Arc::new(hub.join(&alice(), Kinds::all())), Until(until), form);
        hub.changed(&acme(), TOOLS);
        assert_eq!(said(notices).len(), 2);
        hub.changed(&acme(), Changed { resources: false, ..ALL });
        say.send(Some(over)).unwrap();
        let told = notices.map(|notice| match notice {
            Notice::Message(json) | Notice::End(json) => json.text().to_owned(),
        });
        let told: Vec<_> = timeout(PATIENCE, told.collect()).await.unwrap();
        assert_eq!(told.len(), last, "{told:?}");
        let version = env!("CARGO_PKG_VERSION");
        let result = format!(
            r#"{{"resultType":"complete","_meta":{{"io.modelcontextprotocol/subscriptionId":7,"io.modelcontextprotocol/serverInfo":{{"name":"fondaco","version":"{version}"}}}}}}"#
        );
        assert_eq!(told.last(), Some(&result));
    }
}

// spec: row LG-07
#[tokio::test]
async fn each_message_of_a_session_goes_to_one_of_its_streams_and_to_the_next_if_that_has_died() {
    let hub = hub();
    let member = Arc::new(hub.join(&alice(), Kinds::all()));
    let stream = || writer::write(member.clone(), Anybody, Form::Session);
    let (mut one, mut two) = (stream(), stream());
    assert!(said(&mut one).is_empty() && said(&mut two).is_empty());
    hub.changed(&acme(), ALL);
    let first = one.next().now_or_never().flatten();
    let expected = r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#;
    assert!(matches!(first, Some(Notice::Message(json)) if json.text() == expected));
    assert!(said(&mut two).is_empty());
    drop(one);
    assert_eq!(said(&mut two).len(), 2, "what the other had not said yet");
}

#[tokio::test]
async fn who_subscribes_to_what_a_resource_lies_below_hears_of_it() {
    let (hub, home) = (hub(), home("files"));
    let member = hub.join(&alice(), Kinds::NONE);
    for uri in ["file:///a", "file:///a/b/", "file:///a/b/c.txt"] {
        member.want(&uri.into(), &entry(&home, uri)).unwrap();
    }
    let notices = &mut subscription(member, "1", Kinds::NONE, &[]);
    said(notices);
    let long = format!("file:///a/{}", "x".repeat(1 << 20));
    for (changed, heard) in [
        ("file:///a/b/c.txt", 3),
        ("file:///a/b/d.txt", 2),
        ("file:///a/b/c.txt#part", 3),
        ("file:///a?q=1", 1),
        ("file:///a/b", 1),
        ("file:///a", 1),
        ("file:///ab", 0),
        ("file://", 0),
        ("", 0),
        (&long, 1),
        ("file:///a/2/3/4/5/6/7/8/9", 1),
        ("file:///a/2/3/4/5/6/7/8/9/0", 0),
    ] {
        hub.resource_changed(&acme(), &home.config.name, changed).await;
        assert_eq!(said(notices).len(), heard, "{changed:.40}");
    }
}

#[tokio::test]
async fn a_resource_that_has_moved_counts_as_changed_where_it_is_now() {
    let (hub, old, new) = (hub(), home("notes"), home("notes"));
    let member = hub.join(&alice(), Kinds::NONE);
    let uri = Arc::from("note://a");
    member.want(&uri, &entry(&old, &uri)).unwrap();
    assert_eq!(member.honoured(vec![uri.clone()]).await, std::slice::from_ref(&uri));
    let notices = &mut subscription(member, "1", Kinds::NONE, &[]);
    said(notices);
    hub.relink(&acme(), |uri| Some(entry(&old, uri))).await;
    assert_eq!(hub.tasks(), 1, "it has not moved");
    for home in [&new, &old] {
        hub.relink(&acme(), |uri| Some(entry(home, uri))).await;
        assert!(timeout(PATIENCE, notices.next()).await.unwrap().is_some());
        assert!(said(notices).is_empty(), "once");
        hub.relink(&acme(), |_| None).await;
        hub.resource_changed(&acme(), &home.config.name, &uri).await;
        assert!(said(notices).is_empty(), "it is nowhere");
    }
}

#[tokio::test]
async fn a_listener_has_so_many_resources_and_a_caller_and_a_tenant_so_many_places() {
    let hub = hub_with(|limits| {
        (limits.subscription_uris, limits.subscription_bytes) = (2, 20);
        (limits.caller_streams, limits.tenant_streams) = (1, 2);
    });
    let (home, member) = (home("notes"), hub.join(&alice(), Kinds::NONE));
    let want = |uri: &str| member.want(&uri.into(), &entry(&home, uri));
    assert_eq!(want("note://a"), Ok(()));
    assert_eq!(want("note://a"), Ok(()), "again is no more");
    assert_eq!(want("note://much-too-long"), Err(ListenError::TooManyResources));
    assert_eq!(want("note://b"), Ok(()));
    assert_eq!(want("note://c"), Err(ListenError::TooManyResources));
    member.forget("note://a");
    assert_eq!(want("note://c"), Ok(()));
    let place = |tenant: &str, subject: &str| hub.stream_place(&caller(tenant, subject)).ok();
    let alice = place("acme", "alice").unwrap();
    assert!(place("acme", "alice").is_none());
    let _bob = place("acme", "bob").unwrap();
    assert!(place("acme", "carol").is_none() && place("other", "carol").is_some());
    assert!(hub.session_place(&caller("acme", "alice")).is_ok(), "those of sessions are others");
    drop(alice);
    assert!(place("acme", "carol").is_some());
}

#[tokio::test]
async fn a_caller_has_so_many_resources_with_all_its_listeners() {
    let hub = hub_with(|limits| limits.caller_subscriptions = 3);
    let home = home("notes");
    let [one, two] = [1, 2].map(|_| hub.join(&alice(), Kinds::NONE));
    let want = |member: &Member, uri: &str| member.want(&uri.into(), &entry(&home, uri));
    assert_eq!([want(&one, "note://a"), want(&one, "note://b"), want(&two, "note://a")], [Ok(()); 3]);
    assert_eq!(want(&two, "note://c"), Err(ListenError::TooManyResources));
    assert_eq!(want(&two, "note://a"), Ok(()), "again is no more");
    let bob = hub.join(&caller("acme", "bob"), Kinds::NONE);
    assert_eq!(want(&bob, "note://c"), Ok(()), "another caller has its own");
    one.forget("note://b");
    assert_eq!(want(&two, "note://c"), Ok(()));
    drop(one);
    assert_eq!(want(&two, "note://d"), Ok(()), "who leaves takes its own along");
}

#[tokio::test]
async fn a_backend_has_so_many_subscriptions_and_what_does_not_fit_is_not_honoured() {
    let hub = hub_with(|limits| {
        (limits.subscription_uris, limits.upstream_watches) = (1_000, 4);
        limits.caller_subscriptions = 1_000;
    });
    let (home, member) = (home("notes"), hub.join(&alice(), Kinds::NONE));
    let uris: Vec<Arc<str>> = (0..600).map(|n| format!("note://{n}").into()).collect();
    uris.iter().for_each(|uri| member.want(uri, &entry(&home, uri)).unwrap());
    assert_eq!(member.honoured(uris.clone()).await, uris[..512]);
    assert!(!member.waits(&uris[511]) && !member.waits(&uris[512]), "it was forgotten");
    member.want(&uris[512], &entry(&home, &uris[512])).unwrap();
    assert!(member.waits(&uris[512]));
    member.forget(&uris[512]);
    member.forget("note://0");
    member.want(&uris[599], &entry(&home, &uris[599])).unwrap();
    assert_eq!(member.honoured(vec![uris[599].clone()]).await, uris[599..]);
}

#[tokio::test]
async fn nothing_is_left_of_who_has_left() {
    let hub = hub_with(|limits| limits.watch_linger = Duration::from_millis(1));
    let home = home("notes");
    let [one, two] = [1, 2].map(|_| hub.join(&alice(), Kinds::all()));
    for member in [&one, &two] {
        member.want(&"note://a".into(), &entry(&home, "note://a")).unwrap();
    }
    drop(one);
    assert_eq!((hub.tenants(), hub.tasks()), (1, 1));
    drop(two);
    let gone = async {
        while (hub.tenants(), hub.tasks()) != (0, 0) {
            sleep(Duration::from_millis(1)).await;
        }
    };
    timeout(PATIENCE, gone).await.unwrap();
}

#[tokio::test]
async fn while_many_are_told_others_have_their_turn() {
    let (hub, home) = (hub(), home("notes"));
    let uri: Arc<str> = "note://a".into();
    let join = |n: usize| hub.join(&caller("acme", &n.to_string()), Kinds::NONE);
    let members: Vec<_> = (0..1_000).map(join).collect();
    members.iter().for_each(|member| member.want(&uri, &entry(&home, &uri)).unwrap());
    let tenant = acme();
    let mut telling = pin!(hub.resource_changed(&tenant, &home.config.name, &uri));
    assert!(telling.as_mut().now_or_never().is_none(), "it takes many turns");
    drop(hub.join(&alice(), Kinds::NONE));
    timeout(PATIENCE, telling).await.unwrap();
    for member in members {
        assert_eq!(said(&mut subscription(member, "1", Kinds::NONE, &[])).len(), 2);
    }
}

#[tokio::test]
async fn what_one_tenant_does_keeps_no_other_waiting() {
    let (hub, home) = (hub(), home("notes"));
    let _member = hub.join(&alice(), Kinds::NONE);
    let crowd = hub.crowd(&acme()).unwrap();
    let _held = lock(&crowd);
    let other = TenantName::new("other").unwrap();
    let member = hub.join(&caller("other", "alice"), tools());
    member.want(&"note://a".into(), &entry(&home, "note://a")).unwrap();
    hub.changed(&other, TOOLS);
    hub.resource_changed(&other, &home.config.name, "note://a").now_or_never().unwrap();
    assert_eq!(said(&mut subscription(member, "1", tools(), &[])).len(), 3);
}

#[tokio::test]
async fn a_listener_is_told_of_so_many_resources_in_a_second_and_of_the_others_later() {
    let hub = hub_with(|limits| limits.notification_rate = 10);
    let (home, member) = (home("notes"), hub.join(&alice(), tools()));
    let uris: Vec<Arc<str>> = (0..25).map(|n| format!("note://{n}").into()).collect();
    uris.iter().for_each(|uri| member.want(uri, &entry(&home, uri)).unwrap());
    let notices = &mut subscription(member, "1", tools(), &[]);
    assert_eq!(said(notices).len(), 1);
    let begun = Instant::now();
    for uri in &uris {
        hub.resource_changed(&acme(), &home.config.name, uri).await;
    }
    let mut told = said(notices);
    assert_eq!(told.len(), 10);
    assert!(notices.next().now_or_never().is_none());
    hub.changed(&acme(), TOOLS);
    assert_eq!(said(notices).len(), 1, "a list is not among them");
    while told.len() < 25 {
        told.push(next(notices).await);
    }
    assert!(begun.elapsed() >= Duration::from_secs(2), "{:?}", begun.elapsed());
    assert_eq!(told.iter().collect::<HashSet<_>>().len(), 25, "each once");
    assert!(said(notices).is_empty());
}

#[tokio::test]
async fn a_task_that_is_not_to_be_had_keeps_neither_the_end_nor_anything_else_waiting() {
    for (over, last) in [(Over::Due, 1), (Over::Barred, 0)] {
        let (hub, home) = (hub(), home("up"));
        let ((say, until), (come, tasks)) = (watch::channel(None), watch::channel(false));
        let member = hub.join(&alice(), tools());
        let slow = ["1", "2"].map(|id| task::entry(&home, id));
        for entry in &slow {
            member.want(&entry.own, entry).unwrap();
        }
        member.want(&"note://a".into(), &entry(&home, "note://a")).unwrap();
        let wanted = slow.each_ref().map(|entry| entry.own.clone());
        assert_eq!(member.honoured(wanted.to_vec()).await.len(), 2);
        let listener = member.listener().clone();
        let form = Form::Subscription { id: json("1"), kinds: tools(), uris: Vec::new(), tasks: Vec::new() };
        let notices = &mut writer::write(Arc::new(member), Waiting { until, tasks }, form);
        wanted.iter().for_each(|key| listener.mark_resource(key));
        hub.resource_changed(&acme(), &home.config.name, "note://a").await;
        let told = said(notices);
        assert!(told.len() == 2 && told[1].contains("note://a"), "what needs no backend first: {told:?}");
        hub.changed(&acme(), TOOLS);
        let begun = Instant::now();
        assert!(next(notices).await.contains("tools/list_changed"));
        assert!(begun.elapsed() < Duration::from_secs(4), "{:?}", begun.elapsed());
        // It is not lost, but tried again.
        if over == Over::Due {
            come.send(true).unwrap();
            for _ in 0..2 {
                assert!(next(notices).await.contains("notifications/tasks"));
            }
            come.send(false).unwrap();
        }
        wanted.iter().for_each(|key| listener.mark_resource(key));
        assert!(said(notices).is_empty(), "it is asked for");
        hub.changed(&acme(), TOOLS);
        let begun = Instant::now();
        say.send(Some(over)).unwrap();
        let rest: Vec<_> = timeout(PATIENCE, notices.collect()).await.unwrap();
        assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
        assert_eq!(rest.len(), last + 1);
        assert!(matches!(rest.last(), Some(Notice::End(_))));
    }
}

#[tokio::test]
async fn a_resource_that_there_was_no_room_for_is_tried_again_when_there_is() {
    let hub = hub_with(|limits| (limits.subscription_uris, limits.upstream_watches) = (256, 2));
    let (full, other) = (home("notes"), home("notes"));
    let [member, waiting] = [1, 2].map(|_| hub.join(&alice(), Kinds::NONE));
    let uris: Vec<Arc<str>> = (0..256).map(|n| format!("note://{n}").into()).collect();
    uris.iter().for_each(|uri| member.want(uri, &entry(&full, uri)).unwrap());
    waiting.want(&"note://a".into(), &entry(&other, "note://a")).unwrap();
    let notices = &mut subscription(waiting, "1", Kinds::NONE, &[]);
    let there = |uri: &str| Some(entry(&full, uri));
    hub.relink(&acme(), there).await;
    said(notices);
    assert!(hub.stale().now_or_never().is_none());
    // Whatever changes may have made room.
    hub.changed(&acme(), TOOLS);
    assert!(hub.stale().now_or_never().is_some());
    hub.relink(&acme(), there).await;
    assert!(timeout(Duration::from_millis(100), notices.next()).await.is_err(), "there is none");
    member.forget(&uris[0]);
    assert_eq!(timeout(PATIENCE, hub.stale()).await.unwrap(), HashSet::from([acme()]));
    hub.relink(&acme(), there).await;
    assert!(next(notices).await.contains("note://a"));
    hub.resource_changed(&acme(), &full.config.name, "note://a").await;
    assert!(next(notices).await.contains("note://a"));
    hub.changed(&acme(), TOOLS);
    assert!(hub.stale().now_or_never().is_none(), "everything is heard of");
}
