//! Secrets in files: how they are read, and which files are not trusted.

use std::fs::Metadata;
use std::io::Read;
use std::path::Path;

use zeroize::Zeroizing;

/// The longest secret that is read.
const LONGEST: u64 = 64 << 10;

/// Why a secret file was refused.
#[derive(Debug, thiserror::Error)]
pub enum SecretError {
    /// It cannot be opened or read.
    #[error("cannot be read: {0}")]
    Io(#[from] std::io::Error),
    /// A directory, a pipe, a device.
    #[error("is not a regular file")]
    NotAFile,
    /// Everybody on the machine may replace it.
    #[error("can be written by everybody")]
    WorldWritable,
    /// More than a secret.
    #[error("is longer than 64KiB")]
    TooLong,
    /// Not UTF-8.
    #[error("is not text")]
    NotText,
    /// Nothing in it.
    #[error("is empty")]
    Empty,
}

/// The text in the file at `path`, without one newline at its end.
pub fn read(path: &Path) -> Result<Zeroizing<String>, SecretError> {
    // Asked before opening: opening a pipe would wait for its writer.
    trusted(&std::fs::metadata(path)?)?;
    let file = std::fs::File::open(path)?;
    trusted(&file.metadata()?)?;
    let mut bytes = Zeroizing::new(Vec::new());
    file.take(LONGEST + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > LONGEST {
        return Err(SecretError::TooLong);
    }
    let text = std::str::from_utf8(&bytes).map_err(|_| SecretError::NotText)?;
    let text = text.strip_suffix('\n').map_or(text, |line| line.strip_suffix('\r').unwrap_or(line));
    if text.is_empty() { Err(SecretError::Empty) } else { Ok(Zeroizing::new(text.to_owned())) }
}

#[cfg(unix)]
fn trusted(file: &Metadata) -> Result<(), SecretError> {
    use std::os::unix::fs::PermissionsExt;
    match file {
        file if !file.is_file() => Err(SecretError::NotAFile),
        file if file.permissions().mode() & 0o002 != 0 => Err(SecretError::WorldWritable),
        _ => Ok(()),
    }
}

#[cfg(not(unix))]
fn trusted(file: &Metadata) -> Result<(), SecretError> {
    if file.is_file() { Ok(()) } else { Err(SecretError::NotAFile) }
}
