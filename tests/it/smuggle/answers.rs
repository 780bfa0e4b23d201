//! The hostile provider's corpus: answers that are cut, doubled, framed twice or damaged, seeded like the requests'.

use std::collections::HashSet;

use super::data::{
    CHUNK_DATA_ENDS, CHUNK_EOLS, CHUNK_LASTS, CHUNK_PREFIXES, CHUNK_SUFFIXES, CODINGS, LENGTHS, LINE_ENDS, NAMES,
    SPECIAL_BYTES,
};
use super::mutate::mutated;
use super::rng::Rng;

/// A second answer nobody asked for.
pub(crate) const POISON: &str = "HTTP/1.1 200 OK\r\nContent-Length: 9\r\nX-Poison: yes\r\n\r\nPOISONED!";

/// How the provider's side of the connection ends after the bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Ending {
    /// It stays open.
    Open,
    /// Closed in order.
    Close,
    /// Reset.
    Reset,
}

/// One thing a provider may say.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct HostileCase {
    pub(crate) family: &'static str,
    pub(crate) method: &'static str,
    pub(crate) bytes: Vec<u8>,
    pub(crate) ending: Ending,
    /// Sent a moment later, where it is not empty.
    pub(crate) later: &'static str,
}

pub(crate) fn answers(seed: u64, random: usize) -> Vec<HostileCase> {
    let mut corpus = Answers { cases: Vec::new(), seen: HashSet::new() };
    corpus.start_lines();
    corpus.framings();
    corpus.special_bytes();
    corpus.chunks();
    corpus.interim();
    corpus.cuts();
    corpus.unasked();
    corpus.damaged(&mut Rng::new(seed), random);
    corpus.cases
}

struct Answers {
    cases: Vec<HostileCase>,
    seen: HashSet<HostileCase>,
}

const OK: &str = "HTTP/1.1 200 OK\r\n";
const WHOLE: &str = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";
const CHUNKED: &str = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n3\r\nabc\r\n0\r\n\r\n";

impl Answers {
    fn add(&mut self, family: &'static str, method: &'static str, bytes: impl Into<Vec<u8>>, ending: Ending) {
        self.push(HostileCase { family, method, bytes: bytes.into(), ending, later: "" });
    }

    fn push(&mut self, case: HostileCase) {
        if self.seen.insert(case.clone()) {
            self.cases.push(case);
        }
    }

    /// The same bytes to a GET and a HEAD, closed and not.
    fn both(&mut self, family: &'static str, bytes: &str) {
        self.add(family, "GET", bytes, Ending::Close);
        self.add(family, "HEAD", bytes, Ending::Close);
        self.add(family, "POST", format!("{bytes}{POISON}"), Ending::Open);
    }

    fn start_lines(&mut self) {
        for start in [
            "HTTP/1.1 200 OK",
            "HTTP/1.1 200 ",
            "HTTP/1.1 200",
            "HTTP/1.0 200 OK",
            "HTTP/1.2 200 OK",
            "HTTP/2 200",
            "HTTP/2.0 200 OK",
            "HTTP/0.9 200 OK",
            "HTTP/1.1  200 OK",
            "HTTP/1.1\t200 OK",
            "HTTP/1.1 2000 OK",
            "HTTP/1.1 20 OK",
            "HTTP/1.1 099 X",
            "HTTP/1.1 000 X",
            "HTTP/1.1 999 X",
            "HTTP/1.1 600 X",
            "HTTP/1.1 -20 X",
            "HTTP/1.1 2e2 X",
            "HTTP/1.1 200OK",
            "http/1.1 200 OK",
            "HTTP/1.1 200 O\u{e9}K",
            "HTTP/1.1 200 O\0K",
            "HTTP/1.1 200 O\rK",
            "HTTP/1.1 200 O\u{7f}K",
            "ICY 200 OK",
            "200 OK",
            "",
            " HTTP/1.1 200 OK",
            "\r\nHTTP/1.1 200 OK",
            "\nHTTP/1.1 200 OK",
            "{\"error\": 1}",
            "<html>",
            "GET / HTTP/1.1",
            "HTTP/1.1 101 X",
            "HTTP/1.1 204 X",
            "HTTP/1.1 304 X",
            "HTTP/1.1 205 X",
            "HTTP/1.1 100 X",
            "HTTP/1.1 102 X",
            "HTTP/1.1 199 X",
            "SSH-2.0-x",
        ] {
            for rest in [
                "Content-Length: 5\r\n\r\nhello",
                "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
                "\r\nhello",
            ] {
                self.both("status line", &format!("{start}\r\n{rest}"));
            }
        }
    }

    fn framings(&mut self) {
        let bodies = ["hello", "5\r\nhello\r\n0\r\n\r\n"];
        for (name, values, partner) in [
            ("Content-Length", LENGTHS, "Transfer-Encoding: chunked\r\n"),
            ("Transfer-Encoding", CODINGS, "Content-Length: 5\r\n"),
        ] {
            for (number, value) in values.iter().enumerate() {
                let body = bodies[usize::from(name == "Transfer-Encoding")];
                let status = [200, 204, 304, 206, 500][number % 5];
                self.both("framing", &format!("HTTP/1.1 200 X\r\n{name}: {value}\r\n\r\n{body}"));
                self.both("framing", &format!("HTTP/1.1 {status} X\r\n{name}: {value}\r\n\r\n{body}"));
                for (first, second) in [(partner, ""), ("", partner)] {
                    self.both("two framings", &format!("{OK}{first}{name}: {value}\r\n{second}\r\n{body}"));
                }
                self.both(
                    "framing in 1.0",
                    &format!("HTTP/1.0 200 X\r\nConnection: keep-alive\r\n{name}: {value}\r\n\r\n{body}"),
                );
            }
        }
        for (number, names) in NAMES.iter().enumerate() {
            for name in *names {
                let (value, body) = [("5", "hello"), ("chunked", "5\r\nhello\r\n0\r\n\r\n")][number];
                self.both("framing name", &format!("{OK}{name}: {value}\r\n\r\n{body}"));
                self.both("framing name", &format!("{OK}Content-Length: 2\r\n{name}: {value}\r\n\r\n{body}"));
            }
        }
    }

    fn special_bytes(&mut self) {
        for end in LINE_ENDS {
            self.both("line end", &format!("HTTP/1.1 200 OK{end}Content-Length: 5\r\n\r\nhello"));
            self.both("line end", &format!("{OK}Content-Length: 5{end}\r\nhello"));
            self.both("line end", &format!("{OK}X: y{end}Content-Length: 5\r\n\r\nhello"));
        }
        let head = WHOLE.len() - "hello".len();
        for at in 0..head {
            for byte in SPECIAL_BYTES.iter().step_by(3) {
                let mut bytes = WHOLE.as_bytes().to_vec();
                bytes.insert(at, *byte);
                self.add("insertion", "GET", bytes, Ending::Close);
            }
        }
    }

    fn chunks(&mut self) {
        let head = format!("{OK}Transfer-Encoding: chunked\r\n\r\n");
        for (number, prefix) in CHUNK_PREFIXES.iter().enumerate() {
            for suffix in CHUNK_SUFFIXES.iter().skip(number % 2).step_by(2) {
                let body = format!("{head}{prefix}5{suffix}\r\nhello\r\n0\r\n\r\n");
                self.add("chunk size", "GET", body, Ending::Close);
            }
        }
        for eol in CHUNK_EOLS {
            self.both("chunk line", &format!("{head}5{eol}hello\r\n0\r\n\r\n"));
        }
        for (number, end) in CHUNK_DATA_ENDS.iter().enumerate() {
            for last in CHUNK_LASTS.iter().skip(number % 2).step_by(2) {
                self.add("chunk end", "GET", format!("{head}5\r\nhello{end}{last}"), Ending::Close);
            }
        }
    }

    fn interim(&mut self) {
        for first in [
            "HTTP/1.1 100 Continue\r\n\r\n",
            "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n",
            "HTTP/1.1 102 Processing\r\n\r\n",
            "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n",
            "HTTP/1.1 199 X\r\n\r\n",
            "HTTP/1.1 100 Continue\r\nContent-Length: 5\r\n\r\nhello",
            "HTTP/1.1 103 X\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            "HTTP/1.1 100 Continue\r\nContent-Length: 0\r\n\r\n",
            "HTTP/1.0 100 Continue\r\n\r\n",
            "HTTP/1.1 100\r\n\r\n",
        ] {
            for count in [1, 2, 8, 9, 30] {
                self.both("interim", &format!("{}{WHOLE}", first.repeat(count)));
                self.both("interim alone", &first.repeat(count));
            }
        }
    }

    /// Every cut of whole answers.
    fn cuts(&mut self) {
        let close = format!("{OK}X: y\r\n\r\nuntil the end");
        for whole in [WHOLE, CHUNKED, &close] {
            for cut in 0..=whole.len() {
                self.add("cut", "GET", &whole[..cut], Ending::Close);
                self.add("reset", "GET", &whole[..cut], Ending::Reset);
            }
        }
    }

    /// Whole answers and more than was asked for, at once and later.
    fn unasked(&mut self) {
        let head_only = format!("{OK}Content-Length: 5\r\n\r\n");
        for method in ["GET", "HEAD", "POST"] {
            for whole in
                [WHOLE, CHUNKED, &head_only, "HTTP/1.1 204 X\r\n\r\n", "HTTP/1.1 304 X\r\nContent-Length: 5\r\n\r\n"]
            {
                for more in [POISON, "x", "\r\n", "\n", "HTTP/1.1 100 Continue\r\n\r\n", "0\r\n\r\n"] {
                    for ending in [Ending::Open, Ending::Close] {
                        self.add("more", method, format!("{whole}{more}"), ending);
                        let bytes = whole.as_bytes().to_vec();
                        self.push(HostileCase { family: "more later", method, bytes, ending, later: more });
                    }
                }
            }
        }
    }

    fn damaged(&mut self, rng: &mut Rng, count: usize) {
        let systematic = self.cases.len();
        while self.cases.len() < systematic + count {
            let mut case = self.cases[rng.below(systematic)].clone();
            let other = self.cases[rng.below(systematic)].bytes.clone();
            if other.is_empty() {
                continue;
            }
            case.bytes = mutated(rng, case.bytes, &other);
            case.family = "damaged";
            self.push(case);
        }
    }
}
