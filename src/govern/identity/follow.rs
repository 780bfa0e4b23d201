//! Changes that other processes make to the same store: another gateway on the database file, or the one that this one takes over
//! from. Every change of an identity is a line of the audit log by the same commit, so the log's end says whether there is something
//! to read, and its lines say of which tenants.
//!
//! Invariant: what comes in by this way never undoes a denial of this process that is under way or waits for the store.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::Ordering;

use weir_config::vocab::TenantId;

use super::pending::Denial;
use super::token::TokenKey;
use super::{Identities, IdentityError, key_file};
use crate::admit::directory::{Digest, Holder};

/// A denial that has begun; over when it is dropped.
pub(super) struct Denying<'a>(&'a Identities);

impl Drop for Denying<'_> {
    fn drop(&mut self) {
        self.0.denying.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Identities {
    /// To be held from before the directory shuts somebody out until that is stored or pending.
    pub(super) fn begin_denial(&self) -> Denying<'_> {
        self.denying.fetch_add(1, Ordering::SeqCst);
        Denying(self)
    }

    /// Takes over what has changed in the store since the last call, by whichever process. What was taken away is in force when
    /// this returns; what came in may wait for the next call, while this process shuts somebody out.
    ///
    /// # Errors
    /// [`IdentityError`]: the store cannot be read. The next call tries again.
    pub fn follow(&self) -> Result<(), IdentityError> {
        let followed = self.followed.load(Ordering::Acquire);
        let changes = self.store.identity_changes(followed)?;
        if changes.upto == followed {
            return Ok(());
        }
        let is_done = changes.tenants.is_empty() || self.take_over(&changes.tenants.into_iter().collect())?;
        if is_done {
            self.followed.store(changes.upto, Ordering::Release);
        }
        Ok(())
    }

    fn take_over(&self, tenants: &HashSet<TenantId>) -> Result<bool, IdentityError> {
        let _one_at_a_time = self.updating.lock();
        let _alone = self.changing.write();
        // In this order: a denial that begins after the second line moves the generation.
        let generation = self.directory.generation();
        let as_of = (self.denying.load(Ordering::SeqCst) == 0).then_some(generation);
        let mut wanted = HashMap::new();
        for tenant in tenants {
            if !self.pending.holds(Denial::Tenant(*tenant)) {
                self.credentials_of(*tenant, &mut wanted)?;
            }
        }
        // Whoever is shut out is so at once; who comes in waits for the rest.
        let moved = self.directory.remove_others(tenants, &wanted);
        // What limits a key is there before it is.
        for tenant in tenants {
            match self.store.tenant(*tenant)? {
                Some(record) => self.take_over_access(&record),
                None => self.access.set(*tenant, None),
            }
            self.reload_provider_keys(*tenant)?;
        }
        Ok(self.directory.reconcile(tenants, &wanted, as_of.map(|generation| generation + moved)))
    }

    /// What lets somebody in as this tenant, but for what waits to be taken away.
    fn credentials_of(&self, tenant: TenantId, wanted: &mut HashMap<Digest, Holder>) -> Result<(), IdentityError> {
        let stored = self.store.load_credentials(Some(tenant))?;
        let keys = stored.keys.iter().filter(|key| !self.pending.holds(Denial::Key(key.id)));
        wanted.extend(keys.map(|key| {
            let holder = Holder::Key { id: key.id, tenant_id: tenant, role: key.role };
            (Digest::from_bytes(key.sha256), holder)
        }));
        for (_, number) in stored.tokens {
            let Some(file) = self.present_token_key()? else { break };
            let token = file.token(tenant, self.pending.number_of(tenant).unwrap_or(number));
            wanted.insert(Digest::of(token.as_bytes()), Holder::Token { tenant_id: tenant });
        }
        Ok(())
    }

    /// The key of tokens, if there is one by now: another process may have made it.
    fn present_token_key(&self) -> Result<Option<&TokenKey>, IdentityError> {
        let _making = self.making.lock();
        if self.token_key.get().is_none()
            && let Some(bytes) = self.key_file.as_deref().map(key_file::read).transpose()?.flatten()
        {
            // The lock is held: nothing else has set it.
            drop(self.token_key.set(TokenKey::new(&bytes)));
        }
        Ok(self.token_key.get())
    }
}
