//! Which credentials a forwarded request carries: never one addressed to us, and the provider's from wherever it comes.
//!
//! With authentication off every field passes as it came. With it on, the provider's credential is, first found first
//! taken: `X-Service-Upstream-Authorization`, the client's own credential fields, the tenant's own key for the upstream it goes to, that
//! upstream's key. The last also helps clients that bring no credential while authentication is off.

use std::rc::Rc;

use bytes::BufMut;
use weir_config::vocab::SharedSecret;

use super::exchange::Exchange;
use crate::admit::provider_keys::ProviderKey;
use crate::exchange::Refusal;
use crate::process::Core;
use crate::redaction::Redaction;
use crate::wire::{FieldRef, HeadWriter, RequestHead};

/// Fields that bring a provider's credential.
const FIELDS: [&str; 4] = ["authorization", "x-api-key", "api-key", "x-goog-api-key"];

/// Whether a field is where browsers have to put a key that opens a WebSocket: as one of its protocols
/// (`openai-insecure-api-key.<key>`).
fn holds_key(field: FieldRef<'_>) -> bool {
    let is_key = |protocol: &[u8]| memchr::memmem::find(&protocol.to_ascii_lowercase(), b"api-key.").is_some();
    field.is("sec-websocket-protocol") && field.value().split(|byte| *byte == b',').any(is_key)
}

/// How a provider wants its credential.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// `Authorization: Bearer`.
    Bearer,
    /// The bare key in a field of this name.
    Field(&'static str),
}

/// The provider's credential in the making of one head.
pub(crate) struct Credentials<'a> {
    redaction: &'a Redaction,
    /// What the client gives in `X-Service-Upstream-Authorization`; it takes the place of `Authorization`.
    given: Option<&'a [u8]>,
    /// Ours, as long as the client has not brought its own.
    supplied: Option<&'a SharedSecret>,
}

impl<'a> Credentials<'a> {
    pub(crate) fn new(redaction: &'a Redaction, head: &'a RequestHead, supplied: Option<&'a SharedSecret>) -> Self {
        let given = redaction.is_enabled().then(|| head.get("x-service-upstream-authorization")).flatten();
        let given = given.filter(|value| !value.is_empty() && !redaction.keeps(b"authorization", value));
        Self { redaction, given, supplied }
    }

    /// Whether a field goes on to the provider, as far as credentials are concerned.
    pub(crate) fn let_pass(&mut self, field: FieldRef<'_>) -> bool {
        if self.redaction.keeps(field.name_bytes(), field.value()) {
            return false;
        }
        if self.given.is_none() && self.supplied.is_none() {
            return true;
        }
        let is_authorization = field.is("authorization");
        if is_authorization && self.given.is_some() {
            return false;
        }
        if is_authorization || FIELDS.iter().any(|name| field.is(name)) || holds_key(field) {
            self.supplied = None;
        }
        true
    }

    /// Whether the client has brought what the provider asks for.
    fn brought(mut self, head: &RequestHead) -> bool {
        for field in head.fields() {
            self.let_pass(field);
        }
        self.given.is_some() || self.supplied.is_none()
    }

    /// Adds what the client's own fields did not bring, in the form `form`.
    pub(crate) fn write(&self, writer: &mut HeadWriter<'_, impl BufMut>, form: Form) {
        match (self.given, self.supplied) {
            (Some(authorization), _) => writer.field("Authorization", authorization),
            (None, Some(key)) => match form {
                Form::Bearer => writer.field("Authorization", &[b"Bearer ", key.expose()].concat()),
                Form::Field(name) => writer.field(name, key.expose()),
            },
            (None, None) => {}
        }
    }
}

/// Whether the operator's key is lent to a request, as far as its head and the settings say.
pub(super) fn is_lent(core: &Core, exchange: &Exchange) -> bool {
    let settings = Rc::clone(&exchange.journal.settings);
    let table = &settings.local_upstreams;
    if !settings.auth.enabled || !table.lends {
        return false;
    }
    let own = |name: &str| exchange.own_keys.as_ref().is_some_and(|own| own.get(name).is_some());
    let lends = |at: &u16| {
        let member = table.member(*at);
        member.api_key.is_some() && !own(&member.name)
    };
    table.target(exchange.chosen.target).members.iter().any(lends)
        && !brings(&core.process.parts.policy.redaction, &exchange.head)
}

/// Whether the client brings a credential for the provider, so that nobody's else is added.
fn brings(redaction: &Redaction, head: &RequestHead) -> bool {
    let is_credential = |field: FieldRef<'_>| FIELDS.iter().any(|name| field.is(name)) || holds_key(field);
    let is_own = |field: FieldRef<'_>| is_credential(field) && !redaction.keeps(field.name_bytes(), field.value());
    Credentials::new(redaction, head, None).given.is_some() || head.fields().any(is_own)
}

/// The tenant's own key for the upstream the request goes to now.
fn own_key(exchange: &Exchange) -> Option<&ProviderKey> {
    let own = exchange.own_keys.as_ref()?;
    own.get(&*exchange.journal.settings.local_upstreams.member(exchange.member).name)
}

/// The key that is added where the client brings none: the tenant's own, else the upstream's.
pub(super) fn supplied(exchange: &Exchange) -> Option<&SharedSecret> {
    match own_key(exchange) {
        Some(own) => own.secret.as_ref(),
        None => exchange.journal.settings.local_upstreams.member(exchange.member).api_key.as_ref(),
    }
}

/// Whether the request goes with its tenant's own key.
pub(super) fn is_own(exchange: &Exchange, redaction: &Redaction) -> bool {
    let Some(own) = own_key(exchange) else { return false };
    !Credentials::new(redaction, &exchange.head, own.secret.as_ref()).brought(&exchange.head)
}

/// Refuses a request that needs a key of its tenant's own which cannot be decrypted: with anybody else's it would go at somebody
/// else's cost.
pub(super) fn refuse_unusable(exchange: &Exchange, redaction: &Redaction) -> Result<(), Refusal> {
    let Some(ProviderKey { secret: None, .. }) = own_key(exchange) else { return Ok(()) };
    let unreadable = SharedSecret::new("");
    if Credentials::new(redaction, &exchange.head, Some(&unreadable)).brought(&exchange.head) {
        return Ok(());
    }
    let upstream = exchange.journal.settings.local_upstreams.member(exchange.member).name.to_string();
    let message = format!(
        "this tenant's own provider key for the upstream `{upstream}` cannot be decrypted, because the gateway's key file \
         (`auth.token_key_file`) is missing or another one; restore the file and restart the gateway, or set the key again"
    );
    Err(Refusal::new(503, "provider_key_unavailable", message)
        .header("x-should-retry", false)
        .with("upstream", upstream))
}
