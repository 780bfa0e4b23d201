//! Cuts an array that arrives in pieces into its elements.
//!
//! Invariants: the cuts do not depend on how the bytes came; nothing is kept. Only structure is looked at: whether an
//! element is JSON, its reader says.

/// Follows one array.
#[derive(Debug, Clone, Copy, Default)]
pub struct Elements {
    depth: u32,
    in_string: bool,
    escaped: bool,
    /// It has begun, and not with a bracket.
    foreign: bool,
}

impl Elements {
    /// Follows the next bytes to the end of the next element that is an object or an array: how many of them that takes. `None` where
    /// it has not ended with them.
    pub fn end(&mut self, bytes: &[u8]) -> Option<usize> {
        bytes.iter().position(|byte| self.ends(*byte)).map(|at| at + 1)
    }

    /// Whether an element ends with this byte.
    fn ends(&mut self, byte: u8) -> bool {
        if self.foreign {
            return false;
        }
        if self.in_string {
            match byte {
                _ if std::mem::take(&mut self.escaped) => {}
                b'\\' => self.escaped = true,
                b'"' => self.in_string = false,
                _ => {}
            }
            return false;
        }
        match byte {
            b'[' => self.depth += 1,
            b']' | b'}' => {
                self.depth = self.depth.saturating_sub(1);
                return self.depth == 1;
            }
            _ if self.depth == 0 => self.foreign = !byte.is_ascii_whitespace(),
            b'{' => self.depth += 1,
            b'"' => self.in_string = true,
            _ => {}
        }
        false
    }

    /// Whether what has come is no array, so that nothing in it is an element.
    pub const fn is_foreign(&self) -> bool {
        self.foreign
    }
}

/// An element that is an object without the bracket or the comma before it, and where it begins; nothing where only the
/// array's end is left.
pub fn element(bytes: &[u8]) -> (usize, &[u8]) {
    let begin = bytes.iter().position(|byte| !byte.is_ascii_whitespace() && !matches!(byte, b'[' | b',' | b']'));
    let begin = begin.unwrap_or(bytes.len());
    (begin, bytes.get(begin..).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn elements(pieces: &[&[u8]]) -> (Vec<String>, bool) {
        let (mut follow, mut held, mut out) = (Elements::default(), Vec::new(), Vec::new());
        for piece in pieces {
            let mut rest = *piece;
            while let Some(end) = follow.end(rest) {
                held.extend_from_slice(&rest[..end]);
                out.push(String::from_utf8(element(&held).1.to_vec()).unwrap());
                held.clear();
                rest = &rest[end..];
            }
            held.extend_from_slice(rest);
        }
        assert!(follow.is_foreign() || element(&held).1.is_empty());
        (out, follow.is_foreign())
    }

    #[test]
    fn the_cuts_do_not_depend_on_how_the_bytes_came() {
        let array = br#" [{"a":"]}\"{"}
, {"b":[{},[1]]},{"c":1} ] "#;
        let expected = [r#"{"a":"]}\"{"}"#, r#"{"b":[{},[1]]}"#, r#"{"c":1}"#].map(str::to_owned).to_vec();
        for step in 1..array.len() {
            let pieces: Vec<&[u8]> = array.chunks(step).collect();
            assert_eq!(elements(&pieces), (expected.clone(), false));
        }
        assert_eq!(elements(&[b"[]"]), (vec![], false));
    }

    #[test]
    fn what_is_no_array_is_told() {
        for foreign in [b"{\"error\": {\"code\": 1}}".as_slice(), b"data: {}", b" 7"] {
            assert_eq!(elements(&[foreign]), (vec![], true));
        }
    }
}
