//! What a test server has received, bounded in number and bytes.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::http::Request;

/// One received request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Received {
    /// Which connection it came on, counted from 1 in order of acceptance.
    pub connection: u64,
    /// The request, with its exact bytes in `raw`.
    pub request: Request,
}

/// The record of one server.
pub(super) struct Record {
    requests_max: usize,
    bytes_max: usize,
    kept: Mutex<Kept>,
    arrived: Condvar,
}

#[derive(Default)]
struct Kept {
    requests: VecDeque<Received>,
    bytes: usize,
    seen: u64,
}

impl Record {
    pub(super) fn new(requests_max: usize, bytes_max: usize) -> Self {
        Self { requests_max, bytes_max, kept: Mutex::default(), arrived: Condvar::new() }
    }

    /// Adds a request; drops the oldest ones until the bounds hold.
    pub(super) fn add(&self, connection: u64, request: Request) {
        let mut kept = self.kept();
        kept.seen += 1;
        kept.bytes += cost(&request);
        kept.requests.push_back(Received { connection, request });
        while kept.requests.len() > self.requests_max || kept.bytes > self.bytes_max {
            let Some(oldest) = kept.requests.pop_front() else { break };
            kept.bytes -= cost(&oldest.request);
        }
        drop(kept);
        self.arrived.notify_all();
    }

    pub(super) fn list(&self) -> Vec<Received> {
        self.kept().requests.iter().cloned().collect()
    }

    pub(super) fn take(&self) -> Vec<Received> {
        let mut kept = self.kept();
        kept.bytes = 0;
        kept.requests.drain(..).collect()
    }

    pub(super) fn seen(&self) -> u64 {
        self.kept().seen
    }

    pub(super) fn wait_seen(&self, count: u64, timeout: Duration) -> bool {
        let waited = self.arrived.wait_timeout_while(self.kept(), timeout, |kept| kept.seen < count);
        waited.unwrap_or_else(PoisonError::into_inner).0.seen >= count
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn cost(request: &Request) -> usize {
    request.raw.len() + request.body.len()
}
