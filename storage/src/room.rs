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
    let folder = path.parent().map(|folder| if folder == Path::new("") { Path::new(".") } else { folder })?;
    let stat = statvfs(folder).ok()?;
    let mut log = path.as_os_str().to_owned();
    log.push("-wal");
    let bytes = |path: &Path| std::fs::metadata(path).map_or(0, |meta| meta.len());
    let held = bytes(path) + bytes(Path::new(&log));
    Some(Room { held, free: stat.f_bavail * stat.f_frsize, total: stat.f_blocks * stat.f_frsize })
}
