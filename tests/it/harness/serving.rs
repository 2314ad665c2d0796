//! `fondaco serve` as a process of its own, on free ports, with its log in a file.
//!
//! ```ignore
//! let mut serving = Serving::start(tenants, &[("FONDACO_TELEMETRY__LOG", "json")]).await;
//! serving.write("tenants: {}");            // the tenants file, which is watched
//! serving.log();                           // what it has said so far
//! serving.process.end("TERM").await;
//! ```

use std::net::SocketAddr;
use std::path::PathBuf;

use serde_json::Value;

use crate::harness::process;
use crate::harness::process::Process;
use crate::harness::wait::eventually;

/// A running `fondaco serve`.
pub struct Serving {
    /// Its public address.
    pub addr: SocketAddr,
    /// Its admin address.
    pub admin: SocketAddr,
    /// The process.
    pub process: Process,
    /// Where its files are: `tenants.yaml`, `data` and `log`.
    pub dir: tempfile::TempDir,
}

impl Serving {
    /// Starts one for these tenants, with these variables, and waits until it serves.
    pub async fn start(tenants: &str, variables: &[(&str, &str)]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("tenants.yaml"), tenants).unwrap();
        let log = std::fs::File::create(dir.path().join("log")).unwrap();
        let mut command = process::fondaco();
        command.arg("serve").current_dir(dir.path()).stderr(log);
        command.envs([
            ("FONDACO_TENANTS", "tenants.yaml"),
            ("FONDACO_LISTEN", "127.0.0.1:0"),
            ("FONDACO_ADMIN__LISTEN", "127.0.0.1:0"),
            ("FONDACO_DATA_DIR", "data"),
            ("FONDACO_EGRESS__ALLOW", "127.0.0.0/8"),
            ("FONDACO_LIMITS__DRAIN_ACCEPT", "1ms"),
            ("FONDACO_TELEMETRY__LOG", "json"),
        ]);
        command.envs(variables.iter().copied());
        let process = Process::start(&mut command);
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let mut serving = Self { addr: any, admin: any, process, dir };
        eventually("it serves", async || serving.started().is_some()).await;
        (serving.addr, serving.admin) = serving.started().unwrap();
        serving
    }

    /// What it has said so far.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.path("log")).unwrap()
    }

    /// The events of its log, where that is JSON.
    pub fn events(&self) -> Vec<Value> {
        self.log().lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
    }

    /// A file of its directory.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Replaces the tenants file, in place.
    pub fn write(&self, tenants: &str) {
        std::fs::write(self.path("tenants.yaml"), tenants).unwrap();
    }

    fn started(&self) -> Option<(SocketAddr, SocketAddr)> {
        // `listen=…` in a log for people, `"listen":"…"` in JSON.
        let log = self.log();
        let line = log.lines().find(|line| line.contains("serving") && line.contains("listen"))?;
        let address = |name: &str| {
            let (_, rest) = line.split_once(name).unwrap();
            let rest = rest.trim_start_matches(['"', ':', '=']);
            rest.split([' ', '"']).next().unwrap().parse().unwrap()
        };
        Some((address("listen"), address("admin")))
    }
}
