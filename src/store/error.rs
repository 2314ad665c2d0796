//! Why the store did not do something. No message holds a statement, a value or an address.

use std::io;
use std::path::PathBuf;

use crate::store::Revision;
use crate::store::claims::Claim;
use crate::store::engine::Failure;

pub use crate::store::engine::Cause;

/// Why a read or a write did not happen.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// There is none of this name here.
    #[error("there is no such object")]
    NotFound,
    /// There is one of this name already.
    #[error("an object of this name exists already")]
    Exists,
    /// It is not in the state that the writer knows.
    #[error("the object was changed meanwhile: it is at another revision")]
    Conflict {
        /// The state that it is in.
        current: Revision,
    },
    /// Something that can only be one tenant's is another's.
    #[error("{} is another tenant's already", .0.noun())]
    Claimed(Claim),
    /// The idempotency key was used for another request.
    #[error("the idempotency key belongs to another request")]
    KeyReused,
    /// The tenant as it would be does not pass the writer's own check.
    #[error("the writer's check refuses what would be written")]
    Refused,
    /// Nobody would be left who may make operators.
    #[error("the last owner of the deployment cannot be removed")]
    LastOwner,
    /// The value is longer than `limits.secret_bytes`.
    #[error("the secret's value is too long")]
    TooLong,
    /// Nothing was written; later it may be. To be answered with `Retry-After`.
    #[error("the database is busy or not there: try again")]
    Busy(#[source] Cause),
    /// The connection was lost while the write was being confirmed: it may have happened. The same
    /// request with the same idempotency key finds out.
    #[error("it is not known whether the change was written: ask again")]
    Unknown(#[source] Cause),
    /// A row does not hold what it should.
    #[error("a stored row cannot be read: its column `{0}`")]
    Corrupt(&'static str),
    /// A fault of the schema, or of this program.
    #[error("the database refused a statement")]
    Fault(#[source] Cause),
}

impl From<Failure> for StoreError {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Passing(cause) | Failure::Away(cause) => Self::Busy(cause),
            Failure::Unknown(cause) => Self::Unknown(cause),
            Failure::Taken => Self::Exists,
            Failure::Corrupt(column) => Self::Corrupt(column),
            Failure::Fault(cause) => Self::Fault(cause),
        }
    }
}

/// Why a database cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// A file of the embedded database.
    #[error("the database {0} cannot be used: {1}")]
    File(PathBuf, io::Error),
    /// Another process has the embedded database.
    #[error(
        "the database is in use by another process, which holds {0}: with SQLite one process has it; stop \
         that one first, or use PostgreSQL"
    )]
    InUse(PathBuf),
    /// What the URL says is not understood.
    #[error("`database.url` cannot be used: expected `postgres://user@host/database`")]
    Url,
    /// It is not there now.
    #[error("the database cannot be reached")]
    Away(#[source] Cause),
    /// Its schema is older than the program.
    #[error("the database has an older schema than this program: run `fondaco migrate`")]
    Older,
    /// Its schema is newer than the program.
    #[error("the database has a newer schema than this program knows (migration {0}): use a newer program")]
    Newer(i64),
    /// Its schema was made by something else.
    #[error("migration {0} of the database is not the one that this program knows")]
    Changed(i64),
    /// The role that connects is not the schema's owner.
    #[error("this role may not change the database's schema: migrate as the role that owns it")]
    NotOwner,
    /// The schema could not be brought up to date.
    #[error("the database's schema cannot be brought up to date")]
    Migration(#[source] Cause),
}

impl OpenError {
    pub(super) fn away(error: &sqlx::Error) -> Self {
        Self::Away(Cause::of(error))
    }

    pub(super) fn of(error: &sqlx::migrate::MigrateError) -> Self {
        use sqlx::migrate::MigrateError;
        match error {
            MigrateError::VersionMissing(number) => Self::Newer(*number),
            MigrateError::VersionMismatch(number) => Self::Changed(*number),
            MigrateError::Execute(error) | MigrateError::ExecuteMigration(error, _) => {
                match error.as_database_error().and_then(|error| error.code()) {
                    // spec: PostgreSQL, appendix A: insufficient privilege
                    Some(code) if code == "42501" => Self::NotOwner,
                    _ => Self::Migration(Cause::of(error)),
                }
            }
            _ => Self::Migration(Cause::said("its record of migrations is not usable")),
        }
    }
}
