//! How servers read a byte stream: once as strictly as can be, and seven times in ways that real ones have used.
//!
//! What Weir sends has to pass the strict automaton, and every other reading has to find the same requests in it. None
//! of this shares code with the gateway.

/// A request somebody sees in a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) method: String,
    pub(crate) target: String,
    /// Where its body ends; `None` when the stream ends first.
    pub(crate) end: Option<usize>,
}

/// What a strict reader makes of the front of a stream.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Strict {
    /// One whole request.
    Whole(Seen),
    /// The stream ends inside a request; its method and target, if its head is whole.
    Partial(Option<(String, String)>),
    /// No well-formed request can begin like this.
    Broken(String),
}

/// One request off the front of `stream`, by the narrowest grammar: CRLF only, `name: value`, one Host, one framing
/// field at most, no extensions, no trailers, no controls.
pub(crate) fn strict(stream: &[u8]) -> Strict {
    if stream.is_empty() {
        return Strict::Partial(None);
    }
    let Some(head_end) = memchr::memmem::find(stream, b"\r\n\r\n") else {
        // Whatever the end will be, no line so far may be odd.
        let whole_lines = memchr::memmem::rfind(stream, b"\r\n").map_or(0, |at| at + 2);
        return match stream[..whole_lines].iter().position(|byte| is_control(*byte)) {
            Some(at) if !matches!(stream[at], b'\r' | b'\n') => Strict::Broken(format!("control byte at {at}")),
            _ => Strict::Partial(None),
        };
    };
    match strict_head(&stream[..head_end]) {
        Err(why) => Strict::Broken(why),
        Ok(head) => {
            let body = head_end + 4;
            let end = match head.body {
                StrictBody::Length(length) => Ok(Some(body + length).filter(|end| *end <= stream.len())),
                StrictBody::Chunked => strict_chunks(&stream[body..]).map(|end| end.map(|end| body + end)),
            };
            match end {
                Err(why) => Strict::Broken(why),
                Ok(None) => Strict::Partial(Some((head.method, head.target))),
                Ok(end) => Strict::Whole(Seen { method: head.method, target: head.target, end }),
            }
        }
    }
}

struct StrictHead {
    method: String,
    target: String,
    body: StrictBody,
}

enum StrictBody {
    Length(usize),
    Chunked,
}

fn is_control(byte: u8) -> bool {
    byte < b' ' && byte != b'\t' || byte == 0x7f
}

fn is_token(bytes: &[u8]) -> bool {
    !bytes.is_empty() && bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(byte))
}

fn strict_head(head: &[u8]) -> Result<StrictHead, String> {
    let text = String::from_utf8_lossy(head);
    let mut lines = split(head, b"\r\n").into_iter();
    let start: Vec<&[u8]> = lines.next().unwrap_or_default().split(|byte| *byte == b' ').collect();
    let [method, target, b"HTTP/1.1"] = start[..] else { return Err(format!("start line in {text:?}")) };
    if !is_token(method) {
        return Err(format!("method in {text:?}"));
    }
    let is_origin = target.starts_with(b"/") || (target == b"*" && method == b"OPTIONS");
    if !is_origin || !target.iter().all(|byte| byte.is_ascii_graphic() && *byte != b'#') {
        return Err(format!("target in {text:?}"));
    }
    let (mut hosts, mut framings, mut body) = (0, 0, StrictBody::Length(0));
    for line in lines {
        let colon = line.iter().position(|byte| *byte == b':').ok_or_else(|| format!("no colon in {text:?}"))?;
        let (name, rest) = line.split_at(colon);
        // An empty value is written with the space that belongs to every field.
        let value = rest.strip_prefix(b": ").ok_or_else(|| format!("no space after a colon in {text:?}"))?;
        if !is_token(name) || value.iter().any(|byte| is_control(*byte)) || value.trim_ascii() != value {
            return Err(format!("field {:?} in {text:?}", String::from_utf8_lossy(line)));
        }
        match name.to_ascii_lowercase().as_slice() {
            b"host" => hosts += 1,
            b"content-length" => {
                framings += 1;
                let digits = value.iter().all(u8::is_ascii_digit) && (1..=19).contains(&value.len());
                let length = std::str::from_utf8(value).ok().and_then(|text| text.parse().ok()).filter(|_| digits);
                body = StrictBody::Length(length.ok_or_else(|| format!("length in {text:?}"))?);
            }
            b"transfer-encoding" => {
                framings += 1;
                if value != b"chunked" {
                    return Err(format!("coding in {text:?}"));
                }
                body = StrictBody::Chunked;
            }
            b"connection" | b"keep-alive" | b"te" | b"trailer" | b"upgrade" | b"proxy-connection" | b"expect" => {
                return Err(format!("a field that ends at this hop in {text:?}"));
            }
            _ => {}
        }
    }
    if hosts != 1 || framings > 1 {
        return Err(format!("{hosts} hosts, {framings} framings in {text:?}"));
    }
    Ok(StrictHead { method: lossy(method), target: lossy(target), body })
}

/// Where a chunked body ends; `None` when the stream ends first.
fn strict_chunks(body: &[u8]) -> Result<Option<usize>, String> {
    let mut at = 0;
    loop {
        let rest = &body[at..];
        let line_end = memchr::memmem::find(rest, b"\r\n");
        let digits = &rest[..line_end.unwrap_or(rest.len().saturating_sub(usize::from(rest.ends_with(b"\r"))))];
        if digits.len() > 15 || !digits.iter().all(u8::is_ascii_hexdigit) || line_end == Some(0) {
            return Err(format!("chunk size line {:?}", lossy(&digits[..digits.len().min(40)])));
        }
        let Some(line_end) = line_end else { return Ok(None) };
        let size = usize::from_str_radix(&lossy(digits), 16).map_err(|error| error.to_string())?;
        let data_end = at + line_end + 2 + size;
        match body.get(data_end..).map(|rest| &rest[..rest.len().min(2)]) {
            Some(b"\r\n") => at = data_end + 2,
            Some(b"" | b"\r") | None => return Ok(None),
            Some(other) => return Err(format!("{other:?} after the data of a chunk")),
        }
        if size == 0 {
            return Ok(Some(at));
        }
    }
}

/// A way of reading that is not ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reading {
    /// Content-Length counts, whatever else stands there.
    LengthFirst,
    /// `chunked` anywhere in Transfer-Encoding counts.
    CodingFirst,
    /// A bare LF ends a line, in heads and chunks; blanks around everything are ignored.
    LineFeed,
    /// A folded line belongs to the one before; blanks before a colon, underscores and case do not matter.
    Fold,
    /// A number is what `strtol` takes: blanks, a sign, 0x, and nothing behind the digits matters; it may wrap.
    Prefix,
    /// Of two equal names the first counts.
    FirstDuplicate,
    /// Of two equal names the last counts.
    LastDuplicate,
}

impl Reading {
    pub(crate) const ALL: [Self; 7] = [
        Self::LengthFirst,
        Self::CodingFirst,
        Self::LineFeed,
        Self::Fold,
        Self::Prefix,
        Self::FirstDuplicate,
        Self::LastDuplicate,
    ];

    /// Every request this reader finds in a stream.
    pub(crate) fn read(self, stream: &[u8]) -> Vec<Seen> {
        let mut found = Vec::new();
        let mut at = 0;
        while let Some((seen, end)) = self.one(stream, at) {
            found.push(seen);
            match end {
                Some(end) if end > at => at = end,
                _ => break,
            }
        }
        found
    }

    fn one(self, stream: &[u8], from: usize) -> Option<(Seen, Option<usize>)> {
        let mut at = from;
        let mut lines: Vec<Vec<u8>> = Vec::new();
        loop {
            let (line, next) = self.line(stream, at)?;
            at = next;
            let is_fold = self == Self::Fold && matches!(line.first(), Some(b' ' | b'\t'));
            match (line.is_empty(), lines.last_mut()) {
                (true, None) => {}
                (true, Some(_)) => break,
                (false, Some(last)) if is_fold => last.extend_from_slice(&line),
                (false, _) => lines.push(line),
            }
        }
        let mut start = lines[0].split(|byte| byte.is_ascii_whitespace()).filter(|part| !part.is_empty());
        let (method, target) = (lossy(start.next().unwrap_or_default()), lossy(start.next().unwrap_or_default()));
        let end = self.body_end(stream, at, &lines[1..]);
        Some((Seen { method, target, end }, end))
    }

    /// The line at `at` without its end, and where the next one begins.
    fn line(self, stream: &[u8], at: usize) -> Option<(Vec<u8>, usize)> {
        let rest = stream.get(at..)?;
        if self == Self::LineFeed {
            let end = memchr::memchr(b'\n', rest)?;
            return Some((rest[..end].trim_ascii_end().to_vec(), at + end + 1));
        }
        let end = memchr::memmem::find(rest, b"\r\n")?;
        Some((rest[..end].to_vec(), at + end + 2))
    }

    fn body_end(self, stream: &[u8], at: usize, lines: &[Vec<u8>]) -> Option<usize> {
        let values = |wanted: &str| -> Vec<Vec<u8>> {
            let fields = lines.iter().filter_map(|line| {
                let colon = line.iter().position(|byte| *byte == b':')?;
                let (name, value) = (&line[..colon], &line[colon + 1..]);
                let name = if self == Self::Fold {
                    lossy(name.trim_ascii()).replace('_', "-").to_ascii_lowercase()
                } else {
                    lossy(name).to_ascii_lowercase()
                };
                (name == wanted).then(|| value.trim_ascii().to_vec())
            });
            fields.collect()
        };
        let (lengths, codings) = (values("content-length"), values("transfer-encoding"));
        let one = |values: &[Vec<u8>]| -> Option<Vec<u8>> {
            if self == Self::FirstDuplicate { values.first().cloned() } else { values.last().cloned() }
        };
        let length = one(&lengths).and_then(|value| self.number(&value, 10));
        let says_chunked = |value: &[u8]| lossy(value).to_ascii_lowercase().contains("chunked");
        let chunked = match self {
            Self::LengthFirst => length.is_none() && codings.iter().any(|value| says_chunked(value)),
            Self::CodingFirst | Self::LineFeed | Self::Fold => codings.iter().any(|value| says_chunked(value)),
            _ => one(&codings).is_some_and(|value| value.eq_ignore_ascii_case(b"chunked")),
        };
        if chunked {
            return self.chunks_end(stream, at);
        }
        let length = usize::try_from(length.unwrap_or(0)).ok()?;
        at.checked_add(length).filter(|end| *end <= stream.len())
    }

    fn chunks_end(self, stream: &[u8], mut at: usize) -> Option<usize> {
        loop {
            let (line, next) = self.line(stream, at)?;
            let digits = line.split(|byte| *byte == b';').next().unwrap_or_default();
            let size = usize::try_from(self.number(digits.trim_ascii(), 16).unwrap_or(0)).ok()?;
            at = next;
            if size == 0 {
                break;
            }
            at = at.checked_add(size).filter(|end| *end <= stream.len())?;
            let (_, next) = self.line(stream, at)?;
            at = next;
        }
        loop {
            let (line, next) = self.line(stream, at)?;
            at = next;
            if line.is_empty() {
                return Some(at);
            }
        }
    }

    fn number(self, text: &[u8], radix: u32) -> Option<u64> {
        if self != Self::Prefix {
            return u64::from_str_radix(std::str::from_utf8(text).ok()?, radix).ok();
        }
        let text = text.strip_prefix(b"+").unwrap_or(text);
        let text = if radix == 16 { text.strip_prefix(b"0x").unwrap_or(text) } else { text };
        let digits = text.iter().map_while(|byte| char::from(*byte).to_digit(radix));
        digits.fold(None, |number: Option<u64>, digit| {
            Some(number.unwrap_or(0).wrapping_mul(u64::from(radix)).wrapping_add(u64::from(digit)))
        })
    }
}

/// What the readers of a stream disagree about; `None` when there is nothing. The stream may end inside a request.
pub(crate) fn disagreement(stream: &[u8]) -> Option<String> {
    let mut expected = Vec::new();
    let mut at = 0;
    loop {
        match strict(&stream[at..]) {
            Strict::Whole(mut seen) => {
                let end = at + seen.end.unwrap_or_default();
                seen.end = Some(end);
                at = end;
                expected.push(seen);
            }
            Strict::Partial(head) => {
                expected.extend(head.map(|(method, target)| Seen { method, target, end: None }));
                break;
            }
            Strict::Broken(why) => return Some(format!("byte {at}: {why}")),
        }
    }
    Reading::ALL.into_iter().find_map(|reading| {
        let found = reading.read(stream);
        (found != expected).then(|| {
            let at = found.iter().zip(&expected).position(|(a, b)| a != b).unwrap_or(found.len().min(expected.len()));
            format!("{reading:?} sees {:?} where the strict reading sees {:?}", found.get(at), expected.get(at))
        })
    })
}

fn split<'a>(text: &'a [u8], by: &[u8]) -> Vec<&'a [u8]> {
    let mut parts = Vec::new();
    let mut from = 0;
    for at in memchr::memmem::find_iter(text, by) {
        parts.push(&text[from..at]);
        from = at + by.len();
    }
    parts.push(&text[from..]);
    parts
}

fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn each_reading_sees_the_trick_it_is_there_for() {
    let host = "POST /a HTTP/1.1\r\nHost: x\r\n";
    let next = "GET /b HTTP/1.1\r\nHost: x\r\n\r\n";
    for (reading, stream) in [
        (
            Reading::LengthFirst,
            format!("{host}Content-Length: 33\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n{next}"),
        ),
        (Reading::CodingFirst, format!("{host}Transfer-Encoding: x, chunked\r\n\r\n1c\r\n{next}\r\n0\r\n\r\n")),
        (Reading::LineFeed, format!("{host}X: y\nContent-Length: 28\r\n\r\n{next}")),
        (Reading::Fold, format!("{host}Content-Length : 28\r\n\r\n{next}")),
        (Reading::Prefix, format!("{host}Content-Length: 28x\r\n\r\n{next}")),
        (Reading::FirstDuplicate, format!("{host}Content-Length: 28\r\nContent-Length: 0\r\n\r\n{next}")),
        (Reading::LastDuplicate, format!("{host}Content-Length: 0\r\nContent-Length: 28\r\n\r\n{next}")),
    ] {
        let others =
            Reading::ALL.into_iter().filter(|other| other.read(stream.as_bytes()) != reading.read(stream.as_bytes()));
        assert!(others.count() > 0, "{reading:?} sees nothing of its own in {stream:?}");
        assert!(disagreement(stream.as_bytes()).is_some(), "{stream:?}");
    }
    let fine = format!(
        "{host}Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n{host}Content-Length: 2\r\n\r\n{{}}{next}"
    );
    assert_eq!(disagreement(fine.as_bytes()), None);
    assert_eq!(disagreement(&fine.as_bytes()[..fine.len() - 20]), None, "a stream may end anywhere");
}
