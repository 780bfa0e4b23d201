//! What may be the matter with the gateway itself: told when it begins and when it is over, by each channel's own task, also while
//! the store is what has failed.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use uuid::Uuid;
use weir_config::vocab::{Severity, TenantId, Timestamp};
use weir_storage::alerts::{AlertKey, Sighting};

use super::message::Notice;
use super::seen::Seen;
use super::tell::{Teller, Told};
use crate::feed::{Failure, jittered};

/// Between looks.
const LOOK_EVERY: Duration = Duration::from_secs(1);
const BACKOFF_MAX: Duration = Duration::from_secs(60);

/// Something that may be the matter.
#[derive(Debug, Clone)]
pub struct Condition {
    /// The type its alerts have.
    pub finding_type: String,
    /// How bad it is.
    pub severity: Severity,
    /// In words.
    pub description: String,
    /// Whether it is so now.
    pub holds: bool,
}

/// Says what may be the matter; nothing while the process starts or ends.
pub type Conditions = Arc<dyn Fn() -> Vec<Condition> + Send + Sync>;

/// What a channel was told of a condition that holds.
struct Raised {
    notice: Notice,
    told: Told,
}

/// Keeps one channel told.
pub(super) async fn watch(teller: Teller, conditions: Conditions) {
    let (mut raised, mut known) = (HashMap::new(), HashSet::new());
    let mut backoff = LOOK_EVERY;
    loop {
        let mut failed = false;
        for condition in conditions() {
            let is_new = known.insert(condition.finding_type.clone());
            failed |= match raised.remove(&condition.finding_type) {
                None if condition.holds && teller.channel.is_for(condition.severity) => {
                    raise(&teller, &condition, &mut raised).await.is_err()
                }
                // A process before may have raised it.
                None if is_new => !resolve(&teller, &condition.finding_type).await,
                Some(told) if condition.holds => {
                    raised.insert(condition.finding_type, told);
                    false
                }
                Some(told) => {
                    let is_told = end(&teller, &condition.finding_type, &told).await;
                    if !is_told {
                        raised.insert(condition.finding_type, told);
                    }
                    !is_told
                }
                None => false,
            };
        }
        backoff = if failed { (backoff * 2).min(BACKOFF_MAX) } else { LOOK_EVERY };
        tokio::time::sleep(if failed { LOOK_EVERY.max(jittered(backoff)) } else { LOOK_EVERY }).await;
    }
}

async fn raise(teller: &Teller, condition: &Condition, raised: &mut HashMap<String, Raised>) -> Result<(), Failure> {
    let Condition { finding_type, severity, description, .. } = condition;
    let (id, now) = (Uuid::new_v4(), Timestamp::now());
    let (channel, tenant) = (teller.channel.label.clone(), TenantId::DEFAULT);
    let sighting = Sighting {
        key: AlertKey { tenant, channel, finding_type: finding_type.clone() },
        findings: vec![id],
        severity: *severity,
        security_score: severity.score(),
        place: None,
        first_at: now,
        last_at: now,
        resolves_at: None,
    };
    let notice = Notice::of_condition(id, finding_type, *severity, description);
    let told = match teller.count(vec![Seen { sighting: sighting.clone(), notice: Some(notice.clone()) }]).await {
        Ok(mut due) => match due.pop() {
            Some(due) => teller.tell(due).await?,
            // It was told before a restart, or by another process.
            None => Told::Kept,
        },
        Err(_) => teller.tell_unkept(sighting, notice.clone()).await?,
    };
    raised.insert(finding_type.clone(), Raised { notice, told });
    Ok(())
}

/// Whether the channel knows, or will be told, that it is over.
async fn end(teller: &Teller, finding_type: &str, raised: &Raised) -> bool {
    match raised.told {
        Told::Not => true,
        Told::Kept => resolve(teller, finding_type).await,
        Told::Unkept => match teller.channel.send(&raised.notice.resolved()).await {
            Ok(()) => {
                teller.channel.tally.resolved.add(1);
                true
            }
            Err(Failure::Never { .. }) => {
                teller.channel.tally.refused.add(1);
                true
            }
            Err(Failure::Later { .. }) => {
                teller.channel.tally.failed.add(1);
                false
            }
        },
    }
}

/// Has the record say so; its channels are told in their own time.
async fn resolve(teller: &Teller, finding_type: &str) -> bool {
    let finding_type = finding_type.to_owned();
    let now = Timestamp::now();
    let resolved = teller.book.ask(move |book| book.resolve_alerts(TenantId::DEFAULT, finding_type, now)).await;
    teller.channel.news.notify_one();
    resolved.is_ok()
}
