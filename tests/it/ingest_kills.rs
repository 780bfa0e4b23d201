//! Promise: a kill at any moment, while spans come by OTLP/HTTP, by calls and by streams of gRPC at once, loses nothing that was
//! acknowledged; and whoever sends again what was not answered, as senders do, has every span there once, with its tokens and its cost.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::SocketAddr;
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use serde_json::{Value, json};

use crate::grpc::{GRPC, grpc_addr, script};
use crate::ingest::{INGEST, chat, cost, post, request, span};
use crate::support::{Client, Driver, Gateway, Setup};

/// What a span of these counts and costs, in millionths of a dollar.
const TOKENS: u64 = 1_100;
const MICRO_USD: u64 = 3_000;
/// Span ids between two reports of a reporter.
const STEP: u64 = 1_000;

/// How many times the gateway is killed; `WEIR_REPORT_KILLS` says another number.
fn kills() -> u64 {
    std::env::var("WEIR_REPORT_KILLS").map_or(2, |number| number.parse().expect("WEIR_REPORT_KILLS is a number"))
}

/// What a reporter was answered before the kill, and the report that was not.
#[derive(Default)]
struct Reports {
    /// The first span of each, and how many it has.
    taken: Vec<(u64, u64)>,
    unanswered: u64,
}

/// The request that begins with this span; every other one is committed in two pieces.
fn by_http(first: u64) -> (Value, u64) {
    let spans = if (first / STEP).is_multiple_of(2) { 300 } else { 10 };
    let of_this_trace = |number: u64| {
        let mut span = span(&format!("{number:016x}"), &chat("hello", "hi"));
        span["traceId"] = json!(format!("{first:032x}"));
        span
    };
    (request(&(first..first + spans).map(of_this_trace).collect()), spans)
}

/// Whether the report that begins with this span is answered.
fn post_one(client: &mut Client, first: u64) -> Option<u64> {
    let (body, spans) = by_http(first);
    let answer = client.try_say(post(body.to_string()).bytes()).then(|| client.answer_to("POST").ok()).flatten()?;
    assert_eq!((answer.status, answer.text().as_str()), (200, "{}"));
    Some(spans)
}

fn post_until_killed(addr: SocketAddr, first: u64, told: &Sender<()>) -> Reports {
    let (mut client, mut reports) = (Client::connect(addr), Reports { unanswered: first, ..Reports::default() });
    while let Some(spans) = post_one(&mut client, reports.unanswered) {
        reports.taken.push((reports.unanswered, spans));
        reports.unanswered += STEP;
        // Nobody listens any more once the kill is under way.
        let _nobody = told.send(()).is_err();
    }
    reports
}

/// A reporter by gRPC, which outlives the gateways.
struct Script {
    child: Child,
    orders: ChildStdin,
    said: std::io::Lines<BufReader<ChildStdout>>,
}

impl Script {
    fn start(gateway: &Gateway, how: &str) -> Self {
        let mut command = script(gateway, "grpc_killed.py");
        let mut child = command.arg(how).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("a reporter");
        let said = BufReader::new(child.stdout.take().unwrap()).lines();
        let orders = child.stdin.take().unwrap();
        Self { child, orders, said }
    }

    fn order(&mut self, what: &str, addr: &str, first: u64) {
        writeln!(self.orders, "{}", json!({"do": what, "addr": addr, "first": first})).unwrap();
    }

    fn next(&mut self) -> Value {
        serde_json::from_str(&self.said.next().expect("the reporter lives").unwrap()).unwrap()
    }

    fn until_killed(&mut self, addr: &str, first: u64, told: &Sender<()>) -> Reports {
        self.order("send", addr, first);
        let mut reports = Reports::default();
        loop {
            let said = self.next();
            if let Some(unanswered) = said["unanswered"].as_u64() {
                return Reports { unanswered, ..reports };
            }
            reports.taken.push((said["first"].as_u64().unwrap(), said["spans"].as_u64().unwrap()));
            let _nobody = told.send(()).is_err();
        }
    }

    /// Sends a report again; how many spans it has.
    fn again(&mut self, addr: &str, first: u64) -> u64 {
        self.order("resend", addr, first);
        let said = self.next();
        said["spans"].as_u64().unwrap_or_else(|| panic!("{said}"))
    }
}

impl Drop for Script {
    fn drop(&mut self) {
        // Fails only when it has ended already.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

fn totals(gateway: &Gateway) -> Value {
    gateway.json("/api/v1/stats")
}

#[test]
fn what_was_acknowledged_outlives_a_kill_and_what_is_sent_again_is_there_once() {
    let mut gateway = Setup::new(Driver::Epoll).unlimited().with(GRPC).with(INGEST).start();
    let (mut calls, mut streams) = (Script::start(&gateway, "calls"), Script::start(&gateway, "streams"));
    let (mut before, mut whole, mut lost, mut torn) = (0, 0, 0, 0);
    for round in 1..=kills() {
        let (http, grpc) = (gateway.addr, grpc_addr(&gateway));
        let first = |reporter: u64| (reporter << 48) + (round << 24) / STEP * STEP;
        let (told, heard) = channel();
        let reports = std::thread::scope(|scope| {
            let by_http = scope.spawn(|| post_until_killed(http, first(1), &told));
            let by_calls = scope.spawn(|| calls.until_killed(&grpc, first(2), &told));
            let by_streams = scope.spawn(|| streams.until_killed(&grpc, first(3), &told));
            for _ in 0..=round % 7 {
                heard.recv_timeout(Duration::from_secs(60)).expect("a report is answered");
            }
            // Not always just behind an answer.
            std::thread::sleep(Duration::from_micros(round * 7_919 % 20_000));
            gateway.kill();
            [by_http, by_calls, by_streams].map(|reporter| reporter.join().unwrap())
        });
        gateway.restart();
        let (http, grpc) = (gateway.addr, grpc_addr(&gateway));
        let acknowledged: u64 = reports.iter().flat_map(|reports| &reports.taken).map(|(_, spans)| spans).sum();
        let found = totals(&gateway)["total_spans"].as_u64().unwrap();
        let again = [
            post_one(&mut Client::connect(http), reports[0].unanswered).expect("it is answered"),
            calls.again(&grpc, reports[1].unanswered),
            streams.again(&grpc, reports[2].unanswered),
        ];
        let (at_least, expected) = (before + acknowledged, before + acknowledged + again.iter().sum::<u64>());
        assert!((at_least..=expected).contains(&found), "{found} of {at_least} to {expected} after kill {round}");
        match found {
            found if found == expected => whole += 1,
            found if found == at_least => lost += 1,
            _ => torn += 1,
        }
        let totals = totals(&gateway);
        assert_eq!(totals["total_spans"], expected, "after kill {round}");
        assert_eq!(totals["total_tokens"], expected * TOKENS, "after kill {round}");
        let (usd, due) = (totals["total_cost_usd"].as_f64().unwrap(), (expected * MICRO_USD) as f64 / 1e6);
        assert!((usd - due).abs() < 1e-6, "{usd} dollars, and {due} are due after kill {round}");
        // This process has counted what it was the first to keep.
        let (counted, due) = (cost(&gateway), ((expected - found) * MICRO_USD) as f64);
        assert!((counted - due).abs() < 1.0, "{counted} millionths, and {due} are due after kill {round}");
        // No report has a span too many at the cost of another's.
        for (first, spans) in reports.iter().flat_map(|reports| &reports.taken) {
            let trace = format!("00000000-0000-0000-{:04x}-{:012x}", first >> 48, first & ((1 << 48) - 1));
            let kept = gateway.json(&format!("/api/v1/traces/{trace}"));
            // Each batch of a stream is a trace.
            let expected = if first >> 48 == 3 { 10 } else { *spans };
            assert_eq!(kept["span_count"], expected, "the trace {trace} after kill {round}");
        }
        before = expected;
    }
    println!(
        "{} kills, {before} spans: the unanswered reports were all kept {whole} times, none of them {lost} times, in part {torn} times",
        kills()
    );
}
