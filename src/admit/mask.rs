//! Keeps credentials of the gateway out of what it writes down. A client may paste its key anywhere: into a prompt, an
//! agent's name, a model's name. What is forwarded is its own business; the record is ours.

use std::borrow::Cow;

use weir_config::vocab::SharedSecret;
use weir_storage::record::SpanRecord;

use super::custody::DIGITS;
use super::presented::{KEY_PREFIX, TOKEN_PREFIX};

/// What stands in a credential's place.
const MASK: &str = "***";

/// Replaces the credentials in every text of a record.
pub(super) fn record(span: &mut SpanRecord, admin: Option<&SharedSecret>) {
    let texts = [
        &mut span.prompt,
        &mut span.response,
        &mut span.model,
        &mut span.agent_id,
        &mut span.error_message,
        &mut span.finish_reason,
    ];
    for text in texts.into_iter().flatten() {
        replace(text, admin);
    }
    for finding in &mut span.security_findings {
        replace(&mut finding.evidence, admin);
    }
    for event in &mut span.events {
        replace(&mut event.description, admin);
        event.data.values_mut().for_each(|value| replace(value, admin));
    }
    if let Cow::Owned(provider) = &mut span.provider {
        replace(provider, admin);
    }
    span.tags.values_mut().for_each(|value| replace(value, admin));
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
        let end = start + DIGITS;
        let is_ours = prefix == KEY_PREFIX.as_bytes() || prefix == TOKEN_PREFIX.as_bytes();
        let digits = bytes.get(start..end).filter(|_| is_ours)?;
        digits.iter().all(u8::is_ascii_hexdigit).then_some((start, end))
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
    fn the_admin_key_is_taken_out_too() {
        let admin = SharedSecret::new("correct-horse");
        let mut text = "the key is correct-horse, really".to_owned();
        replace(&mut text, Some(&admin));
        assert_eq!(text, "the key is ***, really");
    }
}
