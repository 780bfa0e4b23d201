//! Reading and rewriting together: words replaced where the reader says they stand.

use bytes::Bytes;
use proptest::prelude::*;
use weir::inspect::{Declared, read_request};
use weir::rewrite::Edits;
use weir_config::vocab::Dialect;

proptest! {
    /// The JSON stays valid, and says the same but for the words.
    #[test]
    fn json_stays_json(
        texts in proptest::collection::vec("[a-c\"\\\\\u{1f600}\n ]{0,12}", 1..6), with in "[x\"\\\\\u{e9}]{0,4}",
    ) {
        let said = |texts: &[String]| {
            let messages: Vec<_> =
                texts.iter().map(|text| serde_json::json!({"role": "user", "content": text})).collect();
            serde_json::json!({"messages": messages, "n": 1})
        };
        let body = Bytes::from(said(&texts).to_string());
        let view = read_request(Dialect::ChatCompletions, Declared::default(), &body, usize::MAX);
        let escaped = serde_json::to_string(&with).unwrap();
        let escaped = &escaped[1..escaped.len() - 1];
        let mut edits = Edits::of(&body);
        for (at, _) in view.text.match_indices('a') {
            for spot in view.spots(&body, at..at + 1).unwrap() {
                edits.replace(spot.raw, escaped.to_owned()).unwrap();
            }
        }
        let after: serde_json::Value = serde_json::from_slice(&edits.apply()).unwrap();
        let expected: Vec<String> = texts.iter().map(|text| text.replace('a', &with)).collect();
        prop_assert_eq!(after, said(&expected));
    }
}
