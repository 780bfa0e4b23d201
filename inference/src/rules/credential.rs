//! Credentials of a fixed shape: what goes before, from which characters, how many. Each shape becomes a rule, with hits and
//! near misses made from it, so that no rule file holds what looks like a live credential.

use serde::Deserialize;

/// Most characters counted at once by a pattern.
const COUNT_MAX: usize = 128;
/// Longest shape, in bytes: it has to fit into the window behind its literal.
const SHAPE_BYTES_MAX: usize = 480;
/// The sets of characters by name.
const SETS: [(&str, &str); 10] = [
    ("hex", "0-9a-f"),
    ("HEX", "0-9A-F"),
    ("digit", "0-9"),
    ("lower", "a-z0-9"),
    ("upper", "A-Z0-9"),
    ("base32", "A-Z2-7"),
    ("word", "A-Za-z0-9"),
    ("url", "A-Za-z0-9_-"),
    ("base64", "A-Za-z0-9+/"),
    ("dotted", "A-Za-z0-9_.=-"),
];
/// What `<uuid>` stands for.
const UUID: &str = "<hex:8>-<hex:4>-<hex:4>-<hex:4>-<hex:12>";

/// As it is written.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawCredential {
    pub(super) id: String,
    about: String,
    shapes: Vec<String>,
}

/// What its shapes say.
#[derive(Debug)]
pub(super) struct Credential {
    pub(super) id: String,
    pub(super) about: String,
    pub(super) literals: Vec<String>,
    pub(super) pattern: String,
    pub(super) hits: Vec<String>,
    pub(super) misses: Vec<String>,
    /// Bytes from the beginning of the literal to what follows the longest value.
    pub(super) after: usize,
}

/// A piece of a shape.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Piece<'a> {
    Text(&'a str),
    Set { class: &'static str, least: usize, most: usize },
}

impl RawCredential {
    /// What finds it.
    pub(super) fn read(self) -> Result<Credential, String> {
        let Self { id, about, shapes } = self;
        let (mut patterns, mut literals) = (Vec::new(), Vec::new());
        let (mut hits, mut misses) = (Vec::new(), Vec::new());
        let mut after = 0;
        for shape in &shapes {
            let spelled = shape.replace("<uuid>", UUID);
            let pieces = pieces(&spelled).map_err(|problem| format!("`shapes`: `{shape}` {problem}"))?;
            let Some(Piece::Text(prefix)) = pieces.first() else {
                return Err(format!("`shapes`: `{shape}` begins with no fixed text; name what each value begins with"));
            };
            let longest = pieces.iter().map(|piece| piece.most()).sum::<usize>();
            if longest > SHAPE_BYTES_MAX {
                return Err(format!("`shapes`: `{shape}` may have {longest} bytes; {SHAPE_BYTES_MAX} are the most"));
            }
            after = after.max(longest + 2);
            patterns.push(pattern(&pieces));
            literals.push((*prefix).to_owned());
            let value = value(&id, &pieces);
            // The first piece of a random value is one character short.
            misses.push(cut_short(&pieces, &value));
            misses.push(format!("{prefix}here"));
            hits.push(value);
        }
        // The value is the group; what follows it belongs to no value.
        let pattern = format!("({})(?:[^A-Za-z0-9_]|$)", patterns.join("|"));
        Ok(Credential { id, about, literals, pattern, hits, misses, after })
    }
}

impl Piece<'_> {
    const fn most(&self) -> usize {
        match self {
            Self::Text(text) => text.len(),
            Self::Set { most, .. } => *most,
        }
    }
}

/// Reads a shape.
fn pieces(shape: &str) -> Result<Vec<Piece<'_>>, String> {
    let mut pieces = Vec::new();
    let mut rest = shape;
    while let Some((text, tail)) = rest.split_once('<') {
        if !text.is_empty() {
            pieces.push(Piece::Text(text));
        }
        let (set, after) = tail.split_once('>').ok_or("has a `<` without `>`")?;
        let (name, counts) = set.split_once(':').ok_or_else(|| format!("has `<{set}>`; write `<set:count>`"))?;
        let (_, class) = SETS.iter().find(|(known, _)| *known == name).ok_or_else(|| {
            let known: Vec<&str> = SETS.iter().map(|(name, _)| *name).collect();
            format!("names the set `{name}`; one of {}, or `<uuid>`", known.join(", "))
        })?;
        let (least, most) = counts.split_once('-').unwrap_or((counts, counts));
        match (least.parse(), most.parse()) {
            (Ok(least), Ok(most)) if 0 < least && least <= most => pieces.push(Piece::Set { class, least, most }),
            _ => return Err(format!("has the count `{counts}`; write a number above 0, or two like `20-40`")),
        }
        rest = after;
    }
    if !rest.is_empty() {
        pieces.push(Piece::Text(rest));
    }
    Ok(pieces)
}

/// What values of this shape match.
fn pattern(pieces: &[Piece<'_>]) -> String {
    let mut out = String::new();
    for piece in pieces {
        match *piece {
            Piece::Text(text) => out.push_str(&regex_syntax::escape(text)),
            Piece::Set { class, mut least, mut most } => {
                while most > 0 {
                    let from = least.min(COUNT_MAX);
                    // All of the least come before any of the others.
                    let to = if least > COUNT_MAX { from } else { most.min(COUNT_MAX) };
                    out.push_str(&format!("[{class}]{{{from},{to}}}"));
                    (least, most) = (least - from, most - to);
                }
            }
        }
    }
    out
}

/// A random value of this shape, always the same one.
fn value(id: &str, pieces: &[Piece<'_>]) -> String {
    let mut state = id.bytes().fold(0x9E37_79B9_7F4A_7C15_u64, |state, byte| (state ^ u64::from(byte)).rotate_left(9));
    let mut next = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 20) as usize
    };
    let mut out = String::new();
    for piece in pieces {
        match piece {
            Piece::Text(text) => out.push_str(text),
            Piece::Set { class, least, .. } => {
                let all = characters(class);
                out.extend((0..*least).filter_map(|_| all.get(next() % all.len().max(1))));
            }
        }
    }
    out
}

/// The same without the last character of its last random piece.
fn cut_short(pieces: &[Piece<'_>], value: &str) -> String {
    let tail = match pieces.last() {
        Some(Piece::Text(text)) => text,
        _ => "",
    };
    let body = value.strip_suffix(tail).unwrap_or(value);
    format!("{}{tail}", body.get(..body.len().saturating_sub(1)).unwrap_or_default())
}

/// The characters of a class.
fn characters(class: &str) -> Vec<char> {
    let bytes = class.as_bytes();
    let mut all = Vec::new();
    let mut at = 0;
    while let Some(first) = bytes.get(at) {
        match (bytes.get(at + 1), bytes.get(at + 2)) {
            (Some(b'-'), Some(last)) => {
                all.extend((*first..=*last).map(char::from));
                at += 3;
            }
            _ => {
                all.push(char::from(*first));
                at += 1;
            }
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shape_says_what_its_values_are_made_of() {
        let read = pieces("ab_<hex:2-3>.<word:4>-x").unwrap();
        let set = |class, least, most| Piece::Set { class, least, most };
        let expected =
            [Piece::Text("ab_"), set("0-9a-f", 2, 3), Piece::Text("."), set("A-Za-z0-9", 4, 4), Piece::Text("-x")];
        assert_eq!(read, expected);
        assert_eq!(pattern(&read), r"ab_[0-9a-f]{2,3}\.[A-Za-z0-9]{4,4}\-x");
        assert_eq!(pattern(&pieces("a<hex:130-300>").unwrap()), "a[0-9a-f]{128,128}[0-9a-f]{2,128}[0-9a-f]{0,44}");
        assert_eq!(characters("a-c_-"), ['a', 'b', 'c', '_', '-']);
    }

    #[test]
    fn a_shape_that_cannot_be_read_is_refused() {
        let refused = |shape: &str| {
            let raw = RawCredential { id: "a".to_owned(), about: "A.".to_owned(), shapes: vec![shape.to_owned()] };
            raw.read().map(|read| read.pattern).unwrap_err()
        };
        for (shape, said) in [
            ("<hex:20>", "begins with no fixed text"),
            ("abc_<hex>", "write `<set:count>`"),
            ("abc_<hax:20>", "names the set `hax`; one of hex"),
            ("abc_<hex:20", "`<` without `>`"),
            ("abc_<hex:0>", "the count `0`"),
            ("abc_<hex:30-20>", "the count `30-20`"),
            ("abc_<hex:700>", "480 are the most"),
        ] {
            assert!(refused(shape).contains(said), "{}", refused(shape));
        }
    }
}
