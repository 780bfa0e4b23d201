//! `receipts.*`, checked: whether recorded calls get signed receipts, and where these lie.

use std::path::{Path, PathBuf};

/// `receipts.*`.
#[derive(Debug, Clone, PartialEq)]
pub struct Receipts {
    /// `enabled`.
    pub enabled: bool,
    /// `key_file`: the private key; beside the database where it is not set.
    pub key_file: Option<PathBuf>,
    /// `directory`: where receipts are kept; beside the database where it is not set.
    pub directory: Option<PathBuf>,
    /// `retention_days`.
    pub retention_days: u32,
}

impl Default for Receipts {
    fn default() -> Self {
        Self { enabled: false, key_file: None, directory: None, retention_days: 365 }
    }
}

impl Receipts {
    /// The file of the private key, for a gateway with this database.
    pub fn key_file(&self, database: &Path) -> PathBuf {
        self.key_file.clone().unwrap_or_else(|| beside(database, ".receipts.key"))
    }

    /// The folder of the receipts, for a gateway with this database.
    pub fn directory(&self, database: &Path) -> PathBuf {
        self.directory.clone().unwrap_or_else(|| beside(database, ".receipts"))
    }
}

fn beside(database: &Path, ending: &str) -> PathBuf {
    let mut path = database.as_os_str().to_owned();
    path.push(ending);
    PathBuf::from(path)
}
