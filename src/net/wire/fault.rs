//! What a peer did wrong on the wire, and the status and sentence it earns.
//!
//! Invariant: every fault ends its connection, because after broken framing nobody knows where the next message
//! starts. A message names what was found, where, and what is accepted; it never repeats bytes of the peer, so
//! neither secrets nor markup travel through it. Knows nothing of error bodies, policy or logging.

use std::borrow::Cow;
use std::fmt;

/// Which direction the faulty message travelled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Side {
    /// From the client to us.
    Request,
    /// From the upstream to us.
    Response,
}

/// Where in the message a fault's offset counts from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Head,
    Body,
}

macro_rules! fault_kinds {
    ($($(#[doc = $doc:literal])+ $name:ident $status:literal $label:literal $part:ident: $what:literal, $accepted:literal;)+) => {
        /// Each way HTTP/1.1 can be broken that this layer tells apart.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum FaultKind {
            $($(#[doc = $doc])+ $name,)+
        }

        impl FaultKind {
            /// Every kind, for metrics that start at zero and for tests.
            pub const ALL: &'static [Self] = &[$(Self::$name),+];

            /// A short stable name, for metric labels and logs.
            pub const fn label(self) -> &'static str {
                match self { $(Self::$name => $label),+ }
            }

            const fn request_status(self) -> u16 {
                match self { $(Self::$name => $status),+ }
            }

            const fn text(self) -> (Part, &'static str, &'static str) {
                match self { $(Self::$name => (Part::$part, $what, $accepted)),+ }
            }
        }
    };
}

fault_kinds! {
    /// A line ends in a bare LF, or a CR stands alone (RFC 9112 2.2).
    LineEnd 400 "line_end" Head: "a line end other than CRLF", "every line ends with CRLF";
    /// More than one empty line, or one not ended by CRLF, before the start line (RFC 9112 2.2).
    EmptyLines 400 "empty_lines" Head: "an empty line where a start line belongs", "at most one CRLF may precede a request line, none a status line";
    /// The method is not a token followed by one space (RFC 9110 9.1).
    MethodSyntax 400 "method_syntax" Head: "an invalid method", "the method is a token followed by one space";
    /// CONNECT or TRACE (RFC 9110 9.3.6, 9.3.8).
    MethodRefused 405 "method_refused" Head: "a method that is not served here", "CONNECT and TRACE are not supported";
    /// A byte that may not stand in a target (RFC 9112 3.2).
    TargetSyntax 400 "target_syntax" Head: "an invalid byte in the request target", "the target is visible ASCII without `#`, followed by one space";
    /// Neither origin form, nor absolute form, nor `*` with OPTIONS (RFC 9112 3.2).
    TargetForm 400 "target_form" Head: "an unusable request target", "the target is a path beginning with `/`, an absolute http or https URI without user information, or `*` with OPTIONS";
    /// `.` or `..` as a path segment, in any spelling.
    DotSegment 400 "dot_segment" Head: "a dot segment in the path", "path segments other than `.` and `..`, percent-encoded spellings included";
    /// The version is not HTTP/DIGIT.DIGIT (RFC 9112 2.3).
    VersionSyntax 400 "version_syntax" Head: "an invalid protocol version", "the start line carries HTTP/1.1 or HTTP/1.0";
    /// A well-formed version other than 1.0 and 1.1.
    VersionUnsupported 505 "version_unsupported" Head: "an unsupported protocol version", "HTTP/1.1 and HTTP/1.0";
    /// The request line exceeds its bound (RFC 9112 3).
    RequestLineTooLong 414 "request_line_too_long" Head: "a request line that is too long", "a request line of at most 8192 bytes";
    /// The status line cannot be read (RFC 9112 4).
    StatusLine 400 "status_line" Head: "an invalid status line", "HTTP/1.1, one space, three digits, one space and a reason";
    /// The head exceeds its bound in bytes.
    HeadTooLarge 431 "head_too_large" Head: "a head that is too large", "a request head of at most 32768 bytes, a response head of at most 65536 bytes";
    /// The head exceeds its bound in fields.
    TooManyFields 431 "too_many_fields" Head: "too many fields", "at most 100 fields";
    /// A field name is empty or no token (RFC 9110 5.1).
    FieldName 400 "field_name" Head: "an invalid field name", "a field name is a non-empty token followed by a colon";
    /// White space between name and colon (RFC 9112 5.1).
    SpaceBeforeColon 400 "space_before_colon" Head: "white space between a field name and its colon", "the colon follows the name at once";
    /// A line folded onto the one before (RFC 9112 5.2).
    ObsFold 400 "obs_fold" Head: "a folded field line", "each field stands on one line";
    /// White space before the first field (RFC 9112 2.2).
    SpaceBeforeFields 400 "space_before_fields" Head: "white space before the first field", "fields begin in the first column";
    /// NUL or another control character in a value (RFC 9110 5.5).
    FieldValue 400 "field_value" Head: "a control character in a field value", "field values are visible characters, spaces and tabs";
    /// The head is refused by the tokenizer for a reason not told apart here.
    Malformed 400 "malformed" Head: "a malformed head", "a message as in RFC 9112";
    /// No Host in an HTTP/1.1 request (RFC 9112 3.2).
    HostMissing 400 "host_missing" Head: "no Host field", "exactly one Host field";
    /// More than one Host (RFC 9112 3.2).
    HostRepeated 400 "host_repeated" Head: "more than one Host field", "exactly one Host field";
    /// Host is no `uri-host [":" port]` (RFC 9110 7.2).
    HostSyntax 400 "host_syntax" Head: "an invalid host", "a host name or address, optionally with a port";
    /// Content-Length is not a plain decimal number (RFC 9110 8.6).
    ContentLengthSyntax 400 "content_length_syntax" Head: "an invalid Content-Length", "1 to 19 decimal digits";
    /// More than one Content-Length, equal or not (RFC 9110 8.6).
    ContentLengthRepeated 400 "content_length_repeated" Head: "more than one Content-Length", "one Content-Length field with one number";
    /// A framing name spelled with an underscore, which some servers take for the real one.
    FramingLookalike 400 "framing_lookalike" Head: "a framing field name with an underscore", "Content-Length and Transfer-Encoding are spelled with hyphens";
    /// Both framings at once (RFC 9112 6.1).
    LengthAndCoding 400 "length_and_coding" Head: "Content-Length beside Transfer-Encoding", "one of the two";
    /// The coding list is not exactly `chunked` (RFC 9112 6.1, 6.3).
    TransferCoding 400 "transfer_coding" Head: "an unusable Transfer-Encoding", "exactly `chunked`, once";
    /// More than one Transfer-Encoding field.
    TransferCodingRepeated 400 "transfer_coding_repeated" Head: "more than one Transfer-Encoding field", "one field with exactly `chunked`";
    /// A registered coding below a final `chunked` (RFC 9112 6.1).
    TransferCodingUnsupported 501 "transfer_coding_unsupported" Head: "a transfer coding that is not implemented", "exactly `chunked`";
    /// Transfer-Encoding in an HTTP/1.0 message (RFC 9112 6.1).
    TransferCodingVersion 400 "transfer_coding_version" Head: "Transfer-Encoding in an HTTP/1.0 message", "Content-Length, or HTTP/1.1";
    /// Connection names a field that is never hop-by-hop (RFC 9110 7.6.1).
    ConnectionProtected 400 "connection_protected" Head: "a Connection option that names an end-to-end field", "Connection may not list Host, Content-Length, Transfer-Encoding, Authorization or Cookie";
    /// Connection is no list of tokens, or too long a one.
    ConnectionSyntax 400 "connection_syntax" Head: "an invalid Connection field", "a list of at most 32 tokens";
    /// An expectation other than `100-continue` (RFC 9110 10.1.1).
    Expectation 417 "expectation" Head: "an unknown expectation", "`100-continue`, once";
    /// The head did not arrive in time; raised by whoever holds the clock.
    HeadTimeout 408 "head_timeout" Head: "a head that did not arrive in time", "a complete head within the time allowed";
    /// The body stalled; raised by whoever holds the clock.
    BodyTimeout 408 "body_timeout" Body: "a body that stalled", "a steady flow until the announced end";
    /// The connection ended inside the body (RFC 9112 8).
    BodyIncomplete 400 "body_incomplete" Body: "the end of the connection inside the body", "the whole body as announced";
    /// A chunk size is empty or no hexadecimal number (RFC 9112 7.1).
    ChunkSize 400 "chunk_size" Body: "an invalid chunk size", "hexadecimal digits, then `;` or CRLF";
    /// A chunk size has too many digits.
    ChunkSizeTooLong 400 "chunk_size_too_long" Body: "a chunk size that is too long", "at most 15 hexadecimal digits";
    /// A control character in a chunk extension (RFC 9112 7.1.1).
    ChunkExtension 400 "chunk_extension" Body: "a control character in a chunk extension", "visible characters, spaces and tabs";
    /// Chunk extensions exceed their bound.
    ChunkExtensionsTooLong 400 "chunk_extensions_too_long" Body: "too many bytes of chunk extensions", "at most 1024 bytes in a message";
    /// Chunk data is not followed by CRLF (RFC 9112 7.1).
    ChunkDataEnd 400 "chunk_data_end" Body: "chunk data not followed by CRLF", "CRLF after as many bytes as the chunk size says";
    /// A line of the chunked framing ends in something else than CRLF.
    ChunkLineEnd 400 "chunk_line_end" Body: "a line end other than CRLF in the chunked framing", "every line ends with CRLF";
    /// A trailer field is malformed (RFC 9112 7.1.2).
    Trailer 400 "trailer" Body: "an invalid trailer field", "`name: value` on one line each";
    /// Trailer fields exceed their bound.
    TrailersTooLong 431 "trailers_too_long" Body: "too many bytes of trailer fields", "at most 4096 bytes";
}

/// A broken message. Two words and an offset, so that results stay small on the hot path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fault {
    kind: FaultKind,
    side: Side,
    at: u64,
}

// === impl Fault ===

impl Fault {
    /// A fault found `at` bytes into the head, or into the body as framed on the wire.
    pub const fn new(kind: FaultKind, side: Side, at: u64) -> Self {
        Self { kind, side, at }
    }

    /// The request head did not arrive within the time allowed (408).
    pub const fn head_timeout(received: u64) -> Self {
        Self::new(FaultKind::HeadTimeout, Side::Request, received)
    }

    /// The request body stopped flowing (408).
    pub const fn body_timeout(received: u64) -> Self {
        Self::new(FaultKind::BodyTimeout, Side::Request, received)
    }

    /// What was broken.
    pub const fn kind(&self) -> FaultKind {
        self.kind
    }

    /// Who broke it.
    pub const fn side(&self) -> Side {
        self.side
    }

    /// Offset of the offence in bytes: from the first byte of the start line, or from the first byte of the body.
    /// For a fault of a whole field it is the field's first byte.
    pub const fn at(&self) -> u64 {
        self.at
    }

    /// The status the client gets: the client's own mistake by kind, 502 for anything an upstream broke.
    pub const fn status(&self) -> u16 {
        match self.side {
            Side::Request => self.kind.request_status(),
            Side::Response => 502,
        }
    }

    /// The `Allow` value that has to go with a 405 (RFC 9110 15.5.6).
    pub const fn allow(&self) -> Option<&'static str> {
        match self.kind {
            FaultKind::MethodRefused => Some("DELETE, GET, HEAD, OPTIONS, PATCH, POST, PUT"),
            _ => None,
        }
    }

    /// Whether the connection has to be closed. Always: see the module's invariant.
    pub const fn close(&self) -> bool {
        true
    }

    /// A sentence for the peer: what was found, where, what is accepted.
    pub fn message(&self) -> Cow<'static, str> {
        let (part, what, accepted) = self.kind.text();
        let message = match (self.side, part) {
            (Side::Request, Part::Head) => "request head",
            (Side::Request, Part::Body) => "request body",
            (Side::Response, Part::Head) => "upstream's response head",
            (Side::Response, Part::Body) => "upstream's response body",
        };
        Cow::Owned(format!("{what} at byte {} of the {message}; accepted: {accepted}", self.at))
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message())
    }
}

impl std::error::Error for Fault {}
