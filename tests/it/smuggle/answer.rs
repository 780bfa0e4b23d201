//! One answer, read as strictly as can be. Shares no code with the gateway.

/// What a strict reader makes of the front of a stream of answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum StrictAnswer {
    /// A whole final answer, interim ones before it included.
    Whole(Answer),
    /// The stream ends inside it.
    Partial,
    /// No answer may look like this.
    Broken(String),
}

/// A final answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) fields: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
    /// Where it ends in the stream.
    pub(crate) end: usize,
}

impl Answer {
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(own, _)| own == name).map(|(_, value)| value.as_str())
    }
}

/// Reads the answer to a request with `method`. `is_over`: the stream has ended in order.
pub(crate) fn strict_answer(stream: &[u8], method: &str, is_over: bool) -> StrictAnswer {
    let mut at = 0;
    loop {
        let Some(len) = memchr::memmem::find(&stream[at..], b"\r\n\r\n") else { return StrictAnswer::Partial };
        let (status, fields) = match head(&stream[at..at + len]) {
            Ok(head) => head,
            Err(why) => return StrictAnswer::Broken(why),
        };
        at += len + 4;
        let all = |name: &str| fields.iter().filter(|(own, _)| own == name).map(|(_, value)| value.clone()).collect();
        let (lengths, codings): (Vec<String>, Vec<String>) = (all("content-length"), all("transfer-encoding"));
        if lengths.len() + codings.len() > 1 {
            return StrictAnswer::Broken("two framing fields".to_owned());
        }
        let length = match lengths.first().map(|text| (text.bytes().all(|byte| byte.is_ascii_digit()), text.parse())) {
            None => None,
            Some((true, Ok(length))) => Some(length),
            Some(_) => return StrictAnswer::Broken(format!("length {lengths:?}")),
        };
        if codings.first().is_some_and(|value| value != "chunked") {
            return StrictAnswer::Broken(format!("coding {codings:?}"));
        }
        // A length of 0 where none belongs is superfluous, and cannot be read in two ways.
        let is_framed = length.is_some_and(|length| length > 0) || !codings.is_empty();
        if (status < 200 || status == 204) && is_framed || status == 101 {
            return StrictAnswer::Broken(format!("{status} with a body"));
        }
        if status < 200 {
            continue;
        }
        let rest = &stream[at..];
        let bodiless = method == "HEAD" || status == 204 || status == 304;
        let body = match (bodiless, length, codings.is_empty()) {
            (true, _, _) => Some((Vec::new(), 0)),
            (false, Some(length), _) => rest.get(..length).map(|body| (body.to_vec(), length)),
            (false, None, false) => match chunks(rest) {
                Ok(body) => body,
                Err(why) => return StrictAnswer::Broken(why),
            },
            (false, None, true) => is_over.then(|| (rest.to_vec(), rest.len())),
        };
        return match body {
            Some((body, used)) => StrictAnswer::Whole(Answer { status, fields, body, end: at + used }),
            None => StrictAnswer::Partial,
        };
    }
}

type Head = (u16, Vec<(String, String)>);

fn head(head: &[u8]) -> Result<Head, String> {
    let text = String::from_utf8_lossy(head).into_owned();
    if head.iter().enumerate().any(|(at, byte)| match byte {
        b'\r' => head.get(at + 1) != Some(&b'\n'),
        b'\n' => at == 0 || head[at - 1] != b'\r',
        byte => *byte < b' ' && *byte != b'\t' || *byte == 0x7f,
    }) {
        return Err(format!("a control byte in {text:?}"));
    }
    let mut lines = text.split("\r\n");
    let start = lines.next().unwrap_or_default();
    let status = start.strip_prefix("HTTP/1.1 ").filter(|rest| rest.as_bytes().get(3).is_none_or(|byte| *byte == b' '));
    let status =
        status.and_then(|rest| rest.get(..3)).filter(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()));
    let status = status.and_then(|digits| digits.parse().ok()).filter(|status| *status >= 100);
    let status = status.ok_or_else(|| format!("status line {start:?}"))?;
    let mut fields = Vec::new();
    for line in lines {
        let (name, value) = line.split_once(':').ok_or_else(|| format!("no colon in {line:?}"))?;
        let is_token = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte));
        if name.is_empty() || !is_token {
            return Err(format!("a name in {line:?}"));
        }
        fields.push((name.to_ascii_lowercase(), value.trim_matches([' ', '\t']).to_owned()));
    }
    Ok((status, fields))
}

/// The content of a chunked body and its length on the wire; `None` when the stream ends first. Extensions and trailers
/// are broken here: an answer that carries them is whole for some and not for others.
#[allow(clippy::type_complexity)]
fn chunks(stream: &[u8]) -> Result<Option<(Vec<u8>, usize)>, String> {
    let (mut body, mut at) = (Vec::new(), 0);
    loop {
        let Some(len) = memchr::memmem::find(&stream[at..], b"\r\n") else {
            let rest = &stream[at..];
            let digits = rest.strip_suffix(b"\r").unwrap_or(rest);
            let fine = digits.len() <= 15 && digits.iter().all(u8::is_ascii_hexdigit);
            return if fine { Ok(None) } else { Err("a chunk size line".to_owned()) };
        };
        let digits = std::str::from_utf8(&stream[at..at + len]).ok();
        let digits =
            digits.filter(|text| (1..=15).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_hexdigit()));
        let size = digits.and_then(|text| usize::from_str_radix(text, 16).ok()).ok_or("a chunk size line")?;
        at += len + 2;
        let Some(data) = stream.get(at..at + size) else { return Ok(None) };
        body.extend_from_slice(data);
        at += size;
        match stream.get(at..).map(|rest| &rest[..rest.len().min(2)]) {
            Some(b"\r\n") => at += 2,
            Some(b"" | b"\r") | None => return Ok(None),
            Some(_) => return Err("no line end behind a chunk".to_owned()),
        }
        if size == 0 {
            return Ok(Some((body, at)));
        }
    }
}

#[test]
fn the_strict_reading_tells_whole_from_cut_and_broken() {
    use StrictAnswer::{Broken, Partial, Whole};
    let read = |text: &str, method: &str, is_over: bool| strict_answer(text.as_bytes(), method, is_over);
    let ok = "HTTP/1.1 200 OK\r\n";
    assert!(matches!(read(&format!("{ok}Content-Length: 2\r\n\r\n{{}}"), "GET", false), Whole(a) if a.body == b"{}"));
    assert!(matches!(read(&format!("{ok}Content-Length: 2\r\n\r\n"), "HEAD", false), Whole(a) if a.body.is_empty()));
    let chunked = format!("{ok}Transfer-Encoding: chunked\r\n\r\n2\r\n{{}}\r\n0\r\n\r\n");
    assert!(matches!(read(&chunked, "GET", false), Whole(a) if a.body == b"{}" && a.end == chunked.len()));
    for cut in 0..chunked.len() {
        assert_eq!(read(&chunked[..cut], "GET", true), Partial, "cut at {cut}");
    }
    assert_eq!(read(&format!("{ok}\r\nabc"), "GET", false), Partial);
    assert!(matches!(read(&format!("{ok}\r\nabc"), "GET", true), Whole(a) if a.body == b"abc"));
    for lines in
        ["Content-Length: 2\r\nContent-Length: 2\r\n", "Content-Length: +2\r\n", "X: a\rb\r\n", "X\r\n", " X: y\r\n"]
    {
        assert!(matches!(read(&format!("{ok}{lines}\r\n{{}}"), "GET", true), Broken(_)), "{lines:?}");
    }
}
