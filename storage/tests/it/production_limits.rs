//! Rate limits that gateways share: slices of one bucket in the cache, taken and given back once for each exchange.

use std::time::Duration;

use tempfile::TempDir;
use uuid::Uuid;
use weir_storage::leases::{Leased, Wish};
use weir_storage::{SpanLog as _, Store};

use crate::journals::gateway;
use crate::stores::{Three, name};
use crate::support::{PATIENCE, wait_for};

fn wish(whose: u128, tokens: i64) -> Wish {
    Wish { table: 't', whose: Uuid::from_u128(whose), rate: 1, burst: 100, tokens }
}

/// What lies in the bucket: it is asked for far more than there is, and gets it back.
fn left(store: &Store, number: u64, whose: u128) -> i64 {
    let granted = store.lease(number, &[wish(whose, 1_000)]).unwrap().granted[0];
    store.lease(number + 1, &[wish(whose, -granted)]).unwrap();
    granted
}

#[test]
#[ignore = "starts three stores: .ci/full"]
fn slices_of_a_limit_are_taken_and_given_back_once() {
    let three = Three::new();
    let name = name();
    let open = |_: usize| {
        let folder = TempDir::new().unwrap();
        (Store::open(gateway(&folder.path().join("journal.db"), three.named(&name))).unwrap(), folder)
    };
    let (stores, _folders): (Vec<_>, Vec<_>) = (0..2).map(open).unzip();
    let [a, b] = &stores[..] else { panic!("two") };
    assert_eq!((a.lease(1, &[]).unwrap().gateways, b.lease(1, &[]).unwrap().gateways), (1, 2));
    assert_eq!(a.lease(2, &[]).unwrap().gateways, 2);
    // Half of the burst is the credit of both, the other half lies in the bucket.
    let taken = Leased { gateways: 2, granted: vec![30] };
    assert_eq!(a.lease(3, &[wish(1, 30)]).unwrap(), taken);
    assert_eq!(a.lease(3, &[wish(1, 30)]).unwrap(), taken, "its answer was lost, say: nothing is taken again");
    let rest = b.lease(2, &[wish(1, 30)]).unwrap().granted[0];
    assert!((20..=22).contains(&rest), "what the other one left, and what a moment brings: {rest}");
    assert_eq!(a.lease(4, &[wish(1, -30)]).unwrap().granted, [-30]);
    a.lease(4, &[wish(1, -30)]).unwrap();
    let there = left(b, 3, 1);
    assert!((30..=35).contains(&there), "given back once: {there}");
    assert_eq!(a.lease(5, &[wish(2, -500)]).unwrap().granted, [-500]);
    assert_eq!(left(b, 5, 2), 50, "no bucket holds more than it has room for");

    three.cache.kill();
    assert!(a.lease(6, &[wish(1, 5)]).is_err());
    wait_for("it says so", || a.store_states().iter().any(|state| state.name == "cache" && state.problem.is_some()));
    three.cache.start();
    wait_for("the same exchange is made in the end", || a.lease(6, &[wish(1, 5)]).is_ok());
    assert_eq!(a.lease(6, &[wish(1, 5)]).unwrap().granted, [5], "and once, in a cache that had lost everything");
    assert_eq!(left(a, 7, 1), 45, "a lost cache has a full bucket again, and no more");
    for store in &stores {
        store.flush(Duration::from_secs(1));
        assert!(store.close(PATIENCE));
    }
}
