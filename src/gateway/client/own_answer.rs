//! Answers of our own, and what becomes of the connection behind an answer. "Answer, linger, keep or close" stands here
//! and nowhere else: stages say what is answered to which request, and hand on the [`Next`] that they get.

use std::time::{Duration, Instant};

use bytes::Bytes;
use weir_config::vocab::{Dialect, Provider, TraceId};

use super::session::{Next, Said, Session};
use super::{date, page};
use crate::exchange::{Moments, Refusal};
use crate::meter::Counted;
use crate::process::log_entry::LogEntry;
use crate::wire::{HeadWriter, RequestHead, RequestLine, canonical_reason};

/// The media type of refusals.
pub(crate) const JSON: &str = "application/json";

/// What the request says of its answer's form, and of the connection behind it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Behind {
    /// The body is left out, and its length is given: HEAD was asked.
    pub(crate) head_only: bool,
    /// The connection ends behind it.
    pub(crate) close: bool,
}

/// An answer of our own.
pub(crate) struct OwnAnswer<'a> {
    pub(crate) status: u16,
    pub(crate) fields: &'a [(&'static str, String)],
    pub(crate) content_type: &'a str,
    pub(crate) body: Bytes,
    pub(crate) behind: Behind,
}

/// A refusal as it is answered.
pub(crate) struct Refused<'a> {
    pub(crate) refusal: &'a Refusal,
    /// In the form of the request's dialect.
    pub(crate) body: Bytes,
    pub(crate) content_type: &'static str,
    /// The trace that records it, where one does.
    pub(crate) trace_id: Option<TraceId>,
    pub(crate) behind: Behind,
}

/// How an answer has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// The connection can be used again.
    Whole,
    /// The connection ends behind it; what the client sent has been read.
    Last,
    /// The connection ends behind it, and something of what the client sends may be unread.
    LastUnread,
    /// It did not arrive.
    Lost,
}

impl End {
    /// Of an answer to a request that has been read, behind which the connection ends if `close` says so.
    pub(crate) fn of(sent: bool, close: bool) -> Self {
        match (sent, close) {
            (false, _) => Self::Lost,
            (true, true) => Self::Last,
            (true, false) => Self::Whole,
        }
    }
}

impl Session {
    /// What a request says of an answer of our own to it. What has not been read of the request is skipped where all of it has
    /// arrived; otherwise the connection ends.
    pub(crate) fn behind(&mut self, head: &RequestHead, refused: Option<&Refusal>) -> Behind {
        self.skip_body(head.body);
        let close = self.body_unread
            || !head.keep_alive
            || refused.is_some_and(|refusal| refusal.close)
            || self.core.process.is_draining();
        Behind { head_only: head.method() == "HEAD", close }
    }

    /// Sends an answer of our own, calls `sent`, and says what becomes of the connection.
    pub(crate) async fn answer(&mut self, answer: OwnAnswer<'_>, sent: impl FnOnce(&Self)) -> Next {
        let close = answer.behind.close;
        let arrived = self.send_own(answer).await.is_ok();
        sent(self);
        self.end(match End::of(arrived, close) {
            End::Last => End::LastUnread,
            end => end,
        })
        .await
    }

    /// Refuses a request; see [`Self::answer`].
    pub(crate) async fn refuse(&mut self, refused: Refused<'_>, sent: impl FnOnce(&Self)) -> Next {
        let Refused { refusal, body, content_type, trace_id, behind } = refused;
        self.said.reason = Some(refusal.error_type);
        let mut with_trace = Vec::new();
        let fields = match trace_id {
            None => &refusal.headers,
            Some(trace_id) => {
                with_trace.clone_from(&refusal.headers);
                with_trace.push(("X-Service-Trace-Id", trace_id.to_string()));
                &with_trace
            }
        };
        let answer = OwnAnswer { status: refusal.status, fields, content_type, body, behind };
        self.answer(answer, sent).await
    }

    /// Answers something that never became a request, and counts it.
    pub(crate) async fn refuse_unparsed(&mut self, refusal: &Refusal) -> Next {
        let moments = Moments::now();
        let took_us = u64::try_from(moments.started.elapsed().as_micros()).unwrap_or(0);
        self.core.meter.request(&Counted::refused(Provider::OPENAI.label(), refusal.status, took_us));
        self.said = Said::default();
        let body = refusal.body(Dialect::DEFAULT, TraceId::fresh()).into();
        let behind = Behind { head_only: false, close: true };
        let refused = Refused { refusal, body, content_type: JSON, trace_id: None, behind };
        self.refuse(refused, |session| session.tell_of_own(None, moments.started)).await
    }

    /// What becomes of the connection behind an answer, ours or the provider's.
    pub(crate) async fn end(&mut self, end: End) -> Next {
        if end == End::LastUnread {
            self.linger().await;
        }
        if end == End::Whole { Next::Keep } else { Next::Close }
    }

    /// Tells the log what we have said ourselves.
    pub(crate) fn tell_of_own(&self, line: Option<RequestLine>, started: Instant) {
        let Said { status, bytes, reason, tenant_id } = self.said;
        let mut entry = LogEntry::of_ours(line);
        entry.because(reason);
        (entry.bytes, entry.tenant_id) = (bytes, tenant_id);
        let process = &self.core.process;
        let status = (status != 0).then_some(status);
        if let Some(access) = entry.end(process, status, started.elapsed(), Duration::ZERO) {
            access.write(process, None);
        }
    }

    /// Sends an answer of our own, head and body in one write.
    async fn send_own(&mut self, answer: OwnAnswer<'_>) -> std::io::Result<()> {
        let OwnAnswer { status, fields, content_type, body, behind: Behind { head_only, close } } = answer;
        let page = self.page.clone();
        self.said.status = status;
        self.said.bytes = if head_only { 0 } else { body.len() as u64 };
        let out = self.room(256 + body.len());
        let mut writer = HeadWriter::new(out);
        writer.status_line(status, canonical_reason(status).as_bytes());
        writer.field("Date", date::http_date().as_bytes());
        writer.field("Content-Type", content_type.as_bytes());
        writer.field("Content-Length", body.len().to_string().as_bytes());
        for (name, value) in fields {
            writer.field(name, value.as_bytes());
        }
        page::let_read(&mut writer, page.as_ref());
        if close {
            writer.field("Connection", b"close");
        }
        writer.end();
        if !head_only {
            out.extend_from_slice(&body);
        }
        let written = self.written();
        self.send(written).await
    }
}
