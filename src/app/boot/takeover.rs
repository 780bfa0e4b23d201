//! One process takes the place of another on the same port without a refused connection: the listening sockets themselves
//! go over, so there is no moment in which none is open and no queue that is closed.
//!
//! ```text
//! new                                            old
//!  │ connects to the socket named after the address │
//!  │ ◀────────────── listening sockets ──────────── │  goes on serving
//!  │ opens its store, builds everything             │
//!  │ ─────────────── "I can" ─────────────────────▶ │  stops accepting
//!  │ ◀────────────── "it is yours" ──────────────── │  drains as after SIGTERM
//!  │ accepts                                        │
//! ```
//!
//! What is queued in between waits in the kernel. If the new process dies before "I can" nothing has happened. The two meet at
//! a socket beside the database, in a folder where nobody else can put one; without such a folder at one with an abstract name
//! (unix(7)), which any local user could take first. Each side checks the other's user.
//!
//! A process that is told to stop gives nothing away any more: it refuses takeovers, and a process that asks binds its
//! own sockets. Sockets that are out already when that happens stay open for the one that has them.
//!
//! Invariant: at any time at most one process accepts from a socket; what has been given away is not shut down.

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::net::{SocketAddr as UnixAddr, UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use weir_config::Settings;
use weir_config::settings::StorageProfile;

use crate::rt;

/// How long the new process may take to build everything.
const BUILD_LIMIT: Duration = Duration::from_secs(120);
/// How long the old one may take to stop accepting.
pub(super) const STOP_LIMIT: Duration = Duration::from_secs(5);

const I_CAN: u8 = b'R';
const YOURS: u8 = b'S';

/// Whether this process has given its sockets away, and how far it is.
#[derive(Debug, Default)]
pub(super) struct HandOver {
    given: AtomicBool,
    lent: bool,
    /// [`OUT`] and [`STOPPING`], in one word so that one of two that meet sees the other.
    state: AtomicU8,
    /// Where somebody waits.
    socket_at: Mutex<Option<Place>>,
    stopped: AtomicUsize,
}

/// Another process has the sockets, or is just getting them, and builds.
const OUT: u8 = 1;
/// This process is stopping.
const STOPPING: u8 = 2;

impl HandOver {
    /// `lent`: the sockets are a service manager's, which keeps them open for the next process.
    pub(super) fn new(lent: bool) -> Self {
        Self { lent, ..Self::default() }
    }

    /// True when others rely on the sockets: they must not be emptied or shut down.
    pub(super) fn stay_open(&self) -> bool {
        self.is_lent() || self.is_given() || self.state.load(Ordering::Acquire) & OUT != 0
    }

    /// True when the sockets are a service manager's.
    pub(super) fn is_lent(&self) -> bool {
        self.lent
    }

    /// This process stops: from now on no process gets the sockets, except one that has them already. To be called first of all.
    pub(super) fn stop(&self) {
        self.state.fetch_or(STOPPING, Ordering::AcqRel);
        let place = self.socket_at.lock().clone();
        if let Some(name) = place.and_then(|place| place.name().ok()) {
            // Wakes the thread that accepts takeovers, so that the name is free for another process.
            drop(UnixStream::connect_addr(&name));
        }
    }

    /// No process waits for a takeover any more. To be done before the socket is closed: another process may open one
    /// there from then on.
    fn close_socket(&self) {
        if let Some(Place::File(path)) = self.socket_at.lock().take() {
            // Gone already, perhaps with its folder.
            drop(std::fs::remove_file(path));
        }
    }

    /// Begins to lend the sockets; false when it is too late for that.
    fn lend(&self) -> bool {
        self.state.compare_exchange(0, OUT, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// They have not been taken.
    fn take_back(&self) {
        self.state.fetch_and(!OUT, Ordering::AcqRel);
    }

    /// True when another process accepts from the sockets from now on.
    pub(super) fn is_given(&self) -> bool {
        self.given.load(Ordering::Acquire)
    }

    /// A core accepts no more.
    pub(super) fn core_stopped(&self) {
        self.stopped.fetch_add(1, Ordering::Release);
    }

    fn wait_for(&self, cores: usize) {
        let end = Instant::now() + STOP_LIMIT;
        while self.stopped.load(Ordering::Acquire) < cores && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Where two processes meet.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Place {
    /// A socket in a folder of ours.
    File(PathBuf),
    /// An abstract name, which any process can take first.
    Abstract(SocketAddr),
}

impl Place {
    /// Where the process that serves `addr` may wait, the best first.
    fn all(addr: SocketAddr, folder: Option<&Path>) -> Vec<Self> {
        let file = folder.map(|folder| Self::File(folder.join(format!(".weir-take-over-{addr}"))));
        file.into_iter().chain([Self::Abstract(addr)]).collect()
    }

    fn name(&self) -> io::Result<UnixAddr> {
        match self {
            Self::File(path) => UnixAddr::from_pathname(path),
            Self::Abstract(addr) => UnixAddr::from_abstract_name(format!("weir-take-over-{addr}")),
        }
    }

    /// Begins to wait there.
    fn open(&self) -> io::Result<UnixListener> {
        let Self::File(path) = self else { return UnixListener::bind_addr(&self.name()?) };
        // One that a killed process has left is replaced; who serves the address is the only one to offer it.
        let mut fresh = path.clone().into_os_string();
        fresh.push(format!(".{}", std::process::id()));
        let listener = UnixListener::bind(&fresh)?;
        match std::fs::rename(&fresh, path) {
            Ok(()) => Ok(listener),
            Err(error) => {
                drop(std::fs::remove_file(&fresh));
                Err(error)
            }
        }
    }
}

/// The folder of the database, if nobody else can put anything there.
pub(super) fn folder(settings: &Settings) -> Option<PathBuf> {
    if settings.storage.profile == StorageProfile::Memory {
        return None;
    }
    let folder = settings.storage.database_path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let folder = folder.unwrap_or(Path::new("."));
    let about = std::fs::metadata(folder).ok()?;
    let is_ours = about.uid() == rt::handover::user() && about.mode() & 0o022 == 0;
    is_ours.then(|| folder.to_owned())
}

/// Waits, on a thread of its own, for a process that wants `sockets`. Once it has them, `stop` is called to begin the drain.
///
/// # Errors
/// When the name or the thread cannot be had; the gateway works without, it just cannot be taken over.
pub(super) fn offer(
    (addr, folder): (SocketAddr, Option<&Path>),
    sockets: Vec<TcpListener>,
    cores: usize,
    hand_over: Arc<HandOver>,
    stop: impl Fn() + Send + 'static,
) -> io::Result<()> {
    let mut opened = Err(io::ErrorKind::NotFound.into());
    for place in Place::all(addr, folder) {
        opened = place.open();
        if opened.is_ok() {
            *hand_over.socket_at.lock() = Some(place);
            break;
        }
    }
    let listener = opened?;
    std::thread::Builder::new().name("weir-take-over".to_owned()).spawn(move || {
        let Some(stream) = wait_at(listener, &sockets, cores, &hand_over) else { return };
        tracing::info!("another process takes over the listening sockets");
        hand_over.given.store(true, Ordering::Release);
        stop();
        hand_over.wait_for(cores);
        // If it has gone meanwhile there is nobody left to tell.
        drop((&stream).write_all(&[YOURS]));
    })?;
    Ok(())
}

/// Waits at the socket until a process has the sockets and is ready; `None` when this one stops first. The socket is closed then:
/// the name has to be free before the other process offers the sockets in its turn.
fn wait_at(listener: UnixListener, sockets: &[TcpListener], cores: usize, hand_over: &HandOver) -> Option<UnixStream> {
    while let Ok((stream, _)) = listener.accept() {
        if !rt::handover::is_trusted(&stream) {
            continue;
        }
        if !hand_over.lend() {
            // The process that asks waits until the address can be bound again, and then finds the name free: it is dropped
            // before `stream`.
            hand_over.wait_for(cores);
            hand_over.close_socket();
            drop(listener);
            return None;
        }
        match give(&stream, sockets) {
            Ok(()) => {
                hand_over.close_socket();
                return Some(stream);
            }
            Err(error) => {
                tracing::warn!(%error, "a process that wanted to take over gave up; this one keeps serving");
                hand_over.take_back();
            }
        }
    }
    None
}

/// Sends the sockets and waits until the other process can use them.
fn give(to: &UnixStream, sockets: &[TcpListener]) -> io::Result<()> {
    to.set_read_timeout(Some(BUILD_LIMIT))?;
    rt::handover::send_sockets(to, sockets)?;
    let mut said = [0];
    let mut from = to;
    from.read_exact(&mut said)?;
    if said == [I_CAN] { Ok(()) } else { Err(io::ErrorKind::InvalidData.into()) }
}

/// The sockets of a process that serves `addr` now.
pub(super) struct Inherited {
    pub(super) sockets: Vec<TcpListener>,
    from: UnixStream,
}

/// What comes of asking for sockets.
pub(super) enum Asked {
    /// They are here.
    Inherited(Inherited),
    /// Nobody offers any.
    Nobody,
    /// The process that serves the address is stopping, and gives nothing away.
    Stopping,
}

/// Asks the process that serves `addr` for its sockets.
///
/// # Errors
/// When it answers and the sockets do not come.
pub(super) fn ask(addr: SocketAddr, folder: Option<&Path>) -> io::Result<Asked> {
    let mut found = None;
    for place in Place::all(addr, folder) {
        let Ok(name) = place.name() else { continue };
        match UnixStream::connect_addr(&name) {
            Ok(stream) if rt::handover::is_trusted(&stream) => {
                found = Some(stream);
                break;
            }
            // Anybody may take an abstract name. If that one serves the address, it cannot be bound, and the start says so.
            Ok(_) => tracing::warn!(
                listen = %addr,
                "a process of another user listens on the socket for takeovers; it is ignored"
            ),
            Err(error) if matches!(error.kind(), io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound) => {}
            Err(error) => return Err(error),
        }
    }
    let Some(from) = found else { return Ok(Asked::Nobody) };
    from.set_read_timeout(Some(STOP_LIMIT * 2))?;
    match rt::handover::receive_sockets(&from) {
        Ok(sockets) => Ok(Asked::Inherited(Inherited { sockets, from })),
        Err(error) if matches!(error.kind(), io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset) => {
            Ok(Asked::Stopping)
        }
        Err(error) => Err(error),
    }
}

impl Inherited {
    /// Says that everything is built, and waits until the other process accepts no more.
    ///
    /// # Errors
    /// When it has gone or does not answer; its sockets are ours all the same.
    pub(super) fn begin(&self) -> io::Result<()> {
        let mut from = &self.from;
        from.write_all(&[I_CAN])?;
        from.read_exact(&mut [0])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A listener on offer, and how it is told to stop.
    fn on_offer() -> (TcpListener, SocketAddr, Arc<HandOver>, Arc<AtomicBool>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        let (hand_over, stopped) = (Arc::new(HandOver::new(false)), Arc::new(AtomicBool::new(false)));
        let (sockets, stop) = (vec![listener.try_clone().unwrap()], Arc::clone(&stopped));
        offer((addr, None), sockets, 1, Arc::clone(&hand_over), move || stop.store(true, Ordering::SeqCst)).unwrap();
        (listener, addr, hand_over, stopped)
    }

    #[test]
    fn sockets_that_are_out_when_the_stop_begins_are_left_open_and_handed_over() {
        let (_listener, addr, hand_over, _) = on_offer();
        let Asked::Inherited(inherited) = ask(addr, None).unwrap() else { panic!("it serves") };
        hand_over.stop();
        assert!(hand_over.stay_open() && !hand_over.is_given(), "the successor is still building");
        hand_over.core_stopped();
        inherited.begin().unwrap();
        assert!(hand_over.is_given());
        assert_eq!(inherited.sockets[0].local_addr().unwrap(), addr);
    }

    #[test]
    fn a_process_that_is_stopping_gives_nothing_away_and_leaves_its_name_to_the_next() {
        let (_listener, addr, hand_over, stopped) = on_offer();
        hand_over.stop();
        assert!(!hand_over.stay_open());
        let asking = std::thread::spawn(move || ask(addr, None).unwrap());
        hand_over.core_stopped();
        assert!(!matches!(asking.join().unwrap(), Asked::Inherited(_)));
        let end = Instant::now() + STOP_LIMIT;
        while !matches!(ask(addr, None).unwrap(), Asked::Nobody) {
            assert!(Instant::now() < end, "the socket is closed");
        }
        assert!(!stopped.load(Ordering::SeqCst), "nobody has taken over");
        Place::Abstract(addr).open().unwrap();
    }

    #[test]
    fn sockets_that_were_not_taken_come_back() {
        let (_listener, addr, hand_over, stopped) = on_offer();
        let Asked::Inherited(inherited) = ask(addr, None).unwrap() else { panic!("it serves") };
        assert!(hand_over.stay_open());
        drop(inherited);
        let end = Instant::now() + STOP_LIMIT;
        while hand_over.stay_open() {
            assert!(Instant::now() < end, "they are back");
            std::thread::yield_now();
        }
        assert!(!stopped.load(Ordering::SeqCst));
    }

    #[test]
    fn the_folder_of_the_database_is_the_place_where_it_is_ours_alone() {
        use std::os::unix::fs::PermissionsExt as _;
        let home = tempfile::TempDir::new().unwrap();
        let mut settings = Settings::default();
        settings.storage.database_path = home.path().join("weir.db");
        let mode = |mode| std::fs::set_permissions(home.path(), std::fs::Permissions::from_mode(mode)).unwrap();
        mode(0o755);
        assert_eq!(folder(&settings).as_deref(), Some(home.path()));
        mode(0o777);
        assert_eq!(folder(&settings), None, "anybody could put a socket there");
        mode(0o700);
        settings.storage.profile = StorageProfile::Memory;
        assert_eq!(folder(&settings), None, "there is none");
    }

    #[test]
    fn a_socket_that_a_killed_process_left_in_the_folder_is_replaced_and_a_stop_removes_it() {
        let home = tempfile::TempDir::new().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        let Some(Place::File(path)) = Place::all(addr, Some(home.path())).into_iter().next() else {
            panic!("a folder")
        };
        drop(UnixListener::bind(&path).unwrap());
        assert!(matches!(ask(addr, Some(home.path())).unwrap(), Asked::Nobody));
        let hand_over = Arc::new(HandOver::new(false));
        offer((addr, Some(home.path())), vec![listener], 0, Arc::clone(&hand_over), || {}).unwrap();
        assert!(matches!(ask(addr, Some(home.path())).unwrap(), Asked::Inherited(_)));
        assert!(matches!(ask(addr, None).unwrap(), Asked::Nobody), "not where anybody can wait");
        hand_over.stop();
        let end = Instant::now() + STOP_LIMIT;
        while path.exists() {
            assert!(Instant::now() < end, "the socket is closed");
            std::thread::yield_now();
        }
    }
}
