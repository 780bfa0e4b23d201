//! Texts that spans share: stored once, read as they were, and taken out when nobody names them any more.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::Path;
use std::time::Duration;

use proptest::collection::vec;
use proptest::option::of;
use proptest::prelude::*;
use rusqlite::Connection;
use tempfile::TempDir;
use weir_config::vocab::frame::{Frame, TEXT};
use weir_config::vocab::part::{PartForm, PartKind, PartRecord, PartSide, PartTool};
use weir_config::vocab::{Finding, Severity};
use weir_storage::record::SpanRecord;
use weir_storage::{Backend, Retention, SpanLog as _, Store};

use crate::support::{PATIENCE, ROOMY, file, on_both, open, options, put, span, tenant, wait_for};

/// A text of about so many bytes that no other seed gives.
fn words(seed: usize, bytes: usize) -> String {
    let word =
        |at: usize| format!("w{:x} ", (seed + 1).wrapping_mul(0x9e37_79b9).wrapping_add(at * 0x85eb_ca6b) % 9_973);
    (0..)
        .map(word)
        .scan(0, |len, word| {
            *len += word.len();
            (*len < bytes).then_some(word)
        })
        .collect()
}

/// A record whose texts are these, in wire order.
struct Told {
    prompt: Vec<String>,
    response: Vec<String>,
    parts: Vec<PartRecord>,
}

impl Told {
    fn new() -> Self {
        Self { prompt: Vec::new(), response: Vec::new(), parts: Vec::new() }
    }

    fn say(&mut self, side: PartSide, kind: PartKind, message: Option<u32>, text: &str) {
        let all = if side == PartSide::Request { &mut self.prompt } else { &mut self.response };
        let start = all.iter().map(|text| text.len() + 1).sum::<usize>() as u32;
        all.push(text.to_owned());
        let name = |kind| match kind {
            PartKind::Tool | PartKind::ToolCall | PartKind::ToolDefinition => Some(Box::new(PartTool {
                name: Some("read_file".to_owned()),
                id: message.map(|at| format!("call_{at}")),
            })),
            _ => None,
        };
        self.parts.push(PartRecord {
            side,
            kind,
            form: PartForm::Text,
            role: (kind == PartKind::User).then_some("user".into()),
            message,
            text: Some(start..start + text.len() as u32),
            raw: None,
            tool: name(kind),
        });
    }

    fn span(self, start_us: i64, of: u8) -> SpanRecord {
        SpanRecord {
            tenant_id: tenant(of),
            prompt: Some(self.prompt.join("\n")),
            response: Some(self.response.join("\n")),
            parts: self.parts,
            ..span(start_us)
        }
    }
}

/// What a body with these texts could be beside them.
fn framed(parts: &[PartRecord]) -> Box<Frame> {
    let mut frame = Frame { json: "[".to_owned(), texts: Vec::new() };
    for part in parts.iter().filter(|part| part.side == PartSide::Request) {
        let Some(text) = &part.text else { continue };
        frame.json.push_str(&format!("{{\"kind\":\"{:?}\",\"len\":{},\"text\":{TEXT}}},", part.kind, text.len()));
        frame.texts.push(text.clone());
    }
    frame.json.push(']');
    Box::new(frame)
}

/// The call of an agent's `turn`: instructions, tools, all that was said before, and the answer.
pub(crate) fn turn(of: u8, turn: usize) -> SpanRecord {
    use PartKind::{Assistant, Output, System, Tool, ToolCall, ToolDefinition, User};
    use PartSide::{Request, Response};
    let mut told = Told::new();
    told.say(Request, System, None, &words(1, 6_000));
    told.say(Request, User, Some(0), &words(2, 300));
    for at in 0..turn {
        told.say(Request, Assistant, Some(1 + 2 * at as u32), &words(1_000 + at, 120));
        told.say(Request, ToolCall, Some(1 + 2 * at as u32), &words(2_000 + at, 90));
        told.say(Request, Tool, Some(2 + 2 * at as u32), &words(3_000 + at, 1_400));
    }
    for tool in 0..20 {
        told.say(Request, ToolDefinition, None, &words(100 + tool, 1_200));
    }
    told.say(Response, Output, Some(0), &words(1_000 + turn, 120));
    told.say(Response, ToolCall, Some(0), &words(2_000 + turn, 90));
    let mut span = told.span(1_000 + turn as i64, of);
    span.frame = Some(framed(&span.parts));
    let mut finding = Finding::new("pii", Severity::Low, 0.5, "pii", "an address");
    finding.part = Some(2);
    finding.detected_at = span.start_time;
    span.security_findings.push(finding);
    span
}

/// How many shared texts the file holds, and what all they and the spans take.
pub(crate) fn held(path: &Path) -> (i64, i64) {
    let conn = Connection::open(path).unwrap();
    let texts: i64 = conn.query_row("SELECT count(*) FROM texts", [], |row| row.get(0)).unwrap();
    let sql = "SELECT (SELECT ifnull(sum(length(body)), 0) FROM text_bodies) + (SELECT ifnull(sum(length(body)), 0) FROM spans)";
    (texts, conn.query_row(sql, [], |row| row.get(0)).unwrap())
}

/// Every text is named as often as it counts, is there, and is in its tenant's sum.
pub(crate) fn assert_whole(path: &Path) {
    let conn = Connection::open(path).unwrap();
    let number = |sql: &str| -> i64 { conn.query_row(sql, [], |row| row.get(0)).unwrap() };
    assert_eq!(
        number("SELECT count(*) FROM texts WHERE id NOT IN (SELECT id FROM text_bodies)"),
        0,
        "a text is missing"
    );
    assert_eq!(
        number("SELECT count(*) FROM text_bodies WHERE id NOT IN (SELECT id FROM texts)"),
        0,
        "a text nobody counts"
    );
    let astray = "SELECT count(*) FROM (SELECT tenant, sum(bytes) AS bytes FROM texts GROUP BY tenant) t \
        LEFT JOIN text_sums s USING (tenant) WHERE ifnull(s.bytes, 0) <> t.bytes";
    assert_eq!(number(astray), 0, "the sums agree");
}

#[test]
fn a_conversation_is_stored_once_and_every_turn_reads_as_it_was() {
    on_both(|store| {
        let turns: Vec<SpanRecord> = (0..20).map(|at| turn(1, at)).collect();
        put(store, turns.iter().cloned());
        // A replay names nothing twice.
        put(store, turns.iter().cloned());
        for span in &turns {
            assert_eq!(store.span(tenant(1), span.span_id).unwrap().as_ref(), Some(span));
        }
    });
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("service.db");
    let store = open(&path);
    put(&store, [turn(1, 0)]);
    let first = held(&path).1;
    put(&store, (1..20).map(|at| turn(1, at)));
    let (texts, bytes) = held(&path);
    // Each turn brings 1,600 bytes that are new, and holds the end of its frame itself.
    assert!(bytes < first + 19 * 2_000, "{first} bytes for the first turn, {bytes} for all");
    assert!(store.close(PATIENCE));
    // Another process knows them, too.
    let store = open(&path);
    put(&store, (0..20).map(|at| turn(1, at)));
    assert_eq!(held(&path).0, texts);
    assert_whole(&path);
    put(&store, [turn(1, 20)]);
    // The last leaf anew, two for what is new, and the branches above them: how many hangs on the tenant's key.
    assert!(held(&path).0 <= texts + 6, "{} texts after {texts}", held(&path).0);
    assert!(store.close(PATIENCE));
}

#[test]
fn spans_that_come_together_count_for_each_text_they_name() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("service.db");
    let store = open(&path);
    let named = || -> i64 {
        let conn = Connection::open(&path).unwrap();
        conn.query_row("SELECT sum(refs) FROM texts", [], |row| row.get(0)).unwrap()
    };
    put(&store, [turn(1, 5)]);
    let once = named();
    put(&store, [turn(1, 5)]);
    let each = named() - once;
    assert!(each > 1, "a span names {each} texts");
    // Those that are refused, because they are there, count for nothing.
    let together: Vec<SpanRecord> = (0..10).map(|_| turn(1, 5)).collect();
    put(&store, together.iter().chain(&together).cloned());
    assert_eq!(named(), once + 11 * each);
    assert_whole(&path);
    assert!(store.close(PATIENCE));
}

#[test]
fn a_text_on_its_own_is_shared_from_its_second_coming_on() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("service.db");
    let store = open(&path);
    let alone = |at: i64| SpanRecord { prompt: Some(words(7, 8_000)), ..span(at) };
    put(&store, [alone(1)]);
    assert_eq!(held(&path).0, 0);
    put(&store, [alone(2)]);
    let (texts, bytes) = held(&path);
    assert_eq!(texts, 1);
    let spans: Vec<SpanRecord> = (3..30).map(alone).collect();
    put(&store, spans.iter().cloned());
    assert!(held(&path).1 < bytes + 27 * 200);
    for span in spans {
        assert_eq!(store.span(span.tenant_id, span.span_id).unwrap().as_ref(), Some(&span));
    }
    assert!(store.close(PATIENCE));
}

#[test]
fn texts_of_two_tenants_never_meet() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("service.db");
    let store = open(&path);
    put(&store, [turn(1, 3)]);
    let one = held(&path).0;
    put(&store, [turn(2, 3)]);
    let conn = Connection::open(&path).unwrap();
    let names: i64 = conn.query_row("SELECT count(DISTINCT name_a) FROM texts", [], |row| row.get(0)).unwrap();
    assert!(names > one && names == held(&path).0, "the same text has another name: {names} of {one} each");
    assert!(store.close(PATIENCE));
}

#[test]
fn what_nobody_names_goes_and_what_is_named_stays() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("service.db");
    let store = open(&path);
    let now = weir_config::vocab::Timestamp::now().micros();
    let at = |start_us: i64, mut span: SpanRecord| {
        span.start_time = weir_config::vocab::Timestamp::from_micros(start_us);
        span
    };
    let old: Vec<_> = (0..10).map(|number| at(1_000 + number, turn(1, number as usize))).collect();
    let new = at(now, turn(1, 9));
    let other = at(now, turn(2, 4));
    put(&store, old.into_iter().chain([new.clone(), other.clone()]));
    let before = held(&path).0;
    store.set_retention(Retention { max_age: Some(Duration::from_secs(3_600)), ..Retention::default() });
    wait_for("the old turns to go", || crate::support::total(&store, tenant(1)) == 1);
    wait_for("their texts to go", || held(&path).0 < before);
    for kept in [&new, &other] {
        let found = store.span(kept.tenant_id, kept.span_id).unwrap().unwrap();
        assert_eq!((&found.prompt, &found.parts), (&kept.prompt, &kept.parts));
    }
    assert_whole(&path);
    store.delete_tenant_data(tenant(1)).unwrap();
    let theirs = "SELECT count(*) FROM texts WHERE tenant = (SELECT id FROM tenants WHERE length(uuid) = 16)";
    let conn = Connection::open(&path).unwrap();
    wait_for("all but the other's to go", || {
        held(&path).0 == conn.query_row(theirs, [], |row| row.get::<_, i64>(0)).unwrap()
    });
    assert!(store.span(tenant(2), other.span_id).unwrap().is_some_and(|found| found.prompt == other.prompt));
    store.delete_tenant_data(tenant(2)).unwrap();
    wait_for("the last to go", || held(&path) == (0, 0));
    let number = |sql: &str| -> i64 { conn.query_row(sql, [], |row| row.get(0)).unwrap() };
    wait_for("the sums to go", || number("SELECT count(*) FROM text_sums") == 0);
    assert_eq!(number("SELECT count(*) FROM tenants WHERE text_key IS NOT NULL"), 0);
    assert!(store.close(PATIENCE));
}

#[test]
fn a_text_that_was_taken_out_is_put_in_anew_whoever_took_it_out() {
    let taken_out: [fn(&Store, &Path); 2] = [
        |store, _| store.set_retention(Retention { max_age: Some(Duration::from_secs(3_600)), ..Retention::default() }),
        |_, path| {
            let sql = "DELETE FROM spans; DELETE FROM texts; DELETE FROM text_bodies; DELETE FROM text_sums";
            Connection::open(path).unwrap().execute_batch(sql).unwrap();
        },
    ];
    for take_out in taken_out {
        let folder = TempDir::new().unwrap();
        let path = folder.path().join("service.db");
        let store = open(&path);
        put(&store, [turn(1, 3), turn(1, 4)]);
        take_out(&store, &path);
        wait_for("the texts to go", || held(&path) == (0, 0));
        let now = weir_config::vocab::Timestamp::now();
        // Other texts get their places.
        let mut other = Told::new();
        (0..40).for_each(|tool| {
            other.say(PartSide::Request, PartKind::ToolDefinition, None, &words(500 + tool, 1_200));
        });
        let anew = SpanRecord { start_time: now, ..turn(1, 4) };
        put(&store, [SpanRecord { start_time: now, ..other.span(0, 1) }]);
        put(&store, [anew.clone()]);
        let found = store.span(tenant(1), anew.span_id).unwrap().unwrap();
        assert_eq!((&found.prompt, &found.parts), (&anew.prompt, &anew.parts));
        assert!(held(&path).0 > 0, "they are shared again");
        assert_whole(&path);
        assert!(store.close(PATIENCE));
    }
}

#[test]
fn a_database_over_its_bound_gives_shared_texts_back() {
    let store = Store::open(options(Backend::Memory { max_bytes: 4 * 1024 * 1024 })).unwrap();
    for number in 0..400 {
        let mut told = Told::new();
        told.say(PartSide::Request, PartKind::System, None, &words(number, 40_000));
        put(&store, [told.span(number as i64, 1)]);
    }
    let left = crate::support::total(&store, tenant(1));
    assert!((20..400).contains(&left), "{left} spans fit");
    assert!(store.close(PATIENCE));
}

/// Whether a text stands anywhere in the store's files.
pub(crate) fn stands(folder: &Path, text: &[u8]) -> bool {
    how_many_stand(folder, &[text]) > 0
}

/// How many of these texts stand anywhere in the store's files, each of which is read once.
pub(crate) fn how_many_stand(folder: &Path, texts: &[impl AsRef<[u8]>]) -> usize {
    let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let files: Vec<Vec<u8>> = files.map(|file| std::fs::read(file).unwrap()).collect();
    let beginnings = Beginnings::of(texts);
    let mut found: HashSet<&[u8]> = HashSet::new();
    for bytes in &files {
        for (at, eight) in bytes.windows(8).enumerate() {
            for text in beginnings.at(eight).iter().filter(|text| bytes[at..].starts_with(text)) {
                found.insert(text);
            }
        }
    }
    texts.iter().filter(|text| found.contains(text.as_ref())).count()
}

/// Texts by their first eight bytes, so that one pass over a file finds any number of them.
struct Beginnings<'a> {
    /// Whether there is one that begins like this, by the low bits of a product.
    maybe: Vec<bool>,
    texts: HashMap<&'a [u8], Vec<&'a [u8]>>,
}

impl<'a> Beginnings<'a> {
    fn of(texts: &'a [impl AsRef<[u8]>]) -> Self {
        let mut all = Self { maybe: vec![false; 1 << 16], texts: HashMap::new() };
        for text in texts.iter().map(AsRef::as_ref) {
            all.maybe[Self::place(&text[..8])] = true;
            all.texts.entry(&text[..8]).or_default().push(text);
        }
        all
    }

    fn place(eight: &[u8]) -> usize {
        let number = u64::from_le_bytes(eight.try_into().unwrap());
        (number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 48) as usize
    }

    fn at(&self, eight: &[u8]) -> &[&'a [u8]] {
        if !self.maybe[Self::place(eight)] {
            return &[];
        }
        self.texts.get(eight).map_or(&[], Vec::as_slice)
    }
}

/// A text that no code makes shorter, so that it can be looked for in the file.
pub(crate) fn incompressible(seed: u64, bytes: usize) -> String {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut letter = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        char::from_u32(0x4e00 + (state >> 20) as u32 % 20_000).unwrap()
    };
    (0..bytes / 3).map(|_| letter()).collect()
}

/// A turn whose texts can be looked for: what all turns say, and what this one alone says.
pub(crate) fn marked(of: u8, common: u64, own: u64, start_us: i64) -> SpanRecord {
    let mut told = Told::new();
    told.say(PartSide::Request, PartKind::System, None, &incompressible(common, 3_000));
    told.say(PartSide::Request, PartKind::Assistant, Some(0), &incompressible(own, 1_500));
    // Too short to be shared: it stands in the span.
    told.say(PartSide::Request, PartKind::User, Some(1), &incompressible(own + 1, 120));
    told.span(start_us, of)
}

/// What the rows of the file hold, by table and number.
pub(crate) fn bodies(path: &Path) -> BTreeMap<(&'static str, i64), Vec<u8>> {
    let conn = Connection::open(path).unwrap();
    let mut all = BTreeMap::new();
    for table in ["spans", "actions", "text_bodies"] {
        let mut statement = conn.prepare(&format!("SELECT id, body FROM {table}")).unwrap();
        let rows = statement.query_map([], |row| Ok(((table, row.get(0)?), row.get(1)?))).unwrap();
        all.extend(rows.map(Result::unwrap));
    }
    all
}

/// How many of what was there before and is not there now can still be found in the store's files, and how many there were.
pub(crate) fn left_of(before: &BTreeMap<(&'static str, i64), Vec<u8>>, path: &Path) -> (usize, usize) {
    let now = bodies(path);
    let gone = before.iter().filter(|(row, body)| now.get(row) != Some(body) && body.len() > 60);
    // A piece from the middle, short enough to lie within a page.
    let pieces: Vec<&[u8]> = gone.map(|(_, body)| &body[body.len() / 2..][..24]).collect();
    (how_many_stand(path.parent().unwrap(), &pieces), pieces.len())
}

#[test]
fn a_deleted_trace_leaves_the_file_and_what_others_say_too_stays() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("service.db");
    let store = open(&path);
    let (gone, kept) = (marked(1, 1, 10, 1), marked(1, 1, 20, 2));
    put(&store, [gone.clone(), kept.clone()]);
    let action = weir_storage::record::AgentAction {
        arguments: Some(incompressible(30, 900)),
        ..crate::ledger::action("read_file", true)
    };
    store.add_action(tenant(1), gone.trace_id, None, action, vec![]).unwrap();
    let before = bodies(&path);
    // Where a text is divided hangs on its tenant's key; a body of a few bytes tells nothing.
    let long = before.values().filter(|body| body.len() > 60);
    let there = long.filter(|body| stands(folder.path(), &body[body.len() / 2..][..24])).count();
    assert!(before.len() >= 6 && there >= 5, "{there} of {} are found while they are there", before.len());
    let by = crate::ledger::event("trace.delete", Some(tenant(1)));
    assert!(!store.delete_trace(tenant(2), gone.trace_id, by.clone()).unwrap(), "another tenant's is none");
    assert!(store.delete_trace(tenant(1), gone.trace_id, by.clone()).unwrap());
    assert_eq!(store.trace(tenant(1), gone.trace_id).unwrap(), None);
    wait_for("its texts to leave the files", || matches!(left_of(&before, &path), (0, 3..)));
    assert_eq!(store.span(tenant(1), kept.span_id).unwrap().unwrap().prompt, kept.prompt);
    assert!(!store.delete_trace(tenant(1), gone.trace_id, by).unwrap());
    let lines = weir_storage::AuditLog::list_audit(&store, Some(tenant(1)), crate::support::page(9, 0)).unwrap();
    assert_eq!(lines.total, 1, "it is written down once");
    assert!(store.close(PATIENCE));
    assert_whole(&path);
}

#[test]
fn a_long_trace_goes_whole() {
    on_both(|store| {
        let spans: Vec<SpanRecord> =
            (0..700).map(|at| SpanRecord { trace_id: turn(1, 0).trace_id, ..span(at) }).collect();
        let trace_id = spans[0].trace_id;
        put(store, spans.into_iter().map(|span| SpanRecord { trace_id, ..span }).chain([span(9_000)]));
        let by = crate::ledger::event("trace.delete", None);
        assert!(store.delete_trace(span(1).tenant_id, trace_id, by).unwrap());
        assert_eq!(crate::support::total(store, span(1).tenant_id), 1);
    });
}

#[test]
fn texts_go_before_their_spans() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("service.db");
    let store = open(&path);
    let now = weir_config::vocab::Timestamp::now().micros();
    let hours = |hours: i64| now - hours * 3_600_000_000;
    let mut old: Vec<SpanRecord> = (0..300).map(|at| marked(1, 1, 1_000 + 10 * at, hours(30) + at as i64)).collect();
    let mut finding = Finding::new("secret", Severity::High, 0.9, "secrets", "a key");
    finding.evidence = incompressible(3, 90);
    old[0].security_findings.push(finding);
    let young = marked(1, 1, 20, hours(1));
    put(&store, old.iter().cloned().chain([young.clone()]));
    let reported = weir_storage::record::AgentAction {
        arguments: Some(incompressible(30, 900)),
        ..crate::ledger::action("read_file", true)
    };
    store.add_action(tenant(1), old[0].trace_id, None, reported.clone(), vec![]).unwrap();
    let before = bodies(&path);
    let age = |hours: u64| Retention { text_max_age: Some(Duration::from_secs(hours * 3_600)), ..Retention::default() };
    store.set_retention(age(24));
    wait_for("the old texts to go", || left_of(&before, &path) == (0, 601));
    let found = store.span(tenant(1), old[0].span_id).unwrap().unwrap();
    assert_eq!((&found.prompt, &found.response, found.parts.len()), (&None, &None, 0));
    assert_eq!(found.security_findings[0].evidence, "");
    assert_eq!(found.agent_actions[0].arguments, None);
    assert_eq!((found.tags["texts_removed"].as_str(), found.total_tokens), ("retention", old[0].total_tokens));
    let kept = store.span(tenant(1), young.span_id).unwrap().unwrap();
    assert_eq!((kept.prompt, kept.parts), (young.prompt.clone(), young.parts.clone()));
    // What comes late has none to begin with.
    let late = marked(1, 1, 40, hours(29));
    store.insert(vec![late.clone()]).unwrap();
    assert_eq!(store.span(tenant(1), late.span_id).unwrap().unwrap().prompt, None);
    store.add_action(tenant(1), late.trace_id, None, reported, vec![]).unwrap();
    assert_eq!(store.span(tenant(1), late.span_id).unwrap().unwrap().agent_actions[0].arguments, None);
    // Lifted, it leaves what is there; set anew, it goes on.
    store.set_retention(Retention::default());
    let again = marked(1, 1, 50, hours(28));
    store.insert(vec![again.clone()]).unwrap();
    assert_eq!(store.span(tenant(1), again.span_id).unwrap().unwrap().prompt, again.prompt);
    assert!(store.close(PATIENCE));
    let store = open(&path);
    store.set_retention(age(24));
    wait_for("the late text to go", || store.span(tenant(1), again.span_id).unwrap().unwrap().prompt.is_none());
    let stats = store.stats(tenant(1)).unwrap();
    assert_eq!((stats.total_spans, stats.total_findings), (303, 1));
    store.delete_tenant_data(tenant(1)).unwrap();
    wait_for("everything to go", || held(&path) == (0, 0));
    assert!(store.close(PATIENCE));
    assert_whole(&path);
}

fn part() -> impl Strategy<Value = (PartKind, PartForm, Option<u32>, Option<String>, Option<String>)> {
    let kinds = [
        PartKind::System,
        PartKind::User,
        PartKind::Assistant,
        PartKind::Tool,
        PartKind::ToolDefinition,
        PartKind::ToolCall,
        PartKind::Output,
    ];
    let forms = [PartForm::Text, PartForm::Reasoning, PartForm::Refusal, PartForm::File, PartForm::Credential];
    let text = prop_oneof!["[a-z\n]{0,20}", "(lorem ipsum, ){0,200}", ".{0,40}"];
    let role = prop_oneof![Just("user".to_owned()), "[a-z]{1,9}"];
    (
        proptest::sample::select(kinds.to_vec()),
        proptest::sample::select(forms.to_vec()),
        of(0u32..9),
        of(text),
        of(role),
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_conversation_survives(
        requests in vec(vec(part(), 0..12), 1..5), answer in vec(part(), 0..4), about in of(0u32..4),
    ) {
        let folder = TempDir::new().unwrap();
        for backend in [file(&folder.path().join("service.db")), Backend::Memory { max_bytes: ROOMY }] {
            let store = Store::open(options(backend)).unwrap();
            // Each is sent twice, with a further turn the second time.
            let spans: Vec<SpanRecord> = (0..requests.len() * 2).map(|at| {
                let mut told = Told::new();
                for (side, parts) in
                    requests.iter().take(at / 2 + 1).map(|parts| (PartSide::Request, parts)).chain([(PartSide::Response, &answer)])
                {
                    for (kind, form, message, text, role) in parts {
                        told.say(side, *kind, *message, text.as_deref().unwrap_or(""));
                        let last = told.parts.last_mut().unwrap();
                        (last.form, last.role) = (*form, role.clone().map(Into::into));
                        if text.is_none() {
                            last.text = None;
                            if side == PartSide::Request { &mut told.prompt } else { &mut told.response }.pop();
                        }
                    }
                }
                let (asked, answered) = (told.prompt.is_empty(), told.response.is_empty());
                let mut span = told.span(at as i64, 1);
                span.prompt = span.prompt.filter(|_| !asked);
                span.response = span.response.filter(|_| !answered);
                span.frame = (at % 2 == 0).then(|| framed(&span.parts));
                if let Some(about) = about.filter(|about| (*about as usize) < span.parts.len()) {
                    let mut finding = Finding::new("pii", Severity::Low, 0.5, "pii", "an address");
                    finding.detected_at = span.start_time;
                    finding.part = Some(about);
                    span.security_findings.push(finding);
                }
                span
            }).collect();
            put(&store, spans.iter().cloned());
            for span in &spans {
                let found = store.span(span.tenant_id, span.span_id).unwrap();
                prop_assert_eq!(found.as_ref(), Some(span));
            }
            prop_assert!(store.close(PATIENCE));
        }
    }
}
