//! Black-box suites over the real `weir` binary: real sockets, real processes, both I/O drivers. One binary, because
//! linking is what takes long; one file per promise.
//!
//! Each proxy test runs on io_uring and on epoll (`support::on_both_drivers`).
#![allow(clippy::unwrap_used, clippy::expect_used)] // Tests fail by panicking, their helpers too.

mod activation;
mod advisory;
mod analysis;
mod api;
mod breaker;
mod browsers;
mod canary;
mod caps;
mod clients;
mod coding_agents;
mod connections;
mod costs;
mod crash;
mod credentials;
mod definitions;
mod demo;
mod departures;
mod dialects;
mod doctor;
mod duties;
mod early;
mod egress;
mod endings;
mod enforcement;
mod exposition;
mod failures;
mod flags;
mod framing;
mod identity;
mod interim;
mod keeping;
mod limits;
mod linear;
mod load;
mod logging;
mod matrix;
mod notify;
mod ops;
mod pressure;
mod records;
mod reviewed;
mod revocation;
mod schema;
mod scoring;
mod shares;
mod shutdown;
mod smuggle;
mod smuggling;
mod startup;
mod streaming;
mod support;
mod takeover;
mod tls;
mod tls_listener;
mod transparency;
mod tunnel;
mod unread;
