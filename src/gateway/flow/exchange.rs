//! One request on its way through the stages: a value that owns everything they need of it. Each stage takes the former stage's
//! type by value and returns its own, which only its file can make, so a stage can be neither skipped nor reordered:
//!
//! ```text
//! Parsed -> Admitted -> Inspected -> Allowed -> Permitted -> Heard -> Enforced -> Affordable -> Ready -> (relayed)
//! ```
//!
//! A stage that ends the journey gives the exchange back in [`Stopped`]; its journal settles when it is dropped.

use std::sync::Arc;

use bytes::Bytes;
use weir_config::Settings;
use weir_config::settings::PiiAction;
use weir_config::vocab::{KeyId, Operation, Unread};

use crate::admit::access::Allowed;
use crate::admit::provider_keys::OwnKeys;
use crate::client::body::NoBody;
use crate::codec::can_decode;
use crate::defence::Shape;
use crate::enforce;
use crate::exchange::{Analysis, Refusal, TraceContext};
use crate::inspect::{Route, Takes, ZoneAsk, announces_binary, is_chat_completion};
use crate::settle::journal::Journal;
use crate::settle::made::Makes;
use crate::settle::text::{RawBody, RequestText};
use crate::upstreams::Chosen;
use crate::wire::RequestHead;

/// A request whose head is well-formed. Boxed wherever it goes: a head is some hundred bytes.
pub(super) struct Exchange {
    /// The head.
    pub(super) head: Box<RequestHead>,
    /// Where it goes and what it is.
    pub(super) route: Route,
    /// Which upstream or group it goes to.
    pub(super) chosen: Chosen,
    /// The upstream it was sent to last.
    pub(super) member: u16,
    /// The key that its sender has proven.
    pub(super) key: Option<KeyId>,
    /// What its sender may use; `None` is everything.
    pub(super) allowed: Option<Box<Allowed>>,
    /// It goes with the operator's provider key, as far as is known.
    pub(super) is_lent: bool,
    /// What its answer is read for, where it makes an object at the provider.
    pub(super) makes: Option<Makes>,
    /// Its tenant's own credentials for providers, where it has proven whose it is.
    pub(super) own_keys: Option<Arc<OwnKeys>>,
    /// The caller's trace context, to be continued.
    pub(super) trace: Option<TraceContext>,
    /// Its body goes on without the content coding it came in.
    pub(super) is_decoded: bool,
    /// What happens to it, under which settings, and what is known of its text.
    pub(super) journal: Journal,
}

/// What has to be known of a request's body before it may be forwarded; each takes in the ones before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Needs {
    /// Nothing: it is forwarded as it comes.
    Nothing,
    /// What it says: whether it asks for a stream, how much it may cost.
    Text,
    /// What the detectors find in it.
    Findings,
}

/// Why an exchange ends before the provider's answer is relayed.
pub(super) enum Stop {
    /// Weir says no.
    Refused(Refusal),
    /// The client has gone; there is nobody to answer.
    ClientLeft,
}

/// An exchange that ends before the provider's answer is relayed.
pub(super) struct Stopped {
    pub(super) exchange: Box<Exchange>,
    pub(super) why: Stop,
}

impl From<Refusal> for Stop {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

impl From<NoBody> for Stop {
    fn from(error: NoBody) -> Self {
        match error {
            NoBody::ClientLeft => Self::ClientLeft,
            NoBody::Refused(refusal) => Self::Refused(refusal),
        }
    }
}

impl Exchange {
    /// Its settings.
    pub(super) fn settings(&self) -> &Settings {
        &self.journal.settings
    }

    /// What has to be known of its body before it may be forwarded. The one place that says so; `asked` when somebody outside
    /// is asked for a verdict.
    pub(super) fn needs(&self, asked: bool) -> Needs {
        let settings = self.settings();
        let due = self.journal.inspection.analysis == Analysis::Due;
        if due && (enforce::can_act(&settings.enforcement) || self.advisory_applies() || asked) {
            Needs::Findings
        } else if !settings.enable_streaming
            || self.counts_money()
            || self.needs_model()
            || self.names_objects()
            || self.redacts()
            || self.is_fenced()
        {
            Needs::Text
        } else {
            Needs::Nothing
        }
    }

    /// Whether what it may cost decides if it goes.
    fn counts_money(&self) -> bool {
        let of_key = || self.allowed.as_ref().is_some_and(|allowed| allowed.key_budgets().is_some());
        self.settings().cost_caps.enabled || of_key()
    }

    /// Whether its model decides where it goes, or whether it goes at all.
    fn needs_model(&self) -> bool {
        self.chosen.waits_for_model || self.allowed.as_ref().is_some_and(|allowed| allowed.limits_models())
    }

    /// Whether the operations of its sender are listed.
    pub(super) fn lists_operations(&self) -> bool {
        self.allowed.as_ref().is_some_and(|allowed| matches!(allowed.operations(), (Some(_), _) | (_, Some(_))))
    }

    /// Whether its body may name objects of which only its tenant's own are allowed: what is said to models that keep nothing names none;
    /// a file that is uploaded may hold calls that do.
    fn names_objects(&self) -> bool {
        let may_name = match self.route.operation {
            Operation::ChatCompletion | Operation::Responses | Operation::Messages => {
                self.route.dialect.names_objects()
            }
            Operation::GenerateContent | Operation::Interaction | Operation::Proxy => true,
            _ => false,
        };
        self.is_lent && may_name
    }

    /// Goes on with what `next` makes of it, or ends for the reason in `result`.
    pub(super) fn then<T, S>(
        self: Box<Self>,
        result: Result<T, impl Into<Stop>>,
        next: impl FnOnce(Box<Self>, T) -> S,
    ) -> Result<S, Stopped> {
        match result {
            Ok(value) => Ok(next(self, value)),
            Err(why) => Err(Stopped { exchange: self, why: why.into() }),
        }
    }

    /// Personal data is taken out of what is forwarded.
    pub(super) fn redacts(&self) -> bool {
        self.settings().pii_action != PiiAction::AlertOnly
    }

    /// Strangers' words in it are fenced in, or the operator's markers taken out, before it is forwarded.
    fn is_fenced(&self) -> bool {
        let settings = self.settings();
        let zones = settings.security_analysis.zones;
        (settings.boundary_defense.enabled && self.shape().is_some()) || (zones.enabled && zones.mode.is_operator())
    }

    /// How it names its messages, where the boundary defence knows that.
    pub(super) fn shape(&self) -> Option<Shape> {
        match self.route.operation {
            Operation::ChatCompletion if is_chat_completion(self.head.path()) => Some(Shape::Chat),
            Operation::Chat => Some(Shape::Chat),
            Operation::Messages => Some(Shape::Messages),
            _ => None,
        }
    }

    /// The advisory speaks to the model before it answers, so its findings have to be there first.
    pub(super) fn advisory_applies(&self) -> bool {
        self.settings().llm_advisory_injection_enabled
            && self.route.operation == Operation::ChatCompletion
            && self.head.method() == "POST"
            && is_chat_completion(self.head.path())
    }

    /// What the operation takes.
    pub(super) fn takes(&self) -> Takes {
        Takes::of(self.route.operation, self.head.path())
    }

    /// What of a body that nobody reads before it is forwarded will not be read after that either, as far as its head says.
    pub(super) fn unread_by_head(&self) -> Option<Unread> {
        let raw = raw_body(&self.head, &self.route, Bytes::new(), false);
        if raw.repeated.is_some() || !can_decode(raw.content_encoding.as_deref()) {
            Some(Unread::UnreadableBody)
        } else {
            announces_binary(raw.takes, raw.content_type.as_deref()).then_some(Unread::MediaType)
        }
    }
}

/// A body to be read later, with what the head says about it.
pub(super) fn raw_text(
    head: &RequestHead,
    route: &Route,
    settings: &Settings,
    body: Bytes,
    truncated: bool,
) -> RequestText {
    RequestText::Raw(RawBody { zones: zone_ask(head, settings), ..raw_body(head, route, body, truncated) })
}

/// How data is to be told from other words in a request.
pub(super) fn zone_ask(head: &RequestHead, settings: &Settings) -> Option<Box<ZoneAsk>> {
    let mut ask = ZoneAsk::of(settings, None)?;
    if ask.mode.is_operator() {
        let values: Vec<&[u8]> = head.get_all("x-service-data-boundary").collect();
        ask.header = (!values.is_empty()).then(|| String::from_utf8_lossy(&values.join(&b","[..])).into_owned());
    }
    Some(ask)
}

/// A body to be read, with what the head says about it.
pub(super) fn raw_body(head: &RequestHead, route: &Route, body: Bytes, truncated: bool) -> RawBody {
    let (mut types, mut codings, mut content_type, mut coding) = (0, 0, None, None);
    for field in head.fields() {
        if field.is("content-type") {
            types += 1;
            content_type = content_type.or(Some(field.value()));
        } else if field.is("content-encoding") {
            codings += 1;
            coding = coding.or(Some(field.value()));
        }
    }
    let content_encoding = match codings {
        0 | 1 => coding.map(|value| head.share(value)),
        _ => Some(Bytes::from(head.get_all("content-encoding").collect::<Vec<_>>().join(&b", "[..]))),
    };
    let repeated = match (types, codings) {
        (2.., _) => Some("`Content-Type` is given more than once"),
        (_, 2..) => Some("`Content-Encoding` is given more than once"),
        _ => None,
    };
    RawBody {
        body,
        takes: Takes::of(route.operation, head.path()),
        content_type: content_type.map(|value| head.share(value)),
        content_encoding,
        repeated,
        truncated,
        zones: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::AnswerReader;

    /// What malloc of the GNU C library hands out from its per-thread cache; beyond that it searches and splits (malloc/malloc.c,
    /// `MAX_TCACHE_SIZE`). Each call has one of each of these.
    const CACHED_BYTES_MAX: usize = 1032;

    #[test]
    fn what_each_call_allocates_comes_from_the_allocator_s_cache() {
        for (name, bytes) in [
            ("Exchange", size_of::<Exchange>()),
            ("RequestHead", size_of::<RequestHead>()),
            ("AnswerReader", size_of::<AnswerReader>()),
        ] {
            assert!(bytes <= CACHED_BYTES_MAX, "{name}: {bytes} bytes");
        }
    }
}
