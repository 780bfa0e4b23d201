//! libonnxruntime: found where the operator says or where it usually lies, checked, and loaded once for the process.
//!
//! Invariant: nothing of the `ort` crate is called before a library has been loaded (it would look for one by itself, in
//! places an environment variable names).

use std::fs::File;
use std::io;
use std::panic::catch_unwind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ort::environment::Environment;
use ort::logging::LogLevel;
use parking_lot::Mutex;
use sha2::{Digest as _, Sha256};

/// The oldest ONNX Runtime that serves, as the second part of its version.
pub const OLDEST_MINOR: u32 = ort::MINOR_VERSION;

/// Where packages put it, beside the places next to the binary.
const FOLDERS: [&str; 7] = [
    "/usr/local/lib",
    "/usr/local/lib64",
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib64",
    "/usr/lib",
    "/opt/onnxruntime/lib",
];
const NAME: &str = "libonnxruntime.so";

/// The library, loaded.
#[derive(Debug)]
pub struct Runtime {
    pub(crate) environment: Environment,
    /// The file it was loaded from.
    pub path: PathBuf,
    /// SHA-256 of that file, in hexadecimal digits.
    pub sha256: String,
    /// What it says of itself.
    pub build: String,
}

/// Why there is none.
#[derive(Debug, thiserror::Error)]
pub enum RuntimeError {
    /// No file of its name.
    #[error(
        "{NAME} was found in none of {0}; install ONNX Runtime 1.{OLDEST_MINOR} or later (the PyPI package onnxruntime \
         has it in onnxruntime/capi/), and name the file in `security_analysis.ml_runtime_path`"
    )]
    NotFound(String),
    /// The file is there, and is not it.
    #[error("`{path}` cannot be used as ONNX Runtime: {why}")]
    Unusable {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
}

/// The library of this process: there can be one only.
static LOADED: Mutex<Option<Arc<Runtime>>> = Mutex::new(None);

impl Runtime {
    /// Loads it from the file or folder that `named` says, else from the first usual place that has one that serves. What was
    /// loaded once stays.
    ///
    /// # Errors
    /// When there is none, or none that serves.
    pub fn load(named: Option<&Path>) -> Result<Arc<Self>, RuntimeError> {
        let mut loaded = LOADED.lock();
        if let Some(runtime) = &*loaded {
            return match named.is_none_or(|named| candidates_in(named).contains(&runtime.path)) {
                true => Ok(Arc::clone(runtime)),
                false => Err(RuntimeError::Unusable {
                    path: named.unwrap_or(&runtime.path).to_owned(),
                    why: format!("this process has loaded `{}` already", runtime.path.display()),
                }),
            };
        }
        let places = named.map_or_else(usual_places, |named| vec![named.to_owned()]);
        let mut failed = None;
        for path in places.iter().flat_map(|place| candidates_in(place)) {
            match Self::open(&path) {
                Ok(runtime) => return Ok(Arc::clone(loaded.insert(Arc::new(runtime)))),
                Err(why) => failed = Some(RuntimeError::Unusable { path, why }),
            }
        }
        Err(failed.unwrap_or_else(|| RuntimeError::NotFound(listed(&places))))
    }

    /// The file that would be tried first; nothing of it is loaded.
    ///
    /// # Errors
    /// When there is none, or what is there is no file.
    pub fn find(named: Option<&Path>) -> Result<PathBuf, RuntimeError> {
        let places = named.map_or_else(usual_places, |named| vec![named.to_owned()]);
        let found = places.iter().flat_map(|place| candidates_in(place)).next();
        let path = found.ok_or_else(|| RuntimeError::NotFound(listed(&places)))?;
        match regular(&path) {
            Ok(()) => Ok(path),
            Err(error) => Err(RuntimeError::Unusable { path, why: error.to_string() }),
        }
    }

    fn open(path: &Path) -> Result<Self, String> {
        let sha256 = sha256_of(path).map_err(|error| format!("it cannot be read: {error}"))?;
        // The version is checked before anything of the library is used. A file that is something else may panic there.
        let opened = catch_unwind(|| {
            let builder = ort::init_from(path).map_err(|error| error.to_string())?;
            let environment =
                builder.with_name("weir").with_telemetry(false).build().map_err(|error| error.to_string())?;
            environment.set_log_level(LogLevel::Error);
            Ok::<_, String>((environment, ort::info().to_owned()))
        });
        let (environment, build) =
            opened.map_err(|_| "it has no interface that could be used".to_owned()).and_then(|opened| opened)?;
        Ok(Self { environment, path: path.to_owned(), sha256, build })
    }
}

fn listed(places: &[PathBuf]) -> String {
    places.iter().map(|place| format!("`{}`", place.display())).collect::<Vec<_>>().join(", ")
}

/// The folders that are searched where nothing is named.
fn usual_places() -> Vec<PathBuf> {
    let binary = std::env::current_exe().ok();
    let folder = binary.as_deref().and_then(Path::parent);
    let beside = folder.into_iter().flat_map(|folder| [folder.to_owned(), folder.join("../lib")]);
    beside.chain(FOLDERS.into_iter().map(PathBuf::from)).collect()
}

/// The files a place stands for: itself, or what a folder holds of that name, the plain name first, then the latest.
fn candidates_in(place: &Path) -> Vec<PathBuf> {
    if !place.is_dir() {
        return if place.exists() { vec![place.to_owned()] } else { Vec::new() };
    }
    let entries = std::fs::read_dir(place).into_iter().flatten().filter_map(Result::ok);
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let version = |name: &str| -> Option<Vec<u32>> {
        let rest = name.strip_prefix(NAME)?;
        if rest.is_empty() {
            return Some(vec![u32::MAX]);
        }
        rest.strip_prefix('.')?.split('.').map(|part| part.parse().ok()).collect()
    };
    let mut found: Vec<(Vec<u32>, PathBuf)> =
        names.filter_map(|name| Some((version(&name)?, place.join(&name)))).collect();
    found.sort_unstable_by(|a, b| b.cmp(a));
    found.into_iter().map(|(_, path)| path).collect()
}

/// Refuses what is no file: opening a pipe waits for whoever writes into it, and a device has no end.
fn regular(path: &Path) -> io::Result<()> {
    match std::fs::metadata(path)?.is_file() {
        true => Ok(()),
        false => Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no regular file")),
    }
}

/// SHA-256 of a file, in hexadecimal digits.
///
/// # Errors
/// When it cannot be read, or is no regular file.
pub fn sha256_of(path: &Path) -> io::Result<String> {
    regular(path)?;
    let mut hasher = Sha256::new();
    let mut file = File::open(path)?;
    let mut buffer = vec![0; 1 << 16];
    loop {
        let read = io::Read::read(&mut file, &mut buffer)?;
        if read == 0 {
            break;
        }
        hasher.update(buffer.get(..read).unwrap_or_default());
    }
    Ok(hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_stands_for_its_libraries_the_plain_name_and_then_the_latest() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["libonnxruntime.so.1.9.0", "libonnxruntime.so.1.31.1", "libonnxruntime_providers_shared.so"] {
            std::fs::write(folder.path().join(name), name).unwrap();
        }
        let names = || -> Vec<String> {
            let found = candidates_in(folder.path()).into_iter();
            found.map(|path| path.file_name().unwrap().to_str().unwrap().to_owned()).collect()
        };
        assert_eq!(names(), ["libonnxruntime.so.1.31.1", "libonnxruntime.so.1.9.0"]);
        std::fs::write(folder.path().join(NAME), "plain").unwrap();
        assert_eq!(names()[0], NAME);
        assert_eq!(candidates_in(&folder.path().join("nothing")), Vec::<PathBuf>::new());
    }

    #[test]
    fn what_is_no_file_is_refused_without_being_opened() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join(NAME);
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        for named in [&*pipe, Path::new("/dev/zero")] {
            let refusals = [Runtime::load(Some(named)).map(drop), Runtime::find(Some(named)).map(drop)];
            for refusal in refusals {
                let why = refusal.unwrap_err().to_string();
                assert!(why.contains("it is no regular file") && why.contains(&*named.to_string_lossy()), "{why}");
            }
        }
        assert!(sha256_of(&pipe).is_err());
    }

    #[test]
    fn a_checksum_is_that_of_the_file() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "abc").unwrap();
        let known = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(sha256_of(file.path()).unwrap(), known);
    }
}
