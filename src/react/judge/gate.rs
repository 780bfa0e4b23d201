//! The promotion gate: whether a verdict may override the decision that stood before it.
//!
//! A judge is weak alone: what it calls a threat counts where it is sure, where the threat is bad, and where somebody else
//! has found something too. Invariant: the gate only ever raises; a verdict that does not pass changes nothing. It never
//! overrides `enforcement.mode: log`, which is the caller's to know.

use weir_config::vocab::{Finding, Severity};

use super::verdict::{Recommended, Verdict};

/// `judge.promotion.*`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Gate {
    /// `min_confidence`.
    pub min_confidence: f64,
    /// `min_security_score`.
    pub min_security_score: u8,
    /// `require_ensemble_support`: somebody else has found something of severity Medium or worse.
    pub require_ensemble_support: bool,
    /// `shadow`: nothing is promoted, what would be is counted.
    pub shadow: bool,
}

/// Why a verdict is held back: the label `reason`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Held {
    /// It calls for no block.
    NotThreatOrBlock,
    /// The judge is not sure enough.
    BelowConfidence,
    /// The threat is not bad enough.
    BelowScore,
    /// Nobody else has found anything.
    NoEnsembleSupport,
}

/// What becomes of a verdict.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Passage {
    /// It may block.
    Promoted,
    /// It would, outside shadow mode.
    Shadow,
    /// It may not.
    Held(Held),
}

/// How a verdict and the decision before it agree: the label `agreement`, the judge's view last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Agreement {
    /// Both block.
    AgreeBlock,
    /// Neither does.
    AgreeAllow,
    /// The judge alone.
    DisagreeBlock,
    /// All but the judge.
    DisagreeAllow,
}

impl Held {
    /// As the label has it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NotThreatOrBlock => "not_threat_or_block",
            Self::BelowConfidence => "below_confidence",
            Self::BelowScore => "below_score",
            Self::NoEnsembleSupport => "no_ensemble_support",
        }
    }
}

impl Agreement {
    /// How `verdict` goes with a decision that was to block or not.
    pub const fn of(verdict: &Verdict, blocked: bool) -> Self {
        match (matches!(verdict.recommended_action, Recommended::Block), blocked) {
            (true, true) => Self::AgreeBlock,
            (false, false) => Self::AgreeAllow,
            (true, false) => Self::DisagreeBlock,
            (false, true) => Self::DisagreeAllow,
        }
    }

    /// As the label has it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::AgreeBlock => "agree_block",
            Self::AgreeAllow => "agree_allow",
            Self::DisagreeBlock => "disagree_block",
            Self::DisagreeAllow => "disagree_allow",
        }
    }
}

impl Default for Gate {
    fn default() -> Self {
        Self { min_confidence: 0.7, min_security_score: 60, require_ensemble_support: true, shadow: false }
    }
}

impl Gate {
    /// What becomes of `verdict` about a call in which `prior` had been found.
    pub fn pass(&self, verdict: &Verdict, prior: &[Finding]) -> Passage {
        let supports = |finding: &Finding| finding.severity >= Severity::Medium && finding.detector != "judge";
        if !verdict.is_threat || verdict.recommended_action != Recommended::Block {
            Passage::Held(Held::NotThreatOrBlock)
        } else if verdict.confidence < self.min_confidence {
            Passage::Held(Held::BelowConfidence)
        } else if verdict.security_score < self.min_security_score {
            Passage::Held(Held::BelowScore)
        } else if self.require_ensemble_support && !prior.iter().any(supports) {
            Passage::Held(Held::NoEnsembleSupport)
        } else if self.shadow {
            Passage::Shadow
        } else {
            Passage::Promoted
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::verdict::Category;
    use super::*;

    fn verdict(recommended_action: Recommended, confidence: f64, security_score: u8) -> Verdict {
        let is_threat = recommended_action != Recommended::Allow;
        let category = if is_threat { Category::Jailbreak } else { Category::Benign };
        Verdict { is_threat, category, confidence, security_score, recommended_action, reasoning: String::new() }
    }

    fn found(severity: Severity, detector: &'static str) -> Vec<Finding> {
        vec![Finding::new("jailbreak", severity, 0.9, detector, "x")]
    }

    #[test]
    fn a_verdict_is_held_for_the_first_reason_there_is() {
        use Recommended::{Allow, Block, Flag};
        let (gate, medium) = (Gate::default(), found(Severity::Medium, "rules"));
        for (verdict, prior, expected) in [
            (verdict(Block, 0.7, 60), &medium, Passage::Promoted),
            (verdict(Block, 0.7, 60), &found(Severity::Low, "rules"), Passage::Held(Held::NoEnsembleSupport)),
            (verdict(Block, 0.7, 60), &found(Severity::High, "judge"), Passage::Held(Held::NoEnsembleSupport)),
            (verdict(Block, 0.7, 60), &Vec::new(), Passage::Held(Held::NoEnsembleSupport)),
            (verdict(Block, 0.7, 59), &Vec::new(), Passage::Held(Held::BelowScore)),
            (verdict(Block, 0.69, 59), &medium, Passage::Held(Held::BelowConfidence)),
            (verdict(Flag, 0.9, 90), &medium, Passage::Held(Held::NotThreatOrBlock)),
            (verdict(Allow, 0.9, 90), &medium, Passage::Held(Held::NotThreatOrBlock)),
            (Verdict { is_threat: false, ..verdict(Block, 0.9, 90) }, &medium, Passage::Held(Held::NotThreatOrBlock)),
        ] {
            assert_eq!(gate.pass(&verdict, prior), expected, "{verdict:?} {prior:?}");
        }
        let shadow = Gate { shadow: true, ..gate };
        assert_eq!(shadow.pass(&verdict(Block, 0.9, 90), &medium), Passage::Shadow);
        assert_eq!(shadow.pass(&verdict(Flag, 0.9, 90), &medium), Passage::Held(Held::NotThreatOrBlock));
        let alone = Gate { require_ensemble_support: false, ..gate };
        assert_eq!(alone.pass(&verdict(Block, 0.9, 90), &[]), Passage::Promoted);
    }

    #[test]
    fn the_judge_s_view_is_named_last() {
        let said = |action, blocked| Agreement::of(&verdict(action, 0.9, 90), blocked).as_str();
        assert_eq!(
            (said(Recommended::Block, true), said(Recommended::Block, false)),
            ("agree_block", "disagree_block")
        );
        assert_eq!((said(Recommended::Flag, false), said(Recommended::Allow, true)), ("agree_allow", "disagree_allow"));
    }
}
