//! A toy verdict from outside: somebody who takes a while to answer, elsewhere, and finds what asks for it.

use std::time::Duration;

use futures_channel::oneshot;
use weir::process::{OutsideVerdict, Question, Verdict};
use weir_config::vocab::{Finding, Severity};

/// What stands in the line of registration.
pub(super) struct ToyVerdict;

impl OutsideVerdict for ToyVerdict {
    fn name(&self) -> &'static str {
        "judge"
    }

    fn limit(&self) -> Duration {
        Duration::from_millis(1_500)
    }

    fn ask(&self, question: &Question<'_>) -> Option<Verdict> {
        let says = |word: &str| question.texts.iter().any(|(_, text)| text.contains(word));
        let takes = match () {
            () if says("slow judge") => Duration::from_secs(20),
            () if says("judge") => Duration::from_millis(100),
            () => return None,
        };
        let guilty = says("guilty");
        let (tell, told) = oneshot::channel();
        std::thread::spawn(move || {
            std::thread::sleep(takes);
            let finding = || Finding::new("jailbreak", Severity::High, 0.95, "judge", "The toy judge finds it guilty");
            drop(tell.send(if guilty { vec![finding()] } else { Vec::new() }));
        });
        Some(Box::pin(async { told.await.unwrap_or_default() }))
    }
}
