//! (error: under construction)
