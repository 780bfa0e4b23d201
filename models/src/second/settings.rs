//! What belongs to the weights of the second stage: which texts are put to it, and what its logits mean (`model/second.json`).

use serde::Deserialize;
use weir_inference::{OperatingPoint, Tuning};

/// The only form of files there is.
const VERSION: u32 = 1;
/// Largest logit, slope or offset, either way.
const LARGEST: f64 = 100.0;
/// Most that may be taken off for each e-fold of windows.
const LONG_MAX: f64 = 4.0;
/// Most windows of a text that may be looked at.
const WINDOWS_MAX: usize = 64;

/// A file.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Settings {
    version: u32,
    /// Tells the weights from others, for people.
    pub(crate) model: String,
    /// SHA-256 of the weights that it was fitted for, in hex.
    pub(crate) weights: String,
    /// Most windows of a text that are looked at.
    pub(crate) windows: usize,
    /// From this probability on no other window is looked at.
    pub(crate) sure: f64,
    /// What is taken off the worst logit, times the natural logarithm of how many windows there are: the worst of many harmless windows
    /// looks worse than one.
    long: f64,
    /// By operating point, from which probability on something is a finding, flags and blocks.
    points: Points,
    /// For what somebody asks.
    user: Role,
    /// For data.
    data: Role,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Points {
    high_precision: Levels,
    balanced: Levels,
    high_recall: Levels,
}

/// Probabilities, ascending.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Levels {
    /// Low.
    pub(crate) finding: f64,
    /// Medium.
    pub(crate) flag: f64,
    /// High.
    pub(crate) block: f64,
}

/// What differs between what somebody asks and data.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Role {
    /// The logit of the words from which on a text is looked at.
    pub(crate) gate: f64,
    /// The same when all of the time is spent: between half of it and none the gate rises to this. And windows of a long text that are
    /// left out are missed only if the words say this of them.
    pub(crate) scarce: f64,
    /// The gate for short texts that speak to their reader.
    pub(crate) addressed: f64,
    slope: f64,
    offset: f64,
}

// === impl Settings ===

impl Settings {
    /// Reads a file.
    ///
    /// # Errors
    /// What does not fit, with the field and what would.
    pub(crate) fn read(text: &str) -> Result<Self, String> {
        let settings: Self = serde_json::from_str(text).map_err(|error| format!("second.json: {error}"))?;
        settings.check().map_err(|what| format!("second.json: {what}"))?;
        Ok(settings)
    }

    fn check(&self) -> Result<(), String> {
        if self.version != VERSION {
            return Err(format!("`version`: got {}; accepted: {VERSION}", self.version));
        }
        let is_hex = |digit: u8| digit.is_ascii_digit() || (b'a'..=b'f').contains(&digit);
        if self.weights.len() != 64 || !self.weights.bytes().all(is_hex) {
            return Err(format!("`weights`: got `{}`; accepted: a SHA-256 in lower-case hex", self.weights));
        }
        if !(1..=WINDOWS_MAX).contains(&self.windows) {
            return Err(format!("`windows`: got {}; accepted: 1 to {WINDOWS_MAX}", self.windows));
        }
        if !(0.0..=1.0).contains(&self.sure) {
            return Err(format!("`sure`: got {}; accepted: 0 to 1", self.sure));
        }
        if !(0.0..=LONG_MAX).contains(&self.long) {
            return Err(format!("`long`: got {}; accepted: 0 to {LONG_MAX}", self.long));
        }
        let Points { high_precision, balanced, high_recall } = &self.points;
        for (name, Levels { finding, flag, block }) in
            [("high_precision", high_precision), ("balanced", balanced), ("high_recall", high_recall)]
        {
            if !(*finding > 0.0 && finding <= flag && flag <= block && *block <= 1.0) {
                return Err(format!(
                    "`points.{name}`: got finding {finding}, flag {flag}, block {block}; accepted: above 0 to 1, ascending"
                ));
            }
        }
        for (name, Role { gate, scarce, addressed, slope, offset }) in [("user", &self.user), ("data", &self.data)] {
            let numbers =
                [("gate", gate), ("scarce", scarce), ("addressed", addressed), ("slope", slope), ("offset", offset)];
            if let Some((field, value)) = numbers.into_iter().find(|(_, value)| value.abs() > LARGEST) {
                return Err(format!("`{name}.{field}`: got {value}; accepted: -{LARGEST} to {LARGEST}"));
            }
            if *slope <= 0.0 {
                return Err(format!("`{name}.slope`: got {slope}; accepted: more than 0"));
            }
            if scarce < gate {
                return Err(format!("`{name}.scarce`: got {scarce}; accepted: {gate} (`{name}.gate`) or more"));
            }
        }
        Ok(())
    }

    /// The logit of a text of so many windows, of which the worst has this one.
    pub(crate) fn of_text(&self, worst: f32, windows: usize) -> f32 {
        worst - (self.long * (windows.max(1) as f64).ln()) as f32
    }

    pub(crate) const fn role(&self, is_data: bool) -> &Role {
        if is_data { &self.data } else { &self.user }
    }

    /// From which probability on something is a finding, flags and blocks.
    pub(crate) fn levels(&self, tuning: &Tuning) -> Levels {
        let own = match tuning.point {
            OperatingPoint::HighPrecision => self.points.high_precision,
            OperatingPoint::Balanced => self.points.balanced,
            OperatingPoint::HighRecall => self.points.high_recall,
        };
        let finding = tuning.threshold.or(tuning.levels.finding).unwrap_or(own.finding);
        Levels {
            finding,
            flag: tuning.levels.flag.unwrap_or(own.flag),
            block: tuning.levels.block.unwrap_or(own.block),
        }
    }
}

// === impl Role ===

impl Role {
    /// The gate while so much of the time is left, 0.0 to 1.0.
    pub(crate) fn gate_at(&self, left: f64) -> f64 {
        let spent = (1.0 - 2.0 * left).clamp(0.0, 1.0);
        self.gate + (self.scarce - self.gate) * spent
    }

    /// How probable an attack is at this logit.
    pub(crate) fn probability(&self, logit: f32) -> f64 {
        1.0 / (1.0 + (-(self.slope * f64::from(logit) + self.offset)).exp())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = include_str!("../../model/second.json");

    fn with(field: &str, value: serde_json::Value) -> Result<Settings, String> {
        let mut json: serde_json::Value = serde_json::from_str(GOOD).unwrap();
        *json.pointer_mut(field).unwrap() = value;
        Settings::read(&json.to_string())
    }

    #[test]
    fn what_does_not_fit_is_refused_by_name() {
        assert!(Settings::read(GOOD).is_ok());
        let refused = [
            ("/version", 2.into(), "`version`: got 2"),
            ("/weights", "ABC".into(), "`weights`"),
            ("/windows", 0.into(), "`windows`: got 0"),
            ("/windows", 65.into(), "`windows`: got 65"),
            ("/sure", 1.5.into(), "`sure`: got 1.5"),
            ("/long", (-0.1).into(), "`long`: got -0.1"),
            ("/points/balanced/flag", 0.0.into(), "`points.balanced`"),
            ("/points/high_recall/block", 1.1.into(), "`points.high_recall`"),
            ("/user/gate", 101.into(), "`user.gate`: got 101"),
            ("/data/slope", 0.into(), "`data.slope`: got 0"),
            ("/data/offset", (-1e9).into(), "`data.offset`"),
            ("/user/scarce", (-9).into(), "`user.scarce`: got -9"),
            ("/data/addressed", serde_json::Value::Null, "null"),
        ];
        for (field, value, says) in refused {
            let error = with(field, value).unwrap_err();
            assert!(error.starts_with("second.json: ") && error.contains(says), "{field}: {error}");
        }
        assert!(Settings::read(&GOOD.replacen("\"sure\"", "\"Sure\"", 1)).unwrap_err().contains("Sure"));
    }

    #[test]
    fn what_an_operator_sets_wins_over_the_operating_point() {
        let settings = Settings::read(GOOD).unwrap();
        let at = |point| settings.levels(&Tuning { point, ..Tuning::default() });
        assert!(at(OperatingPoint::HighRecall).finding <= at(OperatingPoint::Balanced).finding);
        assert!(at(OperatingPoint::Balanced).block <= at(OperatingPoint::HighPrecision).block);
        let levels = weir_inference::Levels { finding: None, flag: Some(0.2), block: Some(0.3) };
        let set = settings.levels(&Tuning { threshold: Some(0.1), levels, ..Tuning::default() });
        assert_eq!(set, Levels { finding: 0.1, flag: 0.2, block: 0.3 });
    }

    #[test]
    fn the_gate_rises_once_half_of_the_time_is_spent() {
        let role = *Settings::read(GOOD).unwrap().role(false);
        assert_eq!(
            [1.0, 0.5, 0.0, -3.0].map(|left| role.gate_at(left)),
            [role.gate, role.gate, role.scarce, role.scarce]
        );
        assert_eq!(role.gate_at(0.25), (role.gate + role.scarce) / 2.0);
    }

    #[test]
    fn of_many_windows_the_worst_has_to_be_worse() {
        let mut settings = Settings::read(GOOD).unwrap();
        settings.long = 0.5;
        assert_eq!(settings.of_text(3.0, 1), 3.0);
        assert!((settings.of_text(3.0, 8) - (3.0 - 0.5 * 8f32.ln())).abs() < 1e-6);
    }

    #[test]
    fn probabilities_rise_with_logits() {
        let role = *Settings::read(GOOD).unwrap().role(true);
        let said: Vec<f64> = (-8..=8).map(|logit| role.probability(logit as f32)).collect();
        assert!(said.windows(2).all(|two| two[0] < two[1]) && said[0] > 0.0 && said[16] < 1.0);
    }
}
