//! Which request is sent next: from prepared conversations, from sessions, from records, or from a mix of them by weight.
//!
//! Invariant: what is sent depends on the settings and on how much was sent before, never on the clock, so that every target gets the
//! same requests.

use super::arrivals::Random;
use super::bodies::{self, Prepared, WORD_BYTES};
use super::frames;
use super::request::{head_to, write_word};
use super::sessions::Sessions;
use super::settings::{Plan, RequestDialect, Settings};

/// What the sender has to know of a request to read its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Shape {
    /// Which kind of the mix.
    pub(super) kind: usize,
    pub(super) dialect: RequestDialect,
    /// What ends the answer's frames, where it is a stream.
    pub(super) separator: Option<&'static [u8]>,
}

/// All requests of a run.
pub(super) struct Corpus {
    kinds: Vec<Kind>,
    /// Up to which draw each kind is meant.
    until: Vec<usize>,
    random: Random,
    /// Each kind is sent whole before the next one.
    in_order: bool,
}

/// Requests of one kind.
struct Kind {
    content: Content,
    /// Of the answers to prepared conversations and sessions.
    shape: Shape,
    sent: u64,
}

enum Content {
    Prepared(Vec<Prepared>),
    Recorded(Vec<(Prepared, Shape)>),
    Sessions(Box<Sessions>),
}

impl Corpus {
    /// Prepares the requests.
    pub(super) fn new(settings: &Settings) -> Self {
        let mut until = Vec::new();
        let mut kinds = Vec::new();
        for (weight, part) in &settings.mix {
            until.push(until.last().copied().unwrap_or(0) + *weight as usize);
            kinds.push(Kind::new(part, kinds.len()));
        }
        if kinds.is_empty() {
            until.push(1);
            kinds.push(Kind::new(settings, 0));
        }
        Self { kinds, until, random: Random::new(settings.seed ^ 0x0031_7e57), in_order: false }
    }

    /// Whether all prepared requests have been sent.
    pub(super) fn all_sent(&self) -> bool {
        self.kinds.iter().all(Kind::is_all_sent)
    }

    /// Sends each kind whole before the next one, or as the weights have it.
    pub(super) fn set_in_order(&mut self, in_order: bool) {
        self.in_order = in_order;
    }

    /// Puts the next request into `out`, replacing what was there.
    pub(super) fn next_into(&mut self, connection: usize, out: &mut Vec<u8>) -> Shape {
        let chosen = match self.kinds.len() {
            1 => 0,
            _ if self.in_order => self.kinds.iter().position(|kind| !kind.is_all_sent()).unwrap_or(0),
            _ => {
                let drawn = self.random.below(self.until.last().copied().unwrap_or(1));
                self.until.iter().position(|until| drawn < *until).unwrap_or(0)
            }
        };
        out.clear();
        match self.kinds.get_mut(chosen) {
            Some(kind) => kind.next_into(connection, out),
            None => Shape { kind: 0, dialect: RequestDialect::Chat, separator: None },
        }
    }
}

impl Kind {
    fn new(settings: &Settings, number: usize) -> Self {
        let shape = |dialect, stream: bool| Shape {
            kind: number,
            dialect,
            separator: stream.then(|| separator(dialect, settings.gzip)),
        };
        let content = match settings.plan {
            Plan::Bodies => Content::Prepared(bodies::prepare_all(settings)),
            Plan::Session => Content::Sessions(Box::new(Sessions::new(settings))),
            Plan::Recorded => {
                let prepare = |(number, call): (usize, &super::settings::RecordedCall)| {
                    let mut bytes =
                        head_to(settings, &call.path, call.dialect, call.body.len(), number as u64).into_bytes();
                    bytes.extend_from_slice(call.body.as_bytes());
                    (Prepared { bytes, word_at: None }, shape(call.dialect, call.stream))
                };
                Content::Recorded(settings.recorded.iter().enumerate().map(prepare).collect())
            }
        };
        Self { content, shape: shape(settings.dialect, settings.stream), sent: 0 }
    }

    fn is_all_sent(&self) -> bool {
        match &self.content {
            Content::Prepared(all) => self.sent >= all.len() as u64,
            Content::Recorded(_) | Content::Sessions(_) => true,
        }
    }

    fn next_into(&mut self, connection: usize, out: &mut Vec<u8>) -> Shape {
        let number = self.sent;
        self.sent += 1;
        let at = |length: usize| (number % length.max(1) as u64) as usize;
        let (prepared, shape) = match &mut self.content {
            Content::Sessions(sessions) => {
                sessions.next_into(connection, out);
                return self.shape;
            }
            Content::Prepared(all) => (all.get(at(all.len())), self.shape),
            Content::Recorded(all) => {
                let found = all.get(at(all.len()));
                (found.map(|(prepared, _)| prepared), found.map_or(self.shape, |(_, shape)| *shape))
            }
        };
        let Some(prepared) = prepared else { return shape };
        out.extend_from_slice(&prepared.bytes);
        if let Some(word) = prepared.word_at.and_then(|at| out.get_mut(at..at + WORD_BYTES)) {
            write_word(word, number);
        }
        shape
    }
}

fn separator(dialect: RequestDialect, gzip: bool) -> &'static [u8] {
    match dialect {
        _ if gzip => frames::FLUSHES,
        RequestDialect::Local => frames::LINES,
        RequestDialect::Gemini => frames::CRLF_EVENTS,
        RequestDialect::Chat | RequestDialect::Messages | RequestDialect::Responses => frames::EVENTS,
    }
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use super::*;
    use crate::settings::RecordedCall;
    use crate::tests::settings;

    #[test]
    fn kinds_come_by_their_weights_and_in_the_same_order_each_time() {
        let small = Rc::new(Settings { body_bytes: 600, bodies: 2, ..settings() });
        let large = Rc::new(Settings { body_bytes: 9000, stream: true, bodies: 2, ..settings() });
        let mixed = Settings { mix: vec![(3, small), (1, large)], ..settings() };
        let drawn = || {
            let (mut corpus, mut out) = (Corpus::new(&mixed), Vec::new());
            (0..4000).map(|_| (corpus.next_into(0, &mut out), out.len() > 8000)).collect::<Vec<_>>()
        };
        let (first, again) = (drawn(), drawn());
        assert!(first == again);
        assert!(
            first.iter().all(|(shape, is_long)| (shape.kind == 1) == *is_long && shape.separator.is_some() == *is_long)
        );
        let share = first.iter().filter(|(shape, _)| shape.kind == 1).count() as f64 / 4000.0;
        assert!((share - 0.25).abs() < 0.03, "{share}");
    }

    #[test]
    fn records_are_sent_one_after_the_other_to_their_own_paths() {
        let call = |path: &str, dialect, stream, body: &str| RecordedCall {
            path: path.to_owned(),
            dialect,
            stream,
            body: body.to_owned(),
        };
        let recorded: Rc<[RecordedCall]> = Rc::new([
            call("/v1/chat/completions", RequestDialect::Chat, true, r#"{"n":1}"#),
            call("/v1/messages", RequestDialect::Messages, false, r#"{"n":22}"#),
        ]);
        let (mut corpus, mut out) =
            (Corpus::new(&Settings { plan: Plan::Recorded, recorded, ..settings() }), Vec::new());
        let mut next = || {
            let shape = corpus.next_into(0, &mut out);
            (shape.dialect, shape.separator.is_some(), String::from_utf8(out.clone()).unwrap())
        };
        let (first, second, third) = (next(), next(), next());
        assert!(first.1 && first.2.starts_with("POST /v1/chat/completions ") && first.2.ends_with(r#"{"n":1}"#));
        assert!(!second.1 && second.2.starts_with("POST /v1/messages ") && second.2.contains("Content-Length: 8\r\n"));
        assert_eq!(first, third);
    }
}
