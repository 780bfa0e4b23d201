//! How a caller bends an answer: header fields `x-fake-*`, or directives in the model name or the prompt.
//!
//! | directive | value | effect |
//! |---|---|---|
//! | `status` | 200-599 | answers with this status; from 400 on in the provider's error shape |
//! | `delay-ms` | 0-600000 | waits before the head |
//! | `frames` | 1-100000 | content frames of a stream; the text grows to that many words if needed |
//! | `frame-ms` | 0-60000 | time between frames |
//! | `reply` | text | the reply, instead of the deterministic one |
//! | `answer-bytes` | 1-67108864 | makes a whole JSON answer exactly this long, where its envelope allows |
//! | `cut-after` | 0-67108864 | closes the connection after this many body bytes |
//! | `encoding` | `gzip` | compresses the body, each frame flushed by itself |
//! | `framing` | `length`, `chunked`, `close` | how the body is delimited |
//! | `usage` | `none` | leaves the token counts out |
//! | `prompt-tokens` | 1-1000000 | tokens of the prompt that are counted, instead of those of its texts |
//! | `cached-tokens` | 0-1000000 | prompt tokens read from a cache, as the dialect counts them |
//! | `cache-write-tokens` | 0-1000000 | prompt tokens written to a cache (messages only) |
//! | `reasoning-tokens` | 0-1000000 | completion tokens spent on reasoning (not messages) |
//! | `digest` | `1` | the head carries a digest of the body's bytes, stamps counted as zeros |
//! | `stamp` | `1` | stream frames carry the time they were sent |
//! | `retry-after` | text | sets that response field |
//! | `header` | `name: value` | adds a response field; may be repeated |
//! | `close` | `1` | closes the connection after the answer |
//!
//! As a header the name gets the prefix `x-fake-`. In a model name directives follow an `@`
//! (`small@status=429,delay-ms=5`); in the newest user prompt they stand in `[[fake status=429 delay-ms=5]]`.
//! Precedence: header, prompt, model. An unknown directive or a bad value is answered with 400.

use super::answer::Framing;
use crate::http::Request;

/// The directives of one request.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Steering {
    pub(super) status: Option<u16>,
    pub(super) delay_ms: Option<u64>,
    pub(super) frames: Option<usize>,
    pub(super) frame_ms: Option<u64>,
    pub(super) reply: Option<String>,
    pub(super) answer_bytes: Option<usize>,
    pub(super) cut_after: Option<usize>,
    pub(super) gzip: bool,
    pub(super) framing: Option<Framing>,
    pub(super) no_usage: bool,
    pub(super) prompt: Option<usize>,
    pub(super) cached: Option<usize>,
    pub(super) cache_write: Option<usize>,
    pub(super) reasoning: Option<usize>,
    pub(super) digest: bool,
    pub(super) stamp: bool,
    pub(super) close: bool,
    pub(super) headers: Vec<(String, String)>,
}

impl Steering {
    /// Reads the header fields.
    pub(super) fn of_headers(request: &Request) -> Result<Self, String> {
        let mut steering = Self::default();
        for (name, value) in &request.headers {
            if let Some(prefix) = name.get(..7).filter(|prefix| prefix.eq_ignore_ascii_case("x-fake-")) {
                steering.set(&name[prefix.len()..].to_ascii_lowercase(), value)?;
            }
        }
        Ok(steering)
    }

    /// Reads the directives behind the `@` of a model name.
    pub(super) fn of_model(model: &str) -> Result<Self, String> {
        Self::of_pairs(model.split_once('@').map_or("", |(_, list)| list), ',')
    }

    /// Reads the first `[[fake ...]]` of a prompt.
    pub(super) fn of_prompt(prompt: &str) -> Result<Self, String> {
        let inner = prompt.split_once("[[fake ").and_then(|(_, rest)| rest.split_once("]]"));
        Self::of_pairs(inner.map_or("", |(list, _)| list), ' ')
    }

    /// These directives, and where they are silent, `weaker`'s.
    pub(super) fn or(self, weaker: Self) -> Self {
        Self {
            status: self.status.or(weaker.status),
            delay_ms: self.delay_ms.or(weaker.delay_ms),
            frames: self.frames.or(weaker.frames),
            frame_ms: self.frame_ms.or(weaker.frame_ms),
            reply: self.reply.or(weaker.reply),
            answer_bytes: self.answer_bytes.or(weaker.answer_bytes),
            cut_after: self.cut_after.or(weaker.cut_after),
            gzip: self.gzip || weaker.gzip,
            framing: self.framing.or(weaker.framing),
            no_usage: self.no_usage || weaker.no_usage,
            prompt: self.prompt.or(weaker.prompt),
            cached: self.cached.or(weaker.cached),
            cache_write: self.cache_write.or(weaker.cache_write),
            reasoning: self.reasoning.or(weaker.reasoning),
            digest: self.digest || weaker.digest,
            stamp: self.stamp || weaker.stamp,
            close: self.close || weaker.close,
            headers: [self.headers, weaker.headers].concat(),
        }
    }

    fn of_pairs(list: &str, separator: char) -> Result<Self, String> {
        let mut steering = Self::default();
        for pair in list.split(separator).map(str::trim).filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').ok_or_else(|| format!("directive `{pair}` has no `=`"))?;
            steering.set(name, value)?;
        }
        Ok(steering)
    }

    fn set(&mut self, name: &str, value: &str) -> Result<(), String> {
        match name {
            "status" => self.status = Some(u16::try_from(number(name, value, 200, 599)?).unwrap_or(599)),
            "delay-ms" => self.delay_ms = Some(number(name, value, 0, 600_000)? as u64),
            "frames" => self.frames = Some(number(name, value, 1, 100_000)?),
            "frame-ms" => self.frame_ms = Some(number(name, value, 0, 60_000)? as u64),
            "reply" => self.reply = Some(value.to_owned()),
            "answer-bytes" => self.answer_bytes = Some(number(name, value, 1, 64 << 20)?),
            "cut-after" => self.cut_after = Some(number(name, value, 0, 64 << 20)?),
            "encoding" if value == "gzip" => self.gzip = true,
            "framing" if value == "length" => self.framing = Some(Framing::Length),
            "framing" if value == "chunked" => self.framing = Some(Framing::Chunked),
            "framing" if value == "close" => self.framing = Some(Framing::UntilClose),
            "usage" if value == "none" => self.no_usage = true,
            "prompt-tokens" => self.prompt = Some(number(name, value, 1, 1_000_000)?),
            "cached-tokens" => self.cached = Some(number(name, value, 0, 1_000_000)?),
            "cache-write-tokens" => self.cache_write = Some(number(name, value, 0, 1_000_000)?),
            "reasoning-tokens" => self.reasoning = Some(number(name, value, 0, 1_000_000)?),
            "digest" if value == "1" => self.digest = true,
            "stamp" if value == "1" => self.stamp = true,
            "close" if value == "1" => self.close = true,
            "retry-after" => self.headers.push(("retry-after".to_owned(), value.to_owned())),
            "header" => match value.split_once(':') {
                Some((name, value)) => self.headers.push((name.trim().to_owned(), value.trim().to_owned())),
                None => return Err(format!("directive `header` is `{value}`; accepted is `name: value`")),
            },
            "encoding" | "framing" | "usage" | "digest" | "stamp" | "close" => {
                return Err(format!("directive `{name}` does not know the value `{value}`"));
            }
            _ => return Err(format!("directive `{name}` is unknown")),
        }
        Ok(())
    }
}

fn number(name: &str, value: &str, min: usize, max: usize) -> Result<usize, String> {
    match value.trim().parse() {
        Ok(number) if (min..=max).contains(&number) => Ok(number),
        _ => Err(format!("directive `{name}` is `{value}`; accepted are {min} to {max}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_beat_the_prompt_and_the_prompt_beats_the_model() {
        let request = Request::new("POST", "/").with_header("X-Fake-Status", "429").with_header("x-other", "1");
        let all = Steering::of_headers(&request)
            .unwrap()
            .or(Steering::of_prompt("please [[fake status=500 delay-ms=7]] now").unwrap())
            .or(Steering::of_model("small@delay-ms=9,frames=3").unwrap());
        assert_eq!((all.status, all.delay_ms, all.frames), (Some(429), Some(7), Some(3)));
    }

    #[test]
    fn bad_directives_are_named() {
        assert_eq!(
            Steering::of_model("m@status=99").unwrap_err(),
            "directive `status` is `99`; accepted are 200 to 599"
        );
        assert_eq!(Steering::of_prompt("[[fake speed=1]]").unwrap_err(), "directive `speed` is unknown");
        assert_eq!(Steering::of_prompt("[[fake speed]]").unwrap_err(), "directive `speed` has no `=`");
    }
}
