//! Names of people, organisations and places: classes of tokens put together to words of the text.

use std::ops::Range;

use crate::folder::{ModelConfig, ModelError};
use crate::labels::softmax;
use crate::tokens::Window;

/// What a name is the name of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Person,
    Organization,
    Location,
}

/// A name in a text.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Entity {
    pub(crate) kind: Kind,
    pub(crate) range: Range<usize>,
    /// That of its least certain token.
    pub(crate) probability: f64,
}

/// Which class of a token means what: begins a name, or goes on with one.
#[derive(Debug)]
pub(crate) struct EntityLabels {
    classes: Vec<Option<(Kind, bool)>>,
}

impl Kind {
    /// The type of the finding, and of personal data.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Person => "person_name",
            Self::Organization => "organization",
            Self::Location => "location",
        }
    }

    fn read(label: &str) -> Option<Self> {
        match label {
            "PER" | "PERSON" | "PERSON_NAME" => Some(Self::Person),
            "ORG" | "ORGANIZATION" | "ORGANISATION" => Some(Self::Organization),
            "LOC" | "LOCATION" | "GPE" => Some(Self::Location),
            _ => None,
        }
    }
}

impl EntityLabels {
    pub(crate) fn read(config: &ModelConfig) -> Result<Self, ModelError> {
        let class = |number: usize| {
            let label = config.id2label.get(&number.to_string()).map(|label| label.to_uppercase())?;
            let (goes_on, name) = match label.split_once(['-', '_']) {
                Some(("B", name)) => (false, name),
                Some(("I" | "E", name)) => (true, name),
                Some(("S" | "U", name)) => (false, name),
                _ => (true, &*label),
            };
            Some((Kind::read(name)?, goes_on))
        };
        let classes: Vec<_> = (0..config.id2label.len()).map(class).collect();
        match classes.iter().flatten().count() {
            0 => Err(ModelError::Unusable(format!(
                "config.json: `id2label` {:?} names no class of names; B-PER, I-PER and the like are known",
                config.id2label.values().collect::<Vec<_>>()
            ))),
            _ => Ok(Self { classes }),
        }
    }

    /// Appends the names in a window. `None` when the rows are of another model.
    pub(crate) fn read_window<'a>(
        &self,
        text: &str,
        window: &Window,
        rows: impl Iterator<Item = &'a [f32]>,
        found: &mut Vec<Entity>,
    ) -> Option<()> {
        let mut open: Option<Entity> = None;
        for (place, row) in window.places.iter().zip(rows) {
            if row.len() != self.classes.len() {
                return None;
            }
            let Some(place) = place else { continue };
            let each = softmax(row);
            let (class, probability) = each.iter().copied().enumerate().max_by(|a, b| a.1.total_cmp(&b.1))?;
            let class = self.classes.get(class).copied().flatten();
            let between = |end: usize| text.get(end..place.start).unwrap_or_default();
            // What a word goes on with is decided with its first token.
            let inside = open.as_mut().filter(|open| {
                let joined = between(open.range.end).is_empty() && place.start >= open.range.end;
                let same = class.is_some_and(|(kind, goes_on)| kind == open.kind && goes_on);
                joined && !breaks(text, place) || same && between(open.range.end).trim().is_empty()
            });
            if let Some(inside) = inside {
                inside.range.end = place.end;
                if class.is_some() {
                    inside.probability = inside.probability.min(probability);
                }
                continue;
            }
            found.extend(open.take());
            open = class.map(|(kind, _)| Entity { kind, range: trimmed(text, place), probability });
        }
        found.extend(open);
        Some(())
    }
}

impl Entity {
    /// Names as each stands once, those of overlapping windows joined.
    pub(crate) fn joined(mut found: Vec<Self>) -> Vec<Self> {
        found.sort_by_key(|entity| (entity.range.start, entity.range.end));
        let mut joined: Vec<Self> = Vec::with_capacity(found.len());
        for entity in found {
            match joined.last_mut() {
                Some(last) if entity.range.start < last.range.end => {
                    last.range.end = last.range.end.max(entity.range.end);
                    last.probability = last.probability.max(entity.probability);
                }
                _ => joined.push(entity),
            }
        }
        joined
    }
}

/// Whether a token is no part of a word.
fn breaks(text: &str, place: &Range<usize>) -> bool {
    !text.get(place.clone()).unwrap_or_default().chars().all(char::is_alphanumeric)
}

/// A place without the blanks that some tokenizers count to the word behind them.
fn trimmed(text: &str, place: &Range<usize>) -> Range<usize> {
    let words = text.get(place.clone()).unwrap_or_default();
    place.end - words.trim_start().len()..place.end
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hostile::assert_linear;

    fn labels() -> EntityLabels {
        let names = ["O", "B-PER", "I-PER", "B-LOC", "I-LOC"];
        let id2label = names.iter().enumerate().map(|(at, name)| (at.to_string(), (*name).to_owned())).collect();
        EntityLabels::read(&ModelConfig { id2label, ..ModelConfig::default() }).unwrap()
    }

    /// Names in `text`, whose tokens are the words of `tokens` with their classes.
    fn found(text: &str, tokens: &[(&str, usize)]) -> Vec<(Kind, String)> {
        let mut at = 0;
        let mut places = vec![None];
        let mut rows = vec![vec![9.0_f32, 0.0, 0.0, 0.0, 0.0]];
        for (token, class) in tokens {
            let start = at + text[at..].find(token).unwrap();
            at = start + token.len();
            places.push(Some(start..at));
            let mut row = vec![0.0; 5];
            row[*class] = 5.0;
            rows.push(row);
        }
        let window = Window { ids: vec![0; places.len()], mask: Vec::new(), types: Vec::new(), places };
        let mut found = Vec::new();
        labels().read_window(text, &window, rows.iter().map(Vec::as_slice), &mut found).unwrap();
        Entity::joined(found).into_iter().map(|entity| (entity.kind, text[entity.range].to_owned())).collect()
    }

    #[test]
    fn tokens_of_a_name_are_one_name() {
        let text = "Ask Angela Merkelová, of Berlin.";
        let tokens =
            [("Ask", 0), ("Angela", 1), ("Merkel", 2), ("ová", 0), (",", 0), ("of", 0), ("Berlin", 3), (".", 0)];
        let names = [(Kind::Person, "Angela Merkelová".to_owned()), (Kind::Location, "Berlin".to_owned())];
        assert_eq!(found(text, &tokens), names);
    }

    #[test]
    fn two_names_that_begin_are_two() {
        let names = found("Anna Berta", &[("Anna", 1), ("Berta", 1)]);
        assert_eq!(names.len(), 2);
        assert_eq!(found("nobody here", &[("nobody", 0), ("here", 0)]), []);
    }

    #[test]
    fn labels_without_names_are_refused() {
        let id2label = [("0".to_owned(), "O".to_owned()), ("1".to_owned(), "VERB".to_owned())].into_iter().collect();
        let error = EntityLabels::read(&ModelConfig { id2label, ..ModelConfig::default() }).unwrap_err().to_string();
        assert!(error.contains("names no class of names"), "{error}");
    }

    #[test]
    fn windows_that_overlap_say_a_name_once() {
        let entity = |range, probability| Entity { kind: Kind::Person, range, probability };
        let joined = Entity::joined(vec![entity(4..9, 0.6), entity(20..22, 0.9), entity(4..12, 0.8)]);
        assert_eq!(joined, [entity(4..12, 0.8), entity(20..22, 0.9)]);
    }

    #[test]
    fn any_number_of_names_is_put_together_in_time_in_proportion_to_the_text() {
        let labels = labels();
        assert_linear("names", |text| {
            let starts: Vec<usize> = text.char_indices().map(|(at, _)| at).chain([text.len()]).step_by(3).collect();
            let places: Vec<_> = starts.windows(2).map(|place| Some(place[0]..place[1])).collect();
            let rows: Vec<[f32; 5]> =
                (0..places.len()).map(|at| std::array::from_fn(|class| f32::from(class == at % 5))).collect();
            let window = Window { ids: Vec::new(), mask: Vec::new(), types: Vec::new(), places };
            let mut found = Vec::new();
            labels.read_window(text, &window, rows.iter().map(<[f32; 5]>::as_slice), &mut found).unwrap();
            Entity::joined(found);
        });
    }
}
