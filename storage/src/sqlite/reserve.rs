//! A placeholder file beside the database that reserves disk space, deleted when the disk is full.
//!
//! A full disk takes away the space that removing rows needs. The reserve holds some back: it is deleted at the first
//! sign, and created again when there is plenty. It is never created where it would take a notable part of the disk.
//! On disk its name ends in `-ballast`, as in earlier versions: under another name their file would stay behind.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{FallocateFlags, fallocate};

use crate::room::{folder_of, room_in};

/// Room held back.
const BYTES: u64 = 16 * 1024 * 1024;
/// Free space below which no reserve is created: twenty times as much.
const FREE_MIN: u64 = 20 * BYTES;
/// Free room below which records are not written, so that keys, tenants and audit lines still can be; on a small disk a
/// part of it.
const SCARCE_BYTES: u64 = 4 * 1024 * 1024;
const SCARCE_PART: u64 = 16;
/// Between looks at the free room.
const LOOK_EVERY: Duration = Duration::from_secs(30);

pub(super) struct Reserve {
    path: PathBuf,
    folder: PathBuf,
    held: bool,
    looked: Option<Instant>,
}

impl Reserve {
    pub(super) fn beside(database: &Path) -> Self {
        let mut path = database.as_os_str().to_owned();
        path.push("-ballast");
        let path = PathBuf::from(path);
        let held = std::fs::symlink_metadata(&path).is_ok_and(|meta| meta.is_file() && meta.len() >= BYTES);
        let folder = folder_of(database).unwrap_or(database).to_owned();
        Self { path, folder, held, looked: None }
    }

    /// Gives the room up; true when there was some.
    pub(super) fn release(&mut self) -> bool {
        self.looked = Some(Instant::now());
        if !std::mem::take(&mut self.held) {
            return false;
        }
        let released = std::fs::remove_file(&self.path).is_ok();
        tracing::warn!(path = %self.path.display(), bytes = BYTES, released, "the disk is full: the reserved space was released");
        released
    }

    /// Creates the reserve when there is room, looking now and then.
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
                "disk space is reserved in a placeholder file: it is released when the disk is full, so that rows can be removed"
            );
        }
        if let Err(error) = &laid {
            // Only the reserve is missing; the store works without.
            tracing::debug!(%error, path = %self.path.display(), "no disk space could be reserved");
            drop(std::fs::remove_file(&self.path));
        }
        self.held = laid.is_ok();
    }

    /// Free space beside the database; 0 when it cannot be told.
    pub(super) fn room(&self) -> u64 {
        room_in(&self.folder).map_or(0, |(free, _)| free)
    }

    /// Whether so little room is left that it is kept for what must go in: keys, tenants, the audit log, and removing.
    pub(super) fn is_scarce(&self) -> bool {
        room_in(&self.folder).is_some_and(|(free, total)| free < SCARCE_BYTES.min(total / SCARCE_PART))
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
        let reserve = Reserve::beside(&database);
        std::os::unix::fs::symlink(&victim, &reserve.path).unwrap();
        assert!(!Reserve::beside(&database).held, "somebody else's file is no reserve");
        reserve.lay().unwrap();
        assert!(std::fs::symlink_metadata(&reserve.path).unwrap().is_file());
        assert_eq!(std::fs::read(&victim).unwrap(), vec![7; BYTES as usize]);
        assert!(Reserve::beside(&database).held);
    }
}
