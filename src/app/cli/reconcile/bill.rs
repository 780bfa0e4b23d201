//! What a provider's export says, whatever its form: rows with a time, a model, and what was counted or charged. Forms are told apart by the
//! names of their fields: OpenAI's usage and costs (JSON of the API, CSV of the dashboard), Anthropic's usage and cost reports (the
//! same), and a row for each call as OpenRouter and others write it.

use std::collections::BTreeMap;

use serde_json::Value;
use weir_config::vocab::Timestamp;

use super::amount::nano_usd;
use super::csv;

const MICROS: i64 = 1_000_000;
const DAY_S: i64 = 86_400;
/// Later than any time in seconds and earlier than any in milliseconds, and so on.
const MILLIS_FROM: i64 = 100_000_000_000;
const MICROS_FROM: i64 = MILLIS_FROM * 1_000;
const NANOS_FROM: i64 = MICROS_FROM * 1_000;

/// A row.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Row {
    /// The provider's id of the answer, where the row is about one call.
    pub(super) id: Option<String>,
    /// When it began, or the bucket, in microseconds; the end is not part of it.
    pub(super) from: i64,
    pub(super) to: i64,
    pub(super) model: Option<String>,
    pub(super) calls: Option<u64>,
    /// With what was read from a cache and written to it.
    pub(super) input: Option<u64>,
    pub(super) output: Option<u64>,
    pub(super) nano_usd: Option<i128>,
    pub(super) tier: Option<String>,
}

/// A form that is none of those known.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub(super) enum Unreadable {
    #[error("it is neither JSON, JSON Lines nor CSV with names over its columns")]
    Form,
    #[error(
        "no row has a time: a column such as `start_time`, `starting_at`, `usage_date_utc`, `date` or `created_at`"
    )]
    Time,
    #[error("no row says what was used: tokens, a number of requests, or a cost")]
    Nothing,
}

/// Reads an export; rows that say nothing are passed over.
pub(super) fn read(text: &str) -> Result<Vec<Row>, Unreadable> {
    let flat = match text.trim_start_matches('\u{feff}').trim_start().chars().next() {
        Some('{' | '[') => of_json(text)?,
        Some(_) => csv::rows(text).into_iter().map(BTreeMap::from_iter).collect(),
        None => return Err(Unreadable::Form),
    };
    if flat.iter().all(|fields| fields.len() < 2) {
        return Err(Unreadable::Form);
    }
    let timed: Vec<(Fields, (i64, i64))> =
        flat.into_iter().filter_map(|fields| time_of(&fields).map(|time| (fields, time))).collect();
    if timed.is_empty() {
        return Err(Unreadable::Time);
    }
    let rows: Vec<Row> = timed.iter().map(|(fields, time)| row(fields, *time)).filter(Row::says_something).collect();
    if rows.is_empty() { Err(Unreadable::Nothing) } else { Ok(rows) }
}

impl Row {
    fn says_something(&self) -> bool {
        self.calls.is_some() || self.input.is_some() || self.output.is_some() || self.nano_usd.is_some()
    }
}

/// Fields of a row by their names, those within others with a dot.
type Fields = BTreeMap<String, String>;

/// One document, or a document a line.
fn of_json(text: &str) -> Result<Vec<Fields>, Unreadable> {
    let whole: Result<Value, _> = serde_json::from_str(text);
    let documents = match whole {
        Ok(document) => vec![document],
        Err(_) => {
            let lines = text.lines().filter(|line| !line.trim().is_empty());
            lines.map(serde_json::from_str).collect::<Result<Vec<Value>, _>>().map_err(|_| Unreadable::Form)?
        }
    };
    let mut rows = Vec::new();
    documents.iter().for_each(|document| collect(document, &Fields::new(), &mut rows));
    Ok(rows)
}

/// Rows stand in lists, within `data` and `results`; what stands beside a list holds for all of it.
fn collect(value: &Value, above: &Fields, rows: &mut Vec<Fields>) {
    match value {
        Value::Array(items) => items.iter().for_each(|item| collect(item, above, rows)),
        Value::Object(object) => {
            let lists =
                ["data", "results", "buckets", "rows"].map(|name| object.get(name).filter(|list| list.is_array()));
            let mut fields = above.clone();
            for (name, value) in object.iter().filter(|(_, value)| !value.is_array()) {
                flatten(name, value, &mut fields);
            }
            match lists.into_iter().flatten().next() {
                Some(list) => collect(list, &fields, rows),
                None => rows.push(fields),
            }
        }
        _ => {}
    }
}

fn flatten(name: &str, value: &Value, fields: &mut Fields) {
    match value {
        Value::Object(object) => {
            object.iter().for_each(|(inner, value)| flatten(&format!("{name}.{inner}"), value, fields));
        }
        Value::String(text) => drop(fields.insert(name.to_ascii_lowercase(), text.clone())),
        Value::Number(_) | Value::Bool(_) => drop(fields.insert(name.to_ascii_lowercase(), value.to_string())),
        Value::Null | Value::Array(_) => {}
    }
}

const IDS: &[&str] = &["response_id", "generation_id", "request_id", "completion_id", "id"];
const BEGINS: &[&str] = &[
    "start_time",
    "starting_at",
    "bucket_start",
    "usage_date_utc",
    "start_time_iso",
    "date",
    "day",
    "timestamp",
    "created_at",
    "created",
    "time",
];
const ENDS: &[&str] = &["end_time", "ending_at", "bucket_end", "end_time_iso"];
const MODELS: &[&str] = &["model", "model_version", "snapshot_id", "model_permaslug", "model_id", "model_name"];
const CALLS: &[&str] = &["num_model_requests", "num_requests", "n_requests", "requests", "request_count", "calls"];
/// All that was read.
const INPUT: &[&str] =
    &["input_tokens", "prompt_tokens", "tokens_prompt", "n_context_tokens_total", "usage.prompt_tokens"];
/// What was read and not cached, where that is all that the form says beside the caches.
const UNCACHED: &[&str] = &["uncached_input_tokens", "usage_input_tokens_no_cache"];
const CACHES: &[&str] = &[
    "cache_read_input_tokens",
    "usage_input_tokens_cache_read",
    "cache_creation_input_tokens",
    "cache_creation.ephemeral_5m_input_tokens",
    "cache_creation.ephemeral_1h_input_tokens",
    "usage_input_tokens_cache_write_5m",
    "usage_input_tokens_cache_write_1h",
];
const OUTPUT: &[&str] = &[
    "output_tokens",
    "completion_tokens",
    "tokens_completion",
    "usage_output_tokens",
    "n_generated_tokens_total",
    "usage.completion_tokens",
];
const DOLLARS: &[&str] =
    &["amount.value", "amount_value", "cost_usd", "cost_total", "total_cost", "cost", "usage_usd", "amount_usd"];
const TIERS: &[&str] = &["service_tier", "tier", "usage_type"];
const ITEMS: &[&str] = &["line_item", "description"];

fn first<'a>(fields: &'a Fields, names: &[&str]) -> Option<&'a str> {
    names.iter().find_map(|name| fields.get(*name)).map(|text| text.trim()).filter(|text| !text.is_empty())
}

fn count(fields: &Fields, names: &[&str]) -> Option<u64> {
    let text = first(fields, names)?;
    text.parse().ok().or_else(|| text.parse::<f64>().ok().filter(|n| (0.0..9e15).contains(n)).map(|n| n as u64))
}

fn row(fields: &Fields, (from, to): (i64, i64)) -> Row {
    let sum = |names: &[&str]| {
        let counts = names.iter().filter_map(|name| count(fields, &[name]));
        counts.reduce(u64::saturating_add)
    };
    let input = match count(fields, UNCACHED) {
        Some(uncached) => Some(uncached.saturating_add(sum(CACHES).unwrap_or(0))),
        // Anthropic's own usage counts the caches beside what was read.
        None if fields.contains_key("cache_creation_input_tokens") => {
            sum(INPUT).map(|input| input.saturating_add(sum(CACHES).unwrap_or(0)))
        }
        None => count(fields, INPUT),
    };
    let dollars = first(fields, DOLLARS).and_then(|text| nano_usd(text, 0));
    // Anthropic's cost report is in cents, OpenAI's in dollars within `amount`.
    let cents = || fields.get("amount").filter(|_| fields.contains_key("currency")).and_then(|text| nano_usd(text, 2));
    let by_item = || first(fields, ITEMS).and_then(|item| item.split([',', ' ']).next()).map(str::to_owned);
    let is_batch = fields.get("batch").is_some_and(|batch| batch == "true");
    let tier = first(fields, TIERS)
        .map(|tier| tier.to_ascii_lowercase())
        .filter(|tier| !matches!(tier.as_str(), "standard" | "default"));
    Row {
        // A bucket has an end.
        id: first(fields, IDS).filter(|_| first(fields, ENDS).is_none()).map(str::to_owned),
        from,
        to,
        model: first(fields, MODELS).map(str::to_owned).or_else(by_item),
        calls: count(fields, CALLS),
        input,
        output: count(fields, OUTPUT),
        nano_usd: dollars.or_else(cents),
        tier: if is_batch { Some("batch".to_owned()) } else { tier },
    }
}

fn time_of(fields: &Fields) -> Option<(i64, i64)> {
    let (from, is_day) = BEGINS.iter().filter_map(|name| fields.get(*name)).find_map(|text| moment(text))?;
    let to = ENDS.iter().filter_map(|name| fields.get(*name)).find_map(|text| moment(text)).map(|(to, _)| to);
    let usual = if is_day { DAY_S * MICROS } else { 0 };
    Some((from, to.filter(|to| *to > from).unwrap_or(from.saturating_add(usual))))
}

/// A time in microseconds, and whether it is a whole day.
fn moment(text: &str) -> Option<(i64, bool)> {
    let text = text.trim();
    if let Ok(number) = text.parse::<f64>() {
        let whole = number as i64;
        let micros = match whole {
            ..MILLIS_FROM => (number * 1e6) as i64,
            MILLIS_FROM..MICROS_FROM => whole.saturating_mul(1_000),
            MICROS_FROM..NANOS_FROM => whole,
            NANOS_FROM.. => whole / 1_000,
        };
        return (whole > 0).then_some((micros, false));
    }
    let is_day = text.len() == 10;
    let iso = text.trim_end_matches(" UTC").replacen(' ', "T", 1);
    let iso = match iso.len() {
        10 => format!("{iso}T00:00:00Z"),
        16 => format!("{iso}:00Z"),
        _ if iso.get(10..).is_some_and(|rest| rest.contains(['Z', 'z', '+', '-'])) => iso,
        _ => format!("{iso}Z"),
    };
    iso.parse::<Timestamp>().ok().map(|at| (at.micros(), is_day))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const DAY: i64 = 1_761_955_200_000_000; // 2025-11-01

    fn bucket(model: &str, calls: Option<u64>, input: u64, output: u64) -> Row {
        let (input, output) = (Some(input), Some(output));
        Row {
            from: DAY,
            to: DAY + DAY_S * MICROS,
            model: Some(model.to_owned()),
            calls,
            input,
            output,
            ..Row::default()
        }
    }

    #[test]
    fn openai_usage_and_costs_are_read() {
        let api = r#"{"object":"page","data":[{"object":"bucket","start_time":1761955200,"end_time":1762041600,"results":[
            {"object":"organization.usage.completions.result","input_tokens":5000,"output_tokens":1000,"input_cached_tokens":4000,
             "num_model_requests":5,"model":"gpt-4o-2024-08-06","batch":null,"service_tier":null}]}],"has_more":false}"#;
        assert_eq!(read(api), Ok(vec![bucket("gpt-4o-2024-08-06", Some(5), 5_000, 1_000)]));
        let csv = "start_time,end_time,start_time_iso,project_id,num_model_requests,model,batch,input_tokens,output_tokens\n\
                   1761955200,1762041600,2025-11-01T00:00:00+00:00,p,5,gpt-4o-2024-08-06,false,5000,1000\n";
        assert_eq!(read(csv), Ok(vec![bucket("gpt-4o-2024-08-06", Some(5), 5_000, 1_000)]));
        let costs = r#"{"data":[{"start_time":1761955200,"end_time":1762041600,"results":[
            {"object":"organization.costs.result","amount":{"value":0.06,"currency":"usd"},"line_item":"gpt-4o-2024-08-06, input"}]}]}"#;
        let read = read(costs).unwrap().remove(0);
        assert_eq!((read.nano_usd, read.model.as_deref()), (Some(60_000_000), Some("gpt-4o-2024-08-06")));
    }

    #[test]
    fn anthropic_usage_and_costs_are_read() {
        let api = r#"{"data":[{"starting_at":"2025-11-01T00:00:00Z","ending_at":"2025-11-02T00:00:00Z","results":[
            {"uncached_input_tokens":1500,"cache_creation":{"ephemeral_1h_input_tokens":1000,"ephemeral_5m_input_tokens":500},
             "cache_read_input_tokens":200,"output_tokens":500,"model":"claude-sonnet-4-20250514","service_tier":"standard"}]}]}"#;
        assert_eq!(read(api), Ok(vec![bucket("claude-sonnet-4-20250514", None, 3_200, 500)]));
        let csv = "usage_date_utc,model_version,api_key,workspace,usage_type,usage_input_tokens_no_cache,usage_input_tokens_cache_write_5m,\
                   usage_input_tokens_cache_write_1h,usage_input_tokens_cache_read,usage_output_tokens\n\
                   2025-11-01,claude-sonnet-4-20250514,k,Default,standard,1500,500,1000,200,500\n";
        assert_eq!(read(csv), Ok(vec![bucket("claude-sonnet-4-20250514", None, 3_200, 500)]));
        let costs = r#"{"data":[{"starting_at":"2025-11-01T00:00:00Z","ending_at":"2025-11-02T00:00:00Z","results":[
            {"currency":"USD","amount":"123.78912","model":"claude-x","service_tier":"batch"}]}]}"#;
        let read = read(costs).unwrap().remove(0);
        assert_eq!((read.nano_usd, read.tier.as_deref()), (Some(1_237_891_200), Some("batch")));
    }

    #[test]
    fn calls_one_by_one_are_read() {
        let csv = "generation_id,created_at,cost_total,tokens_prompt,tokens_completion,model_permaslug\n\
                   gen-1,2025-11-01 10:00:00.5,0.000002,12,3,openai/gpt-4o\n";
        let read = read(csv).unwrap().remove(0);
        assert_eq!(
            (read.id.as_deref(), read.from, read.to),
            (Some("gen-1"), DAY + 36_000_500_000, DAY + 36_000_500_000)
        );
        assert_eq!((read.nano_usd, read.input, read.output), (Some(2_000), Some(12), Some(3)));
        let lines = "{\"id\":\"chatcmpl-1\",\"created\":1761955200,\"model\":\"m\",\"usage\":{\"prompt_tokens\":4}}\n{\"id\":\"b\",\"created\":1761955200000,\"cost\":1}\n";
        let read = super::read(lines).unwrap();
        assert_eq!((read[0].input, read[0].from, read[1].from), (Some(4), DAY, DAY));
    }

    #[test]
    fn what_is_none_says_why() {
        assert_eq!(read(""), Err(Unreadable::Form));
        assert_eq!(read("{nonsense"), Err(Unreadable::Form));
        assert_eq!(read("model,cost\nx,1\n"), Err(Unreadable::Time));
        assert_eq!(read("date,model\n2025-11-01,x\n"), Err(Unreadable::Nothing));
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "\\PC{0,120}|[\\{\\[\"a-z:,0-9\\]\\}\n]{0,120}") {
            drop(read(&text));
        }
    }
}
