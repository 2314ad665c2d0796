//! What a backend lists.

use std::sync::Arc;

use crate::backend::BackendError;
use crate::protocol::json::Json;
use crate::protocol::methods::List;

/// What a backend lists.
#[derive(Debug, Default)]
pub struct Listing {
    /// Its tools.
    pub tools: Listed,
    /// Its prompts.
    pub prompts: Listed,
    /// Its resources.
    pub resources: Listed,
    /// Its resource templates.
    pub templates: Listed,
    /// The lists that it has but did not give, and why.
    pub failed: Vec<(List, BackendError)>,
    /// The shortest `ttlMs` of all pages, if any page had one.
    pub ttl_ms: Option<u64>,
    /// The backend's `instructions`, if it has any.
    pub instructions: Option<String>,
    /// Whether it may answer a call with a task; `None` where it did not say what it can do.
    pub tasks: Option<bool>,
    /// What it says of extensions that its tenant lets it offer.
    pub extensions: Vec<(Arc<str>, Json)>,
}

/// One list of a backend.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Listed {
    /// Nobody knows: it never gave it.
    #[default]
    Unknown,
    /// It has no such list.
    Absent,
    /// What is in it.
    Known {
        /// Each entry as the backend sent it, byte for byte; nothing about it is checked.
        entries: Vec<Json>,
        /// Why that is not everything, if it is not.
        truncated: Option<&'static str>,
    },
}

impl Listed {
    /// A whole list.
    pub fn whole(entries: Vec<Json>) -> Self {
        Self::Known { entries, truncated: None }
    }

    /// What is in it, as far as that is known.
    pub fn entries(&self) -> &[Json] {
        match self {
            Self::Unknown | Self::Absent => &[],
            Self::Known { entries, .. } => entries,
        }
    }

    /// Why it is not everything, if it is not.
    pub fn truncated(&self) -> Option<&'static str> {
        match self {
            Self::Unknown | Self::Absent => None,
            Self::Known { truncated, .. } => *truncated,
        }
    }

    /// Whether the backend has it, and gave it.
    pub fn is_known(&self) -> bool {
        matches!(self, Self::Known { .. })
    }
}

impl Listing {
    /// Of a backend that has nothing any more.
    pub fn gone() -> Self {
        let absent = || Listed::Absent;
        Self {
            tools: absent(),
            prompts: absent(),
            resources: absent(),
            templates: absent(),
            ..Self::default()
        }
    }

    /// Whether it is that of a backend that has nothing any more.
    pub fn is_gone(&self) -> bool {
        List::ALL.iter().all(|list| *self.of(*list) == Listed::Absent)
    }

    /// One of its lists.
    pub fn of(&self, list: List) -> &Listed {
        match list {
            List::Tools => &self.tools,
            List::Prompts => &self.prompts,
            List::Resources => &self.resources,
            List::Templates => &self.templates,
        }
    }

    /// One of its lists, to be replaced.
    pub fn of_mut(&mut self, list: List) -> &mut Listed {
        match list {
            List::Tools => &mut self.tools,
            List::Prompts => &mut self.prompts,
            List::Resources => &mut self.resources,
            List::Templates => &mut self.templates,
        }
    }

    /// Whether nothing of it is unknown.
    pub fn is_complete(&self) -> bool {
        List::ALL.iter().all(|list| *self.of(*list) != Listed::Unknown)
    }

    /// Whether both list the same.
    pub fn is_same(&self, other: &Self) -> bool {
        self.instructions == other.instructions
            && self.tasks == other.tasks
            && self.extensions == other.extensions
            && List::ALL.iter().all(|list| self.of(*list) == other.of(*list))
    }
}
