//! A file of nothing beside the database, given up when the disk is full.
//!
//! A full disk takes away the room that removing rows needs. The ballast holds some back: it is removed at the first
//! sign, and laid down again when there is plenty. It is never laid down where it would take a notable part of the room.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{FallocateFlags, fallocate, statvfs};

/// Room held back.
const BYTES: u64 = 16 * 1024 * 1024;
/// Free room below which no ballast is laid down: twenty times as much.
const FREE_MIN: u64 = 20 * BYTES;
/// Between looks at the free room.
const LOOK_EVERY: Duration = Duration::from_secs(30);

pub(super) struct Ballast {
    path: PathBuf,
    held: bool,
    looked: Option<Instant>,
}

impl Ballast {
    pub(super) fn beside(database: &Path) -> Self {
        let mut path = database.as_os_str().to_owned();
        path.push("-ballast");
        let path = PathBuf::from(path);
        let held = std::fs::metadata(&path).is_ok_and(|meta| meta.len() >= BYTES);
        Self { path, held, looked: None }
    }

    /// Gives the room up; true when there was some.
    pub(super) fn release(&mut self) -> bool {
        self.looked = Some(Instant::now());
        if !std::mem::take(&mut self.held) {
            return false;
        }
        let released = std::fs::remove_file(&self.path).is_ok();
        tracing::warn!(path = %self.path.display(), bytes = BYTES, released, "the disk is full: the ballast was given up");
        released
    }

    /// Lays the ballast down when there is room, looking now and then.
    pub(super) fn restore(&mut self) {
        if self.held || self.looked.is_some_and(|looked| looked.elapsed() < LOOK_EVERY) {
            return;
        }
        self.looked = Some(Instant::now());
        if self.room() < FREE_MIN {
            return;
        }
        let laid = self.lay();
        if let Err(error) = &laid {
            // Only the reserve is missing; the store works without.
            tracing::debug!(%error, path = %self.path.display(), "no ballast could be laid down");
            drop(std::fs::remove_file(&self.path));
        }
        self.held = laid.is_ok();
    }

    /// Free room beside the database; 0 when nobody can tell.
    pub(super) fn room(&self) -> u64 {
        let folder = self.path.parent().map(|folder| if folder == Path::new("") { Path::new(".") } else { folder });
        folder.and_then(|folder| statvfs(folder).ok()).map_or(0, |stat| stat.f_bavail * stat.f_frsize)
    }

    fn lay(&self) -> std::io::Result<()> {
        let file: File = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(&self.path)?;
        Ok(fallocate(&file, FallocateFlags::empty(), 0, BYTES)?)
    }
}
