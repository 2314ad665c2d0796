//! (pipeline: under construction)
