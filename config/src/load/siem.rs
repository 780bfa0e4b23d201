//! What receivers of security events need: an address, a name of their own, and of those that are sent requests legal fields and a token
//! where one is named.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use serde_json::Value;

use super::env;
use super::layers::Layers;
use super::secrets::is_url;
use crate::error::Violation;
use crate::settings::{SIEM_RECEIVERS_MAX, SIEM_TOKEN, Settings, SiemFormat, SiemReceiver};
use crate::vocab::SharedSecret;

const RECEIVERS: &str = "siem_export.receivers";
/// A token and a line's end.
const TOKEN_BYTES_MAX: u64 = 16 * 1024;

/// Reads tokens, and refuses receivers that could never be sent anything; an export without receivers is a warning.
pub(super) fn settle(settings: &mut Settings, variables: &BTreeMap<String, String>, layers: &mut Layers) {
    let export = &mut settings.siem_export;
    if export.enabled && export.receivers.is_empty() {
        let said = format!("siem_export.enabled: there is no receiver to send events to; set `{RECEIVERS}`");
        layers.warnings.push(said);
    }
    if export.receivers.len() > SIEM_RECEIVERS_MAX {
        let problem = format!("{} receivers are more than {SIEM_RECEIVERS_MAX}", export.receivers.len());
        refuse(layers, RECEIVERS.to_owned(), problem);
    }
    let written = layers.written.get(RECEIVERS).map(|written| written.value.clone()).unwrap_or_default();
    let mut names = BTreeSet::new();
    for (place, receiver) in export.receivers.iter_mut().enumerate() {
        let named = written.get(place).and_then(|entry| entry.get("token_env")).and_then(Value::as_str);
        let fault = match token(receiver, named, variables, export.enabled) {
            Ok(token) => {
                receiver.token = token;
                fault(receiver, named.is_some())
            }
            Err(fault) => Some(fault),
        };
        if let Some((field, problem)) = fault {
            refuse(layers, format!("{RECEIVERS}[{place}].{field}"), problem);
        }
        if !names.insert(receiver.label(place)) {
            refuse(layers, format!("{RECEIVERS}[{place}].name"), "is the name of another receiver, too".to_owned());
        }
    }
}

/// A field and what is wrong with it.
type Problem = (&'static str, String);

/// What the variable holds; a file is looked at, to be read when a request is made.
fn token(
    receiver: &SiemReceiver,
    named: Option<&str>,
    variables: &BTreeMap<String, String>,
    is_used: bool,
) -> Result<Option<SharedSecret>, Problem> {
    if named.is_some() && receiver.token_file.is_some() {
        return Err(("token_env", "does not go with `token_file`: keep one of them".to_owned()));
    }
    if let Some(file) = receiver.token_file.as_deref().filter(|_| is_used) {
        siem_token(file).map_err(|why| ("token_file", why))?;
    }
    let Some(name) = named.filter(|_| is_used) else { return Ok(None) };
    match env::variable(variables, name) {
        None => Err(("token_env", format!("the variable `{name}` is not set"))),
        Some(token) if !is_value(token.as_bytes()) => Err(("token_env", format!("`{name}` holds no token that fits"))),
        Some(token) => Ok(Some(SharedSecret::new(token))),
    }
}

/// The token in a file, without what surrounds it.
///
/// # Errors
/// Why there is none, without a word of what the file holds.
pub fn siem_token(path: &Path) -> Result<SharedSecret, String> {
    let mut text = String::new();
    File::open(path)
        .and_then(|file| file.take(TOKEN_BYTES_MAX).read_to_string(&mut text))
        .map_err(|error| format!("`{}` cannot be read: {error}", path.display()))?;
    let token = text.trim();
    let fits = !token.is_empty() && is_value(token.as_bytes());
    fits.then(|| SharedSecret::new(token)).ok_or_else(|| format!("`{}` holds no token that fits", path.display()))
}

/// The first thing that is wrong with a receiver. Never the value, which may be a credential.
fn fault(receiver: &SiemReceiver, has_variable: bool) -> Option<Problem> {
    if !receiver.is_http() {
        let only = "is for receivers with an https:// address";
        let extra = [
            ("headers", !receiver.headers.is_empty()),
            ("token_env", has_variable),
            ("token_file", receiver.token_file.is_some()),
        ];
        let extra = extra.into_iter().find(|(_, is_set)| *is_set).map(|(field, _)| (field, only.to_owned()));
        let no_address = receiver.address().is_none();
        let problem = "has to be tcp://host:port or tls://host:port (syslog), or an https:// address (batches)";
        return no_address.then(|| ("url", problem.to_owned())).or(extra);
    }
    if !is_url(receiver.url.expose()) {
        return Some(("url", super::secrets::NO_URL.to_owned()));
    }
    if receiver.format == SiemFormat::Cef {
        return Some(("format", "has to be ocsf or ecs: batches are JSON".to_owned()));
    }
    let fields = receiver.fields(None);
    let legal = fields.iter().filter(|(name, value)| is_name(name) && is_value(value)).count();
    if legal != receiver.headers.len() {
        return Some(("headers", "have to be header=value, each a legal field of HTTP".to_owned()));
    }
    let mark = SIEM_TOKEN.as_bytes();
    let wants_token = fields.iter().any(|(_, value)| value.windows(mark.len()).any(|part| part == mark));
    let has_token = has_variable || receiver.token_file.is_some();
    if wants_token != has_token {
        let problem = format!("`{SIEM_TOKEN}` in a header and `token_env` or `token_file` go together");
        return Some(("headers", problem));
    }
    None
}

fn is_name(name: &[u8]) -> bool {
    name.iter().all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(byte))
}

fn is_value(value: &[u8]) -> bool {
    value.iter().all(|byte| (0x20..0x7f).contains(byte))
}

fn refuse(layers: &mut Layers, path: String, problem: String) {
    let Some(written) = layers.written.get(RECEIVERS) else { return };
    let (place, advice) = (written.place.clone(), "correct it".to_owned());
    layers.violations.push(Violation { place, path: Some(path), problem, accepted: None, advice });
}
