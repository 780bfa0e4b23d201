//! The smuggling corpus: requests that some pair of servers reads differently, built family by family from data, then
//! damaged at random. Deterministic: a seed names a corpus.
//!
//! A case is a template. [`ID`] in it becomes the number of its delivery, of the same length, so lengths stay true and
//! every target that reaches a provider says which delivery it came from. `/hidden-…` is what an attacker would like to
//! see served: it stands where one reading sees a body and another a request.

use std::collections::HashSet;

use super::data::{
    CHUNK_DATA_ENDS, CHUNK_EOLS, CHUNK_LASTS, CHUNK_PREFIXES, CHUNK_SUFFIXES, CODINGS, CONNECTIONS, EXPECTS, HOSTS,
    LENGTHS, LINE_ENDS, METHODS, NAMES, PREFACES, SPECIAL_BYTES, TARGETS, VERSIONS,
};
use super::mutate::mutated;
use super::rng::Rng;

/// Stands for the number of a delivery in a template.
pub(crate) const ID: &str = "IDIDIDID";

/// A request nobody should see, or everybody.
pub(crate) const HIDDEN: &str = "GET /hidden-IDIDIDID HTTP/1.1\r\nHost: x\r\n\r\n";

/// One case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Case {
    pub(crate) family: &'static str,
    template: Vec<u8>,
}

impl Case {
    /// The bytes of delivery `id`.
    pub(crate) fn bytes(&self, id: usize) -> Vec<u8> {
        let number = format!("{id:0width$}", width = ID.len());
        let mut bytes = self.template.clone();
        for at in memchr::memmem::find_iter(&self.template, ID) {
            bytes[at..at + ID.len()].copy_from_slice(number.as_bytes());
        }
        bytes
    }
}

/// The corpus of a seed: every systematic case, then `random` damaged ones, all different.
pub(crate) fn corpus(seed: u64, random: usize) -> Vec<Case> {
    let mut corpus = Corpus { cases: Vec::new(), seen: HashSet::new() };
    corpus.special_bytes();
    corpus.values();
    corpus.repeated();
    corpus.chunks();
    corpus.start_lines();
    corpus.hosts();
    corpus.line_ends();
    corpus.connection();
    corpus.insertions();
    corpus.pipelines(&mut Rng::new(seed ^ 1));
    corpus.damaged(&mut Rng::new(seed), random);
    corpus.cases
}

struct Corpus {
    cases: Vec<Case>,
    seen: HashSet<Vec<u8>>,
}

/// Both paths a body takes: relayed as it comes, and held because its text is waited for.
const PATHS: [&str; 2] = ["/v1/files/case-IDIDIDID", "/v1/chat/completions?case-IDIDIDID"];

fn post(path: &str, version: &str, lines: &str, body: &str) -> String {
    format!("POST {path} HTTP/{version}\r\nHost: x\r\n{lines}\r\n{body}")
}

/// A body that ends at once for who reads chunks, and goes on for who counts bytes.
fn ends_early() -> String {
    format!("0\r\n\r\n{HIDDEN}")
}

/// A body with a chunk that holds what a shorter length would leave behind.
fn hides_in_chunk() -> String {
    format!("{:x}\r\n{HIDDEN}\r\n0\r\n\r\n", HIDDEN.len())
}

/// The partner a suspicious framing field stands beside.
fn partners(body: &str) -> [String; 4] {
    let length = body.len();
    [
        String::new(),
        format!("Content-Length: {length}\r\n"),
        "Content-Length: 4\r\n".to_owned(),
        "Transfer-Encoding: chunked\r\n".to_owned(),
    ]
}

impl Corpus {
    fn add(&mut self, family: &'static str, template: impl Into<Vec<u8>>) {
        let template = template.into();
        if self.seen.insert(template.clone()) {
            self.cases.push(Case { family, template });
        }
    }

    /// A special byte at every place of a framing field, alone and beside a partner, first and second.
    fn special_bytes(&mut self) {
        for (name, value) in [("Content-Length", "49"), ("Transfer-Encoding", "chunked"), ("Expect", "100-continue")] {
            for byte in SPECIAL_BYTES {
                let b = *byte;
                let (middle, half) = (name.len() / 2, value.len() / 2);
                let (n0, n1, v0, v1) = (&name[..middle], &name[middle..], &value[..half], &value[half..]);
                for place in 0..9 {
                    let line: Vec<u8> = match place {
                        0 => [&[b][..], name.as_bytes(), b": ", value.as_bytes()].concat(),
                        1 => [n0.as_bytes(), &[b], n1.as_bytes(), b": ", value.as_bytes()].concat(),
                        2 => [name.as_bytes(), &[b], b": ", value.as_bytes()].concat(),
                        3 => [name.as_bytes(), b":", &[b], value.as_bytes()].concat(),
                        4 => [name.as_bytes(), b": ", &[b], value.as_bytes()].concat(),
                        5 => [name.as_bytes(), b": ", v0.as_bytes(), &[b], v1.as_bytes()].concat(),
                        6 => [name.as_bytes(), b": ", value.as_bytes(), &[b]].concat(),
                        7 => [name.as_bytes(), &[b], value.as_bytes()].concat(),
                        _ => [b"X: y", &[b][..], name.as_bytes(), b": ", value.as_bytes()].concat(),
                    };
                    self.beside_partners("special byte", &line, PATHS[place % 2]);
                }
            }
        }
    }

    fn beside_partners(&mut self, family: &'static str, line: &[u8], path: &str) {
        for body in [ends_early(), hides_in_chunk()] {
            for (number, partner) in partners(&body).into_iter().enumerate() {
                let start = format!("POST {path} HTTP/1.1\r\nHost: x\r\n");
                let after = [start.as_bytes(), partner.as_bytes(), line, b"\r\n\r\n", body.as_bytes()].concat();
                self.add(family, after);
                if number > 0 {
                    let before = [start.as_bytes(), line, b"\r\n", partner.as_bytes(), b"\r\n", body.as_bytes()];
                    self.add(family, before.concat());
                }
            }
        }
    }

    /// Odd values of the framing fields, for both versions.
    fn values(&mut self) {
        for (name, values) in [("Transfer-Encoding", CODINGS), ("Content-Length", LENGTHS), ("Expect", EXPECTS)] {
            for (number, value) in values.iter().enumerate() {
                self.beside_partners("value", format!("{name}: {value}").as_bytes(), PATHS[number % 2]);
                for body in [ends_early(), hides_in_chunk()] {
                    for partner in partners(&body) {
                        let lines = format!("{partner}{name}: {value}\r\nConnection: keep-alive\r\n");
                        self.add("value in 1.0", post(PATHS[number % 2], "1.0", &lines, &body));
                    }
                }
                for method in ["GET", "HEAD", "OPTIONS", "DELETE"] {
                    let body = ends_early();
                    let head = format!("{method} /case-IDIDIDID HTTP/1.1\r\nHost: x\r\n{name}: {value}\r\n\r\n");
                    self.add("value of other methods", head + &body);
                }
            }
        }
    }

    /// Two framing fields, in all spellings.
    fn repeated(&mut self) {
        let lengths = ["0", "4", "49", "049", "-1", ""];
        let codings = ["chunked", "identity", "gzip", "Chunked", "x", ""];
        for (family, names, values) in [("two lengths", NAMES[0], lengths), ("two codings", NAMES[1], codings)] {
            for (number, spelling) in names.iter().enumerate() {
                for first in values {
                    for second in values {
                        let body = if number % 2 == 0 { ends_early() } else { hides_in_chunk() };
                        let lines = format!("{}: {first}\r\n{spelling}: {second}\r\n", names[0]);
                        self.add(family, post(PATHS[number % 2], "1.1", &lines, &body));
                    }
                }
            }
        }
    }

    /// The grammar of chunks, part by part.
    fn chunks(&mut self) {
        let chunked = |path: &str, body: &str| post(path, "1.1", "Transfer-Encoding: chunked\r\n", body);
        let data = HIDDEN;
        let size = format!("{:x}", data.len());
        let mut number = 0;
        for prefix in CHUNK_PREFIXES {
            for suffix in CHUNK_SUFFIXES {
                for eol in CHUNK_EOLS {
                    number += 1;
                    let body = format!("{prefix}{size}{suffix}{eol}{data}\r\n0\r\n\r\n");
                    self.add("chunk size line", chunked(PATHS[number % 2], &body));
                }
            }
        }
        for end in CHUNK_DATA_ENDS {
            for last in CHUNK_LASTS {
                for path in PATHS {
                    let body = format!("{size}\r\n{data}{end}{last}");
                    self.add("chunk ends", chunked(path, &body));
                }
            }
        }
        for size in ["fffffffffffffff", "ffffffffffffffff", "10000000000000031", "8000000000000000", "fffffffe"] {
            self.add("chunk size", chunked(PATHS[0], &format!("{size}\r\n{data}\r\n0\r\n\r\n")));
        }
        for count in [1000, 1023, 1024, 1025, 5000] {
            let extension = "e".repeat(count);
            self.add("extensions", chunked(PATHS[0], &format!("5;{extension}\r\nhello\r\n0\r\n\r\n{HIDDEN}")));
            let trailer = "t".repeat(count * 4);
            self.add("trailers", chunked(PATHS[0], &format!("5\r\nhello\r\n0\r\nX: {trailer}\r\n\r\n{HIDDEN}")));
        }
    }

    /// Methods, separators, targets and versions.
    fn start_lines(&mut self) {
        let rest = format!("\r\nHost: x\r\nContent-Length: {}\r\n\r\n{HIDDEN}", HIDDEN.len());
        for method in METHODS {
            for version in VERSIONS {
                self.add("method and version", format!("{method} /case-IDIDIDID {version}{rest}"));
            }
        }
        for target in TARGETS {
            for method in ["GET", "POST", "OPTIONS", "HEAD"] {
                for version in ["HTTP/1.1", "HTTP/1.0", "HTTP/1.1 ", "HTTP/0.9", ""] {
                    self.add("target", format!("{method} {target} {version}{rest}"));
                }
            }
        }
        for first in [" ", "  ", "\t", "\u{b}", "\u{c}", "\r", "\n", "\0", "\u{7f}", ""] {
            for second in [" ", "  ", "\t", "\u{b}", "\u{c}", "\r", "\n", "\0", "\u{7f}", ""] {
                self.add("separators", format!("POST{first}/case-IDIDIDID{second}HTTP/1.1{rest}"));
            }
        }
        for preface in PREFACES {
            self.add("preface", format!("{preface}POST /case-IDIDIDID HTTP/1.1{rest}"));
            self.add("preface", format!("{preface}GET /case-IDIDIDID HTTP/1.0\r\n\r\n{HIDDEN}"));
        }
    }

    /// Host and absolute-form games.
    fn hosts(&mut self) {
        for target in
            ["/case-IDIDIDID", "http://x/case-IDIDIDID", "http://y/case-IDIDIDID", "https://x:1/case-IDIDIDID"]
        {
            for version in ["1.1", "1.0"] {
                let start = format!("GET {target} HTTP/{version}\r\n");
                self.add("no host", format!("{start}\r\n{HIDDEN}"));
                for host in HOSTS {
                    self.add("host", format!("{start}Host: {host}\r\n\r\n{HIDDEN}"));
                    self.add("two hosts", format!("{start}Host: x\r\nHost: {host}\r\n\r\n{HIDDEN}"));
                    self.add("two hosts", format!("{start}Host: {host}\r\nX: y\r\nhost: x\r\n\r\n{HIDDEN}"));
                }
            }
        }
    }

    /// Another line end in the place of each CRLF of a head.
    fn line_ends(&mut self) {
        let body = ends_early();
        let heads = [
            format!("POST {} HTTP/1.1|Host: x|Content-Length: {}|X: y||", PATHS[0], body.len()),
            format!("POST {} HTTP/1.1|Host: x|Transfer-Encoding: chunked|X: y||", PATHS[1]),
            "GET /case-IDIDIDID HTTP/1.1|Host: x|Connection: keep-alive|X: y||".to_owned(),
        ];
        for head in heads {
            let places = head.matches('|').count();
            for end in LINE_ENDS {
                for place in 0..=places {
                    let mut at = 0;
                    let mut text = String::new();
                    for character in head.chars() {
                        if character == '|' {
                            // The last round replaces them all.
                            text.push_str(if at == place || place == places { end } else { "\r\n" });
                            at += 1;
                        } else {
                            text.push(character);
                        }
                    }
                    self.add("line end", text + &body);
                }
            }
        }
    }

    /// What `Connection` may not take away, and Upgrade.
    fn connection(&mut self) {
        for connection in CONNECTIONS {
            for lines in [
                format!("Content-Length: {}\r\n", HIDDEN.len()),
                "Transfer-Encoding: chunked\r\n".to_owned(),
                format!("Upgrade: websocket\r\nContent-Length: {}\r\n", HIDDEN.len()),
                "Upgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n".to_owned(),
            ] {
                for version in ["1.1", "1.0"] {
                    let lines = format!("{lines}Connection: {connection}\r\n");
                    self.add("connection", post(PATHS[0], version, &lines, HIDDEN));
                }
            }
        }
    }

    /// Each special byte at each place of two short requests.
    fn insertions(&mut self) {
        let heads = [
            format!("POST /case-IDIDIDID HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n{HIDDEN}", HIDDEN.len()),
            "POST /case-IDIDIDID HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"
                .to_owned(),
        ];
        for head in heads {
            let end = head.find("\r\n\r\n").unwrap_or(head.len()) + 4;
            let end = if head.contains("chunked") { head.len() } else { end };
            for at in (0..end).filter(|at| !in_id(&head, *at)) {
                for byte in SPECIAL_BYTES {
                    let mut bytes = head.clone().into_bytes();
                    bytes.insert(at, *byte);
                    self.add("insertion", bytes);
                }
            }
        }
    }

    /// Several requests in a row, good ones and bad ones.
    fn pipelines(&mut self, rng: &mut Rng) {
        let mut parts = vec![
            "GET /case-IDIDIDID HTTP/1.1\r\nHost: x\r\n\r\n".to_owned(),
            "HEAD /case-IDIDIDID HTTP/1.1\r\nHost: x\r\n\r\n".to_owned(),
            "OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n".to_owned(),
            "POST /early-IDIDIDID HTTP/1.1\r\nHost: x\r\nContent-Length: 300\r\n\r\n".to_owned(),
            "GET /case-IDIDIDID HTTP/1.0\r\nConnection: keep-alive\r\n\r\n".to_owned(),
            "\r\n".to_owned(),
            post(PATHS[0], "1.1", "Content-Length: 0\r\n", ""),
            post(PATHS[0], "1.1", "Expect: 100-continue\r\nContent-Length: 5\r\n", "hello"),
            post(PATHS[1], "1.1", "Content-Length: 2\r\nContent-Type: application/json\r\n", "{}"),
            post(PATHS[0], "1.1", "Transfer-Encoding: chunked\r\n", &hides_in_chunk()),
            post(PATHS[0], "1.1", "Transfer-Encoding: chunked\r\n", &ends_early()),
            HIDDEN.to_owned(),
        ];
        parts.push(post(PATHS[0], "1.1", &format!("Content-Length: {}\r\n", HIDDEN.len()), HIDDEN));
        for _ in 0..600 {
            let count = 2 + rng.below(4);
            let text: String = (0..count).map(|_| rng.pick(&parts).as_str()).collect();
            self.add("pipeline", text);
        }
    }

    /// Random damage to what is there already.
    fn damaged(&mut self, rng: &mut Rng, count: usize) {
        let systematic = self.cases.len();
        let end = systematic + count;
        while self.cases.len() < end {
            let base = self.cases[rng.below(systematic)].template.clone();
            let other = self.cases[rng.below(systematic)].template.clone();
            self.add("damaged", mutated(rng, base, &other));
        }
    }
}

/// Whether an insertion at `at` would break the number of the delivery.
fn in_id(text: &str, at: usize) -> bool {
    text.match_indices(ID).any(|(start, _)| start < at && at < start + ID.len())
}
