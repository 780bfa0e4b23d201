//! Promises: whatever comes twice, is cut or is opened again, the chain has each call once and is whole; any byte of it that is altered is
//! found.

use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::time::{Duration, Instant};

use proptest::prelude::*;
use tempfile::TempDir;
use weir_storage::record::SpanRecord;

use super::chain::{Chain, files};
use super::{PublicKey, SigningKey, Verifier};
use crate::feed::testing::blank_call;

const KEEP: Duration = Duration::from_secs(86_400);

fn key(folder: &TempDir) -> SigningKey {
    let path = folder.path().join("key.pem");
    SigningKey::create(&path).or_else(|_| SigningKey::read(&path)).unwrap()
}

fn open(folder: &TempDir) -> Chain {
    Chain::open(&folder.path().join("receipts"), key(folder), KEEP).unwrap()
}

fn text(folder: &TempDir) -> String {
    let files = files(&folder.path().join("receipts")).unwrap();
    files.iter().map(|file| fs::read_to_string(file).unwrap()).collect()
}

fn verify(text: &str, key: PublicKey) -> Result<super::Found, super::Tampering> {
    let keys = [key];
    let mut verifier = Verifier::new(&keys);
    text.lines().try_for_each(|line| verifier.check(line))?;
    verifier.finish(None)
}

fn calls(count: usize) -> Vec<SpanRecord> {
    (0..count).map(|_| *blank_call()).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn the_chain_has_each_call_once_and_stays_whole(
        steps in prop::collection::vec((0_usize..6, 0_usize..4, any::<bool>(), any::<bool>()), 1..12),
        at in any::<prop::sample::Index>(),
    ) {
        let folder = TempDir::new().unwrap();
        let public = key(&folder).public();
        let (mut chain, mut other) = (open(&folder), open(&folder));
        let (mut all, mut checkpoints): (Vec<SpanRecord>, u64) = (Vec::new(), 0);
        for (fresh, again, is_cut, reopened) in steps {
            // Some of the last ones come again, as after a crash.
            let from = all.len().saturating_sub(again);
            all.extend(calls(fresh));
            chain.add_calls(all[from..].iter(), "s").unwrap();
            if is_cut && let Some(file) = files(&folder.path().join("receipts")).unwrap().last() {
                OpenOptions::new().append(true).open(file).unwrap().write_all(b"{\"answered_by\":").unwrap();
            }
            if reopened {
                chain = open(&folder);
            } else {
                // Another process goes on.
                std::mem::swap(&mut chain, &mut other);
            }
            checkpoints += u64::from(chain.add_checkpoint(all.len() as u64, "head", true).unwrap());
        }
        let text = text(&folder);
        let found = verify(&text, public).unwrap();
        prop_assert_eq!(found.calls, all.len() as u64);
        prop_assert_eq!(found.to, all.len() as u64 + checkpoints);
        for call in &all {
            prop_assert_eq!(text.matches(&format!("\"span_id\":\"{}\"", call.span_id)).count(), 1);
        }
        let mut bytes = text.into_bytes();
        let place = at.index(bytes.len() - 1);
        bytes[place] ^= 1;
        prop_assert!(verify(&String::from_utf8_lossy(&bytes), public).is_err(), "byte {}", place);
    }
}

#[test]
fn files_that_are_over_their_time_go_and_the_rest_is_still_a_chain() {
    let folder = TempDir::new().unwrap();
    let public = key(&folder).public();
    let mut chain = open(&folder);
    chain.add_calls(calls(3).iter(), "s").unwrap();
    let first = files(&folder.path().join("receipts")).unwrap().remove(0);
    let next = first.with_file_name("0000000000000004.jsonl");
    // As it is when a file is full: another one goes on, and holds nothing yet.
    fs::write(&next, "").unwrap();
    chain.add_calls(calls(2).iter(), "s").unwrap();
    assert_eq!(verify(&text(&folder), public).unwrap().to, 5);
    fs::remove_file(first).unwrap();
    let found = verify(&text(&folder), public).unwrap();
    assert_eq!((found.from, found.to, found.calls), (4, 5, 2));
    open(&folder).add_calls(calls(1).iter(), "s").unwrap();
    assert_eq!(verify(&text(&folder), public).unwrap().to, 6);
}

/// What receipts cost, and what checking them does: for the evidence.
#[test]
#[ignore = "measures"]
fn a_hundred_thousand_are_signed_and_verified() {
    let folder = TempDir::new().unwrap();
    let public = key(&folder).public();
    let mut chain = open(&folder);
    let (mut signing, began) = (Duration::ZERO, Instant::now());
    for _ in 0..100 {
        let calls = calls(1_000);
        let since = Instant::now();
        chain.add_calls(calls.iter(), "s").unwrap();
        signing += since.elapsed();
    }
    let signed = began.elapsed();
    let text = text(&folder);
    let since = Instant::now();
    assert_eq!(verify(&text, public).unwrap().calls, 100_000);
    eprintln!(
        "{:?} each to sign and write (all with their records {signed:?}), {:?} each to verify",
        signing / 100_000,
        since.elapsed() / 100_000
    );
    for bytes in [1_000, 100_000, 1_000_000] {
        let body = vec![b'x'; bytes];
        let since = Instant::now();
        for _ in 0..20 {
            std::hint::black_box(super::digest("body", &body, true));
        }
        eprintln!("{:?} for a digest of {bytes} bytes", since.elapsed() / 20);
    }
}
