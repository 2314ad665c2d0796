//! (backend: under construction)
