//! (admin: under construction)
