//! Who owns a public name, and for how long.

use std::sync::Arc;

use super::backend;
use super::home;
use super::json;
use super::limits;
use super::tenant;
use super::tool;
use crate::backend::listing::Listed;
use crate::backend::listing::Listing;
use crate::catalog::owners::Owners;
use crate::catalog::part::Part;
use crate::catalog::snapshot::Snapshot;
use crate::model::limits::Limits;
use crate::model::tenant::Backend;
use crate::model::tenant::Catalog;
use crate::protocol::methods::List;

fn part(config: &Arc<Backend>, tools: Listed) -> Arc<Part> {
    let listing = Listing { tools, ..Listing::default() };
    Arc::new(Part::of(&home(config), &listing, &limits()))
}

fn find() -> Listed {
    Listed::whole(vec![tool("find")])
}

#[test]
fn a_name_is_its_owners_until_that_gives_it_up() {
    let (one, two) = (backend("one", "", &[]), backend("two", "", &[]));
    let acme = tenant(vec![one.clone(), two.clone()], 1);
    let compose = |parts: &[Arc<Part>], owners: &Owners| {
        Snapshot::compose(1, &acme, parts, &owners.still(parts), &limits())
    };
    let owner = |snapshot: &Snapshot| {
        snapshot.tools.find("find").map(|tool| tool.entry.backend().as_str().to_owned())
    };
    // Only the second has it.
    let parts = [part(&one, Listed::whole(vec![])), part(&two, find())];
    let owners = Owners::default().after(&parts, &compose(&parts, &Owners::default()), &limits());
    assert_eq!(owners.of(List::Tools, "find").unwrap().as_str(), "two");
    let cut = Listed::Known { entries: vec![], truncated: Some("it is long") };
    let broken = Listed::whole(vec![json(r#"{"name":"find"}"#)]);
    for (what, second, expected) in [
        ("both list it", Some(find()), Some("two")),
        ("its owner was not reached", None, None),
        ("its owner never gave the list", Some(Listed::Unknown), None),
        ("its owner's list is cut", Some(cut), None),
        ("its owner lists it and it cannot be used", Some(broken), None),
        ("its owner does not list it", Some(Listed::whole(vec![tool("other")])), Some("one")),
        ("its owner has no tools any more", Some(Listed::Absent), Some("one")),
    ] {
        let second = second.map(|tools| part(&two, tools));
        let parts: Vec<_> = [part(&one, find())].into_iter().chain(second).collect();
        let snapshot = compose(&parts, &owners);
        assert_eq!(owner(&snapshot).as_deref(), expected, "{what}");
        let told = snapshot.left_out.iter().any(|remark| {
            remark.backend.as_str() == "one" && remark.reason.contains("belongs to backend `two`")
        });
        assert_eq!(told, expected != Some("one"), "{what}: {:?}", snapshot.left_out);
        // What is kept of it is what the next one sees.
        let after = owners.after(&parts, &snapshot, &limits());
        let kept = after.of(List::Tools, "find").unwrap().as_str();
        assert_eq!(kept, expected.unwrap_or("two"), "{what}");
    }
    let without = tenant(vec![one.clone()], 2);
    assert_eq!(owners.among(&without), Owners::default(), "a backend that is gone owns nothing");
    assert_eq!(owners.among(&acme), owners);
    let each =
        |config: &Arc<Backend>| Arc::new(Backend { catalog: Catalog::PerCaller, ..Backend::clone(config) });
    let each = tenant(acme.backends.iter().map(each).collect(), 3);
    assert_eq!(owners.among(&each), Owners::default(), "what is listed for one caller owns nothing");
}

#[test]
fn a_backend_that_renames_everything_owns_so_many_names_and_what_it_lists_is_among_them() {
    let (one, two) = (backend("one", "", &[]), backend("two", "", &[]));
    let acme = tenant(vec![one.clone(), two.clone()], 1);
    let limits = Limits { upstream_tools: 3, ..limits() };
    let cut = |names: &[String]| Listed::Known {
        entries: names.iter().map(|name| tool(name)).collect(),
        truncated: Some("it is long"),
    };
    // The other one's list is cut, too, and shorter than it was: its names stay.
    let mine = ["a", "b", "c"].map(str::to_owned);
    let mut owners = Owners::default();
    for round in 0..20 {
        let names = [0, 1, 2].map(|n| format!("t{round}_{n}"));
        let parts = [part(&one, cut(&names)), part(&two, cut(if round == 0 { &mine } else { &mine[..1] }))];
        let snapshot = Snapshot::compose(round, &acme, &parts, &owners.still(&parts), &limits);
        owners = owners.after(&parts, &snapshot, &limits);
        for (name, owner) in
            names.iter().map(|name| (name, "one")).chain(mine.iter().map(|name| (name, "two")))
        {
            assert_eq!(
                owners.of(List::Tools, name).map(|owner| owner.as_str()),
                Some(owner),
                "{round}: {name}"
            );
        }
        assert!(owners.iter().count() <= 6 + 3, "{round}: {owners:?}");
    }
}
