//! Edits of a request body before it is forwarded: splices into the original bytes, so that what is not rewritten stays
//! byte-identical. Pure: bytes and offsets in, bytes out.

mod advisory;

pub use advisory::advisory_message;

use bytes::{Bytes, BytesMut};

/// `body` with `inserted` put in at byte `at`.
pub fn insert(body: &Bytes, at: usize, inserted: &[u8]) -> Bytes {
    let at = at.min(body.len());
    let mut out = BytesMut::with_capacity(body.len() + inserted.len());
    out.extend_from_slice(body.get(..at).unwrap_or_default());
    out.extend_from_slice(inserted);
    out.extend_from_slice(body.get(at..).unwrap_or_default());
    out.freeze()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_every_other_byte() {
        let body = Bytes::from_static(b"{ \"messages\" : [ {} ] }");
        let at = 16;
        let out = insert(&body, at, b"X,");
        assert_eq!(&out[..], b"{ \"messages\" : [X, {} ] }");
    }
}
