//! Loading: defaults < file < overlay < environment < command line, checked as a whole.
//!
//! Invariant: [`load`] answers with settings that keep every start-up rule, or with every violation at once. The only
//! I/O is reading the two files, and those that hold keys of upstreams; the environment is handed in.

mod alerts;
mod check;
mod defence;
mod env;
mod file;
mod judge;
mod layers;
mod levels;
mod listeners;
mod masked;
mod otel;
mod overlay;
mod reread;
mod router;
mod secrets;
mod siem;
mod stores;
mod suggest;
mod upstreams;

use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::address;
use crate::catalogue::{self, Build};
use crate::egress;
use crate::error::{LoadError, Place, Violation};
use crate::settings::Settings;
use crate::vocab::{rules_may_raise, worst_in_requests};
use crate::yaml;

pub(crate) use judge::missing_key;
pub use layers::Origin;
pub(crate) use overlay::{check_flag, nearest_flag};
pub use reread::{Change, Changes};
pub use siem::siem_token;

use layers::Layers;
use reread::InFile;

/// Name of the overlay beside the configuration file, when nothing names another.
const OVERLAY_NAME: &str = "config.runtime.yaml";

/// A shorter admin key is accepted and doubted.
const ADMIN_KEY_CHARACTERS_GOOD: usize = 24;

/// Where settings come from.
#[derive(Clone, Default)]
pub struct Sources {
    /// `--config`; wins over `SERVICE_CONFIG`.
    pub config: Option<PathBuf>,
    /// `--runtime-config`; wins over `SERVICE_RUNTIME_CONFIG`.
    pub runtime_config: Option<PathBuf>,
    /// The environment's variables.
    pub env: BTreeMap<String, String>,
    /// `--log-level`.
    pub log_level: Option<String>,
    /// `--log-format`.
    pub log_format: Option<String>,
}

/// Checked settings and how they came about.
#[derive(Debug, Clone)]
pub struct Loaded {
    /// What the gateway runs on.
    pub settings: Settings,
    /// The layer each setting's value comes from, for every path of the [`catalogue`].
    pub origins: BTreeMap<&'static str, Origin>,
    /// What was ignored, one sentence each, for the log.
    pub warnings: Vec<String>,
    /// What a start accepts because it has to and nobody can have meant, one sentence each: `check` and `doctor` fail.
    pub alarms: Vec<String>,
    /// The configuration file that was read.
    pub config_file: Option<PathBuf>,
    /// Where flag changes are persisted: the path given, else `config.runtime.yaml` beside the configuration file,
    /// else nowhere. The file need not exist.
    pub overlay_path: Option<PathBuf>,
    /// Where all of this was read, for reading a part of it again.
    pub(crate) sources: Sources,
    /// The resolved value of every setting by path, secrets masked: their plaintext lives in `settings` alone.
    pub(crate) shown: BTreeMap<&'static str, Value>,
    /// A number for each written value, by which a change is seen that [`Self::shown`] masks.
    pub(crate) prints: BTreeMap<&'static str, u64>,
    /// What the overlay says, by wire flag.
    pub(crate) overlay: BTreeMap<&'static str, Value>,
    /// What would hold without it, and from where, by wire flag.
    pub(crate) beneath: BTreeMap<&'static str, (Value, Origin)>,
    /// What the configuration file says, by path: a reload tells what was changed there to no effect.
    pub(crate) in_file: BTreeMap<&'static str, InFile>,
}

impl fmt::Debug for Sources {
    /// Names the variables without their values: some are credentials.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sources")
            .field("config", &self.config)
            .field("runtime_config", &self.runtime_config)
            .field("env", &self.env.keys())
            .field("log_level", &self.log_level)
            .field("log_format", &self.log_format)
            .finish()
    }
}

/// Reads all layers.
///
/// # Errors
///
/// Every violation found in the file, the environment and the command line, and between settings.
pub fn load(sources: &Sources) -> Result<Loaded, LoadError> {
    let mut layers = Layers::default();
    let config_file = sources.config.clone().or_else(|| env::variable(&sources.env, env::CONFIG).map(PathBuf::from));
    let config_text = config_file.as_deref().and_then(|path| read_config(path, sources, &mut layers));
    let overlay_path = overlay_path(sources, config_file.as_deref());
    let beneath = beneath_overlay(&layers);
    let in_file = in_file(&layers);
    if let Some(path) = &overlay_path {
        read_overlay(path, &mut layers);
    }
    env::read(&sources.env, &mut layers);
    env::option("logging.level", "--log-level", sources.log_level.as_deref(), &mut layers);
    env::option("logging.format", "--log-format", sources.log_format.as_deref(), &mut layers);

    let mut settings = assemble(&mut layers);
    settings.egress = egress::read(&sources.env, &settings.upstream, &mut layers.violations);
    alerts::settle(&settings, &mut layers);
    upstreams::settle(&mut settings, &sources.env, config_text.as_deref(), &mut layers);
    refuse_loop(&settings, config_text.as_deref(), &mut layers);
    require_certificate(&settings, &mut layers);
    doubt_admin_key(&settings, &mut layers);
    judge::check(&settings, &mut layers);
    levels::check(&settings, &mut layers);
    defence::check(&mut settings, &mut layers);
    router::settle(&mut settings, &mut layers);
    otel::settle(&mut settings, &sources.env, &mut layers);
    siem::settle(&mut settings, &sources.env, &mut layers);
    listeners::check(&settings, &mut layers);
    stores::check(&settings, &mut layers);
    if !layers.violations.is_empty() {
        return Err(LoadError { violations: layers.violations });
    }
    warn_of_idle_categories(&settings, &mut layers);
    let origin = |path| layers.written.get(path).map_or(Origin::Default, |written| written.origin);
    let value = |setting: &catalogue::Setting| match layers.written.get(setting.path) {
        Some(written) => shown(setting, &written.value),
        None => setting.default.to_value(),
    };
    let shown: BTreeMap<_, _> = catalogue::settings().map(|setting| (setting.path, value(setting))).collect();
    Ok(Loaded {
        settings,
        origins: catalogue::settings().map(|setting| (setting.path, origin(setting.path))).collect(),
        shown,
        prints: layers.written.iter().filter_map(|(path, written)| print(path, &written.value)).collect(),
        overlay: layers.overlay,
        beneath,
        in_file,
        warnings: layers.warnings,
        alarms: layers.alarms,
        config_file,
        overlay_path,
        sources: sources.clone(),
    })
}

impl Loaded {
    /// What the overlay says now, by wire flag.
    pub(crate) fn overlay_now(&self) -> Result<BTreeMap<&'static str, Value>, String> {
        let mut layers = Layers::default();
        if let Some(path) = &self.overlay_path {
            read_overlay(path, &mut layers);
        }
        if layers.warnings.is_empty() { Ok(layers.overlay) } else { Err(layers.warnings.join("; ")) }
    }
}

/// A category that names a type whose findings are never as bad as the least that is enforced, or never in a request, does nothing, and
/// says so. What the operator's own rules find may be as bad as they say.
fn warn_of_idle_categories(settings: &Settings, layers: &mut Layers) {
    let rules = &settings.enforcement;
    let may_be_raised =
        |finding_type: &str| settings.security_analysis.rules_dir.is_some() && rules_may_raise(finding_type);
    for (index, (finding_type, _)) in rules.categories.iter().enumerate() {
        if may_be_raised(finding_type) {
            continue;
        }
        let why = match worst_in_requests(finding_type) {
            None => "it is found in answers only, and `enforcement` is for requests; see `output_safety`".to_owned(),
            Some(worst) if worst < rules.min_severity => format!(
                "its findings are {worst} at worst, and enforcement.min_severity is {}; set enforcement.min_severity to {worst}",
                rules.min_severity
            ),
            Some(_) => continue,
        };
        let warning = format!("enforcement.categories[{index}]: `{finding_type}` is never acted on: {why}");
        layers.warnings.push(warning);
    }
}

/// A number that is another one when the value is. It is not told to anybody.
fn print(path: &str, value: &Value) -> Option<(&'static str, u64)> {
    let setting = catalogue::by_path(path)?;
    let mut hasher = DefaultHasher::new();
    value.to_string().hash(&mut hasher);
    Some((setting.path, hasher.finish()))
}

/// A value as it may be shown.
fn shown(setting: &catalogue::Setting, value: &Value) -> Value {
    if setting.secret { masked::masked(value) } else { masked::credentials_masked(&setting.kind, value) }
}

/// What the file says, which is all that has been read so far.
fn in_file(layers: &Layers) -> BTreeMap<&'static str, InFile> {
    let one = |setting: &'static catalogue::Setting| {
        let value = &layers.written.get(setting.path)?.value;
        let (path, print) = print(setting.path, value)?;
        Some((path, InFile { shown: shown(setting, value), print }))
    };
    catalogue::settings().filter_map(one).collect()
}

/// Each flag as the file and the defaults have it.
fn beneath_overlay(layers: &Layers) -> BTreeMap<&'static str, (Value, Origin)> {
    let one = |setting: &'static catalogue::Setting| {
        let value = match layers.written.get(setting.path) {
            Some(written) => (written.value.clone(), written.origin),
            None => (setting.default.to_value(), Origin::Default),
        };
        setting.wire.map(|flag| (flag, value))
    };
    catalogue::settings().filter_map(one).collect()
}

/// Puts every written value into the built-in defaults, in the order of the table.
fn assemble(layers: &mut Layers) -> Settings {
    let mut settings = Settings::default();
    for setting in catalogue::settings() {
        let Build::Built { set, .. } = setting.build else { continue };
        let Some(written) = layers.written.get(setting.path) else { continue };
        if let Err(unfit) = set(&mut settings, &written.value) {
            layers.violations.push(Violation {
                place: written.place.clone(),
                path: Some(setting.path.to_owned()),
                problem: unfit.to_string(),
                accepted: Some(setting.accepted()),
                advice: "correct it".to_owned(),
            });
        }
    }
    settings
}

/// A listener that is to speak TLS needs both halves of a certificate.
fn require_certificate(settings: &Settings, layers: &mut Layers) {
    let halves = [("tls_cert_file", &settings.tls_cert_file), ("tls_key_file", &settings.tls_key_file)];
    let missing: Vec<_> = halves.iter().filter(|(_, file)| file.is_none()).map(|(name, _)| *name).collect();
    let Some(written) = layers.written.get("enable_tls").filter(|_| settings.enable_tls && !missing.is_empty()) else {
        return;
    };
    layers.violations.push(Violation {
        place: written.place.clone(),
        path: Some("enable_tls".to_owned()),
        problem: format!("got true, but {} is not set", missing.join(" and ")),
        accepted: Some("true together with `tls_cert_file` and `tls_key_file`, or false".to_owned()),
        advice: format!(
            "set `{}`, or leave TLS to a proxy in front and set `enable_tls: false`",
            missing.join("` and `")
        ),
    });
}

/// An admin key that can be guessed, or that guards nothing.
fn doubt_admin_key(settings: &Settings, layers: &mut Layers) {
    let Some(key) = &settings.auth.admin_key else { return };
    let length = key.expose().len();
    if length < ADMIN_KEY_CHARACTERS_GOOD {
        layers.warnings.push(format!(
            "`auth.admin_key` has {length} characters; with fewer than {ADMIN_KEY_CHARACTERS_GOOD} it may be guessed: make one \
             with `openssl rand -hex 32`"
        ));
    }
    if !settings.auth.enabled {
        layers.alarms.push(
            "`auth.admin_key` is set and `auth.enabled` is false: authentication is off, and anybody who reaches the listener \
             is administrator; set `auth.enabled: true` (SERVICE_AUTH_ENABLED=true), or remove the key"
                .to_owned(),
        );
    }
}

/// An upstream that is our own listener would send every request round until something breaks.
fn refuse_loop(settings: &Settings, config_text: Option<&str>, layers: &mut Layers) {
    let faulty = |name: &str| layers.violations.iter().any(|violation| violation.path.as_deref() == Some(name));
    if faulty("upstream_url") || faulty("listen_addr") {
        return;
    }
    // A default upstream is never ours, so the value was written somewhere.
    let Some(written) = layers.written.get("upstream_url") else { return };
    if !address::is_own_listener(&settings.upstream, settings.listen_addr) {
        return;
    }
    let place = match (&written.place, &written.steps, config_text) {
        (Place::File { path, .. }, Some(steps), Some(text)) => {
            Place::File { path: path.clone(), position: yaml::locate(text, steps, false) }
        }
        (place, _, _) => place.clone(),
    };
    layers.violations.push(Violation {
        place,
        path: Some("upstream_url".to_owned()),
        problem: format!(
            "got {}, which is this gateway's own listener ({}): every request would come back",
            written.value, settings.listen_addr
        ),
        accepted: None,
        advice: "name the provider's address, or move `listen_addr` to another port".to_owned(),
    });
}

// === files ===

fn read_config(path: &Path, sources: &Sources, layers: &mut Layers) -> Option<String> {
    match read_text(path) {
        Ok(text) => {
            file::read(path, &text, layers);
            Some(text)
        }
        Err(error) => {
            let named_by = if sources.config.is_some() { "--config" } else { env::CONFIG };
            layers.violations.push(Violation {
                place: Place::File { path: path.to_owned(), position: None },
                path: None,
                problem: format!("the configuration file cannot be read: {error}"),
                accepted: None,
                advice: format!("correct the path given by {named_by}, or leave it out for the built-in defaults"),
            });
            None
        }
    }
}

fn overlay_path(sources: &Sources, config_file: Option<&Path>) -> Option<PathBuf> {
    let given = sources.runtime_config.clone();
    given
        .or_else(|| env::variable(&sources.env, env::RUNTIME_CONFIG).map(PathBuf::from))
        .or_else(|| config_file.map(|file| file.with_file_name(OVERLAY_NAME)))
}

fn read_overlay(path: &Path, layers: &mut Layers) {
    match read_text(path) {
        Ok(text) => overlay::read(path, &text, layers),
        // Nobody has changed a flag yet.
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => {
            let shown = path.display();
            layers.warnings.push(format!("{shown}: the runtime overlay cannot be read: {error}; ignored"));
        }
    }
}

/// The whole file as text, at most [`yaml::MAX_BYTES`] of it.
fn read_text(path: &Path) -> io::Result<String> {
    let mut bytes = Vec::new();
    let limit = yaml::MAX_BYTES as u64 + 1;
    File::open(path)?.take(limit).read_to_end(&mut bytes)?;
    if bytes.len() > yaml::MAX_BYTES {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, format!("larger than {} bytes", yaml::MAX_BYTES)));
    }
    String::from_utf8(bytes).map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "not UTF-8 text"))
}
