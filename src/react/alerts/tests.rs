//! Cooldowns in memory, signatures, payloads and mails, without a receiver.

mod burst;
mod schema;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::hmac;
use serde_json::Value;
use uuid::Uuid;
use weir_config::settings::MailUrl;
use weir_config::vocab::{Finding, Severity, SpanId, TenantId, Timestamp, TraceId};
use weir_storage::alerts::{AlertKey, AlertRecord, AlertState, Sighting, Step};
use weir_storage::record::SpanRecord;

use super::cooldown::{Cooldowns, Missed, Quiet};
use super::message::Notice;
use super::{mail, seen};
use crate::anomalies::{CONTINUES, DETECTOR};
use crate::feed::Batch;
use crate::feed::testing::blank_call as span;
use crate::outbound::signature;

const SEVERITIES: [Severity; 5] = [Severity::Info, Severity::Low, Severity::Medium, Severity::High, Severity::Critical];

fn sighting(at: usize, findings: &[u128]) -> Sighting {
    let key =
        AlertKey { tenant: TenantId::DEFAULT, channel: "webhook_1".to_owned(), finding_type: format!("type_{at}") };
    Sighting {
        key,
        findings: findings.iter().map(|id| Uuid::from_u128(*id)).collect(),
        severity: Severity::High,
        security_score: 80,
        place: None,
        first_at: Timestamp::now(),
        last_at: Timestamp::now(),
        resolves_at: None,
        read_to: None,
    }
}

#[test]
fn what_the_store_does_not_keep_is_quiet_for_its_time() {
    let (cooldowns, begun, second) = (Cooldowns::default(), Instant::now(), Duration::from_secs(1));
    let one = |at| sighting(at, &[1]);
    let begin = |at: usize, length| cooldowns.begin(one(at).key, Missed::after(&one(at), 1), begun, length);
    let quiet = |at, now| cooldowns.before_telling(&one(at), now).map(|(why, _)| why);
    assert_eq!(quiet(0, begun), None);
    begin(0, 3 * second);
    cooldowns.refuse(one(1).key, begun, second);
    begin(2, Duration::ZERO);
    assert_eq!([quiet(0, begun), quiet(1, begun), quiet(2, begun)], [Some(Quiet::Told), Some(Quiet::Refused), None]);
    assert_eq!([quiet(0, begun + 2 * second), quiet(1, begun + 2 * second)], [Some(Quiet::Told), None]);
    (2..40_000).for_each(|at| begin(at, second));
    assert_eq!(quiet(50_000, begun), Some(Quiet::NoRoom), "nothing could keep it from being told for ever");
    assert_eq!(quiet(0, begun), Some(Quiet::Told));
    assert_eq!(quiet(50_000, begun + 2 * second), None, "what is over makes room");
}

#[test]
fn what_came_within_a_cooldown_of_memory_is_summed_up_once() {
    let (cooldowns, begun, second) = (Cooldowns::default(), Instant::now(), Duration::from_secs(1));
    let first = sighting(0, &[1, 2, 3]);
    let count = |ids: &[u128], now| cooldowns.before_telling(&sighting(0, ids), now).map(|(_, count)| count);
    cooldowns.begin(first.key.clone(), Missed::after(&first, 1), begun, second);
    assert_eq!(count(&[1, 2, 3], begun), Some(0), "a batch that comes again");
    assert_eq!(count(&[1, 2, 3, 4, 5], begun), Some(2), "the same, and more");
    assert_eq!((cooldowns.due(begun), cooldowns.next_due()), (None, Some(begun + second)));
    let end = begun + second;
    let (key, missed) = cooldowns.due(end).unwrap();
    assert_eq!((&key, missed.count), (&first.key, 4));
    // While the summary is outstanding, what comes joins the next one.
    assert_eq!(count(&[6], end), Some(1));
    let message = Notice::of_missed(&key, &missed);
    assert_eq!((&message.webhook()["summary"], &message.webhook()["count"]), (&true.into(), &4.into()));
    assert_eq!(message.id(), Notice::of_missed(&key, &missed).id(), "each attempt has the same");
    cooldowns.summed_up(&key, &missed, end, second);
    assert_eq!(cooldowns.due(end), None, "told once");
    let (key, rest) = cooldowns.due(end + second).unwrap();
    assert_eq!(rest.count, 1);
    assert_ne!(Notice::of_missed(&key, &rest).id(), message.id());
    cooldowns.summed_up(&key, &rest, end + second, second);
    assert_eq!((cooldowns.next_due(), count(&[7], end + 2 * second)), (None, None), "it is news again");
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

fn alert(finding_type: String) -> AlertRecord {
    AlertRecord {
        id: Uuid::from_u128(7),
        tenant_id: TenantId::DEFAULT,
        finding_type,
        severity: Severity::High,
        security_score: 80,
        channel: "slack_1".to_owned(),
        state: AlertState::Open,
        trace_id: Some(TraceId::fresh()),
        span_id: Some(SpanId::fresh()),
        first_at: Timestamp::from_micros(0),
        last_at: Timestamp::from_micros(0),
        count: u64::MAX,
        suppressed: 214,
        notified_at: Timestamp::from_micros(36_120_000_000),
        quiet_until: Timestamp::from_micros(0),
        escalates_at: None,
        escalated_at: None,
        escalated_to: None,
        resolves_at: None,
        resolved_at: None,
        acknowledged_at: None,
        acknowledged_by: None,
    }
}

#[test]
fn what_is_told_later_says_what_it_is_about() {
    let say = |step| Notice::about(&alert("jailbreak".to_owned()), step);
    let subject = |step| say(step).mail().0;
    assert_eq!(subject(Step::Summary), "[Weir] High: and 214 more jailbreak in the default tenant since 10:02 UTC");
    assert_eq!(subject(Step::Escalation), "[Weir] High, not acknowledged: jailbreak in the default tenant");
    assert_eq!(subject(Step::Resolution), "[Weir] Resolved: jailbreak in the default tenant");
    let (raised, over) = (say(Step::Escalation).pagerduty("k"), say(Step::Resolution).pagerduty("k"));
    assert_eq!((&raised["event_action"], &over["event_action"]), (&"trigger".into(), &"resolve".into()));
    assert_eq!(raised["dedup_key"], over["dedup_key"], "the incident that was opened");
    assert_eq!(say(Step::Resolution).webhook()["alert_type"], "resolved");
    assert_eq!(say(Step::Escalation).webhook()["escalated_from"], "slack_1");
    assert_eq!(say(Step::Summary).id(), say(Step::Summary).id(), "each attempt has the same");
    let test = Notice::test();
    assert_eq!(test.pagerduty("k")["dedup_key"], test.closes("k")["dedup_key"], "a test leaves nothing open");
}

#[test]
fn one_message_tells_of_all_that_was_found_in_a_call() {
    let call = span();
    let finding = |name: &'static str, severity| Finding::new(name, severity, 0.9, "rules", "why");
    let found = [
        finding("jailbreak", Severity::High),
        finding("pii_detected", Severity::Medium),
        finding("data_leakage", Severity::Critical),
    ];
    let seen = |finding: &Finding, place| seen::Seen {
        sighting: Sighting {
            key: AlertKey { finding_type: finding.finding_type.to_string(), ..sighting(0, &[]).key },
            severity: finding.severity,
            place,
            ..sighting(0, &[finding.id.as_u128()])
        },
        notice: Some(Notice::of(&call, finding)),
    };
    let place = Some((call.trace_id, call.span_id));
    let mut due: Vec<seen::Seen> = found.iter().map(|finding| seen(finding, place)).collect();
    due.push(seen(&finding("jailbreak", Severity::Low), Some((TraceId::fresh(), SpanId::fresh()))));
    due.push(seen(&finding("breaker_open_storage", Severity::High), None));
    let groups = seen::by_call(due);
    assert_eq!(groups.iter().map(Vec::len).collect::<Vec<_>>(), [3, 1, 1]);
    let notices: Vec<Notice> = groups.into_iter().flatten().filter_map(|seen| seen.notice).collect();
    let all = notices[1..3].iter().fold(notices[0].clone(), Notice::with);
    let all = all.addressed(Some("Acme".to_owned()), Some("https://weir.example"));
    let link = format!("https://weir.example/ui/trace?id={}", call.trace_id);
    let (subject, text) = all.mail();
    assert_eq!(subject, "[Weir] Critical: data_leakage, jailbreak, pii_detected in tenant Acme");
    assert!(text.contains("Also found: jailbreak (High), pii_detected (Medium)") && text.contains(&link), "{text}");
    let body = all.webhook();
    assert_eq!((&body["finding_type"], &body["tenant_name"]), (&"data_leakage".into(), &"Acme".into()));
    assert_eq!((body["also"].as_array().unwrap().len(), body["findings"].as_array().unwrap().len()), (2, 3));
    assert_eq!(all.pagerduty("k")["links"][0]["href"], link.as_str());
    assert!(all.slack().to_string().contains(&format!("<{link}|Open the call in the console>")));
}

fn unstored<'a>(spans: &'a [&'a SpanRecord]) -> Batch<'a> {
    Batch { spans, end: None }
}

#[test]
fn what_ends_by_itself_says_when_and_what_goes_on_is_no_news() {
    let call = *span();
    let anomaly = |finding_type| Finding::new(finding_type, Severity::High, 0.9, DETECTOR, "Far more than usual");
    let mut soft = Finding::new("cost_cap_warning", Severity::Info, 1.0, "cost_caps", "The soft limit");
    soft.metadata.insert("window".to_owned(), "daily".to_owned());
    let look = |findings: Vec<Finding>| {
        let span = SpanRecord { security_findings: findings, ..call.clone() };
        let mut recent = span.clone();
        recent.end_time = Timestamp::now();
        let (seen, expired) = seen::look("webhook_1", |_, _| true, unstored(&[&recent]));
        assert_eq!(expired, 0);
        let old = seen::look(
            "webhook_1",
            |_, _| true,
            unstored(&[&SpanRecord { end_time: Timestamp::from_micros(0), ..span }]),
        );
        assert_eq!((old.0.len(), old.1), (0, 1), "nobody is told of what is that old");
        let seen = seen.into_iter().next().unwrap();
        let after = seen.sighting.resolves_at.map(|at| (at.micros() - recent.end_time.micros()) / 1_000_000);
        (after, seen.notice.is_some(), seen.sighting.findings.len())
    };
    assert_eq!(look(vec![anomaly("anomaly_velocity")]), (Some(60), true, 1));
    assert_eq!(look(vec![anomaly("anomaly_cost")]), (Some(300), true, 1));
    let mut goes_on = anomaly("anomaly_cost");
    goes_on.metadata.insert(CONTINUES.to_owned(), "true".to_owned());
    assert_eq!(look(vec![goes_on]), (Some(300), false, 0));
    let (after, ..) = look(vec![soft]);
    assert!((0..=86_400).contains(&after.unwrap()), "the end of the day: {after:?}");
    assert_eq!(look(vec![Finding::new("jailbreak", Severity::High, 0.9, "rules", "x")]), (None, true, 1));
}

#[test]
fn hostile_evidence_stays_within_the_limits_of_each_receiver_and_holds_no_marks() {
    let to = MailUrl::parse(b"smtps://h?from=weir@example.org&to=a@example.org,b@example.org").unwrap();
    let pieces = [
        "<!channel>",
        "`",
        "&",
        "\u{202e}",
        "\u{0}",
        "😀",
        "https://evil.example|x>",
        "א",
        "\r\nBcc: x@y.z\r\n",
        "*b*",
    ];
    let (schemas, mut state) = ([schema::slack(), schema::pagerduty()], 1_u64);
    let mut chance = move |below: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % below
    };
    let (mut seen, mut told, mut largest) = (BTreeMap::new(), 0, 0);
    while told < 10_000 {
        // Many are short, and some as long as a body.
        let bytes = if chance(50) == 0 { 100_000 } else { [0, 40, 40, 400, 400, 4_000][chance(6)] };
        let most = if bytes > 4_000 { 100_000 } else { chance(bytes + 1) };
        let mut text = String::new();
        while text.len() < most {
            text.push_str(pieces[chance(pieces.len())]);
        }
        let mut span = span();
        (span.model, span.agent_id) = (Some(text.clone()), Some(text.clone()));
        span.security_score = Some(chance(101) as u8);
        span.end_time = Timestamp::now();
        // Some share a type, as those of one call often do.
        let many = 1 + chance(if bytes > 4_000 { 2 } else { 12 });
        span.security_findings = (0..many)
            .map(|at| {
                let severity = SEVERITIES[chance(SEVERITIES.len())];
                let kind = format!("{}{text}", at % 3);
                let mut finding = Finding::new(kind, severity, 0.9, "rules", text.clone());
                finding.evidence.clone_from(&text);
                finding
            })
            .collect();
        (told, largest) = (told + many, largest.max(text.len()));
        for finding in &span.security_findings {
            *seen.entry(finding.severity).or_insert(0) += 1;
            check_all(&to, &Notice::of(&span, finding), &schemas);
        }
        let (heard, _) = seen::look("webhook_1", |_, _| true, unstored(&[&span]));
        assert_eq!(heard.len(), many.min(3), "one message for each type");
        for seen::Seen { sighting, notice } in heard {
            let mut notice = notice.unwrap();
            notice.count = sighting.findings.len() as u64;
            check_all(&to, &notice, &schemas);
            let step = [Step::Summary, Step::Escalation, Step::Resolution][chance(3)];
            let record = AlertRecord { severity: sighting.severity, ..alert(sighting.key.finding_type) };
            check_all(&to, &Notice::about(&record, step), &schemas);
        }
    }
    assert!(seen.len() == SEVERITIES.len() && seen.values().all(|count| *count > 1_000), "{seen:?}");
    assert!(largest >= 100_000);
}

fn check_all(to: &MailUrl, notice: &Notice, schemas: &[Value; 2]) {
    check(notice, schemas);
    check_mail(to, notice);
}

fn check(notice: &Notice, [of_slack, of_pagerduty]: &[Value; 2]) {
    let slack = notice.slack();
    assert_eq!(schema::fault(of_slack, &slack), None, "{slack}");
    let text = |pointer: &str| slack.pointer(pointer).and_then(Value::as_str).unwrap().to_owned();
    let section = text("/blocks/1/text/text");
    assert!(!section.contains(['<', '>']) && !text("/text").contains(['<', '>']));
    // Each line holds one name or one quotation, whose code span nothing ends.
    assert!(section.lines().all(|line| line.matches('`').count() == 2), "{section}");
    let event = notice.pagerduty(&"k".repeat(32));
    assert_eq!(schema::fault(of_pagerduty, &event), None, "{event}");
    assert!(event.to_string().len() < 512 * 1024, "the receiver's limit of an event");
}

/// A mail has the fields it is to have, once each, and no line that a server may refuse (RFC 5322 section 2.1.1).
fn check_mail(to: &MailUrl, notice: &Notice) {
    let (envelope, bytes) = mail::write(to, notice).unwrap();
    assert_eq!(envelope.to().len(), 2);
    let text = String::from_utf8(bytes).unwrap();
    assert!(
        text.is_ascii() && text.split("\r\n").all(|line| line.len() <= 998 && !line.contains(['\r', '\n'])),
        "{text}"
    );
    let (head, _) = text.split_once("\r\n\r\n").unwrap();
    let mut names: Vec<&str> = head
        .split("\r\n")
        .filter(|line| !line.starts_with([' ', '\t']))
        .map(|line| line.split_once(':').unwrap().0)
        .collect();
    names.sort_unstable();
    names.retain(|name| *name != "MIME-Version");
    assert_eq!(
        names,
        ["Content-Transfer-Encoding", "Content-Type", "Date", "From", "Message-ID", "Subject", "To"],
        "{head}"
    );
}
