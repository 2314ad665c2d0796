//! (auth: under construction)
