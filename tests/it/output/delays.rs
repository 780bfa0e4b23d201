//! How much later the words of a paced stream come where the stream may be stopped. The figures are printed; what is asserted is
//! what must hold on any machine.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::*;
use crate::support::{Client, call, on_both_drivers_in_full};

const PACE: Duration = Duration::from_millis(5);

/// So many words are said: more than are held back. `WEIR_DELAY_WORDS` in the long form.
fn words_said() -> usize {
    std::env::var("WEIR_DELAY_WORDS").ok().and_then(|count| count.parse().ok()).unwrap_or(120)
}

/// A provider that says a word every [`PACE`], and when it said each.
fn paced(dialect: Dialect, says: &[String]) -> (Upstream, Arc<Mutex<Vec<Instant>>>) {
    let said = Arc::new(Mutex::new(Vec::new()));
    let times = Arc::clone(&said);
    let frames = dialect.frames(says);
    let upstream = Upstream::play(move |peer| {
        peer.request();
        peer.say(format!(
            "HTTP/1.1 200 OK\r\nContent-Type: {}\r\nTransfer-Encoding: chunked\r\n\r\n",
            dialect.content_type
        ));
        for frame in &frames {
            if String::from_utf8_lossy(frame).contains("\"word") {
                times.lock().unwrap().push(Instant::now());
            }
            peer.say([format!("{:x}\r\n", frame.len()).as_bytes(), frame, b"\r\n"].concat());
            std::thread::sleep(PACE);
        }
        peer.say("0\r\n\r\n");
    });
    (upstream, said)
}

/// How much later than it was said each word came.
fn delays(driver: Driver, dialect: Dialect, settings: &str) -> Vec<Duration> {
    let count = words_said();
    let (upstream, said) = paced(dialect, &words("word", count));
    let gateway = setup(driver, &upstream, settings).start();
    let mut client = Client::connect(gateway.addr);
    client.say(dialect.call().bytes());
    let (mut came, mut text) = (Vec::new(), String::new());
    while came.len() < count {
        text.push_str(&String::from_utf8_lossy(&client.read_until(|bytes| !bytes.is_empty())));
        let now = Instant::now();
        while came.len() < count && text.contains(&format!("\"word{} \"", came.len())) {
            came.push(now);
        }
    }
    let said = said.lock().unwrap();
    let mut delays: Vec<Duration> = came.iter().zip(said.iter()).map(|(came, said)| *came - *said).collect();
    delays.sort_unstable();
    delays
}

on_both_drivers_in_full! {
    fn a_paced_stream_ends_within_an_interval_or_before_the_word(driver) {
        let key = private_key();
        let pieces = key.as_bytes().chunks(7).map(|piece| String::from_utf8_lossy(piece).into_owned());
        let says: Vec<String> = words("word", 100).into_iter().chain(pieces).chain(words("behind", 60)).collect();
        for dialect in DIALECTS {
            for (settings, holds) in [(STOPPING, false), (HOLDING, true)] {
                let (upstream, _) = paced(dialect, &says);
                let gateway = setup(driver, &upstream, settings).start();
                let text = call(gateway.addr, dialect.call().bytes()).text();
                assert!(text.contains(dialect.stopped) && text.contains("word20 "), "{}: {text}", dialect.path);
                // An interval is 10 tokens, and a word at least one.
                let behind = text.matches("behind").count();
                let seen = text.contains("BEGIN") || behind > 0;
                assert!(if holds { !seen } else { behind <= 10 }, "{}: {behind} words came behind the key: {text}", dialect.path);
            }
        }
    }

    fn a_word_waits_for_what_follows_it_only_where_it_is_held_back(driver) {
        for dialect in DIALECTS {
            for (name, settings) in [("off", ""), ("stopping", STOPPING), ("holding", HOLDING), ("redacting", "pii: {redact_answers: all}")] {
                let delays = delays(driver, dialect, settings);
                let (p50, p99) = (delays[delays.len() / 2], delays[delays.len() * 99 / 100]);
                println!("{} {name}: added delay per frame p50 {} us, p99 {} us", dialect.path, p50.as_micros(), p99.as_micros());
                // Of words of 8 bytes, 64 stand in what is looked at once more, and 10 in an interval.
                let waits = if name == "holding" { PACE * 80 } else { Duration::ZERO };
                assert!(p50 <= waits + Duration::from_millis(100), "{} {name}: {p50:?}", dialect.path);
                assert!(name != "holding" || p50 >= PACE * 20, "{}: it is held back: {p50:?}", dialect.path);
            }
        }
    }
}
