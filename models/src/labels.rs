//! What the classes of a classifier mean: which of them say that a text is harmless, and how its numbers become probabilities.

use crate::folder::{ModelConfig, ModelError};

/// Names of classes that say nothing is wrong, in small letters.
const HARMLESS: [&str; 14] = [
    "safe",
    "benign",
    "legit",
    "legitimate",
    "normal",
    "clean",
    "ok",
    "no_injection",
    "not_injection",
    "non_toxic",
    "not_toxic",
    "neutral",
    "label_0",
    "0",
];

/// Names of classes that say one text is supported by another, in small letters.
const SUPPORTED: [&str; 8] =
    ["entailment", "entailed", "consistent", "factual", "supported", "grounded", "not_hallucinated", "label_1"];

/// Which class says that a sentence is supported; all others say that it is not.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct SupportLabels {
    classes: usize,
    supported: usize,
}

impl SupportLabels {
    pub(crate) fn read(config: &ModelConfig) -> Result<Self, ModelError> {
        let classes = config.id2label.len();
        // One number is how well it is supported, whatever it is called.
        if classes == 1 {
            return Ok(Self { classes, supported: 0 });
        }
        let is_supported = |number: &usize| {
            let name = config.id2label.get(&number.to_string());
            name.is_some_and(|name| SUPPORTED.contains(&&*name.to_lowercase().replace([' ', '-'], "_")))
        };
        let supported: Vec<usize> = (0..classes).filter(is_supported).collect();
        // Of three classes without names nobody knows which is which.
        match (supported.as_slice(), config.id2label.values().any(|name| name.eq_ignore_ascii_case("label_2"))) {
            ([supported], false) => Ok(Self { classes, supported: *supported }),
            _ => Err(ModelError::Unusable(format!(
                "config.json: which class of `id2label` {:?} says that a sentence is supported cannot be told; call it \
                 `entailment` or `consistent`",
                config.id2label.values().collect::<Vec<_>>()
            ))),
        }
    }

    /// How well a sentence is supported, 0.0 to 1.0; nothing when the row is of another model.
    pub(crate) fn support(&self, row: &[f32]) -> Option<f64> {
        match (row, self.classes) {
            ([value], 1) => Some(1.0 / (1.0 + (-f64::from(*value)).exp())),
            (row, classes) if row.len() == classes => softmax(row).get(self.supported).copied(),
            _ => None,
        }
    }
}

/// The classes of a classifier.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Labels {
    names: Vec<String>,
    harmless: Vec<bool>,
    /// Each class is decided by itself, and several may hold.
    several: bool,
}

/// What a classifier says of a text, at its worst.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Verdict {
    /// How probable it is that something is wrong.
    pub(crate) probability: f64,
    /// The number of the class that is most probable of those that say so.
    pub(crate) class: usize,
}

impl Labels {
    pub(crate) fn read(config: &ModelConfig) -> Result<Self, ModelError> {
        let mut names = Vec::new();
        for number in 0..config.id2label.len() {
            let name = config.id2label.get(&number.to_string());
            names.push(name.cloned().ok_or_else(|| {
                ModelError::Unusable(format!("config.json: `id2label` has no entry `{number}`; it must count from 0"))
            })?);
        }
        let several = config.problem_type.as_deref() == Some("multi_label_classification");
        let small: Vec<String> = names.iter().map(|name| name.to_lowercase().replace([' ', '-'], "_")).collect();
        let harmless: Vec<bool> = small.iter().map(|name| HARMLESS.contains(&&**name)).collect();
        if names.is_empty() || harmless.iter().all(|harmless| *harmless) {
            return Err(ModelError::Unusable(format!(
                "config.json: `id2label` {names:?} names no class that says something is wrong"
            )));
        }
        if !several && !harmless.contains(&true) && names.len() > 1 {
            return Err(ModelError::Unusable(format!(
                "config.json: which class of `id2label` {names:?} is harmless cannot be told; call it `SAFE` or `BENIGN`"
            )));
        }
        Ok(Self { names, harmless, several })
    }

    /// The name of a class.
    pub(crate) fn name(&self, class: usize) -> &str {
        self.names.get(class).map_or("", String::as_str)
    }

    /// Whether some class can be Critical, where the classes are those of toxicity.
    pub(crate) fn can_be_critical(&self) -> bool {
        self.names.iter().any(|name| is_severe(name))
    }

    /// What a row of numbers says; nothing when it is of another model.
    pub(crate) fn verdict(&self, row: &[f32]) -> Option<Verdict> {
        if row.len() != self.names.len() {
            return None;
        }
        let each = self.probabilities(row);
        let bad = || each.iter().zip(&self.harmless).enumerate().filter(|(_, (_, harmless))| !**harmless);
        let (class, (worst, _)) = bad().max_by(|a, b| a.1.0.total_cmp(b.1.0))?;
        let probability = if self.several { *worst } else { bad().map(|(_, (each, _))| each).sum() };
        Some(Verdict { probability: probability.clamp(0.0, 1.0), class })
    }

    /// The probability of each class.
    pub(crate) fn probabilities(&self, row: &[f32]) -> Vec<f64> {
        if self.several || row.len() == 1 {
            return row.iter().map(|value| 1.0 / (1.0 + (-f64::from(*value)).exp())).collect();
        }
        softmax(row)
    }
}

/// Whether a class of toxicity is one of the two worst.
pub(crate) fn is_severe(name: &str) -> bool {
    let name = name.to_lowercase();
    name.contains("severe") || name.contains("threat")
}

/// Numbers as probabilities of classes of which one holds.
pub(crate) fn softmax(row: &[f32]) -> Vec<f64> {
    let most = row.iter().copied().fold(f32::MIN, f32::max);
    let each: Vec<f64> = row.iter().map(|value| f64::from(value - most).exp()).collect();
    let sum: f64 = each.iter().sum();
    each.into_iter().map(|value| value / sum).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(names: &[&str], problem: Option<&str>) -> Result<Labels, String> {
        let id2label = names.iter().enumerate().map(|(at, name)| (at.to_string(), (*name).to_owned())).collect();
        let problem_type = problem.map(str::to_owned);
        Labels::read(&ModelConfig { id2label, problem_type, ..ModelConfig::default() })
            .map_err(|error| error.to_string())
    }

    #[test]
    fn one_class_of_several_holds_and_all_bad_ones_count() {
        let labels = labels(&["BENIGN", "INJECTION", "JAILBREAK"], None).unwrap();
        let verdict = labels.verdict(&[0.0, 1.0, 3.0]).unwrap();
        let sum = 1.0 + 1.0_f64.exp() + 3.0_f64.exp();
        assert!((verdict.probability - (1.0 - 1.0 / sum)).abs() < 1e-9);
        assert_eq!(labels.name(verdict.class), "JAILBREAK");
        assert_eq!(labels.verdict(&[1.0, 2.0]), None);
    }

    #[test]
    fn classes_that_are_decided_each_by_itself_do_not_add_up() {
        let labels = labels(&["toxic", "threat"], Some("multi_label_classification")).unwrap();
        let verdict = labels.verdict(&[0.0, -4.0]).unwrap();
        assert_eq!((verdict.probability, verdict.class), (0.5, 0));
    }

    #[test]
    fn names_that_do_not_say_which_class_is_harmless_are_refused() {
        assert!(labels(&["SAFE", "INJECTION"], None).is_ok());
        assert!(labels(&["LABEL_0", "LABEL_1"], None).is_ok());
        assert!(labels(&["non toxic", "toxic"], None).is_ok());
        assert!(labels(&["A", "B"], None).unwrap_err().contains("call it `SAFE`"));
        assert!(labels(&["SAFE", "OK"], None).unwrap_err().contains("names no class"));
        assert!(labels(&[], None).unwrap_err().contains("names no class"));
    }

    #[test]
    fn which_class_supports_is_told_by_its_name() {
        let read = |names: &[&str]| {
            let id2label = names.iter().enumerate().map(|(at, name)| (at.to_string(), (*name).to_owned())).collect();
            SupportLabels::read(&ModelConfig { id2label, ..ModelConfig::default() })
        };
        let nli = read(&["contradiction", "neutral", "ENTAILMENT"]).unwrap();
        assert!(nli.support(&[0.0, 0.0, 5.0]).unwrap() > 0.98);
        assert_eq!(nli.support(&[0.0, 5.0]), None);
        assert_eq!(read(&["hallucinated", "consistent"]).unwrap().support(&[1.0, 1.0]), Some(0.5));
        assert_eq!(read(&["LABEL_0"]).unwrap().support(&[0.0]), Some(0.5));
        assert!(read(&["LABEL_0", "LABEL_1"]).is_ok());
        for unclear in [&["LABEL_0", "LABEL_1", "LABEL_2"][..], &["a", "b"], &[]] {
            assert!(read(unclear).unwrap_err().to_string().contains("cannot be told"), "{unclear:?}");
        }
    }

    #[test]
    fn huge_numbers_are_no_infinities() {
        assert_eq!(softmax(&[1e30, -1e30]), [1.0, 0.0]);
    }
}
