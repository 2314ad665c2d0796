//! Snapshots, who sees what of them, and pages over a changing one.

use std::collections::BTreeSet;
use std::sync::Arc;

use proptest::prelude::prop;
use proptest::prelude::proptest;
use proptest::prop_assert_eq;

use super::backend;
use super::caller;
use super::home;
use super::limits;
use super::tenant;
use super::tool;
use crate::backend::listing::Listed;
use crate::backend::listing::Listing;
use crate::catalog::cursor::open_cursor;
use crate::catalog::cursor::seal_cursor;
use crate::catalog::owners::Owners;
use crate::catalog::part::Part;
use crate::catalog::snapshot::Snapshot;
use crate::catalog::ui::Host;
use crate::catalog::view::Page;
use crate::model::limits::Limits;
use crate::protocol::methods::List;
use crate::seal::KeyRing;

fn part(config: &Arc<crate::model::tenant::Backend>, names: &[&str]) -> Arc<Part> {
    let listed: Vec<_> = names.iter().map(|name| tool(name)).collect();
    let instructions = Some(format!("About {}.", config.name));
    let listing = Listing { tools: Listed::whole(listed), instructions, ..Listing::default() };
    Arc::new(Part::of(&home(config), &listing, &limits()))
}

fn names(page: &Page) -> Vec<String> {
    page.entries.elements().map(|tool| tool.member("name").unwrap().string().unwrap()).collect()
}

#[test]
fn tools_are_in_the_order_of_public_names_and_found_by_table() {
    let (crm, docs) = (backend("crm", "crm_", &[]), backend("docs", "", &[]));
    let acme = tenant(vec![crm.clone(), docs.clone()], 1);
    let parts = [part(&crm, &["b", "a"]), part(&docs, &["z", "b", "crm", "B"])];
    let snapshot = Snapshot::compose(1, &acme, &parts, &Owners::default(), &limits());
    let page = snapshot.view(List::Tools, &acme, &caller("acme", ""), Host::Plain).page(None);
    assert_eq!(names(&page), ["B", "b", "crm", "crm_a", "crm_b", "z"]);
    assert_eq!(page.next, None);
    assert_eq!(&*snapshot.tools.find("crm_b").unwrap().entry.own, "b");
    assert_eq!(snapshot.tools.find("crm_b").unwrap().entry.backend().as_str(), "crm");
    assert_eq!(snapshot.tools.find("b").unwrap().entry.backend().as_str(), "docs");
    assert!(snapshot.tools.find("crm_z").is_none());
    assert_eq!(snapshot.instructions.as_deref(), Some("Acme's tools.\n\nAbout crm.\n\nAbout docs."));
}

#[test]
fn the_first_backend_that_claims_a_name_owns_it() {
    let (one, two) = (backend("one", "", &[]), backend("two", "", &[]));
    let acme = tenant(vec![one.clone(), two.clone()], 1);
    let snapshot = Snapshot::compose(
        1,
        &acme,
        &[part(&one, &["a", "b"]), part(&two, &["b", "c"])],
        &Owners::default(),
        &limits(),
    );
    assert_eq!(snapshot.tools.len(), 3);
    assert_eq!(snapshot.tools.find("b").unwrap().entry.backend().as_str(), "one");
    assert_eq!(snapshot.left_out.len(), 1);
    assert_eq!(snapshot.left_out[0].backend.as_str(), "two");
    assert_eq!(snapshot.left_out[0].reason, "the public name \"b\" belongs to backend `one`");
}

#[test]
fn callers_see_what_their_scopes_allow_and_share_views() {
    let crm = backend("crm", "", &[("*", "read"), ("delete", "write")]);
    let acme = tenant(vec![crm.clone()], 1);
    let snapshot =
        Snapshot::compose(1, &acme, &[part(&crm, &["find", "delete"])], &Owners::default(), &limits());
    let seen = |of: &str, scopes: &str| {
        names(&snapshot.view(List::Tools, &acme, &caller(of, scopes), Host::Plain).page(None)).join(" ")
    };
    for (scopes, expected) in [
        ("", ""),
        ("read", "find"),
        ("write", ""),
        ("read write", "delete find"),
        ("admin", "delete find"),
        ("read x", "find"),
    ] {
        assert_eq!(seen("acme", scopes), expected, "{scopes:?}");
        // Another tenant's caller sees nothing, before and after the view is there.
        assert_eq!(seen("other", scopes), "");
        assert_eq!(seen("acme", scopes), expected, "{scopes:?}");
    }
    let (one, two) = (caller("acme", "admin"), caller("acme", "read write more"));
    assert!(Arc::ptr_eq(
        &snapshot.view(List::Tools, &acme, &one, Host::Plain),
        &snapshot.view(List::Tools, &acme, &two, Host::Plain)
    ));
}

#[test]
fn cursors_open_for_their_list_and_principal_only() {
    let ring = KeyRing::new(vec![[3; 32]]).unwrap();
    let (acme, other) = (caller("acme", "").tenant, caller("other", "").tenant);
    let cursor = seal_cursor(&ring, &acme, "alice", List::Tools, "find", 100);
    let open = |tenant, principal, kind, now| open_cursor(&ring, tenant, principal, kind, &cursor, now);
    assert_eq!(open(&acme, "alice", List::Tools, 101).unwrap(), "find");
    assert!(open(&other, "alice", List::Tools, 101).is_err());
    assert!(open(&acme, "bob", List::Tools, 101).is_err());
    assert!(open(&acme, "alice", List::Prompts, 101).is_err());
    assert!(open(&acme, "alice", List::Tools, 100 + 24 * 3600).is_err());
    assert!(open_cursor(&ring, &acme, "alice", List::Tools, "", 101).is_err());
}

#[test]
fn a_page_ends_at_its_bytes_and_has_one_tool_at_least() {
    let crm = backend("crm", "", &[]);
    let acme = tenant(vec![crm.clone()], 1);
    let sized = |n: usize, bytes: usize| {
        let filler = "x".repeat(bytes);
        super::json(&format!(
            r#"{{"name":"t{n:03}","inputSchema":{{"type":"object"}},"_meta":{{"a":"{filler}"}}}}"#
        ))
    };
    let mut listed: Vec<_> = (0..100).map(|n| sized(n, n * 500)).collect();
    listed.push(sized(100, 3 << 20));
    listed.extend((101..120).map(|n| sized(n, 0)));
    let listing = Listing { tools: Listed::whole(listed), ..Listing::default() };
    let part = Arc::new(Part::of(&home(&crm), &listing, &limits()));
    for (page_size, page_bytes) in [(500, 1 << 20), (500, 100 << 10), (7, 100 << 10), (500, 1)] {
        let limits = Limits { page_size, page_bytes, ..limits() };
        let snapshot = Snapshot::compose(1, &acme, std::slice::from_ref(&part), &Owners::default(), &limits);
        let view = snapshot.view(List::Tools, &acme, &caller("acme", ""), Host::Plain);
        let (mut shown, mut last, mut pages) = (Vec::new(), None, 0);
        loop {
            let page = view.page(last.as_deref());
            let names = names(&page);
            assert!((1..=page_size).contains(&names.len()));
            assert!(
                names.len() == 1 || page.entries.bytes().len() <= page_bytes,
                "{}",
                page.entries.bytes().len()
            );
            shown.extend(names);
            pages += 1;
            match page.next {
                Some(next) => last = Some(next),
                None => break,
            }
        }
        assert_eq!(shown, (0..120).map(|n| format!("t{n:03}")).collect::<Vec<_>>());
        assert!(pages >= 4, "{pages} of {page_bytes}");
        assert_eq!(pages == 120, page_bytes == 1);
    }
}

proptest! {
    /// Pages over a catalog that changes between any two of them.
    #[test]
    fn what_stays_is_shown_exactly_once(
        stay in prop::collection::btree_set("[a-c]{1,3}", 1..12),
        changing in prop::collection::vec(prop::collection::btree_set("[a-c]{1,3}", 0..8), 12),
        page_size in 1usize..5,
    ) {
        let crm = backend("crm", "", &[]);
        let acme = tenant(vec![crm.clone()], 1);
        let limits = Limits { page_size, ..limits() };
        let mut shown = Vec::new();
        let mut last: Option<Arc<str>> = None;
        for visit in 0.. {
            let now: BTreeSet<_> = stay.iter().chain(&changing[visit % changing.len()]).map(|name| &**name).collect();
            let now: Vec<_> = now.into_iter().collect();
            let snapshot = Snapshot::compose(visit as u64, &acme, &[part(&crm, &now)], &Owners::default(), &limits);
            let page = snapshot.view(List::Tools, &acme, &caller("acme", ""), Host::Plain).page(last.as_deref());
            shown.extend(names(&page));
            match page.next {
                Some(next) => last = Some(next),
                None => break,
            }
        }
        let stayed: Vec<_> = shown.iter().filter(|name| stay.contains(*name)).collect();
        prop_assert_eq!(stayed, stay.iter().collect::<Vec<_>>());
        let unique: BTreeSet<_> = shown.iter().collect();
        prop_assert_eq!(unique.len(), shown.len());
    }
}
