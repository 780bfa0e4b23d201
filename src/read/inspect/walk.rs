//! Finds every text in a JSON body and says who speaks it.
//!
//! One walk serves all dialects: shapes are told by their keys, and what no shape explains is taken as text all the
//! same. A frame per open container remembers what the container is (`Shape`), whose words it holds, and what is still
//! unknown when its texts go by (`role` and `type` may come last):
//!
//! ```text
//! Root ─ messages, contents, input[] ─▶ Turns ─▶ Turn ─ content, parts, output ─▶ Content ─▶ Content ...
//!   │                                              ├ tool_calls, function_call ─▶ Calls
//!   ├ system, instructions, prompt, documents ─▶ Content
//!   ├ tools, functions ─▶ Tools ─▶ Merged          └ image_url, source, data, images ─▶ Files
//!   └ any other container ─▶ Merged: its strings make one part
//! ```
//! Invariants: every occurrence of a key counts; contradicting roles or types never make a text milder than `User`;
//! strings left out are only names and ids without a space; credentials meant for the provider or for the servers of its
//! tools are looked at and not recorded. Must not know: findings, rewriting.

use std::time::Instant;

use smallvec::SmallVec;
use weir_config::vocab::{Dialect, Unread};
use weir_inference::PartKind;

use super::binary::{self, Found};
use super::gather::{About, Gather, Source};
use super::keys::{Key, MODEL_BYTES_MAX, is_credential, is_token, model_name, without_secrets};
use super::part::Label;
use super::rpc::{self, Envelope, Means};
use super::sender::{session_id, session_of_cache, session_of_user};
use crate::json::{Event, JsonError, Location, Segment, Text, Walker, integer};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shape {
    Root,
    Turns,
    Turn,
    Content,
    Calls,
    Tools,
    Files,
    Merged,
    /// The parameters or the result of a JSON-RPC message, and in a batch the message itself.
    Rpc,
}

/// What `role` or `type` said so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stated<T> {
    Absent,
    One(T),
    Conflict,
}

impl<T: PartialEq> Stated<T> {
    fn add(&mut self, value: T) {
        *self = match self {
            Self::Absent => Self::One(value),
            Self::One(known) if *known == value => return,
            _ => Self::Conflict,
        };
    }
}

struct Frame<'a> {
    shape: Shape,
    array: bool,
    /// In an array: whether its numbers are the tokens of a prompt.
    tokens: bool,
    /// In an array: position of the next element.
    index: u32,
    /// The key this container stands under; elements of an array count as standing under it too.
    held: Key,
    /// In an object: the key whose value comes next, and how it is spelled.
    key: Key,
    exact: bool,
    name: Option<Text<'a>>,
    kind: PartKind,
    settled: bool,
    /// First part that may belong to this container.
    parts_start: usize,
    /// The same of calls without a word.
    bare_start: usize,
    /// The same of objects that are named.
    references_start: usize,
    role: Stated<PartKind>,
    type_: Stated<Option<PartKind>>,
    /// In a tool's description: whether it says to be a server of tools.
    server: Stated<bool>,
    /// Whether its texts are what a model thought, sent back to it.
    reasoning: bool,
    media_type: Option<Text<'a>>,
    /// A string that may be a file, waiting for its media type.
    file: Option<(Key, Text<'a>)>,
    /// The role as it is spelled, and the tool this is about.
    role_name: Label,
    tool_name: Label,
    tool_id: Label,
}

struct Walk<'a, 'g> {
    gather: &'g mut Gather,
    frames: SmallVec<[Frame<'a>; 8]>,
    /// Depth at which a merged region began, and its part.
    merged: Option<(usize, Option<usize>)>,
    /// Where in the body that was.
    merged_from: usize,
    /// Depth at which the fields sent to a server of tools began.
    fields_from: Option<usize>,
    /// What may be such fields, and what are credentials, of the merged region: apart, until it ends.
    fields: String,
    credentials: String,
    messages_seen: u32,
    shadow_stream: Option<bool>,
    /// What the JSON-RPC message that is read means; `None` where none is.
    rpc: Option<Means>,
    /// The object whose keys have been asked whether it is one: `0` for the body, else the element of its array and one.
    rpc_looked: Option<u32>,
}

/// Reads a JSON body into `gather`, as far as there is time.
///
/// # Errors
/// The first [`JsonError`]; what was found before it stays in `gather`.
pub(super) fn json(
    gather: &mut Gather,
    dialect: Dialect,
    body: &[u8],
    until: Option<Instant>,
) -> Result<(), JsonError> {
    let mut walker = Walker::new(body)?.until(until);
    let mut walk = Walk {
        gather,
        frames: SmallVec::new(),
        merged: None,
        merged_from: 0,
        fields_from: None,
        fields: String::new(),
        credentials: String::new(),
        messages_seen: 0,
        shadow_stream: None,
        rpc: None,
        rpc_looked: None,
    };
    while let Some(event) = walker.next_event()? {
        match event {
            Event::Key(text) => {
                if walk.frames.len() <= 2 && rpc::is_member(text.raw()) {
                    walk.look_for_rpc(&walker, text.raw());
                }
                walk.key(text);
            }
            Event::ObjectStart => walk.open(false, walker.span().end),
            Event::ArrayStart => walk.open(true, walker.span().end),
            Event::ObjectEnd | Event::ArrayEnd => walk.close(walker.span().end),
            Event::Str(text) => walk.string(text),
            Event::Number(spelled) => walk.number(spelled),
            Event::Bool(value) => walk.boolean(value),
            Event::Null => walk.value_done(),
        }
    }
    let (messages_seen, shadow_stream) = (walk.messages_seen, walk.shadow_stream);
    let view = &mut gather.view;
    if messages_seen != 1 {
        view.messages_open = None;
        view.messages_empty = false;
    }
    // Only the local server's parser ignores the case of keys.
    if dialect == Dialect::LocalServer {
        view.stream = view.stream.or(shadow_stream);
    }
    gather.frame(body);
    Ok(())
}

impl<'a> Walk<'a, '_> {
    /// Asks once of each object that may be a JSON-RPC message whether it is one, and what it means.
    fn look_for_rpc(&mut self, walker: &Walker<'a>, key: &str) {
        let (object, at) = match self.frames.as_slice() {
            [root] if !root.array => (0, None),
            [root, top] if root.array && !top.array => (root.index.saturating_add(1), Some(root.index)),
            _ => return,
        };
        if self.rpc_looked == Some(object) {
            return;
        }
        self.rpc_looked = Some(object);
        let Some(Envelope { means, method, call }) = rpc::envelope(walker.clone(), key) else {
            self.rpc = None;
            return;
        };
        self.rpc = Some(means);
        self.gather.rpc(method, call, at);
        if let (Some(_), Some(top)) = (at, self.frames.last_mut()) {
            top.shape = Shape::Rpc;
        }
    }

    /// What a container of a JSON-RPC message is, where that is for the message to say.
    fn rpc_child(&self, array: bool) -> Option<(Shape, PartKind, bool)> {
        let means = self.rpc?;
        let (top, around) = self.frames.split_last()?;
        let is_message = matches!(around, [] if top.shape == Shape::Root)
            || matches!(around, [_] if top.shape == Shape::Rpc && top.held != Key::Params && top.held != Key::Result);
        let user = (PartKind::User, false);
        let (shape, (kind, settled)) = match (top.key, means) {
            _ if top.array => return None,
            (Key::Params, Means::Call) if is_message && !array => (Shape::Calls, (PartKind::ToolCall, true)),
            (Key::Params, _) if is_message && !array => (Shape::Rpc, user),
            // What the application's own model has said, where a server asked for that, or what its user has put in.
            (Key::Result, Means::Answer) if is_message && !array => (Shape::Turn, user),
            // Who sends it is no part of this agent's own mind, whatever role it gives itself.
            (Key::Message, Means::Message) if top.shape == Shape::Rpc && !is_message && !array => {
                (Shape::Turn, (PartKind::User, true))
            }
            _ if top.shape == Shape::Rpc => (Shape::Merged, user),
            _ => return None,
        };
        Some((shape, kind, settled))
    }

    /// Whether a string here is a name that the protocol defines, or an id.
    fn is_rpc_label(&self) -> bool {
        let Some(top) = self.frames.last().filter(|top| self.rpc.is_some() && !top.array) else { return false };
        let in_message = matches!(top.shape, Shape::Root | Shape::Rpc | Shape::Turn | Shape::Content);
        in_message && top.name.as_ref().is_some_and(|name| rpc::is_label(name.raw()))
    }

    fn key(&mut self, text: Text<'a>) {
        let (key, exact) = Key::read(&text);
        if let Some(top) = self.frames.last_mut() {
            top.key = key;
            top.exact = exact;
            top.name = Some(text);
        }
        if key == Key::Model && self.frames.len() == 1 {
            self.gather.model_field();
        }
        // A key made of words is read by the model like any other text.
        if key == Key::Other && !is_token(text.raw()) && !is_token(&text.decode()) {
            self.text(&text);
        } else if key == Key::Other && text.is_escaped() {
            // Who looks for something in what is kept looks for it as it reads.
            self.gather.withhold(&text);
        }
    }

    fn open(&mut self, array: bool, content_start: usize) {
        let parts_start = self.gather.len();
        let Some(top) = self.frames.last() else {
            let shape = if array { Shape::Turns } else { Shape::Root };
            if array {
                // A list has no top at which a model could be named.
                self.gather.model_field();
            }
            self.frames.push(Frame::new(shape, array, Key::Other, PartKind::User, false, parts_start));
            return;
        };
        let held = if top.array { top.held } else { top.key };
        let (shape, kind, settled) = self.rpc_child(array).unwrap_or_else(|| child(top, array));
        let tokens = array
            && match top.array {
                true => top.tokens,
                false => held.holds_tokens() || (top.shape == Shape::Root && held.may_hold_tokens()),
            };
        if top.key == Key::Headers && self.fields_from.is_none() && self.describes_tool() {
            self.fields_from = Some(self.frames.len());
        }
        let Some(top) = self.frames.last() else { return };
        if top.shape == Shape::Root && top.key == Key::Messages {
            self.messages_seen = self.messages_seen.saturating_add(1);
            self.gather.view.messages_open = (array && top.exact).then_some(content_start);
        }
        // One tool of this dialect declares many functions, and each is a definition of its own.
        let is_function = top.array && top.held == Key::FunctionDeclarations;
        if shape == Shape::Merged && (self.merged.is_none() || is_function) {
            self.merged = Some((self.frames.len(), None));
            self.merged_from = content_start - 1;
        }
        let reasoning = held.is_reasoning() && matches!(top.shape, Shape::Turn | Shape::Content);
        let references_start = self.gather.view.references.len();
        let bare_start = self.gather.view.bare.len();
        let frame = Frame::new(shape, array, held, kind, settled, parts_start);
        self.frames.push(Frame { tokens, reasoning, references_start, bare_start, ..frame });
    }

    fn close(&mut self, end: usize) {
        self.flush_file();
        self.flush_credentials();
        let Some(frame) = self.frames.pop() else { return };
        if self.fields_from == Some(self.frames.len()) {
            self.fields_from = None;
        }
        if self.merged.is_some_and(|(depth, _)| depth >= self.frames.len()) {
            let held = matches!(frame.held, Key::Input | Key::Args | Key::Arguments);
            match self.merged.take() {
                Some((_, Some(_))) => self.gather.value(self.merged_from..end),
                // Arguments without a word are those of a call all the same.
                Some(_) if held && !frame.array && self.may_be_call() => {
                    self.gather.bare_call(self.about());
                    self.gather.value(self.merged_from..end);
                }
                _ => {}
            }
        }
        self.note_bare_call(&frame);
        if frame.reasoning {
            self.gather.reasoned(frame.parts_start);
        }
        let lists_tools = frame.type_ == Stated::One(Some(PartKind::ToolDefinition));
        if let Stated::One(Some(kind)) = frame.type_
            && !lists_tools
        {
            self.gather.settle(frame.parts_start, kind);
        }
        if frame.shape == Shape::Turn && frame.role == Stated::One(PartKind::Assistant) {
            // What a model has made and said comes back with it.
            self.gather.view.references.truncate(frame.references_start);
        }
        if frame.shape == Shape::Turn && !frame.array {
            let kind = match frame.role {
                Stated::One(kind) => kind,
                Stated::Absent | Stated::Conflict => PartKind::User,
            };
            self.gather.settle(frame.parts_start, kind);
            // Only the model makes tool calls: in a user's message they are the user's words, and so they are in a message
            // that names nobody. An item that is a call has a type instead.
            let is_call = frame.role == Stated::Absent && frame.type_ == Stated::One(Some(PartKind::ToolCall));
            if kind == PartKind::User && !is_call {
                self.gather.demote(frame.parts_start, PartKind::ToolCall, PartKind::User);
            }
            // No message defines tools. An item that lists them says so.
            if !(lists_tools && frame.role == Stated::Absent && frame.held == Key::Input) {
                self.gather.demote(frame.parts_start, PartKind::ToolDefinition, PartKind::User);
            }
        }
        if !frame.role_name.is_empty() && frame.role != Stated::Conflict {
            self.gather.spoken_by(frame.parts_start, frame.role_name);
        }
        if !(frame.tool_name.is_empty() && frame.tool_id.is_empty()) {
            self.gather.about_tool(frame.parts_start, frame.tool_name, frame.tool_id);
        }
        if frame.shape == Shape::Turn {
            self.gather.turn_ended();
        }
        if self.frames.len() == 1 && frame.held == Key::Messages && frame.array {
            self.gather.view.messages_empty = frame.index == 0;
        }
        self.value_done();
    }

    /// A call that names its tool and says nothing else was made all the same, whether its arguments are empty, null or not there.
    fn note_bare_call(&mut self, frame: &Frame<'_>) {
        let is_call = match frame.shape {
            Shape::Calls => true,
            Shape::Turn | Shape::Content => frame.type_ == Stated::One(Some(PartKind::ToolCall)),
            _ => false,
        };
        let says_nothing = self.gather.len() == frame.parts_start && self.gather.view.bare.len() == frame.bare_start;
        if is_call && says_nothing && !frame.array && !frame.tool_name.is_empty() {
            let about = self.about();
            self.gather.bare_call(About { kind: PartKind::ToolCall, settled: true, ..about });
        }
    }

    /// Whether arguments here are those of a call: deep in a message, or the parameters of a call by JSON-RPC.
    fn may_be_call(&self) -> bool {
        self.frames.len() > 2 || self.frames.last().is_some_and(|top| top.shape == Shape::Calls)
    }

    fn value_done(&mut self) {
        if let Some(top) = self.frames.last_mut()
            && top.array
        {
            top.index = top.index.saturating_add(1);
        }
    }

    /// Whether what is read now stands directly in the description of a tool, or of a server of tools: there, and not in
    /// the schemas below it, stand the credentials for using it.
    fn describes_tool(&self) -> bool {
        matches!(self.frames.as_slice(), [.., around, top] if around.shape == Shape::Tools && around.array && !top.array)
    }

    /// Whether what is read now names a model that may answer instead of the one that is asked for: a word of `models` or
    /// `fallbacks`, or the `model` of an object there.
    fn lists_model(&self) -> bool {
        let is_list = |key| matches!(key, Key::Models | Key::Fallbacks);
        match self.frames.as_slice() {
            [root] => root.shape == Shape::Root && is_list(root.key),
            [root, list, ..] if root.shape == Shape::Root && is_list(list.held) => {
                self.frames.last().is_some_and(|top| top.array || top.key == Key::Model)
            }
            _ => false,
        }
    }

    /// Whether what is read now names a model beside the one at the top: for a tool, a session, one call of a batch. Words of the
    /// conversation, what clients note for themselves and what lies deeper, as schemas of tools do, name none.
    fn names_other_model(&self) -> bool {
        let Some((root, deeper)) = self.frames.split_first() else { return false };
        let says = |top: &Frame<'_>| if top.array { top.held == Key::Model } else { top.key == Key::Model };
        if root.shape != Shape::Root || !deeper.last().is_some_and(says) {
            return false;
        }
        let is_said = |frame: &Frame<'_>| {
            matches!(frame.shape, Shape::Turns | Shape::Turn | Shape::Content | Shape::Calls | Shape::Files)
        };
        let under = root.name.as_ref().map(|name| name.decode());
        let depth_max = match under.as_deref() {
            Some("metadata" | "client_metadata") => 0,
            Some("session") => 5,
            _ => 3,
        };
        deeper.len() <= depth_max && !deeper.iter().any(is_said)
    }

    /// Whether what is read now stands inside the arguments of a tool call, or in another object of a message that no
    /// shape explains: words of the conversation, whatever their key.
    fn in_arguments(&self) -> bool {
        let Some((top, around)) = self.frames.split_last() else { return false };
        matches!(top.shape, Shape::Merged | Shape::Calls | Shape::Files)
            && around.iter().any(|frame| matches!(frame.shape, Shape::Turn | Shape::Content | Shape::Calls))
    }

    fn number(&mut self, spelled: &str) {
        let Some(top) = self.frames.last() else { return };
        if top.tokens {
            self.gather.view.token_ids += u64::from(integer(spelled).is_some());
        } else if self.frames.len() <= 2
            && top.key.bounds_answer()
            && let Some(tokens) = integer(spelled)
        {
            let view = &mut self.gather.view;
            view.max_tokens = Some(view.max_tokens.map_or(tokens, |known| known.max(tokens)));
        }
        self.value_done();
    }

    fn boolean(&mut self, value: bool) {
        if let Some(top) = self.frames.last()
            && top.shape == Shape::Root
            && top.key == Key::Stream
        {
            if top.exact {
                self.gather.view.stream = Some(value);
            } else {
                self.shadow_stream = Some(value);
            }
        } else if let Some(top) = self.frames.last_mut()
            && top.shape == Shape::Content
            && top.key == Key::Thought
        {
            top.reasoning |= value;
        }
        self.value_done();
    }

    fn string(&mut self, text: Text<'a>) {
        self.label(&text);
        self.session(&text);
        if self.lists_model() || self.names_other_model() {
            self.gather.other_model(model_name(&text.decode()));
        }
        let (in_tool, depth) = (self.describes_tool(), self.frames.len());
        let Some(top) = self.frames.last_mut() else { return self.text(&text) };
        let key = if top.array { top.held } else { top.key };
        let is_conversation = key == Key::Id && top.held == Key::Conversation && depth == 2;
        let naming = if is_conversation { Key::Conversation } else { key };
        if let Some(family) = naming.names_object() {
            let named = text.decode();
            if let Some(id) = naming.object_id(&named) {
                self.gather.reference(family, id.to_owned());
            }
        }
        match key {
            Key::Model if top.shape == Shape::Root => {
                let (exact, name) = (top.exact, text.decode());
                // Of a longer one nobody here keeps all.
                if name.len() > MODEL_BYTES_MAX {
                    self.gather.model_field();
                }
                self.gather.model(model_name(&name), exact);
            }
            Key::Role if top.shape == Shape::Turn => top.role.add(role_kind(&text.decode())),
            Key::Type => {
                let name = text.decode();
                top.type_.add(type_kind(&name, top.shape));
                if in_tool {
                    top.server.add(name == "mcp");
                }
                let may_think = matches!(top.shape, Shape::Turn | Shape::Content) && !top.array;
                top.reasoning |= may_think && matches!(&*name, "thinking" | "reasoning");
            }
            Key::MediaType | Key::MimeType | Key::Format => top.media_type = Some(text),
            Key::PreviousResponseId if top.shape == Shape::Root => {
                self.gather.view.previous_answer = session_id(&text.decode());
            }
            // By its id, or as an object that has one.
            Key::Conversation if top.shape == Shape::Root => {
                self.gather.view.conversation = session_id(&text.decode());
            }
            Key::Id if top.held == Key::Conversation && depth == 2 => {
                self.gather.view.conversation = session_id(&text.decode());
            }
            _ => {}
        }
        if (key.is_structural() || self.is_rpc_label()) && is_token(&text.decode()) {
            if text.is_escaped() {
                self.gather.withhold(&text);
            }
            return self.value_done();
        }
        if self.fields_from.is_some() || (in_tool && key == Key::Headers) {
            self.field(&text);
            return self.value_done();
        }
        let names_credential =
            (key.is_credential() && !self.in_arguments()) || (in_tool && key.is_credential_of_tool());
        if names_credential && is_credential(&text.decode()) {
            self.credential(&text);
            return self.value_done();
        }
        if in_tool && let Some(address) = without_secrets(&text.decode()) {
            self.add(Source::Made(&address, text));
            return self.value_done();
        }
        if key.may_hold_binary() && text.raw().len() >= FILE_CHARS_MIN {
            if self.frames.last().is_some_and(|top| top.array) {
                self.file(&text, None);
            } else {
                self.flush_file();
                if let Some(top) = self.frames.last_mut() {
                    top.file = Some((key, text));
                }
            }
        } else {
            let before = self.gather.len();
            self.text(&text);
            let holder = self.frames.last().map(|top| top.shape);
            if key.is_reasoning() && matches!(holder, Some(Shape::Turn | Shape::Content)) {
                self.gather.reasoned(before);
            }
        }
        self.value_done();
    }

    /// Keeps the session that clients name in a field of the request: what says so beats the key of a cache.
    fn session(&mut self, text: &Text<'_>) {
        let named = match &self.frames[..] {
            [root] if root.key == Key::PromptCacheId && self.gather.view.session_id.is_none() => {
                session_of_cache(&text.decode())
            }
            [root, top] if !top.array && root.key == Key::Other => {
                match (root.name.as_ref().map(Text::raw), top.name.as_ref().map(Text::raw)) {
                    (Some("metadata"), Some("user_id")) => session_of_user(&text.decode()),
                    (Some("metadata" | "client_metadata"), Some("session_id")) => session_id(&text.decode()),
                    _ => None,
                }
            }
            _ => None,
        };
        if named.is_some() {
            self.gather.view.session_id = named;
        }
    }

    /// Keeps the name or the id that a message, a call or a tool goes by.
    fn label(&mut self, text: &Text<'_>) {
        let (depth, merged) = (self.frames.len(), self.merged);
        let Some(top) = self.frames.last_mut().filter(|top| !top.array) else { return };
        let label = match top.key {
            Key::Role if top.shape == Shape::Turn => &mut top.role_name,
            Key::Name => &mut top.tool_name,
            Key::CallId | Key::ToolCallId | Key::ToolUseId => &mut top.tool_id,
            // The item of a call has an id of its own beside that of the call.
            Key::Id if top.tool_id.is_empty() => &mut top.tool_id,
            _ => return,
        };
        // Inside of arguments and schemas these are words like any other. A tool's own name may stand one level deeper.
        let is_names = match top.shape {
            Shape::Turn | Shape::Content | Shape::Calls => true,
            Shape::Merged => top.kind == PartKind::ToolDefinition && merged.is_some_and(|(at, _)| depth <= at + 2),
            Shape::Root | Shape::Turns | Shape::Tools | Shape::Files | Shape::Rpc => false,
        };
        if is_names {
            *label = self.gather.label(&text.decode());
        }
    }

    /// Looks into the string that may be a file, now that its neighbours are known.
    fn flush_file(&mut self) {
        let Some(top) = self.frames.last_mut() else { return };
        let Some((key, text)) = top.file.take() else { return };
        let media_type = top.media_type.map(|text| text.decode());
        let now = (top.key, top.name);
        // The part's place is that of the string, not of the key read last.
        (top.key, top.name) = (key, None);
        self.file(&text, media_type.as_deref());
        if let Some(top) = self.frames.last_mut() {
            (top.key, top.name) = now;
        }
    }

    /// Keeps a value that goes to a server of tools until it is known whether there is such a server.
    fn field(&mut self, text: &Text<'_>) {
        if self.merged.is_none() {
            return self.credential(text);
        }
        self.gather.withhold(text);
        self.fields.push('\n');
        text.decode_into(&mut self.fields);
    }

    /// Takes a credential, which is looked at like any text and not recorded. It must not part the texts around it.
    fn credential(&mut self, text: &Text<'_>) {
        if self.merged.is_some() {
            self.gather.withhold(text);
            self.credentials.push('\n');
            return text.decode_into(&mut self.credentials);
        }
        let (about, frames) = (self.about(), &self.frames);
        self.gather.credential(about, || location(frames), Source::Json(*text));
    }

    /// Adds what was kept apart, where the container that ends is the merged region or describes a tool.
    fn flush_credentials(&mut self) {
        if self.fields.is_empty() && self.credentials.is_empty() {
            return;
        }
        let Some(top) = self.frames.last() else { return };
        let ends = self.merged.is_none_or(|(depth, _)| depth + 1 >= self.frames.len());
        if !ends && !self.describes_tool() {
            return;
        }
        let (mut fields, mut credentials) = (std::mem::take(&mut self.fields), std::mem::take(&mut self.credentials));
        let about = self.about();
        if top.held == Key::McpServers || top.server == Stated::One(true) {
            credentials.push_str(&fields);
            fields.clear();
        }
        // The first character is a line break.
        if !fields.is_empty() {
            self.add(Source::Put(fields.get(1..).unwrap_or_default()));
        }
        if !credentials.is_empty() {
            let frames = match self.merged {
                Some((depth, _)) => self.frames.get(..depth).unwrap_or_default(),
                None => self.frames.as_slice(),
            };
            let source = Source::Put(credentials.get(1..).unwrap_or_default());
            self.gather.credential(about, || location(frames), source);
        }
    }

    fn file(&mut self, text: &Text<'_>, media_type: Option<&str>) {
        match binary::look(&text.decode(), media_type) {
            Found::File(description) => {
                self.gather.note(self.about().message, Source::Described(&description, *text));
                self.gather.pass_by(Unread::BinaryPart);
            }
            Found::Words(words, Some(payload)) => self.add(Source::File(&words, *text, &payload)),
            Found::Words(words, None) => self.add(Source::Made(&words, *text)),
            Found::Garbled(words, unread) => {
                self.gather.pass_by(unread);
                self.text(text);
                self.add(Source::Made(&words, *text));
            }
            Found::Plain => self.text(text),
        }
    }

    fn text(&mut self, text: &Text<'_>) {
        self.add(Source::Json(*text));
    }

    fn add(&mut self, source: Source<'_>) {
        if let Some((_, Some(part))) = self.merged
            && part + 1 == self.gather.len()
        {
            return self.gather.extend(part, source);
        }
        let about = self.about();
        let frames = match self.merged {
            Some((depth, _)) => self.frames.get(..depth).unwrap_or_default(),
            None => self.frames.as_slice(),
        };
        let before = self.gather.len();
        self.gather.part(about, || location(frames), source);
        if self.gather.len() > before
            && let Some((_, part)) = &mut self.merged
        {
            *part = Some(before);
        }
    }

    /// What is known of a string that stands here.
    fn about(&self) -> About {
        let Some(top) = self.frames.last() else { return About::USER };
        let (kind, settled) = leaf(top);
        let message = match self.frames.as_slice() {
            [turns, ..] | [_, turns, ..] if turns.shape == Shape::Turns && turns.array => Some(turns.index),
            [_, turn, ..] if turn.shape == Shape::Turn => Some(0),
            _ => None,
        };
        About { kind, settled, message }
    }
}

impl Frame<'_> {
    fn new(shape: Shape, array: bool, held: Key, kind: PartKind, settled: bool, parts_start: usize) -> Self {
        Self {
            shape,
            array,
            tokens: false,
            index: 0,
            held,
            key: Key::Other,
            exact: false,
            name: None,
            kind,
            settled,
            parts_start,
            bare_start: 0,
            references_start: 0,
            role: Stated::Absent,
            type_: Stated::Absent,
            server: Stated::Absent,
            reasoning: false,
            media_type: None,
            file: None,
            role_name: Label::default(),
            tool_name: Label::default(),
            tool_id: Label::default(),
        }
    }
}

/// Strings under a file's key that are shorter are looked at as text: ids, names, `auto`.
const FILE_CHARS_MIN: usize = 16;

/// What a container is, from the one around it.
fn child(top: &Frame<'_>, array: bool) -> (Shape, PartKind, bool) {
    let inherit = (top.kind, top.settled);
    let with = |shape, (kind, settled)| (shape, kind, settled);
    match (top.shape, top.key) {
        (Shape::Merged, _) => with(Shape::Merged, inherit),
        (Shape::Files, Key::Content | Key::Text | Key::Parts) => with(Shape::Content, inherit),
        (Shape::Files, _) => with(Shape::Files, inherit),
        (Shape::Root, Key::Messages | Key::Contents | Key::Input) => {
            (if array { Shape::Turns } else { Shape::Turn }, PartKind::User, false)
        }
        (Shape::Root, key) if key.is_instruction() => (Shape::Content, PartKind::System, true),
        (Shape::Root, Key::Prompt | Key::Content | Key::Text) => (Shape::Content, PartKind::User, false),
        (Shape::Root, Key::Documents) => (Shape::Content, PartKind::Tool, true),
        (Shape::Root, Key::Tools | Key::Functions | Key::ToolConfig | Key::McpServers) | (Shape::Turn, Key::Tools) => {
            (Shape::Tools, PartKind::ToolDefinition, true)
        }
        (Shape::Turns, _) if !array => (Shape::Turn, PartKind::User, false),
        (Shape::Turns, _) => (Shape::Content, PartKind::User, false),
        (Shape::Content, _) if top.array => with(Shape::Content, inherit),
        (Shape::Turn | Shape::Content, Key::ToolCalls | Key::FunctionCall | Key::ToolUse) => {
            (Shape::Calls, PartKind::ToolCall, true)
        }
        (Shape::Turn | Shape::Content, Key::ToolResult | Key::FunctionResponse) => {
            (Shape::Content, PartKind::Tool, true)
        }
        (Shape::Turn | Shape::Content, Key::Content | Key::Parts | Key::Text | Key::Output) => {
            with(Shape::Content, inherit)
        }
        (Shape::Root | Shape::Turn | Shape::Content, key) if key.may_hold_binary() || key.wraps_file() => {
            with(Shape::Files, inherit)
        }
        (Shape::Calls, Key::Args | Key::Arguments | Key::Input) => with(Shape::Merged, inherit),
        (Shape::Calls, _) => with(Shape::Calls, inherit),
        (Shape::Tools, Key::Tools) if array => with(Shape::Tools, inherit),
        _ => with(Shape::Merged, inherit),
    }
}

/// Kind of a string that stands directly in `top`.
fn leaf(top: &Frame<'_>) -> (PartKind, bool) {
    match (top.shape, top.key) {
        (Shape::Root, key) if key.is_instruction() => (PartKind::System, true),
        (Shape::Root, _) => (PartKind::User, true),
        _ => (top.kind, top.settled),
    }
}

fn role_kind(role: &str) -> PartKind {
    let is = |names: &[&str]| names.iter().any(|name| role.eq_ignore_ascii_case(name));
    match () {
        () if is(&["system", "developer"]) => PartKind::System,
        () if is(&["assistant", "model", "ai", "chatbot", "agent", "ROLE_AGENT"]) => PartKind::Assistant,
        () if is(&["tool", "function", "ipython"]) => PartKind::Tool,
        () => PartKind::User,
    }
}

fn type_kind(name: &str, shape: Shape) -> Option<PartKind> {
    match name {
        "mcp_list_tools" | "tool_search_output" if shape == Shape::Turn => Some(PartKind::ToolDefinition),
        "tool_use" | "server_tool_use" | "mcp_tool_use" => Some(PartKind::ToolCall),
        "document" | "search_result" => Some(PartKind::Tool),
        _ if name.ends_with("tool_result") || name.ends_with("call_output") => Some(PartKind::Tool),
        _ if name.ends_with("_call") => Some(PartKind::ToolCall),
        _ => None,
    }
}

fn location(frames: &[Frame<'_>]) -> Location {
    let mut at = Location::root("request");
    for frame in frames {
        match (frame.array, frame.key.as_str(), &frame.name) {
            (true, ..) => at.push(Segment::Index(frame.index)),
            (false, Some(key), _) => at.push(Segment::Key(key)),
            (false, None, Some(name)) => at.push(Segment::name(&name.decode())),
            (false, None, None) => {}
        }
    }
    at
}
