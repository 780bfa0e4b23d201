//! Which credentials a forwarded request carries: never one addressed to us, and the provider's from wherever it comes.
//!
//! With authentication off every field passes as it came. With it on, the provider's credential is, first found first
//! taken: `X-Service-Upstream-Authorization`, the client's own credential fields, the key of the upstream it goes to. The last also helps
//! clients that bring no credential while authentication is off.

use bytes::BufMut;
use weir_config::vocab::SharedSecret;

use crate::redaction::Redaction;
use crate::wire::{FieldRef, HeadWriter, RequestHead};

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
        if is_authorization || field.is("x-api-key") || field.is("api-key") || field.is("x-goog-api-key") {
            self.supplied = None;
        }
        true
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
