//! A tenant's compiled tools, prompts, resources and templates: public name to backend, in public-name order.
//!
//! Built off the road and read by everybody. [`refresh`] asks the backends and keeps a
//! [`snapshot`] per tenant behind an atomic pointer; [`admission`] judges one entry at a time,
//! so that a bad one is left out and its siblings stay; [`view`] is what one caller sees.

pub mod admission;
pub mod cursor;
pub mod entry;
pub mod header_params;
pub mod herald;
pub mod mirror;
pub mod names;
mod notices;
pub mod owners;
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

#[cfg(test)]
mod tests;
