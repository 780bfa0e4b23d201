//! Keeps credentials of the gateway out of what it writes down. A client may paste its key anywhere: into a prompt, an
//! agent's name, a model's name. What is forwarded is its own business; the record is ours.

use std::borrow::Cow;

use weir_config::vocab::part::PartSide;
use weir_config::vocab::{Finding, SharedSecret};
use weir_storage::record::{AgentAction, SpanRecord};

use super::custody::{DIGITS, KEY_PREFIX, TOKEN_PREFIX};

/// Digits of a key that lists show.
const DIGITS_SHOWN: usize = 8;
/// What stands in a credential's place.
const MASK: &str = "***";

/// Replaces the credentials in every text of a record.
pub(super) fn record(span: &mut SpanRecord, admin: Option<&SharedSecret>) {
    let lengths = |span: &SpanRecord| [&span.prompt, &span.response].map(|text| text.as_ref().map(String::len));
    let before = lengths(span);
    let texts = [
        &mut span.prompt,
        &mut span.response,
        &mut span.model,
        &mut span.agent_id,
        &mut span.session_id,
        &mut span.client,
        &mut span.error_message,
        &mut span.finish_reason,
    ];
    for text in texts.into_iter().flatten() {
        replace(text, admin);
    }
    if let Some(frame) = &mut span.frame {
        replace(&mut frame.json, admin);
    }
    let [prompt_changed, response_changed] = std::array::from_fn(|at| before[at] != lengths(span)[at]);
    if prompt_changed {
        span.frame = None;
    }
    for part in &mut span.parts {
        let changed = if part.side == PartSide::Request { prompt_changed } else { response_changed };
        if changed {
            // It would point at other words now.
            part.text = None;
        }
        if let Some(tool) = &mut part.tool {
            [&mut tool.name, &mut tool.id].into_iter().flatten().for_each(|text| replace(text, admin));
        }
    }
    for found in &mut span.security_findings {
        finding(found, admin);
    }
    for reported in &mut span.agent_actions {
        action(reported, admin);
    }
    for event in &mut span.events {
        replace(&mut event.description, admin);
        event.data.values_mut().for_each(|value| replace(value, admin));
    }
    if let Cow::Owned(provider) = &mut span.provider {
        replace(provider, admin);
    }
    span.tags.values_mut().for_each(|value| replace(value, admin));
    span.attributes.change_texts(|text| replace(text, admin));
}

/// Replaces the credentials in what an agent reports having done.
pub(super) fn action(action: &mut AgentAction, admin: Option<&SharedSecret>) {
    replace(&mut action.name, admin);
    let texts = [&mut action.arguments, &mut action.result, &mut action.http_method, &mut action.file_operation];
    for text in texts.into_iter().flatten() {
        replace(text, admin);
    }
    let named = std::mem::take(&mut action.metadata).into_iter().map(|(mut name, mut value)| {
        replace(&mut name, admin);
        replace(&mut value, admin);
        (name, value)
    });
    action.metadata = named.collect();
}

/// Replaces the credentials in what a detector saw.
pub(super) fn finding(finding: &mut Finding, admin: Option<&SharedSecret>) {
    replace(&mut finding.evidence, admin);
    replace(&mut finding.location, admin);
    if let Cow::Owned(description) = &mut finding.description {
        replace(description, admin);
    }
    finding.metadata.values_mut().for_each(|value| replace(value, admin));
}

/// The text without keys and tokens, for messages that repeat what a client said.
fn masked(text: &str) -> Cow<'_, str> {
    let Some(first) = next(text, 0) else { return Cow::Borrowed(text) };
    let mut out = String::with_capacity(text.len());
    let (mut done, mut at) = (0, Some(first));
    while let Some((start, end)) = at {
        out.push_str(text.get(done..start).unwrap_or_default());
        out.push_str(MASK);
        done = end;
        at = next(text, end);
    }
    out.push_str(text.get(done..).unwrap_or_default());
    Cow::Owned(out)
}

/// Replaces the credentials in a text.
pub(super) fn replace(text: &mut String, admin: Option<&SharedSecret>) {
    if let Cow::Owned(without) = masked(text) {
        *text = without;
    }
    if let Some(admin) = admin.and_then(|admin| std::str::from_utf8(admin.expose()).ok())
        && text.contains(admin)
    {
        *text = text.replace(admin, MASK);
    }
}

/// Where the digits of the next key or token begin, right behind its prefix, and where they end.
fn next(text: &str, from: usize) -> Option<(usize, usize)> {
    let bytes = text.as_bytes();
    let candidates = memchr::memmem::find_iter(bytes.get(from..)?, "sv").map(|at| from + at);
    candidates.into_iter().find_map(|at| {
        let start = at + KEY_PREFIX.len();
        let prefix = bytes.get(at..start)?;
        if prefix != KEY_PREFIX.as_bytes() && prefix != TOKEN_PREFIX.as_bytes() {
            return None;
        }
        let digits = bytes.get(start..)?.iter().take(DIGITS).take_while(|byte| byte.is_ascii_hexdigit()).count();
        let end = start + digits;
        let rest = text.get(end..)?;
        // A text may have been cut in the middle of one.
        let is_cut = digits > DIGITS_SHOWN && (rest.is_empty() || rest.starts_with(['\u{2026}', '.']));
        (digits == DIGITS || is_cut).then_some((start, end))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_and_tokens_lose_their_digits_and_nothing_else_changes() {
        let digits = "0123456789abcdef".repeat(4);
        let said = format!("use svc_{digits} or svt_{digits}; svc_backup stays, svc_{} too", &digits[1..]);
        assert_eq!(masked(&said), format!("use svc_*** or svt_***; svc_backup stays, svc_{} too", &digits[1..]));
        for plain in ["", "sv", "svc_", "services and svt_1"] {
            assert!(matches!(masked(plain), Cow::Borrowed(same) if same == plain));
        }
    }

    #[test]
    fn a_credential_that_was_cut_off_is_masked_and_its_shown_prefix_is_not() {
        assert_eq!(masked("key svc_0123456789abcdef"), "key svc_***");
        assert_eq!(masked("key svt_0123456789abcdef\u{2026}"), "key svt_***\u{2026}");
        assert_eq!(masked("key svc_01234567"), "key svc_01234567");
    }

    #[test]
    fn a_reported_action_keeps_no_credential() {
        let key = format!("svc_{}", "0123456789abcdef".repeat(4));
        let said = serde_json::json!({
            "id": "6f1c2b1e-0d5a-4c6f-9e7b-0d9a4c3b2a10", "action_type": "command_execution",
            "name": format!("curl -H 'x-api-key: {key}'"), "arguments": key, "result": format!("sent {key}"),
            "duration_ms": null, "success": true, "exit_code": null, "http_method": null, "http_status": null,
            "file_operation": null, "metadata": {"note": key}, "timestamp": "2026-01-01T00:00:00Z",
        });
        let mut reported: AgentAction = serde_json::from_value(said).unwrap();
        action(&mut reported, None);
        let kept = serde_json::to_string(&reported).unwrap();
        assert!(!kept.contains("0123456789abcdef") && kept.contains("sent svc_***"), "{kept}");
    }

    #[test]
    fn the_admin_key_is_taken_out_too() {
        let admin = SharedSecret::new("correct-horse");
        let mut text = "the key is correct-horse, really".to_owned();
        replace(&mut text, Some(&admin));
        assert_eq!(text, "the key is ***, really");
    }
}
