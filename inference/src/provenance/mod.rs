//! `action_from_data`: whose words the calls of an agent's model are made of.
//!
//! An order in a mail or a page can be worded like any sentence, so that no reader tells it from data. What follows can be told: the
//! model's next turn calls a tool that acts (sends, pays, deletes, shares, runs), and what the call is about (an address, a host, an
//! account, a name) stands in what tools brought and nowhere in the words of the user or the operator. How much such a call means is
//! weighed ([`weigh`]): more where the same text asks for it or speaks to the reader, and where the user had asked a question only; less
//! where the user asked for what was read to be used ("reply to her").
//!
//! | what | what is kept |
//! |---|---|
//! | words of the user and the operator | the last [`OURS_BYTES_MAX`] |
//! | what tools brought | the last [`THEIRS_BYTES_MAX`] |
//! | what the user asked last | the last [`ASKED_BYTES_MAX`] |
//!
//! Invariants: pure; linear in these texts and in the call, whose values are at most [`call::NEEDLES_MAX`]; what a bound leaves out is
//! said ([`Origins::is_cut`]). Tools that only read are no actions, unless they are given an address.

mod call;
mod places;
mod weigh;
mod words;

use weir_config::vocab::{Finding, Severity};

use self::call::Asked;
pub use self::call::ToolUse;
use self::places::Places;
use crate::part::PartKind;

pub use self::weigh::Weighed;

/// Bytes that are kept of what the user and the operator said.
pub const OURS_BYTES_MAX: usize = 256 << 10;
/// Bytes that are kept of what tools brought.
pub const THEIRS_BYTES_MAX: usize = 512 << 10;
/// Bytes that are kept of what the user asked last.
pub const ASKED_BYTES_MAX: usize = 4 << 10;
/// The type of the finding.
pub const ACTION_FROM_DATA: &str = "action_from_data";
/// Name of this detector in findings.
const DETECTOR: &str = "provenance";
/// Between two texts of one side: no value goes over it.
const BREAK: char = '\n';

/// The words of a conversation by whose they are, in small letters.
#[derive(Debug, Clone, Default)]
pub struct Origins {
    ours: String,
    theirs: String,
    asked: String,
    /// Whoever spoke last.
    last: Option<PartKind>,
    is_cut: bool,
}

// === impl Origins ===

impl Origins {
    /// Adds a text of the conversation; they come in its order.
    pub fn add(&mut self, kind: PartKind, text: &str) {
        match kind {
            PartKind::User => {
                self.is_cut |= push(&mut self.ours, text, OURS_BYTES_MAX);
                // What an agent's harness adds to results of tools ends no request.
                if self.last == Some(PartKind::Assistant) {
                    self.asked.clear();
                }
                push(&mut self.asked, text, ASKED_BYTES_MAX);
            }
            PartKind::System => self.is_cut |= push(&mut self.ours, text, OURS_BYTES_MAX),
            PartKind::Tool => self.is_cut |= push(&mut self.theirs, text, THEIRS_BYTES_MAX),
            PartKind::Assistant | PartKind::ToolDefinition | PartKind::ToolCall | PartKind::Output => {}
        }
        if matches!(kind, PartKind::User | PartKind::Tool | PartKind::Assistant) {
            self.last = Some(kind);
        }
    }

    /// Whether tools have brought anything.
    pub fn has_data(&self) -> bool {
        !self.theirs.is_empty()
    }

    /// Whether older words than these were left out.
    pub const fn is_cut(&self) -> bool {
        self.is_cut
    }

    /// Bytes that are kept.
    pub fn bytes(&self) -> usize {
        self.ours.len() + self.theirs.len() + self.asked.len()
    }

    /// The ends of both sides, at most so many bytes each, for the next turn of a conversation that its provider keeps; [`Self::recall`]
    /// reads it.
    pub fn tail(&self, bytes: usize) -> String {
        let [ours, theirs, asked] = [&self.ours, &self.theirs, &self.asked].map(|text| end_of(text, bytes));
        [ours, theirs, asked].join(&SIDES.to_string())
    }

    /// What was kept of the turns before; what is added follows it.
    pub fn recall(tail: &str) -> Self {
        let mut sides = tail.split(SIDES).map(str::to_owned);
        let mut next = || sides.next().unwrap_or_default();
        Self { ours: next(), theirs: next(), asked: next(), last: Some(PartKind::Assistant), is_cut: false }
    }

    /// What is to be said of a call; nothing of one that acts on nothing or on what the user or the operator named.
    pub fn judge(&self, call: &ToolUse<'_>) -> Option<Finding> {
        self.weighed(call)?.finding()
    }

    /// What speaks for and against a call, where it acts at all and tools have brought anything.
    pub fn weighed(&self, call: &ToolUse<'_>) -> Option<Weighed> {
        if !self.has_data() || call.writes {
            return None;
        }
        let asked = Asked::of(call)?;
        let places = Places::of(&asked, &self.ours, &self.theirs);
        Some(Weighed::of(&asked, &places, &self.theirs, &self.asked))
    }
}

/// Between the sides in what is kept of a turn; taken out of the texts themselves.
const SIDES: char = '\u{1}';

/// Appends a text in small letters and keeps the last `max` bytes. Whether that left something out.
fn push(side: &mut String, text: &str, max: usize) -> bool {
    let kept = end_of(text, max);
    if !side.is_empty() {
        side.push(BREAK);
    }
    let small = kept.to_lowercase();
    if small.contains(SIDES) {
        side.push_str(&small.replace(SIDES, " "))
    } else {
        side.push_str(&small)
    }
    let over = side.len().saturating_sub(max);
    if over > 0 {
        side.drain(..side.ceil_char_boundary(over));
    }
    over > 0 || kept.len() < text.len()
}

/// The last `max` bytes.
fn end_of(text: &str, max: usize) -> &str {
    text.get(text.ceil_char_boundary(text.len().saturating_sub(max))..).unwrap_or_default()
}

// === impl Weighed ===

impl Weighed {
    /// The finding: Low where little speaks for it or the user asked for it, High where the data asks for what was done.
    fn finding(&self) -> Option<Finding> {
        let severity = self.severity()?;
        let said = match severity {
            Severity::Low => "A call of a tool is about something that only tools' results named",
            _ => {
                "A call of a tool does what only tools' results ask for, about something that neither the user nor the operator named"
            }
        };
        let mut finding = Finding::new(ACTION_FROM_DATA, severity, self.confidence(), DETECTOR, said);
        let mut put = |key: &str, value: &str| finding.metadata.insert(key.to_owned(), value.to_owned());
        put("tool", &self.tool);
        if let Some((kind, host)) = &self.value {
            put("value_kind", kind);
            // Of somebody's address only the host is shown; other values may be personal data.
            if let Some(host) = host {
                put("host", host);
            }
        }
        for (is, key) in [(self.is_asked_for, "asked_for"), (self.is_ordered, "ordered_by_data")] {
            if is {
                put(key, "true");
            }
        }
        Some(finding)
    }
}

#[cfg(test)]
mod tests;
