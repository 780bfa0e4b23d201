//! Why part of an exchange was passed on without having been read: one set of words for the record's tags, the header
//! `X-Service-Analysis` and the metric's label.

use std::fmt;

/// What kept a part of a request or of an answer from being read, ordered from the usual to the suspicious.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Unread {
    /// An image, a sound or another binary file inside JSON.
    BinaryPart,
    /// A binary file in a form.
    FilePart,
    /// The content type, or the format of the stream, is none that is read.
    MediaType,
    /// A prompt of token numbers, which only the model's own vocabulary could turn into text.
    TokenIds,
    /// What passes through a tunnel is not looked at.
    WebSocket,
    /// The rules have read all of it, and models only its beginning: it is longer than they are given.
    TruncatedForModels,
    /// It is longer than a bound on what is kept or decoded, or looked at.
    Truncated,
    /// It could not be decoded, or is not what it claims to be. What could be had of its bytes was looked at.
    UnreadableBody,
}

impl Unread {
    /// All of them, in order.
    pub const ALL: [Self; 8] = [
        Self::BinaryPart,
        Self::FilePart,
        Self::MediaType,
        Self::TokenIds,
        Self::WebSocket,
        Self::TruncatedForModels,
        Self::Truncated,
        Self::UnreadableBody,
    ];

    /// The word in tags, header and label.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::BinaryPart => "binary_part",
            Self::FilePart => "file_part",
            Self::MediaType => "media_type",
            Self::TokenIds => "token_ids",
            Self::WebSocket => "websocket",
            Self::TruncatedForModels => "truncated_for_models",
            Self::Truncated => "truncated",
            Self::UnreadableBody => "unreadable_body",
        }
    }

    /// The value of `X-Service-Analysis`.
    pub const fn header(self) -> &'static str {
        match self {
            Self::BinaryPart => "skipped;reason=binary_part",
            Self::FilePart => "skipped;reason=file_part",
            Self::MediaType => "skipped;reason=media_type",
            Self::TokenIds => "skipped;reason=token_ids",
            Self::WebSocket => "skipped;reason=websocket",
            Self::TruncatedForModels => "skipped;reason=truncated_for_models",
            Self::Truncated => "skipped;reason=truncated",
            Self::UnreadableBody => "skipped;reason=unreadable_body",
        }
    }

    const fn bit(self) -> u8 {
        1 << self as u8
    }
}

/// Everything that kept one request, or one answer, from being read whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct UnreadSet(u8);

impl UnreadSet {
    /// Adds one.
    pub const fn insert(&mut self, reason: Unread) {
        self.0 |= reason.bit();
    }

    /// Adds all of `other`.
    pub const fn join(&mut self, other: Self) {
        self.0 |= other.0;
    }

    /// Whether `reason` is one of them.
    pub const fn contains(self, reason: Unread) -> bool {
        self.0 & reason.bit() != 0
    }

    /// Whether all of it was read.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Each of them, in order.
    pub fn iter(self) -> impl Iterator<Item = Unread> {
        Unread::ALL.into_iter().filter(move |reason| self.contains(*reason))
    }

    /// The one that speaks for all where there is room for one only.
    pub fn worst(self) -> Option<Unread> {
        self.iter().last()
    }
}

impl fmt::Display for UnreadSet {
    /// The words, parted by commas.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, reason) in self.iter().enumerate() {
            if at > 0 {
                f.write_str(",")?;
            }
            f.write_str(reason.as_str())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_names_each_reason_once_and_the_worst_last() {
        let mut set = UnreadSet::default();
        assert!(set.is_empty());
        assert_eq!((set.worst(), set.to_string()), (None, String::new()));
        for reason in [Unread::UnreadableBody, Unread::BinaryPart, Unread::UnreadableBody] {
            set.insert(reason);
        }
        assert_eq!(set.to_string(), "binary_part,unreadable_body");
        assert_eq!(set.worst(), Some(Unread::UnreadableBody));
        assert!(!set.contains(Unread::MediaType));
    }

    #[test]
    fn header_and_word_agree() {
        for reason in Unread::ALL {
            assert_eq!(reason.header(), format!("skipped;reason={}", reason.as_str()));
        }
    }
}
