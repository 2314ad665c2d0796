//! (catalog: under construction)
