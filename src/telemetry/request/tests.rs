//! What the request line says, and what it never says.

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;
use std::sync::Mutex;
use std::time::Duration;

use serde_json::Value;
use tracing_subscriber::layer::SubscriberExt;

use super::PathKind;
use super::RequestLine;
use super::Target;
use super::clean;
use super::subject;

const PAGE: &str = include_str!("../../../docs/reference/request-log.md");

#[derive(Clone, Default)]
struct Sink(Arc<Mutex<Vec<u8>>>);

impl io::Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn said(line: &RequestLine) -> String {
    let sink = Sink::default();
    let writer = sink.clone();
    let layer =
        tracing_subscriber::fmt::layer().json().flatten_event(true).with_writer(move || writer.clone());
    tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || line.emit());
    let bytes = sink.0.lock().unwrap().clone();
    String::from_utf8(bytes).unwrap()
}

fn full(target: Target) -> RequestLine {
    RequestLine {
        http_method: "POST".into(),
        path: PathKind::TenantMcp,
        status: 200,
        rpc_method: Some("tools/call\n{\"forged\":1}".into()),
        tenant: Some("acme".into()),
        backend: Some("crm".into()),
        target: Some(target),
        outcome: Some("failed"),
        error: Some("lost".into()),
        refusal: Some("hidden"),
        subject: Some(subject("https://login.example", "alice")),
        duration: Duration::from_millis(12),
        bytes_in: 34,
        bytes_out: 56,
        trace_id: Some("4bf92f3577b34da6a3ce929d0e0e4736".into()),
    }
}

#[test]
fn the_page_and_the_line_name_the_same_fields() {
    let mut fields = BTreeSet::new();
    for target in [Target::Name("echo".into()), Target::Resource("demo://note/1".into())] {
        let said = said(&full(target));
        assert_eq!(said.lines().count(), 1, "{said}");
        assert!(!said.contains("demo://") && !said.contains("alice"), "{said}");
        let Value::Object(line) = serde_json::from_str(&said).unwrap() else { panic!("{said}") };
        assert_eq!((&line["target"], &line["status"]), (&Value::from("request"), &Value::from(200)));
        fields.extend(line.into_iter().map(|(name, _)| name));
    }
    for own in ["timestamp", "level", "target", "message"] {
        assert!(fields.remove(own), "{own}");
    }
    let rows = PAGE.lines().filter_map(|line| line.strip_prefix("| `")?.split_once('`'));
    assert_eq!(fields, rows.map(|(name, _)| name.to_owned()).collect());
}

#[test]
fn what_is_not_known_is_left_out() {
    let said = said(&RequestLine::default());
    for absent in
        ["rpc_method", "tenant", "backend", "name", "resource", "refusal", "error", "subject", "trace_id"]
    {
        assert!(!said.contains(&format!("\"{absent}\"")), "{said}");
    }
}

#[test]
fn what_clients_send_cannot_forge_a_line() {
    assert_eq!(clean("tools/call"), "tools/call");
    assert_eq!(clean("a\nb\u{1b}[2J"), "a\\u{a}b\\u{1b}[2J");
    assert_eq!(clean("a\\nb"), "a\\\\nb");
    assert_eq!(clean("\u{202e}x\u{e0041}"), "\\u{202e}x\\u{e0041}");
    assert_eq!(clean("é"), "é");
    let long = clean(&"é".repeat(1000)).into_owned();
    assert_eq!((long.chars().count(), long.ends_with('…')), (129, true));
}

#[test]
fn a_subject_is_a_pseudonym() {
    let alice = subject("https://login.example", "alice");
    assert_eq!(alice.len(), 16);
    assert_eq!(alice, subject("https://login.example", "alice"));
    assert_ne!(alice, subject("https://login.examplea", "lice"));
}
