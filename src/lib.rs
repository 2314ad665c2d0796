//! Fondaco: a multi-tenant Streamable HTTP MCP gateway.
//!
//! Start reading at [`pipeline`], the road that every request takes; the order of
//! the checks on it is the ladder in ARCHITECTURE.md. `exchange` holds the one value
//! that travels, `edge::respond` the one table of answers.

pub mod admin;
pub mod app;
pub mod auth;
pub mod backend;
pub mod cache;
pub mod catalog;
pub mod cli;
pub mod config;
pub mod edge;
pub mod egress;
pub mod error;
pub mod exchange;
pub mod legacy;
pub mod listen;
pub mod methods;
pub mod model;
pub mod pipeline;
pub mod policy;
pub mod protocol;
pub mod router;
pub mod seal;
pub mod serve;
pub mod store;
pub mod stream;
pub mod telemetry;
pub mod tenant;
