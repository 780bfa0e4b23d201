//! Which build this is.

/// Version, and of a release build (`dist/build`) also the commit and its date.
pub(super) const FULL: &str = match option_env!("WEIR_BUILD") {
    Some(build) => build,
    None => env!("CARGO_PKG_VERSION"),
};
