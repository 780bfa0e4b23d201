//! File systems that fill up or refuse to be written, for tests of what happens then. Both need root; a user without it
//! says so in `WEIR_TESTS_WITHOUT`, and nothing is passed over in silence.

use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use super::do_without;

/// A small file system of our own, gone with the test.
pub(crate) struct SmallDisk {
    folder: TempDir,
}

impl SmallDisk {
    /// Mounts one of `size` MiB; `None` where the test may do without.
    #[track_caller]
    pub(crate) fn of_mib(size: u32) -> Option<Self> {
        let disk = Self { folder: TempDir::new().unwrap() };
        match disk.mount(&format!("size={size}m")) {
            Ok(()) => Some(disk),
            Err(because) => {
                do_without("mount", &because);
                None
            }
        }
    }

    fn mount(&self, options: &str) -> Result<(), String> {
        let output = Command::new("mount").args(["-t", "tmpfs", "-o", options, "tmpfs"]).arg(self.path()).output();
        match output {
            Ok(output) if output.status.success() => Ok(()),
            Ok(output) => Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
            Err(error) => Err(error.to_string()),
        }
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Gives it another size, in MiB.
    pub(crate) fn resize(&self, size: u32) {
        let options = format!("remount,size={size}m");
        let done = Command::new("mount").args(["-o", &options]).arg(self.path()).status();
        assert!(done.is_ok_and(|status| status.success()), "{options}");
    }

    fn filler(&self) -> PathBuf {
        self.path().join("filler")
    }

    /// Takes all that is left, to the last block.
    pub(crate) fn fill(&self) {
        std::fs::write(self.filler(), vec![7_u8; 64 << 20]).unwrap_err();
    }

    /// Gives back what [`fill`](Self::fill) took.
    pub(crate) fn free(&self) {
        std::fs::remove_file(self.filler()).unwrap();
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Lazily, because a failing test may leave a gateway behind that still has the file open.
        drop(Command::new("umount").arg("-l").arg(self.folder.path()).status());
    }
}

/// Keeps the write-ahead log of a database read-only even for the superuser, until it is dropped.
pub(crate) struct ReadOnly<'a>(&'a Path);

impl<'a> ReadOnly<'a> {
    /// `None` where the test may do without.
    #[track_caller]
    pub(crate) fn make(database: &'a Path) -> Option<Self> {
        match immutable(database, true) {
            Ok(()) => Some(Self(database)),
            Err(because) => {
                do_without("chattr", &because);
                None
            }
        }
    }
}

impl Drop for ReadOnly<'_> {
    fn drop(&mut self) {
        if let Err(because) = immutable(self.0, false) {
            eprintln!("{}: still immutable: {because}", self.0.display());
        }
    }
}

fn immutable(database: &Path, on: bool) -> Result<(), String> {
    let log = format!("{}-wal", database.display());
    match Command::new("chattr").args([if on { "+i" } else { "-i" }, &log]).output() {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
        Err(error) => Err(error.to_string()),
    }
}
