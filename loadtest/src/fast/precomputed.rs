//! The answers of the fast provider, made before anybody asks, and the requests they are for.

use std::time::Duration;

use super::options::ProviderSettings;
use weir_fake_provider::http::Request;
use weir_fake_provider::provider::{self, Script};

/// A request longer than this takes the slow way, which bounds it.
pub(super) const FAST_BYTES_MAX: usize = 2 * 1024 * 1024;
/// Read at once where requests are answered from their head: enough for a head, and little of a body.
const HEAD_READ_BYTES: usize = 2 * 1024;
/// The paths of the one model whose generate-content calls are answered fast.
const GEMINI_WHOLE: &str = "/v1beta/models/fake-small:generateContent";
const GEMINI_STREAM: &str = "/v1beta/models/fake-small:streamGenerateContent?alt=sse";

/// The precomputed answers.
pub(super) struct Precomputed {
    paths: Vec<PathAnswers>,
    /// Most bytes read at once.
    pub(super) read_bytes: usize,
    /// Time before each whole answer.
    pub(super) delay: Duration,
}

struct PathAnswers {
    path: &'static str,
    /// Whether the path is that of streams; where it says nothing, the body does.
    streams: Option<bool>,
    /// Whether the dialect streams unless told not to.
    streams_by_default: bool,
    whole: Vec<u8>,
    stream: Script,
    /// The same for clients of HTTP/1.0, whose connection ends with the answer.
    whole_1_0: Vec<u8>,
    stream_1_0: Script,
    /// The answer to a request's head, whatever its body is going to be.
    early: Option<Vec<u8>>,
}

impl PathAnswers {
    fn is_stream(&self, body: &[u8]) -> bool {
        self.streams.unwrap_or_else(|| stream_member(body).unwrap_or(self.streams_by_default))
    }
}

/// What the start of a connection's buffer is.
pub(super) enum Recognised<'m> {
    NeedMore,
    /// A whole ordinary request of this length, its answer, and whether the connection ends with it.
    Whole(usize, &'m [u8], bool),
    Stream(usize, &'m Script, bool),
    /// The head of an ordinary request of this length, and its answer.
    Head(usize, &'m [u8]),
    /// Anything else.
    Special,
}

impl Precomputed {
    pub(super) fn new(settings: &ProviderSettings) -> Self {
        let paths: &[(&'static str, &str)] = match settings.full {
            true => &[],
            false => &[
                ("/v1/chat/completions", r#""messages":[{"role":"user","content":"hi"}]"#),
                ("/v1/completions", r#""prompt":"hi""#),
                ("/v1/responses", r#""input":"hi""#),
                ("/v1/messages", r#""messages":[{"role":"user","content":"hi"}]"#),
                ("/api/generate", r#""prompt":"hi""#),
                ("/api/chat", r#""messages":[{"role":"user","content":"hi"}]"#),
                (GEMINI_WHOLE, r#""contents":[{"role":"user","parts":[{"text":"hi"}]}]"#),
                (GEMINI_STREAM, r#""contents":[{"role":"user","parts":[{"text":"hi"}]}]"#),
            ],
        };
        let answers = |&(path, said): &(&'static str, &str)| {
            let request = |stream: bool| {
                let usage = r#""stream_options":{"include_usage":true}"#;
                let body = format!(r#"{{"model":"fake-small","stream":{stream},{usage},{said}}}"#);
                Request::new("POST", path).with_body(body)
            };
            let request = |stream: bool| match settings.digest {
                true => request(stream).with_header("x-fake-digest", "1"),
                false => request(stream),
            };
            let whole = request(false).with_header("x-fake-answer-bytes", &settings.answer_bytes.to_string());
            let stream = request(true)
                .with_header("x-fake-frames", &settings.frames.to_string())
                .with_header("x-fake-frame-ms", &settings.frame_ms.to_string())
                .with_header("x-fake-delay-ms", &settings.delay_ms.to_string())
                .with_header("x-fake-stamp", "1");
            let bytes = |request: &Request| -> Vec<u8> {
                let writes = provider::respond(request).script(!request.is_http_1_0, false).writes;
                writes.into_iter().flat_map(|write| write.bytes).collect()
            };
            let old = |request: &Request| Request { is_http_1_0: true, ..request.clone() };
            let early =
                settings.early.map(|status| bytes(&whole.clone().with_header("x-fake-status", &status.to_string())));
            PathAnswers {
                path,
                streams: match path {
                    GEMINI_WHOLE => Some(false),
                    GEMINI_STREAM => Some(true),
                    _ => None,
                },
                streams_by_default: path.starts_with("/api/"),
                whole: bytes(&whole),
                stream: provider::respond(&stream).script(true, false),
                whole_1_0: bytes(&old(&whole)),
                stream_1_0: provider::respond(&old(&stream)).script(false, false),
                early,
            }
        };
        let read_bytes = if settings.early.is_some() { HEAD_READ_BYTES } else { usize::MAX };
        let delay = Duration::from_millis(settings.delay_ms);
        Self { paths: paths.iter().map(answers).collect(), read_bytes, delay }
    }

    pub(super) fn recognise(&self, buf: &[u8]) -> Recognised<'_> {
        let mut fields = [httparse::EMPTY_HEADER; 64];
        let mut head = httparse::Request::new(&mut fields);
        let head_bytes = match head.parse(buf) {
            Ok(httparse::Status::Complete(bytes)) => bytes,
            Ok(httparse::Status::Partial) => return Recognised::NeedMore,
            Err(_) => return Recognised::Special,
        };
        let path = head.path.unwrap_or_default();
        let answers = self.paths.iter().find(|answers| answers.path == path);
        let (Some(answers), Some("POST"), Some(version)) = (answers, head.method, head.version) else {
            return Recognised::Special;
        };
        let is_1_0 = version == 0;
        let (mut length, mut closes) = (None, is_1_0);
        for field in head.headers.iter() {
            let is = |name: &str| field.name.eq_ignore_ascii_case(name);
            // First letters sort out nearly every field before a comparison.
            match field.name.as_bytes().first().map(u8::to_ascii_lowercase) {
                Some(b'x') if field.name.get(..7).is_some_and(|start| start.eq_ignore_ascii_case("x-fake-")) => {
                    return Recognised::Special;
                }
                Some(b'e') if is("expect") => return Recognised::Special,
                Some(b't') if is("transfer-encoding") => return Recognised::Special,
                Some(b'c') if is("content-length") => {
                    let parsed = std::str::from_utf8(field.value).ok().and_then(|value| value.parse::<usize>().ok());
                    // A second length, or one that is no number, is for the strict reader to refuse.
                    let (Some(parsed), None) = (parsed, length) else { return Recognised::Special };
                    length = Some(parsed);
                }
                Some(b'c') if is("connection") => match field.value {
                    value if value.eq_ignore_ascii_case(b"keep-alive") => {}
                    value if value.eq_ignore_ascii_case(b"close") => closes = true,
                    _ => return Recognised::Special,
                },
                _ => {}
            }
        }
        let Some(total) = length.and_then(|length| head_bytes.checked_add(length)) else { return Recognised::Special };
        if total > FAST_BYTES_MAX {
            return Recognised::Special;
        }
        if let Some(answer) = &answers.early {
            // What is answered early and ends the connection has to be read to its end first.
            return if closes { Recognised::Special } else { Recognised::Head(total, answer) };
        }
        match buf.get(head_bytes..total) {
            None => Recognised::NeedMore,
            Some(body) if answers.is_stream(body) => {
                let script = if is_1_0 { &answers.stream_1_0 } else { &answers.stream };
                Recognised::Stream(total, script, closes)
            }
            Some(_) => Recognised::Whole(total, if is_1_0 { &answers.whole_1_0 } else { &answers.whole }, closes),
        }
    }
}

/// The value of a `"stream"` member. Inside a JSON string its quotes would be escaped, so the text cannot fake it.
fn stream_member(body: &[u8]) -> Option<bool> {
    let start = memchr::memmem::find(body, b"\"stream\"")? + b"\"stream\"".len();
    let mut value = body.get(start..)?.iter().skip_while(|byte| byte.is_ascii_whitespace() || **byte == b':');
    Some(value.next() == Some(&b't'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_have_the_same_pace_for_clients_of_http_1_0() {
        let precomputed = Precomputed::new(&crate::tests::provider_settings());
        let dues = |script: &Script| script.writes.iter().map(|write| write.due).collect::<Vec<_>>();
        for answers in &precomputed.paths {
            let (newer, older) = (dues(&answers.stream), dues(&answers.stream_1_0));
            assert_eq!(newer, older, "{}", answers.path);
            // Gemini has a path of its own for answers that are whole.
            let is_whole = answers.path.ends_with(":generateContent");
            assert!((newer.len() > 3 || is_whole) && answers.stream_1_0.closes, "{}: {newer:?}", answers.path);
        }
    }

    #[test]
    fn a_stream_member_is_read_and_a_text_about_it_is_not() {
        assert_eq!(stream_member(br#"{"stream" : true}"#), Some(true));
        assert_eq!(stream_member(br#"{"stream":false}"#), Some(false));
        assert_eq!(stream_member(br#"{"content":"\"stream\":true"}"#), None);
    }
}
