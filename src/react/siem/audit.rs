//! Administrative events, read from the audit log behind a cursor of their own. One process of several on a store does it.

use std::sync::Arc;
use std::time::Duration;

use weir_storage::audit::AuditEntry;
use weir_storage::query::Page;
use weir_storage::{AuditLog, Cursor, SpanLog};

use super::event::of_audit;
use super::receiver::{NotTaken, Receiver};
use crate::feed::Progress;

/// How often the log is looked at.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// After a failure: twice as long each time.
const BACKOFF_MAX: Duration = Duration::from_secs(60);
/// Lines of one page.
const PIECE: u32 = 200;
/// The part of a cursor that says which store: the log has one order in all.
const LOG: i64 = 0;

/// Tells `to` what was done, until the process ends.
pub(super) async fn follow(to: Arc<Receiver>, audit: Arc<dyn AuditLog>, cursors: Arc<dyn SpanLog>) {
    let name = format!("siem_audit_{}", to.label);
    let (mut wait, mut claim, mut progress) = (LOOK_EVERY, None, Progress::default());
    loop {
        let (log, places, key, has_claim) = (Arc::clone(&audit), Arc::clone(&cursors), name.clone(), claim.is_some());
        let read = tokio::task::spawn_blocking(move || {
            let claim = if has_claim { None } else { places.claim_reading(&key).map_err(|error| error.to_string())? };
            if !has_claim && claim.is_none() {
                // Another process does it.
                return Ok((None, Vec::new()));
            }
            Ok((claim, behind(&*log, &*places, &key)?))
        });
        let read: Result<_, String> = read.await.unwrap_or_else(|error| Err(error.to_string()));
        let told = match read {
            Ok((new, entries)) => {
                claim = claim.or(new);
                tell(&to, &mut progress, &cursors, &name, entries).await
            }
            Err(error) => Err(error.into()),
        };
        match told {
            Ok(()) => wait = LOOK_EVERY,
            Err(NotTaken { reason, after }) => {
                if wait == LOOK_EVERY {
                    let receiver = &to.label;
                    tracing::warn!(receiver, reason, "administrative events could not be sent; will retry");
                }
                wait = (wait * 2).min(BACKOFF_MAX).max(after.unwrap_or_default());
            }
        }
        tokio::time::sleep(wait).await;
    }
}

async fn tell(
    to: &Receiver,
    progress: &mut Progress<String>,
    cursors: &Arc<dyn SpanLog>,
    name: &str,
    entries: Vec<AuditEntry>,
) -> Result<(), NotTaken> {
    let Some(last) = entries.last().map(|entry| entry.seq) else { return Ok(()) };
    let events: Vec<_> = entries.iter().map(of_audit).collect();
    to.send(&events, progress).await?;
    Ok(keep(cursors, name, last).await?)
}

async fn keep(cursors: &Arc<dyn SpanLog>, name: &str, seq: u64) -> Result<(), String> {
    let (cursors, name) = (Arc::clone(cursors), name.to_owned());
    let place = Cursor::new(LOG, i64::try_from(seq).unwrap_or(i64::MAX));
    let kept = tokio::task::spawn_blocking(move || cursors.save_cursor(&name, place)).await;
    kept.map_err(|error| error.to_string())?.map_err(|error| error.to_string())
}

/// The lines behind the cursor, the oldest first; a new receiver begins with what comes from now on.
fn behind(audit: &dyn AuditLog, cursors: &dyn SpanLog, name: &str) -> Result<Vec<AuditEntry>, String> {
    let list = |offset| {
        let page = Page { limit: PIECE, offset, ..Page::default() };
        audit.list_audit(None, page).map(|page| page.data).map_err(|error| error.to_string())
    };
    let Some(cursor) = cursors.cursor(name).map_err(|error| error.to_string())? else {
        let last = list(0)?.first().map_or(0, |entry| entry.seq);
        let place = Cursor::new(LOG, i64::try_from(last).unwrap_or(i64::MAX));
        cursors.save_cursor(name, place).map_err(|error| error.to_string())?;
        return Ok(Vec::new());
    };
    let after = u64::try_from(cursor.place()).unwrap_or(0);
    // The newest come first, and more may come meanwhile: what stands on two pages is told once.
    let mut found: Vec<AuditEntry> = Vec::new();
    loop {
        let page = list(found.len() as u64)?;
        let (last, count) = (found.last().map_or(u64::MAX, |entry| entry.seq), page.len());
        found.extend(page.into_iter().filter(|entry| entry.seq > after && entry.seq < last));
        let is_all = found.last().is_none_or(|entry| entry.seq <= after + 1);
        if is_all || count < PIECE as usize {
            break;
        }
    }
    found.reverse();
    Ok(found)
}
