//! What is in a backup and what is not.

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::BackupError;
use super::files::{digest_of, read_bounded};

/// The file of a backup that names all others.
pub(super) const MANIFEST: &str = "manifest.json";
/// The form of the manifest. A backup of a later form is refused.
pub(super) const FORMAT: u32 = 1;
/// No manifest is longer.
pub(super) const MANIFEST_BYTES_MAX: u64 = 64 * 1024;

/// What a file is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Role {
    Database,
    TokenKey,
    /// What receipts are signed with: without it their chain cannot go on under the same key.
    ReceiptsKey,
    Overlay,
    Configuration,
    Receipts,
}

impl Role {
    /// The name it has in every backup.
    pub(super) const fn file(self) -> &'static str {
        match self {
            Self::Database => "weir.db",
            Self::TokenKey => "token.key",
            Self::ReceiptsKey => "receipts.key",
            Self::Overlay => "config.runtime.yaml",
            Self::Configuration => "service.yaml",
            Self::Receipts => "receipts",
        }
    }

    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Database => "database",
            Self::TokenKey => "token key",
            Self::ReceiptsKey => "key of receipts",
            Self::Overlay => "runtime overlay",
            Self::Configuration => "configuration",
            Self::Receipts => "receipts",
        }
    }

    /// Whether it is only ever named, as what is not in a backup.
    const fn is_left_out(self) -> bool {
        matches!(self, Self::Configuration | Self::Receipts)
    }
}

/// A file of a backup.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Entry {
    pub(super) name: String,
    pub(super) role: Role,
    pub(super) bytes: u64,
    /// In hexadecimal.
    pub(super) sha256: String,
}

/// What is not in a backup, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct LeftOut {
    pub(super) role: Role,
    pub(super) why: String,
}

impl LeftOut {
    pub(super) fn new(role: Role, why: &str) -> Self {
        Self { role, why: why.to_owned() }
    }
}

/// A backup's list of itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Manifest {
    pub(super) format: u32,
    /// When the database was as it is in the backup, within the time that the copy took.
    pub(super) made_at: String,
    /// The version that made it.
    pub(super) weir: String,
    /// Version of the database's schema.
    pub(super) schema: u32,
    pub(super) files: Vec<Entry>,
    pub(super) left_out: Vec<LeftOut>,
}

impl Manifest {
    pub(super) fn text(&self) -> String {
        // Plain texts and numbers can always be written.
        serde_json::to_string_pretty(self).unwrap_or_default() + "\n"
    }

    /// Reads one and holds it to its form: each role once, under its own name.
    pub(super) fn read(bytes: &[u8], from: &Path) -> Result<Self, BackupError> {
        let bad = |what: String| BackupError::not_whole(from, format!("the manifest {what}"));
        let manifest: Self = serde_json::from_slice(bytes).map_err(|error| bad(format!("cannot be read: {error}")))?;
        if manifest.format != FORMAT {
            return Err(bad(format!(
                "has form {}, this Weir knows {FORMAT}; restore it with the version that made it ({})",
                manifest.format, manifest.weir
            )));
        }
        for (at, entry) in manifest.files.iter().enumerate() {
            let again = manifest.files.iter().take(at).any(|other| other.role == entry.role);
            if again || entry.name != entry.role.file() || entry.role.is_left_out() {
                return Err(bad(format!("names a file that no backup has: {}", entry.name.escape_debug())));
            }
        }
        if manifest.entry(Role::Database).is_none() {
            return Err(bad("names no database".to_owned()));
        }
        Ok(manifest)
    }

    /// That of a folder.
    pub(super) fn of_folder(folder: &Path) -> Result<Self, BackupError> {
        let path = folder.join(MANIFEST);
        Self::read(&read_bounded(&path, MANIFEST_BYTES_MAX)?, &path)
    }

    pub(super) fn entry(&self, role: Role) -> Option<&Entry> {
        self.files.iter().find(|entry| entry.role == role)
    }

    /// Whether all files of a folder are as the manifest says.
    pub(super) fn verify(&self, folder: &Path) -> Result<(), BackupError> {
        self.files.iter().try_for_each(|entry| {
            let path = folder.join(&entry.name);
            entry.compare(&digest_of(&path)?, &path)
        })
    }
}

impl Entry {
    /// Refuses a file that is not as it was when the backup was made.
    pub(super) fn compare(&self, (bytes, sha256): &(u64, String), path: &Path) -> Result<(), BackupError> {
        if *bytes != self.bytes {
            return Err(BackupError::not_whole(path, format!("has {bytes} bytes, the manifest says {}", self.bytes)));
        }
        if *sha256 != self.sha256 {
            return Err(BackupError::not_whole(path, "its digest is not the manifest's: it was altered or damaged"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest() -> Manifest {
        let file = |role: Role| Entry { name: role.file().to_owned(), role, bytes: 1, sha256: "00".to_owned() };
        Manifest {
            format: FORMAT,
            made_at: "2026-11-28T10:00:00Z".to_owned(),
            weir: "0.2.0".to_owned(),
            schema: 28,
            files: vec![file(Role::Database), file(Role::TokenKey)],
            left_out: vec![LeftOut::new(Role::Overlay, "there is none")],
        }
    }

    #[test]
    fn what_is_written_is_read_and_what_no_backup_has_is_refused() {
        let path = Path::new(MANIFEST);
        let read = |manifest: &Manifest| Manifest::read(manifest.text().as_bytes(), path);
        assert_eq!(read(&manifest()).unwrap(), manifest());
        let spoilt: [fn(&mut Manifest); 6] = [
            |manifest| manifest.format = 2,
            |manifest| manifest.files[1].name = "../../etc/passwd".to_owned(),
            |manifest| manifest.files[1] = manifest.files[0].clone(),
            |manifest| drop(manifest.files.remove(0)),
            |manifest| manifest.files[1].role = Role::Configuration,
            |manifest| (manifest.files[1].role, manifest.files[1].name) = (Role::Receipts, "receipts".to_owned()),
        ];
        for spoil in spoilt {
            let mut other = manifest();
            spoil(&mut other);
            assert!(read(&other).is_err(), "{other:?}");
        }
        assert!(Manifest::read(b"{", path).is_err());
    }
}
