//! The table as it is now, and how another takes its place: all or nothing, while requests go on.

use std::sync::Arc;

use arc_swap::ArcSwap;
use weir_config::Settings;

use super::table::UpstreamTable;
use crate::forward::{Peer, PeerError};

/// The table of the process.
pub struct SharedUpstreams {
    now: ArcSwap<UpstreamTable>,
    cores: usize,
}

impl SharedUpstreams {
    /// The table of the settings.
    ///
    /// # Errors
    /// An upstream whose certificates or host TLS cannot use.
    pub fn open(settings: &Settings, cores: usize) -> Result<Self, PeerError> {
        let table = UpstreamTable::build(settings, cores, None)?;
        Ok(Self { now: ArcSwap::from_pointee(table), cores })
    }

    /// The table as it is now.
    pub fn table(&self) -> Arc<UpstreamTable> {
        self.now.load_full()
    }

    /// Puts the table of `settings` in the place of the former one; says which peers are new. Looks their names up first, so
    /// that no request waits for that. Blocks: call it off the core threads.
    ///
    /// # Errors
    /// An upstream whose certificates or host TLS cannot use; the former table stays.
    pub fn replace(&self, settings: &Settings) -> Result<Vec<Arc<Peer>>, PeerError> {
        let former = self.now.load_full();
        let next = UpstreamTable::build(settings, self.cores, Some(&former))?;
        let is_new = |peer: &Arc<Peer>| !former.members.iter().any(|member| Arc::ptr_eq(&member.link.peer, peer));
        let peers = next.members.iter().map(|member| Arc::clone(&member.link.peer));
        let fresh: Vec<Arc<Peer>> = peers.filter(is_new).collect();
        for peer in &fresh {
            if let Err(error) = peer.resolve() {
                tracing::warn!(upstream = %peer.describe(), %error, "the provider's host name cannot be resolved; will retry");
            }
        }
        self.now.store(Arc::new(next));
        Ok(fresh)
    }
}
