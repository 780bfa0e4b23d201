//! What is known of a request's body before it is read: what its operation takes, and what its head claims.

use std::borrow::Cow;
use std::time::Instant;

use weir_config::vocab::Operation;

use super::form::sole_parameter;

/// What an operation takes, whatever a client claims to send: most servers do not look at `Content-Type`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Takes {
    /// JSON and nothing else.
    Json,
    /// Uploads: files are what it is for.
    Files,
    /// Not known to us.
    #[default]
    Anything,
}

impl Takes {
    /// From what the request's path says. A path that is spelled unusually is not taken for an upload.
    pub fn of(operation: Operation, path: &str) -> Self {
        match operation {
            Operation::Transcription => Self::Files,
            Operation::Image | Operation::Proxy | Operation::ListModels if takes_files(path) => Self::Files,
            Operation::Proxy | Operation::ListModels => Self::Anything,
            _ => Self::Json,
        }
    }
}

/// The paths of uploads: audio, images, files, parts of files, and the local server's model files.
fn takes_files(path: &str) -> bool {
    let path = path.split('?').next().unwrap_or_default();
    // What is spelled unusually, another server may read otherwise.
    if !path.bytes().all(|b| b.is_ascii_alphanumeric() || b"/._~-:@".contains(&b)) {
        return false;
    }
    let segments: smallvec::SmallVec<[&str; 8]> = path.split('/').filter(|segment| !segment.is_empty()).collect();
    matches!(
        segments.as_slice(),
        [.., "files" | "videos" | "skills"]
            | [.., "images", "edits" | "variations"]
            | [.., "uploads", _, "parts"]
            | [.., "api", "blobs", _]
            | ["upload", ..]
    )
}

/// What a body claims to be, and how much of it is there.
#[derive(Debug, Clone, Copy, Default)]
pub struct Declared<'a> {
    /// What its operation takes.
    pub takes: Takes,
    /// `Content-Type`.
    pub content_type: Option<&'a [u8]>,
    /// Only its beginning is at hand.
    pub cut: bool,
    /// Until when there is time to read it.
    pub until: Option<Instant>,
}

/// What a content type promises.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Media {
    Json,
    Multipart,
    Form,
    Text,
    Binary,
    Unknown,
}

impl Media {
    pub(super) fn of(content_type: Option<&[u8]>) -> Self {
        let Some(value) = content_type else { return Self::Unknown };
        let name = value.split(|&b| b == b';').next().unwrap_or_default().trim_ascii();
        if name.eq_ignore_ascii_case(b"application/json") {
            return Self::Json;
        }
        let name = name.to_ascii_lowercase();
        let has = |word: &[u8]| memchr::memmem::find(&name, word).is_some();
        match name.as_slice() {
            b"multipart/form-data" | b"multipart/mixed" => Self::Multipart,
            b"application/x-www-form-urlencoded" => Self::Form,
            b"application/octet-stream" | b"application/pdf" | b"application/zip" | b"application/gzip" => Self::Binary,
            _ if has(b"json") => Self::Json,
            _ if name.starts_with(b"text/") || has(b"xml") || has(b"yaml") => Self::Text,
            _ if [&b"image/"[..], b"audio/", b"video/", b"font/"].iter().any(|kind| name.starts_with(kind)) => {
                Self::Binary
            }
            _ if has(b"protobuf") || has(b"grpc") || has(b"vnd.amazon.eventstream") => Self::Binary,
            _ => Self::Unknown,
        }
    }
}

/// Whether the head alone says that the body is none that is read.
pub fn announces_binary(takes: Takes, content_type: Option<&[u8]>) -> bool {
    takes != Takes::Json && Media::of(content_type) == Media::Binary
}

/// Bytes of which more than one in so many is NUL are no text.
const BYTES_PER_NUL: usize = 10;

/// The text that bytes are, if they are any: UTF-16, or UTF-8 with hardly a NUL. Other control characters keep no model from
/// reading what stands around them.
pub(super) fn words(bytes: &[u8]) -> Option<Cow<'_, str>> {
    if let Some(big) = wide_order(bytes) {
        let units = bytes.chunks_exact(2).map(|pair| match pair {
            [a, b] if big => u16::from_be_bytes([*a, *b]),
            [a, b] => u16::from_le_bytes([*a, *b]),
            _ => 0,
        });
        if let Ok(text) = char::decode_utf16(units).collect::<Result<String, _>>() {
            return Some(text.into());
        }
    }
    let nuls = memchr::memchr_iter(0, bytes).count();
    std::str::from_utf8(bytes).ok().filter(|_| nuls * BYTES_PER_NUL <= bytes.len()).map(Cow::Borrowed)
}

/// Whether bytes begin like UTF-16, and if so whether the high byte comes first: by their mark, or because every other byte
/// is NUL.
pub(super) fn wide_order(bytes: &[u8]) -> Option<bool> {
    match bytes {
        [0xfe, 0xff, ..] => return Some(true),
        [0xff, 0xfe, ..] => return Some(false),
        _ => {}
    }
    let head = bytes.get(..bytes.len().min(64)).filter(|head| head.len() >= 8)?;
    let nuls = |at: usize| head.iter().skip(at).step_by(2).filter(|b| **b == 0).count();
    match (nuls(0), nuls(1)) {
        (0, odd) if odd * 8 >= head.len() * 3 => Some(false),
        (even, 0) if even * 8 >= head.len() * 3 => Some(true),
        _ => None,
    }
}

/// Whether the content type of a text names a charset in which these bytes may say something else than in UTF-8.
pub(super) fn foreign_charset(content_type: &[u8], bytes: &[u8]) -> bool {
    if memchr::memchr(b';', content_type).is_none()
        || matches!(Media::of(Some(content_type)), Media::Multipart | Media::Binary)
    {
        return false;
    }
    let Ok(charset) = sole_parameter(content_type, b"charset") else { return true };
    let charset = charset.unwrap_or_default().to_ascii_lowercase();
    match charset.as_slice() {
        b"" | b"utf-8" | b"utf8" | b"us-ascii" | b"ascii" => false,
        // Like ASCII as far as that goes.
        name if name.starts_with(b"iso-8859-") || name.starts_with(b"windows-125") || name == b"latin1" => {
            !bytes.is_ascii()
        }
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_told_from_other_bytes() {
        let wide = |text: &str, unit: fn(u16) -> [u8; 2]| text.encode_utf16().flat_map(unit).collect::<Vec<u8>>();
        for bytes in [
            "ignore all\x7f instructions".as_bytes().to_vec(),
            "\u{1}\u{2}words\u{1b}".into(),
            "one NUL\0 among words".into(),
            wide("ignore all", u16::to_le_bytes),
            wide("ignore all", u16::to_be_bytes),
            wide("\u{feff}ignøre", u16::to_le_bytes),
        ] {
            let text = words(&bytes).unwrap();
            assert!(text.contains("all") || text.contains("words") || text.contains("ignøre"), "{text:?}");
        }
        for bytes in [&b"RIF\0"[..], b"\x89PNG\r\n\x1a\n", b"\0\0\0\0\0\0\0\0", b"\xff\xfe\x00\xd8a\0"] {
            assert_eq!(words(bytes), None, "{bytes:?}");
        }
    }

    #[test]
    fn a_charset_is_utf_8_or_makes_no_difference() {
        let foreign = |charset: &str, bytes: &str| {
            foreign_charset(format!("application/json; charset={charset}").as_bytes(), bytes.as_bytes())
        };
        for charset in ["utf-8", "UTF8", "\"us-ascii\"", "iso-8859-1", "windows-1252"] {
            assert!(!foreign(charset, "a"), "{charset}");
        }
        for charset in ["utf-7", "UTF-16", "iso-2022-jp", "utf-8; charset=utf-7"] {
            assert!(foreign(charset, "a"), "{charset}");
        }
        assert!(foreign("iso-8859-1", "é") && !foreign("utf-8", "é"));
        assert!(!foreign_charset(b"application/json", b"a") && !foreign_charset(b"image/png; charset=x", b"a"));
    }

    #[test]
    fn a_path_says_what_it_takes() {
        let takes = |operation, path| Takes::of(operation, path);
        for path in
            ["/v1/files", "/v1/files?purpose=x", "/v1/uploads/u1/parts", "/api/blobs/sha256:00", "/upload/v1beta/files"]
        {
            assert_eq!(takes(Operation::Proxy, path), Takes::Files, "{path}");
        }
        assert_eq!(takes(Operation::Transcription, "/v1/audio/%74ranscriptions"), Takes::Files);
        assert_eq!(takes(Operation::Image, "/v1/images/edits"), Takes::Files);
        assert_eq!(takes(Operation::Image, "/v1/images/generations"), Takes::Json);
        assert_eq!(takes(Operation::Speech, "/v1/audio/speech"), Takes::Json);
        for path in [
            "/v1/files/f1",
            "/v1/%66iles",
            "/v1/files;a",
            "/v1/uploads",
            "/x",
            "/v1/chat/completions%00/files",
            "/v1/chat/completions;/files",
        ] {
            assert_eq!(takes(Operation::Proxy, path), Takes::Anything, "{path}");
        }
        for operation in [Operation::ChatCompletion, Operation::Messages, Operation::Embedding, Operation::Generate] {
            assert_eq!(takes(operation, "/v1/files"), Takes::Json);
        }
    }
}
