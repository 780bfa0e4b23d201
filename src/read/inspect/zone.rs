//! A stretch of a request's text that is data, and what makes it that.

use std::ops::Range;

/// What makes a stretch of text data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ZoneKind {
    /// A fenced block, or text between triple quotes.
    Fence,
    /// Quoted lines.
    Quote,
    /// A mail with its header.
    Mail,
    /// HTML.
    Markup,
    /// JSON.
    Json,
    /// A table.
    Table,
    /// A retrieved passage: its tag or its heading says so.
    Passage,
    /// The operator says so.
    Marked,
}

impl ZoneKind {
    /// As findings name it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Fence => "fence",
            Self::Quote => "quote",
            Self::Mail => "mail",
            Self::Markup => "html",
            Self::Json => "json",
            Self::Table => "table",
            Self::Passage => "passage",
            Self::Marked => "operator",
        }
    }
}

/// One stretch of data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Zone {
    /// Index into [`RequestView::parts`].
    pub part: usize,
    /// Where it stands in [`RequestView::text`].
    pub range: Range<usize>,
    /// Why it is data.
    pub kind: ZoneKind,
}

/// The data in one request.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Zones {
    /// In the order of the text.
    pub list: Vec<Zone>,
    /// Where the operator's markers stand in [`RequestView::text`]: they are not for the model. Empty once they are taken out.
    pub markers: Vec<Range<usize>>,
    /// Bytes of the body that spelled the markers which are taken out; the text is without them.
    pub cuts: Vec<Range<usize>>,
    /// Entries of the header that name no stretch of this request.
    pub bad_entries: usize,
    /// Whether detectors look at each zone by itself.
    pub scanned: bool,
}
