//! The service: batches in, what became of their spans out.
//!
//! Invariant: an answer counts a span as accepted when the store has committed it. What a stream has brought stays, whatever becomes
//! of the stream.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, timeout};
use tonic::{Code, Request, Response, Status, Streaming};
use weir_proto::size;
use weir_proto::v1::trace_service_server::TraceService;
use weir_proto::v1::{ExportRequest, ExportResponse, ExportStreamResponse, Rejection, Span};

use super::admission::Sender;
use super::bounds::{REJECTIONS_MAX, ROOM_LIMIT};
use super::{convert, status};
use crate::ingest::{Busy, Intake, ReportedSpan, Taken};
use crate::process::Process;
use crate::record::Permit;
use crate::rt;

/// Bytes of a span's id that a rejection repeats.
const ID_BYTES_MAX: usize = 16;
/// Bytes of a batch that are read between two other calls, some hundred microseconds.
const AT_ONCE_BYTES: usize = 128 * 1024;
/// How long to wait before a full intake is tried again.
const AGAIN: Duration = Duration::from_millis(100);

/// Takes spans to the intake.
pub(super) struct Exporter {
    pub(super) process: Arc<Process>,
    pub(super) intake: Intake,
    /// How long the next batch of a stream may be waited for.
    pub(super) batch_limit: Duration,
    pub(super) stopping: watch::Receiver<bool>,
}

/// What became of the spans that have come.
#[derive(Default)]
struct Tally {
    accepted: u64,
    duplicates: u64,
    rejected: u64,
    rejections: Vec<Rejection>,
}

/// Why a stream has ended.
enum End {
    /// The sender has ended it.
    Complete,
    /// We have, and why.
    Early(Status),
}

#[tonic::async_trait]
impl TraceService for Exporter {
    async fn export(&self, request: Request<ExportRequest>) -> Result<Response<ExportResponse>, Status> {
        let sender = sender(&request)?;
        let mut tally = Tally::default();
        self.take(&sender, request.into_inner(), &mut tally).await.map_err(|busy| full(&self.intake, &busy))?;
        let Tally { accepted, duplicates, rejected, rejections } = tally;
        Ok(Response::new(ExportResponse {
            accepted_spans: accepted,
            duplicate_spans: duplicates,
            rejected_spans: rejected,
            rejections,
        }))
    }

    async fn export_stream(
        &self,
        request: Request<Streaming<ExportRequest>>,
    ) -> Result<Response<ExportStreamResponse>, Status> {
        let sender = sender(&request)?;
        let mut stream = request.into_inner();
        let (mut tally, mut batches) = (Tally::default(), 0);
        let end = loop {
            let batch = match self.next(&sender, &mut stream).await {
                Ok(Some(batch)) => batch,
                Ok(None) => break End::Complete,
                Err(status) => break End::Early(status),
            };
            if let Err(busy) = self.take_patiently(&sender, batches, batch, &mut tally).await {
                break End::Early(full(&self.intake, &busy));
            }
            batches += 1;
        };
        let (complete, ended_because) = match end {
            End::Complete => (true, String::new()),
            // Where nothing has been dealt with, a status says all there is to say.
            End::Early(status) if batches == 0 => return Err(status),
            End::Early(status) => (false, status.message().to_owned()),
        };
        let Tally { accepted, duplicates, rejected, rejections } = tally;
        Ok(Response::new(ExportStreamResponse {
            accepted_spans: accepted,
            duplicate_spans: duplicates,
            rejected_spans: rejected,
            rejections,
            batches,
            complete,
            ended_because,
        }))
    }
}

impl Exporter {
    /// The next batch of a stream, unless something ends it.
    async fn next(
        &self,
        sender: &Sender,
        stream: &mut Streaming<ExportRequest>,
    ) -> Result<Option<ExportRequest>, Status> {
        let mut stopping = self.stopping.clone();
        let message = tokio::select! {
            biased;
            _ = stopping.wait_for(|stopping| *stopping) => return Err(status::stopping()),
            why = sender.shut_out() => return Err(why),
            message = timeout(self.batch_limit, stream.message()) => message,
        };
        let Ok(message) = message else {
            let seconds = self.batch_limit.as_secs();
            return Err(Status::deadline_exceeded(format!(
                "no batch was complete within {seconds} s; open a new stream"
            )));
        };
        // What had come before it was seen is not taken either.
        sender.may_send()?;
        message.map_err(|status| match status.code() {
            Code::OutOfRange => Status::resource_exhausted(status.message()),
            _ => status,
        })
    }

    /// Takes a batch, and waits for a while where there is no room: meanwhile the stream holds its sender up.
    async fn take_patiently(
        &self,
        sender: &Sender,
        number: u64,
        batch: ExportRequest,
        tally: &mut Tally,
    ) -> Result<(), Busy> {
        let given_up = Instant::now() + ROOM_LIMIT;
        let _room = loop {
            match self.room(sender, &batch) {
                Err(_) if Instant::now() < given_up => tokio::time::sleep(AGAIN).await,
                room => break room?,
            }
        };
        let mut batch = aside(weigh(&batch), || Sorted::of(batch));
        loop {
            match self.intake.take(&sender.caller, batch.good.clone()).await {
                Ok(taken) => {
                    tally.add(self, number, &mut batch, taken);
                    return Ok(());
                }
                Err(_) if Instant::now() < given_up => tokio::time::sleep(AGAIN).await,
                Err(busy) => return Err(busy),
            }
        }
    }

    /// Room in memory for a batch until it is kept, as one that comes by HTTP has it.
    fn room(&self, sender: &Sender, batch: &ExportRequest) -> Result<Permit, Busy> {
        self.intake.room(sender.caller.tenant_id, size(batch))
    }

    /// Takes a batch. Where there is no room for it, nothing of it is counted.
    async fn take(&self, sender: &Sender, batch: ExportRequest, tally: &mut Tally) -> Result<(), Busy> {
        let _room = self.room(sender, &batch)?;
        let mut batch = aside(weigh(&batch), || Sorted::of(batch));
        let good = std::mem::take(&mut batch.good);
        let taken = self.intake.take(&sender.caller, good).await?;
        tally.add(self, 0, &mut batch, taken);
        Ok(())
    }
}

/// A batch with what cannot be spans set apart.
struct Sorted {
    good: Vec<ReportedSpan>,
    /// Where each of them stood.
    places: Vec<usize>,
    /// The ids of all as they came.
    ids: Vec<Vec<u8>>,
    /// Where the others stood, and why they are none.
    bad: Vec<(usize, String)>,
}

impl Sorted {
    fn of(batch: ExportRequest) -> Self {
        let mut sorted = Self { good: Vec::new(), places: Vec::new(), ids: Vec::new(), bad: Vec::new() };
        for (place, mut span) in batch.spans.into_iter().enumerate() {
            rt::yielding::pause();
            sorted.ids.push(span.span_id.get(..ID_BYTES_MAX.min(span.span_id.len())).unwrap_or_default().to_vec());
            match convert::span(std::mem::take(&mut span)) {
                Ok(good) => {
                    sorted.good.push(good);
                    sorted.places.push(place);
                }
                Err(reason) => sorted.bad.push((place, reason)),
            }
        }
        sorted
    }
}

impl Tally {
    fn add(&mut self, exporter: &Exporter, batch: u64, sorted: &mut Sorted, taken: Taken) {
        self.accepted += taken.accepted as u64;
        self.duplicates += taken.duplicates as u64;
        let refused = taken.rejected.into_iter();
        let refused = refused.filter_map(|(at, reason)| Some((*sorted.places.get(at)?, reason)));
        let mut rejected: Vec<_> = std::mem::take(&mut sorted.bad).into_iter().chain(refused).collect();
        rejected.sort_by_key(|(place, _)| *place);
        self.rejected += rejected.len() as u64;
        let room = REJECTIONS_MAX.saturating_sub(self.rejections.len());
        for (place, mut reason) in rejected.into_iter().take(room) {
            // It repeats what the sender said, and that may be a credential in the wrong place.
            exporter.process.parts.policy.redaction.mask_text(&mut reason);
            let span_id = sorted.ids.get(place).cloned().unwrap_or_default();
            let index = u32::try_from(place).unwrap_or(u32::MAX);
            self.rejections.push(Rejection { batch, index, span_id, reason });
        }
    }
}

/// About as many bytes as it takes to turn a batch into spans; its texts are not copied.
fn weigh(batch: &ExportRequest) -> usize {
    let of = |span: &Span| 8 + span.input.len() + span.output.len() + span.attributes.len() + span.events.len();
    128 * batch.spans.iter().map(of).sum::<usize>()
}

/// Does work on a batch of so many bytes. A large one leaves the calls beside it to another thread.
pub(super) fn aside<T>(bytes: usize, work: impl FnOnce() -> T) -> T {
    if bytes > AT_ONCE_BYTES { tokio::task::block_in_place(work) } else { work() }
}

/// Whoever the admission has let in, and may still send.
pub(super) fn sender<T>(request: &Request<T>) -> Result<Sender, Status> {
    // Nobody comes here past the admission.
    let sender: Sender =
        request.extensions().get().cloned().ok_or_else(|| Status::internal("the call has no sender"))?;
    // Its message may have taken long to come.
    sender.may_send()?;
    Ok(sender)
}

/// The status of a batch for which there is no room.
pub(super) fn full(intake: &Intake, busy: &Busy) -> Status {
    intake.count(busy);
    status::again(Code::Unavailable, &format!("{}; send the batch again", busy.reason), busy.retry_after)
}
