//! Promise: a backup that is taken while a gateway works, and is killed, restores whole: what had been shown before it is there, and the
//! tokens and keys of then let in. What is there is never overwritten, and what is damaged is never put in its place.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::support::{AUTH, Call, Client, Driver, Gateway, Setup, Upstream, call, chat_call, eventually, weir};

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}";

/// A configuration whose database lies in a folder of its own.
fn place(folder: &Path, upstream: &Upstream) -> PathBuf {
    fs::create_dir_all(folder).unwrap();
    let config = folder.join("service.yaml");
    let text = format!(
        "listen_addr: 127.0.0.1:0\nupstream_url: '{}'\nstorage: {{database_path: '{}'}}\n{AUTH}\n",
        upstream.url(),
        folder.join("weir.db").display()
    );
    fs::write(&config, text).unwrap();
    config
}

fn run(config: &Path, args: &[&str]) -> Output {
    let mut all = args.to_vec();
    all.extend(["--config", config.to_str().unwrap()]);
    weir(&all).output().unwrap()
}

fn said(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

#[track_caller]
fn done(output: &Output) -> String {
    assert!(output.status.success(), "{}: {}", output.status, said(output));
    said(output)
}

/// The same gateway's files, for commands beside it.
fn config_of(gateway: &Gateway) -> PathBuf {
    gateway.folder().join("service.yaml")
}

fn on(database: &Path, upstream: &Upstream) -> Gateway {
    let storage = format!("{{database_path: '{}'}}", database.display());
    Setup::new(Driver::Auto).upstream(upstream.url()).storage(&storage).with(AUTH).unlimited().start()
}

/// Whether a credential lets in.
fn lets_in(gateway: &Gateway, field: &str, credential: &str) -> bool {
    call(gateway.addr, chat_call("hello").field(field, credential).bytes()).status == 200
}

fn traces(gateway: &Gateway, tenant: &str) -> u64 {
    let answer = gateway.admin(Call::get("/api/v1/traces?limit=1").field("X-Service-Tenant-ID", tenant));
    answer.json()["total"].as_u64().unwrap()
}

/// Calls one after the other until told to stop; one that a kill ends is made again on the next gateway.
fn keep_calling(addr: &std::sync::Mutex<std::net::SocketAddr>, key: &str, stop: &AtomicBool, made: &AtomicUsize) {
    while !stop.load(Ordering::SeqCst) {
        let addr = *addr.lock().unwrap();
        let Some(mut client) = Client::try_connect(addr) else {
            std::thread::sleep(Duration::from_millis(5));
            continue;
        };
        while !stop.load(Ordering::SeqCst) && client.try_say(chat_call("Hello.").key(key).bytes()) {
            if client.answer_to("POST").map(|answer| answer.status).unwrap_or(0) != 200 {
                break;
            }
            made.fetch_add(1, Ordering::SeqCst);
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

/// Backups one after the other while calls come and the gateway is killed and started again; each of them restores and is whole.
/// `WEIR_BACKUP_SECONDS` makes it longer, with a backup every five seconds.
#[test]
fn backups_during_calls_and_kills_all_restore_whole() {
    let seconds: Option<u64> = std::env::var("WEIR_BACKUP_SECONDS").ok().map(|text| text.parse().unwrap());
    let upstream = Upstream::always(OK);
    let home = TempDir::new().unwrap();
    let (database, backups) = (home.path().join("weir.db"), home.path().join("backups"));
    let mut gateway = on(&database, &upstream);
    let tenant = gateway.tenant("Acme");
    let token = gateway.token(&tenant);
    let (_, key) = gateway.key(&tenant, "operator");
    let config = config_of(&gateway);
    let addr = std::sync::Mutex::new(gateway.addr);
    let (stop, made) = (AtomicBool::new(false), AtomicUsize::new(0));
    let mut least = Vec::new();
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| keep_calling(&addr, &key, &stop, &made));
        }
        let begun = Instant::now();
        loop {
            let round = Instant::now();
            let before = traces(&gateway, &tenant);
            let args =
                ["backup", "--to", backups.to_str().unwrap(), "--keep", "0", "--config", config.to_str().unwrap()];
            let mut command = weir(&args);
            command.stdout(Stdio::piped()).stderr(Stdio::piped());
            let child = command.spawn().unwrap();
            // Every other time the gateway is killed, and starts again, while its database is being copied.
            let output = if least.len() % 2 == 0 {
                child.wait_with_output().unwrap()
            } else {
                gateway.kill();
                gateway.restart();
                *addr.lock().unwrap() = gateway.addr;
                child.wait_with_output().unwrap()
            };
            let text = done(&output);
            assert!(text.contains("verified") && text.contains("token key"), "{text}");
            least.push(before);
            gateway.kill();
            gateway.restart();
            *addr.lock().unwrap() = gateway.addr;
            match seconds {
                None if least.len() >= 4 => break,
                Some(seconds) if begun.elapsed() > Duration::from_secs(seconds) => break,
                Some(_) => std::thread::sleep(Duration::from_secs(5).saturating_sub(round.elapsed())),
                None => {
                    let now = made.load(Ordering::SeqCst);
                    eventually("calls go on", || (made.load(Ordering::SeqCst) > now + 5).then_some(()));
                }
            }
        }
        stop.store(true, Ordering::SeqCst);
    });
    let mut all: Vec<PathBuf> = fs::read_dir(&backups).unwrap().map(|entry| entry.unwrap().path()).collect();
    all.retain(|path| path.join("manifest.json").exists());
    all.sort();
    assert_eq!(all.len(), least.len());
    // Of many, a gateway is started on each twentieth; all are restored and examined.
    let every = if seconds.is_some() { 20 } else { 1 };
    for (at, (backup, least)) in all.iter().zip(&least).enumerate() {
        let folder = home.path().join(format!("restored-{at}"));
        let config = place(&folder, &upstream);
        done(&run(&config, &["restore", backup.to_str().unwrap()]));
        done(&run(&config, &["db", "check"]));
        if at % every == 0 || at + 1 == all.len() {
            let restored = on(&folder.join("weir.db"), &upstream);
            assert!(traces(&restored, &tenant) >= *least, "backup {at} has all that was shown before it");
            assert!(lets_in(&restored, "X-Service-Token", &token), "backup {at} knows its token");
            assert!(lets_in(&restored, "Authorization", &format!("Bearer {key}")), "backup {at} knows its key");
        }
        fs::remove_dir_all(&folder).unwrap();
    }
    println!("{} backups beside {} calls, each restored whole", all.len(), made.load(Ordering::SeqCst));
}

/// A gateway with a record, stopped.
fn stopped(home: &Path, upstream: &Upstream) -> (PathBuf, String, String) {
    let mut gateway = on(&home.join("weir.db"), upstream);
    let tenant = gateway.tenant("Acme");
    let token = gateway.token(&tenant);
    for _ in 0..5 {
        assert!(lets_in(&gateway, "X-Service-Token", &token));
    }
    eventually("they are recorded", || (traces(&gateway, &tenant) == 5).then_some(()));
    gateway.terminate();
    assert!(gateway.wait().success());
    let config = place(home, upstream);
    (config, tenant, token)
}

#[test]
fn one_file_holds_it_all_and_what_is_damaged_is_refused() {
    let upstream = Upstream::always(OK);
    let home = TempDir::new().unwrap();
    let (config, tenant, token) = stopped(home.path(), &upstream);
    let tar = home.path().join("out/backup.tar");
    done(&run(&config, &["receipts", "init"]));
    fs::create_dir(home.path().join("weir.db.receipts")).unwrap();
    let text = done(&run(&config, &["backup", "--to", tar.to_str().unwrap()]));
    assert!(text.contains("not in it: configuration"), "{text}");
    assert!(text.contains("not in it: receipts: their files are only ever added to"), "{text}");
    // Any tar reads it.
    let listed = std::process::Command::new("tar").args(["tf", tar.to_str().unwrap()]).output().unwrap();
    assert_eq!(
        String::from_utf8_lossy(&listed.stdout),
        "manifest.json\nweir.db\ntoken.key\nreceipts.key\n",
        "{}",
        said(&listed)
    );
    let other = place(&home.path().join("other"), &upstream);
    let verified = done(&run(&other, &["restore", tar.to_str().unwrap(), "--verify"]));
    assert!(verified.contains("whole, schema version"), "{verified}");
    assert_eq!(fs::read_dir(home.path().join("other")).unwrap().count(), 1, "nothing but the configuration");

    // Each byte that is altered is found, wherever it is: here one in each block in turn.
    let whole = fs::read(&tar).unwrap();
    let spoilt = home.path().join("spoilt.tar");
    for at in (0..whole.len() - 1_024).step_by(whole.len() / 12) {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x20;
        fs::write(&spoilt, &bytes).unwrap();
        let output = run(&other, &["restore", spoilt.to_str().unwrap()]);
        // What fills a block up is nobody's; the backup is what it was.
        let harmless = output.status.success();
        if harmless {
            fs::remove_file(home.path().join("other/weir.db")).unwrap();
            fs::remove_file(home.path().join("other/weir.db.key")).unwrap();
            fs::remove_file(home.path().join("other/weir.db.receipts.key")).unwrap();
        }
        let left = home.path().join("other/weir.db").exists();
        assert!(!left, "byte {at}: {}", said(&output));
    }
    fs::write(&spoilt, &whole[..whole.len() / 2]).unwrap();
    let output = run(&other, &["restore", spoilt.to_str().unwrap()]);
    assert!(!output.status.success() && said(&output).contains("the manifest says"), "{}", said(&output));
    assert!(!home.path().join("other/weir.db").exists());

    done(&run(&other, &["restore", tar.to_str().unwrap()]));
    let signing = |folder: &str| fs::read(home.path().join(folder).join("weir.db.receipts.key")).unwrap();
    assert_eq!(signing("other"), signing("."));
    let restored = on(&home.path().join("other/weir.db"), &upstream);
    assert_eq!(traces(&restored, &tenant), 5);
    assert!(lets_in(&restored, "X-Service-Token", &token));
}

#[test]
fn what_is_there_is_moved_aside_and_only_when_nobody_uses_it() {
    let upstream = Upstream::always(OK);
    let home = TempDir::new().unwrap();
    let (config, tenant, _) = stopped(home.path(), &upstream);
    let backups = home.path().join("backups");
    let backup = |more: &[&str]| {
        let mut args = vec!["backup", "--to", backups.to_str().unwrap()];
        args.extend(more);
        done(&run(&config, &args))
    };
    for _ in 0..3 {
        backup(&["--keep", "2"]);
    }
    assert!(backup(&["--keep", "2"]).contains("1 older backup(s) removed"));
    let without = backup(&["--without-key"]);
    assert!(without.contains("not in it: token key: --without-key"), "{without}");
    let names = || fs::read_dir(&backups).unwrap().filter(|entry| entry.as_ref().unwrap().path().is_dir()).count();
    assert_eq!(names(), 3);

    let restore = |more: &[&str]| {
        let mut args = vec!["restore", backups.to_str().unwrap()];
        args.extend(more);
        run(&config, &args)
    };
    let refused = restore(&[]);
    assert!(refused.status.code() == Some(2) && said(&refused).contains("--replace"), "{}", said(&refused));
    let gateway = on(&home.path().join("weir.db"), &upstream);
    let refused = restore(&["--replace"]);
    assert!(refused.status.code() == Some(2) && said(&refused).contains("a gateway uses it"), "{}", said(&refused));
    assert_eq!(traces(&gateway, &tenant), 5, "it goes on with its own");
    drop(gateway);
    let text = done(&restore(&["--replace"]));
    assert!(text.contains("what was there is"), "{text}");
    let aside = fs::read_dir(home.path()).unwrap().filter_map(Result::ok);
    let aside: Vec<PathBuf> = aside
        .map(|entry| entry.path())
        .filter(|path| {
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            name.starts_with("weir.db.replaced-") && !name.ends_with("-wal") && !name.ends_with("-shm")
        })
        .collect();
    assert_eq!(aside.len(), 1, "{aside:?}");
    done(&run(&config, &["db", "check", "--database", aside[0].to_str().unwrap()]));
    // The backup was made without the key, and the one that is there was left.
    assert!(home.path().join("weir.db.key").exists());
}

#[test]
fn a_database_that_is_damaged_is_said_to_be_and_no_backup_is_made_of_it() {
    let upstream = Upstream::always(OK);
    let home = TempDir::new().unwrap();
    let (config, ..) = stopped(home.path(), &upstream);
    let database = home.path().join("weir.db");
    assert!(done(&run(&config, &["db", "check"])).contains("whole,"));
    let damage = |pages: std::ops::Range<usize>| {
        let mut bytes = fs::read(&database).unwrap();
        pages.for_each(|page| bytes[page * 8_192..page * 8_192 + 64].fill(0x5a));
        fs::write(&database, bytes).unwrap();
        let output = run(&config, &["db", "check"]);
        assert!(!output.status.success() && said(&output).contains("weir restore"), "{}", said(&output));
        said(&output)
    };
    // SQLite names a place in a text of two lines: the page is the first of a table.
    let one = damage(3..4);
    assert!(one.contains("\n      Tree 4 page 4:") && !one.contains('\u{fffd}'), "{one}");
    damage(3..fs::metadata(&database).unwrap().len() as usize / 8_192);
    let output = run(&config, &["backup", "--to", home.path().join("backups").to_str().unwrap()]);
    assert!(!output.status.success(), "{}", said(&output));
    let left = fs::read_dir(home.path().join("backups")).unwrap().filter_map(Result::ok);
    let left: Vec<String> = left.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    assert!(left.iter().all(|name| name == ".weir-backup.lock"), "{left:?}");
}

#[test]
fn an_upgrade_says_what_it_will_do_and_what_was_before_it_comes_back() {
    let upstream = Upstream::always(OK);
    let home = TempDir::new().unwrap();
    let (config, tenant, token) = stopped(home.path(), &upstream);
    let current = done(&run(&config, &["upgrade", "--check"]));
    assert!(current.contains("needs no migration"), "{current}");
    let down = run(&config, &["migrate", "--down"]);
    if !down.status.success() {
        // The last migration is one without a way back: it says which way there is.
        assert!(said(&down).contains("weir restore"), "{}", said(&down));
        return;
    }
    let due = done(&run(&config, &["upgrade", "--check"]));
    assert!(due.contains("1 migration(s) will be applied") && due.contains("is copied before"), "{due}");
    let up = done(&run(&config, &["migrate"]));
    assert!(up.contains("as it was before:"), "{up}");
    let copy = up.trim().rsplit_once(' ').unwrap().1.to_owned();
    assert!(copy.contains("weir.db.schema-"), "{copy}");
    let gateway = on(&home.path().join("weir.db"), &upstream);
    assert!(lets_in(&gateway, "X-Service-Token", &token));
    eventually("it is recorded", || (traces(&gateway, &tenant) == 6).then_some(()));
    drop(gateway);
    done(&run(&config, &["restore", &copy, "--replace"]));
    let gateway = on(&home.path().join("weir.db"), &upstream);
    assert_eq!(traces(&gateway, &tenant), 5, "as it was before the migration");
    assert!(lets_in(&gateway, "X-Service-Token", &token), "with the key that was there");
    let memory = home.path().join("memory.yaml");
    fs::write(&memory, "storage: {profile: memory}\n").unwrap();
    let output = run(&memory, &["backup", "--to", home.path().to_str().unwrap()]);
    assert!(output.status.code() == Some(2) && said(&output).contains("memory"), "{}", said(&output));
}
