//! Checks one written value against its row of the table.
//!
//! Invariant: what passes has exactly the type its kind names, with aliases replaced; every mismatch of a value is found,
//! not only the first. Knows no layer.

use serde_json::{Map, Number, Value};

use super::suggest::nearest;
use crate::address;
use crate::catalogue::{self, Build, Field, Keys, Kind, Setting};
use crate::vocab::TenantId;
use crate::yaml::Node;

/// How a problem begins that shows the value; those of secrets are replaced.
const GOT: &str = "got ";

/// One thing that is wrong inside a value.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Mismatch {
    /// The way from the value to the part that is wrong.
    pub(super) steps: Vec<usize>,
    /// True when the part's key is meant.
    pub(super) key: bool,
    /// The same way as text behind the setting's path, e.g. `[2].action`.
    pub(super) below: String,
    pub(super) problem: String,
    pub(super) accepted: Option<String>,
    /// What to do, when the place of the value does not say it.
    pub(super) advice: Option<String>,
    /// The problem shows one word where one of a few is expected: no secret, though the setting may hold some elsewhere.
    pub(super) is_word: bool,
}

/// Checks a value; a setting that is not built passes with its default only.
pub(super) fn check(setting: &Setting, node: &Node) -> Result<Value, Vec<Mismatch>> {
    let checked = if setting.nullable && *node == Node::Null { Ok(Value::Null) } else { check_kind(setting, node) };
    match setting.build {
        Build::NotBuilt { feature } => {
            let fits = |value: &Value| same(value, &setting.default.to_value());
            checked.ok().filter(fits).ok_or_else(|| vec![Mismatch::of_value(not_built(feature), None)])
        }
        Build::Built { missing, .. } => {
            let value = checked?;
            match missing.iter().find(|(name, _)| value == *name) {
                Some((_, feature)) => Err(vec![Mismatch::of_value(not_built(feature), Some(setting.accepted()))]),
                None => Ok(value),
            }
        }
    }
}

fn not_built(feature: &str) -> String {
    format!("{feature} is not built into this version")
}

/// Equality that does not tell 3 from 3.0.
fn same(a: &Value, b: &Value) -> bool {
    match (a.as_f64(), b.as_f64()) {
        (Some(a), Some(b)) => a == b,
        _ => a == b,
    }
}

fn check_kind(setting: &Setting, node: &Node) -> Result<Value, Vec<Mismatch>> {
    let replaced = match node {
        Node::Text(text) => setting.aliases.iter().find(|(alias, _)| alias == text).map(|(_, value)| *value),
        _ => None,
    };
    if let Some(value) = replaced {
        return Ok(Value::from(value));
    }
    let mut checker = Checker { steps: Vec::new(), below: String::new(), mismatches: Vec::new() };
    let value = checker.value(&setting.kind, node);
    match value {
        Some(value) if checker.mismatches.is_empty() => Ok(value),
        _ => {
            for mismatch in &mut checker.mismatches {
                if mismatch.steps.is_empty() {
                    mismatch.accepted = Some(setting.accepted());
                }
                if setting.secret && !mismatch.is_word && mismatch.problem.starts_with(GOT) {
                    mismatch.problem = "got a value that does not fit".to_owned();
                }
            }
            Err(checker.mismatches)
        }
    }
}

/// Whether a value that stands where one of a few words is expected is a plain word, and so no credential put in the wrong place.
fn is_word(kind: &Kind, node: &Node) -> bool {
    /// Letters of the longest word that is shown; credentials are longer.
    const LETTERS_MAX: usize = 16;
    let plain = |byte: u8| byte.is_ascii_alphabetic() || byte == b'_' || byte == b'-';
    matches!((kind, node), (Kind::Choice(_), Node::Text(text)) if text.len() <= LETTERS_MAX && text.bytes().all(plain))
}

/// Walks a value and collects mismatches.
struct Checker {
    steps: Vec<usize>,
    below: String,
    mismatches: Vec<Mismatch>,
}

// === impl Mismatch ===

impl Mismatch {
    fn of_value(problem: String, accepted: Option<String>) -> Self {
        Self { steps: Vec::new(), key: false, below: String::new(), problem, accepted, advice: None, is_word: false }
    }
}

// === impl Checker ===

impl Checker {
    fn value(&mut self, kind: &Kind, node: &Node) -> Option<Value> {
        let checked = match (kind, node) {
            (Kind::Bool, Node::Bool(flag)) => Ok(Value::Bool(*flag)),
            (Kind::Int { min, max }, Node::Int(number)) => {
                let number = u64::try_from(*number).ok().filter(|number| (min..=max).contains(&number));
                number.map(Value::from).ok_or_else(|| format!("{GOT}{node}"))
            }
            (Kind::Float { min, max }, Node::Int(_) | Node::Float(_)) => {
                let number = if let Node::Float(number) = node { *number } else { int_as_float(node) };
                // A NaN is in no range.
                let number = Some(number).filter(|number| (min..=max).contains(&number));
                number.and_then(Number::from_f64).map(Value::Number).ok_or_else(|| format!("{GOT}{node}"))
            }
            (Kind::ListenAddr, Node::Text(text)) => match address::listen_addr(text) {
                Ok(_) => Ok(Value::from(text.as_str())),
                Err(reason) => Err(format!("{GOT}{node}: {reason}")),
            },
            (Kind::UpstreamUrl, Node::Text(text)) => match address::upstream(text) {
                Ok(_) => Ok(Value::from(text.as_str())),
                Err(reason) => Err(format!("{GOT}{}: {reason}", Node::Text(without_credentials(text)))),
            },
            (kind, Node::Text(text)) if is_text(kind) => match fits_text(kind, text) {
                true => Ok(Value::from(text.as_str())),
                false if matches!(kind, Kind::Credential { .. }) => Err("got a value that does not fit".to_owned()),
                false => Err(format!("{GOT}{node}{}", case_hint(kind, text))),
            },
            (Kind::TextList | Kind::Choices(_) | Kind::Hosts | Kind::Origins | Kind::Records(_), Node::List(items)) => {
                return self.list(kind, items);
            }
            (Kind::Record(fields), Node::Map(entries)) => return self.record(fields, entries),
            (Kind::RecordMap(keys, fields), Node::Map(entries)) => return self.record_map(*keys, fields, entries),
            (Kind::Credential { .. }, _) => Err("got a value that does not fit".to_owned()),
            _ => Err(format!("{GOT}{node}")),
        };
        let is_word = is_word(kind, node);
        checked.map_err(|problem| self.mismatch(problem, kind, is_word)).ok()
    }

    fn list(&mut self, kind: &Kind, items: &[Node]) -> Option<Value> {
        let item_kind = match kind {
            Kind::Records(fields) => Kind::Record(fields),
            Kind::Choices(values) => Kind::Choice(values),
            Kind::Hosts => Kind::Host,
            Kind::Origins => Kind::Origin,
            _ => Kind::Name,
        };
        let values: Vec<Option<Value>> = items
            .iter()
            .enumerate()
            .map(|(index, item)| self.inside(index, &format!("[{index}]"), |inner| inner.value(&item_kind, item)))
            .collect();
        values.into_iter().collect()
    }

    fn record(&mut self, fields: &'static [Field], entries: &[(String, Node)]) -> Option<Value> {
        let mut object = Map::new();
        for (index, (key, node)) in entries.iter().enumerate() {
            let known = fields.iter().find(|field| field.name == key || field.alias == Some(key.as_str()));
            self.inside(index, &format!(".{key}"), |inner| {
                let Some(field) = known else { return inner.unknown_field(key, fields) };
                if object.contains_key(field.name) {
                    return inner.key_mismatch("is written twice".to_owned(), "keep one of them".to_owned());
                }
                let value = if *node == Node::Null && !field.required {
                    Some(Value::Null)
                } else {
                    inner.value(&field.kind, node)
                };
                // A faulty field is there all the same: it must not be reported as missing too.
                object.insert(field.name.to_owned(), value.unwrap_or(Value::Null));
            });
        }
        for field in fields.iter().filter(|field| field.required && !object.contains_key(field.name)) {
            let problem = format!("`{}` is missing", field.name);
            self.push(false, problem, Some(field.kind.accepted()), Some("add it".to_owned()));
        }
        Some(Value::Object(object))
    }

    fn record_map(&mut self, keys: Keys, fields: &'static [Field], entries: &[(String, Node)]) -> Option<Value> {
        let mut object = Map::new();
        for (index, (key, node)) in entries.iter().enumerate() {
            self.inside(index, &format!(".{key}"), |inner| {
                let name = match (keys, key.parse::<TenantId>()) {
                    (Keys::Text, _) => key.clone(),
                    (Keys::Uuid, Ok(id)) => id.to_string(),
                    (Keys::Uuid, Err(error)) => {
                        return inner.key_mismatch(format!("the key {error}"), "correct the key".to_owned());
                    }
                };
                if object.contains_key(&name) {
                    return inner.key_mismatch("is written twice".to_owned(), "keep one of them".to_owned());
                }
                let value = inner.value(&Kind::Record(fields), node);
                object.insert(name, value.unwrap_or(Value::Null));
            });
        }
        Some(Value::Object(object))
    }

    fn unknown_field(&mut self, key: &str, fields: &[Field]) {
        let advice = match nearest(key, fields.iter().map(|field| field.name)) {
            Some(name) => format!("did you mean `{name}`?"),
            None => "remove it".to_owned(),
        };
        self.key_mismatch("unknown field".to_owned(), advice);
    }

    /// Runs `body` one step further down.
    fn inside<T>(&mut self, step: usize, name: &str, body: impl FnOnce(&mut Self) -> T) -> T {
        let length = self.below.len();
        self.steps.push(step);
        self.below.push_str(name);
        let result = body(self);
        self.below.truncate(length);
        self.steps.pop();
        result
    }

    fn mismatch(&mut self, problem: String, kind: &Kind, is_word: bool) {
        let advice = (!self.steps.is_empty()).then(|| "correct it".to_owned());
        self.push(false, problem, Some(kind.accepted()), advice);
        if let Some(last) = self.mismatches.last_mut() {
            last.is_word = is_word;
        }
    }

    fn key_mismatch(&mut self, problem: String, advice: String) {
        self.push(true, problem, None, Some(advice));
    }

    fn push(&mut self, key: bool, problem: String, accepted: Option<String>, advice: Option<String>) {
        let (steps, below) = (self.steps.clone(), self.below.clone());
        self.mismatches.push(Mismatch { steps, key, below, problem, accepted, advice, is_word: false });
    }
}

// === texts ===

fn is_text(kind: &Kind) -> bool {
    matches!(
        kind,
        Kind::Text
            | Kind::HealthPath
            | Kind::Name
            | Kind::Credential { .. }
            | Kind::Host
            | Kind::Origin
            | Kind::File
            | Kind::DatabaseFile
            | Kind::Choice(_)
            | Kind::TagName
            | Kind::Marker
    )
}

fn fits_text(kind: &Kind, text: &str) -> bool {
    match kind {
        Kind::Name => !text.trim().is_empty(),
        Kind::Credential { min } => text.len() >= *min && text.bytes().all(|byte| byte.is_ascii_graphic()),
        Kind::Host => is_host(text),
        Kind::Origin => is_origin(text),
        Kind::File => !text.trim().is_empty() && !text.contains('\0'),
        Kind::DatabaseFile => {
            let uri = text.get(..5).is_some_and(|start| start.eq_ignore_ascii_case("file:"));
            !text.trim().is_empty() && !text.contains('\0') && !uri && text != ":memory:"
        }
        Kind::HealthPath => is_health_path(text),
        Kind::Choice(values) => values.contains(&text),
        Kind::TagName => is_tag_name(text),
        Kind::Marker => catalogue::marker(text).is_some(),
        _ => true,
    }
}

/// Whether `text` can stand between `<` and `>` as the name of a tag.
fn is_tag_name(text: &str) -> bool {
    let legal = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    text.len() <= 64 && text.starts_with(|first: char| first.is_ascii_alphabetic()) && text.bytes().all(legal)
}

/// Whether `text` is a host name, or a dot and the name all others stand below.
fn is_host(text: &str) -> bool {
    let name = text.strip_prefix('.').unwrap_or(text);
    let legal = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    text.len() <= 254 && name.split('.').all(|label| !label.is_empty() && label.bytes().all(legal))
}

/// Whether `text` is what browsers send in `Origin` (RFC 6454 section 6.1).
fn is_origin(text: &str) -> bool {
    let Some((scheme, authority)) = text.split_once("://") else { return text == "null" };
    let is_scheme = scheme.starts_with(|first: char| first.is_ascii_alphabetic())
        && scheme.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+.-".contains(&byte));
    is_scheme
        && !authority.is_empty()
        && authority.bytes().all(|byte| byte.is_ascii_graphic() && !b"/?#".contains(&byte))
}

/// Whether the health report may stand at this path: nothing a request to the provider or the API could mean.
fn is_health_path(path: &str) -> bool {
    let legal = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./".contains(&byte);
    let segments = || path.split('/').skip(1);
    let is_taken = ["/v1", "/api", "/admin", "/debug", "/metrics", "/livez", "/readyz", "/swagger-ui", "/api-doc"]
        .iter()
        .any(|taken| path.strip_prefix(taken).is_some_and(|rest| rest.is_empty() || rest.starts_with('/')));
    path.starts_with('/')
        && path.len() <= 256
        && path.bytes().all(legal)
        && segments().all(|segment| !segment.is_empty() && segment != "." && segment != "..")
        && !is_taken
}

/// Points out a value that is right but for its capitals.
fn case_hint(kind: &Kind, text: &str) -> String {
    let Kind::Choice(values) = kind else { return String::new() };
    let Some(near) = nearest(text, values.iter().copied()) else { return String::new() };
    format!(" (did you mean `{near}`?)")
}

fn int_as_float(node: &Node) -> f64 {
    // Rounding of integers beyond 2^53 is harmless: ranges of such settings are far below.
    if let Node::Int(number) = node { *number as f64 } else { f64::NAN }
}

/// A URL for an error message: user information and everything from the query on is masked.
fn without_credentials(url: &str) -> String {
    let end = url.find(['?', '#']).unwrap_or(url.len());
    let (address, tail) = url.split_at(end);
    let tail = if tail.is_empty() { "" } else { "?***" };
    match address.rsplit_once('@') {
        Some((before, host)) => {
            let scheme = before.find("://").map_or("", |at| before.get(..at + 3).unwrap_or(""));
            format!("{scheme}***@{host}{tail}")
        }
        None => format!("{address}{tail}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue::Literal;

    #[test]
    fn faults_inside_a_secret_do_not_show_it() {
        const FIELDS: &[Field] = &[Field { name: "key", alias: Some("token"), kind: Kind::Bool, required: true }];
        let build = Build::Built { set: |_, _| Ok(()), missing: &[] };
        let secret = Setting {
            path: "x",
            kind: Kind::Records(FIELDS),
            nullable: false,
            default: Literal::EmptyList,
            env: None,
            aliases: &[],
            wire: None,
            secret: true,
            build,
            doc: "",
        };
        let canary = || Node::Text("canary".to_owned());
        let entry = Node::Map(vec![("token".to_owned(), canary())]);
        for node in [canary(), Node::List(vec![entry]), Node::List(vec![canary()])] {
            let mismatches = check(&secret, &node).unwrap_err();
            assert_eq!(mismatches.len(), 1);
            assert_eq!(mismatches[0].problem, "got a value that does not fit");
        }
        // A word where one of a few is expected is shown, so that its typing error can be seen; anything longer is not.
        const KINDS: &[Field] =
            &[Field { name: "type", alias: None, kind: Kind::Choice(&["slack", "webhook"]), required: true }];
        let channels = Setting { kind: Kind::Records(KINDS), ..secret };
        let typed = |text: &str| Node::List(vec![Node::Map(vec![("type".to_owned(), Node::Text(text.to_owned()))])]);
        for (text, problem) in
            [("teams", "got \"teams\""), ("xoxb-1234567890", "got a value that does not fit"), ("", "got \"\"")]
        {
            assert_eq!(check(&channels, &typed(text)).unwrap_err()[0].problem, problem);
        }
        let good = Node::List(vec![Node::Map(vec![("token".to_owned(), Node::Bool(true))])]);
        assert_eq!(check(&secret, &good), Ok(serde_json::json!([{"key": true}])));
    }

    #[test]
    fn a_url_is_shown_without_its_credentials() {
        assert_eq!(without_credentials("https://u:p@h/x?key=1#f"), "https://***@h/x?***");
        assert_eq!(without_credentials("u:p@q@h"), "***@h");
        assert_eq!(without_credentials("https://h/x"), "https://h/x");
    }
}
