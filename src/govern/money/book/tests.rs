//! Which name gets which price.

use std::io::Write as _;

use super::*;

fn prices(host: &str, custom: &[(&str, u64)], file: Option<PathBuf>) -> Prices {
    let custom_models =
        custom.iter().map(|(name, input)| ((*name).to_owned(), Price { input: *input, ..Price::default() })).collect();
    let settings = CostEstimation { pricing_file: file, custom_models, ..CostEstimation::default() };
    Prices::open(&settings, host).unwrap()
}

/// The input price in microdollars per million tokens.
fn input(prices: &Prices, provider: &str, model: &str) -> Option<u64> {
    prices.find(provider, model).map(|price| price.input)
}

#[test]
fn a_name_gets_its_own_price_in_every_spelling() {
    let prices = prices("api.openai.com", &[], None);
    for (provider, model, expected) in [
        ("openai", "gpt-4o", 2_500_000),
        ("openai", "GPT-4o", 2_500_000),
        ("openai", "gpt-4o-2024-08-06", 2_500_000),
        ("openai", "gpt-4o-2031-01-01", 2_500_000),
        ("openai", "gpt-4o-mini", 150_000),
        ("openai", "gpt-4o-mini-2024-07-18", 150_000),
        ("openai", "openai/gpt-4o-mini", 150_000),
        ("openai", "ft:gpt-4o-mini-2024-07-18:acme::abc123", 300_000),
        ("openai", "gpt-4-0613", 30_000_000),
        ("openai", "gpt-4-turbo-2024-04-09", 10_000_000),
        ("openai", "text-embedding-3-small", 20_000),
        ("azure_openai", "gpt-4o", 2_500_000),
        ("azure_openai", "gpt-35-turbo", 500_000),
        ("azure_openai", "gpt-4-turbo", 11_000_000),
        ("anthropic", "claude-sonnet-4-5-20250929", 3_000_000),
        ("anthropic", "claude-sonnet-4-5@20250929", 3_000_000),
        ("anthropic", "claude-sonnet-4-5-latest", 3_000_000),
        ("anthropic", "anthropic/claude-haiku-4-5", 1_000_000),
        ("gemini", "models/gemini-2.5-pro", 1_250_000),
        ("gemini", "publishers/google/models/gemini-2.5-pro", 1_250_000),
        ("gemini", "gemini-2.5-pro-001", 1_250_000),
        ("bedrock", "anthropic.claude-sonnet-4-5-20250929-v1:0", 3_000_000),
        ("bedrock", "us.anthropic.claude-sonnet-4-5-20250929-v1:0", 3_300_000),
        (
            "bedrock",
            "arn:aws:bedrock:us-east-1:123456789012:inference-profile/global.anthropic.claude-sonnet-4-5-20250929-v1:0",
            3_000_000,
        ),
        ("openai", "mistralai/mistral-large-latest", 500_000),
    ] {
        assert_eq!(input(&prices, provider, model), Some(expected), "{provider} {model}");
    }
}

#[test]
fn the_price_of_one_family_is_never_another_s() {
    let prices = prices("api.openai.com", &[], None);
    for model in [
        "gpt-4-ultra",
        "gpt-4.1-ultra",
        "gpt-4omega",
        "gpt-4o-mini-tiny",
        "claude-sonnet-4-5-fast",
        "gpt",
        "o1-unheard-of",
        "",
        "gpt-4-32k-super",
        "gemini-2.5-pro-preview-flash",
    ] {
        assert_eq!(prices.find("openai", model), None, "{model}");
    }
    assert_eq!(prices.find("openai", &"x".repeat(10_000)), None);
}

#[test]
fn a_local_server_s_models_are_not_priced_as_somebody_else_s() {
    let prices = prices("127.0.0.1", &[], None);
    assert_eq!(prices.find("ollama", "gpt-4o"), Some(Price::default()));
    for provider in ["vllm", "sglang", "tgi"] {
        assert_eq!(prices.find(provider, "gpt-4o"), None, "{provider}");
    }
    let priced = super::tests::prices("127.0.0.1", &[("llama3.1:8b", 7)], None);
    assert_eq!(input(&priced, "ollama", "llama3.1:8b"), Some(7));
    assert_eq!(input(&priced, "vllm", "llama3.1:8b"), Some(7));
}

#[test]
fn a_host_with_prices_of_its_own_is_searched_under_its_own_names() {
    let deepseek = prices("api.deepseek.com", &[], None);
    assert_eq!(input(&deepseek, "openai", "deepseek-chat"), Some(280_000));
    assert_eq!(deepseek.find("openai", "gpt-4o"), None);
    let elsewhere = prices("api.notdeepseek.com", &[], None);
    assert_eq!(elsewhere.find("openai", "gpt-4o").map(|price| price.input), Some(2_500_000));
    // The header names what the host does not.
    assert_eq!(input(&elsewhere, "deepseek", "deepseek-chat"), Some(280_000));
}

#[test]
fn custom_prices_win_over_the_file_and_the_file_over_the_list() {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    let own = |input: u32| format!("{{input_per_million: {input}, output_per_million: 1}}");
    write!(file, "gpt-4o: {}\ngpt-4o-mini: {}\nhouse/model: {}\n", own(11), own(12), own(13)).unwrap();
    let prices = prices("api.openai.com", &[("GPT-4o", 5), ("openai/gpt-4", 6)], Some(file.path().to_owned()));
    assert_eq!(input(&prices, "openai", "gpt-4o"), Some(5));
    assert_eq!(input(&prices, "openai", "gpt-4o-2024-08-06"), Some(5), "an override holds for the dated name too");
    assert_eq!(input(&prices, "openai", "gpt-4"), Some(6));
    assert_eq!(input(&prices, "openai", "gpt-4o-mini"), Some(12_000_000));
    assert_eq!(input(&prices, "openai", "house/model"), Some(13_000_000));
    assert_eq!(input(&prices, "openai", "gpt-4.1"), Some(2_000_000));

    std::fs::write(file.path(), "gpt-4o-mini: {input_per_million: 99, output_per_million: 1}").unwrap();
    assert!(prices.reload().unwrap().starts_with("1 prices read from "));
    assert_eq!(input(&prices, "openai", "gpt-4o-mini"), Some(99_000_000));
    assert_eq!(prices.find("openai", "house/model"), None);

    std::fs::write(file.path(), "gpt-4o-mini: {input_per_million: -1, output_per_million: 1}").unwrap();
    let error = prices.reload().unwrap_err().to_string();
    assert!(error.contains("`gpt-4o-mini`: `input_per_million` is -1"), "{error}");
    assert_eq!(input(&prices, "openai", "gpt-4o-mini"), Some(99_000_000), "the former prices stay");
}

#[test]
fn a_name_loses_only_what_says_when_it_was_made() {
    for (name, expected) in [
        ("m-2025-09-29", Some("m")),
        ("m-20250929", Some("m")),
        ("m@20250929", Some("m")),
        ("m-0613", Some("m")),
        ("m-001", Some("m")),
        ("m-latest", Some("m")),
        ("m:latest", Some("m")),
        ("m@default", Some("m")),
        ("anthropic.m-20250929-v1:0", Some("anthropic.m-20250929")),
        ("m-4", None),
        ("m-32k", None),
        ("m-mini", None),
        ("m-v3", None),
        ("m:free", None),
        ("m:70", None),
        ("m-preview", None),
        ("-20250929", None),
        ("20250929", None),
    ] {
        assert_eq!(shorter(name), expected, "{name}");
    }
}
