//! Detectors that run models: the second stage, which ships with Weir and needs no library (`second`), and those that operators provide,
//! ONNX graphs with their tokenizers, run by a libonnxruntime that is found at run time.
//!
//! | file | holds |
//! |---|---|
//! | `runtime` | the library: found, checked, loaded once |
//! | `folder` | where a model lies, and its files |
//! | `tokens` | a text as windows of tokens |
//! | `network` | the graph: one session for each thread that asks |
//! | `labels`, `entities` | what its classes mean |
//! | `sentences`, `support` | the sentences of an answer, held against what the request brought |
//! | `model` | all of these together |
//! | `known` | texts whose answer is known, on which a model is tried |
//! | `slot`, `place` | the places there are, each a detector |
//! | `loader` | the thread that fills them |
//! | `second` | the second stage |
//!
//! Invariants: without the library, or without a model, everything else works as before, and that it is missing is said;
//! a detector is absent until its model has passed its self-test; models run on threads of the pool alone.
//! Knows nothing of HTTP, storage or settings.

#[cfg(test)]
#[path = "../../tests/it/support/effort.rs"]
#[allow(dead_code)] // The gateway's suites use all of it.
mod effort;
mod entities;
mod folder;
#[cfg(test)]
#[path = "../../tests/it/support/hostile.rs"]
#[allow(dead_code)]
mod hostile;
mod known;
mod labels;
mod loader;
mod model;
mod network;
mod place;
mod runtime;
mod second;
mod sentences;
mod slot;
mod support;
#[cfg(test)]
#[path = "../../tests/hostile/texts.rs"]
mod texts;
mod tokens;

pub use folder::{Files, GRAPHS, ModelError, Named, default_cache, ids_in};
pub use loader::{FetchModel, Loader, ModelState, Models, Options};
pub use place::NotAsked;
pub use runtime::{OLDEST_MINOR, Runtime, RuntimeError, sha256_of};
pub use second::{SecondStage, SecondStageUse};
pub use slot::Slot;
