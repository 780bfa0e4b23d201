//! Tenants, keys and tokens as one: every change is made durable in the store and in force in the directory before it
//! is answered.
//!
//! Invariants: what comes into being is stored first and let in second; what is revoked is let in nowhere when the call
//! returns; a deleted tenant's credentials stop before its data goes, so that nothing is recorded for it afterwards. A
//! plaintext key exists in the value [`Identities::create_key`] returns and nowhere else. All calls block: they run on
//! the API's blocking threads. Knows no HTTP.

mod key_file;
mod token;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use parking_lot::{Mutex, RwLock};
use ring::rand::{SecureRandom, SystemRandom};
use weir_config::vocab::{KeyId, Role, Secret, TenantId, Timestamp};
use weir_storage::audit::AuditEvent;
use weir_storage::identity::{KeyRecord, NewTenant, TenantChange, TenantRecord};
use weir_storage::query::{Page, Paged};
use weir_storage::{NotWritten, ReadError, Store};

use self::token::{KEY_BYTES, TokenKey, with_prefix};
use crate::admit::KEY_PREFIX;
use crate::admit::directory::{Digest, Directory, Holder, Named};
use crate::exchange::{Caller, Proof};

/// Characters of a key that are kept to recognise it by.
const SHOWN_CHARACTERS: usize = 12;

/// Everything that lets somebody in.
pub struct Identities {
    store: Store,
    directory: Arc<Directory>,
    /// Where the token key is kept; `None` keeps it in memory.
    key_file: Option<PathBuf>,
    token_key: OnceLock<TokenKey>,
    /// Only one thread makes the token key.
    making: Mutex<()>,
    /// Shared by what lets somebody in, alone for what shuts somebody out: a credential that is stored first and let in
    /// second must not be revoked between the two, or it would be let in for good.
    changing: RwLock<()>,
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
    /// The caller's own credential has been taken away since it was let in.
    #[error("the caller's credential is no longer valid")]
    CallerGone,
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

impl Identities {
    /// Loads what lets somebody in. `key_file` is read when it is there, and made when the first token is asked for.
    ///
    /// # Errors
    /// [`IdentityError`]: the store cannot be read, or the key file is not usable.
    pub fn load(store: Store, key_file: Option<PathBuf>) -> Result<Self, IdentityError> {
        let credentials = store.load_credentials()?;
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
        Ok(Self {
            store,
            directory: Arc::new(directory),
            key_file,
            token_key: cell,
            making: Mutex::new(()),
            changing: RwLock::new(()),
            written_s: AtomicU32::new(0),
            forget: Box::new(|_| {}),
        })
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

    // --- tenants ---

    /// Puts a tenant in.
    ///
    /// # Errors
    /// [`IdentityError`]; nothing was changed.
    pub fn create_tenant(&self, by: &Caller, new: NewTenant) -> Result<TenantRecord, IdentityError> {
        let event = event(by, "tenant.create", Some(new.id), new.id, [("name", new.name.clone())]);
        let _shared = self.changing.read();
        self.still_let_in(by)?;
        Ok(self.store.create_tenant(new, event)?)
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
        let event = event(by, "tenant.update", Some(id), id, []);
        let _shared = self.changing.read();
        self.still_let_in(by)?;
        Ok(self.store.update_tenant(id, change, event)?)
    }

    /// Deletes a tenant with everything it has; false when there is none of this id.
    ///
    /// # Errors
    /// [`IdentityError`]; the tenant and its credentials are as before.
    pub fn delete_tenant(&self, by: &Caller, id: TenantId) -> Result<bool, IdentityError> {
        let event = event(by, "tenant.delete", Some(id), id, []);
        let _alone = self.changing.write();
        self.still_let_in(by)?;
        let taken = self.directory.take(|holder| holder.tenant_id() == id);
        let deleted = self.store.delete_tenant(id, event);
        if deleted.is_err() {
            for (digest, holder) in taken {
                self.directory.insert(digest, holder);
            }
        }
        let deleted = deleted?;
        if deleted {
            (self.forget)(id);
        }
        Ok(deleted)
    }

    // --- tokens ---

    /// A tenant's token, issued now if it has none. `None` when there is no such tenant and `create` is false.
    ///
    /// # Errors
    /// [`IdentityError`].
    pub fn token(&self, by: &Caller, id: TenantId, create: bool) -> Result<Option<Secret>, IdentityError> {
        let _shared = self.changing.read();
        self.still_let_in(by)?;
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
        self.issue(by, by.tenant_id, own_credential(by).is_none())
    }

    /// Nobody changes anything with a credential that has been taken away: a request may have waited for long since it was let
    /// in. With `changing` held until the change is made: who takes the credential away comes before, and is seen here, or
    /// after.
    fn still_let_in(&self, by: &Caller) -> Result<(), IdentityError> {
        let gone = own_credential(by).is_some_and(|own| !self.directory.holds(own));
        if gone { Err(IdentityError::CallerGone) } else { Ok(()) }
    }

    /// With `changing` held.
    fn issue(&self, by: &Caller, id: TenantId, create: bool) -> Result<Option<Secret>, IdentityError> {
        let key = self.token_key()?;
        let event = event(by, "token.issue", Some(id), id, []);
        let Some(nonce) = self.store.issue_token(id, random_number()?, create, event)? else { return Ok(None) };
        let token = Secret::new(key.token(id, nonce));
        let digest = Digest::of(token.expose());
        if self.directory.find(&digest).is_none() {
            self.directory.insert(digest, Holder::Token { tenant_id: id });
        }
        Ok(Some(token))
    }

    /// Replaces a tenant's token; `None` when there is no such tenant. The former one is refused from now on.
    ///
    /// # Errors
    /// [`IdentityError`]; the former token holds.
    pub fn reset_token(&self, by: &Caller, id: TenantId) -> Result<Option<Secret>, IdentityError> {
        let key = self.token_key()?;
        let nonce = random_number()?;
        let _alone = self.changing.write();
        self.still_let_in(by)?;
        if !self.store.reset_token(id, nonce, event(by, "token.reset", Some(id), id, []))? {
            return Ok(None);
        }
        let token = Secret::new(key.token(id, nonce));
        // In the former one's place.
        self.directory.insert(Digest::of(token.expose()), Holder::Token { tenant_id: id });
        Ok(Some(token))
    }

    /// The key tokens are derived from; made, and its file written, when there is none.
    fn token_key(&self) -> Result<&TokenKey, IdentityError> {
        let _making = self.making.lock();
        if self.token_key.get().is_none() {
            let bytes = Secret::new(random::<KEY_BYTES>()?.to_vec());
            if let Some(path) = &self.key_file {
                key_file::create(path, &bytes)?;
                tracing::info!(file = %path.display(), "made the key that tenant tokens are derived from");
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
        let event = event(by, "key.create", Some(tenant_id), record.id, detail);
        let _shared = self.changing.read();
        self.still_let_in(by)?;
        if !self.store.create_key(record.clone(), *digest.as_bytes(), event)? {
            return Ok(None);
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

    /// Revokes a key; false when there is none of this id, or it is revoked already. When this returns no core lets it
    /// in, on whichever connection.
    ///
    /// # Errors
    /// [`IdentityError`]; the key holds.
    pub fn revoke_key(&self, by: &Caller, id: KeyId) -> Result<bool, IdentityError> {
        let _alone = self.changing.write();
        self.still_let_in(by)?;
        let revoked = self.store.revoke_key(id, event(by, "key.revoke", None, id, []))?;
        // Also when the store says that it was revoked before: whoever asks again wants it shut out.
        self.directory.remove(Named::Key(id));
        Ok(revoked)
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
