//! Wall-clock instants: microseconds since the Unix epoch, shown as RFC 3339 UTC with microseconds and `Z`.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;
use std::time::{SystemTime, UNIX_EPOCH};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// A point in time in microseconds since 1970-01-01T00:00:00Z.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(i64);

/// Latest instant RFC 3339 can show (year 9999), so that formatting never fails.
const MICROS_MAX: i64 = 253_402_300_799_999_999;

impl Timestamp {
    /// Now, by the machine's wall clock.
    pub fn now() -> Self {
        let micros = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros());
        Self(i64::try_from(micros).unwrap_or(MICROS_MAX).min(MICROS_MAX))
    }

    /// From microseconds since the epoch; clamped to years 1970 to 9999.
    pub const fn from_micros(micros: i64) -> Self {
        Self(if micros < 0 {
            0
        } else if micros > MICROS_MAX {
            MICROS_MAX
        } else {
            micros
        })
    }

    /// Microseconds since the epoch.
    pub const fn micros(self) -> i64 {
        self.0
    }
}

impl JsonSchema for Timestamp {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Timestamp".into()
    }

    fn json_schema(_generator: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "format": "date-time" })
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = OffsetDateTime::from_unix_timestamp_nanos(i128::from(self.0) * 1_000).map_err(|_| fmt::Error)?;
        write!(
            f,
            "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:06}Z",
            at.year(),
            u8::from(at.month()),
            at.day(),
            at.hour(),
            at.minute(),
            at.second(),
            at.microsecond()
        )
    }
}

impl fmt::Debug for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A text that is not an RFC 3339 instant.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not an RFC 3339 time such as 2026-01-31T12:00:00Z")]
pub struct InvalidTimestamp(pub String);

impl FromStr for Timestamp {
    type Err = InvalidTimestamp;

    fn from_str(text: &str) -> Result<Self, InvalidTimestamp> {
        let at = OffsetDateTime::parse(text, &Rfc3339).map_err(|_| InvalidTimestamp(text.to_owned()))?;
        let micros = i64::try_from(at.unix_timestamp_nanos() / 1_000).unwrap_or(MICROS_MAX);
        Ok(Self::from_micros(micros))
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shows_microseconds_and_z() {
        assert_eq!(Timestamp::from_micros(1_700_000_000_000_001).to_string(), "2023-11-14T22:13:20.000001Z");
    }

    #[test]
    fn reads_offsets_and_keeps_the_instant() {
        let at: Timestamp = "2023-11-14T23:13:20.5+01:00".parse().unwrap();
        assert_eq!(at.micros(), 1_700_000_000_500_000);
        assert!("yesterday".parse::<Timestamp>().is_err());
    }
}
