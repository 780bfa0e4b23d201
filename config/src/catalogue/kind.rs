//! Types and accepted ranges of settings, as data.
//!
//! Every kind can say in words what it accepts; the check itself is made where values are read.

use serde_json::{Value, json};

/// Type and accepted range of one setting.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Kind {
    /// `true` or `false`.
    Bool,
    /// A whole number in an inclusive range.
    Int {
        /// Smallest value accepted.
        min: u64,
        /// Largest value accepted.
        max: u64,
    },
    /// A finite number in an inclusive range.
    Float {
        /// Smallest value accepted.
        min: f64,
        /// Largest value accepted.
        max: f64,
    },
    /// Any text.
    Text,
    /// Text that is not empty.
    Name,
    /// A credential that can stand in a header field: visible ASCII without blanks.
    Credential {
        /// Fewest characters accepted.
        min: usize,
    },
    /// A file path: text that is not empty.
    File,
    /// A file path that names a real file, not SQLite's `:memory:` or a `file:` URI.
    DatabaseFile,
    /// `/health`, or another path that belongs to no other route of ours.
    HealthPath,
    /// `host:port` to listen on.
    ListenAddr,
    /// `http://` or `https://` base URL without user information, query or fragment.
    UpstreamUrl,
    /// One of these texts.
    Choice(&'static [&'static str]),
    /// A list of some of these texts.
    Choices(&'static [&'static str]),
    /// The name of a tag: ASCII letters, digits, `-`, `_` and `.`, a letter first.
    TagName,
    /// A character of the private use area: itself, `U+E0F0` or `\uE0F0`.
    Marker,
    /// A list of texts.
    TextList,
    /// A list of host names, or `.suffix` for all names below one.
    Hosts,
    /// One of them.
    Host,
    /// A list of web origins, `scheme://host[:port]`.
    Origins,
    /// One of them.
    Origin,
    /// One object with these fields.
    Record(&'static [Field]),
    /// A list of objects with these fields.
    Records(&'static [Field]),
    /// A map of objects with these fields.
    RecordMap(Keys, &'static [Field]),
}

/// What the keys of a [`Kind::RecordMap`] are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keys {
    /// UUIDs (RFC 9562).
    Uuid,
    /// Any text.
    Text,
}

/// One field of an object inside a list or map.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Field {
    /// Its name.
    pub name: &'static str,
    /// Another name for it.
    pub alias: Option<&'static str>,
    /// Type and accepted range.
    pub kind: Kind,
    /// False when it may be left out or be null.
    pub required: bool,
}

/// A value that can stand in the table.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Literal {
    /// `null`: unset.
    Null,
    /// A flag.
    Bool(bool),
    /// A whole number.
    Int(u64),
    /// A number.
    Float(f64),
    /// A text.
    Text(&'static str),
    /// A list of texts.
    Texts(&'static [&'static str]),
    /// `[]`.
    EmptyList,
    /// `{}`.
    EmptyMap,
}

/// Most milliseconds a timer may run: one year, which every clock in use can add without overflow.
pub(super) const YEAR_MS: u64 = 31_536_000_000;

// === impl Kind ===

impl Kind {
    /// A whole number from `min` up; the upper end is what a signed 64-bit column holds.
    pub(super) const fn at_least(min: u64) -> Self {
        Self::Int { min, max: i64::MAX as u64 }
    }

    /// A 32-bit whole number from `min` up.
    pub(super) const fn u32_at_least(min: u64) -> Self {
        Self::Int { min, max: u32::MAX as u64 }
    }

    /// A timer in milliseconds.
    pub(super) const fn millis(min: u64) -> Self {
        Self::Int { min, max: YEAR_MS }
    }

    /// 0.0 to 1.0.
    pub(super) const UNIT: Self = Self::Float { min: 0.0, max: 1.0 };

    /// A score from 0 to 100.
    pub(super) const SCORE: Self = Self::Int { min: 0, max: 100 };

    /// The five severities.
    pub(super) const SEVERITY: Self = Self::Choice(&["Info", "Low", "Medium", "High", "Critical"]);

    /// What a value may be, as an error message says it.
    pub fn accepted(&self) -> String {
        match self {
            Self::Bool => "true or false".to_owned(),
            Self::Int { min, max } if *max == i64::MAX as u64 => format!("a whole number, at least {min}"),
            Self::Int { min, max } => format!("a whole number from {min} to {max}"),
            Self::Float { min, max } if *max == f64::MAX => format!("a number, at least {min:?}"),
            Self::Float { min, max } => format!("a number from {min:?} to {max:?}"),
            Self::Text => "text".to_owned(),
            Self::Name => "text that is not empty".to_owned(),
            Self::Credential { min } => format!("visible ASCII text without blanks, at least {min} characters"),
            Self::File => "a file path".to_owned(),
            Self::DatabaseFile => "the path of a database file (for no file, use `storage.profile: memory`)".to_owned(),
            Self::HealthPath => {
                "a path such as /health or /status/live: letters, digits, `-`, `_`, `.` and `/`, no dot segments, not a \
                 path of the API or of the provider's"
                    .to_owned()
            }
            Self::ListenAddr => {
                "host:port, where host is an IP address, `localhost` or empty (all IPv4 addresses), such as \
                 0.0.0.0:8080, [::]:8080 or localhost:8080"
                    .to_owned()
            }
            Self::UpstreamUrl => "http://host[:port][/path] or https://host[:port][/path]".to_owned(),
            Self::Choice(values) => choices(values),
            Self::Choices(values) => format!("a list of {}", choices(values)),
            Self::TagName => {
                "the name of a tag: a letter, then letters, digits, `-`, `_` and `.`, at most 64 in all".to_owned()
            }
            Self::Marker => "a character from U+E000 to U+F8FF, written U+E0F0, as a JSON escape or as itself".to_owned(),
            Self::TextList => "a list of texts".to_owned(),
            Self::Hosts => "a list of host names without port, such as llm.example.com, or .example.com for all below it".to_owned(),
            Self::Host => "a host name without port, such as llm.example.com, or .example.com for all below it".to_owned(),
            Self::Origins => "a list of origins as browsers send them, such as https://app.example.com".to_owned(),
            Self::Origin => "an origin as browsers send it, such as https://app.example.com".to_owned(),
            Self::Record(fields) => format!("an object with {}", field_names(fields)),
            Self::Records(fields) => format!("a list of objects with {}", field_names(fields)),
            Self::RecordMap(Keys::Uuid, fields) => {
                format!("a map from a UUID to an object with {}", field_names(fields))
            }
            Self::RecordMap(Keys::Text, fields) => {
                format!("a map from a name to an object with {}", field_names(fields))
            }
        }
    }
}

/// `a`, `b` or `c`.
pub(super) fn choices(values: &[&str]) -> String {
    let quoted: Vec<String> = values.iter().map(|value| format!("`{value}`")).collect();
    match quoted.split_last() {
        Some((last, [])) => last.clone(),
        Some((last, rest)) => format!("{} or {last}", rest.join(", ")),
        None => String::new(),
    }
}

fn field_names(fields: &[Field]) -> String {
    let quoted: Vec<String> = fields.iter().map(|field| format!("`{}`", field.name)).collect();
    quoted.join(", ")
}

// === impl Field ===

impl Field {
    /// A field that must be there.
    pub(super) const fn required(name: &'static str, kind: Kind) -> Self {
        Self { name, alias: None, kind, required: true }
    }

    /// A field that may be left out or be null.
    pub(super) const fn optional(name: &'static str, kind: Kind) -> Self {
        Self { name, alias: None, kind, required: false }
    }

    pub(super) const fn alias(mut self, alias: &'static str) -> Self {
        self.alias = Some(alias);
        self
    }
}

// === impl Literal ===

impl Literal {
    /// The same value as JSON.
    pub fn to_value(&self) -> Value {
        match self {
            Self::Null => Value::Null,
            Self::Bool(flag) => json!(flag),
            Self::Int(number) => json!(number),
            Self::Float(number) => json!(number),
            Self::Text(text) => json!(text),
            Self::Texts(texts) => json!(texts),
            Self::EmptyList => json!([]),
            Self::EmptyMap => json!({}),
        }
    }
}
