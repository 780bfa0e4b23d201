//! OTLP over gRPC, when `otel_ingest.enabled`: what is taken by HTTP at `/v1/traces` is taken here as well.

use std::sync::Arc;

use bytes::Bytes;
use tonic::{Request, Status};
use weir_proto::otlp::{Exported, PartialSuccess, Take};

use super::export::{Exporter, aside, full, sender};
use crate::ingest::otlp::{Sorted, Spans, Unreadable, read_protobuf};
use crate::ingest::{Busy, SPANS_MAX};

/// Reasons that an answer repeats.
const REASONS_MAX: usize = 10;

/// Takes spans to the same intake.
pub(super) struct OtlpExporter(pub(super) Arc<Exporter>);

impl Take for OtlpExporter {
    async fn take(&self, request: Request<Bytes>) -> Result<Exported, Status> {
        let sender = sender(&request)?;
        let body = request.get_ref();
        let intake = &self.0.intake;
        let mut room = intake.room(sender.caller.tenant_id, body.len()).map_err(|busy| full(intake, &busy))?;
        let read = aside(body.len(), || read_protobuf(body, &mut |bytes| room.grow(bytes)).map(Spans::sorted));
        let mut sorted: Sorted = read.map_err(|fault| match fault {
            Unreadable::NoRoom => full(intake, &Busy::no_memory()),
            Unreadable::TooMany => Status::resource_exhausted(fault.to_string()),
            _ => Status::invalid_argument(fault.to_string()),
        })?;
        let spans = std::mem::take(&mut sorted.spans);
        let taken = intake.take(&sender.caller, spans).await.map_err(|busy| full(intake, &busy))?;
        let (rejected, beyond) = sorted.rejected(taken.rejected);
        Ok(Exported { partial_success: self.rejected(&rejected, beyond) })
    }
}

impl OtlpExporter {
    fn rejected(&self, rejected: &[(usize, String)], beyond: usize) -> Option<PartialSuccess> {
        let rejected_spans = i64::try_from(rejected.len() + beyond).unwrap_or(i64::MAX);
        let mut said: Vec<String> =
            rejected.iter().take(REASONS_MAX).map(|(at, reason)| format!("span {at}: {reason}")).collect();
        if beyond > 0 {
            said.push(format!(
                "{beyond} spans behind the first {SPANS_MAX} were not read; send them in further requests"
            ));
        }
        let mut error_message = said.join("; ");
        // It repeats what the sender said, and that may be a credential in the wrong place.
        self.0.process.parts.policy.redaction.mask_text(&mut error_message);
        (rejected_spans > 0).then_some(PartialSuccess { rejected_spans, error_message })
    }
}
