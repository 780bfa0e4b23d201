//! What every suite needs: the gateway as a process, clients and providers that speak raw bytes, and the recorded
//! traces. Nothing in here uses a parser, a runtime or a type of the gateway: what checks must not inherit its bugs.

mod calling;
mod calls;
mod clock;
mod disk;
mod effort;
mod gateway;
mod gemini;
mod hostile;
mod http;
mod identity;
mod otlp;
mod records;
mod secure;
#[path = "../../hostile/texts.rs"]
mod texts;
mod upstream;
mod without;

use std::time::{Duration, Instant};

pub(crate) use calling::as_calling;
pub(crate) use calls::{Call, chat_body, chat_call, messages_body, too_much_to_try, with_stream};
pub(crate) use clock::Clock;
pub(crate) use disk::{ReadOnly, SmallDisk};
pub(crate) use effort::{superlinear, superlinear_from};
pub(crate) use gateway::{Driver, GUEST, GUEST_ARGS, Gateway, SECOND_STAGE, Setup, weir};
pub(crate) use gemini::as_gemini;
pub(crate) use hostile::{Listed, assert_linear, assert_linear_in};
pub(crate) use http::{Answer, Client, call};
pub(crate) use identity::{AUTH, BOOTSTRAP, text};
pub(crate) use otlp::{OtlpPoint, OtlpSpan, otlp_body, otlp_points, otlp_spans};
pub(crate) use secure::{Ending, counted_provider, secure_peer, secure_peer_as, secure_provider, trust};
pub(crate) use upstream::{ClosedPort, Gate, Peer, Upstream};
pub(crate) use weir_fake_provider::server::{ServerHandle, StdServer};
pub(crate) use without::do_without;

/// How long anything may take before a test gives up. Generous: machines that run tests are busy.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// Asks `probe` again and again until it has an answer; panics with `what` when that takes longer than [`PATIENCE`].
pub(crate) fn eventually<T>(what: &str, mut probe: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + PATIENCE;
    loop {
        if let Some(value) = probe() {
            return value;
        }
        assert!(Instant::now() < end, "within {PATIENCE:?} this did not happen: {what}");
        // No quicker than a tenant may ask (`rate_limiting`).
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// What a user reads: the README and all pages of the book, one after the other. Examples in them are run by tests.
pub(crate) fn pages() -> String {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut text = std::fs::read_to_string(root.join("README.md")).unwrap();
    for chapter in ["tutorial.md", "guide", "explain"] {
        let path = root.join("docs/book/src").join(chapter);
        let mut files = vec![path.clone()];
        if path.is_dir() {
            files = std::fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()).collect();
            files.sort();
        }
        for file in files {
            text.push('\n');
            text.push_str(&std::fs::read_to_string(&file).unwrap());
        }
    }
    text
}

/// The fake provider.
pub(crate) fn provider() -> ServerHandle {
    StdServer::start("127.0.0.1:0").expect("a loopback port")
}

/// Makes two tests of each function, one per I/O driver: `name::ring` and `name::epoll`. Where the kernel has no
/// io_uring the ring half fails, unless `WEIR_TESTS_WITHOUT` names `io_uring`. An attribute above a function is that of its epoll half.
macro_rules! on_both_drivers {
    ($($(#[$of_epoll:meta])* fn $name:ident($driver:ident) $body:block)+) => { $(
        mod $name {
            #[allow(unused_imports)]
            use super::*;

            fn run($driver: crate::support::Driver) $body

            #[test]
            fn ring() {
                if let Some(driver) = crate::support::Driver::ring() {
                    run(driver);
                }
            }

            #[test]
            $(#[$of_epoll])*
            fn epoll() {
                run(crate::support::Driver::Epoll);
            }
        }
    )+ };
}
pub(crate) use on_both_drivers;

/// The same for what does not depend on the driver (what is found, counted, charged, allowed): the gate runs the ring half alone, `.ci/full`
/// both.
macro_rules! on_both_drivers_in_full {
    ($($(#[$of_epoll:meta])* fn $name:ident($driver:ident) $body:block)+) => {
        crate::support::on_both_drivers! { $(
            $(#[$of_epoll])*
            #[ignore = "does not depend on the driver, whose other half is in the gate; .ci/full runs it"]
            fn $name($driver) $body
        )+ }
    };
}
pub(crate) use on_both_drivers_in_full;
