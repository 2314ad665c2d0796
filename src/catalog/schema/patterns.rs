//! What the patterns of a backend's schemas weigh: how large each is when compiled.
//!
//! A short pattern can be large (`[01]{1500}`), so it is measured: it is compiled under a limit
//! that doubles until it fits, which costs twice its own compiling at most.

use std::collections::HashMap;

use jsonschema::PatternCache;
use jsonschema::PatternOptions;
use jsonschema::Regex;
use serde_json::Value;
use serde_json::json;

use crate::catalog::schema::SchemaProblem;
use crate::catalog::schema::message;

/// Largest compiled pattern.
const LARGEST: usize = 64 << 10;

/// What the smallest counts as.
const SMALLEST: usize = 256;

/// Longest pattern as text.
const LONGEST: usize = 8 << 10;

/// What all patterns of a backend may weigh together.
const TOGETHER: usize = 4 << 20;

/// How many times as much memory they take, with their caches, once all of them were used on texts that are
/// made to fill those.
const TIMES: usize = 25;

/// What any pattern weighs there, since it has caches.
const LEAST: usize = 4 << 10;

/// The patterns of one backend's schemas. Each is compiled and kept once.
pub struct Patterns {
    sizes: HashMap<String, Result<usize, SchemaProblem>>,
    left: usize,
    pub(super) compiled: PatternCache,
}

impl Default for Patterns {
    fn default() -> Self {
        Self { sizes: HashMap::new(), left: TOGETHER, compiled: PatternCache::new() }
    }
}

impl Patterns {
    /// What they may come to take in memory, all together, once all of them were used.
    pub(in crate::catalog) fn bytes(&self) -> usize {
        (TOGETHER - self.left) * TIMES
    }

    /// What matching a byte with `pattern` costs.
    pub(super) fn weigh(&mut self, pattern: &str) -> Result<u64, SchemaProblem> {
        if pattern.len() > LONGEST {
            return Err(SchemaProblem::Pattern(LONGEST));
        }
        if let Some(known) = self.sizes.get(pattern) {
            return known.clone().map(|size| size as u64);
        }
        let size = measure(pattern).and_then(|size| {
            self.left = self.left.checked_sub(size.max(LEAST)).ok_or(SchemaProblem::Patterns)?;
            Ok(size)
        });
        self.sizes.insert(pattern.to_owned(), size.clone());
        size.map(|size| size as u64)
    }
}

/// How every pattern is compiled.
pub(super) fn options() -> PatternOptions<Regex> {
    // What does not fit into its cache is matched without one, as slowly as it is charged for.
    PatternOptions::regex().size_limit(LARGEST).dfa_size_limit(LARGEST)
}

fn measure(pattern: &str) -> Result<usize, SchemaProblem> {
    let schema = json!({"pattern": pattern});
    let mut size = SMALLEST;
    loop {
        match compile(&schema, size) {
            // Some simple patterns are not compiled, but looked through as text.
            Ok(()) => return Ok(size.max(pattern.len())),
            Err(problem) if size >= LARGEST => return Err(problem),
            Err(_) => size *= 2,
        }
    }
}

fn compile(schema: &Value, size: usize) -> Result<(), SchemaProblem> {
    let built = jsonschema::options().with_pattern_options(options().size_limit(size)).build(schema);
    built.map(|_| ()).map_err(|error| SchemaProblem::Invalid(message(&error)))
}

#[cfg(test)]
mod tests {
    use super::Patterns;

    #[test]
    fn patterns_weigh_what_they_are_compiled_to() {
        let mut patterns = Patterns::default();
        for (pattern, most) in [
            ("^[a-z]*$", 512),
            ("^(get|put)$", 256),
            ("^[A-Za-z0-9+/]*={0,2}$", 1 << 10),
            (r"^\d{4}-\d{2}-\d{2}$", 2 << 10),
            (r"^[^\s@]+@[^\s@]+$", 8 << 10),
            (r"^[A-Za-z0-9._-]{1,64}$", 16 << 10),
            (r"^[A-Za-z0-9._-]{1,255}$", 64 << 10),
            (r"^\w{1,255}$", 64 << 10),
        ] {
            let size = patterns.weigh(pattern).unwrap();
            assert!(size <= most, "{pattern}: {size}");
        }
        for pattern in ["1[01]{1500}[^01]", r"\p{L}{50}", "(", &"a".repeat(9_000)] {
            assert!(patterns.weigh(pattern).is_err(), "{pattern}");
            assert!(patterns.weigh(pattern).is_err(), "{pattern}, again");
        }
    }

    #[test]
    fn a_backend_has_so_many_patterns_and_each_counts_once() {
        let mut patterns = Patterns::default();
        let taken = (0..2_000).take_while(|n| patterns.weigh(&format!("^a{n}$")).is_ok()).count();
        assert_eq!(taken, 1_024);
        assert!(patterns.weigh("^a7$").is_ok());
    }
}
