//! Form bodies: `multipart/form-data` (RFC 7578) and `application/x-www-form-urlencoded`.
//!
//! Invariants: text fields are scanned, files are described by name and size and passed; a multipart body that does
//! not keep to its own boundary is unreadable, never half read. Must not know: what the fields mean beyond `model`.

use std::borrow::Cow;

use memchr::memmem;
use weir_inference::PartKind;

use super::binary;
use super::keys::{is_token, model_name};
use super::request::Gather;
use crate::json::{Location, Segment};

/// Most parts a form may have; real ones have about ten.
const FIELDS_MAX: usize = 1024;

/// Reads a multipart body.
///
/// # Errors
/// Why it is not one.
pub(super) fn multipart(gather: &mut Gather, content_type: &[u8], body: &[u8]) -> Result<(), &'static str> {
    let boundary = parameter(content_type, b"boundary").ok_or("multipart without a boundary")?;
    if boundary.is_empty() || boundary.len() > 70 {
        return Err("multipart without a usable boundary");
    }
    let delimiter = [b"\r\n--", boundary.as_ref()].concat();
    let opening = delimiter.get(2..).unwrap_or_default();
    let mut rest = if body.starts_with(opening) {
        body.get(opening.len()..).unwrap_or_default()
    } else {
        let at = memmem::find(body, &delimiter).ok_or("multipart body without its boundary")?;
        body.get(at + delimiter.len()..).unwrap_or_default()
    };
    for _ in 0..FIELDS_MAX {
        if rest.starts_with(b"--") {
            return Ok(());
        }
        // Blanks may follow the boundary (RFC 2046 section 5.1.1).
        let line_end = memmem::find(rest, b"\r\n").ok_or("multipart body ends early")?;
        let (padding, after) = rest.split_at_checked(line_end).unwrap_or_default();
        if !padding.iter().all(|b| matches!(b, b' ' | b'\t')) {
            return Err("multipart boundary with something after it");
        }
        let part_end = memmem::find(after, &delimiter).ok_or("multipart body ends early")?;
        let (part, after) = after.split_at_checked(part_end).unwrap_or_default();
        field(gather, part)?;
        rest = after.get(delimiter.len()..).unwrap_or_default();
    }
    Err("multipart body with too many parts")
}

/// One part: `CRLF headers CRLF CRLF content`.
fn field(gather: &mut Gather, part: &[u8]) -> Result<(), &'static str> {
    let head_end = memmem::find(part, b"\r\n\r\n").ok_or("multipart part without headers")?;
    let (head, content) = part.split_at_checked(head_end).unwrap_or_default();
    let content = content.get(4..).unwrap_or_default();
    let header = |name: &[u8]| {
        head.split(|&b| b == b'\n').find_map(|line| {
            let (field, value) = line.split_at_checked(name.len())?;
            let value = value.strip_prefix(b":")?;
            field.eq_ignore_ascii_case(name).then(|| value.trim_ascii())
        })
    };
    let disposition = header(b"content-disposition").unwrap_or_default();
    let media_type = header(b"content-type").unwrap_or_default();
    let name = parameter(disposition, b"name").unwrap_or_default();
    let name = String::from_utf8_lossy(&name);
    let location = || {
        let mut at = Location::root("request");
        at.push(Segment::name(&name));
        at
    };
    let file_name = parameter(disposition, b"filename").or_else(|| parameter(disposition, b"filename*"));
    if let Some(file_name) = file_name {
        // The name may reach the model; the content is passed.
        let file_name = String::from_utf8_lossy(&file_name);
        gather.part(PartKind::User, true, location, |out| out.push_str(&file_name));
        let media_type = std::str::from_utf8(media_type).ok().filter(|name| is_token(name));
        gather.note(&binary::describe(content, media_type.unwrap_or("application/octet-stream")));
        return Ok(());
    }
    let text = String::from_utf8_lossy(content);
    match name.as_ref() {
        "model" => gather.view.model = Some(model_name(text.trim())),
        "stream" => gather.view.stream = text.trim().parse().ok().or(gather.view.stream),
        _ => gather.part(PartKind::User, true, location, |out| out.push_str(&text)),
    }
    Ok(())
}

/// Reads `a=b&c=d`.
pub(super) fn urlencoded(gather: &mut Gather, body: &[u8]) {
    for pair in body.split(|&b| b == b'&').filter(|pair| !pair.is_empty()) {
        let (name, value) = match memchr::memchr(b'=', pair) {
            Some(at) => (pair.get(..at).unwrap_or_default(), pair.get(at + 1..).unwrap_or_default()),
            None => (&b""[..], pair),
        };
        let (name, value) = (percent_decoded(name), percent_decoded(value));
        if name == "model" {
            gather.view.model = Some(model_name(value.trim()));
            continue;
        }
        let location = || {
            let mut at = Location::root("request");
            at.push(Segment::name(&name));
            at
        };
        gather.part(PartKind::User, true, location, |out| out.push_str(&value));
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

/// The value of `name=value` or `name="value"` in a header's parameters.
fn parameter<'a>(header: &'a [u8], name: &[u8]) -> Option<Cow<'a, [u8]>> {
    let mut rest = header;
    while let Some(at) = memchr::memchr(b';', rest) {
        rest = rest.get(at + 1..)?.trim_ascii_start();
        let Some((found, value)) = rest.split_at_checked(name.len()) else { continue };
        let Some(value) = value.strip_prefix(b"=").filter(|_| found.eq_ignore_ascii_case(name)) else { continue };
        let Some(quoted) = value.strip_prefix(b"\"") else {
            let end = memchr::memchr(b';', value).unwrap_or(value.len());
            return Some(Cow::Borrowed(value.get(..end)?.trim_ascii_end()));
        };
        let mut out = Vec::new();
        let mut bytes = quoted.iter();
        while let Some(&byte) = bytes.next() {
            match byte {
                b'"' => return Some(Cow::Owned(out)),
                b'\\' => out.extend(bytes.next()),
                _ => out.push(byte),
            }
        }
        return None;
    }
    None
}
