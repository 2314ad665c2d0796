//! (serve: under construction)
