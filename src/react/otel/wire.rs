//! The binary form of an export request (`opentelemetry/proto/collector/trace/v1`), written field by field. Knows no record.

/// Wire types.
const VARINT: u64 = 0;
const FIXED64: u64 = 1;
const DELIMITED: u64 = 2;
const FIXED32: u64 = 5;

/// A message that is being written. Numbers of fields are those of the protocol's definitions.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct Message(Vec<u8>);

/// The value of an attribute.
#[derive(Debug, Clone, Copy)]
pub(super) enum Value<'a> {
    Text(&'a str),
    Texts(&'a [&'a str]),
    Int(i64),
    Double(f64),
    Bool(bool),
}

impl Message {
    pub(super) fn with_capacity(bytes: usize) -> Self {
        Self(Vec::with_capacity(bytes))
    }

    /// An `Event`, whose attributes follow.
    pub(super) fn event(name: &str, nanos: u64) -> Self {
        let mut event = Self::with_capacity(256);
        event.fixed64(1, nanos);
        event.bytes(2, name.as_bytes());
        event
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.0
    }

    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    fn key(&mut self, number: u64, wire: u64) {
        self.varint(number << 3 | wire);
    }

    pub(super) fn uint(&mut self, number: u64, value: u64) {
        self.key(number, VARINT);
        self.varint(value);
    }

    pub(super) fn fixed64(&mut self, number: u64, value: u64) {
        self.key(number, FIXED64);
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    pub(super) fn fixed32(&mut self, number: u64, value: u32) {
        self.key(number, FIXED32);
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    pub(super) fn bytes(&mut self, number: u64, bytes: &[u8]) {
        self.begin(number, bytes.len());
        self.0.extend_from_slice(bytes);
    }

    pub(super) fn message(&mut self, number: u64, message: &Self) {
        self.bytes(number, &message.0);
    }

    /// The head of a field of so many bytes, which have to follow.
    pub(super) fn begin(&mut self, number: u64, len: usize) {
        self.key(number, DELIMITED);
        self.varint(len as u64);
    }

    /// A `KeyValue`.
    pub(super) fn attribute(&mut self, number: u64, name: &str, value: Value<'_>) {
        let any = field_len(1, value.len());
        let any = if let Value::Texts(texts) = value {
            let list: usize = texts.iter().map(|text| field_len(1, field_len(1, text.len()))).sum();
            field_len(5, list)
        } else if let Value::Text(_) = value {
            any
        } else {
            1 + value.len()
        };
        self.begin(number, field_len(1, name.len()) + field_len(2, any));
        self.bytes(1, name.as_bytes());
        self.begin(2, any);
        match value {
            Value::Text(text) => self.bytes(1, text.as_bytes()),
            Value::Bool(flag) => self.uint(2, flag.into()),
            Value::Int(number) => self.uint(3, number.cast_unsigned()),
            Value::Double(number) => self.fixed64(4, number.to_bits()),
            Value::Texts(texts) => {
                self.begin(5, texts.iter().map(|text| field_len(1, field_len(1, text.len()))).sum());
                for text in texts {
                    self.begin(1, field_len(1, text.len()));
                    self.bytes(1, text.as_bytes());
                }
            }
        }
    }
}

impl Value<'_> {
    /// Bytes of the value itself.
    fn len(self) -> usize {
        match self {
            Self::Text(text) => text.len(),
            Self::Texts(_) => 0,
            Self::Int(number) => varint_len(number.cast_unsigned()),
            Self::Double(_) => 8,
            Self::Bool(_) => 1,
        }
    }
}

/// Bytes of a field of so many bytes, its head included.
pub(super) const fn field_len(number: u64, len: usize) -> usize {
    varint_len(number << 3) + varint_len(len as u64) + len
}

const fn varint_len(value: u64) -> usize {
    (64 - (value | 1).leading_zeros() as usize).div_ceil(7)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn fields_are_written_as_the_format_says() {
        let mut message = Message::default();
        message.attribute(9, "a", Value::Text("bc"));
        message.attribute(9, "n", Value::Int(300));
        assert_eq!(
            message.into_bytes(),
            [0x4a, 9, 0x0a, 1, b'a', 0x12, 4, 0x0a, 2, b'b', b'c', 0x4a, 8, 0x0a, 1, b'n', 0x12, 3, 0x18, 0xac, 2]
        );
        assert_eq!([0, 127, 128, 16_383, 16_384, u64::MAX].map(varint_len), [1, 1, 2, 2, 3, 10]);
    }

    proptest! {
        #[test]
        fn lengths_are_those_of_what_is_written(name in ".{0,200}", text in ".{0,200}", number in any::<i64>(), real in any::<f64>()) {
            for value in [Value::Text(&text), Value::Int(number), Value::Double(real), Value::Bool(true), Value::Texts(&[&text, &name, ""])] {
                let mut pair = Message::default();
                pair.attribute(1, &name, value);
                let bytes = pair.into_bytes();
                // The head says how many bytes follow, on each level.
                let mut rest = &bytes[..];
                let mut levels = 0;
                while levels < 2 {
                    prop_assert_eq!(rest[0], [0x0a, 0x12][levels]);
                    let (len, head) = read_varint(&rest[1..]);
                    prop_assert_eq!(rest.len(), 1 + head + len);
                    rest = &rest[1 + head..];
                    if levels == 0 {
                        rest = &rest[field_len(1, name.len())..];
                    }
                    levels += 1;
                }
            }
        }
    }

    fn read_varint(bytes: &[u8]) -> (usize, usize) {
        let len = bytes.iter().position(|byte| byte & 0x80 == 0).unwrap() + 1;
        let value = bytes[..len].iter().enumerate().map(|(at, byte)| usize::from(byte & 0x7f) << (7 * at)).sum();
        (value, len)
    }
}
