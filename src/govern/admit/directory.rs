//! Every API key and tenant token in memory, found by the SHA-256 digest of what a caller presents.
//!
//! Invariants: looking up takes no lock and reads no database; a digest is compared in constant time; a change is seen
//! by every core before the call that makes it returns, also where a connection remembers its last caller, because
//! every change moves [`Directory::generation`] on. Holds digests only: no credential can be read back from here.
//! Knows neither HTTP nor storage.
//!
//! The table is cut into immutable pieces, each behind an atomic pointer: a change copies one piece (some hundred
//! entries of 100,000) and swaps it in. Which piece a key or a tenant's token lies in is kept beside the table, so that
//! taking one out looks at one piece only.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasherDefault, Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use arc_swap::ArcSwap;
use crossbeam_utils::CachePadded;
use parking_lot::Mutex;
use sha2::{Digest as _, Sha256};
use weir_config::vocab::{KeyId, Role, TenantId, same_bytes};

/// Pieces of the table; the first byte of a digest chooses one.
const PIECES: usize = 256;

/// SHA-256 of a credential.
#[derive(Clone, Copy)]
pub struct Digest([u8; 32]);

/// The owner of a credential.
#[derive(Debug)]
pub struct Entry {
    /// What it opens.
    pub holder: Holder,
    /// When it was last used, in seconds since 1970; 0 for never since the start.
    used_s: AtomicU32,
    /// It has been taken out of the table: what it let in is over.
    is_gone: AtomicBool,
}

/// What a credential opens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Holder {
    /// An API key.
    Key {
        /// Its id.
        id: KeyId,
        /// The tenant it is bound to.
        tenant_id: TenantId,
        /// What it allows.
        role: Role,
    },
    /// A tenant's token: operator of that tenant.
    Token {
        /// The tenant.
        tenant_id: TenantId,
    },
}

/// What a credential is called where nobody has its text: a key by its id, a token by its tenant. Each has one at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Named {
    /// The key of this id.
    Key(KeyId),
    /// The token of this tenant.
    Token(TenantId),
}

/// Whom to shut out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Whom {
    /// One credential.
    One(Named),
    /// Every credential of this tenant.
    Tenant(TenantId),
}

/// The caller has been shut out meanwhile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AskerGone;

type Piece = HashMap<Digest, Arc<Entry>, BuildHasherDefault<FirstBytes>>;

/// The table.
pub struct Directory {
    pieces: Box<[ArcSwap<Piece>]>,
    /// Moves on with every change. Read with every request, written next to never.
    generation: CachePadded<AtomicU64>,
    /// One change at a time, with the piece each credential lies in. Never taken while a request is admitted.
    changing: Mutex<HashMap<Named, u8>>,
    /// What is in it could not be looked after for so long that nobody is let in by it.
    stale: AtomicBool,
}

// === impl Digest ===

impl Digest {
    /// The digest of a credential.
    pub fn of(credential: &[u8]) -> Self {
        Self(Sha256::digest(credential).into())
    }

    /// A digest that storage kept.
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The 32 bytes.
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl PartialEq for Digest {
    fn eq(&self, other: &Self) -> bool {
        same_bytes(&self.0, &other.0)
    }
}

impl Eq for Digest {}

impl Hash for Digest {
    fn hash<H: Hasher>(&self, state: &mut H) {
        // A digest is as evenly spread as any hash of it could be, and nobody can choose the digests in the table. The
        // first byte has chosen the piece already.
        let [_, a, b, c, d, e, f, g, h, ..] = self.0;
        state.write_u64(u64::from_le_bytes([a, b, c, d, e, f, g, h]));
    }
}

/// Takes the one number a [`Digest`] gives as the hash.
#[derive(Default)]
pub struct FirstBytes(u64);

impl Hasher for FirstBytes {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = number;
    }
}

// === impl Holder ===

impl Holder {
    /// The tenant it opens.
    pub fn tenant_id(&self) -> TenantId {
        match self {
            Self::Key { tenant_id, .. } | Self::Token { tenant_id } => *tenant_id,
        }
    }

    /// What its credential is called.
    pub fn named(&self) -> Named {
        match self {
            Self::Key { id, .. } => Named::Key(*id),
            Self::Token { tenant_id } => Named::Token(*tenant_id),
        }
    }
}

// === impl Entry ===

impl Entry {
    fn new(holder: Holder) -> Arc<Self> {
        Arc::new(Self { holder, used_s: AtomicU32::new(0), is_gone: AtomicBool::new(false) })
    }

    /// Whether the credential has been taken away.
    pub fn is_gone(&self) -> bool {
        self.is_gone.load(Ordering::Acquire)
    }

    fn go(&self) {
        self.is_gone.store(true, Ordering::Release);
    }

    /// Notes that the credential is in use. Writes at most once a second, so that cores do not fight over the line.
    pub fn touch(&self, now_s: u32) {
        if self.used_s.load(Ordering::Relaxed) < now_s {
            self.used_s.store(now_s, Ordering::Relaxed);
        }
    }
}

// === impl Directory ===

impl Default for Directory {
    fn default() -> Self {
        Self::new([])
    }
}

impl Directory {
    /// A table of these credentials.
    pub fn new(holders: impl IntoIterator<Item = (Digest, Holder)>) -> Self {
        let mut pieces: Vec<Piece> = (0..PIECES).map(|_| Piece::default()).collect();
        let mut places = HashMap::new();
        for (digest, holder) in holders {
            if let Some(piece) = pieces.get_mut(piece_of(&digest)) {
                piece.insert(digest, Entry::new(holder));
                places.insert(holder.named(), digest.0[0]);
            }
        }
        Self {
            pieces: pieces.into_iter().map(ArcSwap::from_pointee).collect(),
            generation: CachePadded::new(AtomicU64::new(1)),
            changing: Mutex::new(places),
            stale: AtomicBool::new(false),
        }
    }

    /// Whose this digest is.
    pub fn find(&self, digest: &Digest) -> Option<Arc<Entry>> {
        self.pieces.get(piece_of(digest))?.load().get(digest).cloned()
    }

    /// Which state of the table is current. What was found in one generation holds until the next.
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Adds a credential, in place of the former one of that name.
    pub fn insert(&self, digest: Digest, holder: Holder) {
        let mut places = self.changing.lock();
        let former = places.insert(holder.named(), digest.0[0]);
        if former.is_some_and(|former| former != digest.0[0]) {
            self.clear(former, holder.named());
        }
        if let Some(piece) = self.pieces.get(piece_of(&digest)) {
            let mut changed = Piece::clone(&piece.load());
            if former == Some(digest.0[0]) {
                without(&mut changed, |former| former.named() == holder.named());
            }
            changed.insert(digest, Entry::new(holder));
            piece.store(Arc::new(changed));
        }
        self.generation.fetch_add(1, Ordering::SeqCst);
    }

    /// Removes these credentials; false when there were none. When this returns, no core lets them in. `by` is the caller's own
    /// credential, if it is in the table: of two callers who revoke each other only the first one succeeds.
    ///
    /// # Errors
    /// [`AskerGone`]; nothing was changed.
    pub fn shut_out(&self, by: Option<Named>, whom: Whom) -> Result<bool, AskerGone> {
        let mut places = self.changing.lock();
        if by.is_some_and(|by| !places.contains_key(&by)) {
            return Err(AskerGone);
        }
        let was_there = match whom {
            Whom::One(named) => {
                let place = places.remove(&named);
                self.clear(place, named);
                place.is_some()
            }
            Whom::Tenant(tenant_id) => {
                let of_tenant = |holder: &Holder| holder.tenant_id() == tenant_id;
                let mut gone = Vec::new();
                for piece in &self.pieces {
                    let present = piece.load();
                    if present.values().any(|entry| of_tenant(&entry.holder)) {
                        let mut changed = Piece::clone(&present);
                        gone.extend(without(&mut changed, of_tenant));
                        piece.store(Arc::new(changed));
                    }
                }
                for named in &gone {
                    places.remove(named);
                }
                !gone.is_empty()
            }
        };
        self.generation.fetch_add(1, Ordering::SeqCst);
        Ok(was_there)
    }

    /// Takes out which credentials of these tenants are not in `wanted`; by how much that moved the generation.
    pub fn remove_others(&self, tenants: &HashSet<TenantId>, wanted: &HashMap<Digest, Holder>) -> u64 {
        u64::from(self.reconciled(tenants, wanted, None).1)
    }

    /// Makes the credentials of these tenants the ones in `wanted`: what is not among them goes, and what is missing comes in,
    /// unless the table is no longer in the state `as_of`. What stays keeps what is remembered of it. False where something that
    /// is missing was left out.
    pub fn reconcile(&self, tenants: &HashSet<TenantId>, wanted: &HashMap<Digest, Holder>, as_of: Option<u64>) -> bool {
        self.reconciled(tenants, wanted, as_of).0
    }

    /// The same, with whether it changed anything.
    fn reconciled(
        &self,
        tenants: &HashSet<TenantId>,
        wanted: &HashMap<Digest, Holder>,
        as_of: Option<u64>,
    ) -> (bool, bool) {
        let mut places = self.changing.lock();
        let as_it_was = as_of == Some(self.generation());
        let mut missing: HashMap<u8, Vec<(Digest, Holder)>> = HashMap::new();
        for (digest, holder) in wanted.iter().filter(|(digest, _)| self.find(digest).is_none()) {
            missing.entry(digest.0[0]).or_default().push((*digest, *holder));
        }
        let mut changed_any = false;
        for (index, piece) in (0..=u8::MAX).zip(&self.pieces) {
            let present = piece.load();
            let goes = |digest: &Digest, entry: &Arc<Entry>| {
                tenants.contains(&entry.holder.tenant_id()) && wanted.get(digest) != Some(&entry.holder)
            };
            let comes = missing.get(&index).filter(|_| as_it_was);
            if comes.is_none() && !present.iter().any(|(digest, entry)| goes(digest, entry)) {
                continue;
            }
            let mut changed = Piece::clone(&present);
            changed.retain(|digest, entry| {
                let leaves = goes(digest, entry);
                if leaves {
                    entry.go();
                    if places.get(&entry.holder.named()) == Some(&index) {
                        places.remove(&entry.holder.named());
                    }
                }
                !leaves
            });
            for (digest, holder) in comes.into_iter().flatten() {
                changed.insert(*digest, Entry::new(*holder));
            }
            piece.store(Arc::new(changed));
            changed_any = true;
        }
        if as_it_was {
            let named = missing.values().flatten().map(|(digest, holder)| (holder.named(), digest.0[0]));
            places.extend(named);
        }
        if changed_any {
            self.generation.fetch_add(1, Ordering::SeqCst);
        }
        (as_it_was || missing.is_empty(), changed_any)
    }

    /// Whether nobody is let in by it, as it could not be looked after for too long.
    pub fn is_stale(&self) -> bool {
        self.stale.load(Ordering::Relaxed)
    }

    /// Says so, or that it is looked after again.
    pub fn set_stale(&self, stale: bool) -> bool {
        self.stale.swap(stale, Ordering::Relaxed) != stale
    }

    /// Whether this credential lets anybody in.
    pub fn holds(&self, named: Named) -> bool {
        self.changing.lock().contains_key(&named)
    }

    /// Swaps in the piece without the credential of this name.
    fn clear(&self, place: Option<u8>, named: Named) {
        if let Some(piece) = place.and_then(|place| self.pieces.get(usize::from(place))) {
            let mut changed = Piece::clone(&piece.load());
            without(&mut changed, |holder| holder.named() == named);
            piece.store(Arc::new(changed));
        }
    }

    /// Keys used since `since_s`, with the second of their last use.
    pub fn used_since(&self, since_s: u32) -> Vec<(KeyId, u32)> {
        let mut used = Vec::new();
        for piece in &self.pieces {
            for entry in piece.load().values() {
                let used_s = entry.used_s.load(Ordering::Relaxed);
                if let Holder::Key { id, .. } = entry.holder
                    && used_s >= since_s
                    && used_s > 0
                {
                    used.push((id, used_s));
                }
            }
        }
        used
    }

    /// Whose a key is that lets somebody in. Looks through all of them: no request asks.
    pub fn tenant_of(&self, id: KeyId) -> Option<TenantId> {
        self.pieces.iter().find_map(|piece| {
            let piece = piece.load();
            let held = piece.values().map(|entry| &entry.holder);
            held.filter(|holder| holder.named() == Named::Key(id)).map(Holder::tenant_id).next()
        })
    }

    /// Whether some key in the table has this role.
    pub fn has_key_of(&self, role: Role) -> bool {
        let is = |entry: &Arc<Entry>| matches!(entry.holder, Holder::Key { role: held, .. } if held == role);
        self.pieces.iter().any(|piece| piece.load().values().any(is))
    }

    /// Number of credentials.
    pub fn len(&self) -> usize {
        self.pieces.iter().map(|piece| piece.load().len()).sum()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Leaves out of `piece` whose holder `goes`, and tells them; who they were.
fn without(piece: &mut Piece, goes: impl Fn(&Holder) -> bool) -> Vec<Named> {
    let mut gone = Vec::new();
    piece.retain(|_, entry| {
        let leaves = goes(&entry.holder);
        if leaves {
            entry.go();
            gone.push(entry.holder.named());
        }
        !leaves
    });
    gone
}

fn piece_of(digest: &Digest) -> usize {
    usize::from(digest.0[0])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(id: u8, tenant: u8, role: Role) -> Holder {
        Holder::Key { id: KeyId::from_bytes([id; 16]), tenant_id: TenantId::from_bytes([tenant; 16]), role }
    }

    #[test]
    fn finds_what_was_put_in_and_nothing_else() {
        let directory = Directory::new([(Digest::of(b"one"), key(1, 1, Role::Viewer))]);
        directory.insert(Digest::of(b"two"), key(2, 1, Role::Admin));
        let found = |text: &[u8]| directory.find(&Digest::of(text)).map(|entry| entry.holder);
        assert_eq!(found(b"one"), Some(key(1, 1, Role::Viewer)));
        assert_eq!(found(b"two"), Some(key(2, 1, Role::Admin)));
        assert_eq!(found(b"three"), None);
        assert_eq!(directory.len(), 2);
        assert!(directory.has_key_of(Role::Admin) && !directory.has_key_of(Role::Operator));
    }

    #[test]
    fn what_is_removed_is_gone_and_the_generation_tells() {
        let tenant = TenantId::from_bytes([1; 16]);
        let directory = Directory::new((0..100).map(|id| (Digest::of(&[id]), key(id, id % 2, Role::Operator))));
        directory.insert(Digest::of(b"token"), Holder::Token { tenant_id: tenant });
        let before = directory.generation();
        let held = directory.find(&Digest::of(b"token")).unwrap();
        assert_eq!(directory.shut_out(None, Whom::Tenant(tenant)), Ok(true));
        assert_eq!((directory.len(), held.is_gone()), (50, true));
        assert!(directory.generation() > before);
        assert!(directory.find(&Digest::of(b"token")).is_none());
        assert!(directory.find(&Digest::of(&[1])).is_none() && directory.find(&Digest::of(&[2])).is_some());
    }

    #[test]
    fn one_credential_is_taken_out_by_name_and_a_new_one_of_that_name_replaces_it() {
        let tenant = TenantId::from_bytes([1; 16]);
        let directory = Directory::new((0..200).map(|id| (Digest::of(&[id]), key(id, 1, Role::Operator))));
        let named = |id: u8| Named::Key(KeyId::from_bytes([id; 16]));
        let before = directory.generation();
        let held = directory.find(&Digest::of(&[7])).unwrap();
        assert!(!held.is_gone());
        assert_eq!(directory.shut_out(Some(named(8)), Whom::One(named(7))), Ok(true));
        assert!(
            held.is_gone()
                && directory.find(&Digest::of(&[7])).is_none()
                && directory.find(&Digest::of(&[8])).is_some()
        );
        assert_eq!((directory.len(), directory.holds(named(7)), directory.holds(named(8))), (199, false, true));
        assert!(directory.generation() > before);
        assert_eq!(directory.shut_out(None, Whom::One(named(7))), Ok(false));
        assert_eq!(directory.shut_out(Some(named(7)), Whom::One(named(8))), Err(AskerGone), "it is out itself");
        assert_eq!(directory.len(), 199);
        // More tokens than pieces, so that some follow one another in the same piece.
        for round in 0..600u16 {
            directory.insert(Digest::of(&round.to_be_bytes()), Holder::Token { tenant_id: tenant });
        }
        assert_eq!(directory.len(), 200);
        assert!(directory.find(&Digest::of(&599u16.to_be_bytes())).is_some());
        let token = directory.find(&Digest::of(&599u16.to_be_bytes())).unwrap();
        assert_eq!(directory.shut_out(None, Whom::Tenant(tenant)), Ok(true));
        assert!(token.is_gone() && directory.is_empty() && !directory.holds(Named::Token(tenant)));
    }

    #[test]
    fn tenants_are_made_what_another_process_left_of_them_and_nothing_comes_in_after_a_denial() {
        let (one, other) = (TenantId::from_bytes([1; 16]), TenantId::from_bytes([2; 16]));
        let stays = Holder::Token { tenant_id: other };
        let directory = Directory::new([
            (Digest::of(b"kept"), key(1, 1, Role::Viewer)),
            (Digest::of(b"gone"), key(2, 1, Role::Viewer)),
            (Digest::of(b"token 1"), Holder::Token { tenant_id: one }),
            (Digest::of(b"foreign"), stays),
        ]);
        let (kept, gone) =
            (directory.find(&Digest::of(b"kept")).unwrap(), directory.find(&Digest::of(b"gone")).unwrap());
        let wanted = HashMap::from([
            (Digest::of(b"kept"), key(1, 1, Role::Viewer)),
            (Digest::of(b"fresh"), key(3, 1, Role::Admin)),
            (Digest::of(b"token 2"), Holder::Token { tenant_id: one }),
        ]);
        let tenants = HashSet::from([one]);
        assert!(!directory.reconcile(&tenants, &wanted, None), "nothing may come in while somebody is shut out");
        assert!(gone.is_gone() && !kept.is_gone() && directory.find(&Digest::of(b"fresh")).is_none());
        let before = directory.generation();
        assert_eq!(directory.shut_out(None, Whom::One(Named::Key(KeyId::from_bytes([3; 16])))), Ok(false));
        assert!(!directory.reconcile(&tenants, &wanted, Some(before)), "somebody was shut out since");
        let before = directory.generation();
        assert!(directory.reconcile(&tenants, &wanted, Some(before)));
        assert!(Arc::ptr_eq(&kept, &directory.find(&Digest::of(b"kept")).unwrap()));
        let names = [Named::Key(KeyId::from_bytes([3; 16])), Named::Token(one), Named::Token(other)];
        assert!(names.iter().all(|named| directory.holds(*named)) && directory.len() == 4);
        assert!(directory.generation() > before);
        let settled = directory.generation();
        assert!(directory.reconcile(&tenants, &wanted, Some(settled)));
        assert_eq!(directory.generation(), settled, "nothing changed");
        assert_eq!(directory.shut_out(None, Whom::One(Named::Token(one))), Ok(true));
        assert!(directory.find(&Digest::of(b"token 2")).is_none());
    }

    #[test]
    fn tells_which_keys_were_used() {
        let directory = Directory::new([(Digest::of(b"one"), key(1, 1, Role::Viewer))]);
        assert_eq!(directory.used_since(0), []);
        let entry = directory.find(&Digest::of(b"one")).unwrap();
        entry.touch(7);
        entry.touch(5);
        assert_eq!(directory.used_since(7), [(KeyId::from_bytes([1; 16]), 7)]);
        assert_eq!(directory.used_since(8), []);
    }
}
