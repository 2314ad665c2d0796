//! What stands in the state of a call that its backend asked back: where it waits, or that it is to be sent
//! once more. Clients see it sealed; any replica can read it.

use std::fmt::Write;

use aws_lc_rs::digest;

use crate::protocol::json::Json;
use crate::protocol::json::canonical::canonical;
use crate::seal;

/// What the state of a call begins with that waits.
const WAITS: &str = "dev.fondaco/parked:";

/// The state of a call that nothing is kept of: it is sent once more.
pub(in crate::backend) const AGAIN: &str = "dev.fondaco/again";

/// How many bytes of a digest tell two questions apart.
const DIGEST_BYTES: usize = 16;

/// Where a call waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::backend) struct Ticket {
    /// The room that it waits in: of one backend, as one process has it.
    pub(super) room: String,
    /// The call.
    pub(super) call: String,
    /// How often it was asked back.
    pub(super) round: usize,
    /// What is asked, each by its digest.
    pub(super) asked: Vec<String>,
}

impl Ticket {
    /// The state that names it.
    pub(super) fn text(&self) -> String {
        let Self { room, call, round, asked } = self;
        format!("{WAITS}{room}.{call}.{round}.{}", asked.join(","))
    }

    /// What a state names, if it is one of ours.
    pub(in crate::backend) fn read(state: &str) -> Option<Self> {
        let mut parts = state.strip_prefix(WAITS)?.splitn(4, '.');
        let (room, call) = (parts.next()?.to_owned(), parts.next()?.to_owned());
        let round = parts.next()?.parse().ok()?;
        let asked = parts.next()?.split(',').map(str::to_owned).collect();
        Some(Self { room, call, round, asked })
    }

    /// The keys that the answers have.
    pub(super) fn keys(&self) -> impl Iterator<Item = String> {
        keys(self.round, self.asked.len())
    }
}

/// Whether a state is none of a backend's.
pub(in crate::backend) fn is_ours(state: &str) -> bool {
    state == AGAIN || state.starts_with(WAITS)
}

/// The keys of so many questions of a round, which is counted from 1.
///
/// spec: row X-07
pub(super) fn keys(round: usize, questions: usize) -> impl Iterator<Item = String> {
    (1..=questions).map(move |n| format!("r{round}.{n}"))
}

/// A name that nobody can guess.
pub(super) fn name() -> String {
    hex(&seal::random::<16>())
}

/// What tells this value from others.
pub(super) fn digest(value: &Json) -> String {
    hex(&digest::digest(&digest::SHA256, &canonical(value)).as_ref()[..DIGEST_BYTES])
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        // A String takes every write.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::AGAIN;
    use super::Ticket;
    use super::is_ours;

    #[test]
    fn a_state_says_where_its_call_waits() {
        let asked = vec!["aa".to_owned(), "bb".to_owned()];
        let ticket = Ticket { room: "r".into(), call: "c".into(), round: 12, asked };
        assert_eq!(Ticket::read(&ticket.text()), Some(ticket.clone()));
        assert_eq!(ticket.keys().collect::<Vec<_>>(), ["r12.1", "r12.2"]);
        assert!(is_ours(&ticket.text()) && is_ours(AGAIN));
        for foreign in
            ["", "x", AGAIN, "dev.fondaco/parked", "dev.fondaco/parked:a.b", "dev.fondaco/parked:a.b.c.d"]
        {
            assert_eq!(Ticket::read(foreign), None, "{foreign}");
        }
    }
}
