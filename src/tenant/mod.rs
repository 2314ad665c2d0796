//! (tenant: under construction)
