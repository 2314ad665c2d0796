//! What the kernel says about a process and its children (Linux).

use std::fs;

use anyhow::Context;

/// `USER_HZ`, the unit of `/proc/PID/stat`: 100 on every architecture that is built for.
const TICKS_PER_SECOND: f64 = 100.0;

/// CPU seconds, user and system, that `pid` and its living children have used.
pub fn cpu_seconds(pid: u32) -> anyhow::Result<f64> {
    let (_, mut ticks) = stat(pid).with_context(|| format!("process {pid} is gone"))?;
    for entry in fs::read_dir("/proc")? {
        let Some(other) = entry?.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        // Processes end while we look.
        if let Some((parent, used)) = stat(other)
            && parent == pid
        {
            ticks += used;
        }
    }
    Ok(ticks as f64 / TICKS_PER_SECOND)
}

/// Resident memory of `pid` in MiB.
pub fn resident_mib(pid: u32) -> anyhow::Result<f64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS")?;
    let kib: f64 = line.trim().trim_end_matches(" kB").parse()?;
    Ok(kib / 1024.0)
}

/// The parent of `pid`, and the ticks that `pid` used.
fn stat(pid: u32) -> Option<(u32, u64)> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name, in parentheses, may hold anything.
    let fields: Vec<_> = text.rsplit_once(") ")?.1.split(' ').collect();
    let ticks = fields.get(11)?.parse::<u64>().ok()? + fields.get(12)?.parse::<u64>().ok()?;
    Some((fields.get(1)?.parse().ok()?, ticks))
}
