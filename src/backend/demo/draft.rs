//! Drafts: state that outlives a call and is named by a handle of ours in the arguments.
//!
//! They belong to the tenant whose backend made them: another tenant's backend has never heard of
//! their handles. They live in this process's memory, the latest ones only.

use std::collections::VecDeque;
use std::hash::BuildHasher;
use std::hash::RandomState;
use std::sync::Mutex;
use std::sync::MutexGuard;
use std::sync::PoisonError;

use crate::backend::demo::text_of;
use crate::protocol::json::Json;
use crate::protocol::json::compose::Object;

/// Most drafts that are kept; the oldest goes first.
const DRAFTS: usize = 256;
/// Longest title, in characters.
const TITLE: usize = 200;
/// Longest draft, in bytes.
const TEXT: usize = 64 << 10;

/// The drafts of one tenant.
#[derive(Default)]
pub(super) struct Drafts(Mutex<VecDeque<Draft>>);

struct Draft {
    id: String,
    title: String,
    text: String,
}

impl Drafts {
    /// Begins a draft: `draft_create`.
    pub(super) fn create(&self, arguments: &Json) -> Result<Json, String> {
        let title = match arguments.member("title") {
            None => String::new(),
            Some(_) => text_of(arguments, "title")?,
        };
        if title.chars().count() > TITLE {
            return Err(format!("`title` has at most {TITLE} characters"));
        }
        let id = mint();
        let created = Object::new().put_str("draftId", &id).finish();
        let mut drafts = self.lock();
        if drafts.len() >= DRAFTS {
            drafts.pop_front();
        }
        drafts.push_back(Draft { id, title, text: String::new() });
        Ok(created)
    }

    /// Appends to a draft: `draft_append`.
    pub(super) fn append(&self, arguments: &Json) -> Result<Json, String> {
        let (id, text) = (text_of(arguments, "draftId")?, text_of(arguments, "text")?);
        let mut drafts = self.lock();
        let draft = drafts.iter_mut().find(|draft| draft.id == id);
        let draft = draft.ok_or("there is no such draft; `draft_create` makes one")?;
        if draft.text.len() + text.len() > TEXT {
            return Err(format!("a draft has at most {TEXT} bytes"));
        }
        draft.text.push_str(&text);
        let appended = Object::new()
            .put_str("draftId", &draft.id)
            .put_str("title", &draft.title)
            .put_str("text", &draft.text);
        Ok(appended.finish())
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Draft>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A new handle. The standard library's hasher keys are the system's randomness.
fn mint() -> String {
    let [high, low] = [RandomState::new(), RandomState::new()].map(|state| state.hash_one("draft"));
    format!("draft_{high:016x}{low:016x}")
}
