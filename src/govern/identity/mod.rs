//! Tenants, keys and tokens as one.
//!
//! Invariants: what comes into being is stored first and let in second; whoever is denied (a revoked key, a replaced
//! token, a deleted tenant) is shut out of the directory first, before anything is waited for, and written down second:
//! a store that cannot take it does not let them in again, and is asked until it can ([`Kept`]). A plaintext key exists
//! in the value [`Identities::create_key`] returns and nowhere else. All calls block: they run on the API's blocking
//! threads. Knows no HTTP.

mod follow;
mod key_access;
mod key_file;
mod pending;
mod provider_keys;
mod seal;
mod tenant_change;
mod token;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

use parking_lot::{Mutex, RwLock};
use ring::rand::{SecureRandom, SystemRandom};
use serde_json::{Map, Value};
use weir_config::vocab::{KeyId, Role, Secret, TenantId, Timestamp};
use weir_storage::audit::AuditEvent;
use weir_storage::query::{Page, Paged};
use weir_storage::tenants::{KeyRecord, NewTenant, TenantChange, TenantRecord, TenantUpdate};
use weir_storage::{NotWritten, ReadError, Registry};

use self::pending::{Denial, Pending};
pub use self::provider_keys::ProviderKeyRecord;
use self::token::{KEY_BYTES, TokenKey, with_prefix};
use crate::admit::access::{Access, AccessTable};
use crate::admit::directory::{Digest, Directory, Holder, Named, Whom};
use crate::admit::provider_keys::ProviderKeys;
use crate::exchange::{Caller, OPEN_ACTOR, Proof};
use crate::redaction::KEY_PREFIX;

/// Characters of a key that are kept to recognise it by.
const SHOWN_CHARACTERS: usize = 12;

/// How often a change of a tenant is made anew because another process was faster.
const CHANGES_MAX: usize = 16;

/// Credentials of unknown holders that the log names one by one.
const LISTED_MAX: usize = 20;

/// Everything that lets somebody in.
pub struct Identities {
    store: Arc<dyn Registry>,
    directory: Arc<Directory>,
    /// Which models and upstreams tenants and keys may use.
    access: Arc<AccessTable>,
    /// Tenants' own credentials for providers.
    provider_keys: Arc<ProviderKeys>,
    /// One change of a tenant at a time, so that what is in force is what was stored last.
    updating: Mutex<()>,
    /// Where the token key is kept; `None` keeps it in memory.
    key_file: Option<PathBuf>,
    token_key: OnceLock<TokenKey>,
    /// Only one thread makes the token key.
    making: Mutex<()>,
    /// Shared by what lets somebody in, alone for what shuts somebody out for good: a credential that is stored first and let
    /// in second must not be revoked between the two, or it would be let in for good. A caller in the directory is shut
    /// out before this is waited for.
    changing: RwLock<()>,
    /// Denials that have begun and are neither stored nor pending yet.
    denying: AtomicUsize,
    /// The last line of the audit log whose changes are in force here.
    followed: AtomicU64,
    /// What is in force and not stored yet.
    pending: Pending,
    /// Uses up to this second have been written down.
    written_s: AtomicU32,
    /// What else forgets a tenant that is deleted.
    forget: Box<dyn Fn(TenantId) + Send + Sync>,
}

/// Why a change was not made.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// The store could not take it.
    #[error("{0}")]
    NotWritten(#[from] NotWritten),
    /// The store could not be read.
    #[error("{0}")]
    NotRead(#[from] ReadError),
    /// The file with the token key cannot be used.
    #[error("{0}")]
    KeyFile(#[from] key_file::KeyFileError),
    /// The system gives no random bytes.
    #[error("the system's random generator failed")]
    NoRandom,
    /// A credential could not be encrypted.
    #[error("the cipher failed")]
    NoCipher,
    /// A tenant's `config` speaks of a key that the tenant does not have.
    #[error("`config.access.keys.{0}`: this tenant has no key of this id that is in force; leave the entry out")]
    UnknownKey(KeyId),
    /// What a tenant may use cannot be read, so no part of it can be changed alone.
    #[error("`access` in the tenant's `config` cannot be read; correct it first (PUT /api/v1/tenants/{{id}})")]
    AccessUnreadable,
    /// Other processes changed the tenant again and again.
    #[error("other gateways change this tenant at this moment, again and again; ask again")]
    ChangedMeanwhile,
    /// The caller's key is limited, and what it asks for would hold more than the key itself.
    #[error(
        "a key that is limited (`access.keys.<id>` in its tenant's `config`) neither reads nor makes or changes credentials or \
         limits; ask with the admin key, or with a key that has no entry there"
    )]
    LimitedKey,
    /// The caller's own credential has been taken away since it was let in.
    #[error("the caller's credential is no longer valid")]
    CallerGone,
}

/// Whether a denial, which is in force, outlives the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kept {
    /// It is in the store.
    Durably,
    /// The store could not take it, and is asked again until it can.
    InMemory,
}

/// The caller's credential. `None` where it is nobody's: whoever asks administers, and may name a tenant that is to come.
fn own_credential(by: &Caller) -> Option<Named> {
    match by.proof {
        Proof::Open | Proof::Bootstrap => None,
        Proof::Key(key) => Some(Named::Key(key)),
        Proof::Token => Some(Named::Token(by.tenant_id)),
    }
}

/// A key that has just been created.
pub struct CreatedKey {
    /// What is kept of it.
    pub record: KeyRecord,
    /// The key itself, shown this once.
    pub plaintext: Secret,
}

/// Whether a start could use the file with the key of tenant tokens; one that is not there yet can be made.
///
/// # Errors
/// Why it could not.
pub fn check_key_file(path: &std::path::Path) -> Result<(), key_file::KeyFileError> {
    key_file::read(path).map(drop)
}

impl Identities {
    /// Loads what lets somebody in. `key_file` is read when it is there, and made when the first token is asked for.
    ///
    /// # Errors
    /// [`IdentityError`]: the store cannot be read, or the key file is not usable.
    pub fn load(store: Arc<dyn Registry>, key_file: Option<PathBuf>) -> Result<Self, IdentityError> {
        // First where the log ends, then what it led to: a change between the two is looked at twice and not missed.
        let followed = store.identity_changes(u64::MAX)?.upto;
        let credentials = store.load_credentials(None)?;
        let token_key = match &key_file {
            Some(path) => key_file::read(path)?.map(|bytes| TokenKey::new(&bytes)),
            None => None,
        };
        let keys = credentials.keys.iter().map(|key| {
            let holder = Holder::Key { id: key.id, tenant_id: key.tenant_id, role: key.role };
            (Digest::from_bytes(key.sha256), holder)
        });
        let token = |(tenant_id, nonce): &(TenantId, i64)| {
            let token = token_key.as_ref()?.token(*tenant_id, *nonce);
            Some((Digest::of(token.as_bytes()), Holder::Token { tenant_id: *tenant_id }))
        };
        let directory = Directory::new(keys.chain(credentials.tokens.iter().filter_map(token)));
        let known = credentials.token_key_sha256;
        if !credentials.tokens.is_empty() && token_key.as_ref().map(TokenKey::fingerprint) != known {
            let file = key_file.as_ref().map(|path| path.display().to_string()).unwrap_or_default();
            tracing::warn!(
                file,
                tokens = credentials.tokens.len(),
                "the key that tenant tokens are derived from is not the one they were issued with: every token issued \
                 before is invalid now; restore the file, or hand out the new tokens"
            );
        }
        let cell = OnceLock::new();
        if let Some(key) = token_key {
            // The cell is fresh.
            drop(cell.set(key));
        }
        let loaded = Self {
            store,
            directory: Arc::new(directory),
            access: Arc::default(),
            provider_keys: Arc::default(),
            updating: Mutex::new(()),
            key_file,
            token_key: cell,
            making: Mutex::new(()),
            changing: RwLock::new(()),
            denying: AtomicUsize::new(0),
            followed: AtomicU64::new(followed),
            pending: Pending::default(),
            written_s: AtomicU32::new(0),
            forget: Box::new(|_| {}),
        };
        loaded.load_access()?;
        loaded.load_provider_keys()?;
        Ok(loaded)
    }

    /// The same; `forget` is called with every tenant that has been deleted.
    #[must_use]
    pub fn forgetting(mut self, forget: impl Fn(TenantId) + Send + Sync + 'static) -> Self {
        self.forget = Box::new(forget);
        self
    }

    /// What requests are checked against.
    pub fn directory(&self) -> &Arc<Directory> {
        &self.directory
    }

    /// Which models and upstreams requests are held to.
    pub fn access(&self) -> &Arc<AccessTable> {
        &self.access
    }

    // --- tenants ---

    /// Puts a tenant in.
    ///
    /// # Errors
    /// [`IdentityError`]; nothing was changed.
    pub fn create_tenant(&self, by: &Caller, new: NewTenant) -> Result<TenantRecord, IdentityError> {
        let event = event(by, "tenant.create", Some(new.id), new.id, [("name", new.name.clone())]);
        let _shared = self.changing.read();
        self.may_make_credentials(by)?;
        self.refuse_unknown_keys(new.id, Some(&new.config))?;
        let created = self.store.create_tenant(new, event)?;
        self.take_over_access(&created);
        Ok(created)
    }

    /// Tenants, newest first.
    ///
    /// # Errors
    /// [`IdentityError`].
    pub fn list_tenants(&self, page: Page) -> Result<Paged<TenantRecord>, IdentityError> {
        Ok(self.store.list_tenants(page)?)
    }

    /// One tenant.
    ///
    /// # Errors
    /// [`IdentityError`].
    pub fn tenant(&self, id: TenantId) -> Result<Option<TenantRecord>, IdentityError> {
        if self.pending.holds(Denial::Tenant(id)) {
            return Ok(None);
        }
        Ok(self.store.tenant(id)?)
    }

    /// Changes a tenant; `None` when there is none of this id.
    ///
    /// # Errors
    /// [`IdentityError`]; nothing was changed.
    pub fn update_tenant(
        &self,
        by: &Caller,
        id: TenantId,
        change: TenantChange,
    ) -> Result<Option<TenantRecord>, IdentityError> {
        let _one_at_a_time = self.updating.lock();
        let _shared = self.changing.read();
        self.may_make_credentials(by)?;
        if self.pending.holds(Denial::Tenant(id)) {
            return Ok(None);
        }
        self.refuse_unknown_keys(id, change.config.as_ref())?;
        self.change_tenant(id, |former| {
            let mut change = change.clone();
            change.config = change.config.map(|config| tenant_change::merged(&former.config, config));
            let mut event = event(by, "tenant.update", Some(id), id, []);
            for (name, paths) in [
                ("changed", tenant_change::changes(former, &change)),
                ("limits_lifted_of_keys", tenant_change::lifted(former, &change)),
            ] {
                if !paths.is_empty() {
                    event.detail.insert(name.to_owned(), paths);
                }
            }
            Ok((change, event))
        })
    }

    /// Makes the change that `make` makes of a tenant as it is, once more where another process has changed the tenant meanwhile: no
    /// change of either is lost. `None` when there is none of this id. The caller holds `updating`.
    fn change_tenant(
        &self,
        id: TenantId,
        make: impl Fn(&TenantRecord) -> Result<(TenantChange, AuditEvent), IdentityError>,
    ) -> Result<Option<TenantRecord>, IdentityError> {
        for _ in 0..CHANGES_MAX {
            let Some(former) = self.store.tenant(id)? else { return Ok(None) };
            let (change, event) = make(&former)?;
            let change = TenantChange { based_on: change.config.is_some().then_some(former.config), ..change };
            match self.store.update_tenant(id, change, event)? {
                TenantUpdate::Made(tenant) => {
                    self.take_over_access(&tenant);
                    return Ok(Some(tenant));
                }
                TenantUpdate::Unknown => return Ok(None),
                TenantUpdate::Outdated => {}
            }
        }
        Err(IdentityError::ChangedMeanwhile)
    }

    /// Holds requests to what a tenant's record says. What was stored before `access` had a meaning is not obeyed by halves: what
    /// cannot be read allows nothing.
    fn take_over_access(&self, tenant: &TenantRecord) {
        match Access::read(&tenant.config) {
            Ok(access) => self.access.set(tenant.id, access),
            Err(error) => {
                tracing::error!(
                    tenant = %tenant.id,
                    error,
                    "what this tenant may use cannot be read, so it may use nothing; correct `access` in its `config` (PUT \
                     /api/v1/tenants/{{id}})"
                );
                self.access.set(tenant.id, Some(Access::nothing()));
            }
        }
    }

    /// Reads what every tenant may use, for the start.
    fn load_access(&self) -> Result<(), IdentityError> {
        let mut page = Page { limit: 1_000, ..Page::default() };
        loop {
            let tenants = self.store.list_tenants(page)?;
            tenants
                .data
                .iter()
                .filter(|tenant| tenant.config.contains_key("access"))
                .for_each(|tenant| self.take_over_access(tenant));
            page.offset += tenants.data.len() as u64;
            if tenants.data.is_empty() || page.offset >= tenants.total {
                return Ok(());
            }
        }
    }

    /// Deletes a tenant with everything it has; `None` when there is none of this id. Its credentials let nobody in from the
    /// beginning of the call on.
    ///
    /// # Errors
    /// [`IdentityError`]; its credentials let nobody in all the same, unless the caller's own had been taken away.
    pub fn delete_tenant(&self, by: &Caller, id: TenantId) -> Result<Option<Kept>, IdentityError> {
        let _denying = self.begin_denial();
        let was_in = self.shut_out(by, Whom::Tenant(id))?;
        let _alone = self.changing.write();
        // Also a caller that was let in meanwhile.
        let was_in = self.shut_out_again(Whom::Tenant(id)) || was_in;
        let is_there = || was_in || matches!(self.store.tenant(id), Ok(Some(_)));
        let kept = self.persist(Denial::Tenant(id), event(by, "tenant.delete", Some(id), id, []), was_in, is_there)?;
        if kept.is_some() {
            self.access.set(id, None);
            self.provider_keys.forget(id);
            (self.forget)(id);
        }
        Ok(kept)
    }

    // --- tokens ---

    /// A tenant's token, issued now if it has none. `None` when there is no such tenant and `create` is false.
    ///
    /// # Errors
    /// [`IdentityError`].
    pub fn token(&self, by: &Caller, id: TenantId, create: bool) -> Result<Option<Secret>, IdentityError> {
        let _shared = self.changing.read();
        self.may_make_credentials(by)?;
        self.issue(by, id, create)
    }

    /// The token of the tenant the caller acts for, which is written down if nobody has heard of it yet. `None` when the
    /// caller's own credential has been taken away since it was let in: a tenant that was deleted meanwhile must neither
    /// come back nor get a credential.
    ///
    /// # Errors
    /// [`IdentityError`].
    pub fn own_token(&self, by: &Caller) -> Result<Option<Secret>, IdentityError> {
        let _shared = self.changing.read();
        if self.still_let_in(by).is_err() {
            return Ok(None);
        }
        self.may_make_credentials(by)?;
        self.issue(by, by.tenant_id, own_credential(by).is_none())
    }

    /// Nobody changes anything with a credential that has been taken away: a request may have waited for long since it was let
    /// in. With `changing` held until the change is made: who takes the credential away comes before, and is seen here, or
    /// after.
    fn still_let_in(&self, by: &Caller) -> Result<(), IdentityError> {
        let gone = own_credential(by).is_some_and(|own| !self.directory.holds(own));
        if gone { Err(IdentityError::CallerGone) } else { Ok(()) }
    }

    /// Nor does a key that is limited: it would read or make what is not.
    fn may_make_credentials(&self, by: &Caller) -> Result<(), IdentityError> {
        self.still_let_in(by)?;
        let Proof::Key(key) = by.proof else { return Ok(()) };
        if self.access.limits_key(by.tenant_id, key) { Err(IdentityError::LimitedKey) } else { Ok(()) }
    }

    /// The first half of every denial; see [`Directory::shut_out`].
    fn shut_out(&self, by: &Caller, whom: Whom) -> Result<bool, IdentityError> {
        self.directory.shut_out(own_credential(by), whom).map_err(|_| IdentityError::CallerGone)
    }

    /// Once more, with `changing` held exclusively: no credential is between being stored and being let in now.
    fn shut_out_again(&self, whom: Whom) -> bool {
        self.directory.shut_out(None, whom).unwrap_or(false)
    }

    /// The second half: has the denial stored, or keeps it to be tried again. `None` when the store knows nobody of that name.
    /// With `changing` held alone.
    fn persist(
        &self,
        denial: Denial,
        by: AuditEvent,
        was_in: bool,
        is_there: impl FnOnce() -> bool,
    ) -> Result<Option<Kept>, IdentityError> {
        if self.pending.holds(denial) {
            return Ok(Some(Kept::InMemory));
        }
        // With others waiting the store is known not to work, and nobody has to find that out again.
        if was_in && self.pending.len() > 0 {
            self.pending.push(denial, by, None);
            return Ok(Some(Kept::InMemory));
        }
        match denial.write(&*self.store, by.clone()) {
            Ok(stored) => Ok(stored.then_some(Kept::Durably)),
            Err(error) if is_there() => {
                self.pending.push(denial, by, Some(&error));
                Ok(Some(Kept::InMemory))
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Asks the store again to keep what it could not take; how much it still has not.
    pub fn persist_pending(&self) -> usize {
        self.pending.retry(&*self.store, |denial| {
            if let Denial::Tenant(id) = denial {
                (self.forget)(id);
            }
        });
        self.pending.len()
    }

    /// Denials that are in force and not stored.
    pub fn unwritten(&self) -> usize {
        self.pending.len()
    }

    /// With `changing` held.
    fn issue(&self, by: &Caller, id: TenantId, create: bool) -> Result<Option<Secret>, IdentityError> {
        if self.pending.holds(Denial::Tenant(id)) {
            return Ok(None);
        }
        let key = self.token_key()?;
        let issued = event(by, "token.issue", Some(id), id, []);
        // A caller that presents a token learns nothing by being shown it.
        let shown = (by.proof != Proof::Token).then(|| event(by, "token.show", Some(id), id, []));
        let Some(stored) = self.store.issue_token(id, random_number()?, create, issued, shown)? else {
            return Ok(None);
        };
        let token = Secret::new(key.token(id, self.pending.number_of(id).unwrap_or(stored)));
        let digest = Digest::of(token.expose());
        if self.directory.find(&digest).is_none() {
            self.directory.insert(digest, Holder::Token { tenant_id: id });
        }
        Ok(Some(token))
    }

    /// Replaces a tenant's token; `None` when there is no such tenant. The former one lets nobody in from the beginning of the
    /// call on.
    ///
    /// # Errors
    /// [`IdentityError`]; the former token lets nobody in all the same, unless the caller's own credential had been taken away.
    pub fn reset_token(&self, by: &Caller, id: TenantId) -> Result<Option<(Secret, Kept)>, IdentityError> {
        self.may_make_credentials(by)?;
        let key = self.token_key()?;
        let number = random_number()?;
        let whom = Whom::One(Named::Token(id));
        let _denying = self.begin_denial();
        let was_in = self.shut_out(by, whom)?;
        let _alone = self.changing.write();
        let was_in = self.shut_out_again(whom) || was_in;
        if self.pending.holds(Denial::Tenant(id)) {
            return Ok(None);
        }
        let is_there = || was_in || matches!(self.store.tenant(id), Ok(Some(_)));
        let event = event(by, "token.reset", Some(id), id, []);
        let Some(kept) = self.persist(Denial::Token(id, number), event, was_in, is_there)? else { return Ok(None) };
        let token = Secret::new(key.token(id, number));
        self.directory.insert(Digest::of(token.expose()), Holder::Token { tenant_id: id });
        Ok(Some((token, kept)))
    }

    /// The key tokens are derived from; made, and its file written, when there is none.
    fn token_key(&self) -> Result<&TokenKey, IdentityError> {
        let _making = self.making.lock();
        if self.token_key.get().is_none() {
            let mut bytes = Secret::new(random::<KEY_BYTES>()?.to_vec());
            // Another process on the same file may have made it.
            let there = self.key_file.as_deref().map(key_file::read).transpose()?.flatten();
            if let Some(there) = there {
                bytes = there;
            } else if let Some(path) = &self.key_file {
                key_file::create(path, &bytes)?;
                tracing::info!(file = %path.display(), "created the key that tenant tokens are derived from and provider keys are encrypted under");
            }
            let key = TokenKey::new(&bytes);
            self.store.note_token_key(key.fingerprint())?;
            // The lock is held: nobody else has set it.
            drop(self.token_key.set(key));
        }
        self.token_key.get().ok_or(IdentityError::NoRandom)
    }

    // --- keys ---

    /// Makes a key for a tenant; `None` when there is no such tenant.
    ///
    /// # Errors
    /// [`IdentityError`]; no key was made.
    pub fn create_key(
        &self,
        by: &Caller,
        tenant_id: TenantId,
        name: String,
        role: Role,
    ) -> Result<Option<CreatedKey>, IdentityError> {
        self.create_limited_key(by, (tenant_id, name, role), None)
    }

    /// The same of a key that may use what `access` says, from its first use on.
    ///
    /// # Errors
    /// [`IdentityError`]; no key was made.
    pub fn create_limited_key(
        &self,
        by: &Caller,
        (tenant_id, name, role): (TenantId, String, Role),
        access: Option<Map<String, Value>>,
    ) -> Result<Option<CreatedKey>, IdentityError> {
        let text = with_prefix(KEY_PREFIX, &random::<32>()?);
        let record = KeyRecord {
            id: KeyId::fresh(),
            tenant_id,
            name,
            key_prefix: text.get(..SHOWN_CHARACTERS).unwrap_or_default().to_owned(),
            role,
            created_at: Timestamp::now(),
            revoked_at: None,
            last_used_at: None,
        };
        let plaintext = Secret::new(text);
        let digest = Digest::of(plaintext.expose());
        let detail = [("role", role.to_string()), ("key_prefix", record.key_prefix.clone())];
        let made = event(by, "key.create", Some(tenant_id), record.id, detail);
        // What limits a key stands in its tenant's `config`; the key itself is made, and not changed.
        let limited = |id: KeyId, because: &str| {
            let detail = [("changed", format!("config.access.keys.{id}")), ("because", because.to_owned())];
            event(by, "tenant.update", Some(tenant_id), tenant_id, detail)
        };
        let is_limited = access.is_some();
        let _one_at_a_time = is_limited.then(|| self.updating.lock());
        let _shared = self.changing.read();
        self.may_make_credentials(by)?;
        if self.pending.holds(Denial::Tenant(tenant_id)) {
            return Ok(None);
        }
        // What limits it is there before it is.
        if is_limited && !self.write_key_access(tenant_id, record.id, access, limited(record.id, "a key is made"))? {
            return Ok(None);
        }
        let stored = self.store.create_key(record.clone(), *digest.as_bytes(), made);
        if !matches!(stored, Ok(true)) {
            if is_limited {
                // It limits nobody; what cannot be taken out either is named when the `config` is next written.
                drop(self.write_key_access(tenant_id, record.id, None, limited(record.id, "the key was not made")));
            }
            return Ok(stored.map(|_| None)?);
        }
        self.directory.insert(digest, Holder::Key { id: record.id, tenant_id, role });
        Ok(Some(CreatedKey { record, plaintext }))
    }

    /// A tenant's keys, newest first, revoked ones among them.
    ///
    /// # Errors
    /// [`IdentityError`].
    pub fn list_keys(&self, tenant: TenantId, page: Page) -> Result<Paged<KeyRecord>, IdentityError> {
        Ok(self.store.list_keys(tenant, page)?)
    }

    /// Revokes a key; `None` when there is none of this id, or it is revoked already. No core lets it in from the beginning of
    /// the call on, on whichever connection.
    ///
    /// # Errors
    /// [`IdentityError`]; the key lets nobody in all the same, unless the caller's own credential had been taken away.
    pub fn revoke_key(&self, by: &Caller, id: KeyId) -> Result<Option<Kept>, IdentityError> {
        let whom = Whom::One(Named::Key(id));
        let tenant = self.directory.tenant_of(id);
        let _denying = self.begin_denial();
        let was_in = self.shut_out(by, whom)?;
        let alone = self.changing.write();
        let was_in = self.shut_out_again(whom) || was_in;
        let kept = self.persist(Denial::Key(id), event(by, "key.revoke", None, id, []), was_in, || was_in)?;
        drop(alone);
        if let (Some(tenant), Some(Kept::Durably)) = (tenant, kept) {
            self.forget_key_access(by, tenant, id);
        }
        Ok(kept)
    }

    /// Says in the log which credentials anybody may have, because authentication was off when they were made or shown.
    pub fn warn_of_open_credentials(&self) {
        let known = match self.store.credentials_known_to(OPEN_ACTOR) {
            Ok(known) => known,
            Err(error) => {
                tracing::warn!(%error, "cannot tell which keys were created while authentication was off");
                return;
            }
        };
        for key in known.keys.iter().take(LISTED_MAX) {
            tracing::warn!(
                key = %key.id,
                key_prefix = key.key_prefix,
                tenant = %key.tenant_id,
                role = %key.role,
                created_at = %key.created_at,
                "this key was made while authentication was off, by an unknown caller, and lets its holder in; unless you \
                 know it, revoke it (DELETE /api/v1/auth/keys/{{key}})"
            );
        }
        for tenant in known.tokens.iter().take(LISTED_MAX) {
            tracing::warn!(
                tenant = %tenant,
                "this tenant's token was shown while authentication was off, to an unknown caller, and lets its holder in; \
                 reset it (POST /api/v1/tenants/{{tenant}}/token/reset)"
            );
        }
        let (keys, tokens) = (known.keys.len(), known.tokens.len());
        if keys.max(tokens) > LISTED_MAX {
            tracing::warn!(
                keys,
                tokens,
                "there are more of these; `GET /api/v1/audit` lists all of them, under the actor `anonymous`"
            );
        }
    }

    /// Writes down which keys were used since the last call.
    ///
    /// # Errors
    /// [`IdentityError`]; the next call tries again.
    pub fn write_uses(&self) -> Result<(), IdentityError> {
        let since_s = self.written_s.load(Ordering::Relaxed);
        let used = self.directory.used_since(since_s);
        let Some(last_s) = used.iter().map(|(_, used_s)| *used_s).max() else { return Ok(()) };
        let at = |used_s: u32| Timestamp::from_micros(i64::from(used_s) * 1_000_000);
        self.store.touch_keys(used.into_iter().map(|(id, used_s)| (id, at(used_s))).collect())?;
        // The last second may not be over; what is written twice stays the same.
        self.written_s.store(last_s, Ordering::Relaxed);
        Ok(())
    }
}

fn event<const N: usize>(
    by: &Caller,
    action: &str,
    tenant: Option<TenantId>,
    target: impl ToString,
    detail: [(&str, String); N],
) -> AuditEvent {
    AuditEvent {
        tenant,
        actor: by.actor().into_owned(),
        action: action.to_owned(),
        target: Some(target.to_string()),
        detail: detail.into_iter().map(|(name, value)| (name.to_owned(), value)).collect::<BTreeMap<_, _>>(),
    }
}

fn random<const N: usize>() -> Result<[u8; N], IdentityError> {
    let mut bytes = [0; N];
    SystemRandom::new().fill(&mut bytes).map_err(|_| IdentityError::NoRandom)?;
    Ok(bytes)
}

fn random_number() -> Result<i64, IdentityError> {
    random::<8>().map(i64::from_be_bytes)
}
