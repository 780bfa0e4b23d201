//! A small model says what was trained, wherever the words stand, and a damaged one is refused.

use serde_json::Value;

use super::*;

static TOXIC: &[u8] = include_bytes!("../../model/toxic.bin");

#[test]
fn it_says_what_was_trained() {
    let model = Grams::load(TOXIC).unwrap();
    let mut seen = 0;
    for line in include_str!("../../tests/data/toxic.jsonl").lines() {
        let row: Value = serde_json::from_str(line).unwrap();
        let text = row["text"].as_str().unwrap();
        let score = model.worst(text.as_bytes(), None).map_or(0, |worst| worst.score);
        assert_eq!(i64::from(score), row["score"].as_i64().unwrap(), "{text}");
        seen += 1;
    }
    assert!(seen >= 15);
}

#[test]
fn damage_is_found_out() {
    assert_eq!(
        Grams::load(b"weirlm01").unwrap_err(),
        ModelError::Damaged("it does not begin as one of this version does")
    );
    assert_eq!(Grams::load(&TOXIC[..TOXIC.len() - 1]).unwrap_err(), ModelError::Damaged("it ends too early"));
    let longer = [TOXIC, b"x"].concat();
    assert_eq!(Grams::load(&longer).unwrap_err(), ModelError::Damaged("something stands behind its end"));
    let mut other = TOXIC.to_vec();
    other[12..12 + (1 << 16)].reverse();
    assert!(matches!(Grams::load(&other), Err(ModelError::SelfTest { .. })));
}

#[test]
fn confidence_rises_with_the_score_and_is_flat_beyond_the_curve() {
    let model = Grams::load(TOXIC).unwrap();
    let all: Vec<f64> = (-2000..2000).map(|score| model.confidence(score)).collect();
    assert!(all.is_sorted() && all[0] > 0.0 && all[0] < 0.01 && all[3999] > 0.99 && all[3999] < 1.0);
    assert_eq!(model.confidence(i32::MIN), all[0]);
    assert_eq!(model.confidence(i32::MAX), all[3999]);
}

#[test]
fn a_long_text_is_as_bad_as_its_worst_window() {
    let model = Grams::load(TOXIC).unwrap();
    let insult = "you are a stupid worthless idiot and everybody hates you, you pathetic piece of trash";
    let calm = "the weather is nice today and we walk along the river to see the boats ";
    let text = format!("{}{insult} {}", calm.repeat(200), calm.repeat(200));
    let worst = model.worst(text.as_bytes(), None).unwrap();
    assert!(worst.start <= 200 * calm.len() && worst.end > 200 * calm.len(), "{worst:?}");
    assert!(
        model.confidence(worst.score) > model.confidence(model.worst(calm.repeat(400).as_bytes(), None).unwrap().score)
    );
    assert_eq!(model.worst(b" ,. ", None), None);
    let late = model.worst(text.as_bytes(), Some(Instant::now())).unwrap();
    assert!(late.cut);
}
