//! What is known of a model that was fetched: where from, when, and the checksums of its files.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::path::Path;

use serde::{Deserialize, Serialize};
use weir_config::vocab::Timestamp;
use weir_models::sha256_of;

/// The file it stands in, in the model's folder.
const MANIFEST: &str = "weir-manifest.json";
/// Largest manifest, in bytes.
const BYTES_MAX: u64 = 1 << 20;

/// What is known of a model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    /// The model's name at the hub.
    pub id: String,
    /// The hub it comes from.
    pub hub: String,
    /// When it was fetched, RFC 3339.
    pub fetched_at: String,
    /// Its files by their names.
    pub files: BTreeMap<String, FileEntry>,
}

/// One file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileEntry {
    /// How long it is.
    pub bytes: u64,
    /// In hexadecimal digits.
    pub sha256: String,
}

impl Manifest {
    /// One without files, fetched now.
    pub fn new(id: &str, hub: &str) -> Self {
        let fetched_at = Timestamp::now().to_string();
        Self { id: id.to_owned(), hub: hub.to_owned(), fetched_at, files: BTreeMap::new() }
    }

    /// Writes it into the model's folder, and waits until it is on the disk.
    ///
    /// # Errors
    /// Those of the file.
    pub fn write(&self, folder: &Path) -> io::Result<()> {
        let mut file = File::create(folder.join(MANIFEST))?;
        file.write_all(serde_json::to_string_pretty(self)?.as_bytes())?;
        file.sync_all()
    }

    /// The manifest in a folder; `None` where there is none.
    ///
    /// # Errors
    /// Those of the file, and a text that is none of a manifest.
    pub fn read(folder: &Path) -> io::Result<Option<Self>> {
        let path = folder.join(MANIFEST);
        if !fs::exists(&path)? {
            return Ok(None);
        }
        let mut text = String::new();
        File::open(&path)?.take(BYTES_MAX).read_to_string(&mut text)?;
        Ok(Some(serde_json::from_str(&text)?))
    }

    /// The files that are not what they were when they came, with what is wrong.
    pub fn changed(&self, folder: &Path) -> Vec<String> {
        let one = |(name, entry): (&String, &FileEntry)| match sha256_of(&folder.join(name)) {
            Ok(found) if found == entry.sha256 => None,
            Ok(found) => Some(format!("{name} has the SHA-256 {found}, and had {} when it came", entry.sha256)),
            Err(error) => Some(format!("{name} cannot be read: {error}")),
        };
        self.files.iter().filter_map(one).collect()
    }
}
