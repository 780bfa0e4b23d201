//! What is changed in bodies on their way: edits of a request, which leave every other byte as it is, and the legal end of
//! an answer that is stopped. Pure: bytes in, bytes out.

mod advisory;
mod changes;
mod content;
mod edits;
mod ending;
mod frames;
mod tap;

pub use advisory::advisory_message;
pub use changes::{Changes, Defence, DefenceOutcome, Marks};
pub use content::Content;
pub use edits::{Edits, Refused};
pub use frames::Framed;
pub use tap::{HOLD_BYTES_MAX, LateVerdict, MakeTap, Onward, Redaction, Tap, Tapped, Verdict};

use crate::exchange::Payload;
use crate::record::Permit;

/// Brings a body into the form its edits give it, the memory it takes included: `room` is taken where it held none.
/// False, and nothing changed, when there is no room.
#[must_use]
pub fn rewrite(payload: &mut Payload, edits: Edits, room: impl FnOnce() -> Permit) -> bool {
    let Payload::Held { body, permit, .. } = payload else { return edits.is_empty() };
    if edits.is_empty() {
        return true;
    }
    let more = if permit.is_some() { edits.len_after().saturating_sub(body.len()) } else { edits.len_after() };
    if !permit.get_or_insert_with(room).grow(more) {
        return false;
    }
    *body = edits.apply();
    true
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::record::Budget;

    #[test]
    fn a_longer_body_takes_room_and_one_without_room_stays() {
        let budget = Budget::new(1600, false);
        let held = |permit| Payload::Held { body: Bytes::from_static(b"0123456789"), chunked: false, permit };
        let edited = |payload: &Payload| {
            let Payload::Held { body, .. } = payload else { panic!("it is held") };
            let mut edits = Edits::of(body);
            edits.insert(5, vec![b'x'; 1000]).unwrap();
            edits
        };
        let free = budget.free();
        let mut first = held(None);
        let edits = edited(&first);
        assert!(rewrite(&mut first, edits, || budget.permit()));
        assert_eq!(budget.free(), free - 1010);
        let mut second = held(Some(budget.permit()));
        let edits = edited(&second);
        assert!(!rewrite(&mut second, edits, || budget.permit()));
        assert!(matches!(&second, Payload::Held { body, .. } if body == "0123456789"));
        drop(first);
        assert_eq!(budget.free(), free);
    }
}
