//! The corpus through the gateway to servers that others wrote: nginx and HAProxy, which disagree with each other on half
//! of it, stand between the gateway and the recorder. What they understood reaches the recorder, and that has to be what
//! the clients were answered, request for request: a request that one of them sees and the gateway does not is one too many.
//!
//! Run by `.ci/full`, or by hand: `cargo test -p weir --test it differential -- --ignored --nocapture`. A server that is
//! not installed is passed over, with a line that says so.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

use super::recorder::Recorder;
use super::{assert_balanced, assert_no_faults, seeded_corpus, send_all, setting};
use crate::support::{Driver, Setup, do_without, eventually};

/// A running server; ended by its own id when the handle goes.
struct Origin {
    child: Child,
    addr: SocketAddr,
    _folder: TempDir,
}

impl Origin {
    /// `None` when `binary` is not installed.
    fn start(binary: &str, config: impl Fn(SocketAddr, &Path) -> String, arguments: &[&str]) -> Option<Self> {
        let path = ["/usr/sbin", "/usr/local/sbin", "/usr/bin"].map(|folder| Path::new(folder).join(binary));
        let path = path.into_iter().find(|path| path.exists())?;
        let folder = TempDir::new().expect("a temporary folder");
        let addr = TcpListener::bind("127.0.0.1:0").and_then(|probe| probe.local_addr()).expect("a loopback port");
        let file = folder.path().join("config");
        std::fs::write(&file, config(addr, folder.path())).expect("a writable temporary folder");
        let child = Command::new(path).args(arguments).arg(&file).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let origin = Self { child: child.expect("an executable server"), addr, _folder: folder };
        eventually(&format!("{binary} listens"), || TcpStream::connect(addr).ok());
        Some(origin)
    }
}

impl Drop for Origin {
    fn drop(&mut self) {
        // Politely, so that nginx ends its worker too; fails when it has ended by itself.
        drop(Command::new("kill").arg(self.child.id().to_string()).status());
        drop(self.child.wait());
    }
}

fn nginx(addr: SocketAddr, recorder: SocketAddr, folder: &Path) -> String {
    let folder = folder.display();
    format!(
        "worker_processes 1; daemon off; pid {folder}/pid; error_log {folder}/error.log crit;
        events {{ worker_connections 1024; }}
        http {{
            access_log off;
            client_body_temp_path {folder}/a; proxy_temp_path {folder}/b; fastcgi_temp_path {folder}/c;
            uwsgi_temp_path {folder}/d; scgi_temp_path {folder}/e;
            keepalive_requests 1000000; large_client_header_buffers 8 64k; ignore_invalid_headers off;
            underscores_in_headers on; merge_slashes off;
            upstream recorder {{ server {recorder}; keepalive 64; }}
            server {{
                listen {addr};
                location / {{
                    proxy_pass http://recorder;
                    proxy_http_version 1.1;
                    proxy_set_header Connection '';
                    proxy_next_upstream off;
                }}
            }}
        }}"
    )
}

fn haproxy(addr: SocketAddr, recorder: SocketAddr) -> String {
    format!(
        "defaults
            mode http
            timeout client 20s
            timeout server 20s
            timeout connect 5s
            retries 0
            http-reuse safe
        frontend origin
            bind {addr}
            default_backend recorder
        backend recorder
            server recorder {recorder}
"
    )
}

fn compare(name: &str, start: impl Fn(SocketAddr) -> Option<Origin>) {
    let cases = seeded_corpus();
    for driver in [Driver::ring(), Some(Driver::Epoll)].into_iter().flatten() {
        let recorder = Recorder::start();
        let Some(origin) = start(recorder.addr) else {
            return do_without(name, "it is not installed (Debian: apt-get install nginx-light haproxy)");
        };
        let upstream = format!("http://{}", origin.addr);
        let gateway = Setup::new(driver).upstream(upstream).unlimited().storage("{profile: memory}").start();
        let mut tally = send_all(gateway.addr, &cases, setting("SMUGGLE_DELIVERIES", 1), 2);
        drop(gateway);
        drop(origin);
        let recorded = recorder.finish();
        println!(
            "{name}, {driver:?}: {} cases, {} deliveries, {} served, {} of {} canaries answered, {} requests behind {name}, \
             {} connections behind it not canonical, {} deliveries cut",
            cases.len(),
            tally.deliveries,
            tally.accepted,
            tally.canaries_answered,
            tally.canaries_sent,
            recorded.answered.len(),
            recorded.faults.len(),
            tally.cut
        );
        assert_no_faults("deliveries went wrong", &tally.faults);
        assert_balanced(&mut tally, recorded.answered);
        assert!(tally.accepted > cases.len() / 20, "a corpus that is always refused proves little: {}", tally.accepted);
    }
}

#[test]
#[ignore = "a long run against installed servers; .ci/full does it"]
fn differential_nginx_understands_what_clients_are_answered() {
    compare("nginx", |recorder| Origin::start("nginx", |addr, folder| nginx(addr, recorder, folder), &["-c"]));
}

#[test]
#[ignore = "a long run against installed servers; .ci/full does it"]
fn differential_haproxy_understands_what_clients_are_answered() {
    compare("haproxy", |recorder| Origin::start("haproxy", |addr, _| haproxy(addr, recorder), &["-db", "-f"]));
}
