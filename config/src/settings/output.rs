//! What is looked at in answers, and what may stop them: `output_safety.*` and `streaming_analysis.*`.

/// `output_safety.*`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OutputSafety {
    /// `output_safety.enabled`: answers are compared with the system prompt, and may be withheld.
    pub enabled: bool,
    /// `output_safety.block_on_critical`: an answer with a Critical finding is withheld.
    pub block_on_critical: bool,
}

/// The default of `output_safety.hallucination_threshold`.
pub const HALLUCINATION_THRESHOLD: f64 = 0.5;

/// `output_safety.hallucination_*`.
#[derive(Debug, Clone, PartialEq)]
pub struct Hallucination {
    /// `hallucination_enabled`: in force while `output_safety.enabled` is true.
    pub enabled: bool,
    /// `hallucination_model`: a folder or an id.
    pub model: Option<String>,
    /// `hallucination_threshold`, 0.0 to 1.0, where somebody wrote it: sentences with less support are flagged.
    pub threshold: Option<f64>,
    /// `hallucination_min_response_length`, in characters: shorter answers are left alone.
    pub min_response_length: usize,
}

impl Default for Hallucination {
    fn default() -> Self {
        Self { enabled: false, model: None, threshold: None, min_response_length: 50 }
    }
}

/// `streaming_analysis.*`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StreamingAnalysis {
    /// `streaming_analysis.enabled`: streams are looked at while they last.
    pub enabled: bool,
    /// `streaming_analysis.token_interval`: tokens from one look to the next.
    pub token_interval: u32,
    /// `streaming_analysis.output_enabled`: what is found may lead to something.
    pub output_enabled: bool,
    /// `streaming_analysis.early_stop_on_critical`: a Critical finding ends the stream.
    pub early_stop_on_critical: bool,
    /// `streaming_analysis.hold_back` (ours): what has not been looked at waits.
    pub hold_back: bool,
}

impl Default for StreamingAnalysis {
    fn default() -> Self {
        Self {
            enabled: false,
            token_interval: 50,
            output_enabled: false,
            early_stop_on_critical: false,
            hold_back: false,
        }
    }
}

impl StreamingAnalysis {
    /// Whether a finding may end a stream, as far as these settings are concerned.
    pub const fn may_stop(&self) -> bool {
        self.enabled && self.output_enabled && self.early_stop_on_critical
    }
}
