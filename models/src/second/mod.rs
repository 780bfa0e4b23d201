//! The second stage: a small transformer that ships with Weir and looks at what the words find suspicious.
//!
//! | file | holds |
//! |---|---|
//! | `detector` | which texts it looks at, and what it says as findings |
//! | `transformer` | the graph, and the thread it runs on |
//! | `reading` | a text as it reads it: folded, and behind it what encoded words say |
//! | `windows` | that as windows of tokens |
//! | `budget` | the CPU time it may take |
//! | `verdicts` | what it said before |
//! | `settings` | what belongs to the weights: gates, curves, thresholds |
//!
//! Weights, tokenizer and settings lie in `model/`; `inference/train/second.py` and `second_onnx.py` make them. Why this engine, what it
//! costs and what it is worth: `docs/decisions/second-stage.md`.

mod budget;
mod detector;
mod reading;
mod settings;
#[cfg(all(test, second_stage))]
mod tests;
mod transformer;
mod verdicts;
mod windows;

pub use detector::{SecondStage, SecondStageUse};
