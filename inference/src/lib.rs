//! Weir's inspection: text in, findings out.
//!
//! [`Analyser`] holds every detector, compiled once; [`Scratch`] is the memory one thread works in; [`Pool`] runs
//! analyses for the gateway's cores. The detectors:
//!
//! | name | looks for | how |
//! |---|---|---|
//! | `rules` | injection, extraction, exfiltration, payloads, manipulation | literals in one automaton, then small patterns |
//! | `jailbreak` | personas, privilege, format tricks, encoded orders | the same rules, also over decoded text |
//! | `pii` | personal data | a linear scanner with check digits and context words |
//! | `secrets` | credentials | rules with prefixes, entropy, and bare shapes |
//! | `actions` | dangerous commands, addresses and files in what agents report ([`action`]) | a shell's view of the words |
//!
//! Text is folded once ([`fold`]): look-alikes to ASCII, invisible characters away, offsets kept. Rules are data
//! (`rules/*.yaml`). Knows nothing of HTTP, storage or settings, does no I/O and starts no thread but the pool's.

pub mod action;
mod analyser;
mod candidate;
mod clean;
mod decode;
mod definition;
mod engine;
mod evidence;
mod fold;
mod frame;
mod literals;
mod part;
mod pii;
mod pool;
mod rules;
mod secret;
mod shape;
mod stopwatch;

pub use analyser::{Analyser, Scratch};
pub use clean::TextBytes;
pub use part::{DETECTORS, HITS_MAX, Hit, Options, Part, PartKind, Ran};
pub use pool::{Counters, Job, Pool, PoolHandle, PoolOptions, Turn};
pub use rules::LoadError;
