//! Promise: a member that is killed under load costs no client an answer that another member may give, is asked by nobody twice,
//! and has its share again once it is back.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use socket2::SockRef;
use weir_fake_provider::http::{RequestReader, Step};

use crate::support::{Call, Driver, call, chat_call, eventually};
use crate::upstreams::{group_with, ok, served_by};

/// A provider that can be killed with all its connections, and come back at the same address.
struct Provider {
    name: &'static str,
    addr: SocketAddr,
    inner: Arc<Inner>,
}

#[derive(Default)]
struct Inner {
    is_dead: AtomicBool,
    connections: Mutex<Vec<TcpStream>>,
    /// The targets and bodies of requests that were read whole.
    served: Mutex<Vec<String>>,
}

impl Provider {
    fn new(name: &'static str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let provider = Self { name, addr: listener.local_addr().unwrap(), inner: Arc::default() };
        provider.listen(listener);
        provider
    }

    fn url(&self) -> String {
        format!("http://{}", self.addr)
    }

    /// Accepts until it is killed.
    fn listen(&self, listener: TcpListener) {
        let (inner, name) = (Arc::clone(&self.inner), self.name);
        listener.set_nonblocking(true).unwrap();
        std::thread::spawn(move || {
            while !inner.is_dead.load(Ordering::SeqCst) {
                let Ok((socket, _)) = listener.accept() else {
                    std::thread::sleep(Duration::from_millis(1));
                    continue;
                };
                socket.set_nonblocking(false).unwrap();
                inner.connections.lock().unwrap().push(socket.try_clone().unwrap());
                let inner = Arc::clone(&inner);
                std::thread::spawn(move || serve(socket, name, &inner));
            }
        });
    }

    /// As the kernel does with a process that is killed: its listener and its connections are gone, what was unread is reset.
    fn kill(&self) {
        self.inner.is_dead.store(true, Ordering::SeqCst);
        for socket in self.inner.connections.lock().unwrap().drain(..) {
            SockRef::from(&socket).set_linger(Some(Duration::ZERO)).unwrap();
            drop(socket.shutdown(std::net::Shutdown::Both));
        }
        eventually("nobody listens there", || TcpStream::connect(self.addr).is_err().then_some(()));
    }

    fn come_back(&self) {
        let listener = eventually("the address is free", || {
            let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).ok()?;
            socket.set_reuse_address(true).ok()?;
            socket.bind(&self.addr.into()).ok()?;
            socket.listen(128).ok()?;
            Some(TcpListener::from(socket))
        });
        self.inner.is_dead.store(false, Ordering::SeqCst);
        self.listen(listener);
    }
}

fn serve(mut socket: TcpStream, name: &str, inner: &Inner) {
    let (mut reader, mut piece) = (RequestReader::default(), [0; 16 * 1024]);
    loop {
        match reader.next_step() {
            Ok(Step::Complete(request)) => {
                let what = [request.raw_head(), &request.body].concat();
                inner.served.lock().unwrap().push(String::from_utf8_lossy(&what).into_owned());
                if inner.is_dead.load(Ordering::SeqCst) || socket.write_all(ok(name).as_bytes()).is_err() {
                    return;
                }
                continue;
            }
            Ok(_) => {}
            Err(_) => return,
        }
        match socket.read(&mut piece) {
            Ok(count @ 1..) => reader.push(&piece[..count]),
            _ => return,
        }
    }
}

/// One call of the load.
struct Called {
    name: String,
    is_get: bool,
    got: String,
    ended: Instant,
}

const CLIENTS: usize = 4;
const CALLS_MIN: usize = 2_000;

#[test]
fn a_member_that_is_killed_under_load_and_comes_back() {
    let (victim, other) = (Provider::new("victim"), Provider::new("other"));
    // `eject_after` as it is without being set: three failures in a row.
    let gateway = group_with(Driver::Auto, &[victim.url(), other.url()], ("", ", balance: weights"), "{eject_ms: 500}");
    let (count, stop) = (AtomicUsize::new(0), AtomicBool::new(false));
    let calls: Mutex<Vec<Called>> = Mutex::default();
    let one = |client: usize, number: usize| {
        let (name, is_get) = (format!("call-{client}-{number}-"), number.is_multiple_of(2));
        let request = match is_get {
            true => Call::get(&format!("/upstream/all/v1/models?{name}")).bytes(),
            false => chat_call(&name).bytes(),
        };
        let got = served_by(&call(gateway.addr, request));
        calls.lock().unwrap().push(Called { name, is_get, got, ended: Instant::now() });
        count.fetch_add(1, Ordering::SeqCst);
    };
    let share = || {
        let calls = calls.lock().unwrap();
        let last = calls.iter().rev().take(100);
        last.filter(|call| call.got == "victim").count()
    };
    let (killed, back, full) = std::thread::scope(|scope| {
        for client in 0..CLIENTS {
            let (one, stop) = (&one, &stop);
            scope.spawn(move || {
                let numbers = (0..).take_while(|_| !stop.load(Ordering::SeqCst));
                numbers.for_each(|number| one(client, number));
            });
        }
        let reached =
            |wanted: usize| eventually("the load goes on", || (count.load(Ordering::SeqCst) >= wanted).then_some(()));
        reached(CALLS_MIN / 4);
        let killed = Instant::now();
        victim.kill();
        let at = count.load(Ordering::SeqCst);
        reached(at + CALLS_MIN / 4);
        let back = Instant::now();
        victim.come_back();
        eventually("it has its share again", || (share() >= 35).then_some(()));
        let full = Instant::now();
        reached(CALLS_MIN);
        stop.store(true, Ordering::SeqCst);
        (killed, back, full)
    });

    let calls = calls.into_inner().unwrap();
    let failed: Vec<_> = calls.iter().filter(|call| call.got != "victim" && call.got != "other").collect();
    let shown: Vec<_> = failed.iter().map(|call| (&call.name, call.is_get, &call.got)).collect();
    assert!(failed.iter().all(|call| !call.is_get), "a GET may be sent again: {shown:?}");
    // What was under way at the moment of the death, one call of each client, and nothing behind it but the calls that tried it.
    assert!(failed.len() <= 2 * CLIENTS, "{shown:?}");
    let logs = [&victim, &other].map(|provider| provider.inner.served.lock().unwrap().clone());
    for call in calls.iter().filter(|call| !call.is_get) {
        let times = logs.iter().flatten().filter(|request| request.contains(&call.name)).count();
        // One that was cut off may not have come as far as the provider.
        assert!(times == 1 || times == 0 && call.got == "502", "{}: {times} times, {}", call.name, call.got);
    }
    let last = failed.iter().map(|call| call.ended.saturating_duration_since(killed)).max();
    println!(
        "{} calls, {} failed, all POST; the last {last:?} after the kill; its share again {:?} after it was back, {:?} after the kill",
        calls.len(),
        failed.len(),
        full.saturating_duration_since(back),
        full.saturating_duration_since(killed),
    );
}
