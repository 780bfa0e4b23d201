//! What an answer said, and the collector that puts it together from deltas.
//!
//! Invariants: at most `text_max` bytes of text and [`SLOTS_MAX`] separate texts are kept, whatever arrives; usage
//! counters only grow (streams repeat them); tool calls are told apart by id first, then by index. Must not know: JSON.

use std::ops::Range;
use std::time::Instant;

use memchr::memmem;
use smallvec::SmallVec;
use weir_config::vocab::UnreadSet;
use weir_config::vocab::part::{PartForm, PartRecord, PartSide, PartTool};
use weir_inference::PartKind;

use crate::json::{Location, Text};

/// Separate texts (choices, blocks, tool calls) of one answer.
pub(super) const SLOTS_MAX: usize = 512;

/// Calls of one batch that are charged; providers take 50,000 at most.
const BATCH_CALLS_MAX: usize = 50_000;

/// What one answer said.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Answer {
    /// The model that answered.
    pub model: Option<String>,
    /// All texts joined by a newline: choice by choice, as they came.
    pub text: String,
    /// The texts to analyse.
    pub parts: Vec<AnswerPart>,
    /// Tokens as the provider counted them; `None` when it did not.
    pub usage: Option<Usage>,
    /// What each call of a batch used, and by which model, where its results are fetched.
    pub batch: Vec<(Option<String>, Usage)>,
    /// Why the first choice ended, in the provider's word.
    pub finish_reason: Option<String>,
    /// Tool calls the model asked for.
    pub tool_calls: Vec<ToolCall>,
    /// The provider's error type, status or code.
    pub error_type: Option<String>,
    /// The provider's error message.
    pub error_message: Option<String>,
    /// The provider's id of the answer.
    pub response_id: Option<String>,
    /// Whether the answer's own end was seen: `[DONE]`, `message_stop`, `done: true`, a whole JSON document.
    pub complete: bool,
    /// Whether the provider goes on with it: a later request brings the rest, and what it used.
    pub pending: bool,
    /// Whether it is such an answer at its end.
    pub ended: bool,
    /// Whether text was left out because of a bound.
    pub truncated: bool,
    /// Bytes of it that were, about: of text in streams, of the document otherwise.
    pub left_out_bytes: u64,
    /// What was relayed without having been read.
    pub unread: UnreadSet,
    /// Why the answer could not be read.
    pub unreadable: Option<&'static str>,
    /// Whether any text, reasoning or tool call was seen.
    pub first_text_seen: bool,
    /// Events or lines that were malformed or too long, and skipped.
    pub skipped_events: u32,
}

/// One text of an answer.
#[derive(Debug, Clone, PartialEq)]
pub struct AnswerPart {
    /// Where it stands in [`Answer::text`].
    pub range: Range<usize>,
    /// Where it stands in the body without its content coding, where that is one document; see `TextPart::raw`.
    pub raw: Option<Range<u32>>,
    /// Its choice.
    pub choice: u32,
    /// What kind of content it is.
    pub form: PartForm,
    /// The tool call whose arguments it is, by its position in [`Answer::tool_calls`].
    pub call: Option<usize>,
    /// `Output`, `ToolCall` for arguments, `Tool` for what tools brought that the provider ran itself, `ToolDefinition`
    /// for those a server offered it.
    pub kind: PartKind,
    /// Where it stands in the answer.
    pub location: Location,
}

/// Token counts in one meaning for all providers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    /// Tokens the model read, cached ones included.
    pub prompt: Option<u64>,
    /// Tokens the model wrote, reasoning included.
    pub completion: Option<u64>,
    /// The provider's total, else the sum of both.
    pub total: Option<u64>,
    /// Prompt tokens read from the provider's cache.
    pub cached: Option<u64>,
    /// Prompt tokens written to the provider's cache.
    pub cache_write: Option<u64>,
    /// Of these, the ones it keeps for an hour.
    pub cache_write_1h: Option<u64>,
    /// Completion tokens spent on reasoning.
    pub reasoning: Option<u64>,
    /// Of the prompt and of the answer, what is no text.
    pub media: Media,
    /// Calls of tools that the provider ran and charges for one by one.
    pub tool_runs: ToolRuns,
    /// What the call cost by the provider's own word, in nanodollars.
    pub cost_nano_usd: Option<u64>,
    /// The service tier that served it.
    pub tier: Option<Tier>,
}

impl Usage {
    /// The tokens of both.
    fn with(self, other: &Self) -> Self {
        Self {
            prompt: sum(self.prompt, other.prompt),
            completion: sum(self.completion, other.completion),
            total: sum(self.total, other.total),
            cached: sum(self.cached, other.cached),
            cache_write: sum(self.cache_write, other.cache_write),
            cache_write_1h: sum(self.cache_write_1h, other.cache_write_1h),
            reasoning: sum(self.reasoning, other.reasoning),
            ..self
        }
    }
}

/// Parts of a call's tokens, and what is charged otherwise than by tokens. Parts are included in their wholes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Media {
    /// Prompt tokens of sound.
    pub audio_in: u64,
    /// Of these, the ones read from a cache.
    pub audio_cached: u64,
    /// Prompt tokens of pictures.
    pub image_in: u64,
    /// Prompt tokens of films.
    pub video_in: u64,
    /// Completion tokens of sound.
    pub audio_out: u64,
    /// Completion tokens of pictures.
    pub image_out: u64,
    /// Milliseconds of sound that were listened to, where they are what is charged.
    pub heard_ms: u64,
    /// Pictures that were made.
    pub images: u64,
}

/// Calls of tools that a provider runs itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ToolRuns {
    /// Searches in the web.
    pub web_searches: u64,
    /// Searches in files.
    pub file_searches: u64,
}

/// What a provider asks for how soon it answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tier {
    /// Before others.
    Priority,
    /// When there is room.
    Flex,
    /// Within a day.
    Batch,
    /// As always.
    Standard,
    /// One that nobody here knows.
    Unknown,
}

impl Tier {
    /// From the name that a provider gives it; `None` where it leaves that open.
    pub fn named(name: &str) -> Option<Self> {
        const STANDARD: [&str; 7] = [
            "default",
            "standard",
            "standard_only",
            "on_demand",
            "scale",
            "PROVISIONED_THROUGHPUT",
            "TRAFFIC_TYPE_UNSPECIFIED",
        ];
        let is = |names: &[&str]| names.iter().any(|known| name.eq_ignore_ascii_case(known));
        match () {
            () if is(&["", "auto"]) => None,
            () if is(&STANDARD) => Some(Self::Standard),
            () if is(&["priority", "ON_DEMAND_PRIORITY"]) => Some(Self::Priority),
            () if is(&["flex", "ON_DEMAND_FLEX"]) => Some(Self::Flex),
            () if is(&["batch"]) => Some(Self::Batch),
            () => Some(Self::Unknown),
        }
    }

    /// How it is shown.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Priority => "priority",
            Self::Flex => "flex",
            Self::Batch => "batch",
            Self::Standard => "standard",
            Self::Unknown => "unknown",
        }
    }
}

/// A tool call the model asked for.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ToolCall {
    /// The provider's id of the call.
    pub id: Option<String>,
    /// Name of the tool.
    pub name: String,
    /// Arguments as JSON text.
    pub arguments: String,
    /// Whether the tool is one that changes files.
    pub writes: bool,
}

/// Counters as providers send them.
#[derive(Default)]
pub(super) struct Counters {
    pub(super) prompt: Option<u64>,
    pub(super) completion: Option<u64>,
    pub(super) total: Option<u64>,
    /// True when `prompt` came under the name whose meaning includes everything.
    pub(super) inclusive: bool,
    /// Part of `prompt`.
    pub(super) cached: Option<u64>,
    /// Part of `prompt`.
    pub(super) written: Option<u64>,
    /// Not part of `prompt` (messages-style), unless `inclusive`.
    pub(super) cache_read: Option<u64>,
    /// Not part of `prompt` (messages-style), unless `inclusive`.
    pub(super) cache_write: Option<u64>,
    /// Parts of `cache_write`.
    pub(super) cache_write_5m: Option<u64>,
    pub(super) cache_write_1h: Option<u64>,
    /// Not part of `prompt`: what tools brought in.
    pub(super) tool_prompt: Option<u64>,
    /// Part of `completion`, unless `total` says otherwise.
    pub(super) reasoning: Option<u64>,
    /// Not part of `completion`.
    pub(super) thoughts: Option<u64>,
    pub(super) media: Media,
    /// As counted by the provider.
    pub(super) tool_runs: ToolRuns,
    /// As the items of the answer show.
    pub(super) seen_runs: ToolRuns,
    pub(super) cost_nano_usd: Option<u64>,
    pub(super) tier: Option<Tier>,
}

/// The sum of what is known.
fn sum(a: Option<u64>, b: Option<u64>) -> Option<u64> {
    match (a, b) {
        (None, None) => None,
        (a, b) => Some(a.unwrap_or(0).saturating_add(b.unwrap_or(0))),
    }
}

impl Counters {
    fn usage(&self) -> Option<Usage> {
        let cache_write = self.cache_write.max(sum(self.cache_write_5m, self.cache_write_1h)).or(self.written);
        let beside =
            if self.inclusive { None } else { sum(self.cache_read, cache_write.filter(|_| self.written.is_none())) };
        let prompt = self.prompt.map(|own| own.saturating_add(beside.unwrap_or(0)));
        let prompt = sum(prompt, self.tool_prompt.filter(|_| prompt.is_some()));
        let reasoning = self.reasoning.or(self.thoughts);
        let completion = sum(self.completion, self.thoughts.or(self.added_reasoning()));
        let completion = self.filled_up(prompt, completion);
        let runs = |counted: u64, seen: u64| if counted > 0 { counted } else { seen };
        let usage = Usage {
            prompt,
            completion,
            total: self.total.or(sum(prompt, completion)),
            cached: self.cache_read.or(self.cached),
            cache_write,
            cache_write_1h: self.cache_write_1h,
            reasoning,
            media: self.media,
            tool_runs: ToolRuns {
                web_searches: runs(self.tool_runs.web_searches, self.seen_runs.web_searches),
                file_searches: runs(self.tool_runs.file_searches, self.seen_runs.file_searches),
            },
            cost_nano_usd: self.cost_nano_usd,
            tier: self.tier,
        };
        (usage != Usage::default()).then_some(usage)
    }

    /// What a total of the chat interface holds beside both parts was written, and is charged so: Gemini leaves its thoughts out of
    /// `completion_tokens` there.
    fn filled_up(&self, prompt: Option<u64>, completion: Option<u64>) -> Option<u64> {
        let written =
            self.total.zip(prompt).filter(|_| self.inclusive).and_then(|(total, prompt)| total.checked_sub(prompt));
        match (completion, written) {
            (Some(known), Some(written)) if known > 0 => Some(known.max(written)),
            _ => completion,
        }
    }

    /// Reasoning tokens that the total counts beside the completion.
    fn added_reasoning(&self) -> Option<u64> {
        let (prompt, completion, reasoning) = (self.prompt?, self.completion?, self.reasoning?);
        (reasoning > 0 && self.total? == prompt.saturating_add(completion).saturating_add(reasoning))
            .then_some(reasoning)
    }
}

/// What a text is within its choice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Channel {
    Content,
    Refusal,
    Call,
    Reasoning,
    /// What comes from third parties: outputs of tools, citations.
    Result,
    /// Tools that a server offers.
    Definition,
}

impl Channel {
    /// The role its texts play.
    const fn kind(self) -> PartKind {
        match self {
            Self::Call => PartKind::ToolCall,
            Self::Result => PartKind::Tool,
            Self::Definition => PartKind::ToolDefinition,
            Self::Content | Self::Refusal | Self::Reasoning => PartKind::Output,
        }
    }
}

/// Where a text belongs: choice, channel, and block within them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Slot {
    pub(super) choice: u32,
    pub(super) channel: Channel,
    pub(super) block: u32,
}

struct Held {
    slot: Slot,
    text: String,
    /// Where it stands in the document.
    raw: Option<Range<u32>>,
    location: Location,
    /// Index into `Collector::calls`.
    call: Option<usize>,
    grows: Grows,
}

/// How the messages of a stream go on with a text, where that is left to them.
#[derive(Clone, Copy)]
enum Grows {
    /// Nobody knows yet: so many have said the same as the first.
    Unknown(usize),
    /// Each says all of it so far; the latest was so long.
    Whole(usize),
    InPieces,
}

struct Call {
    choice: u32,
    index: Option<u64>,
    id: Option<String>,
    name: String,
    held: usize,
    /// The arguments as they are spelled, where the text held is no JSON.
    spelled: Option<String>,
    writes: bool,
    /// How far its arguments have come.
    nesting: Nesting,
}

/// How deep in JSON a text ends, whose pieces come one by one.
#[derive(Default)]
struct Nesting {
    depth: u32,
    in_string: bool,
    after_backslash: bool,
    /// An object or an array has begun.
    begun: bool,
}

impl Nesting {
    fn follow(&mut self, piece: &str) {
        for byte in piece.bytes() {
            match byte {
                _ if std::mem::take(&mut self.after_backslash) => {}
                b'\\' if self.in_string => self.after_backslash = true,
                b'"' => self.in_string = !self.in_string,
                _ if self.in_string => {}
                b'{' | b'[' => {
                    self.begun = true;
                    self.depth = self.depth.saturating_add(1);
                }
                b'}' | b']' => self.depth = self.depth.saturating_sub(1),
                _ => {}
            }
        }
    }

    /// Whether it is a whole value: nothing can continue it.
    const fn is_whole(&self) -> bool {
        self.begun && self.depth == 0 && !self.in_string
    }
}

/// What a whole item asks a tool for.
pub(super) struct Asked<'a> {
    pub(super) name: &'a str,
    pub(super) spelled: Option<&'a str>,
    pub(super) writes: bool,
}

/// How a piece of a text arrives.
#[derive(Clone, Copy)]
pub(super) enum Piece<'a> {
    /// A JSON string, decoded on the way.
    Text(Text<'a>),
    /// JSON as it stands in the answer.
    Raw(&'a str),
}

/// An operation with the answers to the calls of a batch.
#[derive(Debug, Default)]
pub(super) struct Batch {
    /// The model that it was made for: that of each of its calls which says none.
    pub(super) model: Option<String>,
    /// Lists of its answers that have been read, as SHA-256: an operation may say the same one twice.
    pub(super) prints: Vec<[u8; 32]>,
}

/// Puts an answer together.
#[derive(Default)]
pub(super) struct Collector {
    pub(super) answer: Answer,
    /// In a box: what is charged by other units than tokens takes room that most calls never use.
    pub(super) counters: Box<Counters>,
    held: SmallVec<[Held; 1]>,
    calls: Vec<Call>,
    last: usize,
    used_bytes: usize,
    text_max: usize,
    /// A reason why the answer ended has come, and something may still follow.
    pub(super) stopped: bool,
    /// The answer is a response object, and whether it said to run in the background.
    pub(super) is_response: bool,
    pub(super) background: Option<bool>,
    /// Its latest status was one before its end.
    pub(super) unfinished: bool,
    /// The call and the part of it that a delta has continued last.
    last_part: (u32, u32),
    /// What is read is the answer to a call of a batch.
    pub(super) in_batch: bool,
    /// What is known of the batch whose answers are read. In a box: there is a collector for each call, and most are no batches.
    pub(super) batch: Option<Box<Batch>>,
    /// Items of tools that the provider ran and charges for.
    runs: Vec<u32>,
    /// What is read is the whole body: where its strings stand is where they stand in the body.
    pub(super) in_document: bool,
    /// Where the pieces of its texts stand in the message that is read, where somebody asks.
    pub(super) said: Option<Vec<Said>>,
    /// What a provider says of a failure is a text of the answer, too.
    pub(super) reads_failures: bool,
    /// What is appended now is bound to a signature.
    pub(super) signed: bool,
    /// Until when there is time to read.
    pub(super) until: Option<Instant>,
}

/// A string of a message that continues a text.
#[derive(Debug, Clone)]
pub(super) struct Said {
    /// The text, by its number in the order in which they began.
    pub(super) text: usize,
    pub(super) choice: u32,
    pub(super) kind: PartKind,
    /// Its provider has signed it, and takes it back only as it is.
    pub(super) signed: bool,
    /// What stands between its quotes.
    pub(super) raw: Range<usize>,
}

impl Collector {
    pub(super) fn new(text_max: usize) -> Self {
        Self { text_max, ..Self::default() }
    }

    /// From here on no more text is kept; counters, names and reasons are.
    pub(super) fn keep_no_more_text(&mut self) {
        self.text_max = self.used_bytes;
    }

    /// So much of what was said has been left out.
    pub(super) fn leave_out(&mut self, bytes: usize) {
        self.answer.left_out_bytes = self.answer.left_out_bytes.saturating_add(bytes as u64);
    }

    pub(super) const fn has_text(&self) -> bool {
        self.answer.first_text_seen
    }

    /// Bytes of text kept so far.
    pub(super) const fn text_bytes(&self) -> usize {
        self.used_bytes
    }

    /// The texts kept so far, in the order in which they began.
    pub(super) fn texts(&self) -> impl Iterator<Item = (PartKind, &str)> {
        self.held.iter().map(|held| (held.slot.channel.kind(), held.text.as_str()))
    }

    /// The tool calls so far: name, arguments, and whether it is a tool that changes files.
    pub(super) fn calls(&self) -> impl Iterator<Item = (&str, &str, bool)> {
        self.calls.iter().map(|call| {
            let text = self.held.get(call.held).map(|held| held.text.as_str()).unwrap_or_default();
            (call.name.as_str(), call.spelled.as_deref().unwrap_or(text), call.writes)
        })
    }

    /// Appends to the text in `slot`; `location` is asked when the slot is new.
    pub(super) fn append(&mut self, slot: Slot, piece: Piece<'_>, location: impl FnOnce() -> Location) {
        if piece_is_empty(piece) {
            return;
        }
        if let Some(at) = self.slot(slot, location) {
            self.push(at, piece);
        }
    }

    /// What the provider says of why it failed.
    pub(super) fn failure(&mut self, text: Text<'_>) {
        if self.reads_failures {
            let slot = Slot { choice: 0, channel: Channel::Content, block: u32::MAX };
            self.append(slot, Piece::Text(text), || Location::root("response").key("error"));
        }
    }

    /// The same for a text that its provider signs.
    pub(super) fn append_signed(&mut self, slot: Slot, piece: Piece<'_>, location: impl FnOnce() -> Location) {
        self.signed = true;
        self.append(slot, piece, location);
        self.signed = false;
    }

    /// Appends to the text in `slot` on a line of its own.
    pub(super) fn line(&mut self, slot: Slot, piece: Piece<'_>, location: impl FnOnce() -> Location) {
        let Some(at) = self.slot(slot, location) else { return };
        if self.held.get(at).is_some_and(|held| !held.text.is_empty()) {
            self.push(at, Piece::Raw("\n"));
        }
        self.push(at, piece);
    }

    /// Sets the text in `slot`, which may have come in pieces before.
    pub(super) fn whole(&mut self, slot: Slot, piece: Piece<'_>, location: impl FnOnce() -> Location) {
        if piece_is_empty(piece) {
            return;
        }
        if let Some(at) = self.slot(slot, location) {
            self.settle(at, piece);
        }
    }

    /// Continues the text in `slot` by a message of a server that sends either what is new or, each time, all there is so far: the
    /// second message that says something tells which.
    pub(super) fn grown(&mut self, slot: Slot, text: Text<'_>, location: impl FnOnce() -> Location) {
        if piece_is_empty(Piece::Text(text)) {
            return;
        }
        let Some(at) = self.slot(slot, location) else { return };
        let Some(held) = self.held.get_mut(at) else { return };
        // Where pieces are looked for in messages, each stands for itself.
        if self.said.is_some() || held.text.is_empty() || matches!(held.grows, Grows::InPieces) {
            return self.push(at, Piece::Text(text));
        }
        let new = text.decode();
        let is_whole = new.starts_with(held.text.as_str());
        let known = match held.grows {
            Grows::Unknown(same) if is_whole && new.len() == held.text.len() => {
                held.grows = Grows::Unknown(same + 1);
                return;
            }
            Grows::Unknown(same) if !is_whole => {
                held.grows = Grows::InPieces;
                let first = held.text.clone();
                (0..same).for_each(|_| self.keep(at, Piece::Raw(&first)));
                return self.keep(at, Piece::Raw(&new));
            }
            Grows::Whole(known) if is_whole => known.max(held.text.len()),
            _ if is_whole => held.text.len(),
            // They were pieces after all, of which the second began like the first.
            _ => {
                if new.len() < held.text.len() {
                    held.grows = Grows::InPieces;
                }
                return self.keep(at, Piece::Raw(&new));
            }
        };
        held.grows = Grows::Whole(new.len().max(known));
        let rest = new.get(known..).unwrap_or_default();
        if !rest.is_empty() {
            self.keep(at, Piece::Raw(rest));
        }
    }

    fn slot(&mut self, slot: Slot, location: impl FnOnce() -> Location) -> Option<usize> {
        let at = match self.held.get(self.last) {
            Some(held) if held.slot == slot && held.call.is_none() => self.last,
            _ => match self.held.iter().position(|held| held.slot == slot && held.call.is_none()) {
                Some(at) => at,
                None if self.held.len() >= SLOTS_MAX => {
                    self.answer.truncated = true;
                    return None;
                }
                None => {
                    self.held.push(Held::new(slot, location(), None));
                    self.held.len() - 1
                }
            },
        };
        self.last = at;
        Some(at)
    }

    /// The answer to one call of a batch has been read; the next one counts from the beginning.
    pub(super) fn end_of_call(&mut self) {
        let counters = std::mem::take(&mut self.counters);
        let model = self.answer.model.take().or_else(|| self.batch.as_ref().and_then(|batch| batch.model.clone()));
        self.runs.clear();
        self.answer.complete = true;
        let Some(usage) = counters.usage() else { return };
        if self.answer.batch.len() < BATCH_CALLS_MAX {
            self.answer.batch.push((model, usage));
        } else {
            self.answer.truncated = true;
        }
    }

    /// The provider has run a tool of its own that it charges for; the item at this place may come several times.
    pub(super) fn note_run(&mut self, at: u32, in_web: bool) {
        if self.runs.len() >= SLOTS_MAX || self.runs.contains(&at) {
            return;
        }
        self.runs.push(at);
        let runs = &mut self.counters.seen_runs;
        *if in_web { &mut runs.web_searches } else { &mut runs.file_searches } += 1;
    }

    /// How many texts have begun: the block of one that continues none.
    pub(super) fn texts_begun(&self) -> u32 {
        u32::try_from(self.held.len()).unwrap_or(u32::MAX)
    }

    /// How many tool calls have begun.
    pub(super) fn calls_begun(&self) -> u32 {
        u32::try_from(self.calls.len()).unwrap_or(u32::MAX)
    }

    /// Starts or continues a tool call. `index` and `id` are what the provider sent, if anything.
    pub(super) fn call(
        &mut self,
        choice: u32,
        index: Option<u64>,
        id: Option<Text<'_>>,
        name: Option<Text<'_>>,
        arguments: Option<Piece<'_>>,
        location: impl FnOnce(u32) -> Location,
    ) {
        let name = name.map(|name| name.decode());
        // What has a name and says something begins a call where the one before it is whole.
        let says = arguments.is_some_and(|arguments| !piece_is_empty(arguments));
        if let Some(at) = self.call_at(choice, index, (id, says), name.as_deref(), location)
            && let Some(held) = self.calls.get(at).map(|call| call.held)
            && let Some(arguments) = arguments
        {
            let before = self.held.get(held).map_or(0, |held| held.text.len());
            self.push(held, arguments);
            if let (Some(call), Some(held)) = (self.calls.get_mut(at), self.held.get(held)) {
                call.nesting.follow(held.text.get(before..).unwrap_or_default());
            }
        }
    }

    /// Continues the call of the item `output`; what belongs to another `part` of it begins a line.
    pub(super) fn call_part(
        &mut self,
        (output, part): (u32, u32),
        text: Text<'_>,
        location: impl FnOnce(u32) -> Location,
    ) {
        let Some(at) = self.call_at(0, Some(u64::from(output)), (None, false), None, location) else { return };
        let Some(held) = self.calls.get(at).map(|call| call.held) else { return };
        let before = std::mem::replace(&mut self.last_part, (output, part));
        if before.0 == output && before.1 != part && self.held.get(held).is_some_and(|held| !held.text.is_empty()) {
            self.push(held, Piece::Raw("\n"));
        }
        self.push(held, Piece::Text(text));
    }

    /// A tool call told whole by the item `output`, which may have come in pieces before.
    pub(super) fn whole_call(
        &mut self,
        output: u32,
        id: Option<Text<'_>>,
        asked: &Asked<'_>,
        text: Option<Piece<'_>>,
        location: impl FnOnce() -> Location,
    ) {
        let Some(at) = self.call_at(0, Some(u64::from(output)), (id, false), Some(asked.name), |_| location()) else {
            return;
        };
        let room = self.text_max.saturating_sub(self.used_bytes);
        let Some(call) = self.calls.get_mut(at) else { return };
        call.writes |= asked.writes;
        let held = call.held;
        if let Some(spelled) = asked.spelled.filter(|spelled| call.spelled.as_deref() != Some(*spelled)) {
            if spelled.len() <= room {
                self.used_bytes += spelled.len();
                call.spelled = Some(spelled.to_owned());
            } else {
                self.answer.truncated = true;
            }
        }
        if let Some(text) = text {
            self.settle(held, text);
        }
    }

    fn call_at(
        &mut self,
        choice: u32,
        index: Option<u64>,
        (id, says): (Option<Text<'_>>, bool),
        name: Option<&str>,
        location: impl FnOnce(u32) -> Location,
    ) -> Option<usize> {
        let id = id.map(|id| id.decode()).filter(|id| !id.is_empty());
        let name = name.filter(|name| !name.is_empty());
        self.answer.first_text_seen = true;
        let found = self.find_call(choice, index, (id.as_deref(), says), name);
        let at = match found {
            Some(at) => at,
            None if self.held.len() >= SLOTS_MAX => {
                self.answer.truncated = true;
                return None;
            }
            None => {
                let block = u32::try_from(self.calls.iter().filter(|call| call.choice == choice).count());
                let block = block.unwrap_or(u32::MAX);
                let slot = Slot { choice, channel: Channel::Call, block };
                let call = Some(self.calls.len());
                self.held.push(Held::new(slot, location(block), call));
                let held = self.held.len() - 1;
                let (id, name) = (None, String::new());
                self.calls.push(Call {
                    choice,
                    index,
                    id,
                    name,
                    held,
                    spelled: None,
                    writes: false,
                    nesting: Nesting::default(),
                });
                self.calls.len() - 1
            }
        };
        let call = self.calls.get_mut(at)?;
        call.index = call.index.or(index);
        if call.id.is_none() {
            call.id = id.map(|id| bounded(&id));
        }
        if let Some(name) = name.filter(|_| call.name.is_empty()) {
            call.name = bounded(name);
        }
        Some(at)
    }

    /// An id decides; without one, a piece belongs to the latest call of its index, or to the latest call at all.
    /// A known index with a foreign id is another call: some servers number every parallel call 0. So is, without an id, another name,
    /// and a name with arguments behind arguments that are whole.
    fn find_call(
        &self,
        choice: u32,
        index: Option<u64>,
        (id, says): (Option<&str>, bool),
        name: Option<&str>,
    ) -> Option<usize> {
        let mut ours = self.calls.iter().enumerate().rev().filter(|(_, call)| call.choice == choice);
        let same_index = |call: &Call| index.is_none() || call.index.is_none() || call.index == index;
        match id {
            Some(id) => ours
                .find(|(_, call)| {
                    call.id.as_deref() == Some(id) || (call.id.is_none() && index.is_some() && call.index == index)
                })
                .map(|(at, _)| at),
            // Neither id nor index, but a name: a call of its own.
            None if index.is_none() && name.is_some() => None,
            None => {
                let begins = |call: &Call| {
                    let other = name.is_some_and(|name| !call.name.is_empty() && call.name != name);
                    other || (name.is_some() && says && call.nesting.is_whole())
                };
                ours.find(|(_, call)| same_index(call)).filter(|(_, call)| !begins(call)).map(|(at, _)| at)
            }
        }
    }

    /// Sets the reason of the first choice; the last one said counts.
    pub(super) fn finished(&mut self, choice: u32, reason: Text<'_>) {
        if choice == 0 || self.answer.finish_reason.is_none() {
            self.answer.finish_reason = Some(bounded(&reason.decode()));
        }
    }

    /// Adds what is not known yet of a text that may have come in pieces. Linear in `piece`, however long the text is.
    fn settle(&mut self, at: usize, piece: Piece<'_>) {
        let Some(held) = self.held.get_mut(at) else { return };
        if held.text.is_empty() {
            return self.keep(at, piece);
        }
        let new = match piece {
            Piece::Text(text) => text.decode(),
            Piece::Raw(raw) => raw.into(),
        };
        if new.is_empty() || held.text.ends_with(&*new) || self.answer.truncated {
            return;
        }
        if let Some(rest) = new.strip_prefix(held.text.as_str()) {
            return self.keep(at, Piece::Raw(rest));
        }
        if held.text.len() < new.len() && memmem::find(new.as_bytes(), held.text.as_bytes()).is_some() {
            self.used_bytes = self.used_bytes.saturating_sub(held.text.len());
            held.text.clear();
        } else {
            self.keep(at, Piece::Raw("\n"));
        }
        self.keep(at, Piece::Raw(&new));
    }

    /// Adds a piece that continues the text, and notes where it stands.
    fn push(&mut self, at: usize, piece: Piece<'_>) {
        if let (Some(said), Piece::Text(text), Some(held)) = (&mut self.said, piece, self.held.get(at)) {
            let (choice, kind) = (held.slot.choice, held.slot.channel.kind());
            said.push(Said { text: at, choice, kind, signed: self.signed, raw: text.start()..text.end() });
        }
        self.keep(at, piece);
    }

    fn keep(&mut self, at: usize, piece: Piece<'_>) {
        let Some(held) = self.held.get_mut(at) else { return };
        self.answer.first_text_seen = true;
        let before = held.text.len();
        let room = self.text_max.saturating_sub(self.used_bytes);
        if room == 0 {
            self.answer.truncated = true;
            self.leave_out(match piece {
                Piece::Text(text) => text.raw().len(),
                Piece::Raw(raw) => raw.len(),
            });
            return;
        }
        match piece {
            Piece::Text(text) => {
                if self.in_document {
                    held.stands_at(&text);
                }
                text.decode_into(&mut held.text);
            }
            Piece::Raw(raw) => held.text.push_str(raw),
        }
        if held.text.len() - before > room {
            let mut end = before + room;
            while !held.text.is_char_boundary(end) {
                end -= 1;
            }
            let left_out = held.text.len() - end;
            held.text.truncate(end);
            self.answer.truncated = true;
            self.leave_out(left_out);
            // What comes later must not be squeezed into the bytes a cut character left.
            self.used_bytes = self.text_max;
        } else {
            self.used_bytes += held.text.len() - before;
        }
    }

    /// The answer, once. Taken out rather than handed over: a collector is large to move.
    pub(super) fn finish(&mut self) -> Answer {
        let mut answer = std::mem::take(&mut self.answer);
        answer.usage = match answer.batch.is_empty() {
            true => self.counters.usage(),
            false => Some(answer.batch.iter().fold(Usage::default(), |sum, (_, usage)| sum.with(usage))),
        };
        // As they came, choice by choice: several may stream at once.
        self.calls.sort_by_key(|call| (call.choice, call.held));
        answer.tool_calls = self
            .calls
            .iter_mut()
            .map(|call| ToolCall {
                id: call.id.take(),
                name: std::mem::take(&mut call.name),
                arguments: match call.spelled.take() {
                    Some(spelled) => spelled,
                    None => self.held.get(call.held).map(|held| held.text.clone()).unwrap_or_default(),
                },
                writes: call.writes,
            })
            .collect();
        self.held.sort_by_key(|held| held.slot.choice);
        // Calls are in this order, too.
        let mut calls = 0;
        for held in self.held.drain(..) {
            let call = held.call.map(|_| calls);
            calls += usize::from(call.is_some());
            // A call without arguments was made all the same.
            if held.text.is_empty() && call.is_none() {
                continue;
            }
            let mut start = answer.text.len();
            if answer.text.is_empty() {
                answer.text = held.text;
            } else if !held.text.is_empty() {
                answer.text.push('\n');
                start += 1;
                answer.text.push_str(&held.text);
            }
            let kind = held.slot.channel.kind();
            let form = match held.slot.channel {
                Channel::Reasoning => PartForm::Reasoning,
                Channel::Refusal => PartForm::Refusal,
                _ => PartForm::Text,
            };
            let (range, choice) = (start..answer.text.len(), held.slot.choice);
            let (raw, location) = (held.raw, held.location);
            answer.parts.push(AnswerPart { range, raw, choice, form, call, kind, location });
        }
        answer
    }
}

impl Held {
    fn new(slot: Slot, location: Location, call: Option<usize>) -> Self {
        Self { slot, text: String::new(), raw: None, location, call, grows: Grows::Unknown(0) }
    }

    /// Notes where a string of the document stands that belongs to it.
    fn stands_at(&mut self, text: &Text<'_>) {
        let (Ok(start), Ok(end)) = (u32::try_from(text.start()), u32::try_from(text.end())) else { return };
        self.raw = Some(match self.raw.take() {
            Some(known) => known.start.min(start)..known.end.max(end),
            None => start..end,
        });
    }
}

impl Answer {
    /// Its parts as they are recorded.
    pub fn part_records(&self) -> impl ExactSizeIterator<Item = PartRecord> {
        self.parts.iter().map(|part| self.record(part))
    }

    fn record(&self, part: &AnswerPart) -> PartRecord {
        let call = part.call.and_then(|at| self.tool_calls.get(at));
        let tool = call.map(|call| {
            let name = Some(call.name.clone()).filter(|name| !name.is_empty());
            Box::new(PartTool { name, id: call.id.clone() })
        });
        let range = (u32::try_from(part.range.start), u32::try_from(part.range.end));
        PartRecord {
            side: PartSide::Response,
            kind: part.kind,
            form: part.form,
            role: None,
            message: Some(part.choice),
            text: if let (Ok(start), Ok(end)) = range {
                Some(start..end).filter(|range| start < range.end)
            } else {
                None
            },
            raw: part.raw.clone(),
            tool,
        }
    }
}

fn piece_is_empty(piece: Piece<'_>) -> bool {
    match piece {
        Piece::Text(text) => text.raw().is_empty(),
        Piece::Raw(raw) => raw.is_empty(),
    }
}

/// Names and ids are kept to 256 bytes, messages go through [`message`].
pub(super) fn bounded(text: &str) -> String {
    cut(text, 256)
}

/// An error message, kept to 4096 bytes.
pub(super) fn message(text: &str) -> String {
    cut(text, 4096)
}

fn cut(text: &str, max: usize) -> String {
    let mut end = text.len().min(max);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.get(..end).unwrap_or_default().to_owned()
}
