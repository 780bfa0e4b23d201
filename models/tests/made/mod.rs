//! Models made by hand for the tests, in the format of the real ones, and the real library that runs them.
//!
//! A model is a table: each word has a number for each class, and a text the largest of its words' (or, where the classes
//! are those of words, each word its own).

#![allow(dead_code, reason = "each test uses what it needs")]
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;

/// A node of a graph: its kind, what goes in, what comes out, its attributes.
type Node<'a> = (&'a str, &'a [&'a str], &'a str, &'a [Vec<u8>]);

/// A model to be made.
pub(crate) struct Made<'a> {
    pub(crate) labels: &'a [&'a str],
    /// `problem_type` of its configuration.
    pub(crate) problem: Option<&'a str>,
    /// The numbers of words it does not know.
    pub(crate) others: &'a [f32],
    /// Words and their numbers.
    pub(crate) words: &'a [(&'a str, &'a [f32])],
    /// Whether the classes are those of each word.
    pub(crate) by_word: bool,
    /// How many tokens it takes.
    pub(crate) positions: usize,
}

/// A classifier of orders. `ignore` is one beyond doubt (0.98), `platypus` is above the default threshold of a classifier and
/// below that of a guard (0.82), `perhaps` below both (0.62).
pub(crate) const ORDERS: Made<'static> = Made {
    labels: &["SAFE", "INJECTION"],
    problem: None,
    others: &[2.0, -2.0],
    words: &[("ignore", &[2.0, 6.0]), ("platypus", &[2.0, 3.5]), ("perhaps", &[2.0, 2.5])],
    by_word: false,
    positions: 512,
};

/// A model of names.
pub(crate) const NAMES: Made<'static> = Made {
    labels: &["O", "B-PER", "I-PER", "B-LOC", "B-ORG"],
    problem: None,
    others: &[5.0, 0.0, 0.0, 0.0, 0.0],
    words: &[
        ("angela", &[0.0, 5.0, 0.0, 0.0, 0.0]),
        ("merkel", &[0.0, 0.0, 5.0, 0.0, 0.0]),
        ("berlin", &[0.0, 0.0, 0.0, 5.0, 0.0]),
        ("acme", &[0.0, 0.0, 0.0, 0.0, 5.0]),
    ],
    by_word: true,
    positions: 512,
};

/// A model of toxicity with classes of its own.
pub(crate) const TOXIC: Made<'static> = Made {
    labels: &["toxic", "severe_toxic", "threat"],
    problem: Some("multi_label_classification"),
    others: &[-4.0, -6.0, -6.0],
    words: &[("stupid", &[2.0, -3.0, -6.0]), ("idiot", &[3.0, -1.0, -5.0]), ("kill", &[1.0, 1.5, 4.0])],
    by_word: false,
    positions: 512,
};

/// A word that the tokenizer of [`Made::write_slow`] knows and its graph does not: what holds it cannot be judged.
pub(crate) const BREAKING: &str = "breaking";
/// Numbers that its graph has for each word, and how often it multiplies them by a square of that size: tens of milliseconds for a
/// window of a few words on a fast machine.
const WIDE: usize = 1_024;
const TIMES: usize = 24;

impl Made<'_> {
    /// Writes it into `folder` as exports lie there.
    pub(crate) fn write(&self, folder: &Path) -> PathBuf {
        self.write_with(folder, &[], self.graph(&[], "logits"))
    }

    /// The same with a graph that takes its time over each window, and fails over [`BREAKING`].
    pub(crate) fn write_slow(&self, folder: &Path) -> PathBuf {
        self.write_with(folder, &[BREAKING], self.graph(&self.effort(), "said"))
    }

    fn write_with(&self, folder: &Path, unknown: &[&str], graph: Vec<u8>) -> PathBuf {
        fs::create_dir_all(folder.join("onnx")).unwrap();
        let pairs = self.labels.iter().enumerate().map(|(at, label)| format!("\"{at}\":\"{label}\""));
        let problem = self.problem.map(|problem| format!("\"problem_type\":\"{problem}\",")).unwrap_or_default();
        let config = format!(
            "{{{problem}\"model_type\":\"bert\",\"max_position_embeddings\":{},\"id2label\":{{{}}}}}",
            self.positions,
            pairs.collect::<Vec<_>>().join(",")
        );
        fs::write(folder.join("config.json"), config).unwrap();
        let words = self.words.iter().map(|(word, _)| *word).chain(unknown.iter().copied());
        fs::write(folder.join("tokenizer.json"), tokenizer(words)).unwrap();
        fs::write(folder.join("onnx/model.onnx"), graph).unwrap();
        folder.to_owned()
    }

    /// Parts of a graph that work hard and then add nothing to what it has `said`.
    fn effort(&self) -> Vec<Vec<u8>> {
        let zeros = |rows: usize, name| {
            let bytes = vec![0; rows * WIDE * size_of::<f32>()];
            let dims = [number(1, rows as u64), number(1, WIDE as u64)];
            field(5, &message(&[&dims[..], &[number(2, FLOAT), text(8, name), field(9, &bytes)]].concat()))
        };
        let node = |kind: &str, from: &[&str], to: &str, attributes: &[Vec<u8>]| {
            let mut node: Vec<Vec<u8>> = from.iter().map(|name| text(1, name)).collect();
            node.extend([text(2, to), text(4, kind)]);
            node.extend(attributes.iter().map(|attribute| field(5, attribute)));
            field(1, &message(&node))
        };
        let name = |at: usize| format!("wide{at}");
        let mut parts = vec![node("Gather", &["rows", "input_ids"], &name(0), &[int("axis", 0)])];
        parts.extend((0..TIMES).map(|at| node("MatMul", &[&name(at), "square"], &name(at + 1), &[])));
        let axes = message(&[text(1, "axes"), number(8, 1), number(8, 2), number(20, 7)]);
        parts.push(node("ReduceMax", &[&name(TIMES)], "nothing", &[axes, int("keepdims", 0)]));
        parts.push(node("Add", &["said", "nothing"], "logits", &[]));
        parts.extend([zeros(4 + self.words.len(), "rows"), zeros(WIDE, "square")]);
        parts
    }

    /// `ModelProto` of onnx.proto, opset 17: what the table says is called `said`, and `parts` go on from there.
    fn graph(&self, parts: &[Vec<u8>], said: &str) -> Vec<u8> {
        let classes = self.labels.len();
        let mut rows: Vec<f32> = self.others.repeat(4);
        self.words.iter().for_each(|(_, row)| rows.extend(*row));
        let bytes: Vec<u8> = rows.iter().flat_map(|value| value.to_le_bytes()).collect();
        let table = message(&[
            number(1, (rows.len() / classes) as u64),
            number(1, classes as u64),
            number(2, FLOAT),
            text(8, "table"),
            field(9, &bytes),
        ]);
        let by_word = if self.by_word { said } else { "each" };
        let gather = message(&[
            text(1, "table"),
            text(1, "input_ids"),
            text(2, by_word),
            text(4, "Gather"),
            field(5, &int("axis", 0)),
        ]);
        let axes = message(&[text(1, "axes"), number(8, 1), number(20, 7)]);
        let most = message(&[
            text(1, "each"),
            text(2, said),
            text(4, "ReduceMax"),
            field(5, &axes),
            field(5, &int("keepdims", 0)),
        ]);
        let mut graph = vec![field(1, &gather)];
        if !self.by_word {
            graph.push(field(1, &most));
        }
        graph.extend(parts.iter().cloned());
        let shape: &[&str] = if self.by_word { &["batch", "sequence", "classes"] } else { &["batch", "classes"] };
        graph.extend([
            text(2, "words"),
            field(5, &table),
            field(11, &value("input_ids", INT64, &["batch", "sequence"])),
            field(11, &value("attention_mask", INT64, &["batch", "sequence"])),
            field(12, &value("logits", FLOAT, shape)),
        ]);
        message(&[
            number(1, 8),
            text(2, "tests"),
            field(7, &message(&graph)),
            field(8, &message(&[text(1, ""), number(2, 17)])),
        ])
    }
}

/// A tokenizer of words that knows these.
fn tokenizer<'a>(words: impl Iterator<Item = &'a str>) -> String {
    let special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"];
    let added: Vec<String> = special.iter().enumerate().map(|(id, content)| format!(
        "{{\"id\":{id},\"content\":\"{content}\",\"single_word\":false,\"lstrip\":false,\"rstrip\":false,\"normalized\":false,\"special\":true}}"
    )).collect();
    let words = special.iter().copied().chain(words);
    let vocabulary: Vec<String> = words.enumerate().map(|(id, word)| format!("\"{word}\":{id}")).collect();
    format!(
        "{{\"version\":\"1.0\",\"truncation\":{{\"direction\":\"Right\",\"max_length\":8,\"strategy\":\"LongestFirst\",\"stride\":0}},\
         \"padding\":null,\"added_tokens\":[{}],\"normalizer\":{{\"type\":\"Lowercase\"}},\
         \"pre_tokenizer\":{{\"type\":\"BertPreTokenizer\"}},\
         \"post_processor\":{{\"type\":\"BertProcessing\",\"sep\":[\"[SEP]\",3],\"cls\":[\"[CLS]\",2]}},\"decoder\":null,\
         \"model\":{{\"type\":\"WordLevel\",\"vocab\":{{{}}},\"unk_token\":\"[UNK]\"}}}}",
        added.join(","),
        vocabulary.join(",")
    )
}

/// A model that reads a text and a sentence: how many words of the sentence stand in the text. Words it does not know are all one.
pub(crate) struct Overlap<'a> {
    pub(crate) words: &'a [&'a str],
    /// How many tokens it takes.
    pub(crate) positions: usize,
}

/// One that knows the words of its self-test and some more.
pub(crate) const OVERLAP: Overlap<'static> = Overlap {
    words: &[
        "the",
        "train",
        "to",
        "oslo",
        "was",
        "cancelled",
        "because",
        "of",
        "snow",
        "angela",
        "merkel",
        "born",
        "in",
        "hamburg",
        "1954",
        "she",
        "studied",
        "physics",
        "leipzig",
        "opening",
        "hours",
        "are",
        "nine",
        "until",
        "five",
        "on",
        "weekdays",
        "shop",
        "sells",
        "blue",
        "bicycles",
        "and",
        "everything",
        "is",
        "free",
        "sundays",
        "owner",
        "lives",
        "moon",
        "we",
        "accept",
        "gold",
        "coins",
        "only",
    ],
    positions: 512,
};

impl Overlap<'_> {
    /// Writes it into `folder`.
    pub(crate) fn write(&self, folder: &Path) -> PathBuf {
        fs::create_dir_all(folder).unwrap();
        let config = format!(
            "{{\"model_type\":\"bert\",\"max_position_embeddings\":{},\"id2label\":{{\"0\":\"consistent\"}}}}",
            self.positions
        );
        fs::write(folder.join("config.json"), config).unwrap();
        fs::write(folder.join("tokenizer.json"), tokenizer(self.words.iter().copied())).unwrap();
        fs::write(folder.join("model.onnx"), Self::graph()).unwrap();
        folder.to_owned()
    }

    fn graph() -> Vec<u8> {
        let float = int("to", FLOAT);
        let by_last = [message(&[text(1, "axes"), number(8, 2), number(20, 7)]), int("keepdims", 0)];
        let nodes: [Node<'_>; 15] = [
            ("Unsqueeze", &["input_ids", "two"], "rows", &[]),
            ("Unsqueeze", &["input_ids", "one"], "columns", &[]),
            ("Equal", &["rows", "columns"], "same", &[]),
            ("Cast", &["same"], "equal", std::slice::from_ref(&float)),
            ("Cast", &["token_type_ids"], "sentence", std::slice::from_ref(&float)),
            ("Sub", &["unit", "sentence"], "text", &[]),
            ("Unsqueeze", &["text", "one"], "text_columns", &[]),
            ("Mul", &["equal", "text_columns"], "hits", &[]),
            ("ReduceMax", &["hits"], "found", &by_last),
            ("Mul", &["found", "sentence"], "held", &[]),
            ("ReduceSum", &["held", "one"], "count", &[]),
            ("ReduceSum", &["sentence", "one"], "all", &[]),
            ("Div", &["count", "all"], "share", &[]),
            ("Sub", &["share", "middle"], "above", &[]),
            ("Mul", &["above", "steep"], "logits", &[]),
        ];
        let mut graph: Vec<Vec<u8>> = nodes
            .iter()
            .map(|(kind, from, to, attributes)| {
                let mut node: Vec<Vec<u8>> = from.iter().map(|name| text(1, name)).collect();
                node.extend([text(2, to), text(4, kind)]);
                node.extend(attributes.iter().map(|attribute| field(5, attribute)));
                field(1, &message(&node))
            })
            .collect();
        graph.push(text(2, "overlap"));
        let axis =
            |name, at: i64| message(&[number(1, 1), number(2, INT64), text(8, name), field(9, &at.to_le_bytes())]);
        let scalar =
            |name, at: f32| message(&[number(1, 1), number(2, FLOAT), text(8, name), field(9, &at.to_le_bytes())]);
        graph.extend([axis("one", 1), axis("two", 2)].map(|tensor| field(5, &tensor)));
        let scalars = [scalar("unit", 1.0), scalar("middle", 0.7), scalar("steep", 20.0)];
        graph.extend(scalars.map(|tensor| field(5, &tensor)));
        graph.extend([
            field(11, &value("input_ids", INT64, &["batch", "sequence"])),
            field(11, &value("token_type_ids", INT64, &["batch", "sequence"])),
            field(12, &value("logits", FLOAT, &["batch", "classes"])),
        ]);
        message(&[
            number(1, 8),
            text(2, "tests"),
            field(7, &message(&graph)),
            field(8, &message(&[text(1, ""), number(2, 17)])),
        ])
    }
}

const FLOAT: u64 = 1;
const INT64: u64 = 7;

fn varint(mut value: u64) -> Vec<u8> {
    let mut out = Vec::new();
    loop {
        let low = u8::try_from(value & 0x7F).unwrap();
        value >>= 7;
        if value == 0 {
            out.push(low);
            return out;
        }
        out.push(low | 0x80);
    }
}

fn number(field: u64, value: u64) -> Vec<u8> {
    [varint(field << 3), varint(value)].concat()
}

fn field(field: u64, bytes: &[u8]) -> Vec<u8> {
    [varint(field << 3 | 2), varint(bytes.len() as u64), bytes.to_vec()].concat()
}

fn text(number: u64, words: &str) -> Vec<u8> {
    field(number, words.as_bytes())
}

fn message(fields: &[Vec<u8>]) -> Vec<u8> {
    fields.concat()
}

/// `AttributeProto` of an integer.
fn int(name: &str, value: u64) -> Vec<u8> {
    message(&[text(1, name), number(3, value), number(20, 2)])
}

/// `ValueInfoProto` of a tensor whose lengths have names.
fn value(name: &str, kind: u64, shape: &[&str]) -> Vec<u8> {
    let lengths: Vec<Vec<u8>> = shape.iter().map(|name| field(1, &text(2, name))).collect();
    let tensor = message(&[number(1, kind), field(2, &message(&lengths))]);
    message(&[text(1, name), field(2, &field(1, &tensor))])
}

/// The folder with the real library, from the Python package index; installed on the first call and when the pins change.
pub(crate) fn library() -> PathBuf {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let pins = include_str!("../../../tests/clients/onnx_pins.txt");
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("onnx-venv");
    let (python, stamp) = (folder.join("bin/python"), folder.join("installed.txt"));
    if !fs::read_to_string(&stamp).is_ok_and(|installed| installed == pins) {
        run(
            Command::new("python3").args(["-m", "venv", "--clear"]).arg(&folder),
            "install python3 with its venv module",
        );
        let mut install = Command::new(&python);
        install.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps", pins.trim()]);
        run(&mut install, "the library comes from the Python package index; check that it can be reached");
        fs::write(&stamp, pins).unwrap();
    }
    let mut versions = fs::read_dir(folder.join("lib")).unwrap();
    let version =
        versions.find_map(|entry| Some(entry.unwrap().path()).filter(|path| path.join("site-packages").is_dir()));
    version.unwrap().join("site-packages/onnxruntime/capi")
}

fn run(command: &mut Command, advice: &str) {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}; {advice}"));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {}; {advice}\n{said}", output.status);
}
