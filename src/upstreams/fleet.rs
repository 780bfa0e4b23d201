//! The roster as it is now, and how another takes its place: all or nothing, while requests go on.

use std::sync::Arc;

use arc_swap::ArcSwap;
use weir_config::Settings;

use super::roster::Roster;
use crate::forward::{Peer, PeerError};

/// The roster of the process.
pub struct Fleet {
    now: ArcSwap<Roster>,
    cores: usize,
}

impl Fleet {
    /// The roster of the settings.
    ///
    /// # Errors
    /// An upstream whose certificates or host TLS cannot use.
    pub fn open(settings: &Settings, cores: usize) -> Result<Self, PeerError> {
        let roster = Roster::build(settings, cores, None)?;
        Ok(Self { now: ArcSwap::from_pointee(roster), cores })
    }

    /// The roster as it is now.
    pub fn roster(&self) -> Arc<Roster> {
        self.now.load_full()
    }

    /// Puts the roster of `settings` in the place of the former one; says which peers are new. Looks their names up first, so
    /// that no request waits for that. Blocks: call it off the core threads.
    ///
    /// # Errors
    /// An upstream whose certificates or host TLS cannot use; the former roster stays.
    pub fn replace(&self, settings: &Settings) -> Result<Vec<Arc<Peer>>, PeerError> {
        let former = self.now.load_full();
        let next = Roster::build(settings, self.cores, Some(&former))?;
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
