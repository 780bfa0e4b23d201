//! Objects at providers, and who has made them.

use weir_config::vocab::TenantId;

/// Objects of one tenant that are kept; the oldest go first.
pub const OBJECTS_MAX: u32 = 200_000;

/// Longest id of an object that is kept, in bytes.
pub const OBJECT_ID_BYTES_MAX: usize = 256;

/// An object that a tenant has made at an upstream.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct MadeObject {
    /// Whose it is.
    pub tenant: TenantId,
    /// The name of the upstream.
    pub upstream: String,
    /// The id that the provider gave it.
    pub object: String,
}
