//! Times and lengths as people write them.

use std::time::Duration;

/// `10s`, `500ms`, `2m`, `1h`.
pub(crate) fn parse_duration(text: &str) -> Result<Duration, String> {
    let split = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let unit_ms = match unit.trim() {
        "ms" => Some(1),
        "s" => Some(1000),
        "m" => Some(60_000),
        "h" => Some(3_600_000),
        _ => None,
    };
    let parsed = number.parse::<u64>().ok().zip(unit_ms).and_then(|(number, unit_ms)| number.checked_mul(unit_ms));
    parsed.map(Duration::from_millis).ok_or_else(|| "accepted is a number with ms, s, m or h, as in 10s".to_owned())
}

/// `300`, `4 KB`, `1MB`: with 1,024 to the KB.
pub(crate) fn parse_bytes(text: &str) -> Result<u64, String> {
    let split = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let factor = match unit.trim() {
        "" => Some(1.0),
        "KB" => Some(1024.0),
        "MB" => Some(1024.0 * 1024.0),
        _ => None,
    };
    let parsed = number.parse::<f64>().ok().zip(factor).map(|(number, factor)| number * factor);
    let fits = parsed.filter(|bytes| (0.0..1e12).contains(bytes));
    fits.map(|bytes| bytes as u64)
        .ok_or_else(|| "accepted is a number of bytes, or one with KB or MB, as in 4 KB".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_lengths_are_read_as_people_write_them() {
        assert_eq!((parse_bytes("300"), parse_bytes("0.5 KB"), parse_bytes("1MB")), (Ok(300), Ok(512), Ok(1 << 20)));
        assert_eq!(
            (parse_duration("1500ms"), parse_duration("2m")),
            (Ok(Duration::from_millis(1500)), Ok(Duration::from_secs(120)))
        );
        assert!(parse_bytes("4 XB").is_err() && parse_bytes("KB").is_err() && parse_duration("5").is_err());
    }
}
