//! The contract of [`OffenceBook`].

use std::net::IpAddr;

use weir_config::vocab::{SpanId, Timestamp};
use weir_storage::{BlockedAddress, Offence, OffenceBook};

use super::checks;

checks! { dyn OffenceBook:
    a_call_counts_once_and_the_last_one_of_so_many_blocks,
    an_offence_and_a_block_end_with_their_time,
}

const TTL_US: i64 = 1_000;

fn offence(address: &str, span: SpanId, at_us: i64) -> Offence {
    let address: IpAddr = address.parse().unwrap();
    Offence { address, span, at: Timestamp::from_micros(at_us), ttl_us: TTL_US, max: 3 }
}

fn a_call_counts_once_and_the_last_one_of_so_many_blocks(book: &dyn OffenceBook) {
    let spans = [SpanId::fresh(), SpanId::fresh(), SpanId::fresh()];
    for (at, span) in [(0, 0), (1, 0), (2, 1), (3, 1)] {
        assert_eq!(book.note_offence(offence("10.0.0.1", spans[span], at)).unwrap(), None);
    }
    assert_eq!(book.note_offence(offence("2001:db8::1", spans[2], 4)).unwrap(), None, "each address has its own count");
    let until = Timestamp::from_micros(5 + TTL_US);
    let blocked = BlockedAddress { address: "10.0.0.1".parse().unwrap(), until };
    assert_eq!(book.note_offence(offence("10.0.0.1", spans[2], 5)).unwrap(), Some(blocked));
    assert_eq!(book.blocked_addresses(Timestamp::from_micros(6)).unwrap(), [blocked]);
    assert_eq!(book.note_offence(offence("10.0.0.1", spans[2], 7)).unwrap(), None, "it begins anew");
}

fn an_offence_and_a_block_end_with_their_time(book: &dyn OffenceBook) {
    for at in [0, 1] {
        book.note_offence(offence("10.0.0.1", SpanId::fresh(), at)).unwrap();
    }
    assert_eq!(book.note_offence(offence("10.0.0.1", SpanId::fresh(), TTL_US)).unwrap(), None, "the first is over");
    assert!(book.note_offence(offence("10.0.0.1", SpanId::fresh(), TTL_US)).unwrap().is_some());
    assert_eq!(book.blocked_addresses(Timestamp::from_micros(2 * TTL_US - 1)).unwrap().len(), 1);
    assert_eq!(book.blocked_addresses(Timestamp::from_micros(2 * TTL_US)).unwrap(), []);
}
