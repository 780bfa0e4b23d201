//! Cooldowns, signatures and payloads, without a receiver.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::hmac;
use uuid::Uuid;
use weir_config::vocab::{Finding, Severity, TenantId};

use super::cooldown::{Cooldowns, Heard, Key};
use super::message::Notice;
use crate::outbound::signature;
use crate::record::blank_call as span;

fn key(finding_type: &str) -> Key {
    Key { tenant: TenantId::DEFAULT, finding_type: finding_type.to_owned() }
}

#[test]
fn a_cooldown_counts_what_is_kept_back_and_ends_when_nothing_was() {
    let cooldowns = Cooldowns::new(Duration::from_secs(300));
    let (first, key) = (Uuid::from_u128(1), key("prompt_injection"));
    assert_eq!(cooldowns.heard(&key, first), Heard::Never);
    assert!(!cooldowns.suppress(&key, 1), "nothing was sent: nothing is kept back");
    assert!(cooldowns.begin(key.clone(), first));
    assert_eq!(cooldowns.heard(&key, first), Heard::Of(true), "the batch comes again");
    assert_eq!(cooldowns.heard(&key, Uuid::from_u128(2)), Heard::Of(false));
    assert!(cooldowns.suppress(&key, 7) && cooldowns.suppress(&key, 2));
    assert_eq!(cooldowns.end(&key), Some(9));
    assert_eq!(cooldowns.heard(&key, Uuid::from_u128(3)), Heard::Of(false), "the summary begins the next one");
    assert_eq!(cooldowns.end(&key), None);
    assert_eq!(cooldowns.heard(&key, Uuid::from_u128(3)), Heard::Never);
}

#[test]
fn a_webhook_is_signed_as_a_receiver_checks_it() {
    let secret = format!("whsec_{}", STANDARD.encode([7; 32]));
    let fields = signature(Some(secret.as_bytes()), "msg_1", 1_700_000_000, "{}");
    let field = |wanted| fields.iter().find(|(name, _)| *name == wanted).unwrap().1.to_str().unwrap().to_owned();
    let tag = STANDARD.decode(field("webhook-signature").strip_prefix("v1,").unwrap()).unwrap();
    let key = hmac::Key::new(hmac::HMAC_SHA256, &[7; 32]);
    assert!(hmac::verify(&key, b"msg_1.1700000000.{}", &tag).is_ok());
    assert_eq!((field("webhook-id"), field("webhook-timestamp")), ("msg_1".into(), "1700000000".into()));
}

#[test]
fn hostile_evidence_stays_within_the_limits_of_each_receiver_and_holds_no_marks() {
    let pieces = ["<!channel>", "`", "&", "\u{202e}", "\u{0}", "😀", "https://evil.example|x>", "א", "\r\n", "*b*"];
    let mut state = 1_u64;
    for round in 0..10_000_usize {
        let mut text = String::new();
        let bytes = if round % 500 == 0 { 100_000 } else { round % 900 };
        while text.len() < bytes {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            text.push_str(pieces[(state >> 33) as usize % pieces.len()]);
        }
        let mut finding = Finding::new(text.clone(), Severity::High, 0.9, "rules", text.clone());
        finding.evidence.clone_from(&text);
        let mut span = span();
        (span.model, span.agent_id) = (Some(text.clone()), Some(text));
        let notice = Notice::of(&span, &finding);
        for notice in [notice.summary(u64::MAX), notice] {
            check(&notice);
        }
    }
}

fn check(notice: &Notice) {
    let slack = notice.slack();
    let text = |pointer: &str| slack.pointer(pointer).and_then(serde_json::Value::as_str).unwrap().to_owned();
    let (header, section) = (text("/blocks/0/text/text"), text("/blocks/1/text/text"));
    assert!((1..=150).contains(&header.chars().count()) && (1..=3_000).contains(&section.chars().count()));
    assert!(!section.contains(['<', '>']) && !text("/text").contains(['<', '>']));
    // Each line holds one name or one quotation, whose code span nothing ends.
    assert!(section.lines().all(|line| line.matches('`').count() == 2), "{section}");
    let event = notice.pagerduty(&"k".repeat(32));
    let characters = |pointer: &str| event.pointer(pointer).unwrap().as_str().unwrap().chars().count();
    assert!((1..=1_024).contains(&characters("/payload/summary")) && characters("/dedup_key") <= 255);
    assert!(event.to_string().len() < 512 * 1024, "the receiver's limit of an event");
}
