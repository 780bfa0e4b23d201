//! Promise: however much passes through a WebSocket, the memory of the gateway stays what it was, and forwarding a frame costs little more
//! where it is read than where it is copied.

use serde_json::{Value, json};

use crate::support::{Client, Driver, Gateway, Peer, Setup, Upstream, on_both_drivers};
use crate::turns::{Heard, SWITCHED, frame, handshake, told};

const KIB: usize = 1024;
const MIB: usize = 1024 * KIB;
/// What passes in each direction of one turn.
const TURN_BYTES: usize = MIB;
/// Base64 of a fifth of a second of sound.
const SOUND_BYTES: usize = 16 * KIB;

/// MiB through one socket, both directions together; the long run asks for 1,024.
fn amount() -> usize {
    std::env::var("WEIR_SOCKET_MIB").ok().and_then(|text| text.parse().ok()).unwrap_or(48)
}

fn of_status(gateway: &Gateway, name: &str) -> usize {
    let status = std::fs::read_to_string(format!("/proc/{}/status", gateway.id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
    line.trim().trim_end_matches(" kB").parse::<usize>().unwrap() / KIB
}

/// CPU time of a process, in clock ticks.
fn ticks(gateway: &Gateway) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", gateway.id())).unwrap();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
}

/// A provider that answers each turn with sound.
fn speaking() -> Upstream {
    let sound = told(
        &json!({ "type": "response.output_audio.delta", "event_id": "e", "response_id": "r", "item_id": "i", "output_index": 0, "content_index": 0, "delta": "A".repeat(SOUND_BYTES) }),
    );
    let sounds = sound.repeat(TURN_BYTES / SOUND_BYTES);
    Upstream::play(move |peer: &mut Peer| {
        peer.request();
        peer.say(format!("{SWITCHED}\r\n"));
        let mut heard = Heard { bytes: Vec::new() };
        let mut count = 0;
        while let Some(message) = heard.next(peer) {
            if message["type"] != "response.create" {
                continue;
            }
            count += 1;
            let response = |status: &str| json!({ "id": format!("r{count}"), "object": "realtime.response", "status": status, "output": [], "usage": { "input_tokens": 10, "output_tokens": 10 } });
            peer.say(told(
                &json!({ "type": "response.created", "event_id": "c", "response": response("in_progress") }),
            ));
            peer.say(&sounds);
            peer.say(told(&json!({ "type": "response.done", "event_id": "d", "response": response("completed") })));
        }
    })
}

/// So many turns of sound in both directions on a socket of this path.
fn turns_of_sound(gateway: &Gateway, path: &str, turns: usize, mut after: impl FnMut(usize)) {
    let says = |message: &Value| frame(0x81, message.to_string().as_bytes(), true);
    let sound = says(&json!({ "type": "input_audio_buffer.append", "audio": "A".repeat(SOUND_BYTES) }));
    let sounds = sound.repeat(TURN_BYTES / SOUND_BYTES);
    let create = says(&json!({ "type": "response.create" }));
    let mut client = Client::connect(gateway.addr);
    client.say(handshake(path, ""));
    client.read_until(|bytes| bytes.windows(4).any(|piece| piece == b"\r\n\r\n"));
    let ends = |bytes: &[u8]| bytes.windows(15).rev().take(512).any(|piece| piece == b"\"response.done\"");
    for turn in 1..=turns {
        client.say(&sounds);
        client.say(&create);
        client.read_until(ends);
        after(turn);
    }
}

on_both_drivers! {
    fn what_passes_through_a_socket_takes_flat_memory(driver) {
        for (name, settings) in [("read", ""), ("held", "enforcement: {mode: block}\noutput_safety: {enabled: true, block_on_critical: true}\npii: {redact_answers: all}\n")] {
            let upstream = speaking();
            let gateway = Setup::new(driver).unlimited().upstream(upstream.url()).with(settings).start();
            let turns = (amount() / 2).max(8);
            let mut early = 0;
            turns_of_sound(&gateway, "/v1/realtime?model=gpt-realtime", turns, |turn| {
                if turn == turns.min(32) / 2 {
                    early = of_status(&gateway, "VmHWM:");
                }
            });
            let peak = of_status(&gateway, "VmHWM:");
            println!("{name}: {} MiB through a socket, peak resident {peak} MiB, {early} near the beginning", 2 * turns);
            assert!(peak < early + 48, "{name}: {early} MiB near the beginning, {peak} at the end");
        }
    }
}

/// What reading costs: the same frames on a path that is read and on one that is copied (`server.websocket: allow`).
#[test]
#[ignore = "a measurement, of use on a machine that does nothing else; .ci/full runs it"]
fn what_reading_a_frame_costs_beside_copying_it() {
    let turns = (amount() / 2).max(8);
    let frames = (2 * turns * (TURN_BYTES / SOUND_BYTES)) as f64;
    let mut shown = Vec::new();
    for round in 0..3 {
        for path in ["/v1/other", "/v1/realtime?model=gpt-realtime"] {
            let upstream = speaking();
            let gateway =
                Setup::new(Driver::Auto).unlimited().upstream(upstream.url()).server("websocket: allow").start();
            let before = ticks(&gateway);
            turns_of_sound(&gateway, path, turns, |_| ());
            // A hundredth of a second each.
            let micros = (ticks(&gateway) - before) as f64 * 10_000.0 / frames;
            shown.push(format!("round {round}, {path}: {micros:.1} us of CPU per frame of {} KiB", SOUND_BYTES / KIB));
        }
    }
    println!("{}", shown.join("\n"));
}
