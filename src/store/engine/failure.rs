//! What went wrong in an engine, told apart by what may be done about it. Nothing that an engine
//! says is passed on: its messages may hold statements, values and addresses.

use std::fmt;
use std::io;

/// Why an engine did not do something, without any of its own words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cause(Kind);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Kind {
    /// The engine's own code: SQLSTATE, or SQLite's number.
    Code(String),
    /// The connection.
    Io(io::ErrorKind),
    /// What has no code.
    Said(&'static str),
}

/// How a statement or a transaction failed.
#[derive(Debug)]
pub enum Failure {
    /// Nothing was written, and another try may succeed at once.
    Passing(Cause),
    /// Nothing was written: the engine is not there, or has no time or room.
    Away(Cause),
    /// The connection was lost after the end of the transaction was sent: it may be written.
    Unknown(Cause),
    /// There is such a row already.
    Taken,
    /// A row has something else in this column than it should have.
    Corrupt(&'static str),
    /// A fault of the schema, or of ours.
    Fault(Cause),
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Kind::Code(code) => write!(f, "the database refused with the code {code}"),
            Kind::Io(kind) => write!(f, "the connection to the database failed: {kind}"),
            Kind::Said(text) => f.write_str(text),
        }
    }
}

impl std::error::Error for Cause {}

impl Cause {
    /// A cause in our own words.
    pub(in crate::store) fn said(text: &'static str) -> Self {
        Self(Kind::Said(text))
    }

    pub(in crate::store) fn of(error: &sqlx::Error) -> Self {
        match error {
            sqlx::Error::Database(error) => Self(
                error.code().map_or(Kind::Said("the database refused"), |code| Kind::Code(code.into_owned())),
            ),
            sqlx::Error::Io(error) => Self(Kind::Io(error.kind())),
            sqlx::Error::Tls(_) => Self::said("TLS with the database failed"),
            sqlx::Error::PoolTimedOut => Self::said("no connection to the database in time"),
            sqlx::Error::PoolClosed => Self::said("the database is closed"),
            sqlx::Error::Protocol(_) => Self::said("the connection to the database is out of step"),
            sqlx::Error::Configuration(_) => Self::said("the database's URL cannot be used"),
            _ => Self::said("the database's answer cannot be used"),
        }
    }
}

impl Failure {
    /// The statement's time is over.
    pub(in crate::store) fn late() -> Self {
        Self::Away(Cause::said("the database did not answer in time"))
    }

    /// As if it had happened while the end of the transaction was on its way.
    pub(in crate::store) fn at_commit(self) -> Self {
        match self {
            // A server that ends a connection may have committed before that. What it refused, it rolled back.
            Self::Passing(Cause(Kind::Code(code))) if !code.starts_with("57") => {
                Self::Passing(Cause(Kind::Code(code)))
            }
            Self::Away(cause) | Self::Passing(cause) => Self::Unknown(cause),
            Self::Unknown(_) | Self::Taken | Self::Corrupt(_) | Self::Fault(_) => self,
        }
    }
}

impl From<sqlx::Error> for Failure {
    fn from(error: sqlx::Error) -> Self {
        let cause = Cause::of(&error);
        match &error {
            sqlx::Error::Database(refused) if refused.is_unique_violation() => Self::Taken,
            sqlx::Error::Database(_) => match &cause.0 {
                Kind::Code(code) => by_code(code, cause.clone()),
                _ => Self::Fault(cause),
            },
            sqlx::Error::Io(_) | sqlx::Error::Tls(_) | sqlx::Error::Protocol(_) => Self::Passing(cause),
            sqlx::Error::PoolTimedOut | sqlx::Error::PoolClosed | sqlx::Error::WorkerCrashed => {
                Self::Away(cause)
            }
            _ => Self::Fault(cause),
        }
    }
}

/// By SQLSTATE, which has five characters, or SQLite's extended code.
// spec: PostgreSQL, appendix A; SQLite, result codes
fn by_code(code: &str, cause: Cause) -> Failure {
    match code {
        // Serialisation, deadlock, and a connection that was ended by its server.
        "40001" | "40P01" | "57P01" | "57P02" | "57P03" => Failure::Passing(cause),
        code if code.len() == 5 => match &code[..2] {
            // Connection, resources, a lock or statement that took too long, read-only, a login that is refused now.
            "08" | "53" | "55" | "57" | "58" | "25" | "28" => Failure::Away(cause),
            _ => Failure::Fault(cause),
        },
        code => match code.parse::<u32>().map(|code| code & 0xff) {
            // Busy and locked.
            Ok(5 | 6) => Failure::Passing(cause),
            // Read-only, interrupted, input and output, corrupt, full, cannot open, no such file.
            Ok(8..=11 | 13 | 14 | 26) => Failure::Away(cause),
            _ => Failure::Fault(cause),
        },
    }
}
