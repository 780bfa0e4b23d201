//! Which fields end at this connection, and what `Connection` says about it (RFC 9110 7.6.1).
//!
//! Invariant: a field is either passed on or hop-by-hop, decided once while the head is parsed; a request cannot use
//! `Connection` to make us drop a field that every hop needs. Knows nothing of policy fields.

use crate::wire::fault::{Fault, FaultKind, Side};
use crate::wire::fields::FieldList;
use crate::wire::grammar::is_token_byte;
use crate::wire::limits::CONNECTION_OPTIONS_MAX;

/// What a field name means to framing and forwarding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    /// Nothing: it belongs to the two ends.
    EndToEnd,
    Host,
    ContentLength,
    Expect,
    Connection,
    TransferEncoding,
    Upgrade,
    /// A framing name with an underscore for its hyphen: an end-to-end field to us, a framing field to servers that fold
    /// the two, as those behind CGI variables do.
    Lookalike,
    /// The rest of the fixed hop-by-hop set.
    Hop,
}

/// What the `Connection` fields of one head say.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Options {
    pub(super) close: bool,
    pub(super) keep_alive: bool,
    pub(super) upgrade: bool,
    /// Some element is not one of the well-known ones, so fields have to be matched with it.
    names_fields: bool,
    elements: usize,
}

/// Fields no request may declare hop-by-hop: dropping one changes whom, as whom or how much we ask.
const PROTECTED: [&[u8]; 5] = [b"host", b"content-length", b"transfer-encoding", b"authorization", b"cookie"];

// === impl Role ===

impl Role {
    /// Looks a name up; the length decides which one or two names it can be at all.
    #[inline]
    pub(super) fn of(name: &[u8]) -> Self {
        let is = |known: &[u8]| name.eq_ignore_ascii_case(known);
        match name.len() {
            2 if is(b"te") => Self::Hop,
            4 if is(b"host") => Self::Host,
            6 if is(b"expect") => Self::Expect,
            7 if is(b"upgrade") => Self::Upgrade,
            7 if is(b"trailer") => Self::Hop,
            10 if is(b"connection") => Self::Connection,
            10 if is(b"keep-alive") => Self::Hop,
            14 if is(b"content-length") => Self::ContentLength,
            14 if is(b"content_length") => Self::Lookalike,
            16 if is(b"proxy-connection") => Self::Hop,
            17 if is(b"transfer-encoding") => Self::TransferEncoding,
            17 if is(b"transfer_encoding") => Self::Lookalike,
            18 if is(b"proxy-authenticate") => Self::Hop,
            19 if is(b"proxy-authorization") => Self::Hop,
            _ => Self::EndToEnd,
        }
    }

    pub(super) const fn is_hop(self) -> bool {
        matches!(self, Self::Connection | Self::TransferEncoding | Self::Upgrade | Self::Hop)
    }
}

// === impl Options ===

impl Options {
    /// Takes in one `Connection` value, found at `at` in the head.
    pub(super) fn read(&mut self, value: &[u8], side: Side, at: usize) -> Result<(), Fault> {
        let fault = |kind| Fault::new(kind, side, at as u64);
        for option in elements(value) {
            self.elements += 1;
            if self.elements > CONNECTION_OPTIONS_MAX || !option.iter().all(|byte| is_token_byte(*byte)) {
                return Err(fault(FaultKind::ConnectionSyntax));
            }
            let is = |known: &[u8]| option.eq_ignore_ascii_case(known);
            match option.len() {
                0 => {}
                5 if is(b"close") => self.close = true,
                10 if is(b"keep-alive") => self.keep_alive = true,
                7 if is(b"upgrade") => self.upgrade = true,
                _ if side == Side::Request && PROTECTED.iter().any(|name| is(name)) => {
                    return Err(fault(FaultKind::ConnectionProtected));
                }
                _ => self.names_fields = true,
            }
        }
        Ok(())
    }

    /// Marks the fields that `Connection` names. A second pass, which ordinary traffic never needs.
    pub(super) fn mark_named(&self, raw: &[u8], fields: &mut FieldList) {
        if !self.names_fields {
            return;
        }
        let FieldList { list, hop, dropped, .. } = fields;
        for connection in list.iter().filter(|field| Role::of(field.name.get(raw)) == Role::Connection) {
            for option in elements(connection.value.get(raw)).filter(|option| !option.is_empty()) {
                for (index, field) in list.iter().enumerate() {
                    if field.name.get(raw).eq_ignore_ascii_case(option) {
                        hop.set(index);
                        dropped.set(index);
                    }
                }
            }
        }
    }
}

/// The elements of a comma-separated list, without surrounding white space; empty ones included.
fn elements(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii)
}
