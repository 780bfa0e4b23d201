//! Weir's inspection: text in, findings out.
//!
//! [`Analyser`] holds every [`Detector`], compiled once; a [`Plan`] says which of them run and how strict they are;
//! [`Scratch`] is the memory one thread works in; [`WorkerPool`] runs analyses for the gateway's cores. The detectors in the
//! binary (`builtin`):
//!
//! | name | looks for | how |
//! |---|---|---|
//! | `rules` | injection, extraction, exfiltration, payloads, manipulation | literals in one automaton, then small patterns |
//! | `jailbreak` | personas, privilege, format tricks, encoded orders | the same rules, also over decoded text |
//! | `pii` | personal data | a linear scanner with check digits and context words |
//! | `secrets` | credentials | rules with prefixes, entropy, and bare shapes |
//! | `classifier` | orders that the rules have no words for | learned weights of words and pairs of words, in windows ([`Analyser::whole`]) |
//! | `fusion` | attacks in what all the others say together | a weighted sum ([`Fusion`]) |
//! | `toxicity` | toxic answers, where no ONNX model of them is configured | learned weights of words, pairs and runs of letters ([`Analyser::whole`]) |
//! | `operator_rules` | what operators' own rules say | as `rules`, in a pass of their own ([`OperatorRules`]) |
//! | `actions` | dangerous commands, addresses and files in what agents report ([`action`]) | a shell's view of the words |
//!
//! Text is folded once ([`fold`]): look-alikes to ASCII, invisible characters away, offsets kept. Rules are data
//! (`rules/*.yaml`). Models that operators provide are detectors of the crate `weir-models`. Knows nothing of HTTP, storage or settings, does no I/O and starts no thread but the pool's.

pub mod action;
mod addressee;
mod analyser;
mod bits;
mod builtin;
mod candidate;
mod change;
mod clean;
mod decode;
mod definition;
mod detector;
mod detector_set;
mod evidence;
mod fold;
mod frame;
mod fusion;
mod gate;
mod grams;
mod later;
mod learned;
mod literals;
mod names;
mod operator;
mod part;
mod personal;
mod personal_coded;
mod pii;
mod pins;
mod plan;
mod pool;
mod pool_thread;
pub mod provenance;
mod ran;
mod repeated;
mod rule_book;
mod rule_matcher;
mod rules;
mod secret;
mod shape;
mod shared_look;
mod signals;
mod stopwatch;
mod strictness;
mod suppressor;
mod taken;
mod toxic;
mod trained;
mod tuning;

pub use analyser::{Analyser, Scratch};
pub use clean::{KnownTexts, TextBytes};
pub use detector::{CostClass, Decoded, Detector, Found, Kinds, Needs, Text};
pub use detector_set::{DETECTORS_MAX, DetectorSet};
pub use fusion::Fusion;
pub use gate::{FirstLook, Gate, Skips};
pub use later::{Later, Seen};
pub use learned::Classifier;
pub use names::{ANOTHER_TOOL, CHANGE_SIGNS, CLASSIFIER, EMBEDDED, FUSION, SECOND_STAGE, TOOL_CHANGED};
pub use operator::{OPERATOR_RULES, OperatorRules};
pub use part::{HITS_MAX, Hit, Part, PartKind};
pub use personal::{Personal, personal_data, personal_data_by};
pub use plan::{Call, Plan, PlanSettings, ToolChanges};
pub use pool::{Counters, Job, Lane, PoolHandle, PoolOptions, Turn, Work, WorkerPool};
pub use ran::Ran;
pub use repeated::{Original, Repeated};
pub use rule_book::{RuleBook, RuleMatch, RuleView};
pub use rules::{LoadError, RuleText};
pub use signals::Signals;
pub use taken::{CONTEXT_BYTES, KeyEnds, Taken, Taker, Taking, secret_tag};
pub use toxic::TOXICITY;
pub use tuning::{Levels, OperatingPoint, Tuning};
