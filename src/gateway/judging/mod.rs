//! Which calls the judge is asked about: those whose findings a rule of the action router sends to `judge_route`.
//!
//! With `judge_route.inline_await` a request asks before it is forwarded ([`Inline`]), and a verdict that passes the promotion gate
//! blocks it. Every other call is asked about when it has ended, by a consumer of finished spans: the verdict joins the span's
//! findings, and is kept beside them. Invariants: nobody waits for the worker's queue; no core waits; a call is asked about once,
//! also where its request went on before the answer came ([`late`]).
//! What is being judged when the process ends is lost, and counted. Knows no backends.

mod finished;
mod inline;
mod late;

use std::sync::Arc;

use arc_swap::ArcSwap;
use tokio::runtime::Handle;
use weir_config::Settings;
use weir_config::settings::RouterAction;
use weir_storage::VerdictBook;

use crate::feed::Feed;
use crate::judge::{CaseQueue, Judge, Options, Worker};
use crate::meter::Registry;
use crate::process::OutsideVerdict;
use crate::router::Tally;
use finished::{Book, Finished};
use inline::Inline;
use late::{Asking, asked};

/// Whether a worker is to run: the action router sends calls, and the judge is on or may be switched on.
pub fn is_needed(settings: &Settings) -> bool {
    let router = &settings.action_router;
    router.enabled && (settings.judge.enabled || router.may(RouterAction::JudgeRoute))
}

/// The worker, and who brings it calls.
pub struct Judging {
    worker: Worker,
    asking: Asking,
    settings: Arc<ArcSwap<Settings>>,
    book: Book,
}

impl Judging {
    /// A worker for `judge`, and the consumer of finished spans; its counters go to `registry`.
    pub fn new(
        judge: Judge,
        settings: &Arc<ArcSwap<Settings>>,
        feed: &mut Feed,
        tally: Arc<Tally>,
        registry: &Registry,
    ) -> Self {
        let live = Arc::clone(settings);
        let at_start = settings.load_full();
        let worker = Worker::new(judge, Options::from(&at_start.judge), Arc::new(move || live.load().judge.enabled));
        registry.add_source(worker.source());
        let (book, (asking, asked)) = (Book::default(), asked());
        if at_start.action_router.may(RouterAction::JudgeRoute) {
            feed.add(Finished::new(worker.cases(), settings, tally, Arc::clone(&book), asked));
        }
        Self { worker, asking, settings: Arc::clone(settings), book }
    }

    /// Who asks before requests are forwarded, where requests wait.
    pub fn inline(&self) -> Option<Arc<dyn OutsideVerdict>> {
        let router = &self.settings.load().action_router;
        let waits = router.inline_await && router.may(RouterAction::JudgeRoute);
        waits.then(|| {
            let inline = Inline::new(self.cases(), self.asking.clone(), Arc::clone(&self.settings));
            Arc::new(inline) as Arc<dyn OutsideVerdict>
        })
    }

    /// Begins: what is kept is kept in `book`.
    pub fn start(&mut self, runtime: &Handle, book: Arc<dyn VerdictBook>) {
        let _first = self.book.set(book);
        self.worker.start(runtime);
    }

    /// Ends; see [`Worker::stop`].
    pub async fn stop(self) {
        self.worker.stop().await;
    }

    fn cases(&self) -> CaseQueue {
        self.worker.cases()
    }
}
