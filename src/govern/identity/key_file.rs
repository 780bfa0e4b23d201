//! The file with the key that tenant tokens are derived from: 64 hex digits and a newline, for this user only.
//!
//! Invariant: a file that is there is never written over; one that is not usable stops the start instead of changing
//! every token.

use std::fs::OpenOptions;
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use weir_config::vocab::Secret;

use super::token::{KEY_BYTES, with_prefix};

/// Why the file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum KeyFileError {
    /// It cannot be read or written.
    #[error("auth.token_key_file {}: {source}; give this user access to it, or name another file", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// It holds something else.
    #[error("auth.token_key_file {}: this is not a token key (64 hexadecimal digits); restore it, or name another file", path.display())]
    NotAKey {
        /// The file.
        path: PathBuf,
    },
}

/// Reads the key; `None` when there is no file.
pub(super) fn read(path: &Path) -> Result<Option<Secret>, KeyFileError> {
    let fail = |source| KeyFileError::Io { path: path.to_owned(), source };
    let file = match OpenOptions::new().read(true).open(path) {
        Ok(file) => file,
        // Made at first need; where its folder is missing, too, it never could be.
        Err(error) if error.kind() == ErrorKind::NotFound => {
            return if folder_of(path).is_dir() { Ok(None) } else { Err(fail(error)) };
        }
        Err(error) => return Err(fail(error)),
    };
    if file.metadata().map_err(fail)?.permissions().mode() & 0o077 != 0 {
        tracing::warn!(path = %path.display(), "the token key can be read by other users; chmod 600 keeps them out");
    }
    // Room from the start: a buffer that grew would leave pieces of the key behind.
    let mut bytes = Vec::with_capacity(2 * KEY_BYTES + 64);
    let outcome = file.take(2 * KEY_BYTES as u64 + 2).read_to_end(&mut bytes);
    let text = Secret::new(bytes);
    outcome.map_err(fail)?;
    let key = unhex(text.expose().trim_ascii()).filter(|key| key.expose().len() == KEY_BYTES);
    key.map(Some).ok_or_else(|| KeyFileError::NotAKey { path: path.to_owned() })
}

/// Writes a fresh key, durably, unless there is a file already.
pub(super) fn create(path: &Path, key: &Secret) -> Result<(), KeyFileError> {
    let fail = |source| KeyFileError::Io { path: path.to_owned(), source };
    let text = Secret::new(format!("{}\n", with_prefix("", key.expose())));
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).map_err(fail)?;
    file.write_all(text.expose()).and_then(|()| file.sync_all()).map_err(fail)?;
    std::fs::File::open(folder_of(path)).and_then(|folder| folder.sync_all()).map_err(fail)
}

fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

fn unhex(text: &[u8]) -> Option<Secret> {
    let digit = |byte: &u8| char::from(*byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let pair = |pair: &[u8]| match pair {
        [high, low] => Some(digit(high)? << 4 | digit(low)?),
        _ => None,
    };
    text.chunks(2).map(pair).collect::<Option<Vec<u8>>>().map(Secret::new)
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;

    #[test]
    fn what_was_written_is_read_and_only_by_its_owner() {
        let folder = TempDir::new().unwrap();
        let path = folder.path().join("service.db.key");
        assert!(read(&path).unwrap().is_none());
        let key = Secret::new((0..32).collect::<Vec<u8>>());
        create(&path, &key).unwrap();
        assert_eq!(read(&path).unwrap().unwrap().expose(), key.expose());
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(create(&path, &key).is_err(), "never written over");
        let lost = read(&folder.path().join("no/such/folder/key")).unwrap_err().to_string();
        assert!(lost.contains("auth.token_key_file") && lost.contains("no/such/folder"), "{lost}");
    }

    #[test]
    fn what_is_no_key_is_refused_without_being_shown() {
        let folder = TempDir::new().unwrap();
        let path = folder.path().join("key");
        for text in ["", "canary", &"0".repeat(63), &"0".repeat(66), &"g".repeat(64)] {
            std::fs::write(&path, text).unwrap();
            let error = read(&path).unwrap_err().to_string();
            assert!(error.contains("not a token key") && !error.contains("canary"), "{error}");
        }
    }
}
