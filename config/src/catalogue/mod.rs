//! The table of every setting: path, type, default, accepted range, environment variable, wire flag, and whether this
//! version implements it.
//!
//! Invariant: what is not in this table does not exist; loading, the example file and the live view all read it.
//! It knows nothing of files, YAML or the environment.

mod alerts;
mod analysis;
mod defence;
mod gateway;
mod judge;
mod kind;
mod money;
mod otel;
mod policy;
mod receipts;
mod reload;
mod router;
mod services;
mod siem;
mod upstreams;
mod value;

use serde_json::Value;

use crate::settings::Settings;

pub(crate) use defence::marker;
pub use kind::{Field, Keys, Kind, Literal};
pub use reload::OnReload;
pub use value::Unfit;

/// Puts a checked value into the settings.
pub type Set = fn(&mut Settings, &Value) -> Result<(), Unfit>;

/// One row of the table.
#[derive(Debug, Clone, Copy)]
pub struct Setting {
    /// Dotted path in the YAML document. Rows under `environment.` exist only as variables.
    pub path: &'static str,
    /// Type and accepted range.
    pub kind: Kind,
    /// Whether `null` is accepted beside the kind's values.
    pub nullable: bool,
    /// What holds when no layer says anything.
    pub default: Literal,
    /// The environment variable, and how its text is read.
    pub env: Option<(&'static str, EnvRule)>,
    /// Other spellings of a value: (alias, value).
    pub aliases: &'static [(&'static str, &'static str)],
    /// The flag's name in `PUT /api/v1/config/features` and in the overlay; `None` when it is no flag.
    pub wire: Option<&'static str>,
    /// Never shown.
    pub secret: bool,
    /// Whether this version implements it.
    pub build: Build,
    /// One sentence for a person; empty while the setting is not built.
    pub doc: &'static str,
}

/// How the text of an environment variable becomes a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EnvRule {
    /// By the setting's kind; anything else is a violation.
    Plain,
    /// `1`, `true`, `yes` in any case are true, anything else is false.
    TruthyOrFalse,
    /// `0`, `false`, `no` in any case are false, anything else is true.
    FalsyOrTrue,
    /// A value that does not fit is ignored with a warning.
    Lenient,
}

/// Whether this version implements a setting.
#[derive(Debug, Clone, Copy)]
pub enum Build {
    /// It does; single values of it may still be missing.
    Built {
        /// Stores the value.
        set: Set,
        /// Values that are known and not built: (value, name of the feature).
        missing: &'static [(&'static str, &'static str)],
    },
    /// It does not: only the default is accepted.
    NotBuilt {
        /// What is missing, as the refusal names it.
        feature: &'static str,
    },
}

/// A setter: `set!(limits.timeout_ms, int)` stores what `int` reads.
macro_rules! set {
    ($($field:ident).+, $read:expr) => {
        |settings, value| {
            settings.$($field).+ = $read(value)?;
            Ok(())
        }
    };
}
use set;

// === impl Setting ===

impl Setting {
    /// A setting this version implements.
    const fn built(path: &'static str, kind: Kind, default: Literal, doc: &'static str, set: Set) -> Self {
        Self::row(path, kind, default, doc, Build::Built { set, missing: &[] })
    }

    /// Null is accepted, too, though it is not the default.
    const fn or_null(mut self) -> Self {
        self.nullable = true;
        self
    }

    /// A setting that is refused unless it is set to its default.
    #[expect(dead_code, reason = "for the next feature that is specified and not built")]
    const fn not_built(path: &'static str, kind: Kind, default: Literal, feature: &'static str) -> Self {
        Self::row(path, kind, default, "", Build::NotBuilt { feature })
    }

    const fn row(path: &'static str, kind: Kind, default: Literal, doc: &'static str, build: Build) -> Self {
        let nullable = matches!(default, Literal::Null);
        Self { path, kind, nullable, default, env: None, aliases: &[], wire: None, secret: false, build, doc }
    }

    const fn env(mut self, name: &'static str) -> Self {
        self.env = Some((name, EnvRule::Plain));
        self
    }

    const fn env_rule(mut self, name: &'static str, rule: EnvRule) -> Self {
        self.env = Some((name, rule));
        self
    }

    const fn wire(mut self, flag: &'static str) -> Self {
        self.wire = Some(flag);
        self
    }

    const fn aliases(mut self, aliases: &'static [(&'static str, &'static str)]) -> Self {
        self.aliases = aliases;
        self
    }

    const fn secret(mut self) -> Self {
        self.secret = true;
        self
    }

    /// Names values of a built setting that are not built.
    #[expect(dead_code, reason = "for the next value that is specified and not built")]
    const fn missing(mut self, values: &'static [(&'static str, &'static str)]) -> Self {
        if let Build::Built { set, .. } = self.build {
            self.build = Build::Built { set, missing: values };
        }
        self
    }

    /// True when the setting may stand in the YAML document.
    pub fn in_file(&self) -> bool {
        !self.path.starts_with("environment.")
    }

    /// Whether it matters that somebody wrote it, also at its default: a threshold that is written is not moved by the operating point.
    pub fn is_heard_where_written(&self) -> bool {
        let mut settings = Settings::default();
        match self.build {
            Build::Built { set, .. } => {
                set(&mut settings, &self.default.to_value()).is_ok() && settings != Settings::default()
            }
            Build::NotBuilt { .. } => false,
        }
    }

    /// What a value may be, as an error message says it.
    pub fn accepted(&self) -> String {
        let mut text = match (&self.kind, &self.build) {
            (Kind::Choice(values), Build::Built { missing, .. }) => {
                let built = values.iter().filter(|value| !missing.iter().any(|(name, _)| name == *value));
                kind::choices(&built.copied().collect::<Vec<_>>())
            }
            (kind, _) => kind.accepted(),
        };
        for (alias, value) in self.aliases {
            text.push_str(&format!(" (`{alias}` means `{value}`)"));
        }
        if self.nullable {
            text.push_str(", or null");
        }
        text
    }
}

/// Every setting, in the order they are applied.
pub fn settings() -> impl Iterator<Item = &'static Setting> + Clone {
    gateway::SETTINGS
        .iter()
        .chain(policy::SETTINGS)
        .chain(analysis::SETTINGS)
        .chain(defence::SETTINGS)
        .chain(money::SETTINGS)
        .chain(judge::SETTINGS)
        .chain(alerts::SETTINGS)
        .chain(services::SETTINGS)
        .chain(router::SETTINGS)
        .chain(otel::SETTINGS)
        .chain(siem::SETTINGS)
        .chain(receipts::SETTINGS)
        .chain(upstreams::SETTINGS)
}

/// The setting at a path.
pub fn by_path(path: &str) -> Option<&'static Setting> {
    settings().find(|setting| setting.path == path)
}

/// The hot-swappable setting behind a wire flag.
pub fn by_wire(flag: &str) -> Option<&'static Setting> {
    settings().find(|setting| setting.wire == Some(flag))
}

/// True when settings of the YAML document lie below this path.
pub(crate) fn is_section(path: &str) -> bool {
    settings().any(|setting| setting.in_file() && below(setting.path, path).is_some())
}

/// The names that may follow `section` (empty for the top level) in the YAML document, with repetitions.
pub(crate) fn names_in(section: &str) -> impl Iterator<Item = &'static str> {
    settings().filter(|setting| setting.in_file()).filter_map(move |setting| {
        let rest = if section.is_empty() { Some(setting.path) } else { below(setting.path, section) };
        rest.and_then(|rest| rest.split('.').next())
    })
}

fn below(path: &'static str, section: &str) -> Option<&'static str> {
    path.strip_prefix(section)?.strip_prefix('.')
}

#[cfg(test)]
mod tests;
