//! (app: under construction)
