//! What is wrong with a configuration: every problem at once, each with its place.

use std::fmt;

/// Every problem that was found, in the order of the files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report(pub Vec<Problem>);

/// One thing that is wrong, where it is written and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The file, or `environment`.
    pub source: String,
    /// The line in the file, from 1.
    pub line: Option<usize>,
    /// The key's path, or the variable's name.
    pub key: String,
    /// What was found and what was expected.
    pub message: String,
    /// What to do.
    pub hint: Option<String>,
}

impl Problem {
    /// A problem of a whole source, or of one whose line is not known.
    pub fn new(source: &str, key: &str, message: impl Into<String>) -> Self {
        Self {
            source: source.to_owned(),
            line: None,
            key: key.to_owned(),
            message: message.into(),
            hint: None,
        }
    }

    /// The same problem with advice.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

impl Report {
    /// How many problems a report prints. The rest is counted.
    const SHOWN: usize = 100;

    /// `Ok` where nothing was found.
    pub fn into_result(self) -> Result<(), Self> {
        if self.0.is_empty() { Ok(()) } else { Err(self) }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.source)?;
        if let Some(line) = self.line {
            write!(f, ":{line}")?;
        }
        if !self.key.is_empty() {
            write!(f, ": {}", self.key)?;
        }
        write!(f, ": {}", self.message)?;
        self.hint.as_ref().map_or(Ok(()), |hint| write!(f, "\n  hint: {hint}"))
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.0.iter().take(Self::SHOWN).enumerate() {
            if index > 0 {
                f.write_str("\n")?;
            }
            write!(f, "{problem}")?;
        }
        match self.0.len().saturating_sub(Self::SHOWN) {
            0 => Ok(()),
            more => write!(f, "\nand {more} more"),
        }
    }
}

impl std::error::Error for Report {}
