//! Numbers of digits and separators: cards, national numbers, phones, dates, IPv4 addresses.
//!
//! A cluster is read once into segments; every run of whole segments is then compared with the known shapes, longest
//! first. Both counts are bounded by [`SEGMENTS_MAX`].

use std::cell::Cell;

use super::context::{Context, Topic};
use super::{Pii, PiiType, Token, checks, document};

/// Most segments of one cluster.
const SEGMENTS_MAX: usize = 8;
/// Fewest digits of any number but an IPv4 address; a date of birth has six.
pub(super) const DIGITS_TOTAL_MIN: usize = 6;
/// Most digits of any number: a payment card of nineteen.
const DIGITS_TOTAL_MAX: usize = 19;
/// Most digits of one cluster.
const DIGITS_MAX: usize = 24;

/// Types of numbers in source code.
const TYPES: [&[u8]; 10] = [b"u8", b"u16", b"u32", b"u64", b"i32", b"i64", b"usize", b"c_ulong", b"c_int", b"Ioctl"];

/// Digits and segments of a cluster.
struct Cluster {
    digits: [u8; DIGITS_MAX],
    /// Per segment: offset and length in `digits`, offset in the text, separator before it.
    segments: [Segment; SEGMENTS_MAX],
    count: usize,
}

#[derive(Clone, Copy, Default)]
struct Segment {
    digit_at: usize,
    len: usize,
    start: usize,
    gap: Gap,
}

/// What stands between two segments.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
enum Gap {
    #[default]
    None,
    Space,
    Dash,
    Dot,
    Slash,
    /// `) ` or ` (`: brackets of an area code.
    Bracket,
}

/// Reads the cluster that begins with `token`, a run of digits only. `is_deep`: nothing but numbers and what may stand between two of
/// them is in reach of context before it.
pub(super) fn read(token: Token<'_>, is_deep: bool) -> Option<Pii> {
    if token.is_glued_before() {
        return None;
    }
    // Most numbers in prose are few digits: only a day of a written date can be that.
    if is_small(token) {
        return written_date(token);
    }
    if is_deep && is_one_of_many(token) {
        return None;
    }
    let cluster = collect(token);
    let context = Cell::new(None);
    let candidate = (1..=cluster.count).rev().find_map(|count| shape(token, &cluster, count, &context));
    candidate.or_else(|| document::digit_passport(token)).or_else(|| written_date(token))
}

fn collect(token: Token<'_>) -> Cluster {
    let text = token.text;
    let mut cluster = Cluster { digits: [0; DIGITS_MAX], segments: [Segment::default(); SEGMENTS_MAX], count: 0 };
    let (mut at, mut used, mut gap) = (token.start, 0, Gap::None);
    while cluster.count < SEGMENTS_MAX {
        let run = text.get(at..).unwrap_or_default();
        let len = run.iter().take(DIGITS_MAX + 1).take_while(|byte| byte.is_ascii_digit()).count();
        if len == 0 || used + len > DIGITS_MAX {
            break;
        }
        for (slot, byte) in cluster.digits.iter_mut().skip(used).zip(run.iter().take(len)) {
            *slot = byte - b'0';
        }
        if let Some(segment) = cluster.segments.get_mut(cluster.count) {
            *segment = Segment { digit_at: used, len, start: at, gap };
        }
        cluster.count += 1;
        used += len;
        at += len;
        let Some((next, width)) = gap_at(text, at) else { break };
        gap = next;
        at += width;
    }
    cluster
}

/// What may stand between two segments at `at`, and how long it is.
fn gap_at(text: &[u8], at: usize) -> Option<(Gap, usize)> {
    let peek = |ahead: usize| text.get(at + ahead).copied().unwrap_or(0);
    Some(match (peek(0), peek(1)) {
        (b' ', b'(') | (b')', b' ') => (Gap::Bracket, 2),
        (b')', _) | (b'(', _) => (Gap::Bracket, 1),
        (b' ', _) => (Gap::Space, 1),
        (b'-', _) => (Gap::Dash, 1),
        (b'.', _) => (Gap::Dot, 1),
        (b'/', _) => (Gap::Slash, 1),
        _ => return None,
    })
}

/// Whether the cluster that begins with a token has too few digits for any number, and too few segments for an IPv4 address.
fn is_small(token: Token<'_>) -> bool {
    let (mut at, mut total) = (token.end, token.end - token.start);
    for _ in 1..4 {
        if total >= DIGITS_TOTAL_MIN {
            return false;
        }
        let Some((_, width)) = gap_at(token.text, at) else { return true };
        let run = token.text.get(at + width..).unwrap_or_default();
        let len = run.iter().take(DIGITS_TOTAL_MIN).take_while(|byte| byte.is_ascii_digit()).count();
        if len == 0 {
            return true;
        }
        (at, total) = (at + width + len, total + len);
    }
    false
}

/// Whether a token in the midst of a row is no number of its own: codes of characters, rows of a table, bytes of a dump. Without a word
/// before it only few shapes with spaces count, and none but telephone numbers begin with a zero.
fn is_one_of_many(token: Token<'_>) -> bool {
    let text = token.text;
    let first = token.end - token.start;
    let is_plain = (1..DIGITS_TOTAL_MIN).contains(&first)
        && text.get(token.start) != Some(&b'0')
        && text.get(token.end) == Some(&b' ')
        && text.get(token.end + 1).is_some_and(u8::is_ascii_digit)
        && token.byte_before() != b'+';
    if !is_plain {
        return false;
    }
    let mut lens = [first, 0, 0, 0];
    let mut at = token.end;
    for len in lens.iter_mut().skip(1) {
        let Some((_, width)) = gap_at(text, at) else { break };
        let run = text.get(at + width..).unwrap_or_default();
        *len = run.iter().take(DIGITS_MAX + 1).take_while(|byte| byte.is_ascii_digit()).count();
        if *len == 0 {
            break;
        }
        at += width + *len;
    }
    !matches!(
        lens,
        [4, 4, 4, _] | [4, 6, 4 | 5, _] | [1, 2, 2, 2] | [3, 3, 3, 2] | [3, 2, 4, _] | [3, 3, 4, _] | [1, 3, 3, 4]
    )
}

/// The first `count` segments as personal data.
fn shape(token: Token<'_>, cluster: &Cluster, count: usize, context: &Cell<Option<Context>>) -> Option<Pii> {
    let segments = cluster.segments.get(..count)?;
    let last = segments.last()?;
    let end = last.start + last.len;
    // Fewer digits make only dotted addresses; more make nothing. Most runs of small numbers end here.
    let total = last.digit_at + last.len;
    let dotted = last.gap == Gap::Dot && count == 4;
    if total > DIGITS_TOTAL_MAX || (total < DIGITS_TOTAL_MIN && !dotted) {
        return None;
    }
    let digits = cluster.digits.get(..total)?;
    let next = token.text.get(end).copied().unwrap_or(b' ');
    let after = token.text.get(end + 1).copied().unwrap_or(b' ');
    if next.is_ascii_alphanumeric()
        || next == b'_'
        || (matches!(next, b'-' | b'.' | b'/') && after.is_ascii_alphanumeric())
    {
        return None;
    }
    // Four groups of four are one number: three of them are none.
    let goes_on = cluster.segments.get(count).is_some_and(|more| {
        count < cluster.count && count > 1 && more.len >= 4 && more.len == last.len && more.gap == last.gap
    });
    if goes_on {
        return None;
    }
    let mut lens = [0usize; SEGMENTS_MAX];
    for (slot, segment) in lens.iter_mut().zip(segments) {
        *slot = segment.len;
    }
    let lens = lens.get(..count)?;
    let gap = segments.get(1).map_or(Gap::None, |segment| segment.gap);
    let uniform = segments.iter().skip(1).all(|segment| segment.gap == gap);
    let number = Number { token, digits, lens, gap, uniform, end, context };
    let kind = number.kind()?;
    let start = match kind {
        PiiType::IntlPhone => token.start - 1,
        PiiType::PhoneNumber if token.byte_before() == b'(' => token.start - 1,
        _ => token.start,
    };
    Some(Pii { kind, start, end })
}

struct Number<'a> {
    token: Token<'a>,
    digits: &'a [u8],
    lens: &'a [usize],
    gap: Gap,
    uniform: bool,
    end: usize,
    /// Read once per cluster, and only if a shape asks.
    context: &'a Cell<Option<Context>>,
}

/// A bit for each number of groups that a shape may have, up to [`SEGMENTS_MAX`].
const fn groups(counts: &[usize]) -> u8 {
    let (mut bits, mut at) = (0, 0);
    while at < counts.len() {
        bits |= 1 << (counts[at] - 1);
        at += 1;
    }
    bits
}

/// Whether a number has the shape of one type.
type Check<'a> = fn(&Number<'a>) -> bool;

impl<'a> Number<'a> {
    fn kind(&self) -> Option<PiiType> {
        if self.token.byte_before() == b'+' {
            return self.is_intl_phone().then_some(PiiType::IntlPhone);
        }
        let checks: [(u8, PiiType, Check<'a>); 16] = [
            (groups(&[1, 3, 4, 5]), PiiType::CreditCard, Self::is_card),
            (groups(&[1, 2, 7]), PiiType::FrNir, Self::is_nir),
            (groups(&[1, 4]), PiiType::BrCpf, Self::is_cpf),
            (groups(&[1, 3]), PiiType::InAadhaar, Self::is_aadhaar),
            (groups(&[1, 3]), PiiType::Ssn, Self::is_ssn),
            (groups(&[1, 3]), PiiType::NhsNumber, Self::is_nhs),
            (groups(&[1, 3]), PiiType::CanadianSin, Self::is_sin),
            (groups(&[1, 3]), PiiType::AustralianTfn, Self::is_tfn),
            (groups(&[1]), PiiType::CnResidentId, Self::is_resident_id),
            (groups(&[2]), PiiType::KrRrn, Self::is_rrn),
            (groups(&[1]), PiiType::PlPesel, Self::is_pesel),
            (groups(&[1, 3]), PiiType::NlBsn, Self::is_bsn),
            (groups(&[1]), PiiType::TrIdentity, Self::is_tckn),
            (groups(&[4]), PiiType::IpAddress, Self::is_ip_v4),
            (groups(&[3]), PiiType::DateOfBirth, Self::is_birth_date),
            (u8::MAX, PiiType::PhoneNumber, Self::is_phone),
        ];
        // Rows of small numbers are long, and each of them begins one.
        let own = groups(&[self.lens.len()]);
        checks.iter().find(|(fits, _, check)| fits & own != 0 && check(self)).map(|(_, kind, _)| *kind)
    }

    fn follows(&self, topic: Topic) -> bool {
        let context = self.context.get().unwrap_or_else(|| Context::before(self.token.text, self.token.start));
        self.context.set(Some(context));
        context.names(topic)
    }

    fn is_spaced(&self) -> bool {
        self.uniform && matches!(self.gap, Gap::None | Gap::Space | Gap::Dash)
    }

    fn is_card(&self) -> bool {
        let lens = matches!(self.lens, [13..=19] | [4, 4, 4, 4] | [4, 6, 5] | [4, 4, 4, 4, 3] | [4, 6, 4]);
        let value = |count: usize| self.digits.iter().take(count).fold(0u32, |v, digit| v * 10 + u32::from(*digit));
        let issuer = match self.digits.len() {
            // The number of an article has as many digits, and no card has been given out with so few for long.
            13 => value(1) == 4 && !checks::ean(self.digits),
            14 => matches!(value(2), 36 | 38 | 39) || (300..=305).contains(&value(3)),
            15 => matches!(value(2), 34 | 37),
            16 => {
                value(1) == 4
                    || (51..=55).contains(&value(2))
                    || (2221..=2720).contains(&value(4))
                    || value(2) == 65
                    || matches!(value(2), 35 | 62)
                    || value(4) == 6011
                    || (644..=649).contains(&value(3))
            }
            17..=19 => value(1) == 4 && self.digits.len() == 19 || value(2) == 62,
            _ => false,
        };
        lens && self.is_spaced() && issuer && checks::luhn(self.digits)
    }

    fn is_nir(&self) -> bool {
        matches!(self.lens, [15] | [13, 2] | [1, 2, 2, 2, 3, 3, 2]) && self.is_spaced() && checks::nir(self.digits)
    }

    fn is_cpf(&self) -> bool {
        let written = self.lens == [3, 3, 3, 2] && matches!(self.gap, Gap::Dot | Gap::Space);
        let plain = self.lens == [11] && self.follows(Topic::Cpf);
        (written || plain) && checks::cpf(self.digits)
    }

    fn is_aadhaar(&self) -> bool {
        let shape = match self.lens {
            [4, 4, 4] => self.is_spaced() && !self.continues_digits(),
            [12] => self.follows(Topic::Aadhaar),
            _ => false,
        };
        shape && self.digits.first().is_some_and(|digit| *digit >= 2) && checks::verhoeff(self.digits)
    }

    /// Whether a group of digits stands right before, so that this is the tail of a longer number.
    fn continues_digits(&self) -> bool {
        let before = self.token.text.get(..self.token.start).unwrap_or_default();
        matches!(before, [.., b'0'..=b'9', b' ' | b'-'])
    }

    fn is_ssn(&self) -> bool {
        let shape = match self.lens {
            [3, 2, 4] => self.uniform && matches!(self.gap, Gap::Dash | Gap::Space),
            [9] => self.follows(Topic::Ssn),
            _ => false,
        };
        let value = |from: usize, to: usize| {
            self.digits.get(from..to).unwrap_or_default().iter().fold(0u32, |v, digit| v * 10 + u32::from(*digit))
        };
        let (area, group, serial) = (value(0, 3), value(3, 5), value(5, 9));
        shape && area != 0 && area != 666 && area < 900 && group != 0 && serial != 0
    }

    fn is_nhs(&self) -> bool {
        matches!(self.lens, [10] | [3, 3, 4])
            && self.is_spaced()
            && self.follows(Topic::Nhs)
            && checks::nhs(self.digits)
    }

    fn is_sin(&self) -> bool {
        matches!(self.lens, [9] | [3, 3, 3])
            && self.is_spaced()
            && self.follows(Topic::Sin)
            && checks::luhn(self.digits)
    }

    fn is_tfn(&self) -> bool {
        matches!(self.lens, [9] | [3, 3, 3]) && self.is_spaced() && self.follows(Topic::Tfn) && checks::tfn(self.digits)
    }

    fn is_resident_id(&self) -> bool {
        self.lens == [18] && checks::resident_id(self.token.bytes())
    }

    fn is_rrn(&self) -> bool {
        self.lens == [6, 7] && self.gap == Gap::Dash && checks::rrn(self.digits)
    }

    fn is_pesel(&self) -> bool {
        self.lens == [11] && self.follows(Topic::Pesel) && checks::pesel(self.digits)
    }

    fn is_bsn(&self) -> bool {
        matches!(self.lens, [9] | [4, 2, 3] | [3, 3, 3]) && self.follows(Topic::Bsn) && checks::bsn(self.digits)
    }

    fn is_tckn(&self) -> bool {
        self.lens == [11] && self.follows(Topic::Tckn) && checks::tckn(self.digits)
    }

    fn is_ip_v4(&self) -> bool {
        let octet = |from: usize, len: usize| {
            // More digits would not fit the number.
            if len > 3 {
                return None;
            }
            let digits = self.digits.get(from..from + len).unwrap_or_default();
            let value = digits.iter().fold(0u32, |v, digit| v * 10 + u32::from(*digit));
            (value <= 255 && (len == 1 || digits.first() != Some(&0))).then_some(value)
        };
        let [a, b, c, d] = *self.lens else { return false };
        let octets = (octet(0, a), octet(a, b), octet(a + b, c), octet(a + b + c, d));
        let (Some(first), Some(second), Some(third), Some(fourth)) = octets else { return false };
        let dotted = self.uniform && self.gap == Gap::Dot;
        // Numbers of sections and object identifiers (`2.5.29.17`) look like this, too; resolvers have four equal ones, private networks
        // begin with 10.
        let is_object = first <= 2 && second < 40;
        let is_section = first != 10 && [first, second, third, fourth].iter().all(|octet| *octet < 40);
        let is_small = is_object || is_section;
        if is_small && [second, third, fourth] != [first; 3] && !self.follows(Topic::Host) {
            return false;
        }
        dotted && !matches!(first, 0 | 255) && self.digits != [1, 2, 7, 0, 0, 1] && !self.follows(Topic::Version)
    }

    fn is_birth_date(&self) -> bool {
        let part = |from: usize, len: usize| {
            self.digits
                .get(from..from + len)
                .unwrap_or_default()
                .iter()
                .fold(0u32, |v, digit| v * 10 + u32::from(*digit))
        };
        let dated = match *self.lens {
            [4, m, d] if m <= 2 && d <= 2 => is_date(part(0, 4), part(4, m), part(4 + m, d)),
            [d, m, 4] if m <= 2 && d <= 2 => {
                let (day, month, year) = (part(0, d), part(d, m), part(d + m, 4));
                is_date(year, month, day) || is_date(year, day, month)
            }
            _ => false,
        };
        dated && self.uniform && matches!(self.gap, Gap::Dash | Gap::Slash | Gap::Dot) && self.follows(Topic::Birth)
    }

    fn is_intl_phone(&self) -> bool {
        let decimal = self.gap == Gap::Dot && self.lens.len() == 2;
        (8..=15).contains(&self.digits.len()) && !decimal && self.digits.first() != Some(&0)
    }

    fn is_phone(&self) -> bool {
        let digit = |at: usize| self.digits.get(at).copied().unwrap_or(0);
        let area = |at: usize| (2..=9).contains(&digit(at)) && !(digit(at + 1) == 1 && digit(at + 2) == 1);
        let phone_gap = matches!(self.gap, Gap::Space | Gap::Dash | Gap::Dot | Gap::Bracket);
        let american = match self.lens {
            [3, 3, 4] => phone_gap && area(0) && (2..=9).contains(&digit(3)),
            [1, 3, 3, 4] => digit(0) == 1 && area(1) && (2..=9).contains(&digit(4)),
            _ => false,
        };
        let trunk = digit(0) == 0
            && self.lens != [3, 2, 4]
            && !self.follows_a_time()
            && (self.lens != [5, 4] || self.follows(Topic::Phone))
            && (9..=11).contains(&self.digits.len())
            && self.lens.len() >= 2
            && self.lens.first().is_some_and(|len| *len >= 2)
            && (matches!(self.gap, Gap::Space | Gap::Dash | Gap::Bracket | Gap::Slash) || self.lens == [2; 5]);
        let international = self.digits.starts_with(&[0, 0])
            && digit(2) != 0
            && (11..=16).contains(&self.digits.len())
            && self.lens.len() >= 2
            && self.lens.first() != Some(&1);
        let named = (7..=15).contains(&self.digits.len())
            && !(self.gap == Gap::Dot && matches!(self.lens.len(), 2 | 4))
            && !matches!(self.lens, [4, 1..=2, 1..=2] | [1..=2, 1..=2, 4] | [3, 2, 4])
            && (self.lens.len() > 1 || (self.digits.len() <= 12 && !self.is_typed_constant()))
            && self.follows(Topic::Phone)
            && self.token.text.get(self.end) != Some(&b'%');
        if !(american || trunk || international || named) {
            return false;
        }
        // A dot after the first zero makes a fraction; nobody's number is round, unless it is called one.
        let fraction = self.gap == Gap::Dot && self.lens.first() == Some(&1) && digit(0) == 0;
        let is_no_phone = self.is_round() || self.is_characters() || self.is_a_row_of_bytes();
        !fraction && !self.ends_with_a_date() && (!is_no_phone || self.follows(Topic::Phone))
    }

    /// `0020 0308 0301`: characters by their numbers. Behind the code of a country nobody dials a zero.
    fn is_characters(&self) -> bool {
        self.lens.len() > 2
            && self.lens.iter().all(|len| *len == 4)
            && self.digits.starts_with(&[0, 0])
            && self.digits.chunks_exact(4).skip(1).any(|group| group.first() == Some(&0))
    }

    /// `00 55 44 77 66 88`: nobody writes all of a number in twos with the code of a country before it.
    fn is_a_row_of_bytes(&self) -> bool {
        self.lens.len() >= 5 && self.lens.iter().all(|len| *len == 2) && self.digits.starts_with(&[0, 0])
    }

    /// `1.6.1 (2022-12-09`: a version, and when it was published.
    fn ends_with_a_date(&self) -> bool {
        let ([_, .., 4, 2, 2], Some((_, date))) = (self.lens, self.digits.split_last_chunk::<8>()) else {
            return false;
        };
        let value = |digits: &[u8]| digits.iter().fold(0u32, |value, digit| value * 10 + u32::from(*digit));
        let [year, month, day] = [&date[..4], &date[4..6], &date[6..]].map(value);
        is_date(year, month, day)
    }

    /// Six equal digits in a row, as in dumps, maps and counters.
    fn is_round(&self) -> bool {
        self.digits.array_windows::<6>().any(|run| run.iter().all(|digit| *digit == run[0]))
    }

    /// `08:01 60662705`: what stands before it is a time, or the number of a device.
    fn follows_a_time(&self) -> bool {
        let before = self.token.text.get(..self.token.start).unwrap_or_default();
        matches!(before, [.., b'0'..=b'9', b':'])
    }

    /// `CALL: u32 = 1074310945`: a number of that type and no text.
    fn is_typed_constant(&self) -> bool {
        let before = self.token.text.get(..self.token.start).unwrap_or_default().trim_ascii_end();
        let Some(name) = before.strip_suffix(b"=").map(<[u8]>::trim_ascii_end) else { return false };
        TYPES.iter().any(|known| name.strip_suffix(*known).is_some_and(|rest| matches!(rest, [.., b' ' | b':'])))
    }
}

fn is_date(year: u32, month: u32, day: u32) -> bool {
    (1900..=2030).contains(&year) && (1..=12).contains(&month) && (1..=31).contains(&day)
}

/// `9 March 1975` and `March 9, 1975` after a word about birth, entered at the day.
fn written_date(token: Token<'_>) -> Option<Pii> {
    let text = token.text;
    if token.end - token.start > 2 {
        return None;
    }
    let date = day_first(token).or_else(|| month_first(token))?;
    Context::before(text, date.start).names(Topic::Birth).then_some(date)
}

/// One past the last letter of the month name at `at`.
pub(super) fn month_at(text: &[u8], at: usize) -> Option<usize> {
    let word = text.get(at..)?;
    let name = word.first_chunk::<3>()?.map(|byte| byte.to_ascii_lowercase());
    let is_month = matches!(
        &name,
        b"jan" | b"feb" | b"mar" | b"apr" | b"may" | b"jun" | b"jul" | b"aug" | b"sep" | b"oct" | b"nov" | b"dec"
    );
    is_month.then(|| at + word.iter().take(10).take_while(|byte| byte.is_ascii_alphabetic()).count())
}

/// One past the year at `at`.
fn year_end(text: &[u8], at: usize) -> Option<usize> {
    let year = text.get(at..at + 4)?;
    let valid = matches!(year, [b'1', b'9', ..] | [b'2', b'0', ..]) && year.iter().all(u8::is_ascii_digit);
    (valid && !text.get(at + 4).is_some_and(u8::is_ascii_alphanumeric)).then_some(at + 4)
}

fn day_first(token: Token<'_>) -> Option<Pii> {
    let month = month_at(token.text, token.end + 1)?;
    let end = year_end(token.text, month + 1)?;
    Some(Pii { kind: PiiType::DateOfBirth, start: token.start, end })
}

fn month_first(token: Token<'_>) -> Option<Pii> {
    let text = token.text;
    let skip = if text.get(token.end) == Some(&b',') { 2 } else { 1 };
    let end = year_end(text, token.end + skip)?;
    let before = text.get(..token.start.checked_sub(1)?)?;
    let letters = before.iter().rev().take(10).take_while(|byte| byte.is_ascii_alphabetic()).count();
    let start = before.len() - letters;
    month_at(text, start)?;
    (start >= token.floor).then_some(Pii { kind: PiiType::DateOfBirth, start, end })
}
