//! The API through its own entrance: calls over the queue, answered by the router over a small store.

mod bodies;
mod fake;
mod handle;
mod lists;
mod ops;
mod table;
mod tenants;
mod worlds;

#[path = "../../tests/it/support/effort.rs"]
#[allow(dead_code)] // The other suite uses all of it.
mod effort;
mod query;
