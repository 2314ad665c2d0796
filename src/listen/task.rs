//! Tasks among what is listened to.
//!
//! A task is listened to as a resource is, under a key of its backend's name and its own id there, which is no
//! URI. What its backend says of it only marks it: what it is at is asked for when it is told. So nobody holds
//! what it was, and whoever reads slowly, or comes late, hears what it is.
//!
//! spec: SEP-2663, Task Status Notifications

use std::collections::HashSet;
use std::sync::Arc;

use crate::backend::watch::Interest;
use crate::catalog::entry::Entry;
use crate::catalog::entry::Home;
use crate::model::name::BackendName;
use crate::model::scope::Scopes;

/// No URI has it.
const MARK: char = '\0';

/// A task of a backend could not be asked for just now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Late;

/// The key of the task that the backend of this name knows as `own`.
pub(super) fn key(backend: &BackendName, own: &str) -> Arc<str> {
    format!("{MARK}{backend}{MARK}{own}").into()
}

/// The backend's name and own id of a task, if `key` is the key of one.
pub fn read(key: &str) -> Option<(&str, &str)> {
    key.strip_prefix(MARK)?.split_once(MARK)
}

/// The task that this backend knows as `own`, under its key.
pub fn entry(home: &Arc<Home>, own: &str) -> Entry {
    let key = key(&home.config.name, own);
    Entry::task(home, &key, &key, Scopes::default())
}

/// What a backend is watched for, for these URIs and keys.
pub(super) fn interest(wanted: &[Arc<str>]) -> Interest {
    let mut interest = Interest::default();
    for one in wanted {
        match read(one) {
            Some((_, own)) => interest.tasks.push(own.into()),
            None => interest.uris.push(one.clone()),
        }
    }
    interest
}

/// The URIs and keys that a backend honours.
pub(super) fn honoured(backend: &BackendName, honoured: &Interest) -> HashSet<Arc<str>> {
    let tasks = honoured.tasks.iter().map(|own| key(backend, own));
    honoured.uris.iter().cloned().chain(tasks).collect()
}

#[cfg(test)]
mod tests {
    use super::honoured;
    use super::interest;
    use super::key;
    use super::read;
    use crate::model::name::BackendName;

    #[test]
    fn a_key_tells_tasks_from_resources_whatever_their_ids_are() {
        let up = BackendName::new("up").unwrap();
        let keys = ["1", "x://a", "", "a\0b", "\0"].map(|own| key(&up, own));
        for (key, own) in keys.iter().zip(["1", "x://a", "", "a\0b", "\0"]) {
            assert_eq!(read(key), Some(("up", own)));
        }
        assert_eq!(read("x://a"), None);
        let wanted = [keys[1].clone(), "x://a".into(), keys[3].clone()];
        let interest = interest(&wanted);
        assert_eq!(
            (&*interest.uris, &*interest.tasks),
            (&["x://a".into()][..], &["x://a".into(), "a\0b".into()][..])
        );
        assert_eq!(honoured(&up, &interest), wanted.into_iter().collect());
    }
}
