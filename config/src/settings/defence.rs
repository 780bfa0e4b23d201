//! What fences in the words of strangers: where data stands in messages, and how it is marked before it is forwarded.

/// `security_analysis.zone_detection.*`: which pieces of a message are data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ZoneDetection {
    /// `enabled`: data zones are scanned as the words of strangers.
    pub enabled: bool,
    /// `mode`: who says what is data.
    pub mode: ZoneMode,
    /// `scan_instruction_zones`: models look at the rest of a message too.
    pub scan_instruction_zones: bool,
}

/// `security_analysis.zone_detection.mode` values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ZoneMode {
    /// The form of the text: fences, quotes, mails, markup, JSON, tables, retrieved passages.
    Heuristic,
    /// Markers in the text and the header `X-Service-Data-Boundary`.
    Operator,
    /// Both; the operator's word counts where they overlap.
    Both,
}

impl ZoneMode {
    /// Whether the form of the text is looked at.
    pub const fn is_heuristic(self) -> bool {
        matches!(self, Self::Heuristic | Self::Both)
    }

    /// Whether the operator is asked.
    pub const fn is_operator(self) -> bool {
        matches!(self, Self::Operator | Self::Both)
    }
}

/// `boundary_defense.*`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BoundaryDefense {
    /// `enabled`: contents of `wrap_roles` are wrapped before they are forwarded.
    pub enabled: bool,
    /// `shadow_mode`: computed and counted, and forwarded as it came.
    pub shadow_mode: bool,
    /// `wrap_roles`, at least one while enabled.
    pub wrap_roles: Vec<String>,
    /// `delimiter`: the name of the tag.
    pub delimiter: String,
    /// `randomize_nonce`: the tag ends in eight hexadecimal digits of the request's own.
    pub randomize_nonce: bool,
    /// `inject_system_reminder`: the system prompt says what the tag means.
    pub inject_system_reminder: bool,
    /// `system_reminder_text`; empty means the built-in text.
    pub system_reminder_text: String,
    /// `datamarking.*`.
    pub datamarking: Datamarking,
}

/// `boundary_defense.datamarking.*`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Datamarking {
    /// `enabled`: white space in data zones is replaced by a marker, while the defence is enabled.
    pub enabled: bool,
    /// `shadow_mode`: computed and counted, and forwarded as it came.
    pub shadow_mode: bool,
    /// `marker_strategy.kind`.
    pub kind: MarkerKind,
    /// `marker_strategy.value`; there where `kind` is fixed.
    pub value: Option<char>,
}

/// `boundary_defense.datamarking.marker_strategy.kind` values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MarkerKind {
    /// Another one for each request.
    Randomized,
    /// Always the same.
    Fixed,
}

/// The code points a marker may be, those of Unicode's private use area.
pub const MARKERS: std::ops::RangeInclusive<char> = '\u{e000}'..='\u{f8ff}';

impl Default for ZoneDetection {
    fn default() -> Self {
        Self { enabled: false, mode: ZoneMode::Both, scan_instruction_zones: false }
    }
}

impl Default for BoundaryDefense {
    fn default() -> Self {
        Self {
            enabled: false,
            shadow_mode: false,
            wrap_roles: vec!["tool".to_owned()],
            delimiter: "service-boundary".to_owned(),
            randomize_nonce: false,
            inject_system_reminder: true,
            system_reminder_text: String::new(),
            datamarking: Datamarking { enabled: false, shadow_mode: true, kind: MarkerKind::Randomized, value: None },
        }
    }
}
