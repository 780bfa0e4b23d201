//! The same corpus without sockets: whatever the gateway's parser accepts is written anew and has to pass the strict
//! automaton and all other readings. `SMUGGLE_PURE` says how many damaged cases; the gate takes 50,000.

use super::corpus::corpus;
use super::fuzz::targets::rewrite_requests;
use super::readings::disagreement;
use super::setting;

#[test]
fn what_the_parser_accepts_is_canonical_when_written_anew() {
    let cases = corpus(setting("SMUGGLE_SEED", 2026) as u64 + 1, setting("SMUGGLE_PURE", 50_000));
    let (mut accepted, mut faults) = (0, Vec::new());
    for (id, case) in cases.iter().enumerate() {
        let bytes = case.bytes(id);
        let rewritten = rewrite_requests(&bytes, bytes.len());
        accepted += usize::from(rewritten.count > 0);
        if let Some(why) = disagreement(&rewritten.out) {
            faults.push(format!("{}: {why}\n  {:?}", case.family, String::from_utf8_lossy(&bytes)));
        }
    }
    println!("{} cases, {accepted} with a request that is accepted", cases.len());
    super::assert_no_faults("cases can be read in two ways when written anew", &faults);
    assert!(accepted > cases.len() / 20, "a corpus that is always refused proves little: {accepted}");
}
