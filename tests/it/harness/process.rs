//! Real processes: the `fondaco` program and the peers that `scripts/peers` installs.
//!
//! A [`Process`] is killed when it is dropped. [`Peers::find`] says how to run the peers, or panics
//! with what to do: a test never passes because something is missing.

use std::path::Path;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use tokio::io::AsyncBufReadExt;
use tokio::io::BufReader;
use tokio::io::Lines;
use tokio::process::Child;
use tokio::process::ChildStdout;
use tokio::process::Command;

/// A running program.
pub struct Process {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Process {
    /// Starts a program; its standard error goes to the test's.
    pub fn start(command: &mut Command) -> Self {
        let shown = format!("{command:?}");
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap_or_else(|error| panic!("cannot start {shown}: {error}"));
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, lines }
    }

    /// The next line of its output that starts with `start`, without it.
    pub async fn line(&mut self, start: &str) -> String {
        let found = async {
            loop {
                match self.lines.next_line().await.unwrap() {
                    Some(line) if line.starts_with(start) => return line[start.len()..].trim().to_owned(),
                    Some(_) => {}
                    None => panic!("the program ended before it said {start:?}"),
                }
            }
        };
        let waited = tokio::time::timeout(Duration::from_secs(60), found).await;
        waited.unwrap_or_else(|_| panic!("the program did not say {start:?} within 60 s"))
    }

    /// The lines that start with `start` until its end, without it.
    pub async fn rest(&mut self, start: &str) -> Vec<String> {
        let mut found = Vec::new();
        while let Some(line) = self.lines.next_line().await.unwrap() {
            found.extend(line.strip_prefix(start).map(str::to_owned));
        }
        found
    }

    /// Everything that it says up to and with the line that starts with `start`.
    pub async fn until(&mut self, start: &str) -> String {
        let mut said = String::new();
        while !said.lines().last().is_some_and(|line| line.starts_with(start)) {
            said.push_str(&self.line("").await);
            said.push('\n');
        }
        said
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.child.id().expect("the program is running")
    }

    /// Sends SIGTERM and waits for its end.
    pub async fn terminate(mut self) -> std::process::ExitStatus {
        self.signal("TERM");
        self.end().await
    }

    /// Sends a signal, by its name without `SIG`.
    pub fn signal(&self, name: &str) {
        let id = self.id().to_string();
        let kill = std::process::Command::new("kill").args(["-s", name, &id]).status().unwrap();
        assert!(kill.success());
    }

    /// Waits for its end.
    pub async fn end(&mut self) -> std::process::ExitStatus {
        let ended = tokio::time::timeout(Duration::from_secs(30), self.child.wait()).await;
        ended.expect("the program did not end within 30 s").unwrap()
    }
}

/// The `fondaco` program.
pub fn fondaco() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fondaco"));
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("FONDACO_")) {
        command.env_remove(name);
    }
    command
}

/// The repository's root.
pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Runs a program to its end and returns what it said; panics with it if it failed.
pub async fn run(command: &mut Command) -> String {
    let (succeeded, said) = listen(command).await;
    assert!(succeeded, "{command:?} failed:\n{said}");
    said
}

/// Runs a program to its end; whether it succeeded, and what it said.
pub async fn listen(command: &mut Command) -> (bool, String) {
    let output = command.stdin(Stdio::null()).kill_on_drop(true).output().await.unwrap();
    let said =
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    (output.status.success(), said)
}

/// What runs a script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Runtime {
    /// Node, with the SDKs of both eras.
    Node,
    /// Python with the MCP SDK.
    Python,
    /// Python with version 1 of it.
    Python1,
    /// Python with fastmcp.
    Fastmcp,
}

impl Runtime {
    /// The variable that `scripts/peers` names it by.
    fn variable(self) -> &'static str {
        match self {
            Self::Node => "FONDACO_NODE",
            Self::Python => "FONDACO_PYTHON",
            Self::Python1 => "FONDACO_PYTHON_1",
            Self::Fastmcp => "FONDACO_PYTHON_FASTMCP",
        }
    }
}

/// Where the peers are.
pub struct Peers {
    variables: Vec<(String, String)>,
}

impl Peers {
    /// Where `scripts/peers` installs.
    pub fn dir() -> PathBuf {
        let named = std::env::var("FONDACO_PEERS_DIR").unwrap_or_else(|_| "target/peers".to_owned());
        root().join(named)
    }

    /// Reads what `scripts/peers` wrote.
    pub fn find() -> Self {
        let dir =
            std::env::var("FONDACO_PEERS_DIR").map_or_else(|_| root().join("target/peers"), PathBuf::from);
        let env = std::fs::read_to_string(dir.join("env"))
            .unwrap_or_else(|_| panic!("no peers in {}: run `scripts/peers` first", dir.display()));
        let variables: Vec<(String, String)> = env
            .lines()
            .filter_map(|line| line.trim_start_matches("export ").split_once('='))
            .map(|(name, value)| (name.to_owned(), value.trim_matches(['"', '\'']).to_owned()))
            .collect();
        Self { variables }
    }

    /// A Node script of ours.
    pub fn node(&self, script: &str) -> Command {
        self.script(Runtime::Node, script)
    }

    /// A Python script of ours.
    pub fn python(&self, script: &str) -> Command {
        self.script(Runtime::Python, script)
    }

    /// A script of ours.
    pub fn script(&self, runtime: Runtime, script: &str) -> Command {
        let wanted = runtime.variable();
        let found = self.variables.iter().find(|(name, _)| name == wanted);
        let (_, program) = found.unwrap_or_else(|| panic!("`scripts/peers` did not write {wanted}"));
        let mut command = Command::new(program);
        command.arg(root().join(script)).envs(self.variables.iter().cloned());
        command.stderr(aside());
        command
    }
}

/// A way to the test's standard error. Some programs set what they write to not to block, and whoever
/// shares it with them may then fail to write.
fn aside() -> Stdio {
    let (mut said, write) = std::io::pipe().unwrap();
    std::thread::spawn(move || std::io::copy(&mut said, &mut std::io::stderr()));
    write.into()
}
