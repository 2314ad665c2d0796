//! Protocol revisions. This is the one place that knows which era a revision belongs to.

/// The modern revisions served, newest first.
pub const SERVED: [&str; 1] = ["2026-07-28"];

/// The modern revision that is spoken to backends.
pub const LATEST: &str = SERVED[0];

/// A revision of the handshake era that is served and spoken, the older the smaller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Handshake {
    /// 2025-03-26: the first on Streamable HTTP, and the only one with batches.
    March,
    /// 2025-06-18: structured results, the version header; no batches.
    June,
    /// 2025-11-25: the last one that begins with a handshake.
    November,
}

impl Handshake {
    /// Those served, newest first.
    pub const ALL: [Handshake; 3] = [Handshake::November, Handshake::June, Handshake::March];

    /// The one that is offered to backends, and to clients who ask for one that is not served.
    pub const LATEST: Handshake = Handshake::ALL[0];

    /// The revision on the wire.
    pub fn name(self) -> &'static str {
        match self {
            Handshake::March => "2025-03-26",
            Handshake::June => "2025-06-18",
            Handshake::November => "2025-11-25",
        }
    }

    /// The served revision of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|revision| revision.name() == name)
    }

    /// Whether a POST may carry several messages.
    ///
    /// spec: 2025-03-26 basic/index, Batching
    pub fn has_batches(self) -> bool {
        self == Handshake::March
    }

    /// Whether the messages of a session carry its revision in a header.
    ///
    /// spec: 2025-06-18 changelog, Major changes
    pub fn has_version_header(self) -> bool {
        self >= Handshake::June
    }

    /// Whether a completion may say what was chosen for other arguments.
    ///
    /// spec: 2025-06-18 changelog, Other schema changes
    pub fn has_completion_context(self) -> bool {
        self >= Handshake::June
    }

    /// Whether a server may ask a user, with a form.
    ///
    /// spec: 2025-06-18 changelog, Major changes
    pub fn has_elicitation(self) -> bool {
        self >= Handshake::June
    }

    /// Whether a server may ask a user to open a URL, and says which of the two it does.
    ///
    /// spec: 2025-11-25 changelog, Major changes
    pub fn has_url_elicitation(self) -> bool {
        self >= Handshake::November
    }

    /// Whether tools have output schemas, and results structured content.
    ///
    /// spec: 2025-06-18 changelog, Major changes
    pub fn has_structured_content(self) -> bool {
        self >= Handshake::June
    }
}

/// Whether `revision` is a modern revision that is served.
pub fn is_served(revision: &str) -> bool {
    SERVED.contains(&revision)
}

/// Whether `revision` belongs to the handshake era, served or not.
pub fn is_handshake(revision: &str) -> bool {
    revision == "2024-11-05" || Handshake::named(revision).is_some()
}
