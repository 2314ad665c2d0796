//! What goes on in sessions now: calls under their clients' ids, and streams, which have none.

use std::collections::HashMap;

use tokio_util::sync::CancellationToken;

use crate::legacy::session::Key;
use crate::protocol::json::Json;
use crate::protocol::message::RequestId;

/// Everything that is in flight, by session. A session without any is forgotten.
#[derive(Default)]
pub(super) struct Flights {
    sessions: HashMap<Key, Vec<Entry>>,
    serial: u64,
    /// Whether nothing may go on any more.
    over: bool,
}

struct Entry {
    serial: u64,
    id: Option<RequestId>,
    stop: CancellationToken,
}

impl Flights {
    /// One more: the number to remove it by, and what stops it.
    pub(super) fn add(&mut self, session: Key, id: Option<RequestId>) -> (u64, CancellationToken) {
        self.serial += 1;
        let (serial, stop) = (self.serial, CancellationToken::new());
        if self.over {
            stop.cancel();
        }
        self.sessions.entry(session).or_default().push(Entry { serial, id, stop: stop.clone() });
        (serial, stop)
    }

    pub(super) fn remove(&mut self, session: Key, serial: u64) {
        let Some(entries) = self.sessions.get_mut(&session) else { return };
        entries.retain(|entry| entry.serial != serial);
        if entries.is_empty() {
            self.sessions.remove(&session);
        }
    }

    /// Stops the call under `id`. Of several under one id none is meant more than the others: then
    /// nothing is stopped, and nobody's answer is lost.
    pub(super) fn cancel(&self, session: Key, id: &Json) {
        let entries = self.sessions.get(&session).into_iter().flatten();
        let mut meant = entries.filter(|entry| entry.id.as_ref().is_some_and(|own| own.is(id)));
        if let (Some(entry), None) = (meant.next(), meant.next()) {
            entry.stop.cancel();
        }
    }

    /// Stops everything in a session.
    pub(super) fn stop(&self, session: Key) {
        self.sessions.get(&session).into_iter().flatten().for_each(|entry| entry.stop.cancel());
    }

    /// Stops everything, and whatever still begins.
    pub(super) fn stop_all(&mut self) {
        self.over = true;
        self.sessions.values().flatten().for_each(|entry| entry.stop.cancel());
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::Flights;
    use crate::legacy::session::Key;
    use crate::protocol::json::Json;
    use crate::protocol::message::Envelope;
    use crate::protocol::message::RequestId;

    fn json(text: &str) -> Json {
        Json::parse(Bytes::copy_from_slice(text.as_bytes()), 8).unwrap()
    }

    fn id(text: &str) -> Option<RequestId> {
        Envelope::read(&json(&format!(r#"{{"id":{text}}}"#)), 256).id().cloned()
    }

    // spec: row LG-16
    #[test]
    fn a_cancellation_means_one_call_of_its_session_or_none() {
        let mut flights = Flights::default();
        let (own, other) = (Key::new([1; 16]), Key::new([2; 16]));
        let (first, one) = flights.add(own, id("1"));
        let (_, text) = flights.add(own, id(r#""1""#));
        let (_, stream) = flights.add(own, None);
        let (_, foreign) = flights.add(other, id("1"));
        flights.cancel(own, &json("2"));
        flights.cancel(own, &json("null"));
        assert!(!one.is_cancelled() && !text.is_cancelled() && !stream.is_cancelled());
        flights.cancel(own, &json(r#""\u0031""#));
        assert!(text.is_cancelled() && !one.is_cancelled(), "a string is no number");
        let (_, again) = flights.add(own, id("1"));
        flights.cancel(own, &json("1"));
        assert!(!one.is_cancelled() && !again.is_cancelled(), "two calls have the id");
        flights.remove(own, first);
        flights.cancel(own, &json("1"));
        assert!(again.is_cancelled() && !foreign.is_cancelled());
        flights.stop(own);
        assert!(stream.is_cancelled() && !foreign.is_cancelled());
        flights.stop_all();
        assert!(foreign.is_cancelled() && flights.add(own, None).1.is_cancelled());
    }

    #[test]
    fn nothing_is_left_of_what_has_landed() {
        let mut flights = Flights::default();
        let key = Key::new([1; 16]);
        let serials = [id("1"), id("1"), None].map(|id| flights.add(key, id).0);
        serials.into_iter().for_each(|serial| flights.remove(key, serial));
        assert!(flights.sessions.is_empty());
    }
}
