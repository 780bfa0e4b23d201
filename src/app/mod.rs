//! The program: construction, start, reload and stop (`boot`), and the command line (`cli`).
//!
//! May know every room; no room knows it. The way in is `cli::run`.

pub mod boot;
pub mod cli;
