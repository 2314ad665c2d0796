//! The database: what it promises on both engines, what each of them has of its own, and serving
//! from it.

mod commands;
mod contract;
mod killing;
mod postgres;
mod serving;
mod sqlite;

use std::collections::BTreeSet;

use fondaco::model::name::BackendName;
use fondaco::model::name::TenantName;
use fondaco::store::Revision;
use fondaco::store::claims::Claim;
use fondaco::store::write::Actor;
use fondaco::store::write::Write;
use fondaco::store::write::Written;

/// Who writes in these tests.
const CLI: Actor = Actor::Cli;

/// A write of theirs.
fn write() -> Write<'static> {
    Write::by(&CLI)
}

fn tenant(name: &str) -> TenantName {
    TenantName::new(name).unwrap()
}

fn backend(name: &str) -> BackendName {
    BackendName::new(name).unwrap()
}

fn hosts(names: &[&str]) -> BTreeSet<Claim> {
    names.iter().map(|name| Claim::Host((*name).to_owned())).collect()
}

/// The state that a write made.
fn now(written: Written) -> Revision {
    match written {
        Written::Now(revision) => revision,
        Written::Before(answer) => panic!("it had been written before: {answer:?}"),
    }
}
