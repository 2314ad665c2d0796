//! What the system gives a process: file descriptors, of which every connection takes one.

use rustix::process::Resource;
use rustix::process::Rlimit;
use rustix::process::getrlimit;
use rustix::process::setrlimit;

use crate::model::limits::Limits;

/// The least that is left for connections to backends, files and the admin listener.
const RESERVE: usize = 128;

/// `limits` with no more connections than the process has file descriptors for, of which a
/// quarter is left for everything else. Raises the soft limit to the hard one first; a warning
/// says where that is not enough.
pub fn fitted(limits: Limits) -> Limits {
    let files = raised();
    let most = most(files);
    if limits.connections <= most {
        return limits;
    }
    tracing::warn!(
        connections = limits.connections,
        files,
        used = most,
        "`limits.connections` is more than the process may have open files for; raise RLIMIT_NOFILE or lower it"
    );
    Limits { connections: most, ..limits }
}

/// The number of files that the process may have open, as high as it may set it.
fn raised() -> usize {
    let limit = getrlimit(Resource::Nofile);
    let asked = Rlimit { current: limit.maximum, ..limit };
    let limit = if setrlimit(Resource::Nofile, asked).is_ok() { limit.maximum } else { limit.current };
    limit.and_then(|files| usize::try_from(files).ok()).unwrap_or(usize::MAX)
}

fn most(files: usize) -> usize {
    files.saturating_sub(RESERVE.max(files / 4)).max(1)
}

#[cfg(test)]
mod tests {
    use super::fitted;
    use super::most;
    use super::raised;
    use crate::model::limits::Limits;

    #[test]
    fn files_are_left_for_everything_else() {
        let cases =
            [(usize::MAX, usize::MAX / 4 * 3 + 3), (65_536, 49_152), (1024, 768), (256, 128), (64, 1)];
        for (files, connections) in cases {
            assert_eq!(most(files), connections, "{files}");
        }
    }

    #[test]
    fn more_connections_than_files_are_cut_down_and_fewer_are_left_alone() {
        let files = raised();
        let asked = |connections| fitted(Limits { connections, ..Limits::default() }).connections;
        assert_eq!(asked(1), 1);
        assert_eq!(asked(usize::MAX), most(files));
    }
}
