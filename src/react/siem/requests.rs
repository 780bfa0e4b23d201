//! Events in requests of HTTP: to a webhook, Splunk's HTTP Event Collector, the bulk API of Elasticsearch.

use std::time::Duration;

use http::{HeaderName, HeaderValue};
use weir_config::settings::{OtelCompression, SiemBatch, SiemReceiver};
use weir_config::siem_token;

use super::batch::{self, Piece, Said, judge};
use super::event::Event;
use super::syslog::host;
use crate::outbound::{Call, Client, Limits, packed};

/// For one request where nobody says so.
const USUAL_TIMEOUT: Duration = Duration::from_secs(10);
/// Of most answers only the status is asked, and a word for the log.
const ANSWER_BYTES: usize = 16 * 1024;
/// The bulk API says something of each event.
const BULK_ANSWER_BYTES: usize = 4 * 1024 * 1024;

/// The way to a receiver.
pub(super) struct Requests {
    settings: SiemReceiver,
    client: Client,
    host: String,
}

impl Requests {
    pub(super) fn new(settings: &SiemReceiver, client: Client) -> Self {
        Self { settings: settings.clone(), client, host: host() }
    }

    /// An event, whose JSON is `text`, as it stands in a request.
    pub(super) fn piece(&self, event: &Event, text: &str) -> Piece {
        batch::piece(self.settings.batch, event, text, &self.host)
    }

    /// Sends one.
    pub(super) async fn send(&self, part: &[Piece]) -> Said {
        let later = |reason: String| Said::Later { reason, after: None, is_doubtful: false };
        let call = match self.call(part).await {
            Ok(call) => call,
            Err(reason) => return later(reason),
        };
        let is_bulk = self.settings.batch == SiemBatch::Elastic;
        let total = self.settings.timeout_ms.map_or(USUAL_TIMEOUT, Duration::from_millis);
        let answer_bytes = if is_bulk { BULK_ANSWER_BYTES } else { ANSWER_BYTES };
        match self.client.send(call, Limits { total, answer_bytes, cut: !is_bulk }).await {
            Ok(answer) => judge(self.settings.batch, &answer, part.len()),
            Err(error) => later(error.to_string()),
        }
    }

    async fn call(&self, part: &[Piece]) -> Result<Call, String> {
        let SiemReceiver { batch, compression, token_file, .. } = &self.settings;
        let (body, file) = (batch::body(*batch, part), token_file.clone());
        let is_packed = *compression == OtelCompression::Gzip;
        // Both take longer than others on this thread should wait.
        let made = tokio::task::spawn_blocking(move || {
            let token = file.map(|file| siem_token(&file)).transpose()?;
            Ok::<_, String>((if is_packed { packed(&body) } else { body }, token))
        });
        let (body, token) = made.await.map_err(|error| error.to_string())??;
        let url = std::str::from_utf8(self.settings.url.expose()).unwrap_or_default();
        let mut call = Call::post(url, batch::media_type(*batch), body).map_err(|error| error.to_string())?;
        if is_packed {
            call = call.field(http::header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        }
        let token = token.as_ref().or(self.settings.token.as_ref()).map(|token| token.expose());
        for (name, value) in self.settings.fields(token) {
            // Their form was checked with the settings, and with the file.
            if let (Ok(name), Ok(mut value)) = (HeaderName::from_bytes(&name), HeaderValue::from_bytes(&value)) {
                value.set_sensitive(true);
                call = call.field(name, value);
            }
        }
        Ok(call)
    }
}
