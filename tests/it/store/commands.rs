//! The commands that work on the database itself.

use tokio::process::Command;

use crate::harness::database::Database;
use crate::harness::process;
use crate::store::CLI;

/// Runs `fondaco` with these variables; whether it succeeded, and what it said.
async fn fondaco(arguments: &[&str], variables: &[(&'static str, String)]) -> (bool, String) {
    let mut command: Command = process::fondaco();
    let dir = tempfile::tempdir().unwrap();
    command.args(arguments).envs(variables.iter().map(|(name, value)| (name, value))).current_dir(dir.path());
    process::listen(&mut command).await
}

fn field<'a>(said: &'a str, name: &str) -> &'a str {
    said.lines().find_map(|line| line.strip_prefix(name)).unwrap().trim()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_operator_is_made_on_the_database_itself() {
    for database in [Database::sqlite().await, Database::postgres().await] {
        let variables = database.variables();
        let (made, said) = fondaco(&["operator", "create", "root"], &variables).await;
        assert!(made, "{said}");
        let (id, key) = (field(&said, "operator:"), field(&said, "key:"));
        let (listed, all) = fondaco(&["operator", "list"], &variables).await;
        assert!(listed && all == format!("{id}  owner     -  root\n"), "{all}");
        assert!(!all.contains(key));
        let (again, said) = fondaco(&["operator", "create", "root", "--role", "auditor"], &variables).await;
        assert!(!again && said == "error: there is an operator `root` already\n", "{said}");
        let (nowhere, said) = fondaco(&["operator", "create", "x", "--tenant", "nobody"], &variables).await;
        assert!(!nowhere && said == "error: --tenant: there is no such tenant\n", "{said}");
        let (last, said) = fondaco(&["operator", "revoke", id], &variables).await;
        assert!(!last && said == "error: the last owner of the deployment cannot be removed\n", "{said}");
        let store = database.open().await;
        let found = store.operators().find(key).await.unwrap().unwrap();
        assert_eq!((found.id.as_str(), found.name.as_str()), (id, "root"));
        let (other, _) = store
            .operators()
            .create(&CLI, "other", fondaco::store::operators::Role::Owner, None)
            .await
            .unwrap();
        store.close().await;
        drop(store);
        let (revoked, said) = fondaco(&["operator", "revoke", other.id.as_str()], &variables).await;
        assert!(revoked && said == format!("{} is revoked\n", other.id), "{said}");
        let (unknown, said) = fondaco(&["operator", "revoke", "op-0"], &variables).await;
        assert!(!unknown && said.contains("there is no operator `op-0`"), "{said}");
    }
}

/// STO-10.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_is_migrated_before_it_serves() {
    let database = Database::empty().await;
    let (listed, said) = fondaco(&["operator", "list"], &database.variables()).await;
    assert!(!listed && said.contains("run `fondaco migrate`"), "{said}");
    let mut serve = database.variables();
    serve.extend([
        ("FONDACO_LISTEN", "127.0.0.1:0".to_owned()),
        ("FONDACO_ADMIN__LISTEN", "127.0.0.1:0".to_owned()),
    ]);
    let (served, said) = fondaco(&["serve"], &serve).await;
    assert!(!served && said.contains("error: the database has an older schema"), "{said}");
    for _ in 0..2 {
        let arguments = ["migrate", "--grant", "fondaco_test_serve"];
        let (migrated, said) = fondaco(&arguments, &database.owner_variables()).await;
        assert!(migrated && said == "the database's schema is up to date\n", "{said}");
    }
    let (listed, said) = fondaco(&["operator", "list"], &database.variables()).await;
    assert!(listed && said.is_empty(), "{said}");
    let (migrated, said) = fondaco(&["migrate"], &serve).await;
    assert!(!migrated && said.contains("migrate as the role that owns it"), "{said}");
    database.sql("update _sqlx_migrations set version = 77").await;
    let owner = database.owner_variables();
    for (arguments, variables) in
        [(&["serve"][..], &serve[..]), (&["migrate"], &owner), (&["operator", "list"], &serve)]
    {
        let (done, said) = fondaco(arguments, variables).await;
        assert!(!done && said.contains("newer schema than this program knows (migration 77)"), "{said}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_used_is_told_without_its_password() {
    let (_, said) =
        fondaco(&["migrate"], &[("FONDACO_DATABASE__URL", "mysql://u:hidden@db/x".to_owned())]).await;
    assert!(said.contains("database.url: expected `postgres://user@host/database`"), "{said}");
    assert!(!said.contains("hidden"), "{said}");
    let away = [
        ("FONDACO_DATABASE__URL", "postgres://u:hidden@127.0.0.1:1/x".to_owned()),
        ("FONDACO_LIMITS__DATABASE_WAIT", "100ms".to_owned()),
        ("FONDACO_KEYS__RING", "[{env = \"RING\"}]".to_owned()),
        ("RING", crate::harness::database::KEY.to_owned()),
    ];
    for arguments in [&["migrate"][..], &["operator", "list"]] {
        let (done, said) = fondaco(arguments, &away).await;
        assert!(!done && said.contains("error: the database"), "{said}");
        assert!(!said.contains("hidden") && !said.contains("127.0.0.1"), "{said}");
    }
    let (_, said) = fondaco(&["migrate", "--grant", "x"], &[]).await;
    assert!(said.contains("--grant: SQLite has no roles"), "{said}");
}
