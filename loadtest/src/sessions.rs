//! The sessions of coding agents: requests that repeat all but their end.
//!
//! A session is a conversation of [`TURNS`] requests that grows from [`FIRST_BYTES`] to [`LAST_BYTES`]: instructions, tools, a task, and
//! then for each turn a call of a tool and what it brought, which are listings, files, logs and JSON. Each connection has one session
//! after the other, and no message of one stands in another, so all of a turn but its end was sent with the turn before, and its end
//! never before.
//!
//! Invariant: every request is valid JSON, and each turn's messages are byte for byte the beginning of the next turn's.

use super::arrivals::Random;
use super::prose;
use super::request::{head, write_word};
use super::settings::{RequestDialect, Settings};
use super::spelling::{self, TOOLS, quoted};

/// Requests of a session.
pub(super) const TURNS: usize = 50;
/// About the bytes of its first request, and of its last one.
const FIRST_BYTES: usize = 4 * 1024;
const LAST_BYTES: usize = 400 * 1024;
/// Different sessions prepared; in each use every message gets another word.
const SESSIONS: usize = 8;
/// Stands where a word goes that is never the same.
const WORD: &str = "qqqqqqqqqqqq";

const INSTRUCTIONS: &str = "You are a coding agent in a terminal. Work in small steps: look before you change anything, run the \
    tests after each change, and say in one sentence what you are about to do. Never invent files. Stop when the task is done.";

/// A prepared session.
struct Session {
    /// Its messages, those of the first turn first.
    messages: Vec<u8>,
    /// Where each turn's messages end.
    ends: Vec<usize>,
    /// Where its words stand.
    words: Vec<usize>,
}

/// A session on its way.
struct Current {
    messages: Vec<u8>,
    /// Which of the prepared ones.
    session: usize,
    /// How many sessions had begun before it.
    number: u64,
    turn: usize,
}

/// The sessions of a run, by connection.
pub(super) struct Sessions {
    prepared: Vec<Session>,
    current: Vec<Current>,
    /// What stands before the messages, and behind them.
    envelope: (String, String),
    settings: Settings,
    begun: u64,
}

impl Sessions {
    /// Prepares the sessions. They are under way when the run begins, each connection in another turn, so that every moment has turns of
    /// all lengths.
    pub(super) fn new(settings: &Settings) -> Self {
        let mut random = Random::new(0x5e55);
        let envelope = envelope(settings);
        let beside = envelope.0.len() + envelope.1.len();
        let prepared = (0..SESSIONS).map(|_| prepare(settings, beside, &mut random)).collect();
        let mut sessions = Self { prepared, current: Vec::new(), envelope, settings: settings.clone(), begun: 0 };
        for connection in 0..settings.connections {
            let begun = sessions.begin(connection * TURNS / settings.connections.max(1));
            sessions.current.push(begun);
        }
        sessions
    }

    fn begin(&mut self, turn: usize) -> Current {
        let session = (self.begun % SESSIONS as u64) as usize;
        let mut messages = Vec::new();
        if let Some(prepared) = self.prepared.get(session) {
            messages.clone_from(&prepared.messages);
            for (number, at) in prepared.words.iter().enumerate() {
                if let Some(word) = messages.get_mut(*at..*at + WORD.len()) {
                    write_word(word, self.begun << 12 | number as u64);
                }
            }
        }
        let number = self.begun;
        self.begun += 1;
        Current { messages, session, number, turn }
    }

    /// Puts the next request of this connection's session into `out`, replacing what was there.
    pub(super) fn next_into(&mut self, connection: usize, out: &mut Vec<u8>) {
        out.clear();
        if self.current.get(connection).is_some_and(|current| current.turn >= TURNS) {
            let next = self.begin(0);
            if let Some(current) = self.current.get_mut(connection) {
                *current = next;
            }
        }
        let Some(current) = self.current.get_mut(connection) else { return };
        let ends = self.prepared.get(current.session).map(|session| session.ends.as_slice()).unwrap_or_default();
        let end = ends.get(current.turn).copied().unwrap_or_default();
        let messages = current.messages.get(..end).unwrap_or_default();
        let (before, behind) = &self.envelope;
        let length = before.len() + messages.len() + behind.len();
        out.extend_from_slice(head(&self.settings, length, current.number).as_bytes());
        out.extend_from_slice(before.as_bytes());
        out.extend_from_slice(messages);
        out.extend_from_slice(behind.as_bytes());
        current.turn += 1;
    }
}

/// The body without its messages: what stands before them, and behind them.
fn envelope(settings: &Settings) -> (String, String) {
    let stream = settings.stream;
    let tools = spelling::tools(settings.dialect);
    let instructions = quoted(INSTRUCTIONS);
    match settings.dialect {
        RequestDialect::Messages => (
            format!(
                r#"{{"model":"fake-small","max_tokens":4096,"system":{instructions},"tools":[{tools}],"messages":["#
            ),
            format!(r#"],"stream":{stream}}}"#),
        ),
        RequestDialect::Responses => (
            format!(r#"{{"model":"fake-small","instructions":{instructions},"tools":[{tools}],"input":["#),
            format!(r#"],"stream":{stream}}}"#),
        ),
        RequestDialect::Gemini => (
            format!(r#"{{"systemInstruction":{{"parts":[{{"text":{instructions}}}]}},"tools":[{tools}],"contents":["#),
            r#"],"generationConfig":{"maxOutputTokens":4096}}"#.to_owned(),
        ),
        RequestDialect::Chat | RequestDialect::Local => (
            format!(r#"{{"model":"fake-small","messages":[{{"role":"system","content":{instructions}}},"#),
            format!(r#"],"tools":[{tools}],"temperature":0.2,"stream":{stream}}}"#),
        ),
    }
}

fn prepare(settings: &Settings, beside: usize, random: &mut Random) -> Session {
    let mut messages = String::new();
    let mut ends = Vec::with_capacity(TURNS);
    let room = FIRST_BYTES.saturating_sub(beside + 200);
    let mut task = format!("Task {WORD}: ");
    prose::append(&mut task, room, random);
    messages.push_str(&spelling::turn(settings.dialect, true, &task));
    ends.push(messages.len());
    for turn in 1..TURNS {
        let target = FIRST_BYTES + (LAST_BYTES - FIRST_BYTES) * turn / (TURNS - 1) - beside;
        exchange(settings.dialect, turn, target, random, &mut messages);
        ends.push(messages.len());
    }
    let words = memchr::memmem::find_iter(messages.as_bytes(), WORD).collect();
    Session { messages: messages.into_bytes(), ends, words }
}

/// Adds a call of a tool and what it brought, until there are about `target` bytes.
fn exchange(dialect: RequestDialect, turn: usize, target: usize, random: &mut Random, messages: &mut String) {
    let (tool, _, argument) = TOOLS[turn % TOOLS.len()];
    let mut says = format!("Step {WORD}: ");
    prose::append(&mut says, 80 + random.below(160), random);
    let id = format!("call_{turn:04}{WORD}");
    let arguments = format!(r#"{{"{argument}":"src/{WORD}/part_{turn}.rs"}}"#);
    messages.push(',');
    messages.push_str(&spelling::call(dialect, &says, &id, tool, &arguments));
    let mut result = format!("{WORD}\n");
    let room = target.saturating_sub(messages.len() + 120);
    while quoted(&result).len() < room {
        let bytes = (room - quoted(&result).len()).min(1024);
        brought(turn, bytes, random, &mut result);
    }
    messages.push(',');
    messages.push_str(&spelling::result(dialect, &id, tool, &result));
}

/// Adds about so many bytes of what a tool brings: code, a listing, a log, or JSON.
fn brought(turn: usize, bytes: usize, random: &mut Random, out: &mut String) {
    let end = out.len() + bytes;
    while out.len() < end {
        let (thing, other) = (prose::thing(random).replace(' ', "_"), prose::thing(random).replace(' ', "_"));
        let number = random.below(10_000);
        let line = match turn % TOOLS.len() {
            0 => format!(
                "    pub fn {thing}(&self, {other}: &str) -> Result<usize, Error> {{\n        let {other} = self.find(\"{thing}\", {number})?;\n        Ok({other}.len())\n    }}\n"
            ),
            1 => format!("-rw-r--r--  {number:>6}  src/{thing}/{other}.rs\n"),
            2 => format!("test {thing}::{other}_{number} ... ok\n"),
            _ => format!("{{\"name\": \"{thing}\", \"kind\": \"{other}\", \"size\": {number}}},\n"),
        };
        out.push_str(&line);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::settings;
    use weir_fake_provider::http::{RequestReader, Step};

    fn bodies(settings: &Settings, connection: usize, count: usize) -> Vec<String> {
        let (mut sessions, mut reader, mut bytes) = (Sessions::new(settings), RequestReader::default(), Vec::new());
        let mut next = || {
            sessions.next_into(connection, &mut bytes);
            reader.push(&bytes);
            match reader.next_step() {
                Ok(Step::Complete(request)) => String::from_utf8(request.body.clone()).unwrap(),
                other => panic!("{other:?}"),
            }
        };
        (0..count).map(|_| next()).collect()
    }

    fn messages(body: &str) -> Vec<serde_json::Value> {
        let json: serde_json::Value = serde_json::from_str(body).unwrap();
        ["messages", "input", "contents"].iter().find_map(|name| json[name].as_array()).unwrap().clone()
    }

    #[test]
    fn a_session_grows_and_repeats_all_but_its_end() {
        for dialect in
            [RequestDialect::Chat, RequestDialect::Messages, RequestDialect::Responses, RequestDialect::Gemini]
        {
            let settings = Settings { dialect, connections: 1, ..settings() };
            let bodies = bodies(&settings, 0, TURNS + 1);
            let length = |turn: usize| bodies[turn].len() as f64;
            assert!((length(0) / FIRST_BYTES as f64 - 1.0).abs() < 0.1, "{}", length(0));
            assert!((length(TURNS - 1) / LAST_BYTES as f64 - 1.0).abs() < 0.02, "{}", length(TURNS - 1));
            for pair in bodies[..TURNS].windows(2) {
                let (one, next) = (messages(&pair[0]), messages(&pair[1]));
                assert!(next.len() >= one.len() + 2 && next[..one.len()] == one[..]);
            }
            let (former, fresh) = (messages(&bodies[0]), messages(&bodies[TURNS]));
            assert_eq!(fresh.len(), former.len());
            assert_ne!(fresh.last(), former.last(), "no message of one session stands in another");
        }
    }

    #[test]
    fn connections_are_in_different_turns() {
        let settings = Settings { connections: 5, ..settings() };
        let first: Vec<usize> = (0..5).map(|connection| bodies(&settings, connection, 1)[0].len()).collect();
        assert!(first.windows(2).all(|pair| pair[1] > pair[0] + 50_000), "{first:?}");
    }
}
