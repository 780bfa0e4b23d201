//! Times and lengths as people write them.

use std::net::SocketAddr;
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

/// A share of all: `0.05` or `5%`.
pub(crate) fn parse_share(text: &str) -> Result<f64, String> {
    let (number, unit) = text.strip_suffix('%').map_or((text, 1.0), |percent| (percent, 0.01));
    let share = number.trim().parse::<f64>().ok().map(|number| number * unit);
    share
        .filter(|share| (0.0..=1.0).contains(share))
        .ok_or_else(|| "accepted is a share of 0 to 1, or 0% to 100%".to_owned())
}

/// A length as an argument: as [`parse_bytes`] reads it, within these bounds.
pub(crate) fn parse_bytes_within(text: &str, least: u32, most: u32) -> Result<u32, String> {
    let bytes = parse_bytes(text)?;
    let fits = u32::try_from(bytes).ok().filter(|bytes| (least..=most).contains(bytes));
    fits.ok_or_else(|| format!("accepted are {least} to {most} bytes"))
}

/// Where to listen: `127.0.0.1:9000`, `localhost:9000`, or a port alone, which is one of this machine's loopback address.
pub(crate) fn parse_listen(text: &str) -> Result<SocketAddr, String> {
    let local = |port: &str| port.parse::<u16>().ok().map(|port| SocketAddr::from(([127, 0, 0, 1], port)));
    let found = text.parse().ok().or_else(|| local(text.strip_prefix("localhost:").unwrap_or(text)));
    found.ok_or_else(|| "accepted is ADDRESS:PORT, as in 127.0.0.1:9000, or a port alone".to_owned())
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
        assert_eq!((parse_share("10%"), parse_share("0.1"), parse_share("10").is_err()), (Ok(0.1), Ok(0.1), true));
        let listen = |text: &str| parse_listen(text).map(|addr| addr.to_string());
        for text in ["127.0.0.1:9390", "localhost:9390", "9390"] {
            assert_eq!(listen(text), Ok("127.0.0.1:9390".to_owned()), "{text}");
        }
        assert!(listen("nowhere").unwrap_err().contains("accepted is ADDRESS:PORT"));
        assert_eq!(parse_bytes_within("1KB", 256, 4096), Ok(1024));
        assert_eq!(parse_bytes_within("1 MB", 256, 4096), Err("accepted are 256 to 4096 bytes".to_owned()));
        assert!(parse_bytes("4 XB").is_err() && parse_bytes("KB").is_err() && parse_duration("5").is_err());
    }
}
