//! The corpus through the gateway to servers that others wrote: nginx and HAProxy as origins, which disagree with each
//! other on half of it. Each logs what it was asked; that has to be what the clients were answered, request for request.
//!
//! Run by `.ci/full`, or by hand: `cargo test -p weir --test it differential -- --ignored --nocapture`. A server that is
//! not installed is passed over, with a line that says so.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

use super::{assert_balanced, assert_no_faults, seeded_corpus, send_all, setting};
use crate::support::{Driver, Setup, eventually};

/// A running server and where it logs `<status> <method> <target>` for each request.
struct Origin {
    child: Child,
    addr: SocketAddr,
    folder: TempDir,
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
        let log = std::fs::File::create(folder.path().join("stdout.log")).expect("a writable temporary folder");
        let child = Command::new(path).args(arguments).arg(&file).stdout(log).stderr(Stdio::null()).spawn();
        let origin = Self { child: child.expect("an executable server"), addr, folder };
        eventually(&format!("{binary} listens"), || TcpStream::connect(addr).ok());
        Some(origin)
    }

    /// Ends the server and gives the targets it answered with 200, and how many requests it refused.
    fn finish(mut self, log: &str) -> (Vec<String>, usize) {
        let stopped = Command::new("kill").arg(self.child.id().to_string()).status();
        assert!(stopped.is_ok_and(|status| status.success()), "the origin could not be told to stop");
        self.child.wait().expect("our own child");
        let text = std::fs::read(self.folder.path().join(log)).expect("the origin has a log");
        let text = String::from_utf8_lossy(&text).into_owned();
        let (mut answered, mut refused) = (Vec::new(), 0);
        for line in text.lines() {
            match line.split(' ').collect::<Vec<_>>()[..] {
                ["200", _, target] => answered.push(target.to_owned()),
                _ => refused += 1,
            }
        }
        (answered, refused)
    }
}

fn nginx(addr: SocketAddr, folder: &Path) -> String {
    let folder = folder.display();
    format!(
        "worker_processes 1; daemon off; pid {folder}/pid; error_log {folder}/error.log crit;
        events {{ worker_connections 1024; }}
        http {{
            log_format line escape=none '$status $request_method $request_uri';
            access_log {folder}/access.log line;
            client_body_temp_path {folder}/a; proxy_temp_path {folder}/b; fastcgi_temp_path {folder}/c;
            uwsgi_temp_path {folder}/d; scgi_temp_path {folder}/e;
            keepalive_requests 1000000; large_client_header_buffers 8 64k; ignore_invalid_headers off;
            underscores_in_headers on; merge_slashes off;
            server {{ listen unix:{folder}/inner; access_log off; return 200 '{{}}'; }}
            server {{
                listen {addr};
                # Through an inner server, so that a request is answered when its whole body is there.
                location / {{
                    proxy_pass http://unix:{folder}/inner;
                    add_header X-Method $request_method; add_header X-Target $request_uri;
                }}
            }}
        }}"
    )
}

fn haproxy(addr: SocketAddr, _: &Path) -> String {
    format!(
        "global
            log stdout format raw local0
        defaults
            mode http
            log global
            option http-buffer-request
            log-format \"%ST %HM %HU\"
            timeout client 20s
            timeout server 20s
            timeout connect 1s
        frontend origin
            bind {addr}
            http-request return status 200 content-type text/plain hdr X-Method %[method] hdr X-Target %[url] string \"{{}}\"
        "
    )
}

fn compare(name: &str, start: impl Fn() -> Option<Origin>, log: &str) {
    let cases = seeded_corpus();
    for driver in [Driver::ring(), Some(Driver::Epoll)].into_iter().flatten() {
        let Some(origin) = start() else {
            eprintln!("{name} is not installed: passed over (Debian: apt-get install nginx-light haproxy)");
            return;
        };
        let upstream = format!("http://{}", origin.addr);
        let gateway = Setup::new(driver).upstream(upstream).unlimited().storage("{profile: memory}").start();
        let mut tally = send_all(gateway.addr, &cases, setting("SMUGGLE_DELIVERIES", 1), 2);
        drop(gateway);
        let (answered, refused) = origin.finish(log);
        println!(
            "{name}, {driver:?}: {} cases, {} deliveries: {} served, {} canaries of {} answered, {} requests at the origin, \
             {refused} refused there, {} deliveries cut",
            cases.len(),
            tally.deliveries,
            tally.accepted,
            tally.canaries_answered,
            tally.canaries_sent,
            answered.len(),
            tally.cut
        );
        assert_no_faults("deliveries went wrong", &tally.faults);
        assert_balanced(&mut tally, answered);
        assert!(tally.accepted > cases.len() / 20, "a corpus that is always refused proves little: {}", tally.accepted);
    }
}

#[test]
#[ignore = "a long run against installed servers; .ci/full does it"]
fn differential_nginx_is_asked_what_clients_are_answered() {
    compare("nginx", || Origin::start("nginx", nginx, &["-c"]), "access.log");
}

#[test]
#[ignore = "a long run against installed servers; .ci/full does it"]
fn differential_haproxy_is_asked_what_clients_are_answered() {
    compare("haproxy", || Origin::start("haproxy", haproxy, &["-db", "-f"]), "stdout.log");
}
