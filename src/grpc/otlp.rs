//! OTLP over gRPC, when `otel_ingest.enabled`: what is taken by HTTP at `/v1/traces` is taken here as well.

use std::sync::Arc;

use bytes::Bytes;
use tonic::{Request, Status};
use weir_proto::otlp::{Exported, PartialSuccess, Take};

use super::export::{Exporter, full, guest};
use crate::ingest::otlp::{Unreadable, read_protobuf};

/// Reasons that an answer repeats.
const REASONS_MAX: usize = 10;

/// Takes spans to the same door.
pub(super) struct OtlpExporter(pub(super) Arc<Exporter>);

impl Take for OtlpExporter {
    async fn take(&self, request: Request<Bytes>) -> Result<Exported, Status> {
        let guest = guest(&request)?;
        let read = read_protobuf(request.get_ref()).map_err(|fault| match fault {
            Unreadable::TooMany => Status::resource_exhausted(fault.to_string()),
            _ => Status::invalid_argument(fault.to_string()),
        })?;
        let (mut spans, mut reasons) = (Vec::with_capacity(read.len()), Vec::new());
        for one in read {
            match one {
                Ok(span) => spans.push(span),
                Err(reason) => reasons.push(reason),
            }
        }
        let taken = self.0.door.take(&guest.caller, spans).await.map_err(|busy| full(&busy))?;
        reasons.extend(taken.rejected.into_iter().map(|(_, reason)| reason));
        Ok(Exported { partial_success: self.rejected(reasons) })
    }
}

impl OtlpExporter {
    fn rejected(&self, reasons: Vec<String>) -> Option<PartialSuccess> {
        let rejected_spans = i64::try_from(reasons.len()).unwrap_or(i64::MAX);
        let mut error_message = reasons.into_iter().take(REASONS_MAX).collect::<Vec<_>>().join("; ");
        // It repeats what the sender said, and that may be a credential in the wrong place.
        self.0.process.parts.redaction.mask_text(&mut error_message);
        (rejected_spans > 0).then_some(PartialSuccess { rejected_spans, error_message })
    }
}
