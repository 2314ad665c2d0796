//! A tenant's compiled tools, prompts, resources and templates: public name to backend, in public-name order.
//!
//! Built off the road and read by everybody. [`refresh`] asks the backends and keeps a
//! [`snapshot`] per tenant behind an atomic pointer; [`admission`] judges one entry at a time,
//! so that a bad one is left out and its siblings stay; [`view`] is what one caller sees. What a backend
//! lists for one caller alone lies over what all share, and is seen by nobody else.

pub mod admission;
mod aliases;
pub mod cursor;
pub mod entry;
pub mod header_params;
pub mod herald;
pub mod mirror;
pub mod names;
mod notices;
pub mod owners;
pub mod part;
pub mod refresh;
pub mod schema;
pub mod snapshot;
mod source;
mod stored;
pub mod table;
pub mod template;
pub mod text;
pub mod tool;
pub mod ui;
pub mod uris;
pub mod view;
pub mod viewer;

#[cfg(test)]
mod tests;
