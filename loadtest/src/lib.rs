//! The test side of Weir: a fake LLM provider and a load generator.
//!
//! Without features this is the provider as pure logic ([`provider`]) and a small blocking server around it
//! ([`server`]); the gateway links that much for its demonstration and its black-box tests. The feature `driver` adds
//! the measuring side (`driver`): a fast provider and a load generator.
//!
//! Invariant: nothing here shares a runtime, a parser or a framing rule with the gateway. What measures must not
//! inherit the mistakes of what it measures.

#[cfg(feature = "driver")]
pub mod driver;
pub mod http;
pub mod provider;
pub mod server;
