//! What is known of a request's body before it is read: what its operation takes, and what its head claims.

use weir_config::vocab::Operation;

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
pub struct Claim<'a> {
    /// What its operation takes.
    pub takes: Takes,
    /// `Content-Type`.
    pub content_type: Option<&'a [u8]>,
    /// Only its beginning is at hand.
    pub cut: bool,
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
        let name = value.split(|&b| b == b';').next().unwrap_or_default().trim_ascii().to_ascii_lowercase();
        let has = |word: &[u8]| memchr::memmem::find(&name, word).is_some();
        match name.as_slice() {
            b"application/json" => Self::Json,
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

/// Whether bytes are text as people write it: UTF-8 without control characters.
pub(super) fn words(bytes: &[u8]) -> Option<&str> {
    let is_plain = |text: &&str| !text.bytes().any(|b| b.is_ascii_control() && !b.is_ascii_whitespace());
    std::str::from_utf8(bytes).ok().filter(is_plain)
}

#[cfg(test)]
mod tests {
    use super::*;

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
        for path in ["/v1/files/f1", "/v1/%66iles", "/v1/files;a", "/v1/uploads", "/x"] {
            assert_eq!(takes(Operation::Proxy, path), Takes::Anything, "{path}");
        }
        for operation in [Operation::ChatCompletion, Operation::Messages, Operation::Embedding, Operation::Generate] {
            assert_eq!(takes(operation, "/v1/files"), Takes::Json);
        }
    }
}
