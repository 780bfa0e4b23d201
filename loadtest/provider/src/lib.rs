//! A fake LLM provider, for `weir demo`, the load tester and the black-box tests.
//!
//! [`provider`] decides what is answered and when, [`http`] reads and frames HTTP/1.1, both without I/O; [`server`] is
//! a small blocking server around them.
//!
//! Invariant: nothing here shares a parser or a framing rule with the gateway. What tests the gateway must not inherit
//! its mistakes.

pub mod http;
pub mod provider;
pub mod server;
