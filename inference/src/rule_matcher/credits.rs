//! What the patterns may cost in a text: sums that grow with its length, counted in credits for what is done, never by a
//! clock. What is new to a thread is made once: a text that comes again may be read further.
//!
//! Invariants: the last sixth is for rules that have had little; patterns of credentials have a sum of their own, those of orders one for
//! what is done and one for what is new; what is decoded gets what the text left; what is left out for want of credits is said.
//! The prices are fitted to the time that 10,000 texts made to be dear took, a credit being ten nanoseconds.

use crate::rules::{Group, Rule};

/// What the patterns of orders may do in any text, however short, and per KB of it: a third more than any of 54,882 harmless texts took.
const WORK: Allowance = Allowance { free: 10_500, per_kb: 1_000 };
/// What may be new of them: patterns run for the first time, and states that their automata make. Harmless pages in rare languages need
/// it; texts made to be dear abuse what is done.
const NEW: Allowance = Allowance { free: 59_000, per_kb: 300 };
/// Both for those of credentials: neither takes what the other needs. The most that a harmless text took is 3,000.
const CREDENTIALS: Allowance = Allowance { free: 9_000, per_kb: 1_200 };
/// Beyond this part of what may be spent, only rules are tried that have had little, so that the words of a few do not keep the others
/// from being tried.
const PART_OF_ANY: (usize, usize) = (5, 6);
const LITTLE: Allowance = Allowance { free: 2_000, per_kb: 100 };
/// What it costs to look at a literal for a rule, and for the first one in a text: what is known of the rule has to be brought from
/// memory.
const CREDITS_LOOK: usize = 3;
const CREDITS_FIRST_LOOK: usize = 10;
/// Bytes in which the words of a pattern are looked for, per credit, and what a place costs that has to be looked at closely.
const WORDS_BYTES_PER_CREDIT: usize = 5;
const CREDITS_PLACE: usize = 3;
/// What the first run of a pattern in a text costs, and each byte it searches.
const CREDITS_FIRST_RUN: Cost = Cost { work: 66, new: 640 };
const CREDITS_FIRST_BYTES: Cost = Cost { work: 15, new: 34 };
/// Bytes to which that price belongs.
const FIRST_BYTES: usize = 10;
/// What one costs that follows, and bytes it searches per credit; those behind a window are searched more slowly.
const CREDITS_RUN: usize = 6;
const BYTES_PER_CREDIT: usize = 10;
const AHEAD_BYTES_PER_CREDIT: usize = 3;
/// What a match costs: somebody has to judge it.
const CREDITS_MATCH: usize = 45;
/// Bytes by which an automaton may grow in one text after its first run for nothing, and at most, and those per credit between.
const GROWTH_FREE: usize = 12 << 10;
const GROWTH_MAX: usize = 192 << 10;
const GROWN_BYTES_PER_CREDIT: usize = 4;
/// One of so many bytes has seen what texts are like that are not made to be dear, and needs to grow by no more than this.
const GROWN_UP: usize = 256 << 10;
const GROWTH_MAX_GROWN_UP: usize = 100 << 10;

/// What something costs.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Cost {
    work: usize,
    /// Waiting for memory that was not used for long, or making what is not there yet.
    new: usize,
}

/// What one rule has done in the text of a scan.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Tally {
    spent: usize,
    /// How often its pattern was run.
    pub(super) runs: u32,
    /// Bytes of its automaton before the text.
    pub(super) size: usize,
    /// Bytes by which it grew.
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

/// Those of all patterns, over one text or all that is decoded from it.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Credits {
    work: Pot,
    new: Pot,
    credentials: Pot,
    /// Bytes of the texts scanned before this one for the same sum.
    before: usize,
    /// Something was left out for want of them.
    pub(super) refused: bool,
    /// The most that was spent of them at any place, in thousandths.
    pub(super) effort: usize,
}

// === impl Cost ===

impl Cost {
    const fn of_work(work: usize) -> Self {
        Self { work, new: 0 }
    }

    /// Where one sum pays for all.
    const fn all(self) -> usize {
        self.work + self.new
    }
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
        Self { work: Pot::new(WORK), new: Pot::new(NEW), credentials: Pot::new(CREDENTIALS), ..Self::default() }
    }

    /// Those of all that is decoded from a text: what the text itself left over.
    pub(super) fn left(self) -> Self {
        let left = |pot: Pot| pot.left(self.before);
        Self { work: left(self.work), new: left(self.new), credentials: left(self.credentials), ..Self::default() }
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
    pub(super) fn spend(&mut self, tally: &mut Tally, rule: &Rule, end: usize, cost: Cost) -> bool {
        let end = self.before + end;
        let has_had_much = tally.spent > LITTLE.up_to(end);
        let effort = if rule.group == Group::Secrets {
            let may = self.credentials.has(cost.all(), end, has_had_much);
            may.then(|| self.credentials.spend(cost.all(), end))
        } else {
            let may = self.work.has(cost.work, end, has_had_much) && self.new.has(cost.new, end, has_had_much);
            may.then(|| self.work.spend(cost.work, end).max(self.new.spend(cost.new, end)))
        };
        self.refused |= effort.is_none();
        self.effort = self.effort.max(effort.unwrap_or(0));
        tally.spent += if effort.is_some() { cost.work } else { 0 };
        effort.is_some()
    }

    /// Spends what something cost that is done.
    pub(super) fn charge(&mut self, tally: &mut Tally, rule: &Rule, cost: Cost) {
        if rule.group == Group::Secrets {
            self.credentials.spent += cost.all();
        } else {
            self.work.spent += cost.work;
            self.new.spent += cost.new;
        }
        tally.spent += cost.work;
    }

    /// Spends what it costs to judge a match.
    pub(super) fn charge_match(&mut self, tally: &mut Tally, rule: &Rule) {
        self.charge(tally, rule, Cost::of_work(CREDITS_MATCH));
    }

    /// Spends what it costs to search so many bytes behind a window.
    pub(super) fn charge_ahead(&mut self, tally: &mut Tally, rule: &Rule, bytes: usize) {
        self.charge(tally, rule, Cost::of_work(bytes / AHEAD_BYTES_PER_CREDIT));
    }

    /// Spends what it cost an automaton to grow by so many bytes, but in the first run.
    pub(super) fn charge_growth(&mut self, tally: &mut Tally, rule: &Rule, bytes: usize) {
        if tally.runs > 1 {
            tally.grown += bytes;
            let is_free = tally.grown <= GROWTH_FREE;
            self.charge(tally, rule, Cost { work: 0, new: if is_free { 0 } else { bytes / GROWN_BYTES_PER_CREDIT } });
        }
    }

    /// Whether a rule's automaton may grow further, at a literal that ends at `end`. Of words in any order some patterns make a state for
    /// each: what is left out may be tried when the text comes again.
    pub(super) fn may_grow(&mut self, tally: &Tally, rule: &Rule, end: usize) -> bool {
        let is_left = rule.group == Group::Secrets || self.new.spent <= self.new.may.up_to(self.before + end);
        let may = is_left && tally.grown <= tally.growth_max();
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

    /// By how much the automaton may grow in one text.
    const fn growth_max(&self) -> usize {
        if self.size < GROWN_UP { GROWTH_MAX } else { GROWTH_MAX_GROWN_UP }
    }

    /// What it costs to look at a window.
    pub(super) const fn look_cost(&self) -> Cost {
        Cost::of_work(if self.spent == 0 { CREDITS_FIRST_LOOK } else { CREDITS_LOOK })
    }

    /// What it costs to look for words in so many bytes, of which so many places had to be looked at closely.
    pub(super) const fn words_cost(bytes: usize, places: usize) -> Cost {
        Cost::of_work(bytes / WORDS_BYTES_PER_CREDIT + places * CREDITS_PLACE)
    }

    /// What it costs to search so many bytes.
    pub(super) const fn run_cost(&self, bytes: usize) -> Cost {
        let (run, each) = (CREDITS_FIRST_RUN, CREDITS_FIRST_BYTES);
        match self.runs {
            0 => {
                Cost { work: run.work + bytes * each.work / FIRST_BYTES, new: run.new + bytes * each.new / FIRST_BYTES }
            }
            _ => Cost::of_work(CREDITS_RUN + bytes / BYTES_PER_CREDIT),
        }
    }
}
