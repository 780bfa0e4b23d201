//! Promise: whoever is denied is out at once, with all that is under way, and stays out though the store cannot write it down.

use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::support::{
    AUTH, Call, Client, Driver, Gateway, PATIENCE, Peer, Setup, SmallDisk, Upstream, call, chat_body, chat_call,
    eventually, on_both_drivers_in_full, text, with_stream,
};

const SWITCHED: &str = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
    Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n";
const FRAME: &str = "data: {\"choices\":[{\"delta\":{\"content\":\"on\"}}]}\n\n";
/// Far less than any limit of the gateway's on what is silent or slow.
const SOON: Duration = Duration::from_secs(10);

/// A provider that answers a WebSocket by saying every byte again, and anything else by a stream that never ends.
fn endless(peer: &mut Peer) {
    let Some(request) = peer.request() else { return };
    if request.header("upgrade").is_none() {
        peer.say("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n");
        loop {
            let frame = format!("{:x}\r\n{FRAME}\r\n", FRAME.len());
            if std::io::Write::write_all(&mut peer.stream, frame.as_bytes()).is_err() {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
    peer.say(SWITCHED);
    let mut piece = [0; 1024];
    while let Ok(count) = std::io::Read::read(&mut peer.stream, &mut piece) {
        if count == 0 {
            return;
        }
        peer.say(&piece[..count]);
    }
}

/// A tunnel opened with this field, once it has carried something.
fn tunnel(gateway: &Gateway, credential: &str) -> Client {
    let mut client = Client::connect(gateway.addr);
    client.say(format!(
        "GET /v1/realtime HTTP/1.1\r\nHost: weir\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n{credential}\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    ));
    let head = client.read_until(|bytes| bytes.windows(4).any(|piece| piece == b"\r\n\r\n"));
    assert!(head.starts_with(b"HTTP/1.1 101 "), "{}", String::from_utf8_lossy(&head));
    assert!(is_alive(&mut client));
    client
}

fn is_alive(client: &mut Client) -> bool {
    client.try_say("ping") && client.read_until(|bytes| bytes.len() >= 4) == b"ping"
}

/// A stream, once it flows.
fn stream(gateway: &Gateway, key: &str) -> Client {
    let mut client = Client::connect(gateway.addr);
    let body = with_stream(chat_body("go on")).to_string();
    client.say(Call::post("/v1/chat/completions", body).key(key).bytes());
    let begun = client.read_until(|bytes| bytes.windows(FRAME.len()).any(|piece| piece == FRAME.as_bytes()));
    assert!(begun.starts_with(b"HTTP/1.1 200 "));
    client
}

/// How long until it ends.
fn ends(client: &mut Client) -> Duration {
    let start = Instant::now();
    let (_, _in_order) = client.until_end();
    start.elapsed()
}

on_both_drivers_in_full! {
    fn a_revoked_key_takes_its_tunnels_and_streams_with_it_and_nobody_else_s(driver) {
        let upstream = Upstream::play(endless);
        let gateway = Setup::new(driver).upstream(upstream.url()).with(AUTH).start();
        let (tenant, other) = (gateway.tenant("Acme"), gateway.tenant("Other"));
        let (id, key) = gateway.key(&tenant, "operator");
        let (_, others) = gateway.key(&other, "operator");
        let mine = |key: &str| format!("Authorization: Bearer {key}");
        // More than one core has.
        let mut ending: Vec<Client> = (0..4).map(|_| tunnel(&gateway, &mine(&key))).collect();
        ending.extend((0..4).map(|_| stream(&gateway, &key)));
        let mut staying = tunnel(&gateway, &mine(&others));
        assert_eq!(gateway.admin(Call::delete(&format!("/api/v1/auth/keys/{id}"))).status, 204);
        for client in &mut ending {
            let took = ends(client);
            assert!(took < SOON, "{took:?}");
        }
        assert!(is_alive(&mut staying));
        let spans = eventually("all are recorded", || {
            let spans = Call::get("/api/v1/spans").field("X-Service-Tenant-ID", &tenant);
            Some(gateway.admin(spans).json()).filter(|spans| spans["total"] == 8)
        });
        for span in spans["data"].as_array().unwrap() {
            assert_eq!(span["error_type"], "credential_revoked", "{span}");
        }
    }

    fn a_replaced_token_and_a_deleted_tenant_end_what_is_under_way(driver) {
        let upstream = Upstream::play(endless);
        let gateway = Setup::new(driver).upstream(upstream.url()).with(AUTH).start();
        let tenant = gateway.tenant("Acme");
        let token = gateway.token(&tenant);
        let (_, key) = gateway.key(&tenant, "operator");
        let mut by_token = tunnel(&gateway, &format!("X-Service-Token: {token}"));
        let mut by_key = tunnel(&gateway, &format!("Authorization: Bearer {key}"));
        let reset = gateway.admin(Call::post(&format!("/api/v1/tenants/{tenant}/token/reset"), ""));
        assert_eq!((reset.status, &reset.json()["persisted"]), (200, &json!(true)));
        assert!(ends(&mut by_token) < SOON);
        assert!(is_alive(&mut by_key));
        assert_eq!(gateway.admin(Call::delete(&format!("/api/v1/tenants/{tenant}"))).status, 204);
        assert!(ends(&mut by_key) < SOON);
    }
}

fn gateway_on(disk: &Path, upstream: &Upstream) -> Gateway {
    Setup::new(Driver::Auto)
        .upstream(upstream.url())
        .storage(&format!("{{database_path: '{}'}}", disk.join("weir.db").display()))
        .with(AUTH)
        .with("trace_storage_timeout_ms: 100")
        .start()
}

/// A disk that fills up keeps nobody in: what is denied is denied at once, says that it is not stored, and is stored as soon as
/// there is room.
#[test]
fn who_is_denied_while_the_disk_is_full_is_out_and_stays_out() {
    let Some(disk) = SmallDisk::of_mib(8) else { return };
    let upstream = Upstream::always("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}");
    let mut gateway = gateway_on(disk.path(), &upstream);
    let (tenant, doomed) = (gateway.tenant("Acme"), gateway.tenant("Doomed"));
    let (id, key) = gateway.key(&tenant, "operator");
    let (_, doomed_key) = gateway.key(&doomed, "operator");
    let token = gateway.token(&tenant);
    let by_key = |gateway: &Gateway, key: &str| call(gateway.addr, chat_call("hello").key(key).bytes()).status;
    let by_token = |gateway: &Gateway, token: &str| {
        call(gateway.addr, chat_call("x").field("X-Service-Token", token).bytes()).status
    };
    assert_eq!((by_key(&gateway, &key), by_key(&gateway, &doomed_key), by_token(&gateway, &token)), (200, 200, 200));
    // What the log still holds and the reserve releases can be written to; then nothing.
    eventually("the store refuses a tenant", || {
        disk.fill();
        let body = json!({ "name": "x".repeat(200) }).to_string();
        (gateway.admin(Call::post("/api/v1/tenants", body)).status == 503).then_some(())
    });
    disk.fill();
    let revoked = gateway.admin(Call::delete(&format!("/api/v1/auth/keys/{id}")));
    assert_eq!((revoked.status, revoked.json()), (202, json!({ "persisted": false })), "{}", revoked.text());
    assert_eq!(by_key(&gateway, &key), 401);
    let reset = gateway.admin(Call::post(&format!("/api/v1/tenants/{tenant}/token/reset"), ""));
    assert_eq!((reset.status, &reset.json()["persisted"]), (200, &json!(false)), "{}", reset.text());
    let fresh = text(&reset, "token");
    assert_eq!((by_token(&gateway, &token), by_token(&gateway, &fresh)), (401, 200));
    let deleted = gateway.admin(Call::delete(&format!("/api/v1/tenants/{doomed}")));
    assert_eq!((deleted.status, deleted.json()), (202, json!({ "persisted": false })), "{}", deleted.text());
    assert_eq!(by_key(&gateway, &doomed_key), 401);
    assert_eq!(gateway.admin(Call::get(&format!("/api/v1/tenants/{doomed}"))).status, 404);
    let health = gateway.json("/health");
    assert_eq!(health["status"], "degraded");
    assert!(health["reasons"].to_string().contains("3 revocations, new tokens or deletions are in force"), "{health}");
    disk.free();
    eventually("all is stored", || {
        let health = gateway.json("/health");
        (!health["reasons"].to_string().contains("in force")).then_some(())
    });
    gateway.restart();
    let statuses =
        [by_key(&gateway, &key), by_key(&gateway, &doomed_key), by_token(&gateway, &token), by_token(&gateway, &fresh)];
    assert_eq!(statuses, [401, 401, 401, 200]);
    assert_eq!(gateway.admin(Call::delete(&format!("/api/v1/auth/keys/{id}"))).status, 404, "it is revoked");
}

/// A gateway on this database, whatever else is on it.
fn on(database: &Path, upstream: &Upstream) -> Gateway {
    let storage = format!("{{database_path: '{}', shared_file: true}}", database.display());
    Setup::new(Driver::Auto).upstream(upstream.url()).storage(&storage).with(AUTH).unlimited().start()
}

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}";

/// The status of a call; 0 of one that was under way when its key was revoked, and is cut.
fn by_key(gateway: &Gateway, key: &str) -> u16 {
    let mut client = Client::connect(gateway.addr);
    client.say(chat_call("hello").key(key).bytes());
    client.answer_to("POST").map_or(0, |answer| answer.status)
}

/// How many keys are revoked; .ci/full revokes a hundred.
fn revocations() -> usize {
    std::env::var("WEIR_REVOCATIONS").ok().and_then(|text| text.parse().ok()).unwrap_or(20)
}

/// How long each of them may take to be refused by another process: .ci/full says it, on a machine that does nothing else.
fn hold_within(longest: Duration) {
    let most = std::env::var("WEIR_REVOCATION_MS").ok().and_then(|text| text.parse().ok());
    let most = most.map_or(PATIENCE, Duration::from_millis);
    assert!(longest <= most, "{longest:?}");
}

/// A key is refused by every gateway on the file soon after any of them has revoked it.
#[test]
fn revocations_of_two_gateways_on_one_file_hold_in_both() {
    let revocations = revocations();
    let upstream = Upstream::always(OK);
    let folder = tempfile::TempDir::new().unwrap();
    let database = folder.path().join("weir.db");
    let pair = [on(&database, &upstream), on(&database, &upstream)];
    pair[1].logged("it says what is not shared", |line| {
        line.contains("another process uses this database") && line.contains("Not shared: rate limits")
    });
    let tenant = pair[0].tenant("Acme");
    let keys: Vec<_> = (0..revocations).map(|at| pair[at % 2].key(&tenant, "operator")).collect();
    for (_, key) in &keys {
        for gateway in &pair {
            eventually("both let it in", || (by_key(gateway, key) == 200).then_some(()));
        }
    }
    let mut longest = Duration::ZERO;
    for (at, (id, key)) in keys.iter().enumerate() {
        let (revoking, other) = (&pair[at % 2], &pair[(at + 1) % 2]);
        assert_eq!(revoking.admin(Call::delete(&format!("/api/v1/auth/keys/{id}"))).status, 204);
        let revoked = Instant::now();
        assert_eq!(by_key(revoking, key), 401);
        eventually("the other one refuses it", || (by_key(other, key) == 401).then_some(()));
        longest = longest.max(revoked.elapsed());
    }
    println!("{revocations} revocations, each refused by the other gateway after {longest:?} at most");
    hold_within(longest);
    for (_, key) in &keys {
        assert_eq!((by_key(&pair[0], key), by_key(&pair[1], key)), (401, 401));
    }
}

/// A provider that begins streams and leaves them open, and answers all else.
fn lasting(peer: &mut Peer) {
    while let Some(request) = peer.request() {
        if String::from_utf8_lossy(&request.body).contains("\"stream\":true") {
            peer.say("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n");
            peer.say(format!("{:x}\r\n{FRAME}\r\n", FRAME.len()));
            while peer.wait_closed().is_none() {}
            return;
        }
        peer.say(OK);
    }
}

/// What an old process still serves while it drains ends, too, when the new one revokes its key.
#[test]
fn revocations_hold_in_a_process_that_drains_beside_a_new_one() {
    let revocations = revocations();
    let upstream = Upstream::play(lasting);
    let folder = tempfile::TempDir::new().unwrap();
    let storage = format!("{{database_path: '{}'}}", folder.path().join("weir.db").display());
    let setup = Setup::new(Driver::Auto).upstream(upstream.url()).storage(&storage).with(AUTH).unlimited();
    let mut old = setup.with("shutdown: {timeout_seconds: 300}").start();
    let tenant = old.tenant("Acme");
    let keys: Vec<_> = (0..revocations).map(|_| old.key(&tenant, "operator")).collect();
    let mut streams: Vec<Client> = keys.iter().map(|(_, key)| stream(&old, key)).collect();
    let new = old.successor(Driver::Auto);
    let mut longest = Duration::ZERO;
    for ((id, key), stream) in keys.iter().zip(&mut streams) {
        assert!(old.ended().is_none(), "it still has streams");
        assert_eq!(by_key(&new, key), 200);
        assert_eq!(new.admin(Call::delete(&format!("/api/v1/auth/keys/{id}"))).status, 204);
        assert_eq!(by_key(&new, key), 401);
        longest = longest.max(ends(stream));
    }
    println!("{revocations} revocations, each ending a stream of the draining process after {longest:?} at most");
    hold_within(longest);
    // Its last stream has ended.
    assert!(old.wait().code().is_some());
}

/// Each gateway says in turn what its own keys may use, both at the same moment: all of it stands in the end.
#[test]
fn what_two_gateways_change_of_a_tenant_at_once_is_all_there() {
    const KEYS: usize = 12;
    let upstream = Upstream::always(OK);
    let folder = tempfile::TempDir::new().unwrap();
    let database = folder.path().join("weir.db");
    let pair = [on(&database, &upstream), on(&database, &upstream)];
    let tenant = pair[0].tenant("Acme");
    let keys: Vec<_> = (0..2 * KEYS).map(|at| pair[at % 2].key(&tenant, "operator")).collect();
    for (_, key) in &keys {
        for gateway in &pair {
            eventually("both let it in", || (by_key(gateway, key) == 200).then_some(()));
        }
    }
    let access = json!({"allowed_models": ["mini"]});
    std::thread::scope(|scope| {
        for (own, gateway) in pair.iter().enumerate() {
            let (keys, access) = (&keys, &access);
            scope.spawn(move || {
                for (id, _) in keys.iter().skip(own).step_by(2) {
                    let body = json!({ "access": access });
                    let answer = gateway.admin(Call::put(&format!("/api/v1/auth/keys/{id}"), &body));
                    assert_eq!(answer.status, 200, "{}", answer.text());
                }
            });
        }
    });
    let stands = pair[0].admin(Call::get(&format!("/api/v1/tenants/{tenant}"))).json();
    let of_keys = stands["config"]["access"]["keys"].as_object().unwrap();
    let missing: Vec<_> = keys.iter().filter(|(id, _)| of_keys.get(id.as_str()) != Some(&access)).collect();
    assert!(missing.is_empty(), "{} of {} changes are lost", missing.len(), keys.len());
    for (_, key) in &keys {
        for gateway in &pair {
            eventually("both hold it to that", || (by_key(gateway, key) == 403).then_some(()));
        }
    }
}

/// The status of a call, of which nothing else is awaited.
fn begins(gateway: &Gateway, credential: &str) -> String {
    let mut client = Client::connect(gateway.addr);
    let body = with_stream(chat_body("go on")).to_string();
    client.say(format!(
        "POST /v1/chat/completions HTTP/1.1\r\nHost: weir\r\n{credential}\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    ));
    let line = client.read_until(|bytes| bytes.len() >= 12);
    String::from_utf8_lossy(&line[9..12]).into_owned()
}

/// What one gateway does with tenants, tokens, keys and their limits holds in the other ones, also in one that drains while another
/// has taken its place.
#[test]
fn tenants_tokens_and_what_keys_may_use_are_the_same_in_every_gateway_on_the_file() {
    let upstream = Upstream::play(endless);
    let folder = tempfile::TempDir::new().unwrap();
    let database = folder.path().join("weir.db");
    let (one, two) = (on(&database, &upstream), on(&database, &upstream));
    let tenant = one.tenant("Acme");
    let (_, key) = one.key(&tenant, "operator");
    // Made by one, when the other has found no file with the key of tokens.
    let token = one.token(&tenant);
    let by_key = |gateway: &Gateway| begins(gateway, &format!("Authorization: Bearer {key}"));
    let by_token = |gateway: &Gateway, token: &str| begins(gateway, &format!("X-Service-Token: {token}"));
    eventually("the token works in both", || (by_token(&two, &token) == "200").then_some(()));
    let fresh = text(&two.admin(Call::post(&format!("/api/v1/tenants/{tenant}/token/reset"), "")), "token");
    eventually("the new token works in both", || (by_token(&one, &fresh) == "200").then_some(()));
    eventually("the former one does not", || (by_token(&one, &token) == "401").then_some(()));
    eventually("the key works in both", || (by_key(&two) == "200").then_some(()));
    let config = |access: serde_json::Value| json!({ "config": { "access": access } });
    let limited = config(json!({ "allowed_models": ["only-this"] }));
    assert_eq!(two.admin(Call::put(&format!("/api/v1/tenants/{tenant}"), &limited)).status, 200);
    eventually("both hold it to its models", || (by_key(&one) == "403").then_some(()));
    assert_eq!(one.admin(Call::put(&format!("/api/v1/tenants/{tenant}"), &config(json!({})))).status, 200);
    eventually("nothing limits it in either", || (by_key(&two) == "200").then_some(()));

    let mut draining = stream(&one, &key);
    let successor = one.successor(Driver::Auto);
    eventually("the successor serves", || (by_key(&successor) == "200").then_some(()));
    assert_eq!(successor.admin(Call::delete(&format!("/api/v1/tenants/{tenant}"))).status, 204);
    let took = ends(&mut draining);
    assert!(took < SOON, "{took:?}");
    eventually("its key is nobody's in any", || (by_key(&two) == "401").then_some(()));
}
