//! A time of day that a test moves: a library of a few lines (`clock.c`, compiled on the spot) stands between the gateway and libc.

use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use super::Setup;

/// The clock of the gateways that were set up with it.
pub(crate) struct Clock {
    folder: TempDir,
}

impl Clock {
    /// One that shows the real time.
    pub(crate) fn real() -> Self {
        let clock = Self { folder: TempDir::new().expect("a temporary folder") };
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/support/clock.c");
        let compiled =
            Command::new("cc").args(["-shared", "-fPIC", "-O1", "-o"]).arg(clock.library()).arg(source).output();
        let compiled = compiled.expect("a C compiler named `cc`");
        assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
        clock.put_ahead(0);
        clock
    }

    /// A gateway that goes by this clock.
    pub(crate) fn set_up(&self, setup: Setup) -> Setup {
        let text = |path: PathBuf| path.into_os_string().into_string().expect("a path in UTF-8");
        setup.env("LD_PRELOAD", text(self.library())).env("CLOCK_AHEAD", text(self.file()))
    }

    /// So many seconds ahead, for whoever starts from now on.
    pub(crate) fn put_ahead(&self, seconds: i64) {
        std::fs::write(self.file(), seconds.to_string()).expect("the clock's file");
    }

    fn library(&self) -> PathBuf {
        self.folder.path().join("clock.so")
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("ahead")
    }
}
