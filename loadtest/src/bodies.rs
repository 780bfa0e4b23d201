//! The requests a run sends: many different conversations of one length, and a word in each that is never the same.
//!
//! Invariant: every prepared body has exactly the asked length (or the least one its envelope allows), is valid JSON,
//! and stays so whatever number is written into it.

use super::arrivals::Random;
use super::cli::{Plan, RequestDialect, Settings};
use super::prose;
use super::request::{head, write_word};
use super::sessions::Sessions;

/// Letters of the unique word, in consonant-vowel pairs.
const WORD_BYTES: usize = 12;
/// About the length of one turn of a longer conversation.
const TURN_BYTES: usize = 700;
/// What a message takes beside its text, more or less.
const MESSAGE_BYTES: usize = 40;
/// The least prose in the newest message.
const PROSE_BYTES_MIN: usize = 40;

const INSTRUCTIONS: [&str; 4] = [
    "You are a helpful assistant for the operations team. Answer briefly and name your assumptions.",
    "You help customers of a bookshop. Be polite, stay on topic and keep answers under five sentences.",
    "You are an editor. Improve clarity without changing the meaning, and explain each larger change.",
    "You support engineers who read measurements. Prefer numbers to adjectives.",
];

/// One prepared request.
struct Prepared {
    bytes: Vec<u8>,
    /// Where the unique word stands.
    word_at: usize,
}

/// All prepared requests of a run.
pub(super) struct Corpus {
    prepared: Vec<Prepared>,
    unique: bool,
    sent: u64,
    /// In their place, where the plan is sessions.
    sessions: Option<Sessions>,
}

impl Corpus {
    /// Prepares the requests.
    pub(super) fn new(settings: &Settings) -> Self {
        if settings.plan == Plan::Session {
            return Self { prepared: Vec::new(), unique: true, sent: 0, sessions: Some(Sessions::new(settings)) };
        }
        let mut random = Random::new(0x5eed);
        let prepared = (0..settings.bodies).map(|_| prepare(settings, &mut random)).collect();
        Self { prepared, unique: settings.unique, sent: 0, sessions: None }
    }

    /// Whether the histories of all prepared requests have been sent.
    pub(super) fn all_sent(&self) -> bool {
        self.sent >= self.prepared.len() as u64
    }

    /// Puts the next request into `out`, replacing what was there.
    pub(super) fn next_into(&mut self, connection: usize, out: &mut Vec<u8>) {
        if let Some(sessions) = &mut self.sessions {
            return sessions.next_into(connection, out);
        }
        out.clear();
        let Some(prepared) = self.prepared.get((self.sent % self.prepared.len().max(1) as u64) as usize) else {
            return;
        };
        out.extend_from_slice(&prepared.bytes);
        if let Some(word) = out.get_mut(prepared.word_at..prepared.word_at + WORD_BYTES).filter(|_| self.unique) {
            write_word(word, self.sent);
        }
        self.sent += 1;
    }
}

fn prepare(settings: &Settings, random: &mut Random) -> Prepared {
    let instruction = INSTRUCTIONS[random.below(INSTRUCTIONS.len())];
    let room = settings.body_bytes.saturating_sub(body(settings, instruction, &[""]).len());
    let turns = history(settings, room, random);
    let mut newest = format!("About {}: ", "a".repeat(WORD_BYTES));
    let so_far: Vec<&str> = turns.iter().map(String::as_str).chain([newest.as_str()]).collect();
    let missing = settings.body_bytes.saturating_sub(body(settings, instruction, &so_far).len());
    prose::append(&mut newest, missing.max(PROSE_BYTES_MIN), random);
    let all: Vec<&str> = turns.iter().map(String::as_str).chain([newest.as_str()]).collect();
    let body = body(settings, instruction, &all);
    let mut bytes = head(settings, body.len()).into_bytes();
    bytes.extend_from_slice(body.as_bytes());
    let marker = format!("About {}", "a".repeat(WORD_BYTES));
    let word_at = memchr::memmem::rfind(&bytes, marker.as_bytes()).map_or(0, |at| at + "About ".len());
    Prepared { bytes, word_at }
}

/// The turns before the newest one, question and answer in turn: an even number of them.
fn history(settings: &Settings, room: usize, random: &mut Random) -> Vec<String> {
    let (count, length) = match settings.seen_share {
        None => (room / (2 * TURN_BYTES) * 2, None),
        Some(share) => {
            let seen = |count: usize| (room.saturating_sub(count * MESSAGE_BYTES) as f64 * share) as usize;
            let count = if seen(2) < 2 * PROSE_BYTES_MIN { 0 } else { (seen(0) / (2 * TURN_BYTES) * 2).max(2) };
            (count, Some(seen(count) / count.max(1)))
        }
    };
    let turn = |_| {
        let length = length.unwrap_or_else(|| TURN_BYTES - 100 + random.below(100));
        let mut turn = String::with_capacity(length + 128);
        prose::append(&mut turn, length, random);
        turn
    };
    (0..count).map(turn).collect()
}

fn body(settings: &Settings, instruction: &str, turns: &[&str]) -> String {
    let quoted = |text: &str| serde_json::Value::from(text).to_string();
    let message = |role: &str, text: &str| format!(r#"{{"role":"{role}","content":{}}}"#, quoted(text));
    // The newest turn is the user's, and the roles alternate up to it.
    let role = |index: usize| if (turns.len() - index) % 2 == 1 { "user" } else { "assistant" };
    let messages = turns.iter().enumerate().map(|(index, text)| message(role(index), text));
    let system = message("system", instruction);
    let with_system: Vec<String> = std::iter::once(system).chain(messages.clone()).collect();
    let stream = settings.stream;
    match settings.dialect {
        RequestDialect::Chat => {
            let usage = if stream { r#","stream_options":{"include_usage":true}"# } else { "" };
            format!(
                r#"{{"model":"fake-small","messages":[{}],"temperature":0.7,"max_tokens":256,"stream":{stream}{usage}}}"#,
                with_system.join(",")
            )
        }
        RequestDialect::Messages => format!(
            r#"{{"model":"fake-small","max_tokens":256,"system":{},"messages":[{}],"temperature":0.7,"stream":{stream}}}"#,
            quoted(instruction),
            messages.collect::<Vec<_>>().join(",")
        ),
        RequestDialect::Local => format!(
            r#"{{"model":"fake-small","messages":[{}],"stream":{stream},"options":{{"temperature":0.7,"num_predict":256}}}}"#,
            with_system.join(",")
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::settings;
    use std::collections::HashSet;
    use weir_fake_provider::http::{Request, RequestReader, Step};

    fn requests(settings: &Settings, count: usize) -> Vec<Request> {
        let (mut corpus, mut reader, mut bytes) = (Corpus::new(settings), RequestReader::default(), Vec::new());
        let mut next = || {
            corpus.next_into(0, &mut bytes);
            reader.push(&bytes);
            match reader.next_step() {
                Ok(Step::Complete(request)) => *request,
                other => panic!("{other:?}"),
            }
        };
        (0..count).map(|_| next()).collect()
    }

    #[test]
    fn bodies_have_the_asked_length_and_are_json() {
        for dialect in [RequestDialect::Chat, RequestDialect::Messages, RequestDialect::Local] {
            for body_bytes in [600, 1000, 8192] {
                let settings = Settings { dialect, body_bytes, bodies: 8, ..settings() };
                for request in requests(&settings, 8) {
                    assert_eq!(request.body.len(), body_bytes, "{dialect:?}");
                    let json: serde_json::Value = serde_json::from_slice(&request.body).unwrap();
                    let last = json["messages"].as_array().unwrap().last().unwrap();
                    assert_eq!(last["role"], "user");
                    assert!(last["content"].as_str().unwrap().starts_with("About "), "{last}");
                }
            }
        }
    }

    #[test]
    fn as_much_of_a_body_is_history_as_was_asked_for() {
        for (seen_share, body_bytes) in [(0.0, 1_000), (0.0, 8_192), (0.5, 8_192), (0.9, 8_192), (0.9, 1_000)] {
            let settings = Settings { seen_share: Some(seen_share), body_bytes, bodies: 8, ..settings() };
            let first = texts(&requests(&settings, 8));
            let known: HashSet<&str> = first.iter().map(String::as_str).collect();
            let twice = requests(&settings, 16);
            assert!(twice.iter().all(|request| request.body.len() == body_bytes));
            let again = texts(twice.get(8..).unwrap());
            let bytes = |texts: &mut dyn Iterator<Item = &String>| texts.map(String::len).sum::<usize>() as f64;
            let seen = bytes(&mut again.iter().filter(|text| known.contains(text.as_str())));
            let share = seen / bytes(&mut again.iter());
            // What the envelope takes is the share's uncertainty.
            assert!(
                (share - seen_share).abs() < if body_bytes > 1_000 { 0.05 } else { 0.2 },
                "{share} of {seen_share}"
            );
        }
    }

    /// What the messages but the instructions say.
    fn texts(requests: &[Request]) -> Vec<String> {
        let messages = |request: &Request| {
            let json: serde_json::Value = serde_json::from_slice(&request.body).unwrap();
            json["messages"].as_array().unwrap().iter().skip(1).cloned().collect::<Vec<_>>()
        };
        requests.iter().flat_map(messages).map(|message| message["content"].as_str().unwrap().to_owned()).collect()
    }

    #[test]
    fn no_request_repeats_unless_asked_to() {
        let few = Settings { bodies: 4, ..settings() };
        let unique: HashSet<Vec<u8>> = requests(&few, 5000).into_iter().map(|request| request.body).collect();
        assert_eq!(unique.len(), 5000);
        let repeated = requests(&Settings { unique: false, ..few }, 100);
        assert_eq!(repeated.into_iter().map(|request| request.body).collect::<HashSet<_>>().len(), 4);
    }
}
