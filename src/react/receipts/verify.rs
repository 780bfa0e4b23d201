//! Checks receipts without a gateway: each line by itself, and that one follows on the other.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::hex::unhex;
use super::key::PublicKey;
use super::receipt::{NO_FORMER, hash, root, spelled};

/// What was found of lines that are all as they were signed.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// Receipts of calls.
    pub calls: u64,
    /// Checkpoints of the audit log: how many lines it had, and the hash of the last one.
    pub checkpoints: Vec<(u64, String)>,
    /// Receipts of sessions.
    pub sessions: u64,
    /// The number of the first receipt of the chain, and of the last one.
    pub from: u64,
    /// See `from`.
    pub to: u64,
    /// The hash of the last one.
    pub head: String,
}

/// Why a line is not what was signed.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {reason}")]
pub struct Tampering {
    /// Which line, from 1; of what is missing at the end, the last one.
    pub line: usize,
    /// What is wrong with it.
    pub reason: String,
}

/// Checks lines one after the other.
pub struct Verifier<'a> {
    keys: &'a [PublicKey],
    line: usize,
    gateway: Option<String>,
    last: Option<(u64, String)>,
    /// What a session's receipt in front of its calls says of them: these are not all of the chain.
    session: Option<Session>,
    found: Found,
}

struct Session {
    fields: Map<String, Value>,
    hashes: Vec<String>,
    sums: BTreeMap<&'static str, u64>,
}

/// What the receipt of a session adds up of its calls.
const SUMS: [&str; 4] = ["input_tokens", "output_tokens", "cost_nano_usd", "redactions"];

impl<'a> Verifier<'a> {
    /// By these keys.
    pub fn new(keys: &'a [PublicKey]) -> Self {
        Self { keys, line: 0, gateway: None, last: None, session: None, found: Found::default() }
    }

    /// Checks the next line.
    ///
    /// # Errors
    /// What is wrong with it; nothing behind it is checked then.
    pub fn check(&mut self, line: &str) -> Result<(), Tampering> {
        self.line += 1;
        self.look(line).map_err(|reason| Tampering { line: self.line, reason })
    }

    /// Whether all that was announced was there, and that the last one is `head`, where that is known.
    ///
    /// # Errors
    /// What is missing.
    pub fn finish(mut self, head: Option<&str>) -> Result<Found, Tampering> {
        let fault = |reason: String| Tampering { line: self.line, reason };
        if self.line == 0 {
            return Err(fault("there is no receipt".to_owned()));
        }
        if let Some(session) = self.session.take() {
            session.close().map_err(fault)?;
        }
        if head.is_some_and(|head| head != self.found.head) {
            return Err(fault(format!(
                "the last receipt has the hash {}: others are missing behind it",
                self.found.head
            )));
        }
        Ok(self.found)
    }

    fn look(&mut self, line: &str) -> Result<(), String> {
        let Ok(Value::Object(mut fields)) = serde_json::from_str::<Value>(line) else {
            return Err("it is no JSON object".to_owned());
        };
        if spelled(&fields) != line {
            return Err("it is not spelled as it was signed".to_owned());
        }
        let signature = fields.remove("signature").and_then(|signature| unhex(signature.as_str()?));
        let signature = signature.ok_or("it has no signature")?;
        let id = text(&fields, "key")?;
        let key = self.keys.iter().find(|key| key.id() == id).ok_or_else(|| format!("its key {id} is not known"))?;
        if !key.verifies(&spelled(&fields), &signature) {
            return Err("its signature is wrong".to_owned());
        }
        if fields.get("version").and_then(Value::as_u64) != Some(1) {
            return Err("its version is not 1".to_owned());
        }
        let gateway = text(&fields, "gateway")?;
        if self.gateway.get_or_insert_with(|| gateway.to_owned()).as_str() != gateway {
            return Err("it is of another gateway".to_owned());
        }
        let kind = text(&fields, "kind")?.to_owned();
        match kind.as_str() {
            "session" => self.begin_session(fields),
            kind @ ("call" | "audit") => {
                self.follow(&fields, line)?;
                self.count(kind, &fields, line)
            }
            kind => Err(format!("its kind `{kind}` is not known")),
        }
    }

    fn begin_session(&mut self, fields: Map<String, Value>) -> Result<(), String> {
        if self.line != 1 {
            return Err("the receipt of a session stands before those of its calls, in a file of its own".to_owned());
        }
        self.found.sessions = 1;
        self.session = Some(Session { fields, hashes: Vec::new(), sums: BTreeMap::new() });
        Ok(())
    }

    fn follow(&mut self, fields: &Map<String, Value>, line: &str) -> Result<(), String> {
        let seq = fields.get("seq").and_then(Value::as_u64).ok_or("it has no number")?;
        let previous = text(fields, "previous")?;
        match &self.last {
            Some((last, _)) if seq <= *last => return Err(format!("number {seq} stands behind {last}")),
            Some((last, former)) if seq == last + 1 && previous != former => {
                return Err("it does not follow on the line before it".to_owned());
            }
            Some((last, _)) if seq != last + 1 && self.session.is_none() => {
                return Err(format!("receipts are missing: number {seq} stands behind {last}"));
            }
            None if (seq == 1) != (previous == NO_FORMER) => return Err("it is not the first receipt".to_owned()),
            _ => {}
        }
        if self.last.is_none() {
            self.found.from = seq;
        }
        self.found.to = seq;
        self.found.head = hash(line);
        self.last = Some((seq, self.found.head.clone()));
        Ok(())
    }

    fn count(&mut self, kind: &str, fields: &Map<String, Value>, line: &str) -> Result<(), String> {
        if kind == "audit" {
            if self.session.is_some() {
                return Err("it is no call of the session".to_owned());
            }
            let entries = fields.get("entries").and_then(Value::as_u64).ok_or("it says nothing of the audit log")?;
            self.found.checkpoints.push((entries, text(fields, "head")?.to_owned()));
            return Ok(());
        }
        self.found.calls += 1;
        let Some(session) = &mut self.session else { return Ok(()) };
        if ["session_sha256", "tenant_id"].iter().any(|name| session.fields.get(*name) != fields.get(*name)) {
            return Err("it is no call of the session".to_owned());
        }
        session.hashes.push(hash(line));
        for name in SUMS {
            let more = fields.get(name).and_then(Value::as_u64).unwrap_or(0);
            let sum = session.sums.entry(name).or_default();
            *sum = sum.saturating_add(more);
        }
        Ok(())
    }
}

impl Session {
    fn close(self) -> Result<(), String> {
        let number = |name: &str| self.fields.get(name).and_then(Value::as_u64);
        if number("calls") != Some(self.hashes.len() as u64) {
            return Err("the session has another number of calls".to_owned());
        }
        if text(&self.fields, "calls_sha256")? != root(self.hashes.iter().map(String::as_str)) {
            return Err("the session has other calls".to_owned());
        }
        match self.sums.iter().find(|(name, sum)| number(name) != Some(**sum)) {
            Some((name, _)) => Err(format!("the session's `{name}` is not the sum of its calls'")),
            None => Ok(()),
        }
    }
}

/// What the receipt of a session says of its calls, whose lines these are.
pub(super) fn of_session(lines: &[String]) -> Map<String, Value> {
    let hashes: Vec<String> = lines.iter().map(|line| hash(line)).collect();
    let calls: Vec<Value> = lines.iter().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let mut fields = Map::new();
    for name in ["tenant_id", "session_sha256"] {
        fields.insert(name.to_owned(), calls.first().and_then(|call| call.get(name)).cloned().unwrap_or_default());
    }
    for name in SUMS {
        let sum = calls.iter().filter_map(|call| call.get(name)?.as_u64()).fold(0_u64, u64::saturating_add);
        fields.insert(name.to_owned(), sum.into());
    }
    fields.insert("calls".to_owned(), (lines.len() as u64).into());
    fields.insert("calls_sha256".to_owned(), root(hashes.iter().map(String::as_str)).into());
    fields
}

fn text<'a>(fields: &'a Map<String, Value>, name: &str) -> Result<&'a str, String> {
    fields.get(name).and_then(Value::as_str).ok_or_else(|| format!("it has no `{name}`"))
}
