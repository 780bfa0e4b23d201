//! When a certificate is valid (RFC 5280 section 4.1.2.5), read from its DER form.
//!
//! Invariant: any bytes give an answer or `None`, never a panic. Knows no more of X.509 than the way to two dates; trust is
//! the clients' business.

use time::OffsetDateTime;
use time::format_description::BorrowedFormatItem;
use time::macros::format_description;

/// From when to when.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Validity {
    pub(super) not_before: OffsetDateTime,
    pub(super) not_after: OffsetDateTime,
}

const SEQUENCE: u8 = 0x30;
const VERSION: u8 = 0xa0;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;

/// The validity a certificate states; `None` when it is not readable.
pub(super) fn of(certificate: &[u8]) -> Option<Validity> {
    let (outer, _) = expect(certificate, SEQUENCE)?;
    let (mut fields, _) = expect(outer, SEQUENCE)?;
    if fields.first() == Some(&VERSION) {
        fields = element(fields)?.2;
    }
    // Serial number, signature algorithm, issuer.
    for _ in 0..3 {
        fields = element(fields)?.2;
    }
    let (dates, _) = expect(fields, SEQUENCE)?;
    let (not_before, rest) = date(dates)?;
    let (not_after, _) = date(rest)?;
    Some(Validity { not_before, not_after })
}

/// The first element: its tag, its content and what follows.
fn element(der: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (tag, rest) = der.split_first()?;
    let (first, rest) = rest.split_first()?;
    let (length, rest) = match first {
        0..=0x7f => (usize::from(*first), rest),
        // The length's own length; more than four bytes is no certificate.
        0x81..=0x84 => {
            let (bytes, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
            (bytes.iter().fold(0, |length, byte| length << 8 | usize::from(*byte)), rest)
        }
        _ => return None,
    };
    let (content, rest) = rest.split_at_checked(length)?;
    Some((*tag, content, rest))
}

fn expect(der: &[u8], wanted: u8) -> Option<(&[u8], &[u8])> {
    element(der).filter(|(tag, ..)| *tag == wanted).map(|(_, content, rest)| (content, rest))
}

fn date(der: &[u8]) -> Option<(OffsetDateTime, &[u8])> {
    const FORMAT: &[BorrowedFormatItem<'_>] = format_description!("[year][month][day][hour][minute][second]Z");
    let (tag, content, rest) = element(der)?;
    let text = std::str::from_utf8(content).ok()?;
    let text = match tag {
        GENERALIZED_TIME => text.to_owned(),
        // Two digits of a year between 1950 and 2049.
        UTC_TIME => format!("{}{text}", if text.get(..2)?.parse::<u8>().ok()? < 50 { "20" } else { "19" }),
        _ => return None,
    };
    let at = time::PrimitiveDateTime::parse(&text, FORMAT).ok()?;
    Some((at.assume_utc(), rest))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rustls::pki_types::CertificateDer;
    use rustls::pki_types::pem::PemObject as _;
    use time::macros::datetime;

    use super::*;

    fn shipped() -> Vec<u8> {
        let pem = include_bytes!("../../../tests/it/data/server.pem");
        CertificateDer::from_pem_slice(pem).unwrap().to_vec()
    }

    #[test]
    fn both_forms_of_a_date_are_read() {
        // This certificate begins in a UTCTime and ends in a GeneralizedTime.
        let valid = of(&shipped()).unwrap();
        assert_eq!(valid.not_before, datetime!(2026-11-21 10:00:49 UTC));
        assert_eq!(valid.not_after, datetime!(2126-10-28 10:00:49 UTC));
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(at in 0..400_usize, byte: u8, cut in 0..500_usize) {
            let mut der = shipped();
            if let Some(place) = der.get_mut(at) {
                *place = byte;
            }
            der.truncate(cut);
            // Any answer will do.
            let _read = of(&der).is_some();
        }
    }
}
