//! What web pages of listed origins are told (the Fetch standard, "CORS protocol"): that they may ask, and that they may read.
//!
//! Credentials a browser keeps are never part of it: there are none of ours.

use bytes::{BufMut, Bytes};

use crate::wire::HeadWriter;

/// Lets a page of this origin read the answer whose head is being written.
pub(crate) fn let_read(writer: &mut HeadWriter<'_, impl BufMut>, page: Option<&Bytes>) {
    let Some(origin) = page else { return };
    writer.field("Access-Control-Allow-Origin", origin);
    writer.field("Access-Control-Expose-Headers", b"*");
    writer.field("Vary", b"Origin");
}
