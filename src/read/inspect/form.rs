//! Form bodies: `multipart/form-data` (RFC 7578) and `application/x-www-form-urlencoded`.
//!
//! Invariants: text fields and files that are text are scanned, other files are described by name and size, passed, and
//! said to be unread; a multipart body that does not keep to its own boundary, or that a server could cut at another
//! one, is unreadable, never half read. Must not know: what the fields mean beyond `model`.

use std::borrow::Cow;

use memchr::memmem;
use weir_config::vocab::Unread;

use super::binary;
use super::coded::percent_decoded;
use super::expect::{foreign_charset, words};
use super::gather::{About, Gather, Source};
use super::keys::{is_token, model_name};
use super::place::Spelling;
use crate::json::{Location, Segment};

/// Most parts a form may have; real ones have about ten.
const FIELDS_MAX: usize = 1024;

/// Reads a multipart body.
///
/// # Errors
/// Why it is not one.
pub(super) fn multipart(gather: &mut Gather, content_type: &[u8], body: &[u8]) -> Result<(), &'static str> {
    let boundary = sole_parameter(content_type, b"boundary")
        .map_err(|Repeated| "multipart with more than one boundary")?
        .ok_or("multipart without a boundary")?;
    if memmem::find(&content_type.to_ascii_lowercase(), b"boundary*").is_some() {
        // In pieces or coded (RFC 2231): nobody but an attacker writes it so.
        return Err("multipart with an unusual boundary");
    }
    if boundary.is_empty() || boundary.len() > 70 {
        return Err("multipart without a usable boundary");
    }
    let delimiter = [b"\r\n--", boundary.as_ref()].concat();
    let opening = delimiter.get(2..).unwrap_or_default();
    let mut rest = if body.starts_with(opening) {
        body.get(opening.len()..).unwrap_or_default()
    } else {
        let at = memmem::find(body, &delimiter).ok_or("multipart body without its boundary")?;
        // Servers that ignore the content type would read what stands here.
        if !is_blank(body.get(..at).unwrap_or_default()) {
            return Err("multipart body with something before its first part");
        }
        body.get(at + delimiter.len()..).unwrap_or_default()
    };
    for _ in 0..FIELDS_MAX {
        if let Some(epilogue) = rest.strip_prefix(b"--") {
            return if is_blank(epilogue) { Ok(()) } else { Err("multipart body with something after its last part") };
        }
        // Blanks may follow the boundary (RFC 2046 section 5.1.1).
        let line_end = memmem::find(rest, b"\r\n").ok_or("multipart body ends early")?;
        let (padding, after) = rest.split_at_checked(line_end).unwrap_or_default();
        if !padding.iter().all(|b| matches!(b, b' ' | b'\t')) {
            return Err("multipart boundary with something after it");
        }
        let part_end = memmem::find(after, &delimiter).ok_or("multipart body ends early")?;
        let (part, after) = after.split_at_checked(part_end).unwrap_or_default();
        field(gather, body, part)?;
        rest = after.get(delimiter.len()..).unwrap_or_default();
    }
    Err("multipart body with too many parts")
}

/// One part: `CRLF headers CRLF CRLF content`.
fn field(gather: &mut Gather, body: &[u8], part: &[u8]) -> Result<(), &'static str> {
    let head_end = memmem::find(part, b"\r\n\r\n").ok_or("multipart part without headers")?;
    let (head, content) = part.split_at_checked(head_end).unwrap_or_default();
    let content = content.get(4..).unwrap_or_default();
    let header = |name: &[u8]| {
        let mut found = head.split(|&b| b == b'\n').filter_map(|line| {
            let (field, value) = line.split_at_checked(name.len())?;
            let value = value.strip_prefix(b":")?;
            field.eq_ignore_ascii_case(name).then(|| value.trim_ascii())
        });
        let first = found.next();
        if found.next().is_some() { Err("multipart part with a header that is repeated") } else { Ok(first) }
    };
    let disposition = header(b"content-disposition")?.unwrap_or_default();
    let media_type = header(b"content-type")?.unwrap_or_default();
    if foreign_charset(media_type, content) {
        return Err("multipart part with a `charset` other than UTF-8");
    }
    let coding = header(b"content-transfer-encoding")?.unwrap_or_default();
    if !["", "7bit", "8bit", "binary"].iter().any(|plain| coding.eq_ignore_ascii_case(plain.as_bytes())) {
        return Err("multipart part with a transfer encoding");
    }
    let repeated = |Repeated| "multipart part with a parameter that is repeated";
    if parameter(disposition, b"name*").map_err(repeated)?.is_some() {
        // In code (RFC 8187): forms do not have it (RFC 7578 section 4.2), and some servers read it all the same.
        return Err("multipart part with a name in code");
    }
    let called = parameter(disposition, b"name").map_err(repeated)?;
    let name = called.as_ref().map(|name| name.value.clone()).unwrap_or_default();
    let name = String::from_utf8_lossy(&name);
    let location = || {
        let mut at = Location::root("request");
        at.push(Segment::name(&name));
        at
    };
    let is_model = names_model(&name);
    if is_model {
        gather.model_field();
    }
    if let Some(called) = called.filter(|called| !is_field_name(&called.value)) {
        let spelling = called.is_quoted.then_some(Spelling::Quoted);
        coded(gather, location, body, &called.value, called.raw, spelling);
        // Servers differ in where a bare name ends.
        if !called.is_quoted {
            gather.part(About::USER, location, Source::Put(&String::from_utf8_lossy(disposition)));
        }
        as_written(gather, location, &called);
    }
    let named = parameter(disposition, b"filename").map_err(repeated)?;
    let named_in_code = parameter(disposition, b"filename*").map_err(repeated)?;
    if named.is_some() || named_in_code.is_some() {
        // The names may reach the model; the content may too, where it is text.
        if let Some(named) = named {
            let spelling = named.is_quoted.then_some(Spelling::Quoted);
            coded(gather, location, body, &named.value, named.raw, spelling);
            as_written(gather, location, &named);
        }
        if let Some(named) = named_in_code {
            // `charset'language'name` (RFC 8187).
            let raw = named.raw.splitn(3, |&byte| byte == b'\'').nth(2).unwrap_or(named.raw);
            coded(gather, location, body, &percent_decoded(raw, false), raw, Some(Spelling::Percent));
        }
        let media_type = std::str::from_utf8(media_type).ok().filter(|name| is_token(name));
        let media_type = media_type.unwrap_or(binary::UNKNOWN);
        gather.note(None, Source::Put(&binary::describe(content, media_type)));
        match words(content) {
            Some(text) => gather.file(location, source(&text, body, content)),
            None if binary::is_textual(media_type) => return Err("multipart file of text that is not plain UTF-8"),
            None => gather.pass_by(Unread::FilePart),
        }
        return Ok(());
    }
    let text = String::from_utf8_lossy(content);
    match name.as_ref() {
        "model" if is_token(text.trim()) => {
            note_blanks(gather, &text);
            gather.model(model_name(text.trim()), true);
        }
        "stream" => gather.view.stream = text.trim().parse().ok().or(gather.view.stream),
        _ => gather.part(About::USER, location, source(&text, body, content)),
    }
    Ok(())
}

/// Whether a field names a model, to some server: with blanks around, in other letters, as one of a list.
fn names_model(name: &str) -> bool {
    let name = name.trim_matches(|c: char| c.is_whitespace() || c.is_control() || matches!(c, '[' | ']' | '"' | '\''));
    name.eq_ignore_ascii_case("model")
}

/// A model's name with blanks around it is another name to some servers.
fn note_blanks(gather: &mut Gather, name: &str) {
    if name.trim() != name {
        gather.model_field();
    }
}

/// Adds a quoted value with its backslashes, where one quotes neither a quote nor a backslash: to many servers it is a character like
/// any other.
fn as_written(gather: &mut Gather, location: impl FnOnce() -> Location, value: &Parameter<'_>) {
    let mut rest = value.raw;
    while let Some(at) = memchr::memchr(b'\\', rest).filter(|_| value.is_quoted) {
        if matches!(rest.get(at + 1), Some(b'"' | b'\\')) {
            rest = rest.get(at + 2..).unwrap_or_default();
            continue;
        }
        return gather.part(About::USER, location, Source::Put(&String::from_utf8_lossy(value.raw)));
    }
}

/// Whether the name of a field is one that interfaces have: anything else is read as a text.
fn is_field_name(name: &[u8]) -> bool {
    let digits = name.iter().filter(|byte| byte.is_ascii_digit()).count();
    digits < 9 && name.iter().all(|byte| byte.is_ascii_alphanumeric() || b"_-.[]".contains(byte))
}

/// Where `text`, which was read from `content`, stands in the body.
fn source<'a>(text: &'a str, body: &[u8], content: &[u8]) -> Source<'a> {
    if text.as_ptr() == content.as_ptr() {
        Source::Plain(text, content.as_ptr().addr() - body.as_ptr().addr())
    } else {
        Source::Put(text)
    }
}

/// Reads `a=b&c=d`.
pub(super) fn urlencoded(gather: &mut Gather, body: &[u8]) {
    for pair in body.split(|&b| b == b'&').filter(|pair| !pair.is_empty()) {
        let (name, value) = match memchr::memchr(b'=', pair) {
            Some(at) => (pair.get(..at).unwrap_or_default(), pair.get(at + 1..).unwrap_or_default()),
            None => (&b""[..], pair),
        };
        let (raw, decoded) = (value, percent_decoded(value, true));
        let called = percent_decoded(name, true);
        if !is_field_name(&called) {
            coded(gather, || Location::root("request"), body, &called, name, Some(Spelling::Percent));
        }
        let name = String::from_utf8_lossy(&percent_decoded(name, true)).into_owned();
        if names_model(&name) {
            gather.model_field();
        }
        if let Ok(model) = std::str::from_utf8(&decoded)
            && name == "model"
            && is_token(model.trim())
        {
            note_blanks(gather, model);
            gather.model(model_name(model.trim()), true);
            continue;
        }
        let location = || {
            let mut at = Location::root("request");
            at.push(Segment::name(&name));
            at
        };
        coded(gather, location, body, &decoded, raw, Some(Spelling::Percent));
    }
}

/// Adds a text that `raw`, bytes of the body, spell; without a spelling it cannot be put back there.
fn coded(
    gather: &mut Gather,
    location: impl FnOnce() -> Location,
    body: &[u8],
    text: &[u8],
    raw: &[u8],
    spelling: Option<Spelling>,
) {
    let words = String::from_utf8_lossy(text);
    let from = raw.as_ptr().addr() - body.as_ptr().addr();
    let place = from..from + raw.len();
    let source = match (&words, spelling) {
        (Cow::Borrowed(words), Some(spelling)) => Source::Coded(words, &place, spelling),
        _ => Source::Put(&words),
    };
    gather.part(About::USER, location, source);
}

fn is_blank(bytes: &[u8]) -> bool {
    bytes.iter().all(u8::is_ascii_whitespace)
}

/// A parameter was given twice: servers differ in which one they believe.
#[derive(Debug)]
pub(super) struct Repeated;

/// The value of the one `name=value` or `name="value"` in a header's parameters.
pub(super) fn sole_parameter<'a>(header: &'a [u8], name: &[u8]) -> Result<Option<Cow<'a, [u8]>>, Repeated> {
    Ok(parameter(header, name)?.map(|parameter| parameter.value))
}

/// A parameter of a header.
struct Parameter<'a> {
    value: Cow<'a, [u8]>,
    /// The bytes that spell it, without quotes around them.
    raw: &'a [u8],
    is_quoted: bool,
}

/// The one of this name.
fn parameter<'a>(header: &'a [u8], name: &[u8]) -> Result<Option<Parameter<'a>>, Repeated> {
    let mut found = None;
    let mut rest = header;
    while let Some(at) = memchr::memchr2(b';', b'"', rest) {
        let is_quote = rest.get(at) == Some(&b'"');
        rest = rest.get(at + 1..).unwrap_or_default();
        if is_quote {
            // Outside of a value that we want: what it holds is no parameter.
            rest = quoted(rest).1;
            continue;
        }
        rest = rest.trim_ascii_start();
        let Some((spelled, value)) = rest.split_at_checked(name.len()) else { continue };
        if !spelled.eq_ignore_ascii_case(name) {
            continue;
        }
        let value = value.trim_ascii_start();
        let Some(value) = value.strip_prefix(b"=") else { continue };
        let value = value.trim_ascii_start();
        let (parameter, after) = match value.strip_prefix(b"\"") {
            Some(value) => quoted(value),
            None => {
                let (value, after) = value.split_at(memchr::memchr(b';', value).unwrap_or(value.len()));
                let value = value.trim_ascii_end();
                (Parameter { value: Cow::Borrowed(value), raw: value, is_quoted: false }, after)
            }
        };
        if found.replace(parameter).is_some() {
            return Err(Repeated);
        }
        rest = after;
    }
    Ok(found)
}

/// A quoted value whose opening quote has been read, and what stands behind it.
fn quoted(bytes: &[u8]) -> (Parameter<'_>, &[u8]) {
    let mut out = Vec::new();
    let (mut rest, mut end) = (bytes, bytes.len());
    while let Some((&byte, after)) = rest.split_first() {
        let at = bytes.len() - rest.len();
        rest = after;
        match byte {
            b'"' => {
                end = at;
                break;
            }
            b'\\' => {
                out.extend(rest.first());
                rest = rest.get(1..).unwrap_or_default();
            }
            _ => out.push(byte),
        }
    }
    (Parameter { value: Cow::Owned(out), raw: bytes.get(..end).unwrap_or_default(), is_quoted: true }, rest)
}
