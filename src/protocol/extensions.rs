//! The extensions that a client declares: which of them a backend is told of.

use crate::protocol::json::Json;
use crate::protocol::json::compose::Object;
use crate::protocol::meta::UI;
use crate::protocol::tasks;

/// Longest thing that a client may say of an extension, in bytes: what is longer is not told.
const EXTENSION_BYTES: usize = 4 << 10;

/// Of the extensions that a client declares, those that this gateway carries, and those that are `allowed`;
/// `None` where there are none. The one for tasks is for who may answer with `tasks`.
///
/// spec: rows DV-05, EX-01, EX-14; basic/versioning, Extension Negotiation
pub fn carried<A: AsRef<str>>(declared: &Json, allowed: &[A], tasks: bool) -> Option<Json> {
    let is_carried = |name: &str| match name {
        tasks::EXTENSION => tasks,
        UI => true,
        _ => allowed.iter().any(|allowed| allowed.as_ref() == name),
    };
    let fits = |value: &Json| value.is_object() && value.bytes().len() <= EXTENSION_BYTES;
    let mut carried = declared.members().filter(|(name, value)| is_carried(name) && fits(value)).peekable();
    carried.peek()?;
    Some(carried.fold(Object::new(), |all, (name, value)| all.put(&name, &value)).finish())
}
