//! Protocol revisions. This is the one place that knows which era a revision belongs to.

/// The modern revisions served, newest first.
pub const SERVED: [&str; 1] = ["2026-07-28"];

/// The revision that is spoken to backends.
pub const LATEST: &str = SERVED[0];

/// The revisions of the handshake era.
pub const HANDSHAKE: [&str; 4] = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"];

/// Whether `revision` is a modern revision that is served.
pub fn is_served(revision: &str) -> bool {
    SERVED.contains(&revision)
}

/// Whether `revision` belongs to the handshake era.
pub fn is_handshake(revision: &str) -> bool {
    HANDSHAKE.contains(&revision)
}
