//! Texts that stand in attributes under several names: which of them holds, and what becomes of the others.

use std::collections::HashSet;

use serde_json::Value;

use super::names::EMBEDDINGS;
use super::{Attributes, fields, indexed};
use crate::ingest::span::{ReportedMessage, ReportedPart};

/// Takes texts out of attributes.
pub(super) struct Words<'a> {
    attributes: &'a mut Attributes,
    /// What did not hold.
    others: Attributes,
    /// Words of that which stand nowhere else.
    elsewhere: Vec<(String, ReportedMessage)>,
}

impl<'a> Words<'a> {
    pub(super) fn of(attributes: &'a mut Attributes) -> Self {
        Self { attributes, others: Attributes::new(), elsewhere: Vec::new() }
    }

    /// What is said under the first name of these tables that says something. What the others say stays an attribute.
    pub(super) fn first(
        &mut self,
        tables: &[&[&str]],
        read: impl Fn(Value) -> Vec<ReportedMessage>,
    ) -> Vec<ReportedMessage> {
        let mut said = Vec::new();
        for name in tables.iter().copied().flatten() {
            let Some(value) = self.take(name) else { continue };
            let more = read(value.clone());
            if said.is_empty() && !more.is_empty() {
                said = more;
                continue;
            }
            // A list that is spelled in names stays as one value.
            let name = name.trim_end_matches('.');
            self.elsewhere.extend(unsaid(&said, more).into_iter().map(|message| (name.to_owned(), message)));
            self.others.push((name.to_owned(), value));
        }
        said
    }

    fn take(&mut self, name: &str) -> Option<Value> {
        match name {
            EMBEDDINGS => indexed::leaves(self.attributes, name, ".embedding.text"),
            name if name.ends_with('.') => indexed::gather(self.attributes, name),
            name => fields::take(self.attributes, name),
        }
    }

    /// A text under the first of these names, which stays.
    pub(super) fn peek(&self, names: &[&str]) -> Option<String> {
        let text = |wanted: &&str| {
            let (_, value) = self.attributes.iter().find(|(name, _)| name == wanted)?;
            value.as_str().filter(|text| !text.is_empty())
        };
        names.iter().find_map(text).map(str::to_owned)
    }

    /// Leaves what did not hold behind the other attributes, so that it takes no room from them; gives what it says that stands
    /// nowhere else.
    pub(super) fn leave(mut self) -> Vec<(String, ReportedMessage)> {
        self.attributes.append(&mut self.others);
        self.elsewhere
    }
}

/// Messages without what others say.
fn unsaid(said: &[ReportedMessage], more: Vec<ReportedMessage>) -> Vec<ReportedMessage> {
    let known: HashSet<&ReportedPart> = said.iter().flat_map(|message| &message.parts).collect();
    let without = |mut message: ReportedMessage| {
        message.parts.retain(|part| !known.contains(part));
        Some(message).filter(|message| !message.parts.is_empty())
    };
    more.into_iter().filter_map(without).collect()
}

/// A message of these parts, where there are any.
pub(super) fn of_role(role: &str, parts: Vec<ReportedPart>) -> Vec<ReportedMessage> {
    if parts.is_empty() { Vec::new() } else { vec![ReportedMessage { role: role.to_owned(), parts }] }
}
