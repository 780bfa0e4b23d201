//! Shows labelled texts as a learned detector would see them: folded, with what encoded words in them say, and beside it what
//! the rules find. `inference/train/prepare.py` runs it, so that training and use share one reader.
//!
//! One JSON object per line in (`{"text", "role"}` and whatever else), one per line out: the same with `folded`, `decoded`
//! and `rules`, the worst severity (0 to 4) of what the rules call an order, or null, and `signals`, what fusion hears of them.

use std::error::Error;
use std::io::{BufRead as _, BufWriter, Write as _};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use weir_config::vocab::TenantId;
use weir_inference::{
    Analyser, Call, CostClass, Detector, Found, Job, Later, Needs, Part, PartKind, PlanSettings, PoolOptions, Signals,
    Text, Tuning, Turn, Work, WorkerPool,
};

const PATIENCE: Duration = Duration::from_secs(600);
/// Types that say nothing about an order.
const DATA_TYPES: [&str; 4] = ["pii_detected", "secret_leakage", "analysis_timeout", "analysis_truncated"];

/// Keeps what it is shown.
#[derive(Debug, Default)]
struct Eye(Mutex<(String, Vec<String>)>);

impl Detector for Eye {
    fn name(&self) -> &'static str {
        "eye"
    }

    fn cost(&self) -> CostClass {
        CostClass::Pool
    }

    fn needs(&self) -> Needs {
        Needs { folded: true, decoded: true, ..Needs::default() }
    }

    fn look(&self, text: &Text<'_>, _tuning: &Tuning, _found: &mut Found<'_>) {
        let plain = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let decoded = text.decoded().iter().map(|decoded| plain(&decoded.text)).collect();
        if let Ok(mut seen) = self.0.lock() {
            *seen = (plain(text.folded()), decoded);
        }
    }
}

/// Says when the pool is through with a text.
struct Ask(Box<Later>, Sender<()>);

impl Work for Ask {
    fn run(self: Box<Self>, _turn: Turn<'_>) {
        self.1.send(()).unwrap_or_default();
    }

    fn rest(&self) -> Option<&Later> {
        Some(&self.0)
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let eye = Arc::new(Eye::default());
    let analyser = Arc::new(Analyser::with(vec![eye.clone()])?.without_memory());
    let plan = Arc::new(analyser.plan(&PlanSettings::default()));
    let options = PoolOptions {
        threads: 1,
        queue_jobs: 4,
        queue_bytes: 1 << 26,
        several: false,
        batch_jobs: 1,
        batch_wait: Duration::ZERO,
    };
    let pool = WorkerPool::start(options, Arc::clone(&analyser))?;
    let mut scratch = analyser.scratch();
    let mut out = BufWriter::new(std::io::stdout().lock());
    for line in std::io::stdin().lock().lines() {
        let mut row: Value = serde_json::from_str(&line?)?;
        let text = row["text"].as_str().unwrap_or_default().to_owned();
        let kind = if row["role"] == "tool" { PartKind::Tool } else { PartKind::User };
        let mut hits = Vec::new();
        let mut ran = analyser.analyse(&mut scratch, &[Part { text: &text, kind }], &Call::of(&plan), &mut hits);
        if let Some(rest) = ran.later.take() {
            let (tell, told) = channel();
            let (bytes, deadline) = (rest.bytes(), Instant::now() + PATIENCE);
            let work = Box::new(Ask(rest, tell));
            let lane = weir_inference::Lane::of(bytes);
            let job = Job { lane, tenant: TenantId::DEFAULT, bytes, deadline, work };
            pool.submit(job).map_err(|_| "the pool is full")?;
            told.recv_timeout(PATIENCE)?;
        }
        let orders = hits.iter().filter(|hit| !DATA_TYPES.contains(&&*hit.finding.finding_type));
        let worst = orders.map(|hit| hit.finding.severity as u8).max();
        let (folded, decoded) = eye.0.lock().map(|mut seen| std::mem::take(&mut *seen)).unwrap_or_default();
        let Some(fields) = row.as_object_mut() else { return Err("a line is no object".into()) };
        fields.remove("text");
        fields.insert("folded".to_owned(), json!(folded));
        fields.insert("decoded".to_owned(), json!(decoded));
        fields.insert("rules".to_owned(), json!(worst));
        let Signals { high, medium, low, signs, encoded, .. } = Signals::of(&hits, kind, None);
        let signals = json!({"high": high, "medium": medium, "low": low, "signs": signs, "encoded": encoded});
        fields.insert("signals".to_owned(), signals);
        writeln!(out, "{row}")?;
    }
    Ok(())
}
