//! Verdicts from outside: what somebody else says of a request before it is forwarded (a judge, a router, a model elsewhere).
//!
//! The request waits for them in one place (`flow::outside`), on a timer, and holds no core. Then the decision is taken over all
//! findings; without an answer in time the first decision stands. Without a registered one nothing is
//! asked and nothing waits.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use weir_config::vocab::part::PartKind;
use weir_config::vocab::{Finding, SpanId, TenantId, TraceId};

/// Somebody who is asked about requests before they are forwarded.
pub trait OutsideVerdict: Send + Sync {
    /// Its name on spans and in metrics.
    fn name(&self) -> &'static str;

    /// How long a request waits for it.
    fn limit(&self) -> Duration;

    /// Asks about a request; `None` where it has nothing to say of it. The work begins here and is done elsewhere: the future
    /// only waits for its end, because a core polls it.
    fn ask(&self, question: &Question<'_>) -> Option<Verdict>;
}

/// What an outside verdict finds, once it is there.
pub type Verdict = Pin<Box<dyn Future<Output = Vec<Finding>>>>;

/// A request as it is put to others.
pub struct Question<'a> {
    /// Whose it is.
    pub tenant: TenantId,
    /// Under which trace it is recorded.
    pub trace: TraceId,
    /// As which span.
    pub span: SpanId,
    /// Its texts, in the order of the parts of the record.
    pub texts: &'a [(PartKind, &'a str)],
    /// What the detectors found in them.
    pub findings: &'a [Finding],
}
