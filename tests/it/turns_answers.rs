//! Promise: an answer on a WebSocket is held to what an answer over HTTP is held to. One with a critical finding ends on its lane, in the
//! interface's own words, while other lanes go on; what is taken out of answers is taken out, however their frames are cut or compressed.

use std::io::{BufRead as _, BufReader};
use std::process::Stdio;

use flate2::{Compress, Compression};
use serde_json::{Value, json};

use crate::clients::{cases, python, run_client};
use crate::output::private_key;
use crate::support::{Call, Driver, Peer, Upstream, call, eventually, on_both_drivers};
use crate::turns::{Heard, SWITCHED, answer, create, deflated, frame, messages, open, says, start, told, turns};

pub(crate) const STOPPING: &str = "output_safety: {enabled: true}\nstreaming_analysis: {enabled: true, output_enabled: true, \
     early_stop_on_critical: true, token_interval: 10}\n";
const HOLDING: &str = "output_safety: {enabled: true}\nstreaming_analysis: {enabled: true, output_enabled: true, \
     early_stop_on_critical: true, token_interval: 10, hold_back: true}\n";
pub(crate) const BLOCKING: &str = "output_safety: {enabled: true, block_on_critical: true}\n";
const REDACTING: &str = "pii: {redact_answers: all}\n";

/// The events of an answer on a lane that says these pieces one after the other.
pub(crate) fn in_pieces(lane: &str, id: &str, pieces: &[&str]) -> Vec<Value> {
    let whole = answer(lane, id, &pieces.concat(), (1000, 200));
    let deltas = pieces.iter().map(|piece| {
        let mut delta = whole[1].clone();
        delta["delta"] = json!(piece);
        delta
    });
    [whole[0].clone()].into_iter().chain(deltas).chain([whole[2].clone()]).collect()
}

/// Switches, awaits one message for each lane, says `frames` and waits.
pub(crate) fn saying(frames: Vec<u8>, fields: &'static str, lanes: usize) -> Upstream {
    Upstream::play(move |peer: &mut Peer| {
        peer.request();
        peer.say(format!("{SWITCHED}{fields}\r\n"));
        let mut heard = Heard { bytes: Vec::new() };
        for _ in 0..lanes {
            heard.next(peer);
        }
        peer.say(frames.clone());
        peer.wait_closed();
    })
}

fn ends(message: &Value) -> bool {
    ["response.completed", "response.incomplete", "response.done", "error"].iter().any(|kind| message["type"] == *kind)
}

/// What was said on a lane, delta by delta.
fn deltas(seen: &[Value], lane: &str) -> String {
    let of_lane = seen.iter().filter(|message| message["stream_id"] == lane);
    of_lane.filter_map(|message| message["delta"].as_str()).collect()
}

on_both_drivers! {
    fn an_answer_with_a_critical_finding_ends_on_its_lane_and_others_go_on(driver) {
        let key = private_key();
        let (bad, good) = (
            in_pieces("bad", "resp_bad", &["Here it is, as you asked for it: ", &key[..20], &key[20..], "\nand that was all of it, dear friend, in so many words."]),
            in_pieces("good", "resp_good", &["Foxes are ", "small and ", "clever animals ", "that live ", "in holes."]),
        );
        let mut events: Vec<u8> = bad.iter().zip(&good).flat_map(|(bad, good)| [told(bad), told(good)].concat()).collect();
        events.extend(good.iter().skip(bad.len()).flat_map(told));
        for (settings, shows_nothing) in [(STOPPING, false), (HOLDING, true), (BLOCKING, false)] {
            let upstream = saying(events.clone(), "", 2);
            let gateway = start(driver, &upstream, settings);
            let mut client = open(&gateway, "/v1/responses");
            client.say(says(&create("bad", "asked for a key")));
            client.say(says(&create("good", "asked for foxes")));
            let got = client.read_until(|bytes| messages(bytes).iter().filter(|message| ends(message)).count() >= 2);
            let seen = messages(&got);
            let last = |lane: &str| seen.iter().rfind(|message| message["stream_id"] == lane).unwrap().clone();
            let stopped = last("bad");
            assert!(stopped["type"] == "response.incomplete" || stopped["type"] == "error", "{settings}: {seen:#?}");
            // A client that has seen no word of a text gets none of ours in it.
            let is_said = deltas(&seen, "bad").contains("withheld") || stopped.to_string().contains("withheld");
            assert!(is_said || shows_nothing, "{settings}: {seen:#?}");
            assert!(!deltas(&seen, "bad").contains("all of it, dear"), "{settings}: {seen:#?}");
            assert!(!shows_nothing || !deltas(&seen, "bad").contains("PRIVATE KEY"), "{settings}: {seen:#?}");
            assert_eq!((&last("good")["type"], deltas(&seen, "good")), (&json!("response.completed"), "Foxes are small and clever animals that live in holes.".to_owned()), "{settings}");
            let spans = turns(&gateway, 2);
            let of = |prompt: &str| spans.iter().find(|span| span["prompt"] == prompt).unwrap_or_else(|| panic!("{spans:?}")).clone();
            let (bad, good) = (of("asked for a key"), of("asked for foxes"));
            assert_eq!(bad["tags"]["response_stopped"], if stopped["type"] == "error" { "replaced" } else { "ended" }, "{settings}: {bad}");
            // The provider has said all of it and bills it.
            assert_eq!((&bad["completion_tokens"], &bad["estimated_cost_usd"]), (&json!(200), &good["estimated_cost_usd"]), "{bad}");
            assert!(bad["security_findings"].to_string().contains("secret_leakage"), "{bad}");
            assert_eq!(good["tags"].get("response_stopped"), None, "{good}");
        }
    }

    fn what_is_taken_out_of_answers_is_taken_out_over_the_frames_of_a_socket(driver) {
        let (a, b) = (
            in_pieces("a", "resp_a", &["Mail ja", "ne.doe@exam", "ple.com or write to 12 Main ", "Street, Boise, ID 8", "3702 today"]),
            in_pieces("b", "resp_b", &["Nothing ", "to see ", "here, ", "only 12 ", "apples."]),
        );
        let mut frames = Vec::new();
        for (a, b) in a.iter().zip(&b) {
            // One message in two frames with a ping between them.
            let text = a.to_string().into_bytes();
            let (head, tail) = text.split_at(text.len() / 2);
            frames.extend([frame(0x01, head, false), frame(0x89, b"still there", false), frame(0x80, tail, false), told(b)].concat());
        }
        let item = json!({ "type": "conversation.item.added", "item": { "role": "assistant", "content": [{ "type": "output_text", "text": "jane.doe@example.com" }] } });
        frames.extend(told(&item));
        let upstream = saying(frames, "", 2);
        let gateway = start(driver, &upstream, REDACTING);
        let mut client = open(&gateway, "/v1/responses");
        client.say(says(&create("a", "asked on a")));
        client.say(says(&create("b", "asked on b")));
        let got = client.read_until(|bytes| messages(bytes).iter().any(|message| message["type"] == "conversation.item.added"));
        let seen = messages(&got);
        assert_eq!(deltas(&seen, "a"), "Mail [PII:EMAIL] or write to [PII:POSTAL_ADDRESS] today", "{seen:#?}");
        let of_b: Vec<&Value> = seen.iter().filter(|message| message["stream_id"] == "b").collect();
        assert_eq!(of_b, b.iter().collect::<Vec<_>>());
        assert_eq!(seen.iter().filter(|message| message["opcode"] == 9).count(), a.len());
        let all = seen.iter().map(Value::to_string).collect::<String>();
        assert!(!all.contains("jane.doe@") && !all.contains("Boise"), "{all}");
    }

    fn compressed_answers_are_stopped_and_redacted_like_others(driver) {
        // A provider that agrees on what it was not offered.
        let mut window = Compress::new(Compression::default(), false);
        let events = in_pieces("", "resp_1", &["Mail jane.doe@", "example.com now ", "or never"]);
        let frames = events.iter().flat_map(|event| deflated(&mut window, event, false)).collect::<Vec<u8>>();
        let upstream = saying(frames, "Sec-WebSocket-Extensions: permessage-deflate\r\n", 1);
        let gateway = start(driver, &upstream, REDACTING);
        let mut client = open(&gateway, "/v1/responses");
        client.say(says(&create("", "asked")));
        let got = client.read_until(|bytes| messages(bytes).iter().any(ends));
        let seen = messages(&got);
        let said: String = seen.iter().filter_map(|message| message["delta"].as_str()).collect();
        assert_eq!(said, "Mail [PII:EMAIL] now or never");
        assert!(!seen.iter().any(|message| message.to_string().contains("jane.doe")), "{seen:?}");
    }

    fn an_answer_that_the_server_begins_by_itself_is_a_turn_of_its_own(driver) {
        // What steers an answer may be followed by another one that nobody asked for by name.
        let steered = in_pieces("", "resp_1", &["first ", "answer"]).into_iter().chain(in_pieces("", "resp_2", &["its ", "successor"]));
        let upstream = saying(steered.flat_map(|event| told(&event)).collect(), "", 2);
        let gateway = start(driver, &upstream, "");
        let mut client = open(&gateway, "/v1/responses");
        client.say(says(&create("", "what are foxes")));
        client.say(says(&json!({ "type": "response.steer", "previous_response_id": "resp_0", "input": [{ "type": "message", "role": "user", "content": "tell it in French" }] })));
        client.read_until(|bytes| messages(bytes).iter().filter(|message| ends(message)).count() == 2);
        let spans = turns(&gateway, 3);
        let of = |response: &str| spans.iter().find(|span| span["response"] == response).unwrap_or_else(|| panic!("{response}: {spans:?}"));
        let (first, second) = (of("first answer"), of("its successor"));
        assert_eq!((&second["estimated_cost_usd"], &second["completion_tokens"]), (&first["estimated_cost_usd"], &json!(200)), "{second}");
        assert!(spans.iter().any(|span| span["prompt"].as_str().is_some_and(|said| said.contains("in French"))), "{spans:?}");
    }

    fn a_realtime_answer_that_is_stopped_ends_with_its_own_event(driver) {
        let key = private_key();
        let response = |status: &str| json!({ "id": "r1", "object": "realtime.response", "status": status, "output": [] });
        let delta = |text: &str| json!({ "type": "response.output_audio_transcript.delta", "event_id": "e", "response_id": "r1", "item_id": "i", "output_index": 0, "content_index": 0, "delta": text });
        let sound = json!({ "type": "response.output_audio.delta", "event_id": "e", "response_id": "r1", "item_id": "i", "delta": "AAAA" });
        let mut done = response("completed");
        done["usage"] = json!({ "input_tokens": 100, "output_tokens": 50, "total_tokens": 150 });
        let frames = [
            json!({ "type": "session.created", "event_id": "s", "session": { "id": "sess" } }),
            json!({ "type": "response.created", "event_id": "c", "response": response("in_progress") }),
            sound,
            delta("Here it is: "),
            delta(&key),
            delta(" and so on and so forth, in very many further words that follow it."),
            json!({ "type": "response.done", "event_id": "d", "response": done }),
            json!({ "type": "rate_limits.updated", "event_id": "l", "rate_limits": [] }),
        ];
        let upstream = saying(frames.iter().flat_map(told).collect(), "", 1);
        let gateway = start(driver, &upstream, HOLDING);
        let mut client = open(&gateway, "/v1/realtime?model=gpt-realtime");
        client.say(says(&json!({ "type": "response.create" })));
        let got = client.read_until(|bytes| messages(bytes).iter().any(|message| message["type"] == "rate_limits.updated"));
        let seen = messages(&got);
        let kinds: Vec<&str> = seen.iter().filter_map(|message| message["type"].as_str()).collect();
        assert_eq!(kinds.first(), Some(&"session.created"), "{seen:#?}");
        assert!(kinds.ends_with(&["error", "response.done", "rate_limits.updated"]), "{kinds:?}");
        let end = &seen[seen.len() - 2];
        assert_eq!((&end["response"]["id"], &end["response"]["status"], &end["response"]["status_details"]["reason"]), (&json!("r1"), &json!("incomplete"), &json!("content_filter")));
        assert_eq!(seen[seen.len() - 3]["error"]["code"], "output_safety_blocked", "{seen:#?}");
        assert!(!seen.iter().any(|message| message.to_string().contains("PRIVATE KEY")), "{seen:#?}");
        let span = turns(&gateway, 1).remove(0);
        assert_eq!((&span["completion_tokens"], span["tags"].get("response_stopped").is_some()), (&json!(50), true), "{span}");
    }
}

#[test]
fn the_official_client_notices_nothing_on_its_sockets_and_each_turn_is_recorded_and_priced() {
    let python = python();
    for settings in ["", HOLDING, REDACTING] {
        let mut server = cases(&python, "openai_sockets.py");
        let mut server = server.arg("serve").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut port = String::new();
        BufReader::new(server.stdout.take().unwrap()).read_line(&mut port).unwrap();
        let provider = format!("http://127.0.0.1:{}", port.trim());
        let gateway = crate::support::Setup::new(Driver::Auto).upstream(provider.clone()).with(settings).start();
        let mut asking = cases(&python, "openai_sockets.py");
        let said = run_client(asking.args(["ask", &provider, &gateway.url()]));
        assert!(said.contains("events, the same"), "{said}");
        drop(server.stdin.take());
        assert!(server.wait().unwrap().success());
        let spans = eventually("each turn is recorded", || {
            // Without authentication a caller's records are those of its key.
            let page = call(gateway.addr, Call::get("/api/v1/spans?limit=50").key("sk-test").bytes()).json();
            let spans = page["data"].as_array().unwrap().clone();
            (spans.iter().filter(|span| span["status_code"] == 200).count() >= 3).then_some(spans)
        });
        let nano = |span: &Value| (span["estimated_cost_usd"].as_f64().unwrap_or_default() * 1e9).round() as u64;
        for (prompt, model, cost) in [
            ("what are foxes", "gpt-5", 600 * 1250 + 400 * 125 + 200 * 10_000),
            ("how large are they", "gpt-5", 600 * 1250 + 400 * 125 + 200 * 10_000),
            ("say hello", "gpt-realtime", 100 * 4000 + 50 * 16_000),
        ] {
            let of_it = |span: &&Value| span["prompt"].as_str().is_some_and(|said| said.contains(prompt));
            let span = spans.iter().find(of_it).unwrap_or_else(|| panic!("{settings}{prompt}: {spans:?}"));
            assert_eq!(
                (&span["model"], nano(span), &span["tokens_estimated"]),
                (&json!(model), cost, &json!(false)),
                "{span}"
            );
            assert!(span["response"].as_str().unwrap().contains("of the foxes \u{1f98a} is small"), "{span}");
        }
    }
}
