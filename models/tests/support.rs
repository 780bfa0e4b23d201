//! Promise: a model that reads a text and a sentence, run by the real library, flags the sentences of an answer that the request
//! does not support, says how well each is supported, and is bounded in sentences and in time.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod made;

use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::time::{Duration, Instant};

use made::{Made, ORDERS, OVERLAP, Overlap};
use weir_config::vocab::{Severity, TenantId};
use weir_inference::{
    Analyser, Call, Hit, Job, Lane, Later, OperatingPoint, Part, PartKind, PlanSettings, PoolOptions, Seen, Turn, Work,
    WorkerPool,
};
use weir_models::{Loader, Models, Named, Options, Slot};

const LONG: Duration = Duration::from_secs(120);
const FACTS: &str = "The shop sells blue bicycles. Opening hours are nine until five on weekdays.";

struct Bench {
    analyser: Arc<Analyser>,
    pool: WorkerPool,
    models: Arc<Models>,
    _loader: Loader,
    _folder: tempfile::TempDir,
}

struct Ask(Box<Later>, Sender<Seen>);

impl Work for Ask {
    fn run(self: Box<Self>, turn: Turn<'_>) {
        let Turn::Seen(seen) = turn else { return };
        self.1.send(seen).unwrap();
    }

    fn rest(&self) -> Option<&Later> {
        Some(&self.0)
    }
}

impl Bench {
    fn new(write: impl FnOnce(&std::path::Path)) -> Self {
        let folder = tempfile::tempdir().unwrap();
        write(&folder.path().join("overlap"));
        let options =
            Options { runtime: Some(made::library()), cache: folder.path().to_owned(), threads: 1, fetch: None };
        let models = Models::new([(Slot::Hallucination, Named::Id("overlap".to_owned()))], options);
        let analyser = Arc::new(Analyser::with(models.detectors()).unwrap());
        let pool = PoolOptions {
            threads: 1,
            queue_jobs: 64,
            queue_bytes: 1 << 24,
            several: false,
            batch_jobs: 16,
            batch_wait: Duration::ZERO,
        };
        let pool = WorkerPool::start(pool, Arc::clone(&analyser)).unwrap();
        let (tell, told) = channel();
        let loader = models.start(&[Slot::Hallucination], move || tell.send(()).unwrap(), || {}).unwrap();
        told.recv_timeout(LONG).unwrap();
        Self { analyser, pool, models, _loader: loader, _folder: folder }
    }

    fn of(overlap: &Overlap<'_>) -> Self {
        let bench = Self::new(|folder| drop(overlap.write(folder)));
        assert_eq!(bench.models.states()[0].status, "loaded", "{:?}", bench.models.states());
        bench
    }

    fn seen(&self, settings: &PlanSettings<'_>, context: &str, answer: &str, time: Duration) -> Option<Seen> {
        let plan = Arc::new(self.analyser.plan(settings));
        let parts = [Part { text: answer, kind: PartKind::Output }];
        let ran = self.analyser.analyse(&mut self.analyser.scratch(), &parts, &Call::of(&plan), &mut Vec::new());
        let mut later = ran.later?;
        assert!(later.wants_context());
        later.give_context(context.into());
        let deadline = Instant::now() + time;
        later.deadline = Some(deadline);
        let (tell, told) = channel();
        let (bytes, deadline) = (later.bytes(), deadline + LONG);
        let work = Box::new(Ask(later, tell));
        self.pool.submit(Job { lane: Lane::Model, tenant: TenantId::DEFAULT, bytes, deadline, work }).unwrap();
        Some(told.recv_timeout(LONG).unwrap())
    }

    fn hits(&self, context: &str, answer: &str) -> Vec<Hit> {
        self.seen(&PlanSettings::default(), context, answer, LONG).unwrap().hits
    }
}

#[test]
fn a_sentence_without_support_is_flagged_with_the_scores_of_all() {
    let bench = Bench::of(&OVERLAP);
    let answer = "The shop sells blue bicycles. We accept gold coins only. Is that all?";
    let hits = bench.hits(FACTS, answer);
    let found = &hits[0].finding;
    assert_eq!((&*found.finding_type, &*found.detector, hits.len()), ("output_hallucination", "hallucination", 1));
    assert_eq!((found.severity, &*found.evidence), (Severity::Medium, "We accept gold coins only."));
    assert!(found.confidence > 0.9, "{}", found.confidence);
    assert_eq!((&*found.metadata["judged_sentences"], &*found.metadata["flagged_sentences"]), ("2", "1"));
    let scores: Vec<(usize, usize, f64)> = serde_json::from_str(&found.metadata["sentence_scores"]).unwrap();
    let places: Vec<&str> = scores.iter().map(|(start, end, _)| &answer[*start..*end]).collect();
    assert_eq!(places, ["The shop sells blue bicycles.", "We accept gold coins only."]);
    assert!(scores[0].2 > 0.9 && scores[1].2 < 0.1, "{scores:?}");
    assert!(bench.hits(FACTS, "The shop sells blue bicycles.").is_empty());
    // Without anything to hold it against nothing is said.
    assert!(bench.hits("", answer).is_empty() && bench.hits(" \n", answer).is_empty());
}

#[test]
fn what_supports_a_sentence_may_stand_anywhere_in_a_long_text() {
    let bench = Bench::of(&Overlap { positions: 48, ..OVERLAP });
    for (before, after) in [(0, 4_000), (2_000, 2_000), (4_000, 0)] {
        let (before, after) = ("something else entirely ".repeat(before), " and so it goes on".repeat(after));
        let context = format!("{before}\nThe shop sells blue bicycles.\n{after}");
        assert!(bench.hits(&context, "The shop sells blue bicycles.").is_empty());
        assert_eq!(bench.hits(&context, "The owner lives on the moon.").len(), 1);
    }
}

#[test]
fn the_threshold_and_the_shortest_answer_are_those_of_the_settings() {
    let bench = Bench::of(&OVERLAP);
    // Three words of five: 0.57.
    let answer = "The shop sells gold coins.";
    let flagged = |settings: PlanSettings<'_>| bench.seen(&settings, FACTS, answer, LONG).unwrap().hits.len();
    let with =
        |threshold| flagged(PlanSettings { thresholds: &[("hallucination", threshold)], ..PlanSettings::default() });
    assert_eq!((with(0.0), with(0.5), with(0.6), with(1.0)), (0, 0, 1, 1));
    let at = |point| flagged(PlanSettings { point, ..PlanSettings::default() });
    let points = [OperatingPoint::HighRecall, OperatingPoint::Balanced, OperatingPoint::HighPrecision];
    assert_eq!(points.map(at), [1, 0, 0]);
    let thresholds: &[(&str, f64)] = &[("hallucination", 1.0)];
    let short = |shortest| {
        flagged(PlanSettings { thresholds, shortest: &[("hallucination", shortest)], ..PlanSettings::default() })
    };
    assert_eq!((short(answer.len()), short(answer.len() + 1)), (1, 0));
}

#[test]
fn sentences_and_time_are_bounded() {
    let bench = Bench::of(&OVERLAP);
    let many = "The owner lives on the moon. ".repeat(1_000);
    let found = bench.hits(FACTS, &many).remove(0).finding;
    assert_eq!((&*found.metadata["judged_sentences"], &*found.metadata["sentences_left_out"]), ("32", "968"));
    assert!(found.metadata["sentence_scores"].len() < 32 * 32);
    // Time that is over before it begins costs the analysis, as with any model, and is said.
    let late = bench.seen(&PlanSettings::default(), FACTS, &many, Duration::ZERO).unwrap();
    assert!(late.ran.cut && late.hits.is_empty());
}

#[test]
fn a_model_that_reads_no_pairs_is_refused_by_name() {
    let made = Made { labels: &["a", "b"], ..ORDERS };
    let bench = Bench::new(|folder| drop(made.write(folder)));
    let state = bench.models.states().remove(0);
    assert!(state.status == "failed" && state.reason.as_deref().unwrap().contains("call it `entailment`"), "{state:?}");
    let answer = "The owner lives on the moon.";
    assert_eq!(bench.seen(&PlanSettings::default(), FACTS, answer, LONG).map(|seen| seen.hits), None);
    // The classes are there, and what it says does not depend on the text.
    let made = Made { labels: &["contradiction", "entailment"], ..ORDERS };
    let bench = Bench::new(|folder| drop(made.write(folder)));
    assert!(bench.models.states()[0].reason.as_deref().unwrap().contains("self-test"));
}
