//! A backup in one file: a tar archive in the form of POSIX.1-1988 (`ustar`), as any `tar` reads it. Ours are read with no more than their
//! manifest in memory.

use std::fs::{self, File};
use std::io::{BufReader, BufWriter, Read, Write};
use std::path::Path;

use super::BackupError;
use super::files::{create, pour};
use super::manifest::{Entry, MANIFEST, MANIFEST_BYTES_MAX, Manifest};
use crate::app::cli::scan::Progress;

const BLOCK: usize = 512;
/// From this length on a size does not fit the field's eleven octal digits, and is written in base 256 as GNU and BSD do.
const OCTAL_MAX: u64 = 1 << 33;

/// Writes the backup of a folder into one file, the manifest first, and reads it again.
pub(super) fn pack(folder: &Path, manifest: &Manifest, to: &Path) -> Result<(), BackupError> {
    let mut partial = to.as_os_str().to_owned();
    partial.push(".partial");
    let partial = Path::new(&partial);
    if partial.exists() {
        fs::remove_file(partial).map_err(|error| BackupError::io(partial, error))?;
    }
    let failed = |error| BackupError::io(partial, error);
    let mut out = BufWriter::new(create(partial)?);
    let mut progress = Progress::new();
    progress.expect(manifest.files.iter().map(|file| file.bytes).sum());
    let text = manifest.text();
    put(&mut out, MANIFEST, text.len() as u64, &mut text.as_bytes(), &mut progress).map_err(failed)?;
    for Entry { name, bytes, .. } in &manifest.files {
        let path = folder.join(name);
        let mut file = File::open(&path).map_err(|error| BackupError::io(&path, error))?;
        put(&mut out, name, *bytes, &mut file, &mut progress).map_err(failed)?;
    }
    progress.clear();
    out.write_all(&[0; 2 * BLOCK]).map_err(failed)?;
    let file = out.into_inner().map_err(|error| BackupError::io(partial, error.into_error()))?;
    file.sync_all().map_err(failed)?;
    read(partial, &mut |_, _| Ok(Box::new(std::io::sink())))?;
    fs::rename(partial, to).map_err(|error| BackupError::io(to, error))
}

fn put(
    out: &mut impl Write,
    name: &str,
    bytes: u64,
    from: &mut impl Read,
    progress: &mut Progress,
) -> std::io::Result<()> {
    out.write_all(&header(name, bytes))?;
    let (written, _) = pour(&mut from.take(bytes), out, progress)?;
    if written != bytes {
        return Err(std::io::Error::other("the file became shorter while it was read"));
    }
    let rest = (BLOCK as u64 - bytes % BLOCK as u64) % BLOCK as u64;
    out.write_all([0; BLOCK].get(..rest as usize).unwrap_or_default())
}

fn header(name: &str, bytes: u64) -> [u8; BLOCK] {
    let mut block = [0; BLOCK];
    let mut field = |at: usize, words: &[u8]| {
        if let Some(place) = block.get_mut(at..at + words.len()) {
            place.copy_from_slice(words);
        }
    };
    field(0, name.as_bytes());
    field(100, b"0000600\0");
    field(108, b"0000000\0");
    field(116, b"0000000\0");
    if bytes < OCTAL_MAX {
        field(124, format!("{bytes:011o}\0").as_bytes());
    } else {
        field(124, &[0x80, 0, 0, 0]);
        field(128, &bytes.to_be_bytes());
    }
    field(136, b"00000000000\0");
    // Counted as blanks.
    field(148, b"        ");
    field(156, b"0");
    field(257, b"ustar\x0000");
    let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
    let mut field = |at: usize, words: &[u8]| {
        if let Some(place) = block.get_mut(at..at + words.len()) {
            place.copy_from_slice(words);
        }
    };
    field(148, format!("{sum:06o}\0 ").as_bytes());
    block
}

/// Name and length of an entry; `None` at the end.
fn parse(block: &[u8; BLOCK]) -> Option<Result<(String, u64), &'static str>> {
    if block.iter().all(|byte| *byte == 0) {
        return None;
    }
    let text = |from: usize, to: usize| {
        let words = block.get(from..to).unwrap_or_default();
        let end = words.iter().position(|byte| *byte == 0).unwrap_or(words.len());
        String::from_utf8_lossy(words.get(..end).unwrap_or_default()).trim().to_owned()
    };
    let octal = |from, to| u64::from_str_radix(&text(from, to), 8).ok();
    let plain: u64 =
        block.iter().enumerate().map(|(at, byte)| if (148..156).contains(&at) { 32 } else { u64::from(*byte) }).sum();
    if octal(148, 156) != Some(plain) {
        return Some(Err("a header whose sum is wrong"));
    }
    let size = match block.get(124..136) {
        Some([0x80, _, _, _, rest @ ..]) => <[u8; 8]>::try_from(rest).ok().map(u64::from_be_bytes),
        _ => octal(124, 136),
    };
    let is_file = matches!(block.get(156), Some(b'0' | 0));
    match size {
        Some(size) if is_file => Some(Ok((text(0, 100), size))),
        _ => Some(Err("an entry that is no plain file")),
    }
}

/// Where an entry of an archive goes.
pub(super) type Place<'a> = dyn FnMut(&Entry, &Manifest) -> Result<Box<dyn Write>, BackupError> + 'a;

/// Reads an archive through, and holds each file to the manifest in front.
pub(super) fn read(path: &Path, place: &mut Place<'_>) -> Result<Manifest, BackupError> {
    let failed = |error: std::io::Error| match error.kind() {
        std::io::ErrorKind::UnexpectedEof => BackupError::not_whole(path, "it ends too soon"),
        _ => BackupError::io(path, error),
    };
    let bad = |what: &str| BackupError::not_whole(path, format!("it is no backup: {what}"));
    let file = File::open(path).map_err(failed)?;
    let mut progress = Progress::new();
    progress.expect(file.metadata().map_err(failed)?.len());
    let mut from = BufReader::new(file);
    let next = |from: &mut BufReader<File>| -> Result<Option<(String, u64)>, BackupError> {
        let mut block = [0; BLOCK];
        from.read_exact(&mut block).map_err(failed)?;
        parse(&block).transpose().map_err(bad)
    };
    let skip = |from: &mut BufReader<File>, bytes: u64| {
        let rest = (BLOCK as u64 - bytes % BLOCK as u64) % BLOCK as u64;
        std::io::copy(&mut from.take(rest), &mut std::io::sink()).map(drop)
    };
    let (name, bytes) = next(&mut from)?.ok_or_else(|| bad("it is empty"))?;
    if name != MANIFEST || bytes > MANIFEST_BYTES_MAX {
        return Err(bad("it does not begin with a manifest"));
    }
    let mut text = vec![0; usize::try_from(bytes).unwrap_or(0)];
    from.read_exact(&mut text).map_err(failed)?;
    skip(&mut from, bytes).map_err(failed)?;
    let manifest = Manifest::read(&text, path)?;
    for entry in &manifest.files {
        let found = next(&mut from)?;
        if found.as_ref() != Some(&(entry.name.clone(), entry.bytes)) {
            return Err(bad(&format!("{} is missing, or has another length", entry.name)));
        }
        let mut to = place(entry, &manifest)?;
        let digest = pour(&mut (&mut from).take(entry.bytes), &mut to, &mut progress).map_err(failed)?;
        to.flush().map_err(failed)?;
        entry.compare(&digest, path)?;
        skip(&mut from, entry.bytes).map_err(failed)?;
    }
    progress.clear();
    if next(&mut from)?.is_some() {
        return Err(bad("it holds more than its manifest names"));
    }
    Ok(manifest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_come_back_in_both_forms_and_a_spoilt_header_is_none() {
        for size in [0, 1, 511, 512, OCTAL_MAX - 1, OCTAL_MAX, 1 << 50] {
            let block = header("weir.db", size);
            assert_eq!(parse(&block), Some(Ok(("weir.db".to_owned(), size))));
            for at in [0, 124, 130, 156] {
                let mut spoilt = block;
                spoilt[at] ^= 1;
                assert!(matches!(parse(&spoilt), Some(Err(_))), "{size}: byte {at}");
            }
        }
        assert_eq!(parse(&[0; BLOCK]), None);
    }
}
