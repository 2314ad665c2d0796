//! What a client may listen to, and what it then hears.
//!
//! spec: patterns/subscriptions

/// The key of `_meta` that says which `subscriptions/listen` a message belongs to: its id.
pub const SUBSCRIPTION_ID: &str = "io.modelcontextprotocol/subscriptionId";

/// The member of `params` that has the filter, in the request and in the acknowledgement.
pub const FILTER: &str = "notifications";

/// The member of a filter that has the URIs of resources.
pub const URIS: &str = "resourceSubscriptions";

/// The member of a filter that has the ids of tasks.
pub const TASK_IDS: &str = "taskIds";

/// What a task is at.
pub const TASK: &str = "notifications/tasks";

/// The first message of a subscription.
pub const ACKNOWLEDGED: &str = "notifications/subscriptions/acknowledged";

/// The contents of a resource are others now.
pub const UPDATED: &str = "notifications/resources/updated";

/// A list that may change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The tools.
    Tools,
    /// The prompts.
    Prompts,
    /// The resources and their templates.
    Resources,
}

impl Kind {
    /// Every one.
    pub const ALL: [Kind; 3] = [Kind::Tools, Kind::Prompts, Kind::Resources];

    /// The member of a filter that asks for it.
    pub fn flag(self) -> &'static str {
        match self {
            Self::Tools => "toolsListChanged",
            Self::Prompts => "promptsListChanged",
            Self::Resources => "resourcesListChanged",
        }
    }

    /// The notification that it has changed.
    pub fn notification(self) -> &'static str {
        match self {
            Self::Tools => "notifications/tools/list_changed",
            Self::Prompts => "notifications/prompts/list_changed",
            Self::Resources => "notifications/resources/list_changed",
        }
    }

    /// What it is called in metrics.
    pub fn label(self) -> &'static str {
        match self {
            Self::Tools => "tools",
            Self::Prompts => "prompts",
            Self::Resources => "resources",
        }
    }

    fn bit(self) -> u8 {
        1 << self as u8
    }
}

/// Some of the lists.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Kinds(u8);

impl Kinds {
    /// None of them.
    pub const NONE: Kinds = Kinds(0);

    /// All of them.
    pub fn all() -> Self {
        Kind::ALL.into_iter().collect()
    }

    /// Whether `kind` is one of them.
    pub fn has(self, kind: Kind) -> bool {
        self.0 & kind.bit() != 0
    }

    /// Those that are of both.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// Those that are of either.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// These without `kind`.
    #[must_use]
    pub fn without(self, kind: Kind) -> Self {
        Self(self.0 & !kind.bit())
    }

    /// Each of them.
    pub fn iter(self) -> impl Iterator<Item = Kind> {
        Kind::ALL.into_iter().filter(move |kind| self.has(*kind))
    }
}

impl FromIterator<Kind> for Kinds {
    fn from_iter<I: IntoIterator<Item = Kind>>(kinds: I) -> Self {
        Self(kinds.into_iter().fold(0, |all, kind| all | kind.bit()))
    }
}
