//! The upstreams there are: which of them a request goes to, how they fare, and each core's connections to them. What is
//! sent, and when it is sent again, is `flow`'s business.
//!
//! ```text
//! table     what the settings say of upstreams, groups and routes, published whole and never changed
//! choice    from a request's head (and its model) to an upstream or a group
//! order     in which order the members of a group are tried
//! health    what has become of the calls to an upstream, and whether it is passed by
//! local     one core's pools
//! shared    the table as it is now, and how another takes its place
//! figures   what `/metrics` says of them
//! ```

mod choice;
mod figures;
mod health;
mod local;
mod order;
mod shared;
mod table;

pub use choice::{Asked, Chosen, Model, addressed};
pub use figures::Figures;
pub use health::Ended;
pub use local::LocalUpstreams;
pub use order::{Call, Tried};
pub use shared::SharedUpstreams;
pub use table::{Link, Member, Target, UpstreamTable};
