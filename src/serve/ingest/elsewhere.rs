//! Words of a reported span that stand in other attributes than those its messages were taken from: a sender may say the same in
//! several conventions, and in one of them more. They are no part of the conversation, and are inspected like it.

use weir_config::vocab::Finding;
use weir_inference::{Part, PartKind};

use super::span::{ReportedMessage, ReportedPart};
use crate::settle::inspection::{Parts, Place, Subject};

/// The texts.
pub(super) struct Elsewhere<'a>(Vec<(&'a str, Part<'a>)>);

impl<'a> Elsewhere<'a> {
    pub(super) fn of(said: &'a [(String, ReportedMessage)]) -> Self {
        let texts = said.iter().flat_map(|(name, message)| {
            message.parts.iter().map(move |part| (name.as_str(), text(&message.role, part)))
        });
        Self(texts.collect())
    }
}

fn text<'a>(role: &str, part: &'a ReportedPart) -> Part<'a> {
    let (text, kind) = match part {
        ReportedPart::ToolCall { arguments, .. } => (arguments, PartKind::ToolCall),
        ReportedPart::ToolResult { content, .. } => (content, PartKind::Tool),
        ReportedPart::ToolDefinition { text, .. } => (text, PartKind::ToolDefinition),
        ReportedPart::Text(text) | ReportedPart::Reasoning(text) | ReportedPart::Refusal(text) => {
            let kind = match role {
                "system" | "developer" => PartKind::System,
                "assistant" | "model" => PartKind::Output,
                "tool" | "function" => PartKind::Tool,
                _ => PartKind::User,
            };
            (text, kind)
        }
    };
    Part { text, kind }
}

impl Subject for Elsewhere<'_> {
    fn parts(&self) -> Parts<'_> {
        self.0.iter().map(|(_, part)| *part).collect()
    }

    /// They are no parts of the record.
    fn place(&self, part: usize) -> Place {
        let name = self.0.get(part).map_or("", |(name, _)| *name);
        Place::new(format!("attributes.{name}"), None, false)
    }
}

/// Leaves out what was found already: in the messages, which say the same in another spelling, and credentials, which are looked for
/// in all attributes.
pub(super) fn retain_new(findings: &mut Vec<Finding>, known: &[Finding]) {
    findings.retain_mut(|found| {
        // Of a part that the record does not have.
        found.span = None;
        let is_same =
            |other: &Finding| (&other.finding_type, &other.evidence) == (&found.finding_type, &found.evidence);
        found.finding_type != "secret_leakage" && !known.iter().any(is_same)
    });
}
