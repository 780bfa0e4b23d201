//! `POST /v1/traces`: OTLP/HTTP (OTLP 1.9, section OTLP/HTTP). The answer has the request's encoding; a fault is a
//! `google.rpc.Status`, in JSON beside the gateway's own error.

use axum::response::Response;
use bytes::Bytes;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderValue, StatusCode};
use schemars::JsonSchema;
use serde::Serialize;
use weir_config::vocab::TenantId;

use super::ask::Ask;
use super::error::ErrorAnswer;
use super::route::Answer;
use super::state::{Api, answer, to_json};
use crate::codec::DecodeError;
use crate::control::{ErrorKind, NOT_TAKEN};
use crate::exchange::{ReportEncoding, put_bytes, put_varint};
use crate::ingest::otlp::{Sorted, Unreadable, read_json, read_protobuf, weight};
use crate::ingest::{Busy, Intake, ReportedSpan, SPANS_MAX, Taken};
use crate::inspect::decode_body;
use crate::record::Permit;

/// Bytes of a body, as sent and decoded.
pub(super) const BODY_BYTES_MAX: u64 = 64 * 1024 * 1024;
/// A compressed body may grow so many times.
const RATIO_MAX: u32 = 200;
/// Rejected spans whose reasons are named; the others are counted.
const REASONS_MAX: usize = 16;

/// `ExportTraceServiceResponse`.
#[derive(Debug, Default, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct Exported {
    /// What was not taken; left out where all was.
    #[serde(skip_serializing_if = "Option::is_none")]
    partial_success: Option<Partial>,
}

/// `ExportTracePartialSuccess`.
#[derive(Debug, Default, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct Partial {
    /// How many spans were not taken, as a text.
    rejected_spans: String,
    /// Which, and why.
    error_message: String,
}

/// What was read of a body, and the room it takes.
struct Decoded {
    sorted: Sorted,
    _room: Permit,
}

pub(super) async fn traces(api: Api, ask: Ask) -> Answer {
    let content_type = ask.headers().get(CONTENT_TYPE).map(HeaderValue::as_bytes);
    let encoding = ReportEncoding::of(content_type);
    let exported = match (api.ingest.clone(), encoding) {
        (None, _) => Err(ErrorAnswer::not_found(NOT_TAKEN)),
        (Some(intake), Some(encoding)) => export(&api, &ask, intake, encoding).await,
        (Some(_), None) => Err(ErrorAnswer::unsupported(
            "send `Content-Type: application/x-protobuf` or `application/json` with an `ExportTraceServiceRequest`",
        )),
    };
    exported.or_else(|fault| Ok(fault_answer(&fault, encoding.unwrap_or(ReportEncoding::Json))))
}

async fn export(api: &Api, ask: &Ask, intake: Intake, encoding: ReportEncoding) -> Answer {
    let caller = ask.caller()?;
    let coding = ask.headers().get(CONTENT_ENCODING).map(|value| value.as_bytes().to_vec());
    let body = ask.body();
    let taking = intake.clone();
    let Decoded { mut sorted, _room } =
        api.aside(move || decode(&body, coding.as_deref(), encoding, &taking, caller.tenant_id)).await?;
    let taken = take(&intake, &caller, std::mem::take(&mut sorted.spans)).await?;
    let (rejected, beyond) = sorted.rejected(taken.rejected);
    exported(&rejected, beyond, encoding)
}

async fn take(
    intake: &Intake,
    caller: &crate::exchange::Caller,
    spans: Vec<ReportedSpan>,
) -> Result<Taken, ErrorAnswer> {
    if spans.is_empty() {
        return Ok(Taken::default());
    }
    intake.take(caller, spans).await.map_err(|busy| saturated(intake, &busy))
}

fn saturated(intake: &Intake, busy: &Busy) -> ErrorAnswer {
    intake.count(busy);
    ErrorAnswer::saturated(busy.reason)
}

/// Undoes the coding and reads the request; on a blocking thread.
fn decode(
    body: &Bytes,
    coding: Option<&[u8]>,
    encoding: ReportEncoding,
    intake: &Intake,
    tenant: TenantId,
) -> Result<Decoded, ErrorAnswer> {
    let cap = usize::try_from(BODY_BYTES_MAX).unwrap_or(usize::MAX);
    let decoded = decode_body(coding, body, cap, RATIO_MAX);
    match decoded.fault {
        None => {}
        Some(DecodeError::TooLarge) => {
            let message = format!("the decoded body has more than {BODY_BYTES_MAX} bytes; send fewer spans at once");
            return Err(ErrorAnswer::too_large(message));
        }
        Some(DecodeError::Ratio) => {
            return Err(ErrorAnswer::too_large(format!(
                "the decoded body has more than {RATIO_MAX} times the {} bytes that were sent; send it with another \
                 compression or with none",
                body.len()
            )));
        }
        Some(fault) => {
            return Err(ErrorAnswer::invalid(format!(
                "the body cannot be decoded as its `Content-Encoding` says ({}); gzip is taken",
                fault.as_str()
            )));
        }
    }
    let values = if encoding == ReportEncoding::Json { weight(&decoded.bytes) } else { 0 };
    let bytes = decoded.bytes.len().saturating_add(values);
    let mut room = intake.room(tenant, bytes).map_err(|busy| saturated(intake, &busy))?;
    let read = match encoding {
        ReportEncoding::Json => read_json(&decoded.bytes, &mut |bytes| room.grow(bytes)),
        ReportEncoding::Protobuf => read_protobuf(&decoded.bytes, &mut |bytes| room.grow(bytes)),
    };
    let read = read.map_err(|fault| match fault {
        Unreadable::NoRoom => saturated(intake, &Busy::no_memory()),
        fault => ErrorAnswer::invalid(fault.to_string()),
    })?;
    Ok(Decoded { sorted: read.sorted(), _room: room })
}

/// The answer where these spans were rejected, and so many more behind them.
fn exported(rejected: &[(usize, String)], beyond: usize, encoding: ReportEncoding) -> Answer {
    let count = rejected.len() + beyond;
    let partial =
        (count > 0).then(|| Partial { rejected_spans: count.to_string(), error_message: reasons(rejected, beyond) });
    let (body, content_type) = match encoding {
        ReportEncoding::Json => (to_json(&Exported { partial_success: partial })?, "application/json"),
        ReportEncoding::Protobuf => {
            let message = partial.map(|partial| {
                let mut message = vec![0x08];
                put_varint(&mut message, count as u64);
                put_bytes(&mut message, 2, partial.error_message.as_bytes());
                message
            });
            let mut body = Vec::new();
            if let Some(message) = message {
                put_bytes(&mut body, 1, &message);
            }
            (body, "application/x-protobuf")
        }
    };
    Ok(answer(StatusCode::OK, body, content_type))
}

/// The first of the reasons, each with the number of its span.
fn reasons(rejected: &[(usize, String)], beyond: usize) -> String {
    let mut said: Vec<String> =
        rejected.iter().take(REASONS_MAX).map(|(at, reason)| format!("span {at}: {reason}")).collect();
    if rejected.len() > REASONS_MAX {
        said.push(format!("and {} more", rejected.len() - REASONS_MAX));
    }
    if beyond > 0 {
        said.push(format!("{beyond} spans behind the first {SPANS_MAX} were not read; send them in further requests"));
    }
    said.join("; ")
}

/// A refusal in the encoding of the request.
fn fault_answer(fault: &ErrorAnswer, encoding: ReportEncoding) -> Response {
    let body = encoding.refusal(fault.status.as_u16(), &fault.message, &fault.body());
    let mut response = answer(fault.status, body, encoding.media_type());
    response.extensions_mut().insert(ErrorKind(fault.kind));
    if let Some(seconds) = fault.retry_after_s {
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}
