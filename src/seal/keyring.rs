//! The ring's text and its file: one base64 key a line, `#` for comments, made on first use.

use std::fs;
use std::io;
use std::io::Write;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rustix::fs::Access;
use zeroize::Zeroizing;

use crate::seal::KeyRing;
use crate::seal::SealError;

const FILE: &str = "keyring";

impl KeyRing {
    /// Reads the text form: one key a line, in base64. Empty lines and lines after `#` are skipped.
    pub fn parse(text: &str) -> Result<Self, SealError> {
        let mut keys = Vec::new();
        for (index, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let bad = || SealError::BadKey(index + 1);
            let key = Zeroizing::new(STANDARD.decode(line).map_err(|_| bad())?);
            keys.push(key.as_slice().try_into().map_err(|_| bad())?);
        }
        Self::new(keys)
    }

    /// The ring in `data_dir`, which only its owner may read. Directory and ring are made if they
    /// are not there; of two processes that make it at once, both get the same.
    pub fn open_or_create(data_dir: &Path) -> Result<Self, SealError> {
        let path = data_dir.join(FILE);
        let failed = |source| SealError::File { path: path.clone(), source };
        match read(&path) {
            Err(SealError::File { source, .. }) if source.kind() == io::ErrorKind::NotFound => {}
            ready => return ready,
        }
        fs::DirBuilder::new().recursive(true).mode(0o700).create(data_dir).map_err(failed)?;
        let fresh = data_dir.join(format!("{FILE}.{}", std::process::id()));
        let made = create(&fresh).and_then(|()| match fs::hard_link(&fresh, &path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
            _ => Ok(()),
        });
        let removed = fs::remove_file(&fresh);
        made.and(removed).map_err(failed)?;
        read(&path)
    }

    /// What [`Self::open_or_create`] would fail with, as far as looking tells: nothing is made.
    pub fn look(data_dir: &Path) -> Result<(), SealError> {
        let path = data_dir.join(FILE);
        match read(&path) {
            Err(SealError::File { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                may_make(data_dir).map_err(|source| SealError::File { path, source })
            }
            ready => ready.map(drop),
        }
    }
}

/// Whether `directory`, or else the nearest one above it, lets us make something in it.
fn may_make(directory: &Path) -> io::Result<()> {
    for directory in directory.ancestors() {
        let here = if directory.as_os_str().is_empty() { Path::new(".") } else { directory };
        match rustix::fs::access(here, Access::WRITE_OK | Access::EXEC_OK) {
            Err(rustix::io::Errno::NOENT) => {}
            answer => return Ok(answer?),
        }
    }
    Err(io::ErrorKind::NotFound.into())
}

fn read(path: &Path) -> Result<KeyRing, SealError> {
    let failed = |source| SealError::File { path: path.to_owned(), source };
    let mode = fs::metadata(path).map_err(failed)?.permissions().mode();
    if mode & 0o077 != 0 {
        return Err(SealError::Exposed(path.to_owned()));
    }
    let text = Zeroizing::new(fs::read_to_string(path).map_err(failed)?);
    KeyRing::parse(&text)
        .map_err(|reason| SealError::Ring { path: path.to_owned(), source: Box::new(reason) })
}

/// Writes a ring of one new key, whole and on the disk before it gets its name.
fn create(path: &Path) -> io::Result<()> {
    let mut key = Zeroizing::new([0; 32]);
    aws_lc_rs::rand::fill(&mut *key).map_err(|_| io::Error::other("no randomness"))?;
    let line = Zeroizing::new(format!("{}\n", STANDARD.encode(*key)));
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(line.as_bytes())?;
    file.sync_all()
}
