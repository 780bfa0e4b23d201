//! Pricing files in every accepted form, and what is said about those that are not.

use super::*;

fn price(input: u64, output: u64) -> Price {
    Price { input, output, ..Price::default() }
}

#[test]
fn reads_every_form_alike() {
    let expected = vec![("m-1".to_owned(), Price { cache_read: Some(75_000), ..price(150_000, 600_000) })];
    for text in [
        "models:\n  m-1: {input_per_million: 0.15, output_per_million: 0.6, cache_read_per_million: 0.075}\n",
        "m-1:\n  input_per_million: 0.15\n  output_per_million: 0.60\n  cache_read_per_million: 7.5e-2\n",
        r#"{"models":{"m-1":{"input_per_million":0.15,"output_per_million":0.6,"cache_read_per_million":0.075}}}"#,
        r#"{"m-1":{"input_cost_per_token":1.5e-07,"output_cost_per_token":6e-07,"cache_read_input_token_cost":7.5e-08,
            "litellm_provider":"x","max_tokens":1,"supports_vision":true}}"#,
        "m-1:\n  input_cost_per_token: 0.00000015\n  output_cost_per_token: 6.0e-7\n  cache_read_input_token_cost: 7.5e-8\n",
    ] {
        assert_eq!(parse(text).unwrap(), expected, "{text}");
    }
}

#[test]
fn the_open_map_s_long_requests_and_hour_long_caches_are_read() {
    let text = r#"{"m":{"input_cost_per_token":3e-06,"output_cost_per_token":1.5e-05,
        "cache_creation_input_token_cost":3.75e-06,"cache_creation_input_token_cost_above_1hr":6e-06,
        "input_cost_per_token_above_200k_tokens":6e-06,"output_cost_per_token_above_200k_tokens":2.25e-05,
        "input_cost_per_token_above_272k_tokens":7e-06},
        "image":{"output_cost_per_image":0.04},"sample":{"mode":"chat"}}"#;
    let read = parse(text).unwrap();
    // A model that makes pictures is priced by the picture.
    let [(image, by_image), (name, price)] = read.as_slice() else { panic!("{read:?}") };
    assert_eq!((&**image, by_image.tokens_unpriced, by_image.media.image), ("image", true, Some(40_000_000_000)));
    assert_eq!(name, "m");
    assert_eq!((price.cache_write, price.cache_write_1h), (Some(3_750_000), Some(6_000_000)));
    let above = price.above.unwrap();
    assert_eq!((above.tokens, above.input, above.output), (200_000, Some(6_000_000), Some(22_500_000)));
    assert_eq!(above.cache_read, None);
}

#[test]
fn says_what_is_wrong() {
    for (text, expected) in [
        (
            "m: {input_per_million: 1}",
            "`m`: `output_per_million` is missing; add it (US dollars per million tokens, 0 for none)",
        ),
        (
            "m: {input_per_million: -1, output_per_million: 1}",
            "`m`: `input_per_million` is -1; a price is a number from 0 to a million dollars per million tokens",
        ),
        (
            "m: {input_per_million: '1', output_per_million: 1}",
            "`m`: `input_per_million` is \"1\"; a price is a number from 0 to a million dollars per million tokens",
        ),
        ("m: {input_cost_per_token: .inf}", "is not valid YAML: a number that is not finite"),
        ("m: 3", "`m` is not an object with prices such as `input_per_million`"),
        ("- m", "is not a map from model names to prices"),
        ("{\"m\": ", "is not valid JSON: EOF while parsing a value at line 1 column 6"),
        (
            "m: {mode: chat}",
            "prices no model; give each `input_per_million` and `output_per_million`, or `input_cost_per_token` and `output_cost_per_token`",
        ),
    ] {
        assert_eq!(parse(text).unwrap_err(), expected, "{text}");
    }
    let unknown = parse("m: {input_per_million: 1, output_per_million: 1, cached_per_million: 1}").unwrap_err();
    assert!(unknown.starts_with("`m`: `cached_per_million` is not a price; known are"), "{unknown}");
}

#[test]
fn yaml_in_flow_style_is_not_taken_for_broken_json() {
    let read = parse("{m: {input_per_million: 1, output_per_million: 2}}").unwrap();
    assert_eq!(read, parse("m: {input_per_million: 1, output_per_million: 2}").unwrap());
    assert_eq!(read, parse("{\"m\": {input_per_million: 1, output_per_million: 2}}").unwrap());
    let broken = parse("{m: {input_per_million: 1").unwrap_err();
    assert!(broken.starts_with("is not valid YAML: "), "{broken}");
}

#[test]
fn dollars_are_read_to_the_picodollar() {
    for (text, expected) in [
        ("0", Some(0)),
        ("2.5", Some(2_500_000)),
        ("0.000001", Some(1)),
        ("0.0375", Some(37_500)),
        ("270", Some(270_000_000)),
        ("-", None),
        ("1e3", None),
        ("0.0000001", None),
        ("", None),
        (".5", None),
        ("+1", None),
    ] {
        assert_eq!(dollars(text), expected, "{text}");
    }
}

#[test]
fn a_row_of_the_list_is_read() {
    let row = Price::from_columns("1.25\t10\t0.125\t-\t-\t-\t200000:2.5:15:0.25:-:-").unwrap();
    assert_eq!((row.input, row.output, row.cache_read, row.cache_write), (1_250_000, 10_000_000, Some(125_000), None));
    assert_eq!(row.above.map(|above| (above.tokens, above.cache_read)), Some((200_000, Some(250_000))));
    assert_eq!(Price::from_columns("1.25\t10\t0.125\t-\t-"), None);
}

#[test]
fn tiers_and_what_is_no_text_are_read_from_the_map_and_from_the_list() {
    let text = r#"{"m":{"input_cost_per_token":1e-06,"output_cost_per_token":4e-06,"input_cost_per_token_flex":5e-07,"output_cost_per_token_flex":2e-06,
        "input_cost_per_token_priority":2e-06,"output_cost_per_token_priority":8e-06,"cache_read_input_token_cost_priority":2e-07,
        "input_cost_per_token_above_200k_tokens_priority":4e-06,"input_cost_per_token_batches":5e-07,"output_cost_per_token_batches":2e-06,
        "input_cost_per_audio_token":1e-05,"search_context_cost_per_query":{"search_context_size_medium":0.01},
        "cache_creation_input_token_cost_above_12hr":3e-06}}"#;
    let read = parse(text).unwrap();
    let [(_, price)] = read.as_slice() else { panic!("{read:?}") };
    let row = "1\t4\t-\t-\t3\t-\tpriority:2:8:0.2:-:-:200000:4:-:-:-:-\tflex:0.5:2:-:-:-\tbatch:0.5:2:-:-:-\taudio_in:10\tweb_search:10000";
    assert_eq!(Price::from_columns(row), Some(*price));
    let by_second = Price::from_columns("-\t-\t-\t-\t-\t-\tsecond:100").unwrap();
    assert_eq!((by_second.tokens_unpriced, by_second.media.second), (true, Some(100_000_000)));
    assert_eq!(Price::from_columns("1\t1\t-\t-\t-\t-\tunknown:1"), None);
}
