//! Promise: whatever a provider sends, a client sees at most one answer for its request, a cut answer never looks whole,
//! and a connection on which something was wrong serves nobody else.

use std::collections::{BTreeMap, HashSet};
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::answer::{Answer, StrictAnswer, strict_answer};
use super::answers::{Ending, HostileCase, answers};
use super::readings::{Strict, strict};
use super::{assert_no_faults, setting};
use crate::support::{PATIENCE, Setup, eventually, on_both_drivers};

/// How long a provider waits for another request before it goes.
const PROVIDER_PATIENCE: Duration = Duration::from_millis(150);

/// Whether nothing may follow this case on its connection: anything but one whole answer and silence.
fn is_poisonous(case: &HostileCase) -> bool {
    let all = [&case.bytes, case.later.as_bytes()].concat();
    match strict_answer(&all, case.method, case.ending == Ending::Close) {
        StrictAnswer::Whole(answer) => answer.end != all.len() || case.ending != Ending::Open,
        _ => true,
    }
}

/// A provider that answers `/r-<number>` with that case and everything else honestly.
struct Hostile {
    addr: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    cases: Vec<HostileCase>,
    stopping: AtomicBool,
    faults: Mutex<Vec<String>>,
    /// Cases of which the later part has been said too.
    said: Mutex<HashSet<usize>>,
}

impl Hostile {
    fn start(cases: Vec<HostileCase>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a loopback port");
        let addr = listener.local_addr().expect("a bound socket");
        let shared = Arc::new(Shared {
            cases,
            stopping: AtomicBool::new(false),
            faults: Mutex::default(),
            said: Mutex::default(),
        });
        std::thread::spawn({
            let shared = Arc::clone(&shared);
            move || {
                for stream in listener.incoming().map_while(Result::ok) {
                    if shared.stopping.load(Ordering::SeqCst) {
                        return;
                    }
                    let shared = Arc::clone(&shared);
                    std::thread::spawn(move || shared.serve(stream));
                }
            }
        });
        Self { addr, shared }
    }
}

impl Drop for Hostile {
    fn drop(&mut self) {
        self.shared.stopping.store(true, Ordering::SeqCst);
        drop(TcpStream::connect(self.addr));
    }
}

impl Shared {
    fn serve(&self, mut stream: TcpStream) {
        stream.set_nodelay(true).expect("a TCP socket");
        let (mut got, mut piece) = (Vec::new(), [0; 4096]);
        let mut poisoned_by = None;
        loop {
            while let Strict::Whole(seen) = strict(&got) {
                got.drain(..seen.end.unwrap_or_default());
                if let Some(id) = poisoned_by {
                    let case: &HostileCase = &self.cases[id];
                    let said = String::from_utf8_lossy(&case.bytes).into_owned();
                    let fault = format!("{} after case {id} {} {:?} {said:?}", seen.target, case.family, case.ending);
                    self.faults.lock().expect("no panic in here").push(format!("a connection was used again: {fault}"));
                }
                let id = seen.target.rsplit_once("/r-").and_then(|(_, number)| number.parse::<usize>().ok());
                let Some((id, case)) = id.and_then(|id| Some((id, self.cases.get(id)?))) else {
                    let body = if seen.method == "HEAD" { "" } else { "honest" };
                    let head =
                        format!("HTTP/1.1 200 OK\r\nContent-Length: 6\r\nX-Target: {}\r\n\r\n{body}", seen.target);
                    drop(stream.write_all(head.as_bytes()));
                    continue;
                };
                drop(stream.write_all(&case.bytes));
                if !case.later.is_empty() {
                    // By now the gateway has, or has not, seen the end of the answer: both happen.
                    std::thread::sleep(Duration::from_millis(id as u64 % 3));
                    drop(stream.write_all(case.later.as_bytes()));
                    self.said.lock().expect("no panic in here").insert(id);
                }
                match case.ending {
                    Ending::Open => stream.set_read_timeout(Some(PROVIDER_PATIENCE)).expect("a TCP socket"),
                    Ending::Close => return,
                    Ending::Reset => {
                        let socket = socket2::SockRef::from(&stream);
                        return socket.set_linger(Some(Duration::ZERO)).expect("a TCP socket");
                    }
                }
                poisoned_by = is_poisonous(case).then_some(id);
            }
            match stream.read(&mut piece) {
                Ok(count) if count > 0 => got.extend_from_slice(&piece[..count]),
                _ => return,
            }
        }
    }
}

/// A client connection that keeps what it gets.
struct Reader {
    stream: TcpStream,
    got: Vec<u8>,
}

impl Reader {
    /// One answer; `Err` with what came when the connection ends first or nothing more comes.
    fn answer(&mut self, method: &str) -> Result<Answer, String> {
        let mut piece = [0; 16 * 1024];
        let mut is_over = false;
        loop {
            match strict_answer(&self.got, method, is_over) {
                StrictAnswer::Whole(answer) => {
                    self.got.drain(..answer.end);
                    return Ok(answer);
                }
                StrictAnswer::Broken(why) => return Err(format!("malformed: {why}")),
                StrictAnswer::Partial if is_over => return Err("cut".to_owned()),
                StrictAnswer::Partial => {}
            }
            match self.stream.read(&mut piece) {
                Ok(0) => is_over = true,
                Ok(count) => self.got.extend_from_slice(&piece[..count]),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                    return Err("hung".to_owned());
                }
                Err(_) => return Err("cut".to_owned()),
            }
        }
    }
}

/// Asks for a case and then for something honest; what the client saw of the first, and what was wrong.
fn ask(gateway: SocketAddr, shared: &Shared, id: usize, case: &HostileCase) -> (String, Option<String>) {
    let stream = TcpStream::connect(gateway).expect("the gateway listens");
    stream.set_nodelay(true).expect("a TCP socket");
    stream.set_read_timeout(Some(PATIENCE)).expect("a TCP socket");
    let mut client = Reader { stream, got: Vec::new() };
    let body = if case.method == "POST" { "Content-Length: 2\r\n\r\n{}" } else { "\r\n" };
    let request = format!("{} /v1/x/r-{id} HTTP/1.1\r\nHost: x\r\n{body}", case.method);
    client.stream.write_all(request.as_bytes()).expect("the gateway takes a request");
    let first = match client.answer(case.method) {
        Err(what) if what == "cut" => return (what, None),
        Err(what) => return (what.clone(), Some(what)),
        Ok(first) => first,
    };
    let saw =
        if first.field("x-service-trace-id").is_none() { "no trace id".to_owned() } else { first.status.to_string() };
    // What the provider said, if one reading of it is whole, has to be what the client got.
    // One that stays open is closed in the end, when its provider has waited long enough.
    let all = [&case.bytes[..], case.later.as_bytes()].concat();
    let said = strict_answer(&all, case.method, case.ending != Ending::Reset);
    let is_ours = first.status == 502 && (case.method == "HEAD" || first.body.starts_with(b"{\"error\":"));
    let wrong = match &said {
        StrictAnswer::Whole(said) if !is_ours && (said.status != first.status || said.body != first.body) => {
            Some(format!("the client got {} {:?}", first.status, lossy(&first.body)))
        }
        StrictAnswer::Partial if !is_ours => Some(format!("a cut answer looks whole: {:?}", lossy(&first.body))),
        _ => None,
    };
    if wrong.is_some() {
        return (saw, wrong);
    }
    if !case.later.is_empty() {
        // What comes unasked after the next request has been sent nobody can tell from an answer to it; before, one can.
        eventually("the provider says the rest", || shared.said.lock().expect("no panic in here").get(&id).copied());
    }
    if first.field("connection") == Some("close") {
        return match client.answer("GET") {
            Err(what) if what == "cut" && client.got.is_empty() => (saw, None),
            other => (saw, Some(format!("after an announced close: {other:?}"))),
        };
    }
    if client.stream.write_all(format!("GET /next-{id} HTTP/1.1\r\nHost: x\r\n\r\n").as_bytes()).is_err() {
        return (saw, Some("the connection ended without being announced".to_owned()));
    }
    let wanted = format!("/next-{id}");
    match client.answer("GET") {
        Ok(next) if next.field("x-target") == Some(wanted.as_str()) && client.got.is_empty() => (saw, None),
        other => (saw, Some(format!("the next request got {other:?}"))),
    }
}

fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

on_both_drivers! {
    fn no_answer_of_the_corpus_reaches_a_client_twice_or_looks_whole_when_it_is_cut(driver) {
        let cases = answers(setting("SMUGGLE_SEED", 2026) as u64, setting("HOSTILE_RANDOM", 500));
        assert!(cases.len() >= 1500, "the corpus has {} cases", cases.len());
        let provider = Hostile::start(cases.clone());
        let upstream = format!("http://{}", provider.addr);
        let gateway = Setup::new(driver).upstream(upstream).unlimited().storage("{profile: memory}").start();
        let (next, seen) = (AtomicUsize::new(0), Mutex::new((BTreeMap::<String, usize>::new(), Vec::new())));
        let play = |id: usize, case: &HostileCase| {
            let (saw, wrong) = ask(gateway.addr, &provider.shared, id, case);
            let mut seen = seen.lock().expect("no panic in here");
            *seen.0.entry(saw).or_default() += 1;
            if let Some(wrong) = wrong {
                let HostileCase { family, method, ending, later, .. } = case;
                let said = lossy(&case.bytes);
                seen.1.push(format!("{family} {id} {method} {ending:?}: {wrong}\n  {said:?} later {later:?}"));
            }
        };
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    loop {
                        let id = next.fetch_add(1, Ordering::Relaxed);
                        let Some(case) = cases.get(id) else { return };
                        if case.later.is_empty() {
                            play(id, case);
                        }
                    }
                });
            }
        });
        // One by one: a request of another client could be the one that is sent too early.
        cases.iter().enumerate().filter(|(_, case)| !case.later.is_empty()).for_each(|(id, case)| play(id, case));
        let (seen, faults) = seen.into_inner().expect("no panic in here");
        println!("{} answers: {seen:?}", cases.len());
        assert_no_faults("answers went wrong", &faults);
        let reused = std::mem::take(&mut *provider.shared.faults.lock().expect("no panic in here"));
        assert_no_faults("connections were used again", &reused);
        assert!(seen.get("200").is_some_and(|count| *count > cases.len() / 20), "{seen:?}");
    }
}
