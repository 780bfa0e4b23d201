//! Recorded calls looked at once more under other settings or rules, and what would be different: for `weir replay`, which reads a
//! record beside a gateway, and for the API, which has a change tried in the background ([`Replays`]).
//!
//! Invariants: the texts go through the detectors of the proxy; what a record lacks for a faithful look is counted and said; nothing
//! is written.

mod curve;
mod look;
mod replays;
mod runs;
mod tally;
mod trial;

pub(crate) use curve::{Curve, CurveLooker, CurvePoint, Thresholds, thresholds, unbounded};
pub(crate) use look::Looker;
pub(crate) use replays::Refused;
pub use replays::Replays;
pub use runs::ReplayMeans;
pub(crate) use runs::{Progress, ReplayChange, ReplayState, Run, StoppedBy};
pub(crate) use tally::{Change, Tally, Terms, Unasked};
pub(crate) use trial::ReplayRequest;
