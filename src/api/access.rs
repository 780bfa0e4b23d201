//! Who may ask what of the gateway's own paths.
//!
//! Invariant: exemption is by exact route; what is not listed needs an identity before it is even called unknown.

use weir_config::vocab::Role;

/// What a route asks of its caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Nothing.
    Open,
    /// At least this role.
    Role(Role),
}

/// Routes that need no identity.
const OPEN: [&str; 6] = ["/health", "/livez", "/readyz", "/swagger-ui", "/swagger-ui/", "/api-doc/openapi.json"];

/// What `method` on `path`, one of the gateway's own, asks of its caller.
pub fn access(_method: &str, path: &str) -> Access {
    if OPEN.contains(&path) { Access::Open } else { Access::Role(Role::Viewer) }
}
