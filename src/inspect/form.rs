//! Form bodies: `multipart/form-data` (RFC 7578) and `application/x-www-form-urlencoded`.
//!
//! Invariants: text fields and files that are text are scanned, other files are described by name and size, passed, and
//! said to be unread; a multipart body that does not keep to its own boundary, or that a server could cut at another
//! one, is unreadable, never half read. Must not know: what the fields mean beyond `model`.

use std::borrow::Cow;

use memchr::memmem;
use weir_config::vocab::Unread;

use super::binary;
use super::expect::{foreign_charset, words};
use super::gather::{About, Gather, Source};
use super::keys::{is_token, model_name};
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
    let name = sole_parameter(disposition, b"name").map_err(repeated)?.unwrap_or_default();
    let name = String::from_utf8_lossy(&name);
    let location = || {
        let mut at = Location::root("request");
        at.push(Segment::name(&name));
        at
    };
    let file_name = match sole_parameter(disposition, b"filename").map_err(repeated)? {
        None => sole_parameter(disposition, b"filename*").map_err(repeated)?,
        named => named,
    };
    if let Some(file_name) = file_name {
        // The name may reach the model; the content may too, where it is text.
        let file_name = String::from_utf8_lossy(&file_name);
        gather.part(About::USER, location, Source::Put(&file_name));
        let media_type = std::str::from_utf8(media_type).ok().filter(|name| is_token(name));
        let media_type = media_type.unwrap_or(binary::UNKNOWN);
        gather.note(None, &binary::describe(content, media_type));
        match words(content) {
            Some(text) => gather.file(location, source(&text, body, content)),
            None if binary::is_textual(media_type) => return Err("multipart file of text that is not plain UTF-8"),
            None => gather.pass_by(Unread::FilePart),
        }
        return Ok(());
    }
    let text = String::from_utf8_lossy(content);
    match name.as_ref() {
        "model" if is_token(text.trim()) => gather.model(model_name(text.trim()), true),
        "stream" => gather.view.stream = text.trim().parse().ok().or(gather.view.stream),
        _ => gather.part(About::USER, location, source(&text, body, content)),
    }
    Ok(())
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
        let (name, value) = (percent_decoded(name), percent_decoded(value));
        if name == "model" && is_token(value.trim()) {
            gather.model(model_name(value.trim()), true);
            continue;
        }
        let location = || {
            let mut at = Location::root("request");
            at.push(Segment::name(&name));
            at
        };
        gather.part(About::USER, location, Source::Put(&value));
    }
}

fn percent_decoded(bytes: &[u8]) -> String {
    let mut out = Vec::with_capacity(bytes.len());
    let mut rest = bytes;
    while let Some((&first, tail)) = rest.split_first() {
        let digit = |at: usize| tail.get(at).and_then(|b| char::from(*b).to_digit(16));
        match (first, digit(0), digit(1)) {
            (b'%', Some(high), Some(low)) => {
                out.push(u8::try_from(high << 4 | low).unwrap_or(b'?'));
                rest = tail.get(2..).unwrap_or_default();
            }
            (b'+', ..) => {
                out.push(b' ');
                rest = tail;
            }
            _ => {
                out.push(first);
                rest = tail;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

fn is_blank(bytes: &[u8]) -> bool {
    bytes.iter().all(u8::is_ascii_whitespace)
}

/// A parameter was given twice: servers differ in which one they believe.
#[derive(Debug)]
pub(super) struct Repeated;

/// The value of the one `name=value` or `name="value"` in a header's parameters.
pub(super) fn sole_parameter<'a>(header: &'a [u8], name: &[u8]) -> Result<Option<Cow<'a, [u8]>>, Repeated> {
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
        let (value, after) = match value.strip_prefix(b"\"") {
            Some(value) => quoted(value),
            None => {
                let (value, after) = value.split_at(memchr::memchr(b';', value).unwrap_or(value.len()));
                (Cow::Borrowed(value.trim_ascii_end()), after)
            }
        };
        if found.replace(value).is_some() {
            return Err(Repeated);
        }
        rest = after;
    }
    Ok(found)
}

/// A quoted value whose opening quote has been read, and what stands behind it.
fn quoted(bytes: &[u8]) -> (Cow<'_, [u8]>, &[u8]) {
    let mut out = Vec::new();
    let mut rest = bytes;
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        match byte {
            b'"' => break,
            b'\\' => {
                out.extend(rest.first());
                rest = rest.get(1..).unwrap_or_default();
            }
            _ => out.push(byte),
        }
    }
    (Cow::Owned(out), rest)
}
