//! What is in the files, and what is never done to them.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use tokio_util::sync::CancellationToken;

use super::Picture;
use super::Record;
use super::Shelf;
use super::is_draft;
use crate::backend::listing::Listed;
use crate::backend::listing::Listing;
use crate::catalog::owners::Owners;
use crate::model::limits::Limits;
use crate::model::name::BackendName;
use crate::model::name::TenantName;
use crate::model::scope::Scopes;
use crate::model::tenant::Backend;
use crate::model::tenant::Tenant;
use crate::protocol::json::Json;
use crate::protocol::methods::List;

fn acme(backends: &[&str]) -> Arc<Tenant> {
    Arc::new(Tenant {
        name: TenantName::new("acme").unwrap(),
        instructions: None,
        scopes_offered: Scopes::default(),
        scope_implies: BTreeMap::default(),
        handshake: true,
        public_catalog: false,
        backends: backends.iter().map(|name| Arc::new(Backend::demo(name))).collect(),
        digest: 1,
    })
}

fn listing(tool: &str) -> Arc<Listing> {
    let text = format!(r#"{{"name":"{tool}"}}"#);
    let tools = Listed::whole(vec![Json::parse(Bytes::from(text), 8).unwrap()]);
    Arc::new(Listing { tools, ..Listing::default() })
}

fn name(name: &str) -> BackendName {
    BackendName::new(name).unwrap()
}

fn shelf(data: &Path, limits: Limits) -> Shelf {
    Shelf::open(data, Arc::new(limits))
}

/// Writes what there is to write.
fn write(shelf: &Shelf) {
    shelf.0.as_ref().unwrap().write();
}

fn files(data: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(data.join("catalogs")) else { return Vec::new() };
    let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort_unstable();
    names
}

fn stored(data: &Path) -> String {
    fs::read_to_string(data.join("catalogs/acme.json")).unwrap()
}

#[tokio::test]
async fn a_catalog_that_is_loaded_in_half_loses_nothing_of_the_stored_one() {
    let data = tempfile::tempdir().unwrap();
    let tenant = acme(&["crm", "wiki"]);
    let before = shelf(data.path(), Limits::default());
    let record = Record::new(before.clone(), tenant.clone(), None);
    assert!(record.begin(&tenant.backends[0]).await.is_none());
    let lists = [(name("crm"), listing("old")), (name("wiki"), listing("page"))];
    record.put(lists.into());
    write(&before);
    let whole = stored(data.path());
    assert!(whole.contains(r#""name":"old""#) && whole.contains(r#""name":"page""#), "{whole}");

    let after = shelf(data.path(), Limits::default());
    let record = Record::new(after.clone(), tenant.clone(), None);
    assert!(!record.has_begun(), "nothing is written before it is known what is stored");
    assert!(record.begin(&tenant.backends[0]).await.is_some());
    assert!(record.has_begun());
    record.put([(name("crm"), listing("new"))].into());
    write(&after);
    let half = stored(data.path());
    assert_eq!(half, whole.replace(r#""name":"old""#, r#""name":"new""#));
    // Once another list was taken in its place it is gone.
    record.put([(name("crm"), listing("new")), (name("wiki"), listing("other"))].into());
    record.put([(name("crm"), listing("new"))].into());
    write(&after);
    assert!(!stored(data.path()).contains("page"));
}

#[tokio::test]
async fn a_file_is_never_larger_than_it_may_be() {
    let data = tempfile::tempdir().unwrap();
    let limits = || Limits { catalog_file_bytes: 2_000, ..Limits::default() };
    let tenant = acme(&["crm", "wiki"]);
    let first = shelf(data.path(), limits());
    let mut owners = Owners::default();
    (0..1_000).for_each(|n| owners.insert(List::Tools, format!("t{n}").into(), name("crm")));
    owners.insert(List::Tools, "page".into(), name("wiki"));
    let backends = tenant.backends.iter().map(|config| (config.clone(), listing("page")));
    let picture = Picture { backends: backends.collect(), owners: Arc::new(owners) };
    first.put(&tenant.name, picture);
    write(&first);
    assert!(stored(data.path()).len() <= 2_000);
    // A restart knows what the other one owns.
    let record = Record::new(shelf(data.path(), limits()), tenant.clone(), None);
    assert!(record.begin(&tenant.backends[1]).await.is_some());
    assert_eq!(record.owners().of(List::Tools, "page"), Some(&name("wiki")));
    assert_eq!(files(data.path()), ["acme.json"]);
    // With no room for anything there is none.
    let small = shelf(data.path(), Limits { catalog_file_bytes: 10, ..Limits::default() });
    let kept = stored(data.path());
    small.put(&tenant.name, Picture { backends: Vec::new(), owners: Arc::default() });
    write(&small);
    assert_eq!(stored(data.path()), kept);
    // What is larger is set aside, not overwritten.
    let record = Record::new(small, tenant.clone(), None);
    assert!(record.begin(&tenant.backends[1]).await.is_none());
    assert_eq!(files(data.path()), ["acme.unread"]);
}

#[tokio::test]
async fn what_an_earlier_process_had_begun_to_write_is_removed() {
    for (file, expected) in [
        ("acme.draft.1234", true),
        ("acme.0123456789abcdef.draft", true),
        ("acme.json", false),
        ("acme.unread", false),
        ("acme.draft.txt", false),
        ("README.draft", false),
        ("draft", false),
    ] {
        assert_eq!(is_draft(file), expected, "{file}");
    }
    let data = tempfile::tempdir().unwrap();
    let catalogs = data.path().join("catalogs");
    fs::create_dir(&catalogs).unwrap();
    for file in ["acme.draft.1234", "acme.0123456789abcdef.draft", "acme.json"] {
        fs::write(catalogs.join(file), "{").unwrap();
    }
    let stop = CancellationToken::new();
    stop.cancel();
    shelf(data.path(), Limits::default()).keep(stop).await;
    assert_eq!(files(data.path()), ["acme.json"]);
}
