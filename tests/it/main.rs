//! The integration tests, one binary: behaviour through the front door, and the architecture.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod api;
mod architecture;
mod bytes;
mod cache;
mod cases;
mod catalog;
mod commands;
mod compatibility;
mod conformance;
mod conformance_client;
mod conformance_tasks;
mod edge;
mod faults;
mod harness;
mod identity;
mod introspection;
mod isolation;
mod ladder;
mod legacy_backends;
mod listen;
mod metadata;
mod observe;
mod old;
mod overlay;
mod peers;
mod prompts;
mod relay;
mod resources;
#[path = "../clients/rmcp.rs"]
mod rmcp_client;
#[path = "../fixtures/rmcp.rs"]
mod rmcp_server;
mod rounds;
mod sessions;
mod store;
mod streams;
mod tasks;
mod tenants;
mod three;
mod ui;
mod watch;
