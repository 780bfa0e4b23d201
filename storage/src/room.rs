//! Free room beside the database.

use std::path::Path;

use rustix::fs::statvfs;

/// How much a database takes and could take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Room {
    /// Bytes of the file and of its log.
    pub held: u64,
    /// Bytes this user may still write to its file system.
    pub free: u64,
    /// Bytes of the whole file system.
    pub total: u64,
}

/// The room beside the database at `path`, which need not be there yet; `None` when nobody can tell.
pub fn room_beside(path: &Path) -> Option<Room> {
    let (free, total) = room_in(folder_of(path)?)?;
    let mut log = path.as_os_str().to_owned();
    log.push("-wal");
    let bytes = |path: &Path| std::fs::metadata(path).map_or(0, |meta| meta.len());
    let held = bytes(path) + bytes(Path::new(&log));
    Some(Room { held, free, total })
}

/// The folder that holds a file.
pub(crate) fn folder_of(path: &Path) -> Option<&Path> {
    path.parent().map(|folder| if folder == Path::new("") { Path::new(".") } else { folder })
}

/// Free and all bytes of the file system a folder is on.
pub(crate) fn room_in(folder: &Path) -> Option<(u64, u64)> {
    let stat = statvfs(folder).ok()?;
    Some((stat.f_bavail * stat.f_frsize, stat.f_blocks * stat.f_frsize))
}
