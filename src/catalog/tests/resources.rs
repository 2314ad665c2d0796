//! Prompts, resources and templates: which are taken, under which names, and where a URI leads.

use std::sync::Arc;

use super::backend;
use super::caller;
use super::home;
use super::json;
use super::limits;
use super::tenant;
use crate::backend::listing::Listed;
use crate::backend::listing::Listing;
use crate::catalog::admission::Admission;
use crate::catalog::admission::admit;
use crate::catalog::owners::Owners;
use crate::catalog::part::Part;
use crate::catalog::snapshot::Snapshot;
use crate::catalog::ui::Host;
use crate::model::limits::Limits;
use crate::model::tenant::Backend;
use crate::model::tenant::Catalog;
use crate::protocol::json::Json;
use crate::protocol::methods::List;

/// A listing with these entries in one list, and the others empty.
fn listing(list: List, entries: &[&str]) -> Listing {
    let mut listing = Listing::default();
    List::ALL.iter().for_each(|list| *listing.of_mut(*list) = Listed::whole(Vec::new()));
    *listing.of_mut(list) = Listed::whole(entries.iter().map(|entry| json(entry)).collect());
    listing
}

fn admitted(config: &Arc<Backend>, list: List, entries: &[&str]) -> Admission {
    admit(&home(config), &limits(), &listing(list, entries))
}

/// Why the one entry was left out; its sibling is in the catalog.
fn reason(list: List, raw: &str) -> String {
    let sibling = match list {
        List::Tools => r#"{"name":"sibling","inputSchema":{"type":"object"}}"#,
        List::Prompts => r#"{"name":"sibling"}"#,
        List::Resources => r#"{"uri":"sib:ling","name":"sibling"}"#,
        List::Templates => r#"{"uriTemplate":"sib:{ling}","name":"sibling"}"#,
    };
    let mut admission = admitted(&backend("crm", "crm_", &[]), list, &[raw, sibling]);
    let taken = [&admission.tools.len(), &admission.prompts.len(), &admission.resources.len()];
    let taken = taken.into_iter().sum::<usize>() + admission.templates.len();
    assert_eq!((taken, admission.left_out.len()), (1, 1), "{raw}: {:?}", admission.left_out);
    assert_eq!(admission.left_out[0].list, list);
    admission.left_out.remove(0).reason
}

// LT-14
#[test]
fn a_bad_prompt_is_left_out_and_its_sibling_stays() {
    let deep = format!(r#"{{"name":"a","x":{}1{}}}"#, "[".repeat(70), "]".repeat(70));
    for (raw, expected) in [
        ("7", "it is not an object"),
        (&*deep, "it is nested deeper than 64 levels"),
        ("{}", "its `name` has the wrong type"),
        (r#"{"name":""}"#, "its name is empty"),
        (r#"{"name":"a\u202eb"}"#, "its name has a character that cannot be seen"),
        (r#"{"name":"a","title":7}"#, "its `title` has the wrong type"),
        (r#"{"name":"a","arguments":{}}"#, "its `arguments` has the wrong type"),
        (r#"{"name":"a","arguments":[7]}"#, "its `arguments` has the wrong type"),
        (r#"{"name":"a","arguments":[{}]}"#, "its `arguments` has the wrong type"),
        (r#"{"name":"a","arguments":[{"name":"x","required":1}]}"#, "its `arguments` has the wrong type"),
        (r#"{"name":"a","arguments":[{"name":"x"},{"name":"x"}]}"#, "its `arguments` has the wrong type"),
        (r#"{"name":"a","arguments":[{"name":"x\u200b"}]}"#, "its `arguments` has the wrong type"),
    ] {
        assert_eq!(reason(List::Prompts, raw), expected, "{raw:.200}");
    }
}

// LT-13
#[test]
fn a_bad_resource_or_template_is_left_out_and_its_sibling_stays() {
    let long = format!(r#"{{"uri":"x:{}","name":"a"}}"#, "a".repeat(2048));
    let long_template = format!(r#"{{"uriTemplate":"x:{{a}}{}","name":"a"}}"#, "a".repeat(2048));
    for (list, raw, expected) in [
        (List::Resources, r#"{"name":"a"}"#, "its `uri` has the wrong type"),
        (List::Resources, r#"{"uri":"x:a"}"#, "its `name` has the wrong type"),
        (List::Resources, r#"{"uri":"x:a","name":7}"#, "its `name` has the wrong type"),
        (List::Resources, r#"{"uri":"a","name":"a"}"#, "its URI does not begin with a scheme"),
        (List::Resources, r#"{"uri":"","name":"a"}"#, "its URI does not begin with a scheme"),
        (List::Resources, r#"{"uri":"x:a\nb","name":"a"}"#, "its URI has a character that cannot be seen"),
        (
            List::Resources,
            r#"{"uri":"x:a\u2066b","name":"a"}"#,
            "its URI has a character that cannot be seen",
        ),
        (
            List::Resources,
            r#"{"uri":"file:///a/../b","name":"a"}"#,
            "its URI has dot segments or backslashes",
        ),
        (List::Resources, &*long, "its URI is longer than 2048 bytes"),
        (List::Resources, r#"{"uri":"x:a","name":"a","size":"1"}"#, "its `size` has the wrong type"),
        (List::Resources, r#"{"uri":"x:a","name":"a","mimeType":1}"#, "its `mimeType` has the wrong type"),
        (
            List::Resources,
            r#"{"uri":"x:a","name":"a","annotations":{"priority":2}}"#,
            "its `annotations` has the wrong type",
        ),
        (
            List::Resources,
            r#"{"uri":"x:a","name":"a","annotations":{"audience":["all"]}}"#,
            "its `annotations` has the wrong type",
        ),
        (
            List::Resources,
            r#"{"uri":"x:a","name":"a","annotations":{"lastModified":1}}"#,
            "its `annotations` has the wrong type",
        ),
        (List::Resources, r#"{"uri":"x:a","name":"a","icons":7}"#, "its `icons` has the wrong type"),
        (List::Templates, r#"{"name":"a"}"#, "its `uriTemplate` has the wrong type"),
        (List::Templates, r#"{"uriTemplate":"x:{","name":"a"}"#, "its `uriTemplate` is no URI template"),
        (List::Templates, r#"{"uriTemplate":"{+any}","name":"a"}"#, "its URI does not begin with a scheme"),
        (
            List::Templates,
            r#"{"uriTemplate":"{scheme}://a","name":"a"}"#,
            "its URI does not begin with a scheme",
        ),
        (
            List::Templates,
            r#"{"uriTemplate":"x:/../{a}","name":"a"}"#,
            "its URI has dot segments or backslashes",
        ),
        (List::Templates, &*long_template, "its URI is longer than 2048 bytes"),
        (List::Templates, r#"{"uriTemplate":"x:{a}"}"#, "its `name` has the wrong type"),
    ] {
        assert_eq!(reason(list, raw), expected, "{raw:.200}");
    }
    let twice = r#"{"uri":"sib:ling","name":"again"}"#;
    let admission = admitted(&backend("crm", "", &[]), List::Resources, &[twice, twice]);
    assert_eq!(admission.left_out[0].reason, "an earlier resource of the backend has the same name");
}

#[test]
fn members_are_kept_and_texts_for_people_are_cleaned() {
    let crm = backend("crm", "crm_", &[]);
    let prompts = [
        r#"{ "name":"gr\u0065et", "x":1e400, "title":"a\u200bb", "arguments":[{"name":"n","description":"\u001b[31mred","y":null},{"name":"m"}] }"#,
    ];
    let admission = admitted(&crm, List::Prompts, &prompts);
    let prompt = &admission.prompts[0];
    assert_eq!((&*prompt.entry.public, &*prompt.entry.own), ("crm_greet", "greet"));
    assert_eq!(
        prompt.entry.descriptor.text(),
        r#"{"name":"crm_greet","x":1e400,"title":"ab","arguments":[{"name":"n","description":"red","y":null},{"name":"m"}]}"#
    );
    assert_eq!(admission.cleaned[0].reason, "its `arguments` had hidden characters or was too long");
    assert_eq!(admission.cleaned.len(), 1);
    let resources = [
        r#"{"uri":"note://caf\u00e9","name":"N\u202e","size":9007199254740993,"annotations":{"audience":["user"],"priority":0.5},"_meta":{"ui":{"resourceUri":"ui://a"}}}"#,
        r#"{"uri":"note://2","name":"two"}"#,
    ];
    let admission = admitted(&crm, List::Resources, &resources);
    assert_eq!(
        admission.resources[0].descriptor.text(),
        "{\"uri\":\"crm+note://caf\u{e9}\",\"name\":\"N\",\"size\":9007199254740993,\"annotations\":{\"audience\":[\"user\"],\"priority\":0.5},\"_meta\":{\"ui\":{\"resourceUri\":\"ui://a\"}}}"
    );
    assert_eq!(admission.resources[1].descriptor.text(), r#"{"uri":"crm+note://2","name":"two"}"#);
    let templates = [r#"{"uriTemplate":"note://{id}{?q}","name":"t","mimeType":"text/plain"}"#];
    let shown = |config: &Arc<Backend>| {
        admitted(config, List::Templates, &templates).templates[0].entry.descriptor.text().to_owned()
    };
    assert_eq!(shown(&crm), r#"{"uriTemplate":"crm+note://{id}{?q}","name":"t","mimeType":"text/plain"}"#);
    assert_eq!(shown(&backend("crm", "", &[])), templates[0]);
}

// BW-17
#[test]
fn icons_that_no_client_may_load_are_dropped() {
    let icons = [
        "https://a.example/i.png",
        "javascript:alert(1)",
        "JavaScript:alert(1)",
        " javascript:alert(1)",
        "file:///etc/passwd",
        "ftp://a.example/i.png",
        "ws://a.example",
        "/i.png",
        "",
        "\u{e9}\u{e9}\u{e9}",
        "HTTPS://a.example/i.png",
        "http://a.example/i.png",
        "data:image/png;base64,AA==",
    ];
    let icons: Vec<_> = icons.iter().map(|src| format!(r#"{{"src":"{src}"}}"#)).collect();
    let icons = icons.join(",");
    for (list, entry) in [
        (List::Tools, r#""name":"a","inputSchema":{"type":"object"}"#),
        (List::Prompts, r#""name":"a""#),
        (List::Resources, r#""uri":"x:a","name":"a""#),
        (List::Templates, r#""uriTemplate":"x:{a}","name":"a""#),
    ] {
        let raw = format!(r#"{{{entry},"icons":[{icons}]}}"#);
        let crm = backend("crm", "", &[]);
        let part = Part::of(&home(&crm), &listing(list, &[&raw]), &limits());
        assert_eq!(
            part.admission.cleaned[0].reason,
            "its `icons` had some that are neither on the web nor data"
        );
        let acme = tenant(vec![crm], 1);
        let snapshot = Snapshot::compose(1, &acme, &[Arc::new(part)], &Owners::default(), &limits());
        let page = snapshot.view(list, &acme, &caller("acme", ""), Host::Plain).page(None);
        let shown = page.entries.elements().next().unwrap().member("icons").unwrap();
        let kept: Vec<_> =
            shown.elements().map(|icon| icon.member("src").unwrap().string().unwrap()).collect();
        let expected = [
            "https://a.example/i.png",
            "HTTPS://a.example/i.png",
            "http://a.example/i.png",
            "data:image/png;base64,AA==",
        ];
        assert_eq!(kept, expected, "{list:?}");
    }
}

#[test]
fn a_tools_view_is_shown_as_its_resource_is() {
    let raw = r#"{"name":"a","inputSchema":{"type":"object"},"_meta":{"ui":{"resourceUri":"ui://v","x":1},"ui/resourceUri":"ui://v","y":"ui://v"}}"#;
    let shown = |config: &Arc<Backend>| {
        let admission = admitted(config, List::Tools, &[raw]);
        admission.tools[0].entry.descriptor.member("_meta").unwrap().text().to_owned()
    };
    let expected = r#"{"ui":{"resourceUri":"crm+ui://v","x":1},"ui/resourceUri":"crm+ui://v","y":"ui://v"}"#;
    assert_eq!(shown(&backend("crm", "crm_", &[])), expected);
    assert_eq!(shown(&backend("crm", "", &[])), expected.replace("crm+", ""));
    let odd = r#"{"name":"a","inputSchema":{"type":"object"},"_meta":{"ui":{"resourceUri":7},"ui/resourceUri":"https://v"}}"#;
    let admission = admitted(&backend("crm", "crm_", &[]), List::Tools, &[odd]);
    assert_eq!(admission.tools[0].entry.descriptor.member("_meta"), json(odd).member("_meta"));
}

fn resources(uris: &[&str], templates: &[&str]) -> Listing {
    let entry = |key: &str, uri: &&str| json(&format!(r#"{{"{key}":"{uri}","name":"n"}}"#));
    let mut listing = listing(List::Tools, &[]);
    listing.resources = Listed::whole(uris.iter().map(|uri| entry("uri", uri)).collect());
    listing.templates = Listed::whole(templates.iter().map(|uri| entry("uriTemplate", uri)).collect());
    listing
}

fn part(config: &Arc<Backend>, listing: &Listing) -> Arc<Part> {
    Arc::new(Part::of(&home(config), listing, &limits()))
}

/// Where a URI leads: `backend own`, and `!` behind it where no list shows it.
fn leads(snapshot: &Snapshot, uri: &str) -> String {
    snapshot.resource(uri).map_or_else(String::new, |entry| {
        format!("{} {}{}", entry.backend(), entry.own, if entry.is_listed() { "" } else { "!" })
    })
}

// LT-13
#[test]
fn a_uri_leads_to_one_backend_or_nowhere() {
    let (crm, wiki) = (backend("crm", "crm_", &[]), backend("wiki", "", &[]));
    let (docs, tools) = (backend("docs", "", &[]), backend("tools", "t_", &[]));
    let acme = tenant(vec![crm.clone(), wiki.clone(), docs.clone(), tools.clone()], 1);
    let mut without = resources(&[], &[]);
    (without.resources, without.templates) = (Listed::Absent, Listed::Absent);
    let parts = [
        part(&crm, &resources(&["x://1", "same://a"], &["x://{n}"])),
        part(
            &wiki,
            &resources(&["page://1", "same://a"], &["page://{id}", "page://{id}/raw", "any:{+rest}"]),
        ),
        part(&docs, &resources(&["doc://1", "page://1", "crm+x://9"], &["page://{a}", "tools+x:{a}"])),
        part(&tools, &without),
    ];
    let snapshot = Snapshot::compose(1, &acme, &parts, &Owners::default(), &limits());
    for (uri, expected) in [
        // The backend that it begins with, listed or not.
        ("crm+x://1", "crm x://1"),
        ("crm+x://2", "crm x://2!"),
        ("crm+same://a", "crm same://a"),
        ("crm+page://1", "crm page://1!"),
        ("crm+any+thing:x", "crm any+thing:x!"),
        ("crm+http://169.254.169.254/", "crm http://169.254.169.254/!"),
        // Which has to be one that has resources.
        ("tools+x://1", ""),
        // An exact URI of those that keep theirs: the first in the tenant's order.
        ("page://1", "wiki page://1"),
        ("same://a", "wiki same://a"),
        ("doc://1", "docs doc://1"),
        // A template, the most specific first.
        ("page://7", "wiki page://7!"),
        ("page://7/raw", "wiki page://7/raw!"),
        ("any:7/8", "wiki any:7/8!"),
        // Two could have it.
        ("doc://2", ""),
        ("x://1", ""),
        ("wiki+page://1", ""),
        ("CRM+x://1", ""),
        ("nobody+x://1", ""),
        // What no server should follow.
        ("crm+x://a/../b", ""),
        ("crm+x://a/%2e%2e/b", ""),
        ("page://a/../b", ""),
        ("any:..", ""),
        ("any:a\\b", ""),
        ("crm+", ""),
        ("crm+x", ""),
        ("+x://1", ""),
        ("", ""),
    ] {
        assert_eq!(leads(&snapshot, uri), expected, "{uri}");
    }
    let left_out: Vec<_> = snapshot
        .left_out
        .iter()
        .map(|remark| format!("{} {}: {}", remark.backend, remark.name, remark.reason))
        .collect();
    assert_eq!(
        left_out,
        [
            "docs page://1: the public name \"page://1\" belongs to backend `wiki`",
            "docs crm+x://9: the public name \"crm+x://9\" belongs to backend `crm`",
            "docs tools+x:{a}: the public name \"tools+x:{a}\" belongs to backend `tools`",
        ]
    );
    // The only backend that keeps its URIs has those that nobody knows.
    let acme = tenant(vec![crm.clone(), wiki.clone()], 2);
    let snapshot = Snapshot::compose(1, &acme, &parts[..2], &Owners::default(), &limits());
    for (uri, expected) in
        [("doc://2", "wiki doc://2!"), ("crm+x://2", "crm x://2!"), ("file:///a/../b", ""), ("relative", "")]
    {
        assert_eq!(leads(&snapshot, uri), expected, "{uri}");
    }
}

// What all share goes before what is one caller's own, step by step.
#[test]
fn a_uri_leads_to_what_all_share_first() {
    let (wiki, docs, mine) = (backend("wiki", "", &[]), backend("docs", "d_", &[]), backend("mine", "", &[]));
    let each = Arc::new(Backend { catalog: Catalog::PerCaller, ..Backend::clone(&mine) });
    let acme = tenant(vec![each.clone(), wiki.clone(), docs.clone()], 1);
    let own =
        [part(&each, &resources(&["page://1", "page://2", "docs+x://1"], &["page://{a}/{b}", "own:{a}"]))];
    for (shared, uri, expected) in [
        (&["wiki"][..], "page://1", "wiki page://1"),
        (&["wiki"], "page://2", "mine page://2"),
        (&["wiki"], "page://7", "wiki page://7!"),
        (&["wiki"], "page://7/raw", "wiki page://7/raw!"),
        (&["wiki"], "own:7", "mine own:7!"),
        (&["wiki"], "any:7", "wiki any:7!"),
        (&["wiki"], "docs+x://1", ""),
        (&["docs"], "page://1", "mine page://1"),
        (&["docs"], "any:7", "mine any:7!"),
        (&["docs"], "docs+x://1", "docs x://1!"),
    ] {
        let parts: Vec<_> = [(&wiki, "wiki"), (&docs, "docs")]
            .into_iter()
            .filter(|(_, name)| shared.contains(name))
            .map(|(config, _)| part(config, &resources(&["page://1"], &["page://{+rest}"])))
            .collect();
        let snapshot = Snapshot::compose(1, &acme, &parts, &Owners::default(), &limits());
        let seen = snapshot.with(&acme, &own, &Owners::default(), true, &limits());
        assert_eq!(leads(&seen, uri), expected, "{shared:?} {uri}");
    }
}

#[test]
fn what_nobody_lists_needs_what_rules_and_templates_say() {
    let rules = [
        ("file:///secret/*", "secret"),
        ("note://{id}", "notes"),
        ("note://*", "read"),
        ("db://{table}/*", "db"),
        ("resource-free", "never"),
    ];
    let crm = backend("crm", "", &rules);
    let acme = tenant(vec![crm.clone()], 1);
    let parts = [part(
        &crm,
        &resources(
            &["note://1", "file:///%73ecret/listed", "FILE://localhost//secret/listed/"],
            &["note://{id}", "note://{id}/{x}", "db://{table}/Caf%C3%A9:all"],
        ),
    )];
    let snapshot = Snapshot::compose(1, &acme, &parts, &Owners::default(), &limits());
    for (uri, needs) in [
        ("note://1", "read"),
        ("note://2", "notes read"),
        ("note://2/3", "read"),
        ("file:///public", ""),
        ("file:///secret/a", "secret"),
        ("FILE:///secret/a", "secret"),
        ("file:///%73ecret/a", "secret"),
        ("file:///%73ecret/listed", "secret"),
        ("FILE://localhost//secret/listed/", "secret"),
        ("db://users/caf%c3%a9:all", "db"),
        ("db://a%2Fb/c%61f%C3%A9%3Aall?x", "db"),
        ("db://users:7/caf%C3%A9:all", "db"),
        ("db://users/caf%C3%A9", ""),
    ] {
        assert_eq!(snapshot.resource(uri).expect(uri).needs.joined(), needs, "{uri}");
    }
    // Other spellings are nobody's.
    for uri in [
        "file:///%2573ecret/a",
        "file:////secret//a",
        "file:/secret/a",
        "file://localhost/secret/a",
        "file:///%73ecret/listed/",
        "db://users//caf%C3%A9:all",
        "db://users/caf\u{e9}:all",
        "public://a/",
    ] {
        assert!(snapshot.resource(uri).is_none(), "{uri}");
    }
    // Where nothing hangs on a URI, its spelling is its server's affair.
    let crm = backend("crm", "", &[("*", "all")]);
    let acme = tenant(vec![crm.clone()], 2);
    let snapshot = Snapshot::compose(
        1,
        &acme,
        &[part(&crm, &resources(&[], &["x://{id}//"]))],
        &Owners::default(),
        &limits(),
    );
    for uri in ["file:////secret//a", "x://1//", "caf:\u{e9}/"] {
        assert_eq!(snapshot.resource(uri).expect(uri).needs.joined(), "all", "{uri}");
    }
    // What a template that is not plain may have made cannot be told.
    let crm = backend("crm", "", &[("x://{id}*", "odd")]);
    let acme = tenant(vec![crm.clone()], 3);
    let snapshot = Snapshot::compose(
        1,
        &acme,
        &[part(&crm, &resources(&[], &["x://{id}//"]))],
        &Owners::default(),
        &limits(),
    );
    assert_eq!(snapshot.resource("y://1").unwrap().needs.joined(), "odd");
}

#[test]
fn a_lookup_that_takes_too_long_finds_nothing() {
    let crm = backend("crm", "", &[]);
    let acme = tenant(vec![crm.clone()], 1);
    let literal = "a".repeat(200);
    let heavy = (0..200).map(|n| format!("a:{}{n}{{+y}}", format!("{literal}{{+x}}").repeat(7)));
    let heavy: Vec<_> = heavy.collect();
    let heavy: Vec<_> = heavy.iter().map(String::as_str).collect();
    let snapshot =
        Snapshot::compose(1, &acme, &[part(&crm, &resources(&[], &heavy))], &Owners::default(), &limits());
    assert!(snapshot.resource("b://1").is_some(), "what begins otherwise costs nothing");
    assert!(snapshot.resource(&format!("a:{}", "a".repeat(2000))).is_none());
}

#[test]
fn each_list_has_views_of_its_own() {
    let crm = backend("crm", "", &[("b*", "read"), ("x://b*", "write")]);
    let acme = tenant(vec![crm.clone()], 1);
    let mut listing = resources(&["x://b", "x://a"], &["x://b{n}", "x://{n}"]);
    let prompt = |name: &str| json(&format!(r#"{{"name":"{name}"}}"#));
    listing.prompts = Listed::whole(vec![prompt("b"), prompt("c"), prompt("a")]);
    listing.tools = Listed::whole(vec![super::tool("b"), super::tool("t")]);
    let limits = Limits { page_size: 2, ..limits() };
    let snapshot = Snapshot::compose(1, &acme, &[part(&crm, &listing)], &Owners::default(), &limits);
    let seen = |list: List, scopes: &str, after: Option<&str>| {
        let page = snapshot.view(list, &acme, &caller("acme", scopes), Host::Plain).page(after);
        let name = |entry: Json| entry.member(list.key()).unwrap().string().unwrap();
        let names: Vec<_> = page.entries.elements().map(name).collect();
        format!("{} {}", names.join(" "), page.next.unwrap_or_default())
    };
    for (list, scopes, after, expected) in [
        (List::Tools, "", None, "t "),
        (List::Tools, "read", None, "b t "),
        (List::Prompts, "", None, "a c "),
        (List::Prompts, "read", None, "a b b"),
        (List::Prompts, "read", Some("b"), "c "),
        (List::Resources, "", None, "x://a "),
        (List::Resources, "read", None, "x://a "),
        (List::Resources, "write", None, "x://a x://b "),
        (List::Templates, "", None, "x://{n} "),
        (List::Templates, "admin", None, "x://b{n} x://{n} "),
    ] {
        assert_eq!(seen(list, scopes, after), expected, "{list:?} {scopes:?} {after:?}");
    }
}
