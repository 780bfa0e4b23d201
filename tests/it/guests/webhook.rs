//! A toy consumer: sends the trace ids of finished spans to a receiver, one a line.

use std::time::Duration;

use weir::feed::{Batch, Consumer, Failure, Feed};
use weir::outbound::{Call, Client, Limits};

/// The variable that names the receiver.
pub(crate) const RECEIVER: &str = "WEIR_TEST_RECEIVER";

/// The line of registration.
pub(super) fn add(feed: &mut Feed) {
    feed.add(Webhook { client: feed.client(), url: std::env::var(RECEIVER).unwrap() });
}

struct Webhook {
    client: Client,
    url: String,
}

impl Consumer for Webhook {
    fn name(&self) -> &'static str {
        "webhook"
    }

    async fn take(&mut self, batch: Batch<'_>) -> Result<(), Failure> {
        let ids: Vec<String> = batch.spans.iter().map(|span| span.trace_id.to_string()).collect();
        let limits = Limits { total: Duration::from_secs(20), cut: true, ..Limits::default() };
        let answer = self.client.send(Call::post(&self.url, "text/plain", ids.join("\n"))?, limits).await?;
        let reason = format!("the receiver answered {}", answer.status);
        match answer.status.as_u16() {
            200..300 => Ok(()),
            429 | 500.. => Err(Failure::Later { reason, after: None }),
            _ => Err(Failure::Never { reason }),
        }
    }
}
