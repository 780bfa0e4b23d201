//! What a run found, as it is written to JSON and read again for a comparison. Field names end in their unit.
//!
//! Invariant: the summary of a cell follows from its rounds; whatever is compared is computed from the rounds.

mod buckets;
mod compared;
mod document;
mod interval;
mod page;
mod plot;
mod text;

pub(super) use buckets::Buckets;
pub(super) use compared::{Terms, compare};
pub(super) use document::{Cell, FORMAT, Machine, RampAsked, RampCurve, RampPoint, Results, Round, Summary};
pub(super) use page::page;
pub(super) use text::{counted, markdown, render, time};
