//! Promise: sockets that a service manager opened are served (sd_listen_fds(3)), and outlive the process: nobody is refused
//! between two of them.

use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

use crate::support::{Call, Client, call, chat_call, eventually, provider};

/// What a service manager does: `weir` with `socket` as descriptor 3, named by the environment.
fn start(socket: &TcpListener, folder: &TempDir, settings: &str) -> Child {
    let config = folder.path().join("service.yaml");
    std::fs::write(&config, settings).unwrap();
    let script = "exec 3<&0 </dev/null; LISTEN_PID=$$ LISTEN_FDS=1 exec \"$0\" --config \"$1\"";
    let mut command = Command::new("sh");
    command.env_clear().args(["-c", script, env!("CARGO_BIN_EXE_weir")]).arg(config);
    let passed = OwnedFd::from(socket.try_clone().unwrap());
    command.stdin(Stdio::from(passed)).stderr(Stdio::piped()).spawn().unwrap()
}

/// SIGTERM; the exit code.
fn stop(mut gateway: Child) -> Option<i32> {
    let sent = Command::new("kill").args(["-TERM", &gateway.id().to_string()]).status();
    assert!(sent.unwrap().success());
    eventually("it ends", || gateway.try_wait().unwrap()).code()
}

#[test]
fn a_passed_socket_is_served_by_every_core_and_outlives_the_process() {
    let provider = provider();
    for driver in ["auto", "epoll"] {
        let socket = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = socket.local_addr().unwrap();
        let folder = TempDir::new().unwrap();
        let settings = format!(
            "listen_addr: {addr}\nupstream_url: {}\nstorage: {{profile: memory}}\n\
             server: {{io_driver: {driver}, core_threads: 3}}\n",
            provider.url()
        );
        for _ in 0..2 {
            // It comes before the gateway does, and waits.
            let mut early = Client::connect(addr);
            early.say(chat_call("hello").bytes());
            let gateway = start(&socket, &folder, &settings);
            assert_eq!(early.answer_to("POST").unwrap().status, 200);
            for _ in 0..30 {
                assert_eq!(call(addr, Call::get("/livez").bytes()).status, 200);
            }
            assert_eq!(stop(gateway), Some(0));
        }
    }
}

#[test]
fn a_passed_socket_that_listens_elsewhere_is_named() {
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    let folder = TempDir::new().unwrap();
    let gateway = start(&socket, &folder, "listen_addr: 127.0.0.1:0\nstorage: {profile: memory}\n");
    let output = gateway.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code() > Some(0), "{said}");
    for part in ["listen_addr", "LISTEN_FDS", &socket.local_addr().unwrap().to_string(), "ListenStream="] {
        assert!(said.contains(part), "`{part}` is not in: {said}");
    }
}
