//! Decoding within bounds: how many elements a message holds is counted on its bytes before any of them becomes a value.
//!
//! An empty element takes two bytes on the wire and hundreds in memory, so that a bound on bytes alone would be none. Invariants:
//! one pass over the bytes, nesting is bounded, nothing is allocated.

use bytes::Buf;
use prost::Message;
use tonic::codec::{Codec, DecodeBuf, Decoder};
use tonic::{Code, Status};
use tonic_prost::{ProstCodec, ProstEncoder};

use crate::v1::ExportRequest;

/// Spans one batch may hold.
pub const SPANS_MAX: usize = 10_000;
/// Elements a batch may hold in all: spans, messages, parts, values, events, actions, entries of maps.
pub const ELEMENTS_MAX: usize = 200_000;
/// How deep values may lie in one another; what decodes goes no deeper than 100 messages in all.
const DEPTH_MAX: usize = 64;

/// Reads and writes messages as [`ProstCodec`] does, and reads none that holds more than the bounds.
#[derive(Debug, Clone)]
pub struct BoundedCodec<T, U>(ProstCodec<T, U>);

impl<T, U> Default for BoundedCodec<T, U> {
    fn default() -> Self {
        Self(ProstCodec::default())
    }
}

/// Reads batches within the bounds.
#[derive(Debug, Clone)]
pub struct BoundedDecoder<D>(D);

impl<T, U> Codec for BoundedCodec<T, U>
where
    T: Message + Send + 'static,
    U: Message + Default + Send + 'static,
{
    type Encode = T;
    type Decode = U;
    type Encoder = ProstEncoder<T>;
    type Decoder = BoundedDecoder<<ProstCodec<T, U> as Codec>::Decoder>;

    fn encoder(&mut self) -> Self::Encoder {
        self.0.encoder()
    }

    fn decoder(&mut self) -> Self::Decoder {
        BoundedDecoder(self.0.decoder())
    }
}

impl<D: Decoder<Error = Status>> Decoder for BoundedDecoder<D> {
    type Item = D::Item;
    type Error = Status;

    fn decode(&mut self, src: &mut DecodeBuf<'_>) -> Result<Option<Self::Item>, Status> {
        // The bytes of a message lie together.
        let bytes = src.chunk().get(..src.remaining()).unwrap_or_default();
        check(bytes)?;
        self.0.decode(src).map_err(|status| match status.code() {
            Code::Internal => {
                Status::invalid_argument(format!("the message is not an ExportRequest: {}", status.message()))
            }
            _ => status,
        })
    }
}

/// The batch that these bytes are.
///
/// # Errors
/// See [`check`].
pub fn read(batch: &[u8]) -> Result<ExportRequest, Status> {
    check(batch)?;
    ExportRequest::decode(batch)
        .map_err(|error| Status::invalid_argument(format!("the message is not an ExportRequest: {error}")))
}

/// Whether `batch`, the bytes of an `ExportRequest`, is well-formed as far as it is counted, and within the bounds.
///
/// # Errors
/// `INVALID_ARGUMENT` for bytes that are no message, `RESOURCE_EXHAUSTED` beyond a bound; the text says which.
pub fn check(batch: &[u8]) -> Result<(), Status> {
    let mut counted = Counted::default();
    count(batch, Kind::Request, 0, &mut counted).map_err(|fault| match fault {
        BatchError::Malformed => Status::invalid_argument("the message is not an ExportRequest: it is truncated or no protobuf"),
        BatchError::Deep => Status::invalid_argument(format!(
            "spans.attributes: values lie more than {DEPTH_MAX} deep in one another; send flatter ones"
        )),
        BatchError::Spans => {
            Status::resource_exhausted(format!("spans: a batch holds at most {SPANS_MAX}; send several batches"))
        }
        BatchError::Elements => Status::resource_exhausted(format!(
            "spans: a batch holds at most {ELEMENTS_MAX} elements (messages, parts, attributes, events, actions) in all; send \
             several batches"
        )),
    })
}

#[derive(Debug, Default)]
struct Counted {
    spans: usize,
    elements: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BatchError {
    Malformed,
    Deep,
    Spans,
    Elements,
}

/// The messages that hold others, and those that hold none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Request,
    Span,
    Message,
    Part,
    AttributeEntry,
    Value,
    Values,
    MapValue,
    WithTexts,
    Leaf,
}

impl Kind {
    /// What a length-delimited field holds, if that is a message.
    fn within(self, field: u64) -> Option<Self> {
        Some(match (self, field) {
            (Self::Request, 1) => Self::Span,
            (Self::Span, 13 | 14) => Self::Message,
            (Self::Span, 15) => Self::Leaf,
            (Self::Span, 21) | (Self::MapValue, 1) => Self::AttributeEntry,
            (Self::Span, 22 | 23) => Self::WithTexts,
            (Self::Message, 2) => Self::Part,
            (Self::Part, 4..=6) => Self::Leaf,
            (Self::AttributeEntry, 2) | (Self::Values, 1) => Self::Value,
            (Self::Value, 5) => Self::Values,
            (Self::Value, 6) => Self::MapValue,
            (Self::WithTexts, 4 | 11) => Self::Leaf,
            _ => return None,
        })
    }
}

fn count(mut bytes: &[u8], kind: Kind, depth: usize, counted: &mut Counted) -> Result<(), BatchError> {
    if depth > DEPTH_MAX {
        return Err(BatchError::Deep);
    }
    while !bytes.is_empty() {
        let key = varint(&mut bytes)?;
        let skipped = match key & 7 {
            0 => varint(&mut bytes).map(|_| 0)?,
            1 => 8,
            5 => 4,
            2 => usize::try_from(varint(&mut bytes)?).map_err(|_| BatchError::Malformed)?,
            // Groups are no part of proto3.
            _ => return Err(BatchError::Malformed),
        };
        let (held, rest) = bytes.split_at_checked(skipped).ok_or(BatchError::Malformed)?;
        bytes = rest;
        let Some(within) = kind.within(key >> 3).filter(|_| key & 7 == 2) else { continue };
        counted.elements += 1;
        counted.spans += usize::from(within == Kind::Span);
        if counted.spans > SPANS_MAX {
            return Err(BatchError::Spans);
        }
        if counted.elements > ELEMENTS_MAX {
            return Err(BatchError::Elements);
        }
        if within != Kind::Leaf {
            count(held, within, depth + 1, counted)?;
        }
    }
    Ok(())
}

/// A number of at most ten bytes, seven bits each.
fn varint(bytes: &mut &[u8]) -> Result<u64, BatchError> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (first, rest) = bytes.split_first().ok_or(BatchError::Malformed)?;
        *bytes = rest;
        value |= u64::from(first & 0x7f) << shift;
        if *first < 0x80 {
            return Ok(value);
        }
    }
    Err(BatchError::Malformed)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // Tests fail by panicking.

    use proptest::prelude::*;

    use super::*;
    use crate::v1::{Event, ExportRequest, ListValue, Message as Said, Part, Span, Value, part, value};

    fn batch(spans: usize, messages: usize) -> Vec<u8> {
        let part = Part { content: Some(part::Content::Text("hello".to_owned())) };
        let said = Said { role: "user".to_owned(), parts: vec![part] };
        let span = Span { input: vec![said; messages], events: vec![Event::default()], ..Span::default() };
        ExportRequest { spans: vec![span; spans] }.encode_to_vec()
    }

    fn nested(depth: usize) -> Vec<u8> {
        let mut value = Value { kind: Some(value::Kind::BoolValue(true)) };
        for _ in 0..depth {
            value = Value { kind: Some(value::Kind::ListValue(ListValue { values: vec![value] })) };
        }
        let span = Span { attributes: [("a".to_owned(), value)].into(), ..Span::default() };
        ExportRequest { spans: vec![span] }.encode_to_vec()
    }

    #[test]
    fn what_is_within_the_bounds_passes_and_the_next_one_does_not() {
        assert!(check(&batch(SPANS_MAX, 1)).is_ok());
        let too_many = check(&batch(SPANS_MAX + 1, 0)).unwrap_err();
        assert_eq!(too_many.code(), Code::ResourceExhausted);
        assert!(too_many.message().contains("at most 10000"), "{too_many}");
        let crowded = check(&batch(1, ELEMENTS_MAX / 2)).unwrap_err();
        assert!(crowded.message().contains("at most 200000 elements"), "{crowded}");
        assert!(check(&nested(20)).is_ok());
        assert!(check(&nested(40)).unwrap_err().message().contains("deep"));
    }

    #[test]
    fn empty_spans_of_two_bytes_are_counted() {
        let bytes = [0x0a, 0x00].repeat(SPANS_MAX + 1);
        assert_eq!(check(&bytes).unwrap_err().code(), Code::ResourceExhausted);
    }

    #[test]
    fn a_truncated_batch_and_a_group_are_named_as_no_message() {
        let whole = batch(2, 1);
        for bytes in [whole.get(..whole.len() - 1).unwrap(), &[0x0b, 0x0c], &[0xff; 11]] {
            assert_eq!(check(bytes).unwrap_err().code(), Code::InvalidArgument, "{bytes:?}");
        }
    }

    proptest! {
        #[test]
        fn whatever_is_sent_is_counted_without_a_panic_and_what_passes_is_small(bytes in prop::collection::vec(any::<u8>(), 0..256)) {
            if check(&bytes).is_ok() && let Ok(decoded) = ExportRequest::decode(bytes.as_slice()) {
                prop_assert!(decoded.spans.len() <= SPANS_MAX);
            }
        }

        #[test]
        fn whatever_can_be_decoded_and_is_small_passes(spans in 0usize..20, messages in 0usize..20) {
            prop_assert!(check(&batch(spans, messages)).is_ok());
        }
    }
}
