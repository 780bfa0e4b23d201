//! What has to be written down before the process ends, and the store that it is written to.

use std::sync::Arc;
use std::time::Duration;

use weir_storage::Store;

use super::context::{Context, Subsystem, TimeLeft};
use crate::boot::{StartError, keep};
use crate::identity::Identities;
use crate::process::Process;
use crate::replay::Replays;
use crate::reports::ReportBuilder;

/// How long the store may take to note the last batches that were charged.
const CHARGES_LIMIT: Duration = Duration::from_secs(2);
/// How long the store may take to note the last objects that were made at providers.
const OBJECTS_LIMIT: Duration = Duration::from_secs(2);

struct Records(Store);

/// The store, which commits what waits and closes.
pub(super) fn store(context: &mut Context) -> Result<Option<Box<dyn Subsystem>>, StartError> {
    Ok(Some(Box::new(Records(context.store.clone()))))
}

impl Subsystem for Records {
    fn stop(self: Box<Self>, time: &TimeLeft) -> bool {
        self.0.close(time.left())
    }
}

struct Reports(Arc<ReportBuilder>, Arc<Replays>);

/// The threads that build reports and try changes, while there is anything to do.
pub(super) fn reports(context: &mut Context) -> Result<Option<Box<dyn Subsystem>>, StartError> {
    Ok(Some(Box::new(Reports(Arc::clone(&context.made.reports), Arc::clone(&context.made.replays)))))
}

impl Subsystem for Reports {
    fn stop(self: Box<Self>, _time: &TimeLeft) -> bool {
        self.0.close();
        self.1.close();
        true
    }
}

struct Denials(Arc<Identities>);

/// Tenants, keys and tokens: changes that hold in memory already.
pub(super) fn identities(context: &mut Context) -> Result<Option<Box<dyn Subsystem>>, StartError> {
    Ok(Some(Box::new(Denials(Arc::clone(&context.made.identities)))))
}

impl Subsystem for Denials {
    fn stop(self: Box<Self>, _time: &TimeLeft) -> bool {
        let unwritten = self.0.persist_pending();
        if unwritten > 0 {
            tracing::error!(
                unwritten,
                "revocations, new tokens or deletions were never written down: the next start undoes them"
            );
        }
        if let Err(error) = self.0.write_uses() {
            tracing::warn!(%error, "the last uses of keys could not be written down");
        }
        unwritten == 0
    }
}

struct Spent {
    process: Arc<Process>,
    store: Store,
}

/// What agents and tenants have spent in the periods that run.
pub(super) fn spend(context: &mut Context) -> Result<Option<Box<dyn Subsystem>>, StartError> {
    Ok(Some(Box::new(Spent { process: Arc::clone(&context.process), store: context.store.clone() })))
}

impl Subsystem for Spent {
    fn stop(self: Box<Self>, time: &TimeLeft) -> bool {
        let charged =
            self.process.results.flush(time.left().min(CHARGES_LIMIT)) && self.process.results.catch_up(&self.store);
        if !charged {
            tracing::error!(
                "not every batch that was charged was written down: fetched again, its results will be charged once more"
            );
        }
        keep::save(&self.process.parts.policy.spend, &self.store) && charged
    }
}

struct Objects(Arc<Process>);

/// Which tenant made which objects at a provider.
pub(super) fn objects(context: &mut Context) -> Result<Option<Box<dyn Subsystem>>, StartError> {
    Ok(Some(Box::new(Objects(Arc::clone(&context.process)))))
}

impl Subsystem for Objects {
    fn stop(self: Box<Self>, time: &TimeLeft) -> bool {
        let written = self.0.parts.policy.objects.flush(time.left().min(OBJECTS_LIMIT));
        if !written {
            tracing::error!(
                "not every object that tenants made at a provider was written down: its tenant will be refused the last ones"
            );
        }
        written
    }
}
