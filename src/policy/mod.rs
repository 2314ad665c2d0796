//! (policy: under construction)
