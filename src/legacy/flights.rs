//! What goes on in sessions now: calls under their clients' ids, and streams, which have none.

use std::collections::HashMap;

use tokio_util::sync::CancellationToken;

use crate::legacy::session::Key;
use crate::protocol::json::Json;
use crate::protocol::message::RequestId;

/// Everything that is in flight, by session. A session without any is forgotten.
#[derive(Default)]
pub(super) struct Flights {
    sessions: HashMap<Key, Own>,
    serial: u64,
    /// Whether nothing may go on any more.
    over: bool,
}

/// What goes on in one session.
#[derive(Default)]
struct Own {
    /// By name, as several calls may have one id; then by number. Each is found at once, also among many.
    entries: HashMap<Name, HashMap<u64, CancellationToken>>,
    calls: usize,
}

/// What an entry is found by: its id such that equal ids are equal, however they are written. Streams
/// have none.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Name(Option<Box<str>>);

/// The place of something in flight, to give it back.
#[derive(Debug)]
pub(super) struct Seat {
    session: Key,
    name: Name,
    serial: u64,
}

impl Name {
    fn of(id: &Json) -> Self {
        // A number's text has no quote.
        let text = id.string_ref().map_or_else(|| id.text().into(), |text| format!("\"{text}").into());
        Self(Some(text))
    }
}

impl Flights {
    /// One more: its place, and what stops it. Of calls a session has at most `most`.
    pub(super) fn add(
        &mut self,
        session: Key,
        id: Option<&RequestId>,
        most: usize,
    ) -> Option<(Seat, CancellationToken)> {
        let calls = self.sessions.get(&session).map_or(0, |own| own.calls);
        if id.is_some() && calls >= most {
            return None;
        }
        self.serial += 1;
        let (serial, stop) = (self.serial, CancellationToken::new());
        if self.over {
            stop.cancel();
        }
        let name = Name(id.and_then(|id| Name::of(id.as_json()).0));
        let own = self.sessions.entry(session).or_default();
        own.calls += usize::from(id.is_some());
        own.entries.entry(name.clone()).or_default().insert(serial, stop.clone());
        Some((Seat { session, name, serial }, stop))
    }

    pub(super) fn remove(&mut self, seat: &Seat) {
        let Some(own) = self.sessions.get_mut(&seat.session) else { return };
        let Some(named) = own.entries.get_mut(&seat.name) else { return };
        if named.remove(&seat.serial).is_some() {
            own.calls -= usize::from(seat.name.0.is_some());
        }
        if named.is_empty() {
            own.entries.remove(&seat.name);
        }
        if own.entries.is_empty() {
            self.sessions.remove(&seat.session);
        }
    }

    /// Stops the call under `id`. Of several under one id none is meant more than the others: then
    /// nothing is stopped, and nobody's answer is lost.
    pub(super) fn cancel(&self, session: Key, id: &Json) {
        let Some(own) = self.sessions.get(&session) else { return };
        let mut meant = own.entries.get(&Name::of(id)).into_iter().flat_map(HashMap::values);
        if let (Some(stop), None) = (meant.next(), meant.next()) {
            stop.cancel();
        }
    }

    /// Stops everything in a session.
    pub(super) fn stop(&self, session: Key) {
        self.sessions.get(&session).into_iter().flat_map(Own::stops).for_each(CancellationToken::cancel);
    }

    /// Stops everything, and whatever still begins.
    pub(super) fn stop_all(&mut self) {
        self.over = true;
        self.sessions.values().flat_map(Own::stops).for_each(CancellationToken::cancel);
    }
}

impl Own {
    fn stops(&self) -> impl Iterator<Item = &CancellationToken> {
        self.entries.values().flat_map(HashMap::values)
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use tokio_util::sync::CancellationToken;

    use super::Flights;
    use super::Seat;
    use crate::legacy::session::Key;
    use crate::protocol::json::Json;
    use crate::protocol::message::Envelope;
    use crate::protocol::message::RequestId;

    const MANY: u64 = 200_000;

    fn json(text: &str) -> Json {
        Json::parse(Bytes::copy_from_slice(text.as_bytes()), 8).unwrap()
    }

    fn id(text: &str) -> RequestId {
        Envelope::read(&json(&format!(r#"{{"id":{text}}}"#)), 256).id().cloned().unwrap()
    }

    /// One more, where there is room for it.
    fn add(flights: &mut Flights, session: Key, id: Option<&RequestId>) -> (Seat, CancellationToken) {
        flights.add(session, id, usize::MAX).unwrap()
    }

    // spec: row LG-16
    #[test]
    fn a_cancellation_means_one_call_of_its_session_or_none() {
        let flights = &mut Flights::default();
        let (own, other) = (Key::new([1; 16]), Key::new([2; 16]));
        let number = id("1");
        let (first, one) = add(flights, own, Some(&number));
        let (_, text) = add(flights, own, Some(&id(r#""1""#)));
        let (_, stream) = add(flights, own, None);
        let (_, foreign) = add(flights, other, Some(&number));
        for nothing in ["2", "null", "{}", r#""""#, r#""\"1""#] {
            flights.cancel(own, &json(nothing));
        }
        assert!(!one.is_cancelled() && !text.is_cancelled() && !stream.is_cancelled());
        flights.cancel(own, &json(r#""\u0031""#));
        assert!(text.is_cancelled() && !one.is_cancelled(), "a string is no number");
        let (_, again) = add(flights, own, Some(&number));
        flights.cancel(own, &json("1"));
        assert!(!one.is_cancelled() && !again.is_cancelled(), "two calls have the id");
        flights.remove(&first);
        flights.cancel(own, &json("1"));
        assert!(again.is_cancelled() && !foreign.is_cancelled());
        flights.stop(own);
        assert!(stream.is_cancelled() && !foreign.is_cancelled());
        flights.stop_all();
        assert!(foreign.is_cancelled() && add(flights, own, None).1.is_cancelled());
    }

    #[test]
    fn nothing_is_left_of_what_has_landed() {
        let flights = &mut Flights::default();
        let key = Key::new([1; 16]);
        let seats = [Some(&id("1")), Some(&id("1")), None].map(|id| add(flights, key, id).0);
        seats.iter().for_each(|seat| flights.remove(seat));
        assert!(flights.sessions.is_empty());
    }

    #[test]
    fn a_session_has_so_many_calls_and_any_stream() {
        let flights = &mut Flights::default();
        let [own, other] = [1, 2].map(|byte| Key::new([byte; 16]));
        let number = id("1");
        let (first, _) = flights.add(own, Some(&number), 2).unwrap();
        flights.add(own, Some(&id("2")), 2).unwrap();
        assert!(flights.add(own, Some(&id("3")), 2).is_none());
        assert!(flights.add(own, None, 2).is_some() && flights.add(other, Some(&number), 2).is_some());
        flights.remove(&first);
        flights.remove(&first);
        assert!(flights.add(own, Some(&number), 2).is_some() && flights.add(own, Some(&number), 2).is_none());
    }

    #[test]
    fn what_one_costs_does_not_depend_on_how_many_there_are() {
        let flights = &mut Flights::default();
        let key = Key::new([1; 16]);
        let seats: Vec<_> =
            (0..MANY).map(|n| add(flights, key, Some(&id(&(n % 2 * n).to_string()))).0).collect();
        // Half of them have one id, the others one each. In linear time this is done in a moment, and
        // in quadratic time never.
        (1..MANY).step_by(2).for_each(|n| flights.cancel(key, &json(&n.to_string())));
        seats.iter().for_each(|seat| flights.remove(seat));
        assert!(flights.sessions.is_empty());
    }
}
