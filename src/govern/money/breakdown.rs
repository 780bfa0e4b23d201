//! How a cost came about: units, rates, and whose prices they are.
//!
//! It is kept with the record as a short text, because every priced call has one, and shown as JSON. Invariant: what is read back is what
//! was written.

use std::fmt::Write as _;

use serde_json::{Value, json};
use smallvec::SmallVec;

use super::cost::{Tier, dollars};

/// Parts of one breakdown.
const LINES_MAX: usize = 256;

macro_rules! units {
    ($($(#[doc = $doc:literal])* $name:ident $short:literal $shown:literal;)*) => {
        /// What is charged.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Unit {
            $($(#[doc = $doc])* $name,)*
        }

        impl Unit {
            /// As it is shown.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$name => $shown,)*
                }
            }

            const fn short(self) -> &'static str {
                match self {
                    $(Self::$name => $short,)*
                }
            }

            fn of(short: &str) -> Option<Self> {
                match short {
                    $($short => Some(Self::$name),)*
                    _ => None,
                }
            }
        }
    };
}

units! {
    /// Tokens read.
    Input "i" "input_tokens";
    /// Tokens read from a cache.
    CacheRead "r" "cache_read_tokens";
    /// Tokens of sound read from a cache.
    AudioCached "ar" "cache_read_audio_tokens";
    /// Tokens written to a cache.
    CacheWrite "w" "cache_write_tokens";
    /// Tokens written to a cache for the longer of its times.
    CacheWriteLong "wl" "cache_write_long_tokens";
    /// Tokens of sound read.
    AudioIn "ai" "input_audio_tokens";
    /// Tokens of pictures read.
    ImageIn "ii" "input_image_tokens";
    /// Tokens of films read.
    VideoIn "vi" "input_video_tokens";
    /// Tokens written.
    Output "o" "output_tokens";
    /// Tokens spent on reasoning.
    Reasoning "t" "reasoning_tokens";
    /// Tokens of sound written.
    AudioOut "ao" "output_audio_tokens";
    /// Tokens of pictures written.
    ImageOut "io" "output_image_tokens";
    /// Milliseconds of sound listened to, priced by the second.
    HeardMilliseconds "ms" "audio_seconds";
    /// Characters spoken.
    Characters "c" "characters";
    /// Pictures made.
    Images "p" "images";
    /// Searches in the web.
    WebSearches "ws" "web_searches";
    /// Searches in files.
    FileSearches "fs" "file_searches";
    /// What the provider says the call cost.
    ProviderCost "$" "provider_cost";
}

/// A quantity at a rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Line {
    /// What.
    pub unit: Unit,
    /// How much.
    pub quantity: u64,
    /// Picodollars of one.
    pub pico: u64,
}

impl Line {
    /// Picodollars of all.
    fn pico_usd(&self) -> u128 {
        let all = u128::from(self.quantity).saturating_mul(u128::from(self.pico));
        if self.unit == Unit::HeardMilliseconds { all / 1_000 } else { all }
    }
}

/// A cost and what it is made of.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Itemised {
    /// Nanodollars.
    pub nano_usd: u64,
    /// Its parts.
    pub lines: SmallVec<[Line; 4]>,
    /// What was used and has no price.
    pub unpriced: SmallVec<[Unit; 2]>,
    /// The service tier.
    pub tier: Option<Tier>,
    /// It has no rates of its own: the usual ones were taken.
    pub tier_unpriced: bool,
}

/// Whose prices they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// The operator's.
    Own,
    /// The built-in list's.
    List,
    /// The provider has said what the call cost.
    Provider,
}

impl Itemised {
    /// Of a call that its provider says the cost of.
    pub fn provider_cost(nano_usd: u64) -> Self {
        let lines = SmallVec::from_slice(&[Line {
            unit: Unit::ProviderCost,
            quantity: 1,
            pico: nano_usd.saturating_mul(1_000),
        }]);
        Self { nano_usd, lines, ..Self::default() }
    }

    /// Adds another call: its parts at the same rates are one.
    pub fn join(&mut self, other: &Self) {
        for line in &other.lines {
            let is_same = |known: &&mut Line| (known.unit, known.pico) == (line.unit, line.pico);
            if let Some(known) = self.lines.iter_mut().find(is_same) {
                known.quantity = known.quantity.saturating_add(line.quantity);
            } else if self.lines.len() < LINES_MAX {
                self.lines.push(*line);
            }
        }
        for unit in &other.unpriced {
            if !self.unpriced.contains(unit) {
                self.unpriced.push(*unit);
            }
        }
        self.tier_unpriced |= other.tier_unpriced;
        self.nano_usd = self.nano_usd.saturating_add(other.nano_usd);
    }

    /// The same with its sum: whole picodollars, rounded once.
    pub(super) fn total(mut self) -> Self {
        let pico = self.lines.iter().fold(0_u128, |sum, line| sum.saturating_add(line.pico_usd()));
        self.nano_usd = u64::try_from(pico.saturating_add(500) / 1_000).unwrap_or(u64::MAX);
        self
    }

    /// What is told of a call beside its cost: units and a tier without a price, separated by commas.
    pub fn without_price(&self) -> Option<String> {
        let mut names: SmallVec<[&str; 4]> = self.unpriced.iter().map(|unit| unit.as_str()).collect();
        names.extend(self.tier.filter(|_| self.tier_unpriced).map(Tier::as_str));
        (!names.is_empty()).then(|| names.join(","))
    }

    /// As it is kept.
    pub fn to_text(&self, source: Source) -> String {
        let source = match source {
            Source::Own => "own",
            Source::List => "list",
            Source::Provider => "provider",
        };
        let mut text = String::with_capacity(48);
        text.push_str(source);
        text.push(' ');
        text.push_str(self.tier.filter(|_| !self.tier_unpriced).map_or("standard", Tier::as_str));
        for Line { unit, quantity, pico } in &self.lines {
            // Writing to a string cannot fail.
            let _infallible = write!(text, " {}:{quantity}:{pico}", unit.short());
        }
        text
    }
}

/// As it is shown; `None` for what [`Itemised::to_text`] has not written.
pub fn shown(text: &str) -> Option<Value> {
    let mut words = text.split(' ');
    let source = words.next().filter(|source| ["own", "list", "provider"].contains(source))?;
    let tier = words.next()?;
    let mut lines = Vec::new();
    for word in words {
        let mut cells = word.split(':');
        let unit = Unit::of(cells.next()?)?;
        let line = Line { unit, quantity: cells.next()?.parse().ok()?, pico: cells.next()?.parse().ok()? };
        let nano = u64::try_from(line.pico_usd() / 1_000).unwrap_or(u64::MAX);
        let quantity = match unit {
            Unit::HeardMilliseconds => json!(line.quantity as f64 / 1_000.0),
            _ => json!(line.quantity),
        };
        lines.push(json!({
            "unit": unit.as_str(),
            "quantity": quantity,
            // Picodollars of one are millionths of a dollar for a million.
            "usd_per_million": line.pico as f64 / 1e6,
            "cost_usd": dollars(nano),
        }));
    }
    Some(json!({ "source": source, "tier": tier, "units": lines }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_is_shown() {
        let lines = SmallVec::from_slice(&[
            Line { unit: Unit::Input, quantity: 1_000, pico: 1_250_000 },
            Line { unit: Unit::HeardMilliseconds, quantity: 8_500, pico: 100_000_000 },
        ]);
        let items = Itemised { lines, tier: Some(Tier::Flex), ..Itemised::default() }.total();
        assert_eq!(items.nano_usd, 1_250_000 + 850_000);
        let text = items.to_text(Source::List);
        assert_eq!(text, "list flex i:1000:1250000 ms:8500:100000000");
        assert_eq!(
            shown(&text),
            Some(json!({ "source": "list", "tier": "flex", "units": [
                { "unit": "input_tokens", "quantity": 1000, "usd_per_million": 1.25, "cost_usd": 0.00125 },
                { "unit": "audio_seconds", "quantity": 8.5, "usd_per_million": 100.0, "cost_usd": 0.00085 }] }))
        );
        assert_eq!(shown("something else"), None);
        assert_eq!(items.without_price(), None);
        let unpriced = Itemised {
            tier: Some(Tier::Batch),
            tier_unpriced: true,
            unpriced: SmallVec::from_slice(&[Unit::WebSearches]),
            ..items
        };
        assert_eq!(unpriced.without_price().as_deref(), Some("web_searches,batch"));
    }
}
