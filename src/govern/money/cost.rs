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
//! A request whose whole input is above the price's threshold is charged at the rates beyond it, from the first token on.

use weir_config::prices::Price;

/// The tokens of one call in one meaning for all dialects: parts are included in their wholes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counted {
    /// All input tokens.
    pub input: u64,
    /// Those read from a cache.
    pub cache_read: u64,
    /// Those written to a cache.
    pub cache_write: u64,
    /// Of these, the ones to be kept for an hour.
    pub cache_write_1h: u64,
    /// All output tokens.
    pub output: u64,
    /// Those spent on reasoning.
    pub reasoning: u64,
}

/// What a call costs, in nanodollars. A part that claims more than its whole is cut to it.
pub fn cost_nano_usd(price: &Price, counted: &Counted) -> u64 {
    let rates = Rates::of(price, counted.input);
    let cache_read = counted.cache_read.min(counted.input);
    let cache_write = counted.cache_write.min(counted.input - cache_read);
    let written_1h = counted.cache_write_1h.min(cache_write);
    let fresh = counted.input - cache_read - cache_write;
    let reasoning = counted.reasoning.min(counted.output);
    let charges = [
        (fresh, rates.input),
        (cache_read, rates.cache_read),
        (cache_write - written_1h, rates.cache_write),
        (written_1h, rates.cache_write_1h),
        (counted.output - reasoning, rates.output),
        (reasoning, rates.reasoning),
    ];
    // 64 bits times 64 bits, six times: only absurd counts saturate.
    let pico = charges
        .iter()
        .fold(0_u128, |sum, (tokens, rate)| sum.saturating_add(u128::from(*tokens).saturating_mul(u128::from(*rate))));
    u64::try_from(pico.saturating_add(500) / 1_000).unwrap_or(u64::MAX)
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
    fn of(price: &Price, input_tokens: u64) -> Self {
        let above = price.above.filter(|above| input_tokens > above.tokens);
        let input = above.and_then(|above| above.input).unwrap_or(price.input);
        let output = above.and_then(|above| above.output).unwrap_or(price.output);
        let cache_write = above.and_then(|above| above.cache_write).or(price.cache_write).unwrap_or(input);
        Self {
            input,
            output,
            cache_read: above.and_then(|above| above.cache_read).or(price.cache_read).unwrap_or(input),
            cache_write,
            cache_write_1h: above
                .and_then(|above| above.cache_write_1h)
                .or(price.cache_write_1h)
                .unwrap_or(cache_write),
            reasoning: price.reasoning.unwrap_or(output),
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
    use weir_config::prices::Above;

    use super::*;

    const PRICE: Price = Price {
        input: 3_000_000,
        output: 15_000_000,
        cache_read: Some(300_000),
        cache_write: Some(3_750_000),
        cache_write_1h: Some(6_000_000),
        reasoning: None,
        above: None,
    };

    #[test]
    fn each_kind_of_token_has_its_rate() {
        let counted =
            Counted { input: 1_000, cache_read: 600, cache_write: 300, cache_write_1h: 100, output: 50, reasoning: 20 };
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
            let counted = Counted { input, cache_read: read, cache_write: write, cache_write_1h: hour, output, reasoning };
            let flat = Price { input: rate, output: rate, ..Price::default() };
            let expected = (u128::from(rate) * (u128::from(input) + u128::from(output)) + 500) / 1_000;
            prop_assert_eq!(cost_nano_usd(&flat, &counted), u64::try_from(expected).unwrap_or(u64::MAX));
        }
    }
}
