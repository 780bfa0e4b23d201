//! What goes in and what comes out: parts of an exchange, options, hits.
//!
//! A part is a piece of text and the role it plays; the caller keeps the map from parts to places in a body. Nothing
//! here knows where the text came from.

use std::time::Instant;

use weir_config::vocab::{Finding, TenantId};

/// The role a text plays in an exchange. It decides which rules apply and how bad a match is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PartKind {
    /// The operator's own instructions: only secrets and PII are looked for.
    System,
    /// What the user of the application wrote.
    User,
    /// An earlier model answer that the client replays.
    Assistant,
    /// Tool results and retrieved data: instructions in here come from a third party.
    Tool,
    /// What the application says about a tool: name, description, schema. Telling the model what to do belongs there.
    ToolDefinition,
    /// Arguments of a tool call, produced by the model or replayed by the client.
    ToolCall,
    /// The model's answer.
    Output,
}

impl PartKind {
    /// One bit per kind, for the scope masks of rules.
    pub(crate) const fn bit(self) -> u8 {
        match self {
            Self::System => 1,
            Self::User => 1 << 1,
            Self::Assistant => 1 << 2,
            Self::Tool => 1 << 3,
            Self::ToolCall => 1 << 4,
            Self::Output => 1 << 5,
            Self::ToolDefinition => 1 << 6,
        }
    }
}

/// One text to look at.
#[derive(Debug, Clone, Copy)]
pub struct Part<'a> {
    /// The text as the model would read it (JSON escapes already decoded).
    pub text: &'a str,
    /// Its role.
    pub kind: PartKind,
}

/// What one analysis may do.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// Whether the jailbreak detector (and with it every decoder) runs.
    pub jailbreak: bool,
    /// Whose texts these are: what is remembered of them is remembered for this tenant alone.
    pub tenant: TenantId,
    /// Stop looking when this instant has passed; what was found until then is reported.
    pub deadline: Option<Instant>,
}

impl Options {
    /// Whether the time for looking is over.
    pub(crate) fn is_late(&self) -> bool {
        self.deadline.is_some_and(|deadline| Instant::now() >= deadline)
    }
}

impl Default for Options {
    fn default() -> Self {
        Self { jailbreak: true, tenant: TenantId::DEFAULT, deadline: None }
    }
}

/// One finding and the part it is about.
#[derive(Debug, Clone, PartialEq)]
pub struct Hit {
    /// Index into the `parts` that were given.
    pub part: usize,
    /// The finding; `location` is empty, `span` holds byte offsets into `parts[part].text`.
    pub finding: Finding,
}

/// What an analysis did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ran {
    /// Names of the detectors that ran on something.
    pub detectors: &'static [&'static str],
    /// The deadline passed: some text was not looked at.
    pub cut: bool,
    /// [`HITS_MAX`] was reached: some text was not looked at.
    pub full: bool,
    /// Some text had so many pattern candidates that not all were verified; a sign of an attack on the scanner.
    pub verify_cap_reached: bool,
    /// How long the detectors took in nanoseconds, in the order of [`DETECTORS`]; zero where all was known already.
    pub(crate) took_ns: [u64; DETECTORS.len()],
}

/// All detectors.
pub const DETECTORS: [&str; 4] = ["rules", "jailbreak", "pii", "secrets"];

impl Ran {
    /// How long each detector took, in microseconds. The detectors share a pass over the text; its time is that of `rules`.
    pub fn latencies_us(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        let took = DETECTORS.into_iter().zip(self.took_ns);
        let scanned = self.took_ns != [0; DETECTORS.len()];
        let all = self.detectors.len() == DETECTORS.len();
        took.filter(move |(detector, _)| scanned && (all || self.detectors.contains(detector)))
            .map(|(name, ns)| (name, ns / 1_000))
    }
}

/// Most findings one analysis returns; a bound on memory, far above what a person reads.
pub const HITS_MAX: usize = 4096;
