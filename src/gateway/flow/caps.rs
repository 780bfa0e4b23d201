//! The stage that holds a request to its caps: tokens first, then money. It stands behind enforcement, so that what is
//! blocked reserves nothing, and before anything is sent. What is reserved here is settled by the journal, whatever happens.
//!
//! Off, it costs one branch. On, every body is read before it is forwarded, because its model, its text and its own bound on
//! the answer decide. Knows no prices of its own; decides with `money`.

use std::rc::Rc;

use weir_config::settings::{Budget, Budgets, CostCaps};
use weir_config::vocab::{KeyId, Operation, TenantId, Timestamp};

use super::decide::Enforced;
use super::exchange::{Exchange, Stopped};
use super::parse::bills;
use super::speaks::Speaks;
use crate::exchange::{Payload, Refusal};
use crate::money::{
    Ask, DEFAULT_AGENT, Exceeded, Holder, Reservation, TokenExcess, dollars, estimate_nano_usd, excess_asked,
};
use crate::observe::estimate_tokens;
use crate::process::Core;
use crate::record::CallIds;
use crate::settle::journal::Journal;
use crate::settle::text::RequestText;

/// Text looked at to estimate its tokens; of a longer one the rest is taken to be like the beginning.
const SAMPLE_BYTES: usize = 64 * 1024;
/// Tokens that the frame of one message costs beside its text.
const TOKENS_PER_PART: u64 = 4;
const MICROS_PER_SECOND: i64 = 1_000_000;

/// A request that its caps let through, with its estimate reserved.
pub(super) struct Affordable(Enforced);

impl Affordable {
    pub(super) fn into_enforced(self) -> Enforced {
        self.0
    }
}

/// Lets the request through with its estimate reserved, or says which cap does not. What was refused keeps its text: who hit
/// the cap, and with what, is the first question.
pub(super) fn hold_to_caps(core: &Core, mut enforced: Enforced) -> Result<Affordable, Stopped> {
    let held = hold(core, &mut enforced);
    match held {
        Ok(()) => Ok(Affordable(enforced)),
        Err(refusal) => Err(Stopped { exchange: enforced.exchange, why: refusal.into() }),
    }
}

fn hold(core: &Core, enforced: &mut Enforced) -> Result<(), Refusal> {
    let Enforced { exchange, payload, .. } = enforced;
    let settings = Rc::clone(&exchange.journal.settings);
    let caps = Caps::of(&settings.cost_caps, exchange);
    let head = &exchange.head;
    if caps.agents.is_none() && caps.key.is_none() {
        Ok(())
    } else if head.upgrade_websocket {
        if Speaks::of(head).is_none() || !exchange.journal.wants_text() {
            return Err(uncounted_tunnel());
        }
        refuse_tunnel_over_budget(core, &caps, &exchange.journal.ids)
    } else if exchange.journal.fetches_results() {
        // What it costs is known once it is there; the provider has billed it before.
        let of_key = caps.key;
        count_turn(core, &mut exchange.journal, of_key);
        Ok(())
    } else if matches!(payload, Payload::Empty) || !bills(head, exchange.route.operation) {
        Ok(())
    } else {
        reserve(core, &caps, &mut exchange.journal)
    }
}

/// Refuses a WebSocket of which it is not known, turn by turn, what it will cost.
fn uncounted_tunnel() -> Refusal {
    let message = "a budget holds here, and nobody reads what a WebSocket of this path costs; speak HTTP, or the Responses or Realtime \
                   interface at its own path, whose turns are charged one by one";
    Refusal::no_websocket(message)
}

/// The same for a turn of a WebSocket, whose journal the exchange has at this moment.
pub(super) fn hold_turn(core: &Core, exchange: &mut Exchange) -> Result<(), Refusal> {
    let settings = Rc::clone(&exchange.journal.settings);
    let caps = Caps::of(&settings.cost_caps, exchange);
    if caps.agents.is_none() && caps.key.is_none() {
        return Ok(());
    }
    reserve(core, &caps, &mut exchange.journal)
}

/// Whether the budgets have room for one more answer on a Realtime socket, whose turns begin with the server: each is charged when it is
/// over, so that a socket may overspend by the answers that are under way, and asks for no further one.
pub(super) fn has_room(core: &Core, exchange: &Exchange) -> Result<(), Refusal> {
    let settings = core.settings();
    let caps = Caps::of(&settings.cost_caps, exchange);
    if caps.agents.is_none() && caps.key.is_none() {
        return Ok(());
    }
    refuse_tunnel_over_budget(core, &caps, &CallIds { start_time: Timestamp::now(), ..exchange.journal.ids.clone() })
}

/// Has what a server's turn, or the results of a batch, will have cost counted in the budgets, however little is left of them.
pub(super) fn count_turn(core: &Core, journal: &mut Journal, of_key: Option<(KeyId, Budgets)>) {
    let settings = Rc::clone(&journal.settings);
    let cost_caps = &settings.cost_caps;
    if !cost_caps.enabled && of_key.is_none() {
        return;
    }
    let caps = Caps {
        agents: cost_caps.enabled.then_some(cost_caps),
        key: of_key,
        reserve_completion_tokens: 0,
        status: cost_caps.status.0,
    };
    let now_s = journal.ids.start_time.micros() / MICROS_PER_SECOND;
    if let Ok(reservation) = caps.count(core, &journal.ids, now_s) {
        journal.reserved(reservation, None);
    }
}

/// What holds for one request.
struct Caps<'a> {
    /// Those of the settings, where they are on.
    agents: Option<&'a CostCaps>,
    /// Those of the sender's key.
    key: Option<(KeyId, Budgets)>,
    reserve_completion_tokens: u32,
    /// What is refused is answered with.
    status: u16,
}

impl<'a> Caps<'a> {
    fn of(caps: &'a CostCaps, exchange: &Exchange) -> Self {
        let key = exchange.allowed.as_ref().and_then(|allowed| allowed.key_budgets());
        Self {
            agents: caps.enabled.then_some(caps),
            key: key.map(|(key, budgets)| (key, *budgets)),
            reserve_completion_tokens: caps.reserve_completion_tokens.0,
            status: caps.status.0,
        }
    }

    /// Reserves in every account that this request is charged to.
    fn reserve(&self, core: &Core, ids: &CallIds, estimate: u64, now_s: i64) -> Result<Reservation, Exceeded> {
        let (agent, spend) = (agent_of(ids), &core.process.parts.policy.spend);
        let (own, over_all) = match self.agents {
            Some(caps) => (*caps.budgets(agent), caps.tenant_budgets),
            None => (Budgets::default(), Budgets::default()),
        };
        let reservation = spend.reserve(ids.tenant_id, agent, &own, &over_all, estimate, now_s)?;
        match &self.key {
            Some((key, budgets)) => reservation.and_of_key((ids.tenant_id, *key), budgets, now_s),
            None => Ok(reservation),
        }
    }

    /// The accounts that this call is charged to, with nothing reserved in them and no limit: it has begun, whatever is left.
    fn count(&self, core: &Core, ids: &CallIds, now_s: i64) -> Result<Reservation, Exceeded> {
        let unlimited =
            |budgets: &Budgets| budgets.map(|budget| budget.map(|budget| Budget { hard_nano_usd: u64::MAX, ..budget }));
        let (agent, spend) = (agent_of(ids), &core.process.parts.policy.spend);
        let (own, over_all) = match self.agents {
            Some(caps) => (unlimited(caps.budgets(agent)), unlimited(&caps.tenant_budgets)),
            None => (Budgets::default(), Budgets::default()),
        };
        let reservation = spend.reserve(ids.tenant_id, agent, &own, &over_all, 0, now_s)?;
        match &self.key {
            Some((key, budgets)) => reservation.and_of_key((ids.tenant_id, *key), &unlimited(budgets), now_s),
            None => Ok(reservation),
        }
    }

    /// The refusal of a request whose cost is expected to be `estimate` nanodollars; `None` where nobody can say.
    fn refuse(&self, ids: &CallIds, exceeded: &Exceeded, estimate: Option<u64>, now_s: i64) -> Refusal {
        let refusal = over_budget(self.status, (ids.tenant_id, agent_of(ids)), exceeded, estimate, now_s);
        match &self.key {
            Some((key, _)) if exceeded.holder == Holder::Key => refusal.with("key_id", key.to_string()),
            _ => refusal,
        }
    }
}

fn reserve(core: &Core, caps: &Caps<'_>, journal: &mut Journal) -> Result<(), Refusal> {
    let (ids, text) = (&journal.ids, &journal.inspection.text);
    let agent = agent_of(ids);
    let ask = ask(text);
    let token_cap = caps.agents.and_then(|caps| caps.tokens(agent));
    if let Some(excess) = token_cap.as_ref().and_then(|cap| excess_asked(cap, ask)) {
        return Err(too_many_tokens(caps.status, agent, &excess));
    }
    let model = match text {
        RequestText::Read(view) => view.model.as_deref(),
        RequestText::None | RequestText::Raw(_) => None,
    };
    let find = |model: Option<&str>| core.process.parts.policy.prices.find(ids.priced_as().as_str(), model?);
    // What a path names is what the provider runs, whatever stands in the body.
    let price = find(ids.path_model.as_deref()).or_else(|| find(model));
    let output_tokens =
        if ids.operation == Operation::Embedding { 0 } else { u64::from(caps.reserve_completion_tokens) };
    let estimate = price.map_or(0, |price| estimate_nano_usd(&price, ask, output_tokens));
    let now_s = ids.start_time.micros() / MICROS_PER_SECOND;
    let reservation = caps
        .reserve(core, ids, estimate, now_s)
        .map_err(|exceeded| caps.refuse(ids, &exceeded, Some(estimate), now_s))?;
    journal.reserved(reservation, token_cap);
    Ok(())
}

/// A tunnel's frames are not read, so what it costs is counted nowhere; but none is opened where there is no room for one answer, as there
/// is none once a budget is used up or other calls have reserved the rest.
fn refuse_tunnel_over_budget(core: &Core, caps: &Caps<'_>, ids: &CallIds) -> Result<(), Refusal> {
    let now_s = ids.start_time.micros() / MICROS_PER_SECOND;
    let price = ids
        .path_model
        .as_deref()
        .and_then(|model| core.process.parts.policy.prices.find(ids.priced_as().as_str(), model));
    let ask = Ask { prompt_tokens: 0, max_tokens: None };
    let answer = price.map(|price| estimate_nano_usd(&price, ask, u64::from(caps.reserve_completion_tokens)));
    // The smallest amount finds room in every budget that has any left.
    match caps.reserve(core, ids, answer.unwrap_or(0).max(1), now_s) {
        Ok(reservation) => {
            reservation.settle(0);
            Ok(())
        }
        Err(exceeded) => Err(caps.refuse(ids, &exceeded, None, now_s)),
    }
}

fn agent_of(ids: &CallIds) -> &str {
    ids.agent_id.as_deref().filter(|agent| !agent.is_empty()).unwrap_or(DEFAULT_AGENT)
}

fn ask(text: &RequestText) -> Ask {
    match text {
        RequestText::Read(view) => {
            let frames = TOKENS_PER_PART.saturating_mul(view.parts.len() as u64);
            let tokens = estimate_long(&view.text).saturating_add(frames).saturating_add(view.token_ids);
            Ask { prompt_tokens: tokens, max_tokens: view.max_tokens }
        }
        // What could not be read in time is taken to be text.
        RequestText::Raw(raw) => Ask { prompt_tokens: raw.body.len() as u64 / 4, max_tokens: None },
        RequestText::None => Ask { prompt_tokens: 0, max_tokens: None },
    }
}

fn estimate_long(text: &str) -> u64 {
    if text.len() <= SAMPLE_BYTES {
        return estimate_tokens(text);
    }
    let mut end = SAMPLE_BYTES;
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    let sample = text.get(..end).unwrap_or_default();
    estimate_tokens(sample).saturating_mul(text.len() as u64) / sample.len().max(1) as u64
}

fn too_many_tokens(status: u16, agent: &str, excess: &TokenExcess) -> Refusal {
    let TokenExcess { cap, limit, tokens } = excess;
    let message = format!(
        "this request of agent `{agent}` takes about {tokens} tokens, more than the {limit} of `cost_caps` \
         `{cap}`; send less, lower its `max_tokens`, or raise the cap"
    );
    Refusal::new(status, "cost_cap_exceeded", message)
        .header("x-should-retry", false)
        .with("scope", "tokens")
        .with("cap", *cap)
        .with("window", serde_json::Value::Null)
        .with("limit", *limit)
        .with("current", *tokens)
        .with("agent_id", agent)
}

fn over_budget(
    status: u16,
    (tenant, agent): (TenantId, &str),
    exceeded: &Exceeded,
    estimate: Option<u64>,
    now_s: i64,
) -> Refusal {
    let window = exceeded.window.as_str();
    let resets_at = Timestamp::from_micros(exceeded.resets_at_s.saturating_mul(MICROS_PER_SECOND));
    let [limit, current, reserved] =
        [exceeded.limit_nano_usd, exceeded.spent_nano_usd, exceeded.reserved_nano_usd].map(dollars);
    let (who, setting) = match exceeded.holder {
        Holder::Agent => (format!("agent `{agent}`"), "cost_caps"),
        Holder::Tenant => (format!("tenant {tenant}, over all its agents,"), "cost_caps.tenant_budget_caps"),
        Holder::Key => ("the caller's key".to_owned(), "access.keys.<id>.budgets` in the tenant's `config"),
    };
    // What alone is more than the whole budget fits into no later period either.
    let never_fits = estimate.is_some_and(|estimate| estimate > exceeded.limit_nano_usd);
    let message = if never_fits {
        format!(
            "this request may cost ${}, more than the whole {window} budget of ${limit} of {who}; waiting does not help: \
             send less or set a lower `max_tokens` (a request without one counts with \
             `cost_caps.reserve_completion_tokens`), or raise `{setting}`",
            dollars(estimate.unwrap_or(0))
        )
    } else {
        let cost = estimate.map_or_else(
            || "nobody can say what a WebSocket costs".to_owned(),
            |estimate| format!("this request may cost ${}", dollars(estimate)),
        );
        format!(
            "{who} has spent ${current} of its {window} budget of ${limit} (${reserved} more is reserved by requests \
             under way), and {cost}; wait until {resets_at}, or raise `{setting}`"
        )
    };
    let refusal = Refusal::new(status, "cost_cap_exceeded", message);
    let retry_after = (exceeded.resets_at_s - now_s).max(1);
    let refusal = if never_fits { refusal } else { refusal.header("Retry-After", retry_after) };
    refusal
        .header("x-should-retry", false)
        .with("scope", "budget")
        .with("budget_of", exceeded.holder.as_str())
        .with("window", window)
        .with("limit", limit)
        .with("current", current)
        .with("reserved", reserved)
        .with("agent_id", agent)
        .with("tenant_id", tenant.to_string())
        .with("resets_at", resets_at.to_string())
}
