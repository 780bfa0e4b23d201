//! Where personal data can begin: a digit, or the `@` of an e-mail address.
//!
//! Digits are found a block of bytes at a time (`bits`). Most numbers in prose and tables are a few digits with nothing beside them
//! that would make them personal data: a look at five bytes around them tells, and nobody reads them.

use memchr::memchr;

use super::number::{DIGITS_TOTAL_MIN, month_at};
use super::wallet::WALLET_BYTES_MIN;
use crate::bits::{self, BLOCK, block};

/// Finds the triggers.
#[derive(Debug)]
pub(super) struct Triggers {
    /// Where the block begins that was looked at last; no block is there before the first.
    block_at: usize,
    /// The digits in it.
    digits: u64,
    /// Where the next `@` is, if it was looked for: the end of the text where there is none.
    sign_at: Option<usize>,
}

/// Digits of the postal codes that are digits only.
const POSTAL_CODE_DIGITS: usize = 5;

/// What a byte may be for a number beside it, a bit each: a letter or digit, ...
const WORD: u8 = 1;
/// ... a small letter, ...
const SMALL: u8 = 1 << 1;
/// ... a digit, ...
const DIGIT: u8 = 1 << 2;
/// ... a sign that may stand between the digits of one number, ...
const IN_ROW: u8 = 1 << 3;
/// ... or the sign between the groups of an IPv6 address.
const COLON: u8 = 1 << 4;

static CLASSES: [u8; 256] = {
    let mut classes = [0; 256];
    let mut byte = 0;
    while byte < classes.len() {
        classes[byte] = match byte as u8 {
            b'a'..=b'z' => WORD | SMALL,
            b'A'..=b'Z' => WORD,
            b'0'..=b'9' => WORD | DIGIT,
            b':' => COLON,
            other if super::is_in_row(&other) => IN_ROW,
            _ => 0,
        };
        byte += 1;
    }
    classes
};

fn is(byte: u8, classes: u8) -> bool {
    CLASSES[usize::from(byte)] & classes != 0
}

impl Triggers {
    pub(super) const fn new() -> Self {
        Self { block_at: usize::MAX, digits: 0, sign_at: None }
    }

    /// Position of the first one in a range that has to be looked at closely, or how far was looked where there is none.
    pub(super) fn next(&mut self, text: &[u8], (from, limit): (usize, usize)) -> usize {
        let sign_at = match self.sign_at {
            Some(at) if at >= from => at,
            _ => memchr(b'@', text.get(from..).unwrap_or_default()).map_or(text.len(), |at| from + at),
        };
        self.sign_at = Some(sign_at);
        let (mut from, limit) = (from, limit.min(sign_at));
        while from < limit {
            let block_at = from - from % BLOCK;
            if block_at != self.block_at {
                *self = Self { block_at, digits: block(text, block_at, |byte| byte.wrapping_sub(b'0') < 10), ..*self };
            }
            let left = self.digits & bits::from(from);
            if left == 0 {
                from = limit.min(block_at + BLOCK);
                continue;
            }
            let bit = left.trailing_zeros();
            let at = block_at + bit as usize;
            let digits = (!(self.digits >> bit)).trailing_zeros() as usize;
            if at >= limit {
                return limit;
            }
            match end_of_small(text, (at, at + digits)) {
                Some(end) if at + digits < block_at + BLOCK => from = end,
                _ => return at,
            }
        }
        from
    }
}

/// The end of what begins with these digits, if it can be no personal data, nor a part of any: it is short, no letter stands before it,
/// and nothing follows that could go on with it, nor a month or a year.
fn end_of_small(text: &[u8], (start, end): (usize, usize)) -> Option<usize> {
    let before = *text.get(start.checked_sub(1)?)?;
    let [after, next, far] = *text.get(end..)?.first_chunk()?;
    if end - start >= DIGITS_TOTAL_MIN || is(before, WORD | COLON) || is(after, COLON) {
        return None;
    }
    if is(after, WORD) {
        // What small letters follow is no identifier, if it is no wallet.
        let rest = text.get(end..)?;
        let letters = rest.iter().take_while(|byte| is(**byte, WORD)).count();
        let is_short = end - start + letters < WALLET_BYTES_MIN;
        return (is(after, SMALL) && is_short && rest.get(letters) != Some(&b':')).then_some(end + letters);
    }
    // `10115 Berlin`, `CA 94043`.
    let is_before_place = after == b' ' && next.is_ascii_uppercase() || after == b',' && far.is_ascii_uppercase();
    let is_behind_state =
        || before == b' ' && start.checked_sub(2).and_then(|at| text.get(at)).is_some_and(u8::is_ascii_alphabetic);
    if end - start == POSTAL_CODE_DIGITS && (is_before_place || is_behind_state()) {
        return None;
    }
    let goes_on = is(after, IN_ROW) && (is(next, DIGIT) || is(far, DIGIT));
    let is_day = end - start <= 2;
    let year = if after == b',' { far } else { next };
    let may_be_month = is(next, WORD) && !is(next, DIGIT);
    let is_dated = is_day && (matches!(year, b'1' | b'2') || (may_be_month && month_at(text, end + 1).is_some()));
    (!goes_on && !is_dated).then_some(end)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::Scanner;
    use super::*;

    proptest! {
        /// Whoever reads what is small finds nothing, and comes as far.
        #[test]
        fn what_is_small_is_nothing(text in "([0-9]{1,7}|[A-Za-z]{1,3}|[-a-f :@.,/()]|, 19| Mar | 2005|/20|[12]9){0,12}") {
            let mut from = 0;
            while let Some(start) = text.bytes().skip(from).position(|byte| byte.is_ascii_digit()).map(|at| from + at) {
                from = start + text.bytes().skip(start).take_while(u8::is_ascii_digit).count();
                if let Some(end) = end_of_small(text.as_bytes(), (start, from)) {
                    let mut scanner = Scanner::new(text.as_bytes());
                    prop_assert_eq!((scanner.around_digit(start), scanner.position()), (None, end));
                }
            }
        }
    }
}
