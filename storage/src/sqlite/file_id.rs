//! Whether the database's file is still the one that was opened. SQLite goes on writing into a file that was removed or
//! replaced under it, and says nothing: what is written so is lost with the last descriptor.

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use super::home::Home;

/// Device and number of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FileId(u64, u64);

/// The id of the file at the database's path now; `None` for a database in memory and for a file that is not there.
pub(super) fn now(home: &Home) -> Option<FileId> {
    let of = |path: &Path| std::fs::metadata(path).ok().map(|file| FileId(file.dev(), file.ino()));
    home.is_file().then(|| of(home.path())).flatten()
}
