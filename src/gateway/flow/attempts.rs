//! A request's way to an answer: a connection, the request, and where that fails and asking again is safe, the next member of
//! its group. Invariant: a request that may have had an effect is sent at most once.
//!
//! | what happened | sent to the next member |
//! |---|---|
//! | no connection, or not a byte of the request was taken | any request |
//! | no answer, none in time, or none that is HTTP; 5xx | `GET`, `HEAD` and `OPTIONS` without a body |
//! | 429 or 503 with a `Retry-After`, where the group has `retry_refused` | any whose body is held in memory |
//! | anything else, and whatever happens behind the head of an answer | none |

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::rc::Rc;
use std::time::{Duration, Instant};

use super::credentials;
use super::exchange::{Exchange, Stop};
use super::gather::gather;
use super::send::{ask, is_safe};
use super::steer;
use super::upstream::{self, Answered, NoAnswer, NoLease, WaitingClient};
use crate::exchange::{Payload, Refusal};
use crate::forward::{ConnPool, Lease};
use crate::process::InEffect;
use crate::record::Permit;
use crate::rt;
use crate::upstreams::{Call, Ended, Target, Tried};

/// Leases a connection and sends the request until there is an answer, as often as that is safe.
pub(super) async fn obtain(
    client: &mut WaitingClient<'_>,
    exchange: &mut Exchange,
    payload: Payload,
) -> Result<(Lease, Answered), Stop> {
    let settings = Rc::clone(&exchange.journal.settings);
    let target = settings.local_upstreams.target(exchange.chosen.target);
    let order = order(&settings, target, exchange);
    let first = order.first().copied().unwrap_or_default();
    let gathered = begin(client, exchange, settings.local_upstreams.pool(first), &payload).await?;
    let is_alone = settings.local_upstreams.is_alone;
    let mut tries = Tries { told: false, since: Instant::now() };
    let mut rest = order.iter().copied().peekable();
    let found = loop {
        exchange.member = rest.next().unwrap_or_default();
        credentials::refuse_unusable(exchange, &client.session.core.process.parts.policy.redaction)?;
        let tried = try_member(client, exchange, &payload, &mut tries).await;
        if is_alone {
            break tried.map_err(Failed::into_stop);
        }
        let ended = match &tried {
            Err(Failed::Ended { given_up, .. }) => {
                if *given_up {
                    note(&settings, exchange, (Ended::GivenUp, None), Some(tries.since));
                }
                break tried.map_err(Failed::into_stop);
            }
            Err(Failed::Here { ended, .. }) => *ended,
            Ok((_, answered)) => ended(answered),
        };
        let goes_on = rest.peek().is_some() && may_go_on(exchange, target, &payload, &tried);
        tries.told |= goes_on;
        note(
            &settings,
            exchange,
            (ended, tried.as_ref().ok().map(|(_, answered)| answered.head.status)),
            tries.told.then_some(tries.since),
        );
        if !goes_on {
            break tried.map_err(Failed::into_stop);
        }
        tries.since = Instant::now();
    };
    if !is_alone {
        exchange.journal.tag_with("upstream", || String::from(&*settings.local_upstreams.member(exchange.member).name));
        steer::answered_by_member(exchange);
    }
    if exchange.own_keys.is_some() && credentials::is_own(exchange, &client.session.core.process.parts.policy.redaction)
    {
        // Whom the provider bills.
        exchange.journal.tag("provider_key", "tenant".to_owned());
    }
    if let Payload::Held { body, .. } = &payload {
        exchange.journal.note_sent(body);
    }
    let found = found?;
    drop(gathered);
    if let Some(texts) = exchange.journal.inspection.acting.take() {
        client.session.core.process.earlier.remember(*texts);
    }
    if let Payload::Held { body, permit, .. } = payload {
        // It has been sent; an answer may take minutes.
        drop(body);
        // The record may share its memory for as long as that.
        if let Some(permit) = permit {
            exchange.journal.hold(permit);
        }
    }
    Ok(found)
}

/// In which order the members of its target are tried.
fn order(settings: &InEffect, target: &Target, exchange: &Exchange) -> Tried {
    if target.members.len() == 1 {
        return target.members.clone();
    }
    let ids = &exchange.journal.ids;
    let session = ids.session_id.as_ref().map(|session| {
        // The same in every process: a session finds its provider's cache after a restart, too.
        let mut hasher = DefaultHasher::new();
        (ids.tenant_id.uuid().as_u128(), session).hash(&mut hasher);
        hasher.finish()
    });
    let (chance, now_ms) = (settings.local_upstreams.chance(), rt::now_ms());
    settings.local_upstreams.order(target, &Call { session, chance, now_ms, is_safe: is_safe(&exchange.head) })
}

/// Waits for the beginning of a body that is relayed as it comes.
async fn begin(
    client: &mut WaitingClient<'_>,
    exchange: &mut Exchange,
    pool: &ConnPool,
    payload: &Payload,
) -> Result<Option<Permit>, Stop> {
    if !matches!(payload, Payload::Streamed) {
        return Ok(None);
    }
    let session = &mut *client.session;
    client.watch = session.watch().behind_bytes();
    let tenant_id = exchange.journal.ids.tenant_id;
    let waiting = Instant::now();
    let bodies = &Rc::clone(&session.core).process.bodies;
    let came = gather(session, pool, &exchange.head, || bodies.of(tenant_id).permit()).await;
    exchange.journal.moments.awaiting_client += waiting.elapsed();
    Ok(came?)
}

/// What the record says of the tries of a call.
struct Tries {
    /// It names them: there is more than one.
    told: bool,
    /// When the one under way began.
    since: Instant,
}

/// Why a member has not answered.
enum Failed {
    /// The exchange ends with it.
    Ended {
        stop: Stop,
        /// The client has waited so long that the member is to blame.
        given_up: bool,
    },
    /// This member has failed.
    Here {
        ended: Ended,
        /// What the client is told if no other is asked.
        refusal: Refusal,
        /// Not a byte of the request can have been seen.
        is_unsent: bool,
    },
}

impl Failed {
    fn into_stop(self) -> Stop {
        match self {
            Self::Ended { stop, .. } => stop,
            Self::Here { refusal, .. } => refusal.into(),
        }
    }

    fn unanswered(refusal: Refusal, is_unsent: bool) -> Self {
        Self::Here { ended: Ended::Unanswered, refusal, is_unsent }
    }
}

impl From<Stop> for Failed {
    fn from(stop: Stop) -> Self {
        Self::Ended { stop, given_up: false }
    }
}

/// Asks one member, once more where its kept connection turns out to be closed: that is a try of its own.
async fn try_member(
    client: &mut WaitingClient<'_>,
    exchange: &mut Exchange,
    payload: &Payload,
    tries: &mut Tries,
) -> Result<(Lease, Answered), Failed> {
    let settings = Rc::clone(&exchange.journal.settings);
    let (member, pool) =
        (settings.local_upstreams.member(exchange.member), settings.local_upstreams.pool(exchange.member));
    let limit = Duration::from_millis(member.timeout_ms);
    let holder = pool.holder(exchange.journal.ids.tenant_id.uuid().as_u128());
    let asked = tries.since;
    let mut fresh = false;
    loop {
        let at_hand = if fresh { None } else { pool.at_hand(holder) };
        let mut left = limit;
        let mut lease = match at_hand {
            Some(lease) => lease,
            None => {
                let waiting = Instant::now();
                let lease = upstream::lease(client, pool, holder, limit.saturating_sub(asked.elapsed())).await;
                exchange.journal.moments.awaiting_upstream += waiting.elapsed();
                left = limit.saturating_sub(asked.elapsed());
                lease.map_err(|error| match error {
                    NoLease::Ended(stop) => stop.into(),
                    NoLease::NotConnected(refusal) => {
                        Failed::Here { ended: Ended::NotConnected, refusal, is_unsent: true }
                    }
                })?
            }
        };
        let reused = lease.reused();
        let waited = exchange.journal.moments.awaiting_upstream;
        match ask(client, exchange, payload, &mut lease, left).await {
            Ok(answered) => return Ok((lease, answered)),
            Err(NoAnswer::ClientLeft) => {
                let waited = exchange.journal.moments.awaiting_upstream.saturating_sub(waited);
                let allowed_ms = settings.local_upstreams.health.left_after_ms;
                let given_up = allowed_ms > 0 && waited >= Duration::from_millis(allowed_ms);
                return Err(Failed::Ended { stop: Stop::ClientLeft, given_up });
            }
            Err(NoAnswer::Refused(refusal)) => return Err(Stop::from(refusal).into()),
            // The provider may have closed the kept connection just before; asking again is safe only for methods
            // that change nothing (RFC 9110 section 9.2.2).
            Err(NoAnswer::Silent) if reused && is_safe(&exchange.head) => {
                fresh = true;
                if !settings.local_upstreams.is_alone {
                    exchange.journal.tried(&member.name, "connection_closed", tries.since.elapsed());
                    *tries = Tries { told: true, since: Instant::now() };
                }
            }
            // Not a byte has left us: nobody can have seen it.
            Err(NoAnswer::Unsent) if reused => fresh = true,
            Err(error @ (NoAnswer::Silent | NoAnswer::Unsent)) => {
                let message = "the provider closed the connection without an answer";
                let is_unsent = matches!(error, NoAnswer::Unsent);
                return Err(Failed::unanswered(Refusal::upstream_protocol(message), is_unsent));
            }
            Err(NoAnswer::Timeout) => {
                return Err(Failed::unanswered(Refusal::upstream_timeout(member.timeout_ms), false));
            }
            Err(NoAnswer::Broken(what)) => {
                let message = format!("the provider's answer is not usable: {what}");
                return Err(Failed::unanswered(Refusal::upstream_protocol(message), false));
            }
        }
    }
}

/// What a member's answer says of the member.
fn ended(answered: &Answered) -> Ended {
    match answered.head.status {
        429 => Ended::Refused(retry_after_ms(answered)),
        500.. => Ended::Failed(retry_after_ms(answered)),
        _ => Ended::Answered,
    }
}

/// What `Retry-After` says in milliseconds; a date counts as a second (RFC 9110 section 10.2.3).
fn retry_after_ms(answered: &Answered) -> Option<u64> {
    let value = answered.head.get("retry-after")?;
    let seconds = std::str::from_utf8(value).ok().and_then(|text| text.trim().parse::<u64>().ok());
    Some(seconds.unwrap_or(1).saturating_mul(1_000))
}

/// The one rule about asking another member; see the table above.
fn may_go_on(
    exchange: &Exchange,
    target: &Target,
    payload: &Payload,
    tried: &Result<(Lease, Answered), Failed>,
) -> bool {
    match tried {
        Err(Failed::Ended { .. }) => false,
        Err(Failed::Here { is_unsent, .. }) => *is_unsent || is_safe(&exchange.head),
        Ok((_, answered)) => {
            let status = answered.head.status;
            let is_held = !matches!(payload, Payload::Streamed);
            let is_refused = matches!(status, 429 | 503) && retry_after_ms(answered).is_some();
            (target.retry_refused && is_refused && is_held) || (status >= 500 && is_safe(&exchange.head))
        }
    }
}

/// Counts a try, and writes it into the record where there is more than one.
fn note(settings: &InEffect, exchange: &mut Exchange, (ended, status): (Ended, Option<u16>), since: Option<Instant>) {
    let upstreams = &settings.local_upstreams;
    let member = upstreams.member(exchange.member);
    member.health.ended(ended, rt::now_ms(), &upstreams.health);
    if let Some(since) = since {
        let outcome = status.map_or_else(|| ended.label().to_owned(), |status| status.to_string());
        exchange.journal.tried(&member.name, &outcome, since.elapsed());
    }
}
