//! What is known of the traces that reports come for: which spans are kept, and which calls have been counted.
//!
//! Invariants: nothing is known here that is not committed, so that a repetition is called one only when it is kept; a trace is read
//! on from where it was read before, so that a long one costs each report what is new in it; what is remembered is bounded, and
//! what was forgotten is read again.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use parking_lot::{Condvar, Mutex};
use weir_config::vocab::{TenantId, TraceId};
use weir_storage::{ReadError, SpanLog, TracePlace};

use super::calls::{Brief, Kin, Standing};
use crate::rt::yielding;

/// Spans that are remembered at least, of all traces together, and twice as many at most.
const SPANS_MAX: usize = 100_000;
/// Traces that one question to the store names.
const TOGETHER: usize = 256;

/// Traces that were reported lately.
#[derive(Default)]
pub(super) struct Traces {
    known: Mutex<Generations>,
    /// Traces of batches that are being worked on.
    entered: Mutex<HashSet<Key>>,
    /// A batch is done.
    left: Condvar,
}

type Key = (TenantId, TraceId);

/// A batch's right to decide about its traces, from before they are looked up until what is new is kept. Two batches that share a
/// trace come one after the other: what the first one counts the second one sees.
pub(super) struct Entered<'a> {
    traces: &'a Traces,
    keys: HashSet<Key>,
}

impl Entered<'_> {
    pub(super) fn traces(&self) -> impl Iterator<Item = TraceId> {
        self.keys.iter().map(|(_, trace)| *trace)
    }
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        let mut entered = self.traces.entered.lock();
        self.keys.iter().for_each(|key| _ = entered.remove(key));
        self.traces.left.notify_all();
    }
}

/// A trace, and how far it has been read.
#[derive(Default)]
struct Trace {
    read: TracePlace,
    kin: Kin,
}

/// Two generations: what is asked for again goes into the young one; when that is full it becomes the old one, which is forgotten.
#[derive(Default)]
struct Generations {
    young: HashMap<Key, Arc<Mutex<Trace>>>,
    old: HashMap<Key, Arc<Mutex<Trace>>>,
    spans: usize,
}

impl Generations {
    fn get(&mut self, key: Key) -> Arc<Mutex<Trace>> {
        if let Some(trace) = self.young.get(&key) {
            return Arc::clone(trace);
        }
        let trace = self.old.remove(&key).unwrap_or_default();
        self.young.insert(key, Arc::clone(&trace));
        // A trace without spans has a weight of its own.
        let spans = trace.try_lock().map_or(0, |trace| trace.kin.len());
        self.grow(spans + 1);
        trace
    }

    fn grow(&mut self, spans: usize) {
        self.spans += spans;
        if self.spans > SPANS_MAX {
            self.old = std::mem::take(&mut self.young);
            self.spans = 0;
        }
    }
}

/// What a batch's spans are to the traces they belong to.
pub(super) struct Decided {
    briefs: Vec<Brief>,
    /// One for each span, in their order.
    pub(super) standings: Vec<Standing>,
}

impl Traces {
    /// Waits until no other batch is about one of these traces. All are entered at once, so that two batches never wait for each other.
    pub(super) fn enter(&self, tenant: TenantId, traces: impl Iterator<Item = TraceId>) -> Entered<'_> {
        let keys: HashSet<Key> = traces.map(|trace| (tenant, trace)).collect();
        let mut entered = self.entered.lock();
        while keys.iter().any(|key| entered.contains(key)) {
            self.left.wait(&mut entered);
        }
        entered.extend(&keys);
        drop(entered);
        Entered { traces: self, keys }
    }

    /// Looks up the traces of these spans and says what each span is to its own.
    pub(super) fn decide(&self, log: &dyn SpanLog, tenant: TenantId, briefs: Vec<Brief>) -> Result<Decided, ReadError> {
        let mut of_trace: HashMap<TraceId, Vec<usize>> = HashMap::new();
        for (at, brief) in briefs.iter().enumerate() {
            of_trace.entry(brief.trace).or_default().push(at);
        }
        let traces: Vec<(TraceId, Arc<Mutex<Trace>>)> = {
            let mut known = self.known.lock();
            of_trace.keys().map(|trace| (*trace, known.get((tenant, *trace)))).collect()
        };
        for some in traces.chunks(TOGETHER) {
            for (_, trace) in some {
                let mut trace = trace.lock();
                if trace.read == TracePlace::default() {
                    // Without a place nobody could tell whether what is known has been deleted.
                    trace.kin = Kin::default();
                }
            }
            self.read_on(log, tenant, some)?;
        }
        let mut standings = vec![Standing::Repeated; briefs.len()];
        for (trace, known) in &traces {
            yielding::pause();
            let places = of_trace.get(trace).map(Vec::as_slice).unwrap_or_default();
            let own: Vec<&Brief> = places.iter().filter_map(|at| briefs.get(*at)).collect();
            let decided = known.lock().kin.decide(&own);
            for (at, standing) in places.iter().zip(decided) {
                if let Some(place) = standings.get_mut(*at) {
                    *place = standing;
                }
            }
        }
        Ok(Decided { briefs, standings })
    }

    /// Reads what has come to these traces since they were read.
    fn read_on(
        &self,
        log: &dyn SpanLog,
        tenant: TenantId,
        traces: &[(TraceId, Arc<Mutex<Trace>>)],
    ) -> Result<(), ReadError> {
        let by_id: HashMap<TraceId, &Arc<Mutex<Trace>>> = traces.iter().map(|(id, trace)| (*id, trace)).collect();
        let mut asked: Vec<(TraceId, TracePlace)> = traces.iter().map(|(id, trace)| (*id, trace.lock().read)).collect();
        while !asked.is_empty() {
            let known = |id, span| by_id.get(&id).is_some_and(|trace| trace.lock().kin.has(span));
            let rests = match log.traces_after(tenant, &asked, &known) {
                Ok(rests) => rests,
                // A span that is too large to be read has its repetitions told apart by the store alone.
                Err(ReadError::TooLarge { .. } | ReadError::RecordTooLarge { .. } | ReadError::TimedOut { .. }) => {
                    return Ok(());
                }
                Err(error) => return Err(error),
            };
            let mut further = Vec::new();
            for ((id, place), rest) in asked.iter().zip(rests) {
                yielding::pause();
                let Some(trace) = by_id.get(id) else { continue };
                self.known.lock().grow(rest.spans.len());
                let mut trace = trace.lock();
                if rest.anew || *place == TracePlace::default() && !rest.more && rest.rows < trace.kin.len() {
                    // What was known has been deleted meanwhile.
                    *trace = Trace::default();
                    further.push((*id, TracePlace::default()));
                    continue;
                }
                rest.spans.iter().for_each(|span| trace.kin.keep(&Brief::stored(span), None));
                trace.read = rest.next;
                if rest.more {
                    further.push((*id, rest.next));
                }
            }
            asked = further;
        }
        Ok(())
    }

    /// All of a batch that was new is kept now.
    pub(super) fn learn(&self, log: &dyn SpanLog, tenant: TenantId, decided: &Decided) {
        let mut traces: HashMap<TraceId, Arc<Mutex<Trace>>> = HashMap::new();
        for (brief, standing) in decided.briefs.iter().zip(&decided.standings) {
            let Standing::New(counted_by) = standing else { continue };
            yielding::pause();
            let trace = traces.entry(brief.trace).or_insert_with(|| self.known.lock().get((tenant, brief.trace)));
            trace.lock().kin.keep(brief, *counted_by);
            self.known.lock().grow(1);
        }
        // Where they stand, while they are known; else they would be read when the next report comes.
        let traces: Vec<_> =
            traces.into_iter().filter(|(_, trace)| trace.lock().read == TracePlace::default()).collect();
        for some in traces.chunks(TOGETHER) {
            if let Err(error) = self.read_on(log, tenant, some) {
                tracing::debug!(%error, "traces that were reported will be read again");
            }
        }
    }
}
