//! One core's connections to the upstreams of one table.

use std::cell::Cell;
use std::ops::Deref;
use std::rc::Rc;
use std::sync::Arc;

use super::order::mixed;
use super::table::{Link, UpstreamTable};
use crate::forward::{ConnPool, Dialer};

/// The table as a core uses it.
pub struct LocalUpstreams {
    table: Arc<UpstreamTable>,
    /// In the order of the members.
    pools: Vec<(Arc<Link>, Rc<ConnPool>)>,
    chance: Cell<u64>,
}

impl LocalUpstreams {
    /// This core's pools for `table`; those for the same links are taken over from `former`, and each new one goes to `begin`
    /// once.
    pub fn new(table: Arc<UpstreamTable>, former: Option<&Self>, begin: impl Fn(&Rc<ConnPool>)) -> Self {
        let pool_of = |link: &Arc<Link>| {
            let known = former.and_then(|former| former.pools.iter().find(|(known, _)| Arc::ptr_eq(known, link)));
            if let Some((_, pool)) = known {
                return (Arc::clone(link), Rc::clone(pool));
            }
            let dialer = Dialer::new(Arc::clone(&link.peer), link.connect_limit);
            let pool = ConnPool::new(dialer, Arc::clone(&link.permits));
            begin(&pool);
            (Arc::clone(link), pool)
        };
        let pools = table.members.iter().map(|member| pool_of(&member.link)).collect();
        Self { table, pools, chance: Cell::new(0) }
    }

    /// The connections to the upstream at a place.
    pub fn pool(&self, at: u16) -> &Rc<ConnPool> {
        let (_, pool) = self.pools.get(usize::from(at)).unwrap_or(&self.pools[0]);
        pool
    }

    /// All of them.
    pub fn pools(&self) -> impl Iterator<Item = &Rc<ConnPool>> {
        self.pools.iter().map(|(_, pool)| pool)
    }

    /// A number that no other call of this core has.
    pub fn chance(&self) -> u64 {
        let next = self.chance.get().wrapping_add(1);
        self.chance.set(next);
        mixed(next)
    }
}

impl Deref for LocalUpstreams {
    type Target = UpstreamTable;

    fn deref(&self) -> &UpstreamTable {
        &self.table
    }
}
