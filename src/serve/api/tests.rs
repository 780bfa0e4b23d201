//! The API through its own entrance: calls over the queue, answered by the router over a small store.

mod bodies;
mod fake;
mod handle;
mod lists;
mod ops;
mod table;
mod tenants;
mod worlds;

mod query;
