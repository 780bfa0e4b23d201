//! What each store of the `production` profile takes and holds, as figures for `docs/scale.md`. `WEIR_SCALE_SPANS` says how deep.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::Command;
use std::time::{Duration, Instant};

use tempfile::TempDir;
use uuid::Uuid;
use weir_config::settings::Window;
use weir_storage::leases::Wish;
use weir_storage::query::SpanFilter;
use weir_storage::record::SpanRecord;
use weir_storage::{SpanLog as _, SpendBook as _, SpendRow, Store};

use crate::journals::gateway;
use crate::stores::{Three, name};
use crate::support::{PATIENCE, page, span, tenant};

/// Bytes of a prompt and of an answer: those of a chat with a page of context.
const TEXT_BYTES: (usize, usize) = (4_000, 800);
/// Accounts that one round of a gateway writes down, and buckets of one exchange.
const ACCOUNTS: usize = 250;
const BUCKETS: usize = 100;

struct Dice(u64);

impl Dice {
    fn below(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % below
    }

    /// Words as a language has them: few are frequent, many are rare.
    fn prose(&mut self, bytes: usize) -> String {
        let mut text = String::with_capacity(bytes + 12);
        while text.len() < bytes {
            let most = 1 << (4 + self.below(9));
            let mut word = self.below(most).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20;
            for _ in 0..2 + word % 8 {
                text.push(char::from(b'a' + (word % 26) as u8));
                word /= 26;
            }
            text.push(' ');
        }
        text
    }
}

fn call(dice: &mut Dice, at: i64) -> SpanRecord {
    let (prompt, response) = (Some(dice.prose(TEXT_BYTES.0)), Some(dice.prose(TEXT_BYTES.1)));
    let agent_id = Some(format!("agent-{}", dice.below(40)));
    SpanRecord { tenant_id: tenant(dice.below(10) as u8), prompt, response, agent_id, ..span(at) }
}

/// What the analytics store answers.
fn ask(port: u16, database: &str, question: &str) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    let head = format!(
        "POST /?database={database} HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: {}",
        question.len()
    );
    stream.write_all(format!("{head}\r\n\r\n{question}").as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer.split_once("\r\n\r\n").unwrap().1.trim().to_owned()
}

fn psql(port: u16, database: &str, sql: &str) -> String {
    let port = port.to_string();
    let args = ["-h", "127.0.0.1", "-p", &port, "-U", "postgres", "-d", database, "-Atc", sql];
    String::from_utf8(Command::new("psql").args(args).output().unwrap().stdout).unwrap().trim().to_owned()
}

fn spend(at: usize, nano_usd: u64) -> SpendRow {
    let (window, agent) = (Window::ALL[at % 4], format!("agent-{}", at / 4));
    SpendRow { tenant: tenant(1), agent, window, period_start_s: 86_400, since_s: 86_400, spent_nano_usd: nano_usd }
}

/// Per second, of what takes `seconds` in all.
fn rate(many: usize, since: Instant) -> f64 {
    many as f64 / since.elapsed().as_secs_f64()
}

#[test]
#[ignore = "starts three stores and takes a minute: .ci/full"]
fn what_each_store_takes_and_holds() {
    let many: i64 = std::env::var("WEIR_SCALE_SPANS").ok().and_then(|text| text.parse().ok()).unwrap_or(40_000);
    let (three, database, folder) = (Three::new(), name(), TempDir::new().unwrap());
    let journal = folder.path().join("journal.db");
    let store = Store::open(gateway(&journal, three.named(&database))).unwrap();
    let mut dice = Dice(7);
    // Nothing is taken while spans pile up, so that the rate is that of shipping alone.
    three.analytics.kill();
    let began = Instant::now();
    let sink = store.sink();
    for at in 0..many {
        while sink.push(Box::new(call(&mut dice, 1_700_000_000_000_000 + at * 1_000))).is_err() {
            std::thread::sleep(Duration::from_millis(5));
        }
        // A queue that is nearly full would leave texts out.
        assert!(at % 500 > 0 || store.flush(PATIENCE));
    }
    assert!(store.flush(PATIENCE));
    assert_eq!(store.counters().without_texts, 0);
    println!(
        "journal: {many} spans put in at {:.0} a second, {} bytes each",
        rate(many as usize, began),
        std::fs::metadata(&journal).unwrap().len() / many.unsigned_abs()
    );
    three.analytics.start();
    let waited = Instant::now();
    while store.backlog() as i64 == many {
        assert!(waited.elapsed() < PATIENCE, "shipping does not begin");
        std::thread::sleep(Duration::from_millis(5));
    }
    let (left, began) = (store.backlog(), Instant::now());
    while store.backlog() > 0 {
        std::thread::sleep(Duration::from_millis(5));
    }
    println!(
        "shipping: {left} spans of {} bytes of text at {:.0} a second",
        TEXT_BYTES.0 + TEXT_BYTES.1,
        rate(left as usize, began)
    );
    for table in ["weir_calls", "weir_spans"] {
        ask(three.analytics.port, &database, &format!("OPTIMIZE TABLE {table} FINAL"));
        let question = format!(
            "SELECT sum(bytes_on_disk), sum(rows), sum(data_uncompressed_bytes) FROM system.parts WHERE database = '{database}' AND table = '{table}' AND active"
        );
        let answer = ask(three.analytics.port, &database, &question);
        let numbers: Vec<u64> = answer.split('\t').map(|number| number.parse().unwrap()).collect();
        println!(
            "{table}: {} bytes a span on disk, {} before compression",
            numbers[0] / numbers[1],
            numbers[2] / numbers[1]
        );
    }
    let timed = |what: &str, question: &dyn Fn()| {
        let mut took: Vec<Duration> = (0..11)
            .map(|_| {
                let began = Instant::now();
                question();
                began.elapsed()
            })
            .collect();
        took.sort();
        println!("{what} of {many} spans: median {:?}", took[5]);
    };
    let one = store.list_spans(tenant(1), &SpanFilter::default(), page(1, 0)).unwrap().data.remove(0);
    timed("newest 20", &|| drop(store.list_spans(tenant(1), &SpanFilter::default(), page(20, 0)).unwrap()));
    timed("by trace", &|| drop(store.trace(tenant(1), one.trace_id).unwrap().unwrap()));
    let model = SpanFilter { model: Some("gpt-4o".to_owned()), security_score_min: Some(1), ..SpanFilter::default() };
    timed("a filter", &|| drop(store.list_spans(tenant(1), &model, page(20, 0)).unwrap()));
    timed("totals", &|| assert!(store.stats(tenant(1)).is_ok()));

    let before: u64 =
        psql(three.relational.port, &database, "SELECT pg_total_relation_size('spend_ledger')").parse().unwrap();
    let (began, rounds) = (Instant::now(), 20);
    for round in 1..=rounds {
        store.save_spend((0..ACCOUNTS * 4).map(|at| spend(at, round)).collect()).unwrap();
    }
    let written = ACCOUNTS * 4 * rounds as usize;
    println!(
        "ledger: {written} operations at {:.0} a second from one gateway, {ACCOUNTS} accounts with four windows a transaction",
        rate(written, began)
    );
    let after: u64 =
        psql(three.relational.port, &database, "SELECT pg_total_relation_size('spend_ledger')").parse().unwrap();
    println!("ledger: {} bytes an operation, indexes included", (after - before) / written as u64);
    let began = Instant::now();
    (0..10).for_each(|_| drop(store.spent_elsewhere(86_500).unwrap()));
    println!("ledger: {:?} to read {} accounts of the others", began.elapsed() / 10, ACCOUNTS * 4);

    let wishes: Vec<Wish> = (0..BUCKETS)
        .map(|at| Wish { table: 't', whose: Uuid::from_u128(at as u128), rate: 100, burst: 200, tokens: 5 })
        .collect();
    for (what, wishes) in [("none", &wishes[..0]), ("100", &wishes[..])] {
        let (began, many) = (Instant::now(), 500);
        let first = if wishes.is_empty() { 1 } else { 1_000 };
        (first..first + many).for_each(|number| drop(store.lease(number, wishes).unwrap()));
        println!(
            "cache: {:.0} exchanges a second with {what} of the buckets, one connection",
            rate(many as usize, began)
        );
    }
    assert!(store.close(PATIENCE));
}
