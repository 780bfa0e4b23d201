//! The analytics store: statements and questions over the HTTP interface that ClickHouse speaks.
//!
//! What a question is about goes in as parameters, never as text of a statement; rows come and go as JSON, one a line, so that columns
//! which one side does not know do no harm.

use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde_json::Value;
use weir_config::store_url::StoreUrl;

use super::posts::Http;
use super::tls;
use crate::error::ReadError;

/// How long a question may take, and its answer.
const READ_WAIT: Duration = Duration::from_secs(5);
/// How long a batch may take to be taken in.
const INSERT_WAIT: Duration = Duration::from_secs(30);
/// Oldest version that has all that is used.
pub(super) const OLDEST: (u32, u32) = (24, 8);

/// The analytics store.
pub(super) struct Analytics {
    http: Http,
    database: String,
    pub(super) shown: String,
}

/// Parameters of a question, by name.
#[derive(Debug, Default, Clone)]
pub(super) struct Params(String);

impl Params {
    /// A value as ClickHouse reads it in a parameter: its escapes, then those of an address.
    pub(super) fn put(&mut self, name: &str, value: &str) {
        let escaped = value.replace('\\', "\\\\").replace('\t', "\\t").replace('\n', "\\n").replace('\r', "\\r");
        let _infallible = write!(self.0, "&param_{name}={}", encoded(&escaped)).is_ok();
    }

    /// Those of another one, too.
    pub(super) fn append(&mut self, other: &Self) {
        self.0.push_str(&other.0);
    }

    pub(super) fn with(mut self, name: &str, value: impl ToString) -> Self {
        self.put(name, &value.to_string());
        self
    }
}

/// A text in an address.
fn encoded(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            let _infallible = write!(out, "%{byte:02X}").is_ok();
        }
    }
    out
}

impl Analytics {
    /// Connects to nothing yet.
    pub(super) fn new(url: &StoreUrl, database: Option<&str>, ca_file: Option<&Path>) -> Result<Self, String> {
        let tls = (url.scheme == "https").then(|| tls::checked(ca_file)).transpose()?;
        let mut headers = Vec::new();
        if !url.user.is_empty() {
            headers.push(("x-clickhouse-user", url.user.as_str()));
        }
        if let Some(password) = &url.password {
            headers.push(("x-clickhouse-key", password.as_str()));
        }
        let http = Http::new(url, tls, &headers)?;
        Ok(Self { http, database: database.unwrap_or("default").to_owned(), shown: url.shown() })
    }

    fn send(&self, params: &str, body: &[u8], within: Duration) -> Result<Vec<u8>, ReadError> {
        let unavailable = |reason: String| ReadError::Unavailable { reason: format!("the analytics store: {reason}") };
        let query = format!(
            "database={}&wait_end_of_query=1&default_format=JSONEachRow&output_format_json_quote_64bit_integers=0{params}",
            encoded(&self.database)
        );
        let answer =
            self.http.post(&query, body, within).map_err(|error| unavailable(format!("{}: {error}", self.shown)))?;
        if answer.status == 200 {
            return Ok(answer.body);
        }
        let said = String::from_utf8_lossy(&answer.body);
        let first = said.lines().next().unwrap_or_default().chars().take(300).collect::<String>();
        Err(unavailable(format!("it answered {}: {first}", answer.status)))
    }

    /// Makes a statement.
    pub(super) fn run(&self, statement: &str) -> Result<(), ReadError> {
        self.run_with(statement, &Params::default())
    }

    pub(super) fn run_with(&self, statement: &str, params: &Params) -> Result<(), ReadError> {
        self.send(&params.0, statement.as_bytes(), INSERT_WAIT).map(|_| ())
    }

    /// Puts lines into a table; a batch of this token that is there already changes nothing.
    pub(super) fn insert(&self, table: &str, token: &str, lines: &[u8]) -> Result<(), ReadError> {
        // The token is made of digits and dashes.
        let statement = format!(
            "INSERT INTO {table} SETTINGS async_insert = 0, max_partitions_per_insert_block = 0, \
             input_format_skip_unknown_fields = 1, insert_deduplication_token = '{token}' FORMAT JSONEachRow\n"
        );
        self.send("", &[statement.as_bytes(), lines].concat(), INSERT_WAIT).map(|_| ())
    }

    /// The rows of an answer.
    pub(super) fn ask<T: DeserializeOwned>(&self, question: &str, params: &Params) -> Result<Vec<T>, ReadError> {
        let body = self.send(&params.0, question.as_bytes(), READ_WAIT)?;
        let lines = body.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        lines
            .map(|line| {
                serde_json::from_slice(line).map_err(|error| ReadError::Unavailable {
                    reason: format!("the analytics store: a row cannot be read: {error}"),
                })
            })
            .collect()
    }

    /// Whether it answers.
    pub(super) fn probe(&self) -> Result<(), ReadError> {
        self.send("", b"SELECT 1", READ_WAIT).map(|_| ())
    }

    /// Its version, as it says it.
    pub(super) fn version(&self) -> Result<String, ReadError> {
        let rows: Vec<Value> = self.ask("SELECT version() AS v", &Params::default())?;
        let version = rows.first().and_then(|row| row.get("v")).and_then(Value::as_str);
        Ok(version.unwrap_or_default().to_owned())
    }

    /// The steps of its schema that were applied, with their prints.
    pub(super) fn applied(&self) -> Result<Vec<(i64, String)>, ReadError> {
        let there: Vec<Value> = self.ask("EXISTS TABLE weir_migrations", &Params::default())?;
        if there.first().and_then(|row| row.get("result")).and_then(Value::as_i64) != Some(1) {
            return Ok(Vec::new());
        }
        let question = "SELECT number, print FROM weir_migrations FINAL ORDER BY number";
        let rows: Vec<(i64, String)> = self
            .ask::<Value>(question, &Params::default())?
            .into_iter()
            .filter_map(|row| Some((row.get("number")?.as_i64()?, row.get("print")?.as_str()?.to_owned())))
            .collect();
        Ok(rows)
    }

    pub(super) fn note_applied(&self, number: i64, print: &str) -> Result<(), ReadError> {
        self.run("CREATE TABLE IF NOT EXISTS weir_migrations (number Int64, print String) ENGINE = ReplacingMergeTree ORDER BY number")?;
        self.insert(
            "weir_migrations",
            &format!("{number}"),
            serde_json::json!({"number": number, "print": print}).to_string().as_bytes(),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parameter_carries_any_text() {
        let params = Params::default().with("a", "x'\\\n&=%");
        assert_eq!(params.0, "&param_a=x%27%5C%5C%5Cn%26%3D%25");
    }
}
