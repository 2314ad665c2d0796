//! What the tests stand on: a gateway, its callers, issuers, backends and real processes.

pub mod database;
pub mod deployment;
pub mod gateway;
pub mod issuer;
pub mod process;
pub mod serving;
pub mod session;
pub mod upstream;
pub mod wait;
pub mod wire;
