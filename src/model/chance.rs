//! Chance, so that replicas that began together do not go on together. Not for secrets.

use std::hash::BuildHasher;
use std::hash::RandomState;

/// A number from 0 to 1 that differs between processes and calls.
pub fn fraction() -> f64 {
    f64::from((word() >> 32) as u32) / f64::from(u32::MAX)
}

/// Any number, likewise.
pub fn word() -> u64 {
    RandomState::new().hash_one(())
}
