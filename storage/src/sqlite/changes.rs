//! Makes changes: which part of the database each one is about.

use super::rows;
use super::tx::Tx;
use crate::change::{Answer, Change};
use crate::error::WriteError;

impl Tx<'_> {
    /// Makes one change inside this transaction. It may run more than once: the transaction is repeated after a failure.
    pub(super) fn make(&mut self, change: &Change) -> Result<Answer, WriteError> {
        Ok(match change {
            Change::InsertSpans { spans, .. } => rows::put_all(self, spans.iter())?.into(),
            Change::SaveCursor { consumer, at } => self.save_cursor(consumer, *at)?.into(),
            Change::AddAction(reported) => self.add_reported(reported)?.into(),
            Change::EraseTrace { tenant, trace, by } => self.erase_trace(*tenant, *trace, by.as_ref())?.into(),
            Change::EraseTenant(tenant) => self.forget_tenant(*tenant)?.into(),
            Change::CreateTenant { new, by } => self.create_tenant(new, by)?.into(),
            Change::UpdateTenant { id, change, by } => self.update_tenant(*id, change, by)?.into(),
            Change::DeleteTenant { id, by } => self.delete_tenant(*id, by)?.into(),
            Change::IssueToken(wanted) => self.issue_token(wanted)?.into(),
            Change::ResetToken { id, fresh, by } => self.reset_token(*id, *fresh, by)?.into(),
            Change::NoteTokenKey(sha256) => self.note_token_key(sha256)?.into(),
            Change::CreateKey { key, sha256, by } => self.create_key(key, sha256, by)?.into(),
            Change::RevokeKey { id, by } => self.revoke_key(*id, by)?.into(),
            Change::SetProviderKey { key, by } => self.set_provider_key(key, by)?.into(),
            Change::RemoveProviderKey { tenant, upstream, by } => {
                self.remove_provider_key(*tenant, upstream, by)?.into()
            }
            Change::TouchKeys(used) => self.touch_keys(used)?.into(),
            Change::Audit(event) => self.audit(event)?.into(),
            Change::AskReport { report, begin } => self.ask_report(report, *begin)?.into(),
            Change::CompleteReport { tenant, id, built } => self.complete_report(*tenant, *id, built)?.into(),
            Change::SaveSpend(rows) => self.save_spend(rows)?.into(),
            Change::ChargeBatch { rows, charge } => self.charge_batch(rows, charge)?.into(),
            Change::AddLate(late) => self.add_late(late)?.into(),
            Change::NoteOffence(offence) => self.note_offence(offence)?.into(),
            Change::NoteObjects(objects) => self.note_objects(objects)?.into(),
            Change::Alert(change) => self.change_alerts(change)?,
        })
    }
}
