//! Tables of globs, rules and decisions.

use std::sync::Arc;
use std::time::Duration;

use super::Decision;
use super::Operation;
use super::Target;
use super::decide;
use super::glob;
use super::scope;
use crate::model::caller::Caller;
use crate::model::clock::cpu_time;
use crate::model::name::BackendName;
use crate::model::name::TenantName;
use crate::model::scope::Scopes;
use crate::model::tenant::Backend;
use crate::model::tenant::BackendKind;
use crate::model::tenant::Catalog;
use crate::model::tenant::ObjectKind;
use crate::model::tenant::ScopeRule;
use crate::model::tenant::Tenant;
use crate::model::tenant::Uris;
use crate::model::tenant::Validate;

fn rule(kind: Option<ObjectKind>, glob: &str, needs: &str) -> ScopeRule {
    ScopeRule { kind, glob: glob.into(), needs: Scopes::parse(needs) }
}

fn backend(scopes: Vec<ScopeRule>) -> Arc<Backend> {
    Arc::new(Backend {
        name: BackendName::new("crm").unwrap(),
        kind: BackendKind::Demo,
        prefix: "crm_".into(),
        uris: Uris::Keep,
        timeout: Duration::from_secs(60),
        extensions: Vec::new(),
        idle_timeout: Duration::from_secs(30),
        scopes,
        credential: None,
        refused: Vec::new(),
        validate: Validate::default(),
        catalog: Catalog::default(),
    })
}

fn tenant(implies: &[(&str, &str)]) -> Tenant {
    Tenant {
        name: TenantName::new("acme").unwrap(),
        instructions: None,
        scopes_offered: Scopes::default(),
        scope_implies: implies.iter().map(|(scope, all)| (Arc::from(*scope), Scopes::parse(all))).collect(),
        handshake: true,
        public_catalog: false,
        backends: vec![],
        digest: 0,
    }
}

fn caller(tenant: &str, scopes: &str) -> Caller {
    Caller {
        tenant: TenantName::new(tenant).unwrap(),
        issuer: "https://issuer.example".into(),
        subject: "alice".into(),
        client: None,
        scopes: Scopes::parse(scopes),
        expires_at: u64::MAX,
    }
}

#[test]
fn globs() {
    for (pattern, name, fits) in [
        ("*", "", true),
        ("*", "anything", true),
        ("", "", true),
        ("", "a", false),
        ("delete_*", "delete_", true),
        ("delete_*", "delete_user", true),
        ("delete_*", "undelete_user", false),
        ("*_user", "delete_user", true),
        ("*_user", "delete_users", false),
        ("a*b*c", "a-b-b-c", true),
        ("a*b*c", "a-c-b", false),
        ("?", "é", true),
        ("?", "", false),
        ("?", "ab", false),
        ("a?c", "abc", true),
        ("Read", "read", false),
        ("[a]", "a", false),
        ("**", "x", true),
        ("*a*", "bbb", false),
        ("file:///*", "file:///etc/a b", true),
    ] {
        assert_eq!(glob::matches(pattern, name), fits, "{pattern:?} {name:?}");
    }
}

#[test]
fn a_glob_of_stars_ends_soon() {
    let before = cpu_time();
    assert!(!glob::matches(&"*a".repeat(500), &"a".repeat(499)));
    assert!(!glob::matches(&format!("{}b", "a*".repeat(500)), &"a".repeat(5_000)));
    assert!(cpu_time() - before < Duration::from_secs(1));
}

#[test]
fn needs_are_the_union_of_all_rules_that_match() {
    let crm = backend(vec![
        rule(None, "*", "crm.read"),
        rule(Some(ObjectKind::Tool), "delete_*", "crm.write"),
        rule(Some(ObjectKind::Prompt), "delete_*", "crm.prompt"),
        rule(None, "delete_all", "crm.admin"),
    ]);
    for (kind, name, needs) in [
        (ObjectKind::Tool, "find", "crm.read"),
        (ObjectKind::Tool, "delete_one", "crm.read crm.write"),
        (ObjectKind::Tool, "delete_all", "crm.admin crm.read crm.write"),
        (ObjectKind::Prompt, "delete_one", "crm.prompt crm.read"),
        (ObjectKind::Resource, "delete_one", "crm.read"),
    ] {
        assert_eq!(scope::needed(&crm, kind, name).joined(), needs, "{kind:?} {name}");
    }
    assert!(scope::needed(&backend(vec![]), ObjectKind::Tool, "find").is_empty());
}

#[test]
fn decisions() {
    let acme = tenant(&[("crm.admin", "crm.read crm.write")]);
    let missing = |needs: &str| Decision::NeedsScopes(Scopes::parse(needs));
    for (of, held, needs, expected) in [
        ("acme", "", "", Decision::Allow),
        ("acme", "x", "", Decision::Allow),
        ("acme", "crm.read", "crm.read", Decision::Allow),
        ("acme", "crm.read", "crm.read crm.write", missing("crm.read crm.write")),
        ("acme", "crm.admin", "crm.read crm.write", Decision::Allow),
        ("acme", "crm.admin", "crm.read other", missing("crm.read other")),
        // Hierarchies lead down only.
        ("acme", "crm.read crm.write", "crm.admin", missing("crm.admin")),
        ("acme", "crm", "crm.read", missing("crm.read")),
        ("other", "crm.admin", "crm.read", Decision::Hidden),
        ("other", "", "", Decision::Hidden),
    ] {
        let crm = BackendName::new("crm").unwrap();
        let needs = Scopes::parse(needs);
        let target = Target { backend: &crm, kind: ObjectKind::Tool, own_name: "find", needs: &needs };
        for operation in
            [Operation::List, Operation::Call, Operation::Read, Operation::Get, Operation::Complete]
        {
            let decision = decide(&caller(of, held), &acme, operation, &target);
            assert_eq!(decision, expected, "{of} holds {held:?}, needs {needs:?}");
        }
    }
}
