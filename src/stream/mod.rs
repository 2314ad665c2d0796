//! (stream: under construction)
