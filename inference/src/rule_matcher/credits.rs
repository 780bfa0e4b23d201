//! What the patterns may cost in a text: sums that grow with its length, counted in credits for what is done, never by a
//! clock.
//!
//! Invariants: the last sixth is for rules that have had little; patterns of credentials have a sum of their own; what is decoded gets
//! what the text left, and a little in any case; what is left out for want of credits is said. The prices are fitted to the time that 10,000 texts made to be dear
//! took, a credit being ten nanoseconds.

use crate::rules::{Group, Rule};

/// What the patterns of orders may do in any text, however short, and per KB of it: a sixth more than any of 54,882 harmless texts took.
const ORDERS: Allowance = Allowance { free: 13_000, per_kb: 700 };
/// The same for those of credentials: neither takes what the other needs. Harmless texts took six tenths of it at most.
const CREDENTIALS: Allowance = Allowance { free: 4_000, per_kb: 600 };
/// Beyond this part of what may be spent, only rules are tried that have had little, so that the words of a few do not keep the others
/// from being tried.
const PART_OF_ANY: (usize, usize) = (5, 6);
const LITTLE: Allowance = Allowance { free: 2_000, per_kb: 100 };
/// What it costs to look at a literal for a rule, and for the first one in a text: what is known of the rule has to be brought from
/// memory.
const CREDITS_LOOK: usize = 1;
const CREDITS_FIRST_LOOK: usize = 18;
/// Bytes in which the words of a pattern are looked for, per credit, and what a place costs that has to be looked at closely.
const WORDS_BYTES_PER_CREDIT: usize = 5;
const CREDITS_PLACE: usize = 3;
/// What the first run of a pattern in a text costs, whose program has to be brought from memory, and one that follows.
const CREDITS_FIRST_RUN: usize = 100;
const CREDITS_RUN: usize = 3;
/// What two steps of a program cost.
const CREDITS_TWO_STEPS: usize = 3;
/// The same for an automaton: its first run, each byte then and later, and bytes by which it grows.
const CREDITS_FIRST_AUTOMATON: usize = 700;
const CREDITS_FIRST_BYTE: usize = 5;
const BYTES_PER_CREDIT: usize = 10;
const GROWN_BYTES_PER_CREDIT: usize = 4;
/// What a decoded text costs beside its patterns: to be decoded, looked through for literals and, in part, decoded once more. A credit for
/// so many bytes of it, and those that every one costs.
const DECODED_BYTES_PER_CREDIT: usize = 3;
const CREDITS_DECODED: usize = 80;
/// What all decoded texts of one may cost, however much the text itself took: long code names a rule's words on every line, and has marks
/// among letters in every KB.
const DECODED: Allowance = Allowance { free: 2_000, per_kb: 320 };
/// What a match costs: somebody has to judge it.
const CREDITS_MATCH: usize = 35;

/// What one rule has done in the text of a scan.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Tally {
    spent: usize,
    /// How often its pattern was run.
    pub(super) runs: u32,
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

/// Those of all patterns, over one text or all that is decoded from it.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Credits {
    orders: Pot,
    credentials: Pot,
    /// Bytes of the texts scanned before this one for the same sum.
    before: usize,
    /// The sum is one of decoded texts. They cost what no pattern does: a stranger who has much decoded has less of it searched.
    is_of_decoded: bool,
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

// === impl Pot ===

impl Pot {
    const fn new(may: Allowance) -> Self {
        Self { spent: 0, may }
    }

    /// Whether so much may be spent after so many bytes, by a rule that has had much or little.
    const fn has(&self, cost: usize, bytes: usize, has_had_much: bool) -> bool {
        let most = self.may.up_to(bytes);
        let most = if has_had_much { most * PART_OF_ANY.0 / PART_OF_ANY.1 } else { most };
        cost == 0 || self.spent + cost <= most
    }

    /// Spends it. How much is spent of what may be, in thousandths.
    fn spend(&mut self, cost: usize, bytes: usize) -> usize {
        self.spent += cost;
        self.spent * 1000 / self.may.up_to(bytes).max(1)
    }

    /// What is left of it once so many bytes have gone past.
    const fn left(self, bytes: usize) -> Self {
        Self::new(Allowance { free: self.may.up_to(bytes).saturating_sub(self.spent), per_kb: 0 })
    }
}

// === impl Credits ===

impl Credits {
    /// Those of a text.
    pub(super) fn of_text() -> Self {
        Self { orders: Pot::new(ORDERS), credentials: Pot::new(CREDENTIALS), ..Self::default() }
    }

    /// Those of all that is decoded from a text: what the text itself left over.
    pub(super) fn left(self) -> Self {
        let left = |pot: Pot| pot.left(self.before);
        let mut orders = left(self.orders);
        orders.may.free = orders.may.free.max(DECODED.up_to(self.before));
        Self { orders, credentials: left(self.credentials), is_of_decoded: true, ..Self::default() }
    }

    /// The same for the next text of the same sum, of so many bytes.
    pub(super) const fn next_text(mut self, bytes: usize) -> Self {
        if self.is_of_decoded {
            self.orders.spent += CREDITS_DECODED + bytes / DECODED_BYTES_PER_CREDIT;
        }
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
        let has_had_much = tally.spent > LITTLE.up_to(end);
        let pot = self.pot(rule);
        if !pot.has(cost, end, has_had_much) {
            self.refused = true;
            return false;
        }
        let effort = pot.spend(cost, end);
        self.effort = self.effort.max(effort);
        tally.spent += cost;
        true
    }

    const fn pot(&mut self, rule: &Rule) -> &mut Pot {
        if matches!(rule.group, Group::Secrets) { &mut self.credentials } else { &mut self.orders }
    }

    /// Spends what something cost that is done.
    pub(super) const fn charge(&mut self, tally: &mut Tally, rule: &Rule, cost: usize) {
        self.pot(rule).spent += cost;
        tally.spent += cost;
    }

    /// Spends what it costs to judge a match.
    pub(super) const fn charge_match(&mut self, tally: &mut Tally, rule: &Rule) {
        self.charge(tally, rule, CREDITS_MATCH);
    }

    /// How many steps a program may take for a rule, at a window that ends at `end`.
    pub(super) fn steps(&mut self, rule: &Rule, end: usize) -> usize {
        let end = self.before + end;
        let pot = self.pot(rule);
        pot.may.up_to(end).saturating_sub(pot.spent) * 2 / CREDITS_TWO_STEPS
    }

    /// Spends what it cost to take them.
    pub(super) const fn charge_steps(&mut self, tally: &mut Tally, rule: &Rule, steps: usize) {
        self.charge(tally, rule, steps * CREDITS_TWO_STEPS / 2);
    }

    /// Spends what it cost an automaton to grow by so many bytes.
    pub(super) const fn charge_growth(&mut self, tally: &mut Tally, rule: &Rule, bytes: usize) {
        self.charge(tally, rule, bytes / GROWN_BYTES_PER_CREDIT);
    }
}

// === impl Tally ===

impl Tally {
    /// What it costs to look at a window.
    pub(super) const fn look_cost(&self) -> usize {
        if self.spent == 0 { CREDITS_FIRST_LOOK } else { CREDITS_LOOK }
    }

    /// What it costs to look for words in so many bytes, of which so many places had to be looked at closely.
    pub(super) const fn words_cost(bytes: usize, places: usize) -> usize {
        bytes / WORDS_BYTES_PER_CREDIT + places * CREDITS_PLACE
    }

    /// What it costs to search so many bytes, beside the steps of a program.
    pub(super) fn run_cost(&self, rule: &Rule, bytes: usize) -> usize {
        match (rule.pattern.program(), self.runs) {
            (Some(_), 0) => CREDITS_FIRST_RUN,
            (Some(_), _) => CREDITS_RUN,
            (None, 0) => CREDITS_FIRST_AUTOMATON + bytes * CREDITS_FIRST_BYTE,
            (None, _) => CREDITS_RUN + bytes / BYTES_PER_CREDIT,
        }
    }
}
