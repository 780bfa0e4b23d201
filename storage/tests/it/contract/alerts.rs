//! The contract of [`AlertBook`].

use std::time::Duration;

use uuid::Uuid;
use weir_config::vocab::{Severity, TenantId, Timestamp};
use weir_storage::alerts::{
    Accepted, AlertFilter, AlertKey, AlertRecord, AlertState, Claim, Claimant, Escalated, Heard, Sighting, Step,
    StepDone,
};
use weir_storage::audit::AuditEvent;
use weir_storage::record::SpanRecord;
use weir_storage::{AlertBook, AuditLog, Cursor, Retention, SpanLog, Store};

use super::checks;
use crate::support::{PATIENCE, page, span, tenant, wait_for};

checks! { Store:
    a_cooldown_begins_when_a_message_is_accepted_and_counts_what_comes_within,
    a_batch_that_comes_again_is_counted_once,
    what_two_processes_read_is_counted_once_whoever_is_behind,
    only_one_of_several_processes_sends,
    the_end_of_a_cooldown_is_told_once,
    an_alert_escalates_unless_somebody_knows_of_it,
    an_alert_goes_from_channel_to_channel_until_one_has_its_own,
    what_ends_by_itself_is_closed_where_it_went_when_it_is_over,
    what_is_over_is_resolved_and_begins_afresh,
    what_several_processes_hold_is_over_with_the_last_of_them,
    what_a_process_held_that_is_gone_is_over_when_its_time_is,
    what_goes_on_puts_its_end_off,
    lists_are_a_tenant_s_filtered_and_paged,
    alerts_forget_a_trace_that_is_deleted_and_go_with_their_tenant,
    a_tenant_s_alerts_are_bounded_and_those_nobody_waits_for_make_room,
    alerts_past_their_age_go_and_the_others_stay,
}

const COOLDOWN: i64 = 1_000;

fn at(us: i64) -> Timestamp {
    Timestamp::from_micros(us)
}

fn by(owner: u128, now: i64) -> Claimant {
    Claimant { owner: Uuid::from_u128(owner), now: at(now), until: at(now + 100) }
}

fn key(channel: &str, finding_type: &str) -> AlertKey {
    AlertKey { tenant: tenant(1), channel: channel.to_owned(), finding_type: finding_type.to_owned() }
}

/// Findings `ids`, made at `now`.
fn sighting(key: &AlertKey, ids: std::ops::Range<u128>, now: i64) -> Sighting {
    Sighting {
        key: key.clone(),
        findings: ids.map(Uuid::from_u128).collect(),
        severity: Severity::High,
        security_score: 80,
        place: None,
        first_at: at(now),
        last_at: at(now),
        resolves_at: None,
        read_to: None,
    }
}

/// The tenant is there: it has a span.
fn begin(store: &Store) -> SpanRecord {
    let span = SpanRecord { tenant_id: tenant(1), ..span(5) };
    store.append(Box::new(span.clone())).unwrap();
    assert!(store.flush(PATIENCE));
    span
}

fn accepted(sighting: &Sighting, now: i64) -> Accepted {
    Accepted {
        sighting: sighting.clone(),
        id: Uuid::new_v4(),
        told: 1,
        at: at(now),
        quiet_until: at(now + COOLDOWN),
        escalates_at: None,
    }
}

fn tell(store: &Store, sighting: &Sighting, now: i64) -> AlertRecord {
    assert!(matches!(store.claim_alert(sighting.clone(), by(1, now)).unwrap(), Claim::Granted(_)));
    store.accept_alert(accepted(sighting, now)).unwrap().unwrap()
}

fn count(store: &Store, sighting: &Sighting, now: i64) -> Heard {
    store.count_alerts(vec![sighting.clone()], at(now)).unwrap()[0]
}

fn all(store: &Store) -> Vec<AlertRecord> {
    store.list_alerts(tenant(1), &AlertFilter::default(), page(1_000, 0)).unwrap().data
}

fn done(step: Step, told: u64, now: i64) -> StepDone {
    StepDone { step, told, at: at(now), quiet_until: at(now + COOLDOWN), escalated: None }
}

fn event(target: &AlertRecord) -> AuditEvent {
    AuditEvent {
        tenant: Some(target.tenant_id),
        actor: "an operator".to_owned(),
        action: "alert.ack".to_owned(),
        target: Some(target.id.to_string()),
        detail: std::collections::BTreeMap::new(),
    }
}

fn a_cooldown_begins_when_a_message_is_accepted_and_counts_what_comes_within(store: &Store) {
    let first = sighting(&key("webhook_1", "jailbreak"), 1..4, 0);
    assert_eq!(count(store, &first, 0), Heard::Unknown, "there is no such tenant yet");
    begin(store);
    assert_eq!(count(store, &first, 0), Heard::Due);
    assert_eq!(store.claim_alert(first.clone(), by(1, 0)).unwrap(), Claim::Granted(None));
    assert_eq!(count(store, &first, 1), Heard::Due, "a claim is no message");
    assert_eq!(all(store), []);
    let alert = store.accept_alert(accepted(&first, 2)).unwrap().unwrap();
    assert_eq!((alert.count, alert.suppressed, alert.state), (3, 2, AlertState::Open));
    assert_eq!((alert.notified_at, alert.quiet_until), (at(2), at(2 + COOLDOWN)));
    let worse = Sighting { severity: Severity::Critical, ..sighting(&first.key, 4..6, 30) };
    assert_eq!(count(store, &worse, 30), Heard::Counted(2));
    let other = [key("webhook_2", "jailbreak"), key("webhook_1", "pii_detected")];
    for other in other {
        assert_eq!(count(store, &sighting(&other, 1..2, 3), 3), Heard::Due, "{other:?} has a cooldown of its own");
    }
    let shown = all(store);
    assert_eq!((shown[0].count, shown[0].suppressed, shown[0].severity), (5, 4, Severity::Critical));
    assert_eq!((shown[0].first_at, shown[0].last_at), (at(0), at(30)));
}

fn a_batch_that_comes_again_is_counted_once(store: &Store) {
    begin(store);
    let key = key("webhook_1", "jailbreak");
    tell(store, &sighting(&key, 1..4, 0), 0);
    assert_eq!(count(store, &sighting(&key, 1..4, 0), 5), Heard::Counted(0));
    // A longer batch from the same place on.
    assert_eq!(count(store, &sighting(&key, 1..7, 0), 5), Heard::Counted(3));
    assert_eq!(count(store, &sighting(&key, 4..7, 0), 6), Heard::Counted(0));
    assert_eq!(count(store, &sighting(&key, 1..7, 0), 9 * COOLDOWN), Heard::Counted(0), "nor is it told again");
    assert_eq!(all(store)[0].count, 6);
}

fn what_two_processes_read_is_counted_once_whoever_is_behind(store: &Store) {
    begin(store);
    let (key, end) = (key("webhook_1", "jailbreak"), store.end().unwrap());
    let read = |ids: std::ops::Range<u128>, place: i64| Sighting {
        read_to: Some(Cursor::new(end.file(), place)),
        ..sighting(&key, ids, 0)
    };
    tell(store, &read(1..4, 3), 0);
    assert_eq!(count(store, &read(4..9, 8), 5), Heard::Counted(5));
    assert_eq!(count(store, &read(1..3, 2), 5), Heard::Counted(0), "the other one is behind");
    assert_eq!(count(store, &read(3..6, 5), 5), Heard::Counted(0));
    assert_eq!(count(store, &read(6..11, 10), 5), Heard::Counted(2), "it goes past the first one");
    assert_eq!(count(store, &read(9..10, 9), 5), Heard::Counted(0));
    // Long after the cooldown it is no news either.
    assert_eq!(count(store, &read(3..6, 5), 9 * COOLDOWN), Heard::Counted(0));
    assert_eq!(all(store)[0].count, 10);
    // What was found elsewhere has no place in this order, nor has what another file held.
    assert_eq!(count(store, &sighting(&key, 20..22, 0), 6), Heard::Counted(2));
    let other = Sighting { read_to: Some(Cursor::new(end.file() ^ 1, 1_000)), ..sighting(&key, 30..31, 0) };
    assert_eq!(count(store, &other, 6), Heard::Counted(1));
    assert_eq!(count(store, &read(11..12, 11), 6), Heard::Counted(1));
}

fn only_one_of_several_processes_sends(store: &Store) {
    begin(store);
    let sighting = sighting(&key("webhook_1", "jailbreak"), 1..2, 0);
    assert_eq!(store.claim_alert(sighting.clone(), by(1, 0)).unwrap(), Claim::Granted(None));
    assert_eq!(store.claim_alert(sighting.clone(), by(2, 50)).unwrap(), Claim::Held(at(100)));
    store.hold_alert(sighting.key.clone(), Uuid::from_u128(2), at(0)).unwrap();
    assert_eq!(
        store.claim_alert(sighting.clone(), by(2, 60)).unwrap(),
        Claim::Held(at(100)),
        "it is not theirs to end"
    );
    store.hold_alert(sighting.key.clone(), Uuid::from_u128(1), at(70)).unwrap();
    assert_eq!(store.claim_alert(sighting.clone(), by(2, 70)).unwrap(), Claim::Granted(None));
    store.accept_alert(accepted(&sighting, 75)).unwrap().unwrap();
    assert_eq!(store.claim_alert(sighting, by(1, 80)).unwrap(), Claim::Counted(0));
}

fn the_end_of_a_cooldown_is_told_once(store: &Store) {
    begin(store);
    let key = key("webhook_1", "jailbreak");
    let told = tell(store, &sighting(&key, 1..2, 0), 0);
    assert_eq!(store.next_due("webhook_1").unwrap(), None, "nothing was kept back");
    count(store, &sighting(&key, 2..12, 10), 10);
    assert_eq!(store.next_due("webhook_1").unwrap(), Some(at(COOLDOWN)));
    assert_eq!(store.claim_due("webhook_1", by(1, COOLDOWN - 1), 9).unwrap(), []);
    let due = store.claim_due("webhook_1", by(1, COOLDOWN), 9).unwrap();
    assert_eq!((due.len(), due[0].0.id, due[0].0.suppressed, due[0].1), (1, told.id, 10, Step::Summary));
    assert_eq!(store.claim_due("webhook_1", by(2, COOLDOWN + 1), 9).unwrap(), [], "another process leaves it alone");
    assert_eq!(store.next_due("webhook_1").unwrap(), Some(at(COOLDOWN + 100)), "the claim's end");
    // What comes until the message is accepted joins the next one.
    assert_eq!(count(store, &sighting(&key, 12..14, 11), COOLDOWN + 2), Heard::Counted(2));
    store.finish_step(due[0].0.clone(), done(Step::Summary, 10, COOLDOWN + 3)).unwrap();
    assert_eq!(store.claim_due("webhook_1", by(1, COOLDOWN + 4), 9).unwrap(), []);
    assert_eq!(store.next_due("webhook_1").unwrap(), Some(at(2 * COOLDOWN + 3)));
    let due = store.claim_due("webhook_1", by(1, 2 * COOLDOWN + 3), 9).unwrap();
    assert_eq!((due[0].0.suppressed, due[0].0.count), (2, 13));
    store.finish_step(due[0].0.clone(), done(Step::Summary, 2, 2 * COOLDOWN + 3)).unwrap();
    assert_eq!(store.next_due("webhook_1").unwrap(), None);
    assert_eq!(count(store, &sighting(&key, 14..15, 0), 9 * COOLDOWN), Heard::Due);
    assert_eq!(tell(store, &sighting(&key, 14..15, 0), 9 * COOLDOWN).id, told.id, "the alert is still open");
}

fn an_alert_escalates_unless_somebody_knows_of_it(store: &Store) {
    begin(store);
    let (first, second) = (key("webhook_1", "jailbreak"), key("webhook_1", "pii_detected"));
    let third = key("webhook_2", "pii_detected");
    for key in [&first, &second, &third] {
        let sighting = sighting(key, 1..2, 0);
        store.claim_alert(sighting.clone(), by(1, 0)).unwrap();
        let accepted = Accepted { escalates_at: Some(at(600)), ..accepted(&sighting, 0) };
        store.accept_alert(accepted).unwrap().unwrap();
    }
    let due = store.claim_due("webhook_1", by(1, 600), 1).unwrap();
    assert_eq!((due.len(), due[0].1), (1, Step::Escalation));
    store.finish_step(due[0].0.clone(), done(Step::Escalation, 0, 601)).unwrap();
    // The other one is claimed, and was not sent: it comes again, also to another process.
    assert_eq!(store.claim_due("webhook_1", by(1, 602), 1).unwrap().len(), 1);
    let again = store.claim_due("webhook_1", by(2, 702), 9).unwrap();
    assert_eq!((again.len(), again[0].1), (1, Step::Escalation));
    let lines = store.list_audit(None, page(10, 0)).unwrap().total;
    let acked = store.acknowledge_alert(tenant(1), again[0].0.id, event(&again[0].0)).unwrap().unwrap();
    assert_eq!(acked.state, AlertState::Acknowledged);
    assert_eq!(acked.acknowledged_by.as_deref(), Some("an operator"));
    let states = ["webhook_2", "webhook_1", "webhook_1"].into_iter().zip([
        AlertState::Acknowledged,
        AlertState::Acknowledged,
        AlertState::Open,
    ]);
    let shown = all(store);
    assert!(
        shown.iter().map(|alert| (&*alert.channel, alert.state)).eq(states),
        "of all channels, and of this type: {shown:#?}"
    );
    assert_eq!(store.claim_due("webhook_2", by(1, 703), 9).unwrap(), []);
    assert_eq!(store.acknowledge_alert(tenant(1), acked.id, event(&acked)).unwrap(), Some(acked.clone()));
    assert_eq!(store.list_audit(None, page(10, 0)).unwrap().total, lines + 1, "once");
    assert_eq!(store.acknowledge_alert(tenant(2), acked.id, event(&acked)).unwrap(), None);
    assert_eq!(store.acknowledge_alert(tenant(1), Uuid::new_v4(), event(&acked)).unwrap(), None);
    assert_eq!(store.claim_due("webhook_1", by(1, 9 * COOLDOWN), 9).unwrap(), []);
    // The next finding begins an alert that nobody knows of.
    let next = tell(store, &sighting(&second, 2..3, 0), 9 * COOLDOWN);
    assert!(next.id != acked.id && next.state == AlertState::Open && next.count == 1);
}

/// The one escalation that is due for a channel then.
fn escalating(store: &Store, channel: &str, now: i64) -> AlertRecord {
    let mut due = store.claim_due(channel, by(1, now), 9).unwrap();
    let (alert, step) = due.pop().unwrap();
    assert_eq!((step, due), (Step::Escalation, vec![]));
    alert
}

fn went(to: &str, now: i64, next: Option<i64>) -> StepDone {
    let escalated = Escalated { to: to.to_owned(), next_at: next.map(at) };
    StepDone { escalated: Some(escalated), ..done(Step::Escalation, 0, now) }
}

fn an_alert_goes_from_channel_to_channel_until_one_has_its_own(store: &Store) {
    begin(store);
    let first = key("webhook_1", "jailbreak");
    let told = |key: &AlertKey, now, escalates| {
        let sighting = sighting(key, 1..2, now);
        store.claim_alert(sighting.clone(), by(1, now)).unwrap();
        store.accept_alert(Accepted { escalates_at: Some(at(escalates)), ..accepted(&sighting, now) }).unwrap().unwrap()
    };
    told(&first, 0, 600);
    let alert = escalating(store, "webhook_1", 600);
    assert_eq!((&alert.escalated_to, alert.escalated_at), (&None, None));
    store.finish_step(alert, went("webhook_2", 610, Some(1_210))).unwrap();
    assert_eq!(store.next_due("webhook_1").unwrap(), Some(at(1_210)));
    // Another finding neither puts it off nor begins it anew.
    let again = Sighting { findings: vec![Uuid::from_u128(2)], ..sighting(&first, 1..2, 1_100) };
    store.claim_alert(again.clone(), by(1, 1_100)).unwrap();
    store.accept_alert(Accepted { escalates_at: Some(at(1_700)), ..accepted(&again, 1_100) }).unwrap().unwrap();
    let alert = escalating(store, "webhook_1", 1_210);
    assert_eq!((alert.escalated_to.as_deref(), alert.escalated_at), (Some("webhook_2"), Some(at(610))));
    // The third channel has heard of it itself meanwhile: what it was told goes further, and not this.
    let own = told(&key("webhook_3", "jailbreak"), 1_215, 1_815);
    store.finish_step(alert, went("webhook_3", 1_220, Some(1_820))).unwrap();
    assert_eq!(store.claim_due("webhook_1", by(1, 1_900), 9).unwrap(), []);
    assert_eq!(escalating(store, "webhook_3", 1_815).id, own.id);
    let shown = all(store).into_iter().find(|alert| alert.channel == "webhook_1").unwrap();
    assert_eq!((shown.escalated_to.as_deref(), shown.escalates_at), (Some("webhook_3"), None));
    // Acknowledged while the message is on its way: it goes no further.
    let other = key("webhook_1", "pii_detected");
    told(&other, 2_000, 2_600);
    let alert = escalating(store, "webhook_1", 2_600);
    store.acknowledge_alert(tenant(1), alert.id, event(&alert)).unwrap().unwrap();
    store.finish_step(alert, went("webhook_2", 2_610, Some(3_210))).unwrap();
    assert_eq!((all(store)[0].state, all(store)[0].escalates_at), (AlertState::Acknowledged, None));
    // The channel it went to is told that somebody knows, once.
    let due = store.claim_due("webhook_1", by(1, 2_620), 9).unwrap();
    assert_eq!(
        due.iter().map(|(alert, step)| (alert.id, *step)).collect::<Vec<_>>(),
        [(all(store)[0].id, Step::Closing)]
    );
    store.finish_step(due[0].0.clone(), done(Step::Closing, 0, 2_621)).unwrap();
    assert_eq!(store.claim_due("webhook_1", by(1, 9_000), 9).unwrap(), []);
}

fn what_ends_by_itself_is_closed_where_it_went_when_it_is_over(store: &Store) {
    begin(store);
    let sighting = Sighting { resolves_at: Some(at(900)), ..sighting(&key("webhook_1", "anomaly_cost"), 1..2, 0) };
    store.claim_alert(sighting.clone(), by(1, 0)).unwrap();
    store.accept_alert(Accepted { escalates_at: Some(at(600)), ..accepted(&sighting, 0) }).unwrap().unwrap();
    let alert = escalating(store, "webhook_1", 600);
    store.finish_step(alert.clone(), went("pagerduty_2", 610, None)).unwrap();
    // That somebody knows of it ends nothing.
    store.acknowledge_alert(tenant(1), alert.id, event(&alert)).unwrap().unwrap();
    for (step, now) in [(Step::Resolution, 900), (Step::Closing, 910)] {
        let due = store.claim_due("webhook_1", by(1, now), 9).unwrap();
        assert_eq!(due.iter().map(|(alert, step)| (alert.id, *step)).collect::<Vec<_>>(), [(alert.id, step)]);
        store.finish_step(due[0].0.clone(), done(step, 0, now)).unwrap();
    }
    assert_eq!(store.next_due("webhook_1").unwrap(), None);
}

fn what_is_over_is_resolved_and_begins_afresh(store: &Store) {
    begin(store);
    let key = key("webhook_1", "breaker_open");
    assert!(!store.sustain_alert(key.clone(), by(1, 0)).unwrap(), "nobody was told of it yet");
    let alert = tell(store, &sighting(&key, 1..3, 0), 0);
    assert!(store.sustain_alert(key.clone(), by(1, 10)).unwrap());
    let owner = Uuid::from_u128(1);
    assert!(!store.release_alert(key.clone(), owner, at(50)).unwrap(), "nobody else holds it");
    let due = store.claim_due("webhook_1", by(1, 50), 9).unwrap();
    assert_eq!((due.len(), due[0].0.id, due[0].1), (1, alert.id, Step::Resolution));
    store.finish_step(due[0].0.clone(), done(Step::Resolution, 0, 51)).unwrap();
    assert_eq!(store.next_due("webhook_1").unwrap(), None, "what was kept back is told with it");
    assert_eq!((all(store)[0].state, all(store)[0].resolved_at), (AlertState::Resolved, Some(at(51))));
    assert!(!store.release_alert(key.clone(), owner, at(60)).unwrap());
    assert!(!store.sustain_alert(key.clone(), by(1, 60)).unwrap(), "what was told as over is told anew");
    assert_eq!(store.next_due("webhook_1").unwrap(), None);
    assert_eq!(count(store, &sighting(&key, 3..4, 61), 61), Heard::Due, "within the cooldown of what is over");
    assert_ne!(tell(store, &sighting(&key, 3..4, 61), 61).id, alert.id);
}

fn what_several_processes_hold_is_over_with_the_last_of_them(store: &Store) {
    begin(store);
    let held = key("webhook_1", "breaker_open");
    // Of another channel, and of another type: neither has to do with it.
    let others = [key("webhook_2", "breaker_open"), key("webhook_1", "storage_degraded")];
    for key in others.iter().chain([&held]) {
        store.sustain_alert(key.clone(), by(1, 0)).unwrap();
        tell(store, &Sighting { resolves_at: Some(at(100)), ..sighting(key, 1..2, 0) }, 0);
    }
    let ends = |channel| store.next_due(channel).unwrap();
    assert_eq!((ends("webhook_1"), ends("webhook_2")), (Some(at(100)), Some(at(100))));
    // Who never held it ends nothing.
    assert!(store.release_alert(held.clone(), Uuid::from_u128(3), at(10)).unwrap());
    assert!(store.sustain_alert(held.clone(), by(2, 20)).unwrap());
    assert!(store.release_alert(held.clone(), Uuid::from_u128(1), at(30)).unwrap(), "another one holds it");
    assert_eq!(store.claim_due("webhook_1", by(1, 99), 9).unwrap(), []);
    let resolves = |key: &AlertKey| {
        let mut alerts = all(store).into_iter();
        alerts.find(|alert| alert.channel == key.channel && alert.finding_type == key.finding_type).unwrap().resolves_at
    };
    assert_eq!(resolves(&held), Some(at(120)), "as long as the other one said");
    assert!(store.sustain_alert(held.clone(), by(2, 90)).unwrap());
    assert!(!store.release_alert(held.clone(), Uuid::from_u128(2), at(95)).unwrap());
    assert_eq!(
        [resolves(&held), resolves(&others[0]), resolves(&others[1])],
        [Some(at(95)), Some(at(100)), Some(at(100))]
    );
    assert_eq!(all(store)[0].last_at, at(95), "until then it went on");
}

fn what_a_process_held_that_is_gone_is_over_when_its_time_is(store: &Store) {
    begin(store);
    let held = key("webhook_1", "breaker_open");
    for owner in [1, 2] {
        store.sustain_alert(held.clone(), by(owner, 0)).unwrap();
    }
    let alert = tell(store, &Sighting { resolves_at: Some(at(100)), ..sighting(&held, 1..2, 0) }, 0);
    store.sustain_alert(held.clone(), by(2, 60)).unwrap();
    // One that says it again, and one that does not.
    assert_eq!(store.claim_due("webhook_1", by(3, 159), 9).unwrap(), []);
    let due = store.claim_due("webhook_1", by(3, 160), 9).unwrap();
    assert_eq!((due.len(), due[0].0.id, due[0].1), (1, alert.id, Step::Resolution));
    store.finish_step(due[0].0.clone(), done(Step::Resolution, 0, 161)).unwrap();
    // It was only stopped for a while: it learns that the channel has heard the end.
    assert!(!store.sustain_alert(held, by(2, 170)).unwrap());
}

fn what_goes_on_puts_its_end_off(store: &Store) {
    begin(store);
    let key = key("webhook_1", "anomaly_cost");
    let goes_on = |until| Sighting { resolves_at: Some(at(until)), ..sighting(&key, 0..0, until - 10) };
    assert_eq!(count(store, &goes_on(20), 10), Heard::Counted(0), "of what nobody was told");
    let sighting = Sighting { resolves_at: Some(at(100)), ..sighting(&key, 1..2, 0) };
    assert_eq!(tell(store, &sighting, 0).resolves_at, Some(at(100)));
    assert_eq!(count(store, &goes_on(300), 290), Heard::Counted(0));
    assert_eq!(count(store, &goes_on(200), 190), Heard::Counted(0));
    assert_eq!(store.next_due("webhook_1").unwrap(), Some(at(300)));
    assert_eq!((all(store)[0].count, all(store)[0].last_at), (1, at(290)));
}

fn lists_are_a_tenant_s_filtered_and_paged(store: &Store) {
    begin(store);
    let mut made: Vec<AlertRecord> = (0..5)
        .map(|at| {
            let severity = if at == 0 { Severity::Critical } else { Severity::High };
            let sighting = Sighting { severity, ..sighting(&key("webhook_1", &format!("type_{at}")), 1..2, 0) };
            tell(store, &sighting, at)
        })
        .collect();
    made.reverse();
    assert_eq!(all(store), made);
    let list = |filter: AlertFilter, limit, offset| store.list_alerts(tenant(1), &filter, page(limit, offset)).unwrap();
    let second = list(AlertFilter::default(), 2, 2);
    assert_eq!((second.data.as_slice(), second.total), (&made[2..4], 5));
    store.acknowledge_alert(tenant(1), made[1].id, event(&made[1])).unwrap();
    let open = list(AlertFilter { state: Some(AlertState::Open), ..AlertFilter::default() }, 9, 0);
    assert_eq!((open.total, open.data.len()), (4, 4));
    let typed = AlertFilter { finding_type: Some("type_3".to_owned()), ..AlertFilter::default() };
    assert_eq!(list(typed, 9, 0).data[0].id, made[1].id);
    let severe = AlertFilter { severity: Some(Severity::Critical), ..AlertFilter::default() };
    assert_eq!(list(severe, 9, 0).data, made[4..]);
    assert_eq!(store.list_alerts(tenant(2), &AlertFilter::default(), page(9, 0)).unwrap().total, 0);
    // What concerns the gateway itself is the default tenant's, whether it has begun or not.
    let own = AlertKey { tenant: TenantId::DEFAULT, ..key("webhook_1", "breaker_open") };
    tell(store, &sighting(&own, 1..2, 0), 0);
    assert_eq!(store.list_alerts(TenantId::DEFAULT, &AlertFilter::default(), page(9, 0)).unwrap().total, 1);
}

fn alerts_forget_a_trace_that_is_deleted_and_go_with_their_tenant(store: &Store) {
    let span = begin(store);
    let key = key("webhook_1", "jailbreak");
    let sighting = Sighting { place: Some((span.trace_id, span.span_id)), ..sighting(&key, 1..5, 0) };
    let alert = tell(store, &sighting, 0);
    assert_eq!((alert.trace_id, alert.span_id), (Some(span.trace_id), Some(span.span_id)));
    assert!(store.delete_trace(tenant(1), span.trace_id, event(&alert)).unwrap());
    assert_eq!((all(store)[0].trace_id, all(store)[0].span_id), (None, None));
    store.delete_tenant_data(tenant(1)).unwrap();
    assert_eq!(all(store), []);
    assert_eq!(store.claim_due("webhook_1", by(1, 9 * COOLDOWN), 9).unwrap(), [], "nobody is told of it");
    assert_eq!(store.next_due("webhook_1").unwrap(), None);
    assert_eq!(store.acknowledge_alert(tenant(1), alert.id, event(&alert)).unwrap(), None);
    let now = Timestamp::now();
    store.append(Box::new(SpanRecord { start_time: now, end_time: now, ..span })).unwrap();
    assert!(store.flush(PATIENCE));
    assert_eq!(count(store, &sighting, 1), Heard::Due, "the tenant begins anew");
}

fn alerts_past_their_age_go_and_the_others_stay(store: &Store) {
    let (now, day) = (Timestamp::now(), 86_400_000_000);
    let fresh = || Box::new(SpanRecord { tenant_id: tenant(1), start_time: now, end_time: now, ..span(5) });
    store.append(fresh()).unwrap();
    assert!(store.flush(PATIENCE));
    let named = |name: &str, days: i64| {
        let made = now.micros() - days * day;
        tell(store, &sighting(&key("webhook_1", name), 1..2, made), made);
    };
    // More than go in one turn.
    (0..50).for_each(|at| named(&format!("old_{at}"), 3));
    named("young", 1);
    // What it is about goes on: its first finding is old, and its last one is not.
    named("lasting", 3);
    assert!(matches!(count(store, &sighting(&key("webhook_1", "lasting"), 2..3, now.micros()), 0), Heard::Counted(1)));
    assert_eq!(all(store).len(), 52);
    store.set_retention(Retention { max_age: Some(Duration::from_secs(2 * 86_400)), ..Retention::default() });
    store.append(fresh()).unwrap();
    wait_for("the old ones are gone", || all(store).len() <= 2);
    let mut left: Vec<String> = all(store).into_iter().map(|alert| alert.finding_type).collect();
    left.sort();
    assert_eq!(left, ["lasting", "young"]);
}

fn a_tenant_s_alerts_are_bounded_and_those_nobody_waits_for_make_room(store: &Store) {
    begin(store);
    for at in 0..1_000 {
        tell(store, &sighting(&key("webhook_1", &format!("type_{at}")), 1..2, 0), 0);
    }
    let next = sighting(&key("webhook_1", "one_more"), 1..2, 0);
    assert_eq!(store.claim_alert(next.clone(), by(1, 5)).unwrap(), Claim::NoRoom, "all are within their cooldown");
    let held = count(store, &sighting(&key("webhook_1", "type_0"), 2..3, 0), 5);
    assert_eq!(held, Heard::Counted(1));
    assert_eq!(store.claim_alert(next, by(1, COOLDOWN)).unwrap(), Claim::Granted(None));
    let left = all(store);
    assert!(left.len() < 1_000 && left.last().unwrap().finding_type == "type_0", "its summary is still to come");
}
