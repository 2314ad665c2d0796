//! The client scenarios of the official conformance suite: what Fondaco asks of a backend, judged by
//! the suite's mock servers. `tests/conformance/client` is its caller.

use std::path::Path;

use serde_json::Value;

use crate::harness::process;
use crate::harness::process::Peers;

/// Every scenario without an authorization server of its own, and how many of its checks succeed.
const SCENARIOS: [(&str, usize); 8] = [
    ("tools_call", 2),
    ("request-metadata", 5),
    ("http-standard-headers", 11),
    ("http-custom-headers", 18),
    ("http-invalid-tool-headers", 12),
    ("sep-2322-client-request-state", 5),
    ("json-schema-ref-no-deref", 1),
    ("json-schema-2020-12-preservation", 9),
];

/// Runs the suite's program.
async fn suite(words: &[&str]) -> (bool, String) {
    let program = Peers::dir().join("node_modules/@modelcontextprotocol/conformance/dist/index.js");
    let mut command = Peers::find().node(program.to_str().expect("a path in UTF-8"));
    command.args(words).env("FONDACO_PEERS_DIR", Peers::dir());
    command.env("FONDACO_BIN", env!("CARGO_BIN_EXE_fondaco"));
    process::listen(&mut command).await
}

/// The checks that a scenario left behind: each one's id, name and status.
async fn checks(scenario: &str) -> Vec<(String, String)> {
    let folder = tempfile::tempdir().unwrap();
    let driver = process::root().join("tests/conformance/client");
    let (driver, output) = (driver.to_str().unwrap(), folder.path().to_str().unwrap());
    let words = ["client", "--command", driver, "--scenario", scenario, "--spec-version", "2026-07-28"];
    let (_, said) = suite(&[&words[..], &["-o", output]].concat()).await;
    let left = read(folder.path());
    assert!(!left.is_empty(), "{scenario} left no checks:\n{said}");
    left
}

fn read(folder: &Path) -> Vec<(String, String)> {
    let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path().join("checks.json"));
    let texts = files.filter_map(|file| std::fs::read_to_string(file).ok());
    let checks = texts.flat_map(|text| serde_json::from_str::<Vec<Value>>(&text).unwrap());
    let said = |check: &Value, name: &str| check[name].as_str().unwrap_or_default().to_owned();
    checks
        .map(|check| {
            let what = format!("{} {}", said(&check, "name"), said(&check, "errorMessage"));
            (said(&check, "status"), what)
        })
        .collect()
}

#[tokio::test]
async fn fondaco_passes_the_client_scenarios_of_2026_07_28() {
    let mut wrong = Vec::new();
    for (scenario, expected) in SCENARIOS {
        let checks = checks(scenario).await;
        let of = |wanted: &[&str]| {
            let found = checks.iter().filter(|(status, _)| wanted.contains(&status.as_str()));
            found.map(|(_, what)| what.clone()).collect::<Vec<_>>()
        };
        let (succeeded, failed) = (of(&["SUCCESS"]).len(), of(&["FAILURE", "WARNING"]));
        if !failed.is_empty() || succeeded != expected {
            wrong.push(format!("{scenario}: {succeeded} of {expected} succeed; failed: {failed:#?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[tokio::test]
async fn the_list_has_every_client_scenario_but_those_of_authorization() {
    let (_, said) = suite(&["list", "--client", "--spec-version", "2026-07-28"]).await;
    let named = said.lines().filter_map(|line| line.trim().strip_prefix("- ")?.split(' ').next());
    let mut theirs: Vec<_> = named.filter(|name| !name.starts_with("auth/")).collect();
    let mut ours: Vec<_> = SCENARIOS.iter().map(|(name, _)| *name).collect();
    theirs.sort_unstable();
    ours.sort_unstable();
    assert_eq!(theirs, ours, "{said}");
}
