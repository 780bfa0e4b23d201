//! A model that is loaded: tokenizer, graph and the meaning of its classes.

use std::ops::{ControlFlow, Range};
use std::path::Path;
use std::time::Instant;

use sha2::{Digest as _, Sha256};

use crate::entities::{Entity, EntityLabels};
use crate::folder::{Files, ModelError};
use crate::labels::{Labels, SupportLabels};
use crate::network::Network;
use crate::runtime::{Runtime, sha256_of};
use crate::slot::Slot;
use crate::support::Judged;
use crate::tokens::{Tokens, Window};

/// A loaded model.
#[derive(Debug)]
pub(crate) struct Model {
    tokens: Tokens,
    network: Network,
    meaning: Meaning,
    /// SHA-256 of its graph.
    pub(crate) sha256: String,
    /// Tells it from any other.
    pub(crate) version: u64,
}

/// What its classes mean.
#[derive(Debug)]
enum Meaning {
    /// Of a text.
    Text(Labels),
    /// Of each word.
    Words(EntityLabels),
    /// Of a text and a sentence.
    Pairs(SupportLabels),
}

/// The worst window of a text.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Worst {
    pub(crate) probability: f64,
    /// The name of the class.
    pub(crate) label: String,
    pub(crate) range: Range<usize>,
}

/// From here on no other window of a text can say more.
const CERTAIN: f64 = 0.995;

impl Model {
    /// Loads the model in `folder` for as many threads as may ask at a time.
    pub(crate) fn load(slot: Slot, folder: &Path, runtime: &Runtime, threads: usize) -> Result<Self, ModelError> {
        let files = Files::find(folder)?;
        let config = files.config()?;
        let tokenizer = files.tokenizer()?;
        let unusable = |error: std::io::Error| ModelError::Unusable(format!("`{}`: {error}", files.graph.display()));
        let sha256 = sha256_of(&files.graph).map_err(unusable)?;
        let meaning = match slot {
            Slot::Entities => Meaning::Words(EntityLabels::read(&config)?),
            Slot::Hallucination => Meaning::Pairs(SupportLabels::read(&config)?),
            _ => Meaning::Text(Labels::read(&config)?),
        };
        let tokens = Tokens::read(&tokenizer, &config)?;
        let network = Network::load(runtime, &files.graph, threads)?;
        let mut hasher = Sha256::new();
        hasher.update(&sha256);
        hasher.update(&tokenizer);
        hasher.update(format!("{config:?}"));
        let digest = hasher.finalize();
        let version = digest.iter().take(8).fold(0, |version: u64, byte| version << 8 | u64::from(*byte));
        Ok(Self { tokens, network, meaning, sha256, version })
    }

    /// Whether some class of it can be Critical, where its classes are those of toxicity.
    pub(crate) fn can_be_critical(&self) -> bool {
        matches!(&self.meaning, Meaning::Text(labels) if labels.can_be_critical())
    }

    /// The worst window of a text, as far as there was time. Nothing for a text without words.
    ///
    /// # Errors
    /// What the tokenizer or the graph say.
    pub(crate) fn worst(&self, text: &str, deadline: Option<Instant>) -> Result<Option<Worst>, String> {
        let Meaning::Text(labels) = &self.meaning else { return Ok(None) };
        let mut worst: Option<Worst> = None;
        self.each_window(text, deadline, &mut |window, row| {
            let verdict = labels.verdict(row).ok_or_else(|| self.misfit(row.len()))?;
            if worst.as_ref().is_none_or(|worst| verdict.probability > worst.probability) {
                let label = labels.name(verdict.class).to_owned();
                worst = Some(Worst { probability: verdict.probability, label, range: window.range() });
            }
            Ok(if verdict.probability >= CERTAIN { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        })?;
        Ok(worst)
    }

    /// The names a text holds, in its order, as far as there was time.
    ///
    /// # Errors
    /// As above.
    pub(crate) fn entities(&self, text: &str, deadline: Option<Instant>) -> Result<Vec<Entity>, String> {
        let Meaning::Words(labels) = &self.meaning else { return Ok(Vec::new()) };
        let mut found = Vec::new();
        let mut each = |window: &Window| {
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return Ok(ControlFlow::Break(()));
            }
            let output = self.network.run(window)?;
            if output.rows().count() != window.ids.len() {
                return Err(self.misfit(output.values.len()));
            }
            labels.read_window(text, window, output.rows(), &mut found).ok_or_else(|| self.misfit(output.classes))?;
            Ok(ControlFlow::Continue(()))
        };
        self.tokens.windows(text, &mut each)?;
        Ok(Entity::joined(found))
    }

    /// How well `context` supports the sentences of `answer`, as far as there was time.
    ///
    /// # Errors
    /// As above.
    pub(crate) fn support(&self, context: &str, answer: &str, until: Option<Instant>) -> Result<Judged, String> {
        let Meaning::Pairs(labels) = &self.meaning else { return Ok(Judged::default()) };
        let passages = self.tokens.passages(context)?;
        Judged::of(answer, context, &passages, until, |passage, sentence| {
            let row = self.network.run(&self.tokens.pair(passage, sentence)?)?.values;
            labels.support(&row).ok_or_else(|| self.misfit(row.len()))
        })
    }

    fn each_window(
        &self,
        text: &str,
        deadline: Option<Instant>,
        each: &mut impl FnMut(&Window, &[f32]) -> Result<ControlFlow<()>, String>,
    ) -> Result<(), String> {
        let mut one = |window: &Window| {
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return Ok(ControlFlow::Break(()));
            }
            each(window, &self.network.run(window)?.values)
        };
        self.tokens.windows(text, &mut one)
    }

    fn misfit(&self, numbers: usize) -> String {
        let classes = match &self.meaning {
            Meaning::Text(_) => "the classes of a text",
            Meaning::Words(_) => "the classes of each word",
            Meaning::Pairs(_) => "the classes of a text and a sentence",
        };
        format!("the graph says {numbers} numbers, which are not {classes} that config.json names in `id2label`")
    }
}
