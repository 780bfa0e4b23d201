//! Files of a backup: copied, written, read again by their digest, and the database looked through.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};

use super::BackupError;
use crate::app::cli::scan::Progress;

/// Bytes that are read at a time.
const PIECE_BYTES: usize = 1 << 20;

/// The folder a file lies in.
pub(super) fn folder_of(path: &Path) -> PathBuf {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new(".")).to_path_buf()
}

/// Passes everything on; how much it was, and its SHA-256 in hexadecimal.
pub(super) fn pour(
    from: &mut impl Read,
    to: &mut impl Write,
    progress: &mut Progress,
) -> std::io::Result<(u64, String)> {
    let (mut bytes, mut digest, mut piece) = (0, Sha256::new(), vec![0; PIECE_BYTES]);
    loop {
        let read = match from.read(&mut piece) {
            Ok(0) => break,
            Ok(read) => read,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        let words = piece.get(..read).unwrap_or_default();
        digest.update(words);
        to.write_all(words)?;
        bytes += read as u64;
        progress.advance(read as u64);
    }
    Ok((bytes, hex(&digest.finalize())))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Length and SHA-256 of a file as it lies on the disk.
pub(super) fn digest_of(path: &Path) -> Result<(u64, String), BackupError> {
    let failed = |error| BackupError::io(path, error);
    let mut file = File::open(path).map_err(failed)?;
    let mut progress = Progress::new();
    progress.expect(file.metadata().map_err(failed)?.len());
    let digest = pour(&mut file, &mut std::io::sink(), &mut progress).map_err(failed);
    progress.clear();
    digest
}

/// A file of this user's alone that was not there.
pub(super) fn create(path: &Path) -> Result<File, BackupError> {
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).map_err(|error| BackupError::io(path, error))
}

/// Copies a file; its length and digest.
pub(super) fn copy_file(from: &Path, to: &Path) -> Result<(u64, String), BackupError> {
    let failed = |error| BackupError::io(from, error);
    let mut source = File::open(from).map_err(failed)?;
    let mut progress = Progress::new();
    progress.expect(source.metadata().map_err(failed)?.len());
    let mut target = create(to)?;
    let copied = pour(&mut source, &mut target, &mut progress).and_then(|copied| target.sync_all().map(|()| copied));
    progress.clear();
    copied.map_err(|error| BackupError::io(to, error))
}

pub(super) fn write_new(path: &Path, bytes: &[u8]) -> Result<(), BackupError> {
    let mut file = create(path)?;
    file.write_all(bytes).and_then(|()| file.sync_all()).map_err(|error| BackupError::io(path, error))
}

/// Reads a file that is no longer than that.
pub(super) fn read_bounded(path: &Path, bytes_max: u64) -> Result<Vec<u8>, BackupError> {
    let failed = |error| BackupError::io(path, error);
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(failed)?;
    let read = file.take(bytes_max + 1).read_to_end(&mut bytes).map_err(failed)?;
    if read as u64 > bytes_max {
        return Err(BackupError::not_whole(path, format!("is longer than {bytes_max} bytes")));
    }
    Ok(bytes)
}

/// Has the names in a folder written to the disk.
pub(super) fn sync_folder(folder: &Path) -> Result<(), BackupError> {
    File::open(folder).and_then(|folder| folder.sync_all()).map_err(|error| BackupError::io(folder, error))
}

/// Looks at every row and index of a database that nobody writes.
pub(super) fn examine(database: &Path) -> Result<weir_storage::Examined, BackupError> {
    let mut progress = Progress::counting("seconds of examination");
    let mut told = 0;
    let examined = weir_storage::check(database, &mut |took| {
        progress.advance(took.as_secs().saturating_sub(told));
        told = took.as_secs();
    });
    progress.clear();
    let examined = examined?;
    match examined.faults.first() {
        None => Ok(examined),
        Some(fault) => Err(BackupError::not_whole(database, format!("the database is damaged: {fault}"))),
    }
}

/// Moves a file out of the way where it is there; whether it was.
pub(super) fn set_aside(path: &Path, to: &Path) -> Result<bool, BackupError> {
    match fs::rename(path, to) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(BackupError::io(path, error)),
    }
}
