//! (router: under construction)
