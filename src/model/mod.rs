//! The nouns of the gateway and its clock. Nothing here does IO.

pub mod caller;
pub mod chance;
pub mod clock;
pub mod endpoint;
pub mod limits;
pub mod link;
pub mod name;
pub mod scope;
pub mod tally;
pub mod tenant;
pub mod uri;
