//! Tells whether the weights of the second stage are there: a tree without them builds, and has no second stage.

use std::path::Path;

fn main() {
    println!("cargo:rustc-check-cfg=cfg(second_stage)");
    println!("cargo:rerun-if-changed=model");
    if ["second.rten", "second.json", "tokenizer.json"].iter().all(|file| Path::new("model").join(file).is_file()) {
        println!("cargo:rustc-cfg=second_stage");
    }
}
