//! Compliance reports: what stands in them, and the thread that builds them.
//!
//! The store keeps reports as records and gives what they are about, slice by slice; what that means to which control is
//! `compliance`'s matter, and when and on which thread it is read is `builder`'s. Knows no HTTP and no SQL.

mod builder;
mod compliance;

pub use builder::ReportBuilder;

#[cfg(test)]
mod tests;
