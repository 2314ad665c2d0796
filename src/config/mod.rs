//! (config: under construction)
