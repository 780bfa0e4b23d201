//! The journey of a call on a core: a client's connection, the stages in their order, the answer on its way, and the record at its
//! end.
//!
//! The only room that orders stages. The way in is `client` for a connection and `flow::request::run` for a request; `settle` ends
//! every exchange, `process` holds what all cores share.

pub mod client;
pub mod flow;
pub mod golden;
pub mod judging;
pub(crate) mod output;
pub mod process;
pub mod replay;
pub mod settle;
