//! Weir's settings and shared vocabulary.
//!
//! [`Settings`] is the checked form: only this is handed to other crates. It is built by [`load`] from five layers
//! (defaults, file, overlay, environment, command line), each value knowing where it came from.

pub mod settings;
pub mod vocab;

pub use settings::Settings;
