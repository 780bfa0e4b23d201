//! Query parameters: typed, bounded, and none tolerated that nobody knows.
//!
//! A misspelt filter that is silently ignored shows data the caller did not ask for, so an unknown or repeated parameter
//! is 400 and the message lists the accepted ones. Invariant: every value is checked here; handlers see typed filters.
//! Knows no routes and no store.

use std::str::FromStr;

use axum::extract::Query;
use http::Uri;
use weir_config::vocab::Timestamp;
use weir_storage::query::{Page, SpanFilter, TraceFilter};

use super::error::ErrorAnswer;

/// `limit` when none is given.
pub(super) const LIMIT_DEFAULT: u32 = 50;
/// Larger limits are clamped to this.
pub(super) const LIMIT_MAX: u32 = 1_000;

/// A query parameter a route accepts.
#[derive(Debug)]
pub(super) struct Parameter {
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    /// What it does, for the document.
    pub(super) says: &'static str,
}

/// What a parameter's value may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// An RFC 3339 time.
    Time,
    /// A text that is not empty.
    Text,
    /// 0 to 100.
    Score,
    /// A UUID.
    Id,
    /// `true` or `false`.
    Flag,
    /// Items of a page.
    Limit,
    /// Items to skip.
    Offset,
}

const fn parameter(name: &'static str, kind: Kind, says: &'static str) -> Parameter {
    Parameter { name, kind, says }
}

const MODEL: Parameter = parameter("model", Kind::Text, "Exact model name.");
const OPERATION: Parameter = parameter("operation_name", Kind::Text, "Exact operation, e.g. `chat_completion`.");
const SCORE_MIN: Parameter = parameter("security_score_min", Kind::Score, "Lowest score, inclusive.");
const SCORE_MAX: Parameter = parameter("security_score_max", Kind::Score, "Highest score, inclusive.");
const LIMIT: Parameter = parameter(
    "limit",
    Kind::Limit,
    "Items of the page; more than 1000 means 1000. Left out, 50, or as many as 64 MiB hold where that is less: the answer's \
     `limit` says how many.",
);
const OFFSET: Parameter = parameter("offset", Kind::Offset, "Items to skip.");

/// Of the trace list.
pub(super) const TRACES: &[Parameter] = &[
    parameter("start_time", Kind::Time, "Traces created at this time or later."),
    parameter("end_time", Kind::Time, "Traces created at this time or earlier."),
    parameter("provider", Kind::Text, "Exact provider, e.g. `openai`."),
    MODEL,
    LIMIT,
    OFFSET,
];
/// Of the span list.
pub(super) const SPANS: &[Parameter] = &[SCORE_MIN, SCORE_MAX, OPERATION, MODEL, LIMIT, OFFSET];
/// Of the summary of actions.
pub(super) const ACTIONS: &[Parameter] = &[SCORE_MIN, SCORE_MAX, OPERATION, MODEL];
/// Of the audit log.
pub(super) const AUDIT: &[Parameter] = &[
    parameter("tenant_id", Kind::Id, "Only what concerns this tenant."),
    parameter(
        "verify",
        Kind::Flag,
        "`true` checks every line of the log for changes, `false` none; left out, what is on the page and what is younger \
         than the last check of every line, which is repeated after ten minutes.",
    ),
    LIMIT,
    OFFSET,
];
/// Of the list of keys.
pub(super) const KEYS: &[Parameter] = &[
    parameter("tenant_id", Kind::Id, "Whose keys; without it those of the tenant the caller acts for."),
    LIMIT,
    OFFSET,
];
/// Of a list without filters.
pub(super) const PAGE: &[Parameter] = &[LIMIT, OFFSET];

/// Of the spend snapshot.
pub(super) const COSTS: &[Parameter] =
    &[parameter("agent_id", Kind::Text, "The agent; without it the one of requests that name none, `_default`.")];

/// Filters and page of the trace list.
pub(super) fn trace_list(parameters: &Parameters) -> Result<(TraceFilter, Page), ErrorAnswer> {
    let filter = TraceFilter {
        start_time: parameters.time("start_time")?,
        end_time: parameters.time("end_time")?,
        provider: parameters.text("provider")?,
        model: parameters.text("model")?,
    };
    if filter.start_time.zip(filter.end_time).is_some_and(|(start, end)| start > end) {
        return Err(ErrorAnswer::invalid("`end_time` is before `start_time`"));
    }
    Ok((filter, parameters.page()?))
}

/// Filters and page of the span list.
pub(super) fn span_list(parameters: &Parameters) -> Result<(SpanFilter, Page), ErrorAnswer> {
    Ok((span_filter(parameters)?, parameters.page()?))
}

/// Filters of the span list.
pub(super) fn span_filter(parameters: &Parameters) -> Result<SpanFilter, ErrorAnswer> {
    let filter = SpanFilter {
        security_score_min: parameters.score("security_score_min")?,
        security_score_max: parameters.score("security_score_max")?,
        operation_name: parameters.text("operation_name")?,
        model: parameters.text("model")?,
    };
    if filter.security_score_min.zip(filter.security_score_max).is_some_and(|(min, max)| min > max) {
        return Err(ErrorAnswer::invalid("`security_score_max` is below `security_score_min`"));
    }
    Ok(filter)
}

/// The decoded pairs of a query, each name known and given once.
#[derive(Debug, Default)]
pub(super) struct Parameters(Vec<(String, String)>);

impl Parameters {
    /// Reads the query of `uri`; what is not in `accepted` is refused.
    pub(super) fn read(uri: &Uri, accepted: &[Parameter]) -> Result<Self, ErrorAnswer> {
        let Query(pairs) = Query::<Vec<(String, String)>>::try_from_uri(uri)
            .map_err(|_| ErrorAnswer::invalid("the query is not a list of name=value pairs"))?;
        for (at, (name, _)) in pairs.iter().enumerate() {
            if !accepted.iter().any(|known| known.name == name) {
                let shown: String = name.chars().take(64).collect();
                let names: Vec<&str> = accepted.iter().map(|known| known.name).collect();
                let names = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
                return Err(ErrorAnswer::invalid(format!("unknown query parameter `{shown}`; accepted here: {names}")));
            }
            if pairs.iter().take(at).any(|(earlier, _)| earlier == name) {
                return Err(ErrorAnswer::invalid(format!("`{name}` is given more than once")));
            }
        }
        Ok(Self(pairs))
    }

    fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// A text that is not empty.
    pub(super) fn text(&self, name: &str) -> Result<Option<String>, ErrorAnswer> {
        match self.get(name) {
            Some("") => Err(ErrorAnswer::invalid(format!("`{name}` is empty; leave it out to match any value"))),
            value => Ok(value.map(str::to_owned)),
        }
    }

    /// An RFC 3339 time.
    pub(super) fn time(&self, name: &str) -> Result<Option<Timestamp>, ErrorAnswer> {
        let Some(text) = self.get(name) else { return Ok(None) };
        // An offset's plus sign, when not percent-encoded, has been decoded to a blank.
        let parsed = text.parse().or_else(|fault| match text.len().checked_sub("+00:00".len()) {
            Some(at) if text.as_bytes().get(at) == Some(&b' ') => text.replace(' ', "+").parse(),
            _ => Err(fault),
        });
        let refused =
            |_| ErrorAnswer::invalid(format!("`{name}` must be an RFC 3339 time such as 2026-01-31T12:00:00Z"));
        parsed.map(Some).map_err(refused)
    }

    /// An id.
    pub(super) fn id<T: FromStr>(&self, name: &str) -> Result<Option<T>, ErrorAnswer> {
        let Some(text) = self.get(name) else { return Ok(None) };
        let refused = |_| ErrorAnswer::invalid(format!("`{name}` must be a UUID"));
        text.parse().map(Some).map_err(refused)
    }

    /// A flag.
    pub(super) fn flag(&self, name: &str) -> Result<Option<bool>, ErrorAnswer> {
        match self.get(name) {
            None => Ok(None),
            Some("true") => Ok(Some(true)),
            Some("false") => Ok(Some(false)),
            Some(_) => Err(ErrorAnswer::invalid(format!("`{name}` must be `true` or `false`"))),
        }
    }

    /// A score.
    pub(super) fn score(&self, name: &str) -> Result<Option<u8>, ErrorAnswer> {
        let Some(text) = self.get(name) else { return Ok(None) };
        let score = number(text).and_then(|score| u8::try_from(score).ok()).filter(|score| *score <= 100);
        score.map(Some).ok_or_else(|| ErrorAnswer::invalid(format!("`{name}` must be a whole number from 0 to 100")))
    }

    /// The page; 50 items from the first one on when nothing else is said, or fewer where an answer has no room for them.
    pub(super) fn page(&self) -> Result<Page, ErrorAnswer> {
        let asked = self.get("limit").map(number);
        let limit = match asked {
            None => LIMIT_DEFAULT,
            Some(Some(limit)) if limit > 0 => u32::try_from(limit).unwrap_or(LIMIT_MAX).min(LIMIT_MAX),
            Some(_) => {
                let message =
                    format!("`limit` must be a whole number of at least 1; more than {LIMIT_MAX} means {LIMIT_MAX}");
                return Err(ErrorAnswer::invalid(message));
            }
        };
        // The store counts rows in signed 64-bit numbers.
        let offset = match self.get("offset").map(number) {
            None => 0,
            Some(Some(offset)) if i64::try_from(offset).is_ok() => offset,
            Some(_) => return Err(ErrorAnswer::invalid("`offset` must be a whole number of at least 0")),
        };
        Ok(Page { limit, offset, or_fewer: asked.is_none() })
    }
}

/// Digits only (no sign, no blank); a number beyond 64 bits counts as the largest.
fn number(text: &str) -> Option<u64> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| text.parse().unwrap_or(u64::MAX))
}
