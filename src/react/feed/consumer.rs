//! What reads finished spans.

use std::time::{Duration, SystemTime};

use weir_storage::Cursor;
use weir_storage::record::SpanRecord;

use crate::outbound::{Answer, OutboundError, retry_after};

/// Finished spans that are brought together.
#[derive(Debug, Clone, Copy)]
pub struct Batch<'a> {
    /// The oldest first, of all tenants.
    pub spans: &'a [&'a SpanRecord],
    /// Where the batch ends in the order of the store, from which it was read; nothing where it comes from memory.
    pub end: Option<Cursor>,
}

/// Reads finished spans.
pub trait Consumer: Send + 'static {
    /// Its name: the key of its cursor and a label in `/metrics`, so never to be changed.
    fn name(&self) -> &'static str;

    /// Deals with spans. A batch comes again when it fails and after a crash, so taking a
    /// span twice must do no harm. The gateway waits for it no longer than [`Limits::attempt`].
    fn take(&mut self, batch: Batch<'_>) -> impl Future<Output = Result<(), Failure>> + Send;

    /// Whether it wants calls without findings, too. If not, they neither wake it nor reach it, and count as delivered.
    fn heeds_clean_calls(&self) -> bool {
        true
    }

    /// Whether it reads prompts and answers of stored spans. Reading them takes most of the time, more than a hundred times the rest
    /// where conversations are long.
    fn texts(&self) -> Texts {
        Texts::OfAll
    }

    /// Whether only one of several processes on the same store reads for this consumer. Otherwise each process would send
    /// the same message.
    fn reads_alone(&self) -> bool {
        false
    }

    /// How long finished spans may wait to be brought together where many come: each batch costs a look into the store, a request or a
    /// file that is synced, and a cursor that is written, however few it has.
    fn patience(&self) -> Duration {
        Duration::ZERO
    }

    /// How long the gateway waits for it.
    fn limits(&self) -> Limits {
        Limits::default()
    }
}

/// Whose prompts and answers a consumer reads.
#[derive(Debug, Clone, Copy)]
pub enum Texts {
    /// Those of every span.
    OfAll,
    /// No span's: they are left out of what is brought from the store.
    OfNone,
    /// Those of spans of which this is true. A batch that holds such a span is brought with the texts of all.
    Of(fn(&SpanRecord) -> bool),
}

/// How long a consumer is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// For one attempt at a batch.
    pub attempt: Duration,
    /// For all attempts at a batch; then it is given up and counted.
    pub batch: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self { attempt: Duration::from_secs(60), batch: Duration::from_secs(3_600) }
    }
}

/// Why a batch was not taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// It may be later: the batch comes again, no sooner than `after`.
    #[error("{reason}")]
    Later {
        /// For the log.
        reason: String,
        /// What the other side asks for.
        after: Option<Duration>,
    },
    /// It never will be: the batch is given up.
    #[error("{reason}")]
    Never {
        /// For the log.
        reason: String,
    },
}

impl From<OutboundError> for Failure {
    fn from(error: OutboundError) -> Self {
        let reason = error.to_string();
        if error.is_transient() { Self::Later { reason, after: None } } else { Self::Never { reason } }
    }
}

impl Failure {
    /// Nothing where a receiver has accepted what it was sent; its status tells errors that pass from those that stay.
    ///
    /// # Errors
    /// The receiver's answer, as a failure that passes or one that stays.
    pub fn unless_accepted(answer: &Answer) -> Result<(), Self> {
        let reason = format!("the receiver answered {}", answer.status);
        match answer.status.as_u16() {
            200..300 => Ok(()),
            408 | 425 | 429 | 500.. => {
                Err(Self::Later { reason, after: retry_after(&answer.fields, SystemTime::now()) })
            }
            _ => Err(Self::Never { reason }),
        }
    }
}
