//! Tokens times price. All sums are whole picodollars; one rounding, to the nearest nanodollar, at the end.
//!
//! | tokens | charged as |
//! |---|---|
//! | input, neither read from nor written to a cache | `input` |
//! | read from a cache | `cache_read`, else `input` |
//! | written to a cache for minutes, for an hour | `cache_write`, `cache_write_1h`, else the one before, else `input` |
//! | output | `output` |
//! | output spent on reasoning | `reasoning`, else `output` |
//!
//! | prompt tokens of sound, pictures, films; completion tokens of sound, pictures | their own rates, else `input`, `output` |
//! | seconds listened to, characters spoken, pictures made | where the provider counted no tokens, or tokens have no price |
//! | searches in the web | each |
//!
//! A request whose whole input is above the price's threshold is charged at the rates beyond it, from the first token on. A service
//! tier has rates of its own; where it has none, the usual ones hold, and the breakdown says so ([`Itemised::unpriced`]).

use weir_config::prices::{Above, Price, TierRates};

use super::breakdown::{Itemised, Line, Unit};

/// The tokens of one call in one meaning for all dialects: parts are included in their wholes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counted {
    /// All input tokens.
    pub input: u64,
    /// Those read from a cache.
    pub cache_read: u64,
    /// Those written to a cache.
    pub cache_write: u64,
    /// Of these, the ones to be kept for the longer of its times.
    pub cache_write_1h: u64,
    /// All output tokens.
    pub output: u64,
    /// Those spent on reasoning.
    pub reasoning: u64,
    /// Input tokens of sound, of which some were read from a cache.
    pub audio_in: u64,
    /// These.
    pub audio_cached: u64,
    /// Input tokens of pictures.
    pub image_in: u64,
    /// Input tokens of films.
    pub video_in: u64,
    /// Output tokens of sound.
    pub audio_out: u64,
    /// Output tokens of pictures.
    pub image_out: u64,
    /// Milliseconds of sound listened to.
    pub heard_ms: u64,
    /// Characters spoken.
    pub characters: u64,
    /// Pictures made.
    pub images: u64,
    /// Searches in the web that the provider made.
    pub web_searches: u64,
    /// Searches in files that the provider made.
    pub file_searches: u64,
    /// How soon it was answered; `None` is the usual way.
    pub tier: Option<Tier>,
}

/// What a provider asks for how soon it answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tier {
    /// Before others.
    Priority,
    /// When there is room.
    Flex,
    /// Within a day.
    Batch,
    /// One that nobody here knows, and so without a price.
    Unknown,
}

impl Tier {
    /// How it is shown.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Priority => "priority",
            Self::Flex => "flex",
            Self::Batch => "batch",
            Self::Unknown => "unknown_tier",
        }
    }
}

/// What a call costs, in nanodollars. A part that claims more than its whole is cut to it.
pub fn cost_nano_usd(price: &Price, counted: &Counted) -> u64 {
    itemise(price, counted).nano_usd
}

/// The same with what it is made of.
pub fn itemise(price: &Price, counted: &Counted) -> Itemised {
    let tier = counted.tier.map(|tier| (tier, rates_of(price, tier)));
    let rates = Rates::of(price, tier.and_then(|(_, rates)| rates), counted.input);
    let mut items = Itemised { tier: counted.tier, ..Itemised::default() };
    items.tier_unpriced = matches!(tier, Some((_, None)));
    let tokens = counted.input > 0 || counted.output > 0;
    if !price.tokens_unpriced {
        tokens_of(&mut items, price, &rates, counted);
    }
    let mut other = |unit, quantity, rate: Option<u64>, unless: bool| {
        if quantity > 0 && !unless {
            match rate {
                Some(rate) => items.lines.push(Line { unit, quantity, pico: rate }),
                None => items.unpriced.push(unit),
            }
        }
    };
    // A model that is charged by tokens has been charged by them where there are any.
    let by_tokens = tokens && !price.tokens_unpriced;
    let media = &price.media;
    other(Unit::HeardMilliseconds, counted.heard_ms, media.second, by_tokens);
    other(Unit::Characters, counted.characters, media.character, by_tokens);
    other(Unit::Images, counted.images, media.image, by_tokens);
    other(Unit::WebSearches, counted.web_searches, media.web_search, false);
    other(Unit::FileSearches, counted.file_searches, None, false);
    if price.tokens_unpriced && items.lines.is_empty() && tokens {
        items.unpriced.push(Unit::Input);
    }
    items.total()
}

const fn rates_of(price: &Price, tier: Tier) -> Option<TierRates> {
    match tier {
        Tier::Priority => price.tiers.priority,
        Tier::Flex => price.tiers.flex,
        Tier::Batch => price.tiers.batch,
        Tier::Unknown => None,
    }
}

fn tokens_of(items: &mut Itemised, price: &Price, rates: &Rates, counted: &Counted) {
    let cache_read = counted.cache_read.min(counted.input);
    let cache_write = counted.cache_write.min(counted.input - cache_read);
    let written_1h = counted.cache_write_1h.min(cache_write);
    let mut fresh = counted.input - cache_read - cache_write;
    let audio_cached = counted.audio_cached.min(cache_read);
    let mut take = |tokens: u64, rate: Option<u64>| {
        let taken = if rate.is_some() { tokens.min(fresh) } else { 0 };
        fresh -= taken;
        (taken, rate.unwrap_or(0))
    };
    let media = &price.media;
    let audio_in = take(counted.audio_in.saturating_sub(counted.audio_cached), media.audio_in);
    let image_in = take(counted.image_in, media.image_in);
    let video_in = take(counted.video_in, media.video_in);
    let mut written = counted.output;
    let reasoning = counted.reasoning.min(written);
    written -= reasoning;
    let mut give = |tokens: u64, rate: Option<u64>| {
        let given = if rate.is_some() { tokens.min(written) } else { 0 };
        written -= given;
        (given, rate.unwrap_or(0))
    };
    let audio_out = give(counted.audio_out, media.audio_out);
    let image_out = give(counted.image_out, media.image_out);
    let audio_rate = media.audio_cached.unwrap_or(rates.cache_read);
    for (unit, (quantity, pico)) in [
        (Unit::Input, (fresh, rates.input)),
        (Unit::CacheRead, (cache_read - audio_cached, rates.cache_read)),
        (Unit::AudioCached, (audio_cached, audio_rate)),
        (Unit::CacheWrite, (cache_write - written_1h, rates.cache_write)),
        (Unit::CacheWriteLong, (written_1h, rates.cache_write_1h)),
        (Unit::AudioIn, audio_in),
        (Unit::ImageIn, image_in),
        (Unit::VideoIn, video_in),
        (Unit::Output, (written, rates.output)),
        (Unit::Reasoning, (reasoning, rates.reasoning)),
        (Unit::AudioOut, audio_out),
        (Unit::ImageOut, image_out),
    ] {
        if quantity > 0 {
            items.lines.push(Line { unit, quantity, pico });
        }
    }
}

/// The rates that hold for one request.
struct Rates {
    input: u64,
    output: u64,
    cache_read: u64,
    cache_write: u64,
    cache_write_1h: u64,
    reasoning: u64,
}

impl Rates {
    fn of(price: &Price, tier: Option<TierRates>, input_tokens: u64) -> Self {
        // What a tier does not price costs what it costs otherwise.
        let usual = TierRates {
            input: price.input,
            output: price.output,
            cache_read: price.cache_read,
            cache_write: price.cache_write,
            cache_write_1h: price.cache_write_1h,
            above: price.above,
        };
        let base = tier.unwrap_or(usual);
        let beyond = |above: &Above| input_tokens > above.tokens;
        let above = base.above.or(price.above).filter(beyond);
        let input = above.and_then(|above| above.input).unwrap_or(base.input);
        let output = above.and_then(|above| above.output).unwrap_or(base.output);
        let cache_write = above.and_then(|above| above.cache_write).or(base.cache_write).or(usual.cache_write);
        let cache_write = cache_write.unwrap_or(input);
        let cache_read = above.and_then(|above| above.cache_read).or(base.cache_read).or(usual.cache_read);
        let written_long = above.and_then(|above| above.cache_write_1h).or(base.cache_write_1h);
        Self {
            input,
            output,
            cache_read: cache_read.unwrap_or(input),
            cache_write,
            cache_write_1h: written_long.or(usual.cache_write_1h).unwrap_or(cache_write),
            reasoning: if tier.is_some() { output } else { price.reasoning.unwrap_or(output) },
        }
    }
}

/// For people and for JSON, where money is dollars.
pub fn dollars(nano_usd: u64) -> f64 {
    nano_usd as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use weir_config::prices::{Above, MediaRates, Tiers};

    use super::*;

    const PRICE: Price = Price {
        input: 3_000_000,
        output: 15_000_000,
        cache_read: Some(300_000),
        cache_write: Some(3_750_000),
        cache_write_1h: Some(6_000_000),
        reasoning: None,
        above: None,
        tokens_unpriced: false,
        tiers: Tiers { priority: None, flex: None, batch: None },
        media: MediaRates {
            audio_in: Some(32_000_000),
            audio_cached: None,
            image_in: None,
            video_in: None,
            audio_out: Some(64_000_000),
            image_out: None,
            second: Some(100_000_000),
            character: None,
            image: None,
            web_search: Some(10_000_000_000),
        },
    };

    #[test]
    fn each_kind_of_token_has_its_rate() {
        let counted = Counted {
            input: 1_000,
            cache_read: 600,
            cache_write: 300,
            cache_write_1h: 100,
            output: 50,
            reasoning: 20,
            ..Counted::default()
        };
        // 100 × 3 + 600 × 0.3 + 200 × 3.75 + 100 × 6 + 50 × 15 = 2,580 microdollars
        assert_eq!(cost_nano_usd(&PRICE, &counted), 2_580_000);
        let reasoning = Price { reasoning: Some(20_000_000), ..PRICE };
        assert_eq!(cost_nano_usd(&reasoning, &counted), 2_680_000);
        let plain = Price { cache_read: None, cache_write: None, cache_write_1h: None, ..PRICE };
        assert_eq!(cost_nano_usd(&plain, &counted), 3_750_000);
    }

    #[test]
    fn a_long_request_is_dearer_from_its_first_token_on() {
        let above = Above {
            tokens: 200_000,
            input: Some(6_000_000),
            output: Some(22_500_000),
            cache_read: None,
            cache_write: None,
            cache_write_1h: None,
        };
        let price = Price { above: Some(above), ..PRICE };
        let at = |input| cost_nano_usd(&price, &Counted { input, output: 2, ..Counted::default() });
        assert_eq!(at(200_000), 600_030_000);
        assert_eq!(at(200_001), 1_200_051_000);
    }

    #[test]
    fn a_tier_has_rates_of_its_own_and_one_without_says_so() {
        let flex = TierRates { input: 1_500_000, output: 7_500_000, ..TierRates::default() };
        let price = Price { tiers: Tiers { flex: Some(flex), ..Tiers::default() }, ..PRICE };
        let of = |tier| itemise(&price, &Counted { input: 1_000, output: 100, tier, ..Counted::default() });
        assert_eq!((of(None).nano_usd, of(Some(Tier::Flex)).nano_usd), (4_500_000, 2_250_000));
        let priority = of(Some(Tier::Priority));
        assert_eq!((priority.nano_usd, priority.tier_unpriced), (4_500_000, true));
    }

    #[test]
    fn what_is_no_text_has_its_own_rates() {
        let counted =
            Counted { input: 1_000, audio_in: 900, image_in: 50, output: 300, audio_out: 200, ..Counted::default() };
        // 100 × 3 + 900 × 32 + 100 × 15 + 200 × 64 = 43,400 microdollars; pictures have no rate of their own
        assert_eq!(itemise(&PRICE, &counted).nano_usd, 43_400_000);
        let searched = Counted { input: 1_000, web_searches: 2, file_searches: 1, ..Counted::default() };
        let items = itemise(&PRICE, &searched);
        assert_eq!((items.nano_usd, items.unpriced.as_slice()), (23_000_000, &[Unit::FileSearches][..]));
        // Tokens that were counted are what is charged, seconds beside them are not.
        let heard = Counted { input: 10, heard_ms: 8_500, ..Counted::default() };
        assert_eq!(itemise(&PRICE, &heard).nano_usd, 30_000);
        let by_time = Price { tokens_unpriced: true, ..PRICE };
        assert_eq!(itemise(&by_time, &heard).nano_usd, 850_000);
    }

    #[test]
    fn less_than_a_nanodollar_is_rounded_to_the_nearest() {
        let cheap = Price { input: 499, output: 1, ..Price::default() };
        let cost = |input, output| cost_nano_usd(&cheap, &Counted { input, output, ..Counted::default() });
        assert_eq!((cost(1, 0), cost(1, 1), cost(2, 1), cost(3, 3)), (0, 1, 1, 2));
    }

    proptest! {
        #[test]
        fn never_panics_and_parts_never_charge_more_tokens_than_their_whole(
            input in any::<u64>(), read in any::<u64>(), write in any::<u64>(), hour in any::<u64>(),
            output in any::<u64>(), reasoning in any::<u64>(), rate in 0_u64..1_000_000_000,
        ) {
            let counted = Counted { input, cache_read: read, cache_write: write, cache_write_1h: hour, output, reasoning, ..Counted::default() };
            let flat = Price { input: rate, output: rate, ..Price::default() };
            let expected = (u128::from(rate) * (u128::from(input) + u128::from(output)) + 500) / 1_000;
            prop_assert_eq!(cost_nano_usd(&flat, &counted), u64::try_from(expected).unwrap_or(u64::MAX));
        }
    }
}
