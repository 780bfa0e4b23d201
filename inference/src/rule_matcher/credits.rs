//! What the patterns may cost in a text: a sum that grows with its length, counted in credits for what is done, never by a
//! clock. Growth of an automaton is done once a thread: a text that comes again may be read further.
//!
//! Invariants: the last sixth is for rules that have had little; patterns of credentials and of orders have a sum each; what is left out
//! for want of credits is said. The prices are those of 12,000 texts made to be dear, fitted to the time they took.

use crate::rules::{Group, Rule};

/// What the patterns of orders may cost in any text, however short, and per KB of it. A credit is ten to twenty nanoseconds, as memory is
/// cold. Of 54,882 harmless texts none took more than 40,000, a page about prompts in Korean of a KB and a half. Texts made to be dear
/// would keep to 100 microseconds per KB with a third of it, and harmless ones would be refused then where something blocks.
const ORDERS: Allowance = Allowance { free: 54_000, per_kb: 2_000 };
/// The same for those of credentials: neither takes what the other needs. The most that a harmless text took is 3,000.
const CREDENTIALS: Allowance = Allowance { free: 9_000, per_kb: 1_200 };
/// The same for all that is decoded from a text, by the length of the text: harmless ones took 4,000 and 900, and attacks 21,000, of which
/// all has to be found.
const DECODED_ORDERS: Allowance = Allowance { free: 30_000, per_kb: 500 };
const DECODED_CREDENTIALS: Allowance = Allowance { free: 6_000, per_kb: 200 };
/// Beyond this part of what may be spent, only rules are tried that have had little, so that the words of a few do not keep the others
/// from being tried.
const PART_OF_ANY: (usize, usize) = (5, 6);
const LITTLE: Allowance = Allowance { free: 6_000, per_kb: 300 };
/// What it costs to look at a literal for a rule, and for the first one in a text: what is known of the rule has to be brought from
/// memory.
const CREDITS_LOOK: usize = 1;
const CREDITS_FIRST_LOOK: usize = 30;
/// Bytes in which the words of a pattern are looked for, per credit; a place that has to be looked at closely is one, too.
const WORDS_BYTES_PER_CREDIT: usize = 100;
/// What the first run of a pattern in a text costs, and each byte it searches: what all automata hold is larger than any cache, so nearly
/// all of it is waiting for memory.
const CREDITS_FIRST_RUN: usize = 500;
const CREDITS_FIRST_BYTE: usize = 3;
/// The same for those that follow it.
const CREDITS_RUN: usize = 10;
const BYTES_PER_CREDIT: usize = 3;
/// What a match costs: somebody has to judge it.
const CREDITS_MATCH: usize = 70;
/// Bytes by which an automaton may grow in one text after its first run for nothing, and at most, and those per credit between.
const GROWTH_FREE: usize = 12 << 10;
const GROWTH_MAX: usize = 192 << 10;
const GROWN_BYTES_PER_CREDIT: usize = 4;

/// What one rule has done in the text of a scan.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Tally {
    spent: usize,
    /// How often its pattern was run.
    pub(super) runs: u32,
    /// Bytes by which its automaton grew.
    grown: usize,
}

/// What patterns may cost.
#[derive(Debug, Default, Clone, Copy)]
struct Allowance {
    free: usize,
    per_kb: usize,
}

/// What patterns have cost until now and may cost.
#[derive(Debug, Default, Clone, Copy)]
struct Pot {
    spent: usize,
    may: Allowance,
}

/// That of all patterns, over one text or all that is decoded from it.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Credits {
    orders: Pot,
    credentials: Pot,
    /// Bytes of the texts scanned before this one for the same sum.
    before: usize,
    /// Something was left out for want of them.
    pub(super) refused: bool,
    /// The most that was spent of them at any place, in thousandths.
    pub(super) effort: usize,
}

// === impl Allowance ===

impl Allowance {
    /// What may have been spent after so many bytes.
    const fn up_to(self, bytes: usize) -> usize {
        self.free + bytes * self.per_kb / 1024
    }
}

// === impl Credits ===

impl Credits {
    /// Those of a text.
    pub(super) fn of_text() -> Self {
        Self::of(ORDERS, CREDENTIALS)
    }

    /// Those of all that is decoded from a text of so many bytes.
    pub(super) fn of_decoded(bytes: usize) -> Self {
        let all = |of: Allowance| Allowance { free: of.up_to(bytes), per_kb: 0 };
        Self::of(all(DECODED_ORDERS), all(DECODED_CREDENTIALS))
    }

    fn of(orders: Allowance, credentials: Allowance) -> Self {
        let pot = |may| Pot { spent: 0, may };
        Self { orders: pot(orders), credentials: pot(credentials), ..Self::default() }
    }

    /// The same for the next text of the same sum.
    pub(super) const fn next_text(self) -> Self {
        Self { refused: false, effort: 0, ..self }
    }

    /// The same once a text of so many bytes has gone past.
    pub(super) const fn after(self, bytes: usize) -> Self {
        Self { before: self.before + bytes, ..self }
    }

    /// Spends what a rule costs at a literal that ends at `end`, if it may be tried there. The bound is a rate: over it the rule is
    /// passed by until enough text has gone past.
    pub(super) fn spend(&mut self, tally: &mut Tally, rule: &Rule, end: usize, cost: usize) -> bool {
        let end = self.before + end;
        let pot = if rule.group == Group::Secrets { &mut self.credentials } else { &mut self.orders };
        let (wanted, most) = (pot.spent + cost, pot.may.up_to(end));
        let has_had_much = tally.spent > LITTLE.up_to(end);
        if wanted > if has_had_much { most * PART_OF_ANY.0 / PART_OF_ANY.1 } else { most } {
            self.refused = true;
            return false;
        }
        pot.spent = wanted;
        tally.spent += cost;
        self.effort = self.effort.max(wanted * 1000 / most.max(1));
        true
    }

    /// Spends what something cost that is done.
    pub(super) fn charge(&mut self, tally: &mut Tally, rule: &Rule, cost: usize) {
        let pot = if rule.group == Group::Secrets { &mut self.credentials } else { &mut self.orders };
        pot.spent += cost;
        tally.spent += cost;
    }

    /// Spends what it costs to judge a match.
    pub(super) fn charge_match(&mut self, tally: &mut Tally, rule: &Rule) {
        self.charge(tally, rule, CREDITS_MATCH);
    }

    /// Spends what it costs to search so many bytes behind a window.
    pub(super) fn charge_ahead(&mut self, tally: &mut Tally, rule: &Rule, bytes: usize) {
        self.charge(tally, rule, bytes / BYTES_PER_CREDIT);
    }

    /// Spends what it cost an automaton to grow by so many bytes, but in the first run.
    pub(super) fn charge_growth(&mut self, tally: &mut Tally, rule: &Rule, bytes: usize) {
        if tally.runs > 1 {
            tally.grown += bytes;
            let is_free = tally.grown <= GROWTH_FREE;
            self.charge(tally, rule, if is_free { 0 } else { bytes / GROWN_BYTES_PER_CREDIT });
        }
    }

    /// Whether a rule's automaton may grow further. Of words in any order some patterns make a state for each: what is left out may be
    /// tried when the text comes again.
    pub(super) const fn may_grow(&mut self, tally: &Tally) -> bool {
        let may = tally.grown <= GROWTH_MAX;
        self.refused |= !may;
        may
    }
}

// === impl Tally ===

impl Tally {
    /// Whether the automaton grows by much.
    pub(super) const fn grows(&self) -> bool {
        self.grown > GROWTH_FREE / 4
    }

    /// What it costs to look at a window.
    pub(super) const fn look_cost(&self) -> usize {
        if self.spent == 0 { CREDITS_FIRST_LOOK } else { CREDITS_LOOK }
    }

    /// What it costs to look for words in so many bytes, of which so many places had to be looked at closely.
    pub(super) const fn words_cost(bytes: usize, places: usize) -> usize {
        bytes / WORDS_BYTES_PER_CREDIT + places
    }

    /// What it costs to search so many bytes.
    pub(super) const fn run_cost(&self, bytes: usize) -> usize {
        match self.runs {
            0 => CREDITS_FIRST_RUN + bytes * CREDITS_FIRST_BYTE,
            _ => CREDITS_RUN + bytes / BYTES_PER_CREDIT,
        }
    }
}
