//! The process configuration, loaded from files and variables.

use std::path::Path;
use std::time::Duration;

use super::*;
use crate::config::telemetry::LogFormat;

const KEY: &str = "q83vEjRWeJq83u8BI0VniavN7xI0Vniau83vASNFZ4k=";

fn file(text: &str) -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("fondaco.toml");
    std::fs::write(&path, text).unwrap();
    (dir, path)
}

fn env(pairs: &[(&str, &str)]) -> impl Iterator<Item = (String, OsString)> {
    pairs
        .iter()
        .map(|(name, value)| ((*name).to_owned(), OsString::from(value)))
        .collect::<Vec<_>>()
        .into_iter()
}

/// The problems of a file and variables, as they are printed, the directory cut off.
fn problems(text: &str, pairs: &[(&str, &str)]) -> Vec<String> {
    let (dir, path) = file(text);
    let prefix = format!("{}/", dir.path().display());
    let report = load(Some(&path), env(pairs)).expect_err("this must not load");
    report.0.iter().map(|problem| problem.to_string().replace(&prefix, "")).collect()
}

#[test]
fn the_defaults_are_the_limits_own() {
    let (_dir, path) = file("");
    let settings = load(Some(&path), env(&[])).unwrap();
    assert_eq!(settings.limits, Limits::default());
    assert_eq!(settings.telemetry, Telemetry::default());
    assert_eq!(settings.listen, "127.0.0.1:8080".parse().unwrap());
    assert_eq!(settings.admin, Admin { listen: "127.0.0.1:8081".parse().unwrap(), allow_remote: false });
    assert_eq!(settings.data_dir, Path::new("./fondaco-data"));
    assert!(settings.public_url.is_none() && settings.tenants.is_none() && settings.keys.ring.is_empty());
    assert_eq!(settings.public_urls().primary.as_str(), "http://127.0.0.1:8080/");
}

#[test]
fn the_embedded_mode_is_named_by_the_address_that_it_bound() {
    for (listen, primary, aliases) in [
        ("127.0.0.1:8290", "http://127.0.0.1:8290/", &["http://localhost:8290/", "http://[::1]:8290/"][..]),
        ("[::1]:8290", "http://[::1]:8290/", &["http://127.0.0.1:8290/", "http://localhost:8290/"]),
        ("127.0.0.2:80", "http://127.0.0.2/", &["http://127.0.0.1/", "http://localhost/", "http://[::1]/"]),
    ] {
        let urls = Settings::dev(listen.parse().unwrap(), PathBuf::new()).public_urls();
        assert_eq!(urls.primary.as_str(), primary);
        assert_eq!(urls.aliases.iter().map(Url::as_str).collect::<Vec<_>>(), aliases, "{listen}");
    }
}

#[test]
fn the_listeners_do_not_collide() {
    for (listen, admin, good) in [
        ("127.0.0.1:8081", "127.0.0.1:8081", false),
        ("0.0.0.0:8081", "127.0.0.1:8081", false),
        ("[::]:8081", "[::1]:8081", false),
        ("127.0.0.1:8081", "127.0.0.2:8081", true),
        ("127.0.0.1:8081", "[::1]:8081", true),
        ("127.0.0.1:0", "127.0.0.1:0", true),
    ] {
        let (_dir, path) = file(&format!(
            "listen = \"{listen}\"\npublic_url = \"https://mcp.example\"\n[admin]\nlisten = \"{admin}\"\n"
        ));
        match load(Some(&path), env(&[])) {
            Ok(_) => assert!(good, "{listen} {admin}"),
            Err(report) => {
                assert!(!good, "{report}");
                assert_eq!((report.0[0].key.as_str(), report.0[0].line), ("admin.listen", Some(4)));
            }
        }
    }
}

#[test]
fn every_key_is_documented() {
    let keys = Front::NAMES.iter().chain(&["data_dir", "tenants"]).map(|key| format!("`{key}`"));
    let nested =
        SECTIONS.iter().flat_map(|(name, keys)| keys.iter().map(move |key| format!("`{name}.{key}`")));
    let page = reference::page();
    for key in keys.chain(nested) {
        assert!(page.contains(&format!("### {key}\n\n")), "{key}");
    }
}

/// Set `BLESS=1` to write the page anew.
#[test]
fn the_reference_page_is_current() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/reference/configuration.md");
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(&path, reference::page()).unwrap();
    }
    let current = std::fs::read_to_string(&path).unwrap();
    assert_eq!(current, reference::page(), "run this test with BLESS=1");
}

#[test]
fn the_environment_lies_over_the_file() {
    let (dir, path) = file(
        "tenants = \"t.yaml\"\nallowed_origins = [\"https://a.example\"]\n\
         [limits]\nbody_bytes = \"1MiB\"\npage_size = 7\n[telemetry]\nlog = \"json\"\n",
    );
    let settings = load(
        Some(&path),
        env(&[
            ("FONDACO_LISTEN", "0.0.0.0:9000"),
            ("FONDACO_PUBLIC_URL", "https://mcp.example.com"),
            ("FONDACO_PUBLIC_ALIASES", "https://a.example.com, https://b.example.com:8443"),
            ("FONDACO_ALLOWED_ORIGINS", ""),
            ("FONDACO_LIMITS__BODY_BYTES", "2MB"),
            ("FONDACO_LIMITS__JSON_DEPTH", "32"),
            ("FONDACO_LIMITS__DRAIN_ACCEPT", "500ms"),
            ("FONDACO_ADMIN__LISTEN", "[::]:9001"),
            ("FONDACO_ADMIN__ALLOW_REMOTE", "true"),
            ("FONDACO_EGRESS__ALLOW", r#"["10.0.0.0/8", "crm.internal"]"#),
            ("FONDACO_KEYS__RING", r#"[{env = "THE_KEY"}]"#),
            ("FONDACO_PORT", "tcp://10.0.0.1:80"),
            ("FONDACO_PORT_80_TCP_ADDR", "10.0.0.1"),
            ("THE_KEY", KEY),
        ]),
    )
    .unwrap();
    assert_eq!(settings.listen, "0.0.0.0:9000".parse().unwrap());
    assert_eq!(settings.public_aliases.len(), 2);
    assert_eq!(settings.allowed_origins, ["https://a.example"]);
    assert_eq!(settings.limits.body_bytes, 2_000_000);
    assert_eq!(settings.limits.page_size, 7);
    assert_eq!(settings.limits.json_depth, 32);
    assert_eq!(settings.limits.drain_accept, Duration::from_millis(500));
    assert_eq!(settings.telemetry.log, LogFormat::Json);
    assert_eq!(settings.egress.allow, ["10.0.0.0/8", "crm.internal"]);
    assert_eq!(settings.keys.ring.len(), 1);
    assert_eq!(settings.tenants, Some(dir.path().join("t.yaml")));
    assert!(!format!("{settings:?}").contains("q83v"));
}

#[test]
fn every_problem_is_told_at_once() {
    let text = "\
listen = \"0.0.0.0:8080\"
public_ulr = \"https://mcp.example.com\"
allowed_origins = [\"https://a.example/\", \"null\"]

[admin]
listen = \"0.0.0.0:8081\"

[keys]
ring = [{env = \"SHORT\"}, {env = \"SAMPLE\"}, {env = \"ABSENT\"}, {}]

[egress]
allow = [\"10.0.0.1/8\", \"0x7f.1\"]

[limits]
body_bytes = 0
head_time = \"0s\"
target_bytes = \"8\"
page_size = -1
connections = \"lots\"
token_bytes = \"9223372036854775808GiB\"
list_ttl = \"30\"

[telemetry]
log = \"xml\"
level = \"fondaco=loud\"
baggage = [\"tier\", \"a b\"]
";
    let pairs = [
        ("SHORT", "c2hvcnQ="),
        ("SAMPLE", "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="),
        ("FONDACO_LIMIT__X", "1"),
    ];
    let found: Vec<_> =
        problems(text, &pairs).iter().map(|p| p.lines().next().unwrap_or_default().to_owned()).collect();
    let expected = [
        "fondaco.toml:2: public_ulr: unknown key",
        "FONDACO_LIMIT__X: limit: unknown key",
        "fondaco.toml:3: allowed_origins[0]: `https://a.example/` is not how browsers write an origin",
        "fondaco.toml:3: allowed_origins[1]: found `null`, expected an origin",
        "fondaco.toml:1: listen: `0.0.0.0:8080` is not loopback, and `public_url` is missing",
        "fondaco.toml:6: admin.listen: `0.0.0.0:8081` is not loopback",
        "fondaco.toml:9: keys.ring[0].env: the key is not the base64 form of exactly 32 bytes",
        "fondaco.toml:9: keys.ring[1].env: the key looks like a sample key, not like random bytes",
        "fondaco.toml:9: keys.ring[2].env: the variable is not set",
        "fondaco.toml:9: keys.ring[3]: expected either `file` or `env`",
        "fondaco.toml:12: egress.allow[0]: found `10.0.0.1/8`, whose host bits are set",
        "fondaco.toml:12: egress.allow[1]: found `0x7f.1`, expected a CIDR, an address or a lower-case host name",
        "fondaco.toml:17: limits.target_bytes: found `8`, expected a size such as `64KiB` or `4MB`",
        "fondaco.toml:16: limits.head_time: found `0s`, expected 100ms to 5m",
        "fondaco.toml:15: limits.body_bytes: found a number, expected a size with its unit",
        "fondaco.toml:19: limits.connections: found text, expected a whole number",
        "fondaco.toml:18: limits.page_size: found `-1`, expected a whole number",
        "fondaco.toml:21: limits.list_ttl: found `30`, expected a duration such as `30s`, `500ms` or `5m`",
        "fondaco.toml:20: limits.token_bytes: found `9223372036854775808GiB`, expected a size such as `64KiB` or `4MB`",
        "fondaco.toml:24: telemetry.log: found `xml`, expected one of `text`, `json`",
        "fondaco.toml:25: telemetry.level: found `fondaco=loud`, which is no log filter",
        "fondaco.toml:26: telemetry.baggage[1]: found `a b`, which is no key of W3C baggage",
    ];
    assert_eq!(found, expected);
}

#[test]
fn hints_tell_what_to_write() {
    let found = problems("public_ulr = \"x\"\n[limits]\nbody_byte = \"1MiB\"\n", &[]);
    assert_eq!(found[0], "fondaco.toml:1: public_ulr: unknown key\n  hint: did you mean `public_url`?");
    assert_eq!(found[1], "fondaco.toml:3: limits.body_byte: unknown key\n  hint: did you mean `body_bytes`?");
    let found = problems("", &[("FONDACO_PUBLIC_ULR", "x")]);
    assert_eq!(
        found[0],
        "FONDACO_PUBLIC_ULR: public_ulr: unknown key\n  hint: did you mean `FONDACO_PUBLIC_URL`?"
    );
}

#[test]
fn variables_that_miss_an_underscore_are_told() {
    for (name, meant) in [
        ("FONDACO_LIMITS_PAGE_SIZE", "FONDACO_LIMITS__PAGE_SIZE"),
        ("FONDACO_EGRESS_ALLOW", "FONDACO_EGRESS__ALLOW"),
        ("FONDACO_ADMIN_LISTEN", "FONDACO_ADMIN__LISTEN"),
        ("FONDACO_ADMIN_ALLOW_REMOTE", "FONDACO_ADMIN__ALLOW_REMOTE"),
        ("FONDACO_TELEMETRY_LOG", "FONDACO_TELEMETRY__LOG"),
        ("FONDACO_TELEMETRY_OTLP", "FONDACO_TELEMETRY__OTLP"),
        ("FONDACO_KEYS_RING", "FONDACO_KEYS__RING"),
    ] {
        let key = name.trim_start_matches("FONDACO_").to_ascii_lowercase();
        let hint = format!("  hint: two underscores follow a section: `{meant}`");
        assert_eq!(problems("", &[(name, "1")]), [format!("{name}: {key}: unknown key\n{hint}")]);
    }
    let (_dir, path) = file("");
    // Of Kubernetes, for services called `fondaco`, `fondaco-admin` and `fondaco-limits`.
    let others =
        ["FONDACO_PORT", "FONDACO_SERVICE_HOST", "FONDACO_ADMIN_PORT", "FONDACO_LIMITS_SERVICE_HOST"];
    load(Some(&path), env(&others.map(|name| (name, "10.0.0.1")))).unwrap();
}

#[cfg(unix)]
#[test]
fn variables_that_are_no_text_are_told() {
    use std::os::unix::ffi::OsStringExt;
    let (_dir, path) = file("");
    let odd = |name: &str| (name.to_owned(), OsString::from_vec(b"hidden\xff".to_vec()));
    let report = load(Some(&path), [odd("OTHER"), odd("FONDACO_LISTEN")].into_iter()).unwrap_err();
    assert_eq!(report.to_string(), "FONDACO_LISTEN: the value is not UTF-8");
}

#[test]
fn broken_files_name_their_lines() {
    for (text, line) in
        [("listen = \n", 1), ("\n[limits]\n[limits]\n", 3), ("data_dir = \"a\"\ndata_dir = \"b\"\n", 2)]
    {
        let found = problems(text, &[]);
        assert!(found[0].starts_with(&format!("fondaco.toml:{line}: ")), "{found:?}");
    }
    let report =
        load(Some(Path::new("/nonexistent/fondaco.toml")), env(&[])).expect_err("there is no such file");
    assert!(report.to_string().starts_with("/nonexistent/fondaco.toml: cannot be read: "));
}

#[test]
fn public_urls_are_a_scheme_and_an_authority() {
    for (url, accepted) in [
        ("https://mcp.example.com", true),
        ("https://mcp.example.com/", true),
        ("https://mcp.example.com:443", true),
        ("https://mcp.example.com:8443", true),
        ("http://localhost:8080", true),
        ("http://[::1]:8080", true),
        ("http://mcp.example.com", false),
        ("https://mcp.example.com/gateway", false),
        ("https://mcp.example.com?x", false),
        ("https://mcp.example.com#x", false),
        ("https://user:pass@mcp.example.com", false),
        ("https://MCP.example.com", false),
        ("https://mcp.example.com.", false),
        ("https://mcp.example.com:0", false),
        ("https:\\\\mcp.example.com", false),
        ("https://mcp.éxample.com", false),
        ("https://0x7f000001", false),
        ("https://mcp.exam\nple.com", false),
        ("ftp://mcp.example.com", false),
        ("mcp.example.com", false),
    ] {
        let (_dir, path) = file("listen = \"0.0.0.0:1\"\n");
        let loaded = load(Some(&path), env(&[("FONDACO_PUBLIC_URL", url)]));
        assert_eq!(loaded.is_ok(), accepted, "{url}: {loaded:?}");
    }
}

#[test]
fn a_name_belongs_to_one_site() {
    let text = "public_url = \"http://localhost:8080\"\npublic_aliases = [\"http://localhost:8080\"]\n";
    let found = problems(text, &[]);
    assert_eq!(found, ["fondaco.toml:2: public_aliases[0]: `localhost:8080` is named twice"]);
}

#[cfg(unix)]
#[test]
fn key_files_that_anybody_may_write_are_refused() {
    use std::os::unix::fs::PermissionsExt;
    let (dir, path) = file("[keys]\nring = [{file = \"key\"}]\n");
    let key = dir.path().join("key");
    std::fs::write(&key, format!("{KEY}\n")).unwrap();
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o600)).unwrap();
    assert_eq!(load(Some(&path), env(&[])).unwrap().keys.ring.len(), 1);
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o666)).unwrap();
    let report = load(Some(&path), env(&[])).expect_err("this must not load");
    assert_eq!(report.0[0].message, "the file can be written by everybody");
}

#[test]
fn what_may_be_a_secret_in_a_url_is_in_no_problem() {
    let urls = [
        "https://A.example?key=hidden",
        "https://a.example/x?key=hidden",
        "https://u:hidden@a.example",
        "https://u:hidden@A.example?key=hidden",
        "https://a.example#hidden",
        "https://a b?hidden",
    ];
    for url in urls {
        let text = format!("public_url = '{url}'\npublic_aliases = ['{url}']\nallowed_origins = ['{url}']\n");
        let found = problems(&text, &[]);
        assert_eq!(found.len(), 3, "{found:?}");
        assert!(found.iter().all(|problem| !problem.contains("hidden")), "{found:?}");
    }
}
