//! What a reload (SIGHUP) does with each setting.

use super::Setting;

/// What becomes of a setting that was changed in the file when the gateway gets SIGHUP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnReload {
    /// It is in force.
    InForce,
    /// The file or folder that it names is read again; another path takes effect at the next start.
    FileReadAgain,
    /// It takes effect at the next start, and the log names it.
    NextStart,
}

/// What a reload puts in force beside the flags, all or nothing.
const IN_FORCE: [&str; 8] = [
    "upstreams",
    "upstream_groups",
    "routes",
    "upstream_health.eject_after",
    "upstream_health.eject_ms",
    "upstream_health.panic_percent",
    "upstream_health.left_after_ms",
    "upstream_api_key",
];

/// Settings whose files a reload reads again.
const FILES: [&str; 4] =
    ["tls_cert_file", "tls_key_file", "cost_estimation.pricing_file", "security_analysis.rules_dir"];

impl OnReload {
    /// As the schema of the file and the reference say it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::InForce => "in force",
            Self::FileReadAgain => "its files are read again",
            Self::NextStart => "at the next start",
        }
    }
}

impl Setting {
    /// What a reload does with it: a flag that can be changed while the gateway runs is put in force.
    pub fn on_reload(&self) -> OnReload {
        if self.wire.is_some() || IN_FORCE.contains(&self.path) {
            OnReload::InForce
        } else if FILES.contains(&self.path) {
            OnReload::FileReadAgain
        } else {
            OnReload::NextStart
        }
    }
}
