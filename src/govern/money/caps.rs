//! Whether a request stays within its token cap, and what it is expected to cost.
//!
//! Before a request is sent its prompt is an estimate and its answer as long as it says at most; after the answer both are
//! known. Pure decisions on numbers; who has spent what is `spend`'s business.

use weir_config::prices::Price;
use weir_config::settings::TokenCap;

use super::cost::{Counted, cost_nano_usd};

/// What a request asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ask {
    /// Estimated input tokens.
    pub prompt_tokens: u64,
    /// The bound on output tokens that it names itself.
    pub max_tokens: Option<u64>,
}

/// A token cap and the number that is over it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TokenExcess {
    /// `max_prompt_tokens`, `max_completion_tokens` or `max_total_tokens`.
    pub cap: &'static str,
    /// The cap.
    pub limit: u32,
    /// What was asked for or used.
    pub tokens: u64,
}

/// The first cap that a request would exceed. An answer without a bound is not held against it: its real length is
/// looked at afterwards.
pub fn excess_asked(cap: &TokenCap, ask: Ask) -> Option<TokenExcess> {
    excess(cap, Some(ask.prompt_tokens), ask.max_tokens, ask.prompt_tokens.saturating_add(ask.max_tokens.unwrap_or(0)))
}

/// The first cap that an answered call exceeded.
pub fn excess_used(cap: &TokenCap, prompt: Option<u64>, completion: Option<u64>) -> Option<TokenExcess> {
    excess(cap, prompt, completion, prompt.unwrap_or(0).saturating_add(completion.unwrap_or(0)))
}

fn excess(cap: &TokenCap, prompt: Option<u64>, completion: Option<u64>, total: u64) -> Option<TokenExcess> {
    let over = |cap, limit: Option<u32>, tokens: Option<u64>| {
        let (limit, tokens) = (limit?, tokens?);
        (tokens > u64::from(limit)).then_some(TokenExcess { cap, limit, tokens })
    };
    over("max_prompt_tokens", cap.max_prompt_tokens, prompt)
        .or_else(|| over("max_completion_tokens", cap.max_completion_tokens, completion))
        .or_else(|| over("max_total_tokens", cap.max_total_tokens, Some(total)))
}

/// What a request is expected to cost at most, in nanodollars: all input at the full rate, as much output as it allows,
/// or `output_tokens` where it names no bound.
pub fn estimate_nano_usd(price: &Price, ask: Ask, output_tokens: u64) -> u64 {
    let counted =
        Counted { input: ask.prompt_tokens, output: ask.max_tokens.unwrap_or(output_tokens), ..Counted::default() };
    let dearest_read = Price { input: price.input.max(price.cache_write.unwrap_or(0)), ..*price };
    let dearest = Price { output: dearest_read.output.max(price.reasoning.unwrap_or(0)), ..dearest_read };
    cost_nano_usd(&dearest, &counted)
}

#[cfg(test)]
mod tests {
    use super::*;

    const CAP: TokenCap =
        TokenCap { max_prompt_tokens: Some(100), max_completion_tokens: Some(50), max_total_tokens: Some(120) };

    #[test]
    fn the_first_cap_that_is_exceeded_is_named() {
        let asked = |prompt_tokens, max_tokens| {
            excess_asked(&CAP, Ask { prompt_tokens, max_tokens })
                .map(|excess| (excess.cap, excess.limit, excess.tokens))
        };
        assert_eq!(asked(100, Some(20)), None);
        assert_eq!(asked(101, None), Some(("max_prompt_tokens", 100, 101)));
        assert_eq!(asked(1, Some(51)), Some(("max_completion_tokens", 50, 51)));
        assert_eq!(asked(100, Some(21)), Some(("max_total_tokens", 120, 121)));
        assert_eq!(asked(100, None), None, "an answer without a bound is looked at afterwards");
        assert_eq!(asked(u64::MAX, Some(u64::MAX)), Some(("max_prompt_tokens", 100, u64::MAX)));
        assert_eq!(excess_used(&CAP, Some(10), Some(51)).map(|excess| excess.cap), Some("max_completion_tokens"));
        assert_eq!(excess_used(&CAP, None, None), None);
        assert_eq!(excess_asked(&TokenCap::default(), Ask { prompt_tokens: u64::MAX, max_tokens: Some(9) }), None);
    }

    #[test]
    fn the_estimate_takes_what_the_request_allows_at_the_dearest_rate() {
        let price = Price { input: 3_000_000, output: 15_000_000, cache_write: Some(3_750_000), ..Price::default() };
        let ask = Ask { prompt_tokens: 1_000, max_tokens: Some(100) };
        assert_eq!(estimate_nano_usd(&price, ask, 1_024), 3_750_000 + 1_500_000);
        assert_eq!(estimate_nano_usd(&price, Ask { max_tokens: None, ..ask }, 10), 3_750_000 + 150_000);
    }
}
