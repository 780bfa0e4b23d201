//! The files and folders the settings name: can they be read, can they be written, and on what do they lie?

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use weir_config::Loaded;
use weir_config::settings::{NamedUpstream, Scheme, Settings, StorageProfile};
use weir_storage::{Store, UseClaim};

use super::diagnosis::Diagnosis;
use crate::boot::models::{self, AtHand};
use crate::boot::own_rules::OwnRules;
use crate::boot::{fusion, shared_and_not};
use crate::money::Prices;
use crate::receipts::{ReceiptsError, SigningKey};

/// How every SQLite file begins.
const SQLITE_MAGIC: &[u8; 16] = b"SQLite format 3\0";

/// One diagnosis per file or folder that is named.
pub(super) fn all(loaded: &Loaded) -> Vec<Diagnosis> {
    let settings = &loaded.settings;
    let mut found = vec![database(settings)];
    found.extend(database_shared(settings));
    found.extend(stores(settings));
    found.extend(file_system(settings));
    found.extend(ca_files(settings));
    found.extend(tls_files(settings));
    found.extend(pricing_file(settings));
    found.extend(own_rules(settings));
    found.extend(fusion_model(settings));
    found.extend(models(settings));
    found.extend(token_key(settings));
    found.extend(receipts_key(settings));
    found.extend(receipts_folder(settings));
    found.push(loaded.overlay_path.as_deref().map_or_else(no_overlay, overlay));
    found
}

/// The stores that several gateways share: whether each answers, its version, and what a start would change in them.
fn stores(settings: &Settings) -> Vec<Diagnosis> {
    if settings.storage.profile != StorageProfile::Production {
        return Vec::new();
    }
    let stores = match crate::boot::stores_of(settings) {
        Ok(stores) => stores,
        Err(error) => return vec![Diagnosis::fail("stores", error.to_string())],
    };
    match Store::examine_stores(&stores) {
        Err(error) => vec![Diagnosis::fail("stores", error.to_string())],
        Ok(found) => found
            .into_iter()
            .map(|(name, how)| match how {
                Ok(text) => Diagnosis::ok("stores", format!("{name}: {text}")),
                Err(text) => Diagnosis::fail("stores", format!("{name}: {text}")),
            })
            .collect(),
    }
}

fn pricing_file(settings: &Settings) -> Option<Diagnosis> {
    let path = settings.cost_estimation.pricing_file.as_ref()?;
    Some(match Prices::open(&settings.cost_estimation, &settings.upstream.host) {
        Ok(_) => Diagnosis::ok("pricing file", format!("{}: can be read", path.display())),
        Err(error) => Diagnosis::fail("pricing file", error.to_string()),
    })
}

fn own_rules(settings: &Settings) -> Option<Diagnosis> {
    match OwnRules::open(settings) {
        Ok(own) => own.map(|own| Diagnosis::ok("own rules", own.said())),
        Err(error) => Some(Diagnosis::fail("own rules", error.to_string())),
    }
}

fn fusion_model(settings: &Settings) -> Option<Diagnosis> {
    let path = settings.security_analysis.fusion_model_path.as_ref()?;
    Some(match fusion::open(settings) {
        Ok(_) => Diagnosis::ok("fusion model", format!("{}: can be used", path.display())),
        Err(error) => Diagnosis::fail("fusion model", error.to_string()),
    })
}

/// ONNX models that are switched on; one that is not at hand does not stop a start.
fn models(settings: &Settings) -> Vec<Diagnosis> {
    let one = |(name, found): AtHand| match found {
        Ok(folder) => Diagnosis::ok("models", format!("{name}: {folder}: is there")),
        Err(why) => Diagnosis::warn("models", format!("{name}: {why}; until then texts are inspected without it")),
    };
    match models::at_hand(settings) {
        Ok(found) => found.into_iter().map(one).collect(),
        Err(error) => vec![Diagnosis::fail("models", error.to_string())],
    }
}

/// The folder of receipts, where they are on and something else stands in its place. A start makes it where it is missing.
fn receipts_folder(settings: &Settings) -> Option<Diagnosis> {
    let folder = settings.receipts.directory(&settings.storage.database_path);
    let is_other = settings.receipts.enabled && folder.exists() && !folder.is_dir();
    is_other.then(|| {
        Diagnosis::fail(
            "receipts",
            format!("receipts.directory: {}: this is not a folder; name another", folder.display()),
        )
    })
}

/// The key of receipts, where they are on. Made by hand, so that nobody has one without knowing.
fn receipts_key(settings: &Settings) -> Option<Diagnosis> {
    settings.receipts.enabled.then(|| {
        match SigningKey::read(&settings.receipts.key_file(&settings.storage.database_path)) {
            Ok(key) => {
                Diagnosis::ok("receipts key", format!("can be read; its public key is {}", key.public().to_hex()))
            }
            Err(error) => Diagnosis::fail("receipts key", ReceiptsError::from(error).to_string()),
        }
    })
}

/// The key of tenant tokens. Made at first need, so that it may be missing.
fn token_key(settings: &Settings) -> Option<Diagnosis> {
    let path = crate::boot::token_key_file(settings)?;
    if let Err(error) = crate::identity::check_key_file(&path) {
        return Some(Diagnosis::fail("token key", error.to_string()));
    }
    settings.auth.token_key_file.as_ref()?;
    let folder = folder_of(&path);
    Some(match (path.exists(), takes_files(&folder)) {
        (true, _) => Diagnosis::ok("token key", format!("{}: can be read", path.display())),
        (false, Ok(())) => Diagnosis::ok("token key", format!("{}: will be made at first need", path.display())),
        (false, Err(error)) => Diagnosis::fail(
            "token key",
            format!(
                "auth.token_key_file `{}`: the folder {} cannot be written: {error}; create it, or name another file",
                path.display(),
                folder.display()
            ),
        ),
    })
}

fn database(settings: &Settings) -> Diagnosis {
    if settings.storage.profile == StorageProfile::Memory {
        return Diagnosis::warn("database", "storage.profile is memory: every trace is lost on restart");
    }
    let path = &settings.storage.database_path;
    let fail =
        |what: String| Diagnosis::fail("database", format!("storage.database_path `{}`: {what}", path.display()));
    let folder = folder_of(path);
    if let Err(error) = takes_files(&folder) {
        let advice = "create it, or give the gateway's user the right to write there";
        return fail(format!("the folder {} cannot be written: {error}; {advice}", folder.display()));
    }
    match fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Diagnosis::ok("database", format!("{}: will be made by the first start", path.display()));
        }
        Err(error) => return fail(format!("cannot be looked at: {error}")),
        Ok(meta) if !meta.is_file() => return fail("is no file; name a file".to_owned()),
        Ok(_) => {}
    }
    let mut start = Vec::new();
    let opened = OpenOptions::new().read(true).write(true).open(path);
    match opened.and_then(|file| file.take(SQLITE_MAGIC.len() as u64).read_to_end(&mut start)) {
        Err(error) => fail(format!("cannot be opened for writing: {error}; correct its permissions")),
        Ok(0) => Diagnosis::ok("database", format!("{}: empty, will be filled by the first start", path.display())),
        Ok(_) if start == SQLITE_MAGIC => match Store::examine(path, settings.storage.auto_migrate) {
            Ok(0) => Diagnosis::ok("database", format!("{}: can be written", path.display())),
            Ok(pending) => {
                let what = format!("can be written, and the next start applies {pending} migration(s)");
                Diagnosis::ok("database", format!("{}: {what}", path.display()))
            }
            Err(error) => Diagnosis::fail("database", error.to_string()),
        },
        Ok(_) => fail("is not a SQLite database; name another file".to_owned()),
    }
}

/// Whether a gateway uses the database now, and what it would not share with one that is started beside it.
fn database_shared(settings: &Settings) -> Option<Diagnosis> {
    let path = &settings.storage.database_path;
    let is_used = settings.storage.profile != StorageProfile::Memory && UseClaim::is_used(path).unwrap_or(false);
    is_used.then(|| {
        let second = if settings.storage.shared_file && settings.storage.profile == StorageProfile::Lite {
            format!("Beside a second one: {}", shared_and_not())
        } else {
            "A second one is refused, but for one that takes over (storage.shared_file: false)".to_owned()
        };
        let what = format!("{}: a gateway uses it now. {second}", path.display());
        Diagnosis::ok("database", what)
    })
}

/// The file system below the database.
fn file_system(settings: &Settings) -> Option<Diagnosis> {
    if settings.storage.profile == StorageProfile::Memory {
        return None;
    }
    let folder = folder_of(&settings.storage.database_path).canonicalize().ok()?;
    let mounts = fs::read_to_string("/proc/self/mounts").ok()?;
    let (kind, options) = mount_of(&mounts, &folder)?;
    Some(judge_file_system(kind, options, &folder))
}

/// Type and options of the mount `path` lies on.
fn mount_of<'a>(mounts: &'a str, path: &Path) -> Option<(&'a str, &'a str)> {
    let entries = mounts.lines().filter_map(|line| {
        let mut words = line.split(' ');
        let (_device, place, kind, options) = (words.next()?, words.next()?, words.next()?, words.next()?);
        // Blanks in the path are written in octal.
        let place = PathBuf::from(place.replace("\\040", " "));
        path.starts_with(&place).then_some((place.components().count(), kind, options))
    });
    // The deepest one, and of several mounted over each other the last.
    entries.max_by_key(|(depth, ..)| *depth).map(|(_, kind, options)| (kind, options))
}

fn judge_file_system(kind: &str, options: &str, folder: &Path) -> Diagnosis {
    let shown = folder.display();
    if options.split(',').any(|option| option == "ro") {
        return Diagnosis::fail(
            "file system",
            format!("{shown} is mounted read-only ({kind}); remount it or move the database"),
        );
    }
    match kind {
        "nfs" | "nfs4" | "cifs" | "smb3" | "9p" | "afs" | "ceph" => Diagnosis::fail(
            "file system",
            format!("{shown} is on a network file system ({kind}), where SQLite's log is not safe; use a local disk"),
        ),
        "tmpfs" | "ramfs" => Diagnosis::warn("file system", format!("{shown} is on {kind}: traces are lost on reboot")),
        _ => Diagnosis::ok("file system", format!("{shown} is on {kind}")),
    }
}

fn ca_files(settings: &Settings) -> Vec<Diagnosis> {
    let own = settings.upstream_ca_file.as_deref();
    let own = own.map(|path| ca_file("upstream_ca_file", path, ("upstream_url", settings.upstream.scheme)));
    let of_member = |member: &NamedUpstream| {
        let (setting, url) = (format!("upstreams.{}.ca_file", member.name), format!("upstreams.{}.url", member.name));
        Some(ca_file(&setting, member.ca_file.as_deref()?, (&url, member.endpoint.scheme)))
    };
    let of_stores = settings.storage.ca_file.as_deref();
    let of_stores = of_stores.map(|path| ca_file("storage.ca_file", path, ("storage.relational_url", Scheme::Https)));
    own.into_iter().chain(of_stores).chain(settings.upstreams.members.iter().filter_map(of_member)).collect()
}

fn ca_file(setting: &str, path: &Path, (url, scheme): (&str, Scheme)) -> Diagnosis {
    let shown = path.display();
    match certificates(path) {
        Ok(0) => Diagnosis::fail("ca file", format!("{setting} `{shown}`: holds no PEM certificate")),
        Ok(count) if scheme == Scheme::Http => {
            Diagnosis::warn("ca file", format!("{shown}: {count} certificates, unused: {url} is plain http"))
        }
        Ok(count) => Diagnosis::ok("ca file", format!("{shown}: {count} certificates")),
        Err(error) => Diagnosis::fail("ca file", format!("{setting} `{shown}`: {error}; name a readable PEM file")),
    }
}

/// The listener's own pair.
fn tls_files(settings: &Settings) -> Option<Diagnosis> {
    match crate::boot::check_certificate(settings) {
        Ok(None) => None,
        Ok(Some(warning)) if !warning.is_empty() => Some(Diagnosis::warn("tls files", warning)),
        Ok(Some(_)) => {
            let cert = settings.tls_cert_file.as_deref().unwrap_or(Path::new("")).display();
            Some(Diagnosis::ok("tls files", format!("{cert}: certificate and key fit each other")))
        }
        Err(error) => Some(Diagnosis::fail("tls files", error)),
    }
}

fn certificates(path: &Path) -> Result<usize, String> {
    let all = CertificateDer::pem_file_iter(path).map_err(|error| error.to_string())?;
    all.map(|one| one.map_err(|error| error.to_string())).try_fold(0, |count, one| one.map(|_| count + 1))
}

fn no_overlay() -> Diagnosis {
    Diagnosis::ok(
        "overlay",
        "none, without a configuration file: flags changed at run time hold until the next restart; --runtime-config names a \
         place for them",
    )
}

fn overlay(path: &Path) -> Diagnosis {
    let folder = folder_of(path);
    match takes_files(&folder) {
        Ok(()) => Diagnosis::ok("overlay", format!("{}: flags changed at run time survive a restart", path.display())),
        Err(error) => Diagnosis::warn(
            "overlay",
            format!(
                "{}: the folder cannot be written ({error}): flags changed at run time hold until the next restart; \
                 name another place with --runtime-config",
                path.display()
            ),
        ),
    }
}

fn folder_of(path: &Path) -> PathBuf {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new(".")).to_path_buf()
}

/// Makes a file in `folder` and removes it: the only way to find missing rights, read-only mounts and full disks.
fn takes_files(folder: &Path) -> io::Result<()> {
    let probe = folder.join(format!(".weir-doctor-{}", uuid::Uuid::new_v4().simple()));
    let made = File::options().write(true).create_new(true).open(&probe).and_then(|mut file| {
        io::Write::write_all(&mut file, b"weir")?;
        file.sync_all()
    });
    match made {
        Ok(()) => fs::remove_file(&probe),
        Err(error) => {
            // It may have been made before writing failed.
            drop(fs::remove_file(&probe));
            Err(error)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::diagnosis::Level;
    use super::*;

    const MOUNTS: &str = "overlay / overlay rw,relatime 0 0\n/dev/sda1 /var ext4 rw 0 0\n\
                          server:/x /var/lib/weir nfs4 rw,vers=4 0 0\ntmpfs /a\\040b tmpfs ro,size=8k 0 0\n";

    #[test]
    fn the_deepest_mount_counts() {
        assert_eq!(mount_of(MOUNTS, Path::new("/var/lib/weir/data")), Some(("nfs4", "rw,vers=4")));
        assert_eq!(mount_of(MOUNTS, Path::new("/var/lib")), Some(("ext4", "rw")));
        assert_eq!(mount_of(MOUNTS, Path::new("/variety")), Some(("overlay", "rw,relatime")));
        assert_eq!(mount_of(MOUNTS, Path::new("/a b/c")), Some(("tmpfs", "ro,size=8k")));
    }

    #[test]
    fn network_and_read_only_file_systems_fail() {
        let level = |kind, options| judge_file_system(kind, options, Path::new("/x")).level;
        assert_eq!(level("nfs4", "rw"), Level::Fail);
        assert_eq!(level("ext4", "ro,relatime"), Level::Fail);
        assert_eq!(level("tmpfs", "rw"), Level::Warn);
        assert_eq!(level("ext4", "rw,errors=remount-ro"), Level::Ok);
    }
}
