//! Promise: the second stage is in every build: a tree that lost its weights does not pass.

#![allow(clippy::unwrap_used, reason = "tests")]

#[test]
fn the_weights_are_in_the_binary_and_say_what_they_should() {
    let second = weir_models::SecondStage::embedded().unwrap();
    second.expect("models/model holds the weights").check().unwrap();
}
