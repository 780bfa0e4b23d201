//! Conversations to send: many different ones of one length, with a place in each for a word that is never the same.
//!
//! Invariant: every prepared body has exactly the asked length (or the least one its envelope allows), is valid JSON,
//! and stays so whatever number is written into it.

use super::arrivals::Random;
use super::prose;
use super::request::head;
use super::settings::{RequestDialect, Settings};
use super::spelling::{self, quoted};

/// Letters of the unique word, in consonant-vowel pairs.
pub(super) const WORD_BYTES: usize = 12;
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

/// Room for instructions of the usual length is missing in a body shorter than this.
const SHORT_BYTES: usize = 512;
const SHORT_INSTRUCTION: &str = "Be brief.";
/// How a PNG begins, in base64.
const PICTURE_BEGIN: &str = "iVBORw0KGgoAAAANSUhEUgAA";

/// One prepared request.
pub(super) struct Prepared {
    pub(super) bytes: Vec<u8>,
    /// Where the unique word stands, if there is one.
    pub(super) word_at: Option<usize>,
}

/// Prepares the requests of these settings.
pub(super) fn prepare_all(settings: &Settings) -> Vec<Prepared> {
    let mut random = Random::new(0x5eed ^ settings.seed);
    (0..settings.bodies as u64).map(|number| prepare(settings, number, &mut random)).collect()
}

fn prepare(settings: &Settings, number: u64, random: &mut Random) -> Prepared {
    let instruction = match settings.body_bytes < SHORT_BYTES {
        true => SHORT_INSTRUCTION,
        false => INSTRUCTIONS[random.below(INSTRUCTIONS.len())],
    };
    let empty = Text { instruction, turns: &[""], picture: "" };
    let room = settings.body_bytes.saturating_sub(body(settings, &empty).len());
    // A picture takes all but the newest message, and nothing was said before it.
    let turns = if settings.image { Vec::new() } else { history(settings, room, random) };
    let mut newest = format!("About {}: ", "a".repeat(WORD_BYTES));
    let spelled = |newest: &str, picture: &str| {
        let all: Vec<&str> = turns.iter().map(String::as_str).chain([newest]).collect();
        body(settings, &Text { instruction, turns: &all, picture })
    };
    let mut picture = String::new();
    if settings.image {
        prose::append(&mut newest, 200.min(room), random);
        let missing = settings.body_bytes.saturating_sub(spelled(&newest, "").len());
        picture = noise(missing / 4 * 4, random);
        prose::append(&mut newest, missing % 4, random);
    } else {
        let missing = settings.body_bytes.saturating_sub(spelled(&newest, "").len());
        prose::append(&mut newest, missing.max(PROSE_BYTES_MIN), random);
    }
    let body = spelled(&newest, &picture);
    let mut bytes = head(settings, body.len(), number).into_bytes();
    bytes.extend_from_slice(body.as_bytes());
    let marker = format!("About {}", "a".repeat(WORD_BYTES));
    let word_at = memchr::memmem::rfind(&bytes, marker.as_bytes()).map(|at| at + "About ".len());
    Prepared { bytes, word_at: word_at.filter(|_| settings.unique) }
}

/// What looks like a picture in base64, so many letters long.
fn noise(length: usize, random: &mut Random) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut picture = String::with_capacity(length + 16);
    picture.push_str(PICTURE_BEGIN);
    while picture.len() < length {
        let mut bits = random.next_u64();
        for _ in 0..10 {
            picture.push(char::from(LETTERS[(bits & 63) as usize]));
            bits >>= 6;
        }
    }
    picture.truncate(length);
    picture
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

/// What a body says.
struct Text<'a> {
    instruction: &'a str,
    /// Question and answer in turn; the last is the newest question.
    turns: &'a [&'a str],
    /// Base64, beside the newest question; empty for none.
    picture: &'a str,
}

fn body(settings: &Settings, text: &Text<'_>) -> String {
    let (dialect, stream) = (settings.dialect, settings.stream);
    let count = text.turns.len();
    // The newest turn is the user's, and the roles alternate up to it.
    let spelled = |(index, turn): (usize, &&str)| match settings.image && index + 1 == count {
        true => spelling::turn_with_picture(dialect, turn, text.picture),
        false => spelling::turn(dialect, (count - index) % 2 == 1, turn),
    };
    let turns = text.turns.iter().enumerate().map(spelled).collect::<Vec<_>>().join(",");
    let instruction = quoted(text.instruction);
    let tools = match settings.tools {
        true => format!(r#","tools":[{}]"#, spelling::tools(dialect)),
        false => String::new(),
    };
    match dialect {
        RequestDialect::Chat => {
            let usage = if stream { r#","stream_options":{"include_usage":true}"# } else { "" };
            format!(
                r#"{{"model":"fake-small","messages":[{{"role":"system","content":{instruction}}},{turns}]{tools},"temperature":0.7,"max_tokens":256,"stream":{stream}{usage}}}"#
            )
        }
        RequestDialect::Messages => format!(
            r#"{{"model":"fake-small","max_tokens":256,"system":{instruction},"messages":[{turns}]{tools},"temperature":0.7,"stream":{stream}}}"#
        ),
        RequestDialect::Responses => format!(
            r#"{{"model":"fake-small","instructions":{instruction},"input":[{turns}]{tools},"temperature":0.7,"max_output_tokens":256,"stream":{stream}}}"#
        ),
        RequestDialect::Gemini => format!(
            r#"{{"systemInstruction":{{"parts":[{{"text":{instruction}}}]}},"contents":[{turns}]{tools},"generationConfig":{{"temperature":0.7,"maxOutputTokens":256}}}}"#
        ),
        RequestDialect::Local => format!(
            r#"{{"model":"fake-small","messages":[{{"role":"system","content":{instruction}}},{turns}]{tools},"stream":{stream},"options":{{"temperature":0.7,"num_predict":256}}}}"#
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::corpus::Corpus;
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
    fn a_number_in_an_extra_field_makes_callers_of_the_prepared_requests() {
        let headers = vec![("x-tenant".to_owned(), "t-{n}".to_owned())];
        let settings = Settings { headers, bodies: 20, ..settings() };
        let sent: Vec<String> = prepare_all(&settings)
            .iter()
            .map(|prepared| {
                let text = String::from_utf8_lossy(&prepared.bytes);
                text.lines().find_map(|line| line.strip_prefix("x-tenant: ")).unwrap().to_owned()
            })
            .collect();
        assert_eq!((sent[0].as_str(), sent[17].as_str()), ("t-000000000000", "t-000000000011"));
        assert_eq!(sent.iter().collect::<HashSet<_>>().len(), 20);
    }

    const DIALECTS: [RequestDialect; 5] = [
        RequestDialect::Chat,
        RequestDialect::Messages,
        RequestDialect::Responses,
        RequestDialect::Gemini,
        RequestDialect::Local,
    ];

    #[test]
    fn bodies_have_the_asked_length_and_are_json() {
        for dialect in DIALECTS {
            for (body_bytes, tools, image) in
                [(300, false, false), (1000, false, false), (8192, true, false), (100_001, false, true)]
            {
                let settings = Settings { dialect, body_bytes, tools, image, bodies: 4, ..settings() };
                for request in requests(&settings, 4) {
                    assert_eq!(request.body.len(), body_bytes, "{dialect:?}");
                    let json: serde_json::Value = serde_json::from_slice(&request.body).unwrap();
                    let turns = ["messages", "input", "contents"].iter().find_map(|name| json[name].as_array());
                    let last = turns.unwrap().last().unwrap();
                    assert_eq!(last["role"], "user");
                    assert!(last.to_string().contains("About "), "{last}");
                    assert_eq!(json.get("tools").is_some(), tools);
                    assert_eq!(last.to_string().contains(PICTURE_BEGIN), image);
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
