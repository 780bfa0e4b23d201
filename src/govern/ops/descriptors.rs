//! How many descriptors the settings ask for: one sum for the start and for `weir doctor`.

use weir_config::Settings;

/// Descriptors the process needs besides connections: log, database, rings, listeners.
const OWN: u64 = 64;

/// What the settings ask for.
#[derive(Debug, Clone, Copy)]
pub struct DescriptorNeed {
    /// `server.max_client_connections`.
    pub clients: u64,
    /// `max_connections`.
    pub upstream: u64,
}

impl DescriptorNeed {
    /// Of these settings.
    pub fn of(settings: &Settings) -> Self {
        Self {
            clients: u64::from(settings.server.max_client_connections),
            upstream: u64::from(settings.limits.max_connections),
        }
    }

    /// When every connection is open.
    pub fn full(self) -> u64 {
        self.clients + self.least()
    }

    /// With hardly a client.
    pub fn least(self) -> u64 {
        self.upstream + OWN
    }

    /// What to do where `have` are fewer than [`DescriptorNeed::full`].
    pub fn advice(self, have: u64) -> String {
        let Self { clients, upstream } = self;
        format!(
            "{have} descriptors are allowed and {} are needed for {clients} clients (server.max_client_connections) and \
             {upstream} connections to the provider (max_connections): raise the limit (`ulimit -n`, LimitNOFILE=), or lower \
             these settings",
            self.full()
        )
    }
}
