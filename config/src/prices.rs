//! What a model costs, and the files that say so.
//!
//! Prices are whole picodollars per token: the dearest and the cheapest public price are both exact in them, so sums have
//! no rounding until the end. A pricing file is YAML or JSON in one of three forms: `models: {name: {input_per_million,
//! ...}}`, the same map at the top, or the open price map with `input_cost_per_token`. Invariant: a file is taken whole or
//! not at all. Knows no model by name.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use serde_json::{Map, Number, Value};

use crate::yaml;

/// Largest pricing file that is read.
const FILE_BYTES_MAX: u64 = 32 << 20;
/// Dearest price that is believed: one dollar per token.
const PICO_USD_MAX: f64 = 1e12;

/// Prices of one model in picodollars (10^-12 USD) per token. What has no price of its own is charged as input or output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Price {
    /// Tokens the model reads.
    pub input: u64,
    /// Tokens the model writes.
    pub output: u64,
    /// Input tokens read from the provider's cache.
    pub cache_read: Option<u64>,
    /// Input tokens written to the provider's cache.
    pub cache_write: Option<u64>,
    /// Input tokens written to the provider's cache to be kept for the longer of its times: an hour, or twelve.
    pub cache_write_1h: Option<u64>,
    /// Output tokens spent on reasoning.
    pub reasoning: Option<u64>,
    /// Rates of a whole request whose input is longer than a number of tokens.
    pub above: Option<Above>,
    /// Tokens have no price: the model is charged by something else.
    pub tokens_unpriced: bool,
    /// Rates of the service tiers that have their own.
    pub tiers: Tiers,
    /// What is charged otherwise than text.
    pub media: MediaRates,
}

/// Rates of service tiers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Tiers {
    /// Answered before others.
    pub priority: Option<TierRates>,
    /// Answered when there is room.
    pub flex: Option<TierRates>,
    /// Answered within a day.
    pub batch: Option<TierRates>,
}

/// The rates of one tier. A unit without a rate here costs what it costs in the standard tier.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TierRates {
    /// As in [`Price`].
    pub input: u64,
    /// As in [`Price`].
    pub output: u64,
    /// As in [`Price`].
    pub cache_read: Option<u64>,
    /// As in [`Price`].
    pub cache_write: Option<u64>,
    /// As in [`Price`].
    pub cache_write_1h: Option<u64>,
    /// As in [`Price`].
    pub above: Option<Above>,
}

/// Rates in picodollars of what is no text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MediaRates {
    /// A prompt token of sound.
    pub audio_in: Option<u64>,
    /// The same, read from a cache.
    pub audio_cached: Option<u64>,
    /// A prompt token of a picture.
    pub image_in: Option<u64>,
    /// A prompt token of a film.
    pub video_in: Option<u64>,
    /// A completion token of sound.
    pub audio_out: Option<u64>,
    /// A completion token of a picture.
    pub image_out: Option<u64>,
    /// A second of sound that is listened to.
    pub second: Option<u64>,
    /// A character that is spoken.
    pub character: Option<u64>,
    /// A picture that is made.
    pub image: Option<u64>,
    /// A search in the web.
    pub web_search: Option<u64>,
}

impl MediaRates {
    /// The rate of this name in the built-in list.
    fn slot(&mut self, name: &str) -> Option<&mut Option<u64>> {
        Some(match name {
            "audio_in" => &mut self.audio_in,
            "audio_cached" => &mut self.audio_cached,
            "image_in" => &mut self.image_in,
            "video_in" => &mut self.video_in,
            "audio_out" => &mut self.audio_out,
            "image_out" => &mut self.image_out,
            "second" => &mut self.second,
            "character" => &mut self.character,
            "image" => &mut self.image,
            "web_search" => &mut self.web_search,
            _ => return None,
        })
    }
}

/// The columns of the open price map for these rates, under the names of the built-in list.
const MEDIA_COLUMNS: [(&str, &str); 9] = [
    ("audio_in", "input_cost_per_audio_token"),
    ("audio_cached", "cache_read_input_audio_token_cost"),
    ("image_in", "input_cost_per_image_token"),
    ("video_in", "input_cost_per_video_token"),
    ("audio_out", "output_cost_per_audio_token"),
    ("image_out", "output_cost_per_image_token"),
    ("second", "input_cost_per_second"),
    ("character", "input_cost_per_character"),
    ("image", "output_cost_per_image"),
];

/// The rates of long requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Above {
    /// They hold from one input token more than this.
    pub tokens: u64,
    /// As in [`Price`]; `None` is the general rate.
    pub input: Option<u64>,
    /// As in [`Price`].
    pub output: Option<u64>,
    /// As in [`Price`].
    pub cache_read: Option<u64>,
    /// As in [`Price`].
    pub cache_write: Option<u64>,
    /// As in [`Price`].
    pub cache_write_1h: Option<u64>,
}

/// Why a pricing file is not usable.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("cost_estimation.pricing_file {file}: {problem}")]
pub struct PriceFileError {
    /// The file.
    pub file: String,
    /// What is wrong and what to do.
    pub problem: String,
}

// === reading a file ===

/// Reads a pricing file: model name, as written, and its price.
///
/// # Errors
/// The first thing that is wrong with it.
pub fn read_file(path: &Path) -> Result<Vec<(String, Price)>, PriceFileError> {
    let fail = |problem: String| PriceFileError { file: path.display().to_string(), problem };
    let mut text = String::new();
    let read = File::open(path).and_then(|file| file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text));
    read.map_err(|error| fail(format!("cannot be read: {error}; correct the path or the permissions")))?;
    if text.len() as u64 > FILE_BYTES_MAX {
        return Err(fail(format!("is larger than {FILE_BYTES_MAX} bytes; leave out the models you do not use")));
    }
    parse(&text).map_err(fail)
}

/// The text of a pricing file. JSON is not left to the YAML reader, which takes no file as large as the open price map.
fn read_text(text: &str) -> Result<Value, String> {
    let as_yaml = || yaml::parse_json(text).map_err(|reason| format!("is not valid YAML: {reason}"));
    // YAML in flow style begins with a brace, too, but seldom with a key in quotes.
    let behind = text.trim_start().strip_prefix('{').map(str::trim_start);
    if !behind.is_some_and(|behind| behind.starts_with(['"', '}'])) {
        return as_yaml();
    }
    serde_json::from_str(text).or_else(|error| as_yaml().map_err(|_| format!("is not valid JSON: {error}")))
}

/// Reads the text of a pricing file.
fn parse(text: &str) -> Result<Vec<(String, Price)>, String> {
    let document = read_text(text)?;
    let Value::Object(mut document) = document else {
        return Err("is not a map from model names to prices".to_owned());
    };
    if let Some(Value::Object(_)) = document.get("models")
        && document.len() == 1
        && let Some(Value::Object(models)) = document.remove("models")
    {
        document = models;
    }
    let mut prices = Vec::with_capacity(document.len());
    for (name, entry) in document {
        let Value::Object(entry) = entry else {
            return Err(format!("`{name}` is not an object with prices such as `input_per_million`"));
        };
        let price = if entry.keys().any(|key| key.ends_with("_per_million")) {
            Some(per_million(&entry).map_err(|problem| format!("`{name}`: {problem}"))?)
        } else {
            per_token(&entry).map_err(|problem| format!("`{name}`: {problem}"))?
        };
        prices.extend(price.map(|price| (name, price)));
    }
    if prices.is_empty() {
        return Err("prices no model; give each `input_per_million` and `output_per_million`, or \
                    `input_cost_per_token` and `output_cost_per_token`"
            .to_owned());
    }
    Ok(prices)
}

/// Our own form. Every key has a meaning, so an unknown one is a mistake.
pub(crate) fn per_million(entry: &Map<String, Value>) -> Result<Price, String> {
    let mut price = Price::default();
    let (mut input, mut output) = (None, None);
    for (key, value) in entry {
        let slot = match key.as_str() {
            "input_per_million" => &mut input,
            "output_per_million" => &mut output,
            "cache_read_per_million" => &mut price.cache_read,
            "cache_write_per_million" => &mut price.cache_write,
            "cache_write_1h_per_million" => &mut price.cache_write_1h,
            "reasoning_per_million" => &mut price.reasoning,
            _ => {
                return Err(format!(
                    "`{key}` is not a price; known are `input_per_million`, `output_per_million`, \
                     `cache_read_per_million`, `cache_write_per_million`, `cache_write_1h_per_million` and \
                     `reasoning_per_million`"
                ));
            }
        };
        if !value.is_null() {
            *slot = Some(pico(value, 1e6).ok_or_else(|| unusable(key, value, "a million dollars per million tokens"))?);
        }
    }
    price.input = input.ok_or("`input_per_million` is missing; add it (US dollars per million tokens)")?;
    price.output =
        output.ok_or("`output_per_million` is missing; add it (US dollars per million tokens, 0 for none)")?;
    Ok(price)
}

/// The open price map. It lists much else beside token prices; what has none is passed over.
fn per_token(entry: &Map<String, Value>) -> Result<Option<Price>, String> {
    let read = |key: &str| match entry.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(value) => pico(value, 1e12).map(Some).ok_or_else(|| unusable(key, value, "one dollar per token")),
    };
    let mut media = MediaRates::default();
    for (name, column) in MEDIA_COLUMNS {
        if let (Some(slot), Some(rate)) = (media.slot(name), read(column)?.filter(|rate| *rate > 0)) {
            *slot = Some(rate);
        }
    }
    // The size of the context decides in some old models; the middle one is what is used unless another is asked for.
    let search = entry.get("search_context_cost_per_query").and_then(|costs| costs.get("search_context_size_medium"));
    media.web_search = search.and_then(|cost| pico(cost, 1e12)).filter(|cost| *cost > 0);
    let input = read("input_cost_per_token")?;
    if input.is_none() && media == MediaRates::default() {
        return Ok(None);
    }
    let positive = |column: &str| read(column).map(|rate| rate.filter(|rate| *rate > 0));
    let written_long = |end: &str| -> Result<Option<u64>, String> {
        let hour = positive(&format!("cache_creation_input_token_cost_above_1hr{end}"))?;
        Ok(hour.or(positive(&format!("cache_creation_input_token_cost_above_12hr{end}"))?))
    };
    let usual_output = read("output_cost_per_token")?.unwrap_or(0);
    let tier = |end: &str| -> Result<Option<TierRates>, String> {
        let Some(tier_input) = read(&format!("input_cost_per_token{end}"))? else { return Ok(None) };
        // A tier that says only what its input costs takes the same share of the usual price for its output.
        let in_proportion = || match input.filter(|input| *input > 0) {
            Some(input) => {
                let share = u128::from(usual_output) * u128::from(tier_input) / u128::from(input);
                u64::try_from(share).unwrap_or(u64::MAX)
            }
            None => usual_output,
        };
        Ok(Some(TierRates {
            input: tier_input,
            output: read(&format!("output_cost_per_token{end}"))?
                .filter(|rate| *rate > 0)
                .unwrap_or_else(in_proportion),
            cache_read: read(&format!("cache_read_input_token_cost{end}"))?,
            cache_write: positive(&format!("cache_creation_input_token_cost{end}"))?,
            cache_write_1h: written_long(end)?,
            above: above(entry, end, read)?,
        }))
    };
    Ok(Some(Price {
        input: input.unwrap_or(0),
        output: usual_output,
        cache_read: read("cache_read_input_token_cost")?,
        cache_write: positive("cache_creation_input_token_cost")?,
        cache_write_1h: written_long("")?,
        reasoning: read("output_cost_per_reasoning_token")?,
        above: above(entry, "", read)?,
        tokens_unpriced: input.is_none(),
        tiers: Tiers { priority: tier("_priority")?, flex: tier("_flex")?, batch: tier("_batches")? },
        media,
    }))
}

/// `..._above_200k_tokens`; of several steps the first.
fn above(
    entry: &Map<String, Value>,
    end: &str,
    read: impl Fn(&str) -> Result<Option<u64>, String>,
) -> Result<Option<Above>, String> {
    let thousands = entry.keys().filter_map(|key| {
        key.strip_prefix("input_cost_per_token_above_")?
            .strip_suffix(end)?
            .strip_suffix("k_tokens")?
            .parse::<u32>()
            .ok()
    });
    let Some(thousands) = thousands.min() else { return Ok(None) };
    let rate =
        |column: &str| read(&format!("{column}_above_{thousands}k_tokens{end}")).map(|rate| rate.filter(|it| *it > 0));
    Ok(Some(Above {
        tokens: u64::from(thousands) * 1_000,
        input: rate("input_cost_per_token")?,
        output: rate("output_cost_per_token")?,
        cache_read: rate("cache_read_input_token_cost")?,
        cache_write: rate("cache_creation_input_token_cost")?,
        cache_write_1h: match rate("cache_creation_input_token_cost_above_1hr")? {
            Some(rate) => Some(rate),
            None => rate("cache_creation_input_token_cost_above_12hr")?,
        },
    }))
}

fn unusable(key: &str, value: &Value, most: &str) -> String {
    format!("`{key}` is {value}; a price is a number from 0 to {most}")
}

/// A number in picodollars, `scale` of which are one of its units. Rounded once, to the nearest.
fn pico(value: &Value, scale: f64) -> Option<u64> {
    let price = value.as_number().and_then(Number::as_f64)? * scale;
    // The cast is exact: the range is checked.
    (0.0..=PICO_USD_MAX).contains(&price).then(|| price.round() as u64)
}

// === the built-in list's rows ===

impl Price {
    /// Reads the price columns of one row of the built-in list: dollars per million tokens, `-` for none, separated by
    /// tabs, in the order of the fields. Cells behind them may be absent: `tokens:input:output:...` for long requests, the same
    /// behind `priority:`, `flex:` or `batch:` and the rates of that tier, and `name:rate` of what is no text.
    pub fn from_columns(columns: &str) -> Option<Self> {
        let mut cells = columns.split('\t');
        let mut cell = || cells.next().map(dollars);
        let (input, output) = (cell()?, cell()?);
        let (cache_read, cache_write) = (cell()?, cell()?);
        let (cache_write_1h, reasoning) = (cell()?, cell()?);
        let mut price = Self {
            input: input.unwrap_or(0),
            output: output.unwrap_or(0),
            cache_read,
            cache_write,
            cache_write_1h,
            reasoning,
            tokens_unpriced: input.is_none(),
            ..Self::default()
        };
        for cell in cells {
            let (name, rest) = cell.split_once(':')?;
            match name {
                "priority" => price.tiers.priority = Some(TierRates::from_cell(rest)?),
                "flex" => price.tiers.flex = Some(TierRates::from_cell(rest)?),
                "batch" => price.tiers.batch = Some(TierRates::from_cell(rest)?),
                _ => match price.media.slot(name) {
                    Some(slot) => *slot = Some(dollars(rest)?),
                    None => price.above = Some(Above::from_cell(cell)?),
                },
            }
        }
        Some(price)
    }
}

impl TierRates {
    fn from_cell(text: &str) -> Option<Self> {
        let mut cells = text.splitn(6, ':');
        let mut rate = || cells.next().and_then(dollars);
        let (input, output) = (rate()?, rate()?);
        let (cache_read, cache_write, cache_write_1h) = (rate(), rate(), rate());
        let above = match cells.next() {
            Some(cell) => Some(Above::from_cell(cell)?),
            None => None,
        };
        Some(Self { input, output, cache_read, cache_write, cache_write_1h, above })
    }
}

impl Above {
    fn from_cell(text: &str) -> Option<Self> {
        let (tokens, rates) = text.split_once(':')?;
        let mut rates = rates.split(':').map(dollars);
        let mut rate = || rates.next().flatten();
        let (input, output, cache_read, cache_write, cache_write_1h) = (rate(), rate(), rate(), rate(), rate());
        Some(Self { tokens: tokens.parse().ok()?, input, output, cache_read, cache_write, cache_write_1h })
    }
}

/// `2.5` as 2,500,000 picodollars per token; exactly, without a float in between. `None` for anything else.
fn dollars(text: &str) -> Option<u64> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || fraction.len() > 6 || !digits(whole) || !digits(fraction) {
        return None;
    }
    let millionths: u64 = if fraction.is_empty() { 0 } else { fraction.parse().ok()? };
    let scale = 10_u64.pow(6 - u32::try_from(fraction.len()).ok()?);
    whole.parse::<u64>().ok()?.checked_mul(1_000_000)?.checked_add(millionths * scale)
}

#[cfg(test)]
mod tests;
