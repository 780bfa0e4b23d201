//! The files that paths name: directories with all below them, in the order of names.
//!
//! Invariant: memory is bounded by the entries of the directories on the way down, and nothing in them is opened
//! that is no file.

use std::io;
use std::path::{Path, PathBuf};

/// What stands at a path.
pub(super) enum Found {
    /// A file and its length.
    File(PathBuf, u64),
    /// In a directory, neither a file nor a directory: a link, a socket, a device.
    Other(PathBuf),
    /// It cannot be listed.
    Unlisted(PathBuf, io::Error),
}

/// Shows every file at or below `path`. A path that was named may be a link or a pipe.
pub(super) fn each(path: &Path, see: &mut impl FnMut(Found)) {
    match path.metadata() {
        Ok(about) if !about.is_dir() => return see(Found::File(path.to_owned(), about.len())),
        Ok(_) => {}
        Err(error) => return see(Found::Unlisted(path.to_owned(), error)),
    }
    let mut waiting = vec![path.to_owned()];
    while let Some(next) = waiting.pop() {
        let about = match next.symlink_metadata() {
            // Only a directory that was named may be a link.
            _ if next == path => None,
            Ok(about) => Some(about),
            Err(error) => {
                see(Found::Unlisted(next, error));
                continue;
            }
        };
        match about {
            Some(about) if about.is_file() => see(Found::File(next, about.len())),
            Some(about) if !about.is_dir() => see(Found::Other(next)),
            _ => match entries(&next) {
                Ok(names) => waiting.extend(names.into_iter().rev()),
                Err(error) => see(Found::Unlisted(next, error)),
            },
        }
    }
}

fn entries(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut entries =
        folder.read_dir()?.map(|entry| entry.map(|entry| entry.path())).collect::<io::Result<Vec<_>>>()?;
    entries.sort_unstable();
    Ok(entries)
}
