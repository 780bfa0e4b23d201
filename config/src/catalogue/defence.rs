//! Rows of what fences in the words of strangers: zone detection, boundary defence, datamarking.

use serde_json::Value;

use super::value::{flag, one_of, owned_text, text, texts};
use super::{Kind, Literal, Setting, Unfit, set};
use crate::settings::{MARKERS, MarkerKind, ZoneMode};

const OFF: Literal = Literal::Bool(false);
const ON: Literal = Literal::Bool(true);

const MODES: [(&str, ZoneMode); 3] =
    [("heuristic", ZoneMode::Heuristic), ("operator", ZoneMode::Operator), ("both", ZoneMode::Both)];
const MARKER_KINDS: [(&str, MarkerKind); 2] = [("randomized", MarkerKind::Randomized), ("fixed", MarkerKind::Fixed)];
const ROLES: &[&str] = &["tool", "function", "user", "assistant", "system", "developer"];

pub(super) static SETTINGS: &[Setting] = &[
    // --- zone detection ---
    Setting::built(
        "security_analysis.zone_detection.enabled",
        Kind::Bool,
        OFF,
        "Find the pieces of messages that are data and scan them as the words of strangers, beside the scan of the whole.",
        set!(security_analysis.zones.enabled, flag),
    ),
    Setting::built(
        "security_analysis.zone_detection.mode",
        Kind::Choice(&["heuristic", "operator", "both"]),
        Literal::Text("both"),
        "heuristic: by the form of the text (fences, quotes, mails, HTML, JSON, tables, retrieved passages). operator: by \
         <service-data> markers, which are taken out before the request is forwarded, and by the header \
         X-Service-Data-Boundary. both: operator markers win where they overlap.",
        set!(security_analysis.zones.mode, |v| one_of(v, &MODES)),
    ),
    Setting::built(
        "security_analysis.zone_detection.scan_instruction_zones",
        Kind::Bool,
        OFF,
        "Let models look at what of a message is no data, too; the rules look at all of it anyway.",
        set!(security_analysis.zones.scan_instruction_zones, flag),
    ),
    // --- boundary defence ---
    Setting::built(
        "boundary_defense.enabled",
        Kind::Bool,
        OFF,
        "Wrap what wrap_roles say in delimiter tags before it is forwarded: chat completions, messages and local-server chats.",
        set!(boundary_defense.enabled, flag),
    )
    .wire("boundary_defense_enabled"),
    Setting::built(
        "boundary_defense.shadow_mode",
        Kind::Bool,
        OFF,
        "Compute and count the defence, and forward requests as they came.",
        set!(boundary_defense.shadow_mode, flag),
    )
    .wire("boundary_defense_shadow_mode"),
    Setting::built(
        "boundary_defense.wrap_roles",
        Kind::Choices(ROLES),
        Literal::Texts(&["tool"]),
        "Roles whose contents are wrapped; tool covers the tool results of every dialect.",
        set!(boundary_defense.wrap_roles, texts),
    ),
    Setting::built(
        "boundary_defense.delimiter",
        Kind::TagName,
        Literal::Text("service-boundary"),
        "Name of the delimiter tag.",
        set!(boundary_defense.delimiter, owned_text),
    ),
    Setting::built(
        "boundary_defense.randomize_nonce",
        Kind::Bool,
        OFF,
        "Let the tag end in eight hexadecimal digits that no text can know; prompts then differ from request to request, \
         which a provider's prompt cache notices.",
        set!(boundary_defense.randomize_nonce, flag),
    ),
    Setting::built(
        "boundary_defense.inject_system_reminder",
        Kind::Bool,
        ON,
        "Say in front of the system prompt that delimited or marked content is untrusted data.",
        set!(boundary_defense.inject_system_reminder, flag),
    ),
    Setting::built(
        "boundary_defense.system_reminder_text",
        Kind::Text,
        Literal::Text(""),
        "Words of the reminder; {delimiter} stands for the tag, which is named behind them where they do not. Empty: the \
         built-in words.",
        set!(boundary_defense.system_reminder_text, owned_text),
    ),
    // --- datamarking ---
    Setting::built(
        "boundary_defense.datamarking.enabled",
        Kind::Bool,
        OFF,
        "Replace white space in data zones and tool results by a marker, where boundary_defense.enabled is true; zones are \
         found by security_analysis.zone_detection.mode.",
        set!(boundary_defense.datamarking.enabled, flag),
    ),
    Setting::built(
        "boundary_defense.datamarking.shadow_mode",
        Kind::Bool,
        ON,
        "Compute and count the marks, and forward the text as it came.",
        set!(boundary_defense.datamarking.shadow_mode, flag),
    ),
    Setting::built(
        "boundary_defense.datamarking.marker_strategy.kind",
        Kind::Choice(&["randomized", "fixed"]),
        Literal::Text("randomized"),
        "randomized: a code point from U+E000 to U+F8FF for each request. fixed: the one of marker_strategy.value.",
        set!(boundary_defense.datamarking.kind, |v| one_of(v, &MARKER_KINDS)),
    ),
    Setting::built(
        "boundary_defense.datamarking.marker_strategy.value",
        Kind::Marker,
        Literal::Null,
        "The fixed marker, such as U+E0F0.",
        set!(boundary_defense.datamarking.value, |v: &Value| match v {
            Value::Null => Ok(None),
            v => marker(text(v)?).map(Some).ok_or(Unfit),
        }),
    ),
];

/// The character that `U+E0F0`, `\uE0F0` or the character itself names, where a marker may be that.
pub(crate) fn marker(spelled: &str) -> Option<char> {
    let spelled = spelled.trim();
    let mut characters = spelled.chars();
    let named = match (characters.next(), characters.next()) {
        (Some(one), None) => one,
        _ => {
            let digits = ["U+", "u+", "\\u", "\\U"].iter().find_map(|prefix| spelled.strip_prefix(prefix))?;
            let is_number = digits.len() <= 6 && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
            char::from_u32(u32::from_str_radix(digits, 16).ok().filter(|_| is_number)?)?
        }
    };
    MARKERS.contains(&named).then_some(named)
}
