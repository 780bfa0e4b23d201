//! Amounts of money as whole nanodollars: sums of bills are exact.

/// Nanodollars of a dollar, as digits behind the point.
const DIGITS: u32 = 9;
/// Digits in front of the point: more than any bill has.
const WHOLE_MAX: usize = 15;

/// A decimal number (`12.34`, `-0.5`, `1e-7`, `$1,234.5`) of a unit that has 10^`smaller` in a dollar; what is finer than a nanodollar is
/// rounded. `None` for anything else.
pub(super) fn nano_usd(text: &str, smaller: u32) -> Option<i128> {
    let text = text.trim().trim_start_matches('$').trim();
    if text.contains(['e', 'E']) {
        let number = text.parse::<f64>().ok().filter(|number| number.abs() < 1e12)?;
        return Some((number * 10_f64.powi(DIGITS as i32 - smaller as i32)).round() as i128);
    }
    let (is_negative, digits) = match text.strip_prefix('-') {
        Some(rest) => (true, rest.trim_start_matches('$')),
        None => (false, text),
    };
    let (whole, part) = digits.split_once('.').unwrap_or((digits, ""));
    let whole = whole.replace(',', "");
    let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if whole.len() > WHOLE_MAX || (whole.is_empty() && part.is_empty()) || !is_number(&whole) || !is_number(part) {
        return None;
    }
    let places = (DIGITS - smaller) as usize;
    let kept: String = part.chars().chain(std::iter::repeat('0')).take(places).collect();
    let up = part.as_bytes().get(places).is_some_and(|digit| *digit >= b'5');
    let nano = format!("{whole}{kept}").parse::<i128>().ok()? + i128::from(up);
    Some(if is_negative { -nano } else { nano })
}

/// As people read it.
pub(super) fn shown(nano: i128) -> String {
    let sign = if nano < 0 { "-" } else { "" };
    let micro = (nano.unsigned_abs() + 500) / 1_000;
    format!("{sign}{}.{:06}", micro / 1_000_000, micro % 1_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_exact() {
        let read =
            ["0.06", "1", "-2.5", "$1,234.000000001", "0.0000000005", "1e-7", ".5"].map(|text| nano_usd(text, 0));
        let nano = [60_000_000, 1_000_000_000, -2_500_000_000, 1_234_000_000_001, 1, 100, 500_000_000];
        assert_eq!(read, nano.map(Some));
        assert_eq!(nano_usd("123.78912", 2), Some(1_237_891_200));
        assert_eq!(["", ".", "x", "1.2.3", "1e99", "99999999999999999999"].map(|text| nano_usd(text, 0)), [None; 6]);
        assert_eq!((shown(1_234_567_890), shown(-500)), ("1.234568".to_owned(), "-0.000001".to_owned()));
    }
}
