//! A dialect that nobody speaks: what a new provider takes is this file and its line in the table.

use crate::json::{JsonError, Location, Walker};
use crate::observe::answer::{Channel, Collector, Piece, Slot};
use crate::observe::head::{Root, Taken};
use crate::observe::usage;
use crate::observe::value::Value;

pub(super) fn member<'a>(
    _: &mut Root<'a>,
    collector: &mut Collector,
    _: &mut Walker<'a>,
    key: &[u8],
    value: Value<'a>,
) -> Result<Taken, JsonError> {
    match (key, value) {
        (b"toy_says", Value::Str(text)) => {
            let slot = Slot { choice: 0, channel: Channel::Content, block: 0 };
            collector.append(slot, Piece::Text(text), || Location::root("response").key("toy_says"));
        }
        (b"toy_wrote", Value::Number(n)) => usage::raise(&mut collector.counters.completion, n),
        (b"toy_over", Value::Bool(true)) => collector.answer.complete = true,
        _ => return Ok(Taken::No),
    }
    Ok(Taken::Yes)
}

mod tests {

    use crate::observe::{Answer, AnswerKind, AnswerReader};

    fn read(kind: AnswerKind, body: &str) -> Answer {
        let mut reader = AnswerReader::new(kind, None, 1 << 20);
        reader.feed(body.as_bytes());
        reader.finish()
    }

    #[test]
    fn reads_a_document() {
        let answer = read(AnswerKind::Json, r#"{"toy_says":"hello you","toy_wrote":3}"#);
        assert_eq!(answer.text, "hello you");
        assert_eq!(answer.parts[0].location.to_string(), "response.toy_says");
        assert_eq!(answer.usage.unwrap().completion, Some(3));
    }

    #[test]
    fn reads_a_stream() {
        let lines = "{\"toy_says\":\"hello \"}\n{\"toy_says\":\"you\",\"toy_wrote\":3,\"toy_over\":true}\n";
        let answer = read(AnswerKind::JsonLines, lines);
        assert_eq!((answer.text.as_str(), answer.complete), ("hello you", true));
    }
}
