//! What a request says of who sends it beside its credential: the session it belongs to, the client's software, marks.
//!
//! Coding agents and SDKs send all of it by themselves. Invariant: a session is an id and nothing else. A value with a slash, a
//! blank or an `@` in it may be a path, an address or a name, and is left alone; fields that hold such things beside ids are not
//! read at all.

/// Longest id of a session, and longest name of a client.
const ID_BYTES_MAX: usize = 128;
const CLIENT_BYTES_MAX: usize = 64;
/// Longest value of a mark, longest name of one, and how many one request may bring.
const MARK_BYTES_MAX: usize = 256;
const MARK_NAME_BYTES_MAX: usize = 64;
const MARKS_MAX: usize = 16;

/// Fields that name a session; of several, the first of this list counts.
const SESSION_FIELDS: [&str; 8] = [
    "x-service-session-id",
    "helicone-session-id",
    "x-portkey-trace-id",
    "x-claude-code-session-id",
    "session_id",
    "session-id",
    "conversation_id",
    "thread-id",
];
const USER_FIELD: &str = "helicone-user-id";
const PROPERTY_PREFIX: &str = "helicone-property-";
/// Portkey's marks, as a JSON object; names with `_` in front are its own.
const METADATA_FIELD: &str = "x-portkey-metadata";

/// The lengths that names of sessions and users have, a bit for each: most fields are passed over for their name's length.
const LENGTHS: u64 = {
    let (mut lengths, mut at) = (1 << USER_FIELD.len() | 1 << METADATA_FIELD.len(), 0);
    while at < SESSION_FIELDS.len() {
        lengths |= 1 << SESSION_FIELDS[at].len();
        at += 1;
    }
    lengths
};

/// What the head says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sender {
    /// The session.
    pub session_id: Option<String>,
    /// The product that `User-Agent` names first.
    pub client: Option<String>,
    /// Tags.
    pub tags: Vec<(String, String)>,
}

impl Sender {
    /// Reads the fields of a head, names and values, once.
    pub fn read<'a>(fields: impl Iterator<Item = (&'a [u8], &'a [u8])>) -> Self {
        let mut sender = Self::default();
        let mut rank = SESSION_FIELDS.len();
        for (name, value) in fields {
            match name.first().map(u8::to_ascii_lowercase) {
                Some(b'u') if sender.client.is_none() && name.eq_ignore_ascii_case(b"user-agent") => {
                    sender.client = client(value);
                }
                Some(first @ (b'c' | b'h' | b's' | b't' | b'x'))
                    if first == b'h' || LENGTHS >> name.len().min(63) & 1 != 0 =>
                {
                    let at = SESSION_FIELDS.iter().position(|known| name.eq_ignore_ascii_case(known.as_bytes()));
                    if let Some(at) = at.filter(|at| *at < rank) {
                        if let Some(id) = std::str::from_utf8(value).ok().and_then(session_id) {
                            (sender.session_id, rank) = (Some(id), at);
                        }
                    } else if at.is_none() {
                        sender.mark(name, value);
                    }
                }
                _ => {}
            }
        }
        sender
    }

    fn mark(&mut self, name: &[u8], value: &[u8]) {
        if name.eq_ignore_ascii_case(METADATA_FIELD.as_bytes()) {
            return self.metadata(value);
        }
        let name = match name.split_at_checked(PROPERTY_PREFIX.len()) {
            _ if name.eq_ignore_ascii_case(USER_FIELD.as_bytes()) => "user_id".to_owned(),
            Some((prefix, name)) if prefix.eq_ignore_ascii_case(PROPERTY_PREFIX.as_bytes()) => {
                if name.is_empty() || name.len() > MARK_NAME_BYTES_MAX {
                    return;
                }
                format!("property.{}", String::from_utf8_lossy(name).to_ascii_lowercase())
            }
            _ => return,
        };
        let Ok(value) = std::str::from_utf8(value) else { return };
        self.tag(name, value);
    }

    /// Each member is a mark; `_user` is a user, as Helicone's is.
    fn metadata(&mut self, value: &[u8]) {
        let Ok(serde_json::Value::Object(members)) = serde_json::from_slice(value) else { return };
        for (name, value) in members {
            let value = match value {
                serde_json::Value::String(text) => text,
                value @ (serde_json::Value::Number(_) | serde_json::Value::Bool(_)) => value.to_string(),
                _ => continue,
            };
            if name == "_user" {
                self.tag("user_id".to_owned(), &value);
            } else if !name.is_empty() && name.len() <= MARK_NAME_BYTES_MAX {
                self.tag(format!("property.{}", name.trim_start_matches('_').to_ascii_lowercase()), &value);
            }
        }
    }

    fn tag(&mut self, name: String, value: &str) {
        let mut end = value.len().min(MARK_BYTES_MAX);
        while !value.is_char_boundary(end) {
            end -= 1;
        }
        let known = self.tags.iter().any(|(known, _)| *known == name);
        if !known && self.tags.len() < MARKS_MAX {
            self.tags.push((name, value.get(..end).unwrap_or_default().to_owned()));
        }
    }
}

/// The id of a session, where the text can be one.
pub(super) fn session_id(text: &str) -> Option<String> {
    let text = text.trim();
    let is_id = !text.is_empty()
        && text.len() <= ID_BYTES_MAX
        && text
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b':' | b'~' | b'=' | b'+' | b'-'));
    is_id.then(|| text.to_owned())
}

/// The session in `metadata.user_id` of a messages-style request: coding agents put it there as JSON with a `session_id`, or
/// behind `_session_`. Any other value is a user's, and no session.
pub(super) fn session_of_user(text: &str) -> Option<String> {
    if let Some((_, id)) = text.rsplit_once("_session_") {
        return session_id(id);
    }
    let fields: serde_json::Map<String, serde_json::Value> =
        text.starts_with('{').then(|| serde_json::from_str(text).ok()).flatten()?;
    fields.get("session_id")?.as_str().and_then(session_id)
}

/// A key of a provider's cache that can only be that of one session: a UUID. Applications give the same word to all calls.
pub(super) fn session_of_cache(text: &str) -> Option<String> {
    (text.len() == 36 && uuid::Uuid::try_parse(text).is_ok()).then(|| text.to_owned())
}

/// The product before the first slash or blank.
fn client(value: &[u8]) -> Option<String> {
    let end = value.iter().position(|b| matches!(b, b'/' | b' ' | b'(')).unwrap_or(value.len());
    let name = std::str::from_utf8(value.get(..end)?).ok()?;
    let is_name = !name.is_empty()
        && name.len() <= CLIENT_BYTES_MAX
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-' | b'+'));
    is_name.then(|| name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_is_an_id_and_never_a_path_or_an_address() {
        for id in ["7d1f5f9e-8c3b-4f5e-9a31-0b7a0c0d1e2f", "run:42", "a.b_c~d=+"] {
            assert_eq!(session_id(&format!(" {id} ")).as_deref(), Some(id));
        }
        let long = "x".repeat(ID_BYTES_MAX + 1);
        for other in ["", "/home/ada/secret", "git@host:repo", "two words", "C:\\work", "{\"a\":1}", "caf\u{e9}", &long]
        {
            assert_eq!(session_id(other), None, "{other}");
        }
    }

    #[test]
    fn a_users_name_is_no_session() {
        let id = "7d1f5f9e-8c3b-4f5e-9a31-0b7a0c0d1e2f";
        assert_eq!(session_of_user(&format!("user_0a1b_account__session_{id}")).as_deref(), Some(id));
        assert_eq!(session_of_user(&format!("{{\"device_id\":\"d\",\"session_id\":\"{id}\"}}")).as_deref(), Some(id));
        for other in ["ada@example.com", "user-7", "{\"session_id\":7}", "{\"session_id\":\"/tmp\"}", "{", "_session_"]
        {
            assert_eq!(session_of_user(other), None, "{other}");
        }
        assert_eq!(session_of_cache(id).as_deref(), Some(id));
        assert_eq!(session_of_cache("my-app"), None);
    }

    #[test]
    fn the_fields_of_portkey_are_marks_and_a_session() {
        let fields = [
            ("X-Portkey-Trace-Id", "run-7"),
            ("x-portkey-metadata", r#"{"_user":"ada","env":"prod","_prompt":"p1","n":3,"deep":{"a":1}}"#),
            ("x-portkey-config", "pc-1"),
        ];
        let sender = Sender::read(fields.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes())));
        assert_eq!(sender.session_id.as_deref(), Some("run-7"));
        let mut tags: Vec<(&str, &str)> = sender.tags.iter().map(|(name, value)| (&**name, &**value)).collect();
        tags.sort_unstable();
        assert_eq!(
            tags,
            [("property.env", "prod"), ("property.n", "3"), ("property.prompt", "p1"), ("user_id", "ada")]
        );
        for broken in ["", "[1]", "{", "\"x\""] {
            let sender = Sender::read([("x-portkey-metadata".as_bytes(), broken.as_bytes())].into_iter());
            assert!(sender.tags.is_empty(), "{broken}");
        }
    }

    #[test]
    fn a_client_is_the_first_product() {
        for (agent, expected) in [
            ("claude-cli/2.0.1 (external, cli)", Some("claude-cli")),
            ("codex_cli_rs/0.46.0 (Linux 6; x86_64) xterm", Some("codex_cli_rs")),
            ("OpenAI/Python 1.54.3", Some("OpenAI")),
            ("GeminiCLI/0.9", Some("GeminiCLI")),
            ("curl", Some("curl")),
            ("", None),
            ("(x)", None),
            ("<script>/1", None),
        ] {
            assert_eq!(client(agent.as_bytes()).as_deref(), expected, "{agent}");
        }
    }
}
