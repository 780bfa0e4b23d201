//! Spans with made-up text for the examples: the same ones in every run.

use weir_config::vocab::{SpanId, TenantId, Timestamp, TraceId};
use weir_storage::record::SpanRecord;
use weir_storage::{BatchOutcome, StoreObserver};

/// Watches nothing.
#[allow(dead_code, reason = "those of the examples that share this file need it that open a store")]
pub(crate) struct Unobserved;

impl StoreObserver for Unobserved {
    fn batch(&self, _rows: usize, _took: std::time::Duration, _outcome: BatchOutcome) {}
    fn read(&self, _operation: &'static str, _took: std::time::Duration, _ok: bool) {}
}

/// Words by falling frequency, drawn unevenly: close to the letter statistics of prose, but without its phrases.
const WORDS: &str = "the of and to a in is that for it as with be on this are by not or have an they you which from can \
    when what we their will would there more one about other into some than its time these has how may like two only \
    should new could people such use also after way first over where many system data work make each most between \
    because before model through during report service without customer question number please write explain example \
    following change result support request information different important summary process include compare account \
    function return value error message order product history review schedule language describe argument";

/// A small fixed-seed generator: every run stores the same texts.
struct Dice(u64);

impl Dice {
    fn roll(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn text(&mut self, words: &[&str], bytes: usize) -> String {
        let mut text = String::with_capacity(bytes + 16);
        while text.len() < bytes {
            let spread = self.roll() % words.len() as u64 + 1;
            let at = self.roll() % spread;
            text.push_str(words.get(at as usize).copied().unwrap_or("the"));
            text.push_str(if self.roll().is_multiple_of(12) { ". " } else { " " });
        }
        text.truncate(bytes);
        text
    }
}

/// `count` spans, 131 microseconds apart.
#[allow(dead_code, reason = "those of the examples that share this file need it that hold all of them")]
pub(crate) fn spans(count: usize) -> Vec<SpanRecord> {
    each_span(count).collect()
}

/// The same, one at a time. `CORPUS_START_US` sets when the first one began, for those who look at them as of today.
pub(crate) fn each_span(count: usize) -> impl Iterator<Item = SpanRecord> {
    let words: Vec<&str> = WORDS.split_whitespace().collect();
    let mut dice = Dice(0x9e37_79b9_7f4a_7c15);
    let start =
        std::env::var("CORPUS_START_US").ok().and_then(|text| text.parse().ok()).unwrap_or(1_760_000_000_000_000);
    (0..count).map(move |at| span(&mut dice, &words, Timestamp::from_micros(start + at as i64 * 131)))
}

/// What a plain chat completion leaves behind.
fn span(dice: &mut Dice, words: &[&str], start: Timestamp) -> SpanRecord {
    let duration_us = 400_000 + (dice.roll() % 3_000_000).cast_signed();
    let trace_id = TraceId::fresh();
    SpanRecord {
        trace_id,
        span_id: SpanId::of_lone(trace_id),
        parent_span_id: None,
        tenant_id: TenantId::DEFAULT,
        agent_id: None,
        session_id: None,
        client: None,
        operation_name: "chat_completion".into(),
        start_time: start,
        end_time: Timestamp::from_micros(start.micros() + duration_us),
        provider: "openai".into(),
        model: Some("gpt-4o-mini".to_owned()),
        streaming: false,
        prompt: Some(dice.text(words, 800)),
        response: Some(dice.text(words, 500)),
        prompt_tokens: Some(180 + dice.roll() % 40),
        completion_tokens: Some(100 + dice.roll() % 40),
        total_tokens: Some(300),
        cached_tokens: Some(0),
        reasoning_tokens: None,
        tokens_estimated: false,
        time_to_first_token_ms: Some((duration_us - 900) as f64 / 1e3),
        duration_ms: duration_us as f64 / 1e3,
        overhead_us: Some(20 + dice.roll() % 30),
        status_code: Some(200),
        error_type: None,
        error_message: None,
        finish_reason: Some("stop".to_owned()),
        estimated_cost_usd: Some(0.000_087_3),
        security_score: Some(0),
        security_findings: Vec::new(),
        enforcement: "none".into(),
        detectors: vec!["rules".into(), "jailbreak".into(), "pii".into(), "secrets".into()],
        tags: std::collections::BTreeMap::new(),
        events: Vec::new(),
        agent_actions: Vec::new(),
        parts: Vec::new(),
        frame: None,
        attributes: weir_storage::record::Attributes::default(),
        prompt_cache: None,
    }
}

/// Further texts of about so many bytes, none like another.
#[allow(dead_code, reason = "one of the examples that share this file needs it")]
pub(crate) fn texts() -> impl FnMut(usize) -> String {
    let words: Vec<&str> = WORDS.split_whitespace().collect();
    let mut dice = Dice(0x5851_f42d_4c95_7f2d);
    move |bytes| dice.text(&words, bytes)
}
