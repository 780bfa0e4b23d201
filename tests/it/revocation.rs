//! Promise: whoever is denied is out at once, with all that is under way, and stays out though the store cannot write it down.

use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::support::{
    AUTH, Call, Client, Driver, Gateway, Peer, Setup, SmallDisk, Upstream, call, chat_body, chat_call, eventually,
    on_both_drivers, text, with_stream,
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

on_both_drivers! {
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
