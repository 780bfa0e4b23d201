//! A classifier that hangs, fails or panics, alone and as the fast tier of a cascade.

use std::sync::Condvar;

use futures_util::future::join_all;

use super::*;

/// What a classifier does when it is asked.
#[derive(Clone, Copy)]
enum Play {
    Hang,
    Fail,
    Panic,
}

/// One that does the same each time, until it is set free; from then on it finds a threat.
struct Scripted {
    play: Play,
    free: Mutex<bool>,
    freed: Condvar,
    /// Until when it may take, at each question.
    until: Mutex<Vec<Option<Instant>>>,
}

impl Scripted {
    fn new(play: Play) -> Arc<Self> {
        Arc::new(Self { play, free: Mutex::new(false), freed: Condvar::new(), until: Mutex::default() })
    }

    fn set_free(&self) {
        *self.free.lock().unwrap() = true;
        self.freed.notify_all();
    }

    fn asked(&self) -> Vec<Option<Instant>> {
        self.until.lock().unwrap().clone()
    }
}

impl Classify for Scripted {
    fn name(&self) -> &'static str {
        "scripted"
    }

    fn probability(&self, _candidate: &Candidate, until: Option<Instant>) -> Result<f64, Failure> {
        self.until.lock().unwrap().push(until);
        let free = self.free.lock().unwrap();
        if *free {
            return Ok(0.97);
        }
        match self.play {
            Play::Hang => {
                let _free = self.freed.wait_while(free, |free| !*free).unwrap();
                Ok(0.97)
            }
            Play::Fail => Err(Failure::lasting(Status::BackendError, "no session is free")),
            Play::Panic => {
                drop(free);
                panic!("a test's own")
            }
        }
    }
}

/// A judge that asks `classifier`, alone or before the model at `slow`, with so many milliseconds for a call and in all.
fn judge_by(classifier: &Arc<Scripted>, slow: Option<SocketAddr>, (each, total): (u64, u64)) -> Judge {
    let closed = || TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let mut settings = json!({
        "backend": if slow.is_some() { "cascade" } else { "classifier" },
        "worker": {"timeout_ms": each, "total_deadline_ms": total},
        "retry": {"backoff_base_ms": 1},
    });
    if slow.is_some() {
        settings["cascade"] = json!({"slow_backend": "selfhosted"});
    }
    judge_with(slow.unwrap_or_else(closed), settings, false, Some(Arc::clone(classifier) as _))
}

#[test]
fn a_classifier_that_hangs_is_a_timeout_by_the_call_and_by_the_whole() {
    for (each, total) in [(100, 60_000), (60_000, 100)] {
        let classifier = Scripted::new(Play::Hang);
        let begun = Instant::now();
        let outcome = ask(&judge_by(&classifier, None, (each, total)), PLEASE);
        assert_eq!(status(&outcome), Status::Timeout, "{outcome:?}");
        assert!(outcome.took >= Duration::from_millis(100) && outcome.took < Duration::from_secs(30), "{outcome:?}");
        let asked = classifier.asked();
        let told = asked.first().copied().flatten().expect("it is told until when it may take");
        let (least, most) = (begun + Duration::from_millis(100), begun + Duration::from_secs(30));
        assert!(asked.len() == 1 && told >= least && told < most, "it is asked once: {asked:?}");
        classifier.set_free();
    }
}

#[test]
fn where_the_fast_classifier_hangs_fails_or_panics_the_slow_tier_speaks() {
    for (play, expected) in
        [(Play::Hang, Status::Timeout), (Play::Fail, Status::BackendError), (Play::Panic, Status::BackendError)]
    {
        let classifier = Scripted::new(play);
        let slow = super::Scripted::new(|_, _, stream| answer(stream, "200 OK", "", &said("selfhosted", VERDICT)));
        let judge = judge_by(&classifier, Some(slow.addr), (2_000, 60_000));
        let outcome = ask(&judge, PLEASE);
        let score = outcome.verdict.as_ref().map(|verdict| verdict.security_score);
        assert_eq!((score, outcome.replies.len()), (Ok(85), 2), "{outcome:?}");
        let failed = outcome.replies[0].verdict.as_ref().map_err(|failure| failure.status);
        assert_eq!((outcome.replies[0].backend, failed.err()), ("classifier", Some(expected)));
        classifier.set_free();
        assert_eq!(status(&ask(&judge_by(&classifier, None, (60_000, 0)), PLEASE)), Status::Success);
    }
}

#[test]
fn where_the_whole_time_is_spent_on_the_classifier_nobody_else_is_asked() {
    let (classifier, slow) = (Scripted::new(Play::Hang), super::Scripted::new(|_, _, _| ()));
    let outcome = ask(&judge_by(&classifier, Some(slow.addr), (60_000, 100)), PLEASE);
    assert_eq!((status(&outcome), slow.seen().len()), (Status::Timeout, 0), "{outcome:?}");
    classifier.set_free();
}

#[test]
fn a_classifier_that_hangs_holds_four_threads_and_no_more() {
    let classifier = Scripted::new(Play::Hang);
    let judge = judge_by(&classifier, None, (1_000, 60_000));
    let candidate = Candidate::choose(&[(PartKind::User, PLEASE)], &[], 65_536);
    let prompt = judge.prompt(&candidate);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let outcomes = runtime.block_on(join_all((0..20).map(|_| judge.ask(&candidate, &prompt))));
    assert!(outcomes.iter().all(|outcome| status(outcome) == Status::Timeout), "{outcomes:?}");
    assert_eq!(
        classifier.asked().len(),
        4,
        "whoever finds no thread free waits for one, and no longer than for an answer"
    );
    classifier.set_free();
    // The threads are given back when the classifier is done with them.
    let again = || status(&runtime.block_on(judge.ask(&candidate, &prompt)));
    assert!((0..20).any(|_| again() == Status::Success), "the places are free again");
    runtime.shutdown_background();
}
