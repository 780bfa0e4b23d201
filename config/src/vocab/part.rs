//! The parts of a call's texts: whose words they are, what they are for, and where they stand.

use std::borrow::Cow;
use std::ops::Range;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The role a text plays in an exchange. It decides which rules apply and how bad a match is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
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
    /// One bit per kind, for sets of kinds.
    pub const fn bit(self) -> u8 {
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

/// What kind of content a part is, beside whose words it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum PartForm {
    /// Words, JSON of a tool call, the output of a tool.
    #[default]
    Text,
    /// What the model thought before it answered.
    Reasoning,
    /// The model's refusal, where the provider tells it from an answer.
    Refusal,
    /// The content of a file.
    File,
    /// A credential for the provider or for a server of tools: its text is not kept.
    Credential,
}

/// Which body a part belongs to; its text stands in the span's `prompt` or in its `response`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum PartSide {
    /// The request.
    Request,
    /// The answer.
    Response,
}

/// The tool a part is about, as far as the body names it where the part stands.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct PartTool {
    /// Name of the tool.
    pub name: Option<String>,
    /// The provider's id of the call.
    pub id: Option<String>,
}

/// One part of a call as a finished span carries it. It points into the span's texts and holds none itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PartRecord {
    /// Which body it belongs to.
    pub side: PartSide,
    /// The role its text plays.
    pub kind: PartKind,
    /// What kind of content it is.
    pub form: PartForm,
    /// The role as the body spells it.
    pub role: Option<Cow<'static, str>>,
    /// Position of its message in the conversation, from 0; of its choice in an answer.
    pub message: Option<u32>,
    /// Its text: byte range in the span's `prompt` or `response`. `None` when the text is not kept.
    pub text: Option<Range<u32>>,
    /// Byte range in the body after its content coding is undone, from the first byte of its text to the last. `None`
    /// when it was put together from several places or is no part of a JSON body.
    pub raw: Option<Range<u32>>,
    /// The tool it is about.
    pub tool: Option<Box<PartTool>>,
}
