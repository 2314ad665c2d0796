//! (edge: under construction)
