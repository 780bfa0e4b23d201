//! What the storage thread writes with: it carries out what the writer hands it. When to try again is the writer's matter.

use crate::error::WriteError;
use crate::order::Order;
use crate::queue::Queued;

/// What keeps rows: SQLite, memory, or a test's double.
pub(crate) trait Engine: Send {
    /// Writes all rows or none; gives how many were left out, because their tenant is gone.
    fn write(&mut self, rows: &[Queued]) -> Result<usize, WriteError>;
    /// Makes all changes or none, in one transaction; a change that fails by its own fault is left out alone.
    /// A transaction whose commit failed may have reached the file all the same: `stamp` tells, when it is called again.
    fn carry_out(&mut self, orders: &mut [Order], stamp: i32) -> Result<(), WriteError>;
    /// Whether there is room for records; what is left otherwise is kept for keys, tenants and the audit log.
    fn has_room(&self) -> bool {
        true
    }
    /// After a failure of the store: gets ready for the next attempt.
    fn recover(&mut self) -> Result<(), WriteError>;
    /// After a commit, and once when traffic pauses: the log.
    fn tend(&mut self, idle: bool);
    /// Does a piece of housekeeping that takes a few milliseconds at most; true when more is to be done.
    fn keep(&mut self) -> bool;
    /// The last call.
    fn close(&mut self);
}
