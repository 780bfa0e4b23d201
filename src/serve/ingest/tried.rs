//! A dry run of the readers, for fuzzers and for the tests that replay what they found.

use serde_json::json;
use weir_config::Settings;
use weir_config::settings::PiiAction;
use weir_config::vocab::{TenantId, Timestamp};

use super::beside::Beside;
use super::span::ReportedSpan;
use super::{body, check, otlp};

/// What came out of a report.
#[derive(Debug, Default)]
pub struct Tried {
    /// Spans it holds.
    pub spans: usize,
    /// Spans of it that would be kept.
    pub taken: usize,
    /// The bodies that these are read as, and what stands beside their messages once nothing that is not kept is left in it: JSON,
    /// all of them.
    pub bodies: Vec<Vec<u8>>,
}

impl Tried {
    /// Does with these spans, of so many in all, what is done before they are inspected.
    pub(crate) fn of(spans: usize, readable: Vec<ReportedSpan>) -> Self {
        let mut tried = Self { spans, ..Self::default() };
        let now = Timestamp::now();
        let mut beside = Beside::of(&Settings { pii_action: PiiAction::AlertAndRedact, ..Settings::default() });
        for mut span in readable {
            if check::refuse(&span, TenantId::DEFAULT, now).is_err() {
                continue;
            }
            check::trim(&mut span);
            let (_operation, _provider) = (check::operation(&span), check::provider(&span));
            tried.taken += 1;
            let count = span.attributes.len();
            let _found = beside.clean(&mut span);
            assert_eq!(span.attributes.len(), count, "masking takes texts out, and no attributes");
            tried
                .bodies
                .push(json!({ "attributes": span.attributes, "shared": *span.shared[0] }).to_string().into_bytes());
            tried.bodies.extend(body::request(&span).into_iter().chain(body::answer(&span)));
        }
        tried
    }
}

/// Reads an OTLP export request. `None` where it is none.
pub fn try_otlp(request: &[u8], is_json: bool) -> Option<Tried> {
    let read =
        if is_json { otlp::read_json(request, &mut |_| true) } else { otlp::read_protobuf(request, &mut |_| true) };
    let read = read.ok()?;
    let spans = read.read.len() + read.beyond;
    Some(Tried::of(spans, read.sorted().spans))
}
