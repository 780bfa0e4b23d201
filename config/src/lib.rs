//! Weir's settings and shared vocabulary.
//!
//! [`Settings`] is the checked form: only this is handed to other crates. It is built by [`load`] from five layers
//! (defaults, file, overlay, environment, command line), each value knowing where it came from. What settings there
//! are stands in one table, the [`catalogue`].

mod address;
pub mod catalogue;
mod effective;
pub mod egress;
mod error;
mod flags;
mod load;
pub mod prices;
mod remarks;
mod schema;
pub mod settings;
pub mod store_url;
pub mod vocab;
mod yaml;

pub use effective::{described, effective};
pub use error::{LoadError, Place, Violation};
pub use flags::{FlagError, Refused, write_overlay};
pub use load::{Change, Changes, Loaded, Origin, Sources, load, siem_token};
pub use remarks::not_built;
pub use schema::schema;
pub use settings::Settings;
