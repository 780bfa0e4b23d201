//! What a call is about: its values, taken apart.

use serde_json::Value;

use super::words::{self, Deeds};

/// A call that a model asks for.
#[derive(Debug, Clone, Copy)]
pub struct ToolUse<'a> {
    /// The tool.
    pub name: &'a str,
    /// Its arguments: JSON, or bare text.
    pub arguments: &'a str,
    /// Whether it is a tool that changes files: what it writes is content, and its file one of many.
    pub writes: bool,
}

/// Bytes of arguments that are read.
const ARGUMENTS_BYTES_MAX: usize = 64 << 10;
/// Values that are looked for at most.
pub(super) const NEEDLES_MAX: usize = 96;
/// Values of a call.
const LEAVES_MAX: usize = 64;
/// JSON is followed so deep.
const DEPTH_MAX: u8 = 8;
/// Longest value that is looked for as a whole.
const WHOLE_BYTES_MAX: usize = 96;
/// From here on a value is content: only the addresses in it count.
const CONTENT_BYTES: usize = 600;
/// Letters of a word that are compared: its ending follows the sentence it stands in.
const STEM_CHARS: usize = 5;

/// What a value is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Mail,
    Host,
    Handle,
    Path,
    /// Letters and digits, or words joined by marks.
    Code,
    Number,
    Word,
    /// A whole value.
    Whole,
}

impl Kind {
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Mail => "mail",
            Self::Host => "host",
            Self::Handle => "handle",
            Self::Path => "path",
            Self::Code => "code",
            Self::Number => "number",
            Self::Word => "word",
            Self::Whole => "value",
        }
    }

    /// Whether it is somewhere that things go to.
    pub(super) const fn is_address(self) -> bool {
        matches!(self, Self::Mail | Self::Host | Self::Handle)
    }
}

/// Something that is looked for in the conversation.
#[derive(Debug)]
pub(super) struct Needle {
    pub(super) text: String,
    pub(super) kind: Kind,
    /// Whether its argument says where something goes.
    pub(super) is_target: bool,
    /// Only the beginning of the word.
    pub(super) is_stem: bool,
}

/// A call that acts.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) tool: String,
    pub(super) needles: Vec<Needle>,
    pub(super) leaves: usize,
    /// What it does.
    pub(super) deeds: Deeds,
    /// The beginnings of the words of its name.
    pub(super) verbs: Vec<String>,
}

impl Asked {
    /// `None` where it only reads.
    pub(super) fn of(call: &ToolUse<'_>) -> Option<Self> {
        let name = words::of_name(call.name);
        let arguments = call.arguments.get(..call.arguments.floor_char_boundary(ARGUMENTS_BYTES_MAX))?;
        let mut leaves = Vec::new();
        match serde_json::from_str::<Value>(arguments) {
            Ok(value) => gather(&value, "", DEPTH_MAX, &mut leaves),
            Err(_) => leaves.push((String::new(), arguments.to_lowercase())),
        }
        let verbs: Vec<String> = name.iter().filter(|word| word.chars().count() >= 3).map(|word| stem(word)).collect();
        let mut asked = Self {
            tool: call.name.chars().take(64).collect(),
            needles: Vec::new(),
            leaves: leaves.len(),
            deeds: words::deeds(verbs.iter().map(String::as_str)),
            verbs,
        };
        for (key, leaf) in &leaves {
            asked.take_apart(leaf, words::is_target(key));
        }
        if words::only_reads(&name) {
            // What is read is no deed, but where to it goes is.
            asked.needles.retain(|needle| needle.kind == Kind::Host);
            if asked.needles.is_empty() {
                return None;
            }
        }
        Some(asked)
    }

    fn push(&mut self, text: &str, kind: Kind, is_target: bool) {
        let is_known = |known: &Needle| known.text == text && known.kind == kind;
        if self.needles.len() < NEEDLES_MAX && !text.is_empty() && !self.needles.iter().any(is_known) {
            self.needles.push(Needle { text: text.to_owned(), kind, is_target, is_stem: false });
        }
    }

    fn take_apart(&mut self, leaf: &str, is_target: bool) {
        let is_content = leaf.len() > CONTENT_BYTES;
        let whole = leaf.trim().trim_start_matches(['@', '#', '/', '~']);
        if (2..=WHOLE_BYTES_MAX).contains(&whole.len()) && whole != "true" && whole != "false" {
            self.push(whole, Kind::Whole, is_target);
        }
        let is_between = |c: char| c.is_whitespace() || "\"'`()[]{}<>,;|=（）「」、。".contains(c);
        for token in leaf.split(is_between) {
            let token = token.trim_end_matches(['.', ':', '!', '?']).trim_start_matches(':');
            if let Some(mail) = mail(token) {
                self.push(mail, Kind::Mail, is_target);
            } else if let Some(host) = host(token) {
                self.push(host, Kind::Host, is_target);
            } else if is_content {
                continue;
            } else {
                self.take_word(token, is_target);
            }
        }
    }

    fn take_word(&mut self, token: &str, is_target: bool) {
        if token.len() > WHOLE_BYTES_MAX {
            return;
        }
        if let Some(name) = token.strip_prefix(['@', '#']).filter(|name| name.len() >= 2) {
            return self.push(name, Kind::Handle, is_target);
        }
        if token.starts_with('/') || token.starts_with("~/") || token.matches('/').count() > 1 {
            self.push(token.trim_start_matches(['~', '/']), Kind::Path, is_target);
        } else if token.len() >= 3 && token.bytes().all(|byte| byte.is_ascii_digit() || b".-+ ".contains(&byte)) {
            self.push(token, Kind::Number, is_target);
        } else if token.len() >= 3 && is_code(token) {
            self.push(token, Kind::Code, is_target);
        }
        for word in words::split(token) {
            let chars = word.chars().count();
            if chars >= 4 || !word.is_ascii() && chars >= 2 {
                let stem = stem(word);
                let is_stem = stem.len() < word.len();
                let before = self.needles.len();
                self.push(&stem, Kind::Word, is_target);
                if let Some(new) = self.needles.get_mut(before) {
                    new.is_stem = is_stem;
                }
            }
        }
    }
}

/// The beginning of a word.
pub(super) fn stem(word: &str) -> String {
    word.chars().take(if word.is_ascii() { STEM_CHARS } else { STEM_CHARS - 1 }).collect()
}

/// The values of JSON, in small letters, each with the name it stands under.
fn gather(value: &Value, key: &str, depth: u8, out: &mut Vec<(String, String)>) {
    let Some(deeper) = depth.checked_sub(1).filter(|_| out.len() < LEAVES_MAX) else { return };
    match value {
        Value::String(text) => out.push((key.to_owned(), text.to_lowercase())),
        Value::Number(number) => out.push((key.to_owned(), number.to_string())),
        Value::Array(items) => items.iter().for_each(|item| gather(item, key, deeper, out)),
        Value::Object(fields) => {
            for (name, value) in fields {
                gather(value, &name.to_lowercase(), deeper, out);
            }
        }
        Value::Bool(_) | Value::Null => {}
    }
}

/// The mail address in a token.
fn mail(token: &str) -> Option<&str> {
    let at = token.find('@').filter(|at| *at > 0)?;
    let (before, after) = (token.get(..at)?, token.get(at + 1..)?);
    let is_local = |c: char| c.is_alphanumeric() || "._+-".contains(c);
    let is_domain = |c: char| c.is_ascii_alphanumeric() || ".-".contains(c);
    let start = before.char_indices().rev().find(|(_, c)| !is_local(*c)).map_or(0, |(at, c)| at + c.len_utf8());
    let end = after.find(|c| !is_domain(c)).unwrap_or(after.len());
    let domain = after.get(..end)?.trim_end_matches('.');
    (start < at && domain.contains('.')).then(|| token.get(start..at + 1 + domain.len())).flatten()
}

/// The host that a token names: in an address, or by itself.
fn host(token: &str) -> Option<&str> {
    let after = token.split_once("://").map(|(_, after)| after);
    let authority = after.unwrap_or(token).split(['/', '?', '#']).next()?;
    let host = authority.rsplit('@').next()?.split(':').next()?;
    let last = host.rsplit_once('.').map(|(_, last)| last)?;
    let is_label = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '.';
    (host.len() >= 4 && host.chars().all(is_label) && (after.is_some() || words::is_top_level(last))).then_some(host)
}

/// Letters and digits, or words joined by marks: an id, a file, an option.
fn is_code(token: &str) -> bool {
    let inside = token.trim_matches(|c: char| !c.is_alphanumeric());
    let has_digit = inside.chars().any(|c| c.is_ascii_digit());
    let is_joined = inside.contains(['-', '_', '.', ':', '/', '@', '+']);
    (has_digit || is_joined) && inside.chars().any(char::is_alphabetic)
}
