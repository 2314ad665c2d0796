//! Bytes in and out over time: bodies that are read, answers that are streams.

pub mod body;
pub mod budget;
pub mod relay;
pub mod sse;
