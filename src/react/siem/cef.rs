//! ArcSight's Common Event Format, version 0. What strangers wrote ends no field and no line.

use weir_config::vocab::Severity;

use super::event::Event;

/// The text of an event.
pub(super) fn text(event: &Event) -> String {
    let mut text = String::with_capacity(512);
    text.push_str("CEF:0|Weir|Weir|");
    text.push_str(env!("CARGO_PKG_VERSION"));
    for field in [&event.name, &event.says] {
        text.push('|');
        header(field, &mut text);
    }
    text.push('|');
    text.push_str(match event.severity {
        Severity::Info => "1",
        Severity::Low => "3",
        Severity::Medium => "5",
        Severity::High => "8",
        Severity::Critical => "10",
    });
    text.push('|');
    let at = (event.at.micros() / 1_000).to_string();
    let labelled = [
        ("cs1", "tenant", &event.tenant),
        ("cs2", "trace", &event.trace),
        ("cs3", "model", &event.model),
        ("cs4", "provider", &event.provider),
        ("cs5", "location", &event.location),
        ("cs6", "session", &event.session),
    ];
    let plain: [(&str, Option<String>); 13] = [
        ("rt", Some(at)),
        ("externalId", Some(event.id.clone())),
        ("cat", Some(event.kind.as_str().to_owned())),
        ("act", Some(if event.is_blocked { "block" } else { "allow" }.to_owned())),
        ("src", event.source.clone().filter(|source| !source.contains(':'))),
        ("c6a2", event.source.clone().filter(|source| source.contains(':'))),
        ("suser", event.actor.clone()),
        ("fname", event.target.clone()),
        ("reason", event.rule.clone().or_else(|| event.detector.clone())),
        ("msg", event.evidence.clone()),
        ("outcome", event.status.map(|status| status.to_string())),
        ("cn1", event.score.map(|score| score.to_string())),
        ("cn1Label", event.score.map(|_| "securityScore".to_owned())),
    ];
    let mut pairs: Vec<(String, String)> =
        plain.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?))).collect();
    for (key, label, value) in labelled {
        if let Some(value) = value {
            pairs.push((format!("{key}Label"), label.to_owned()));
            pairs.push((key.to_owned(), value.clone()));
        }
    }
    if !event.detail.is_empty() {
        pairs.push(("flexString1Label".to_owned(), "detail".to_owned()));
        pairs.push(("flexString1".to_owned(), serde_json::to_string(&event.detail).unwrap_or_default()));
    }
    for (place, (key, value)) in pairs.iter().enumerate() {
        if place > 0 {
            text.push(' ');
        }
        text.push_str(key);
        text.push('=');
        extension(value, &mut text);
    }
    text
}

/// `\` and `|` are escaped; a header has one line.
fn header(value: &str, into: &mut String) {
    for c in value.chars() {
        match c {
            '\\' | '|' => into.extend(['\\', c]),
            c if is_control(c) => into.push(' '),
            c => into.push(c),
        }
    }
}

/// `\` and `=` are escaped, and so are the ends of lines.
fn extension(value: &str, into: &mut String) {
    for c in value.chars() {
        match c {
            '\\' | '=' => into.extend(['\\', c]),
            '\n' => into.push_str("\\n"),
            '\r' => into.push_str("\\r"),
            c if is_control(c) => into.push(' '),
            c => into.push(c),
        }
    }
}

/// Also what ends a line for some readers of Unicode.
fn is_control(c: char) -> bool {
    c.is_control() || matches!(c, '\u{2028}' | '\u{2029}')
}
