//! A file of nothing beside the database, given up when the disk is full.
//!
//! A full disk takes away the room that removing rows needs. The ballast holds some back: it is removed at the first
//! sign, and laid down again when there is plenty. It is never laid down where it would take a notable part of the room.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{FallocateFlags, fallocate};

use crate::room::room_beside;

/// Room held back.
const BYTES: u64 = 16 * 1024 * 1024;
/// Free room below which no ballast is laid down: twenty times as much.
const FREE_MIN: u64 = 20 * BYTES;
/// Free room below which records are not written, so that keys, tenants and audit lines still can be; on a small disk a
/// part of it.
const RESERVE: u64 = 4 * 1024 * 1024;
const RESERVE_PART: u64 = 16;
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
        let held = std::fs::symlink_metadata(&path).is_ok_and(|meta| meta.is_file() && meta.len() >= BYTES);
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
        if laid.is_ok() {
            tracing::info!(
                path = %self.path.display(),
                bytes = BYTES,
                "room is held back in a file of nothing: it is given up when the disk is full, so that rows can be removed"
            );
        }
        if let Err(error) = &laid {
            // Only the reserve is missing; the store works without.
            tracing::debug!(%error, path = %self.path.display(), "no ballast could be laid down");
            drop(std::fs::remove_file(&self.path));
        }
        self.held = laid.is_ok();
    }

    /// Free room beside the database; 0 when nobody can tell.
    pub(super) fn room(&self) -> u64 {
        room_beside(&self.path).map_or(0, |room| room.free)
    }

    /// Whether so little room is left that it is kept for what must go in: keys, tenants, the audit log, and removing.
    pub(super) fn is_scarce(&self) -> bool {
        room_beside(&self.path).is_some_and(|room| room.free < RESERVE.min(room.total / RESERVE_PART))
    }

    /// Always a file of our own making: what stands under its name, a link to elsewhere too, is removed first.
    fn lay(&self) -> std::io::Result<()> {
        match std::fs::remove_file(&self.path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let file: File = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&self.path)?;
        Ok(fallocate(&file, FallocateFlags::empty(), 0, BYTES)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_under_its_name_is_not_followed() {
        let folder = tempfile::TempDir::new().unwrap();
        let victim = folder.path().join("victim");
        std::fs::write(&victim, vec![7; BYTES as usize]).unwrap();
        let database = folder.path().join("service.db");
        let ballast = Ballast::beside(&database);
        std::os::unix::fs::symlink(&victim, &ballast.path).unwrap();
        assert!(!Ballast::beside(&database).held, "somebody else's file is no ballast");
        ballast.lay().unwrap();
        assert!(std::fs::symlink_metadata(&ballast.path).unwrap().is_file());
        assert_eq!(std::fs::read(&victim).unwrap(), vec![7; BYTES as usize]);
        assert!(Ballast::beside(&database).held);
    }
}
