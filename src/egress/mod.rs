//! (egress: under construction)
