//! The end of every exchange: what was seen of it becomes a record, a charge, metrics and lines of the log.

mod answer_copy;
pub(crate) mod body_copies;
pub(crate) mod charge;
pub(crate) mod closing;
pub(crate) mod complete;
mod framed;
pub(crate) mod inspection;
pub(crate) mod journal;
mod leak;
pub(crate) mod made;
pub(crate) mod marks;
pub(crate) mod masking;
pub(crate) mod models;
pub(crate) mod pool_meter;
mod prompt_cache;
mod prompt_order;
pub(crate) mod provenance;
pub(crate) mod publish;
pub(crate) mod recorded;
pub(crate) mod redact;
mod seam;
#[cfg(test)]
mod tests;
pub(crate) mod text;
pub(crate) mod whole;
mod zones;
