//! What the log is told of an exchange, beside its record: gathered on the way, written at the end.
//!
//! Invariant: with the default level and no access log a good exchange costs a look at one atomic; the path is searched for
//! credentials only when a line is really written.

use std::borrow::Cow;
use std::time::Duration;

use weir_config::vocab::{TenantId, TraceId};

use super::Process;
use crate::exchange::Refusal;
use crate::ops::exchanges::Exchange;
use crate::wire::RequestLine;

/// What is known of an exchange while it goes on.
#[derive(Debug, Clone, Default)]
pub(crate) struct LogEntry {
    /// `None` where no head could be read.
    pub(crate) line: Option<RequestLine>,
    pub(crate) tenant_id: Option<TenantId>,
    pub(crate) trace_id: Option<TraceId>,
    reason: Option<&'static str>,
    detail: Option<Box<str>>,
    by_us: bool,
    /// Bytes of the answer's body.
    pub(crate) bytes: u64,
}

/// An exchange that has ended, on its way to the access log.
pub(crate) struct Ended {
    log_entry: LogEntry,
    status: Option<u16>,
    took: Duration,
    upstream: Duration,
}

impl LogEntry {
    /// Of an own path, or of what never became a request.
    pub(crate) fn of_ours(line: Option<RequestLine>) -> Self {
        Self { line, by_us: true, ..Self::default() }
    }

    /// Of an exchange with the provider.
    pub(crate) fn of_call(tenant_id: TenantId, trace_id: TraceId) -> Self {
        Self { tenant_id: Some(tenant_id), trace_id: Some(trace_id), ..Self::default() }
    }

    /// Weir answers with an error itself.
    pub(crate) fn refused(&mut self, refusal: &Refusal) {
        self.by_us = true;
        self.failed(refusal.error_type, &refusal.message);
    }

    /// It went wrong. What the network said is kept; other messages may repeat what the client sent.
    pub(crate) fn failed(&mut self, reason: &'static str, message: &str) {
        self.reason = Some(reason);
        self.detail = reason.starts_with("upstream_").then(|| message.into());
    }

    /// Our word for what went wrong.
    pub(crate) fn because(&mut self, reason: Option<&'static str>) {
        self.reason = reason;
    }

    /// Writes the line of the log, and gives what the access log is owed.
    pub(crate) fn end(
        self,
        process: &Process,
        status: Option<u16>,
        took: Duration,
        upstream: Duration,
    ) -> Option<Box<Ended>> {
        let log = &process.parts.edge.exchanges;
        let ended = Ended { log_entry: self, status, took, upstream };
        if log.wants(&ended.exchange_without_line(None)) {
            let (method, path) = (ended.method(process), ended.path(process));
            log.tell(&Exchange { method: &method, path: &path, ..ended.exchange_without_line(None) }, process.now_s());
        }
        log.has_access_log().then(|| Box::new(ended))
    }
}

impl Ended {
    /// Writes the line of the access log.
    pub(crate) fn write(&self, process: &Process, model: Option<&str>) {
        let (method, path) = (self.method(process), self.path(process));
        process.parts.edge.exchanges.access(&Exchange {
            method: &method,
            path: &path,
            ..self.exchange_without_line(model)
        });
    }

    /// Enough to decide whether a line is written; method and path are read when one is.
    fn exchange_without_line<'a>(&'a self, model: Option<&'a str>) -> Exchange<'a> {
        let LogEntry { tenant_id, trace_id, reason, detail, by_us, bytes, .. } = &self.log_entry;
        Exchange {
            trace_id: *trace_id,
            tenant_id: *tenant_id,
            method: "",
            path: "",
            status: self.status,
            reason: *reason,
            detail: detail.as_deref(),
            by_us: *by_us,
            bytes: *bytes,
            took: self.took,
            upstream: self.upstream,
            model,
        }
    }

    /// The method, unless a credential of the gateway stands in it: it may be any word.
    fn method(&self, process: &Process) -> Cow<'_, str> {
        match &self.log_entry.line {
            None => Cow::Borrowed(""),
            Some(line) if process.parts.policy.redaction.is_exposed(line.method()) => {
                Cow::Borrowed("(holds_a_credential)")
            }
            Some(line) => Cow::Borrowed(line.method()),
        }
    }

    /// The path, unless a credential of the gateway stands in it.
    fn path(&self, process: &Process) -> Cow<'static, str> {
        match &self.log_entry.line {
            None => Cow::Borrowed(""),
            Some(line) if process.parts.policy.redaction.is_exposed(line.path()) => {
                Cow::Borrowed("(holds a credential)")
            }
            Some(line) => Cow::Owned(line.path().to_owned()),
        }
    }
}
