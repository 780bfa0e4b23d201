//! A small single-threaded runtime on edge-triggered epoll: readiness, tasks, timers to the nanosecond.
//!
//! Sockets are tried first and waited for only when they would block, so a busy connection costs one read and one write
//! per request and no other call. A short read counts as drained (the next byte is a new edge), except when the peer
//! has finished, because no further edge would tell.
//!
//! Invariant: an event carries the generation of its slot, so an event of a closed socket never wakes its successor.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::io::{self, Read as _, Write as _};
use std::net::{self, Shutdown, SocketAddr};
use std::os::fd::AsFd;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use futures_util::future::LocalBoxFuture;
use futures_util::stream::{FuturesUnordered, Stream as _};
use socket2::{Domain, Protocol, Type};

use super::epoll_sys::{Epoll, Event};

const BACKLOG: i32 = 1024;
/// Rounds of ready tasks between two looks at the kernel.
const ROUNDS_MAX: usize = 4;

thread_local! {
    static REACTOR: RefCell<Option<Rc<Reactor>>> = const { RefCell::new(None) };
}

struct Reactor {
    epoll: RefCell<Epoll>,
    slots: RefCell<Slots>,
    timers: RefCell<BTreeMap<(Instant, u64), Waker>>,
    timer_ids: Cell<u64>,
    spawned: RefCell<Vec<LocalBoxFuture<'static, ()>>>,
}

#[derive(Default)]
struct Slots {
    all: Vec<Slot>,
    free: Vec<usize>,
}

#[derive(Default)]
struct Slot {
    generation: u32,
    readable: bool,
    writable: bool,
    closed: bool,
    reader: Option<Waker>,
    writer: Option<Waker>,
}

/// A waker that only notes the wake: the loop looks before it sleeps.
struct Flag(AtomicBool);

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Release);
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.0.store(true, Ordering::Release);
    }
}

/// Clears the thread's reactor, also when the future panics.
struct Entered;

impl Drop for Entered {
    fn drop(&mut self) {
        REACTOR.take();
    }
}

fn reactor() -> io::Result<Rc<Reactor>> {
    REACTOR.with_borrow(Clone::clone).ok_or_else(|| io::Error::other("outside of the runtime"))
}

/// Runs a future to its end; tasks still running then are dropped.
pub(super) fn block_on<T>(future: impl Future<Output = T>) -> io::Result<T> {
    let reactor = Rc::new(Reactor {
        epoll: RefCell::new(Epoll::new()?),
        slots: RefCell::default(),
        timers: RefCell::default(),
        timer_ids: Cell::new(0),
        spawned: RefCell::default(),
    });
    REACTOR.set(Some(Rc::clone(&reactor)));
    let _entered = Entered;
    let mut future = std::pin::pin!(future);
    let mut tasks = FuturesUnordered::new();
    let (main_flag, tasks_flag) = (Arc::new(Flag(AtomicBool::new(true))), Arc::new(Flag(AtomicBool::new(false))));
    let (main_waker, tasks_waker) = (Waker::from(Arc::clone(&main_flag)), Waker::from(Arc::clone(&tasks_flag)));
    loop {
        for _ in 0..ROUNDS_MAX {
            if main_flag.0.swap(false, Ordering::Acquire)
                && let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&main_waker))
            {
                return Ok(output);
            }
            tasks.extend(reactor.spawned.take());
            tasks_flag.0.store(false, Ordering::Release);
            let mut context = Context::from_waker(&tasks_waker);
            while let Poll::Ready(Some(())) = Pin::new(&mut tasks).poll_next(&mut context) {}
            if !reactor.awake(&main_flag, &tasks_flag) {
                break;
            }
        }
        let limit = match reactor.awake(&main_flag, &tasks_flag) {
            true => Some(Duration::ZERO),
            false => reactor.until_next_timer(),
        };
        reactor.wait(limit)?;
    }
}

/// Starts a task of its own; it ends with the runtime at the latest.
pub(crate) fn spawn(future: impl Future<Output = ()> + 'static) {
    if let Ok(reactor) = reactor() {
        reactor.spawned.borrow_mut().push(Box::pin(future));
    }
}

impl Reactor {
    fn awake(&self, main: &Flag, tasks: &Flag) -> bool {
        main.0.load(Ordering::Acquire) || tasks.0.load(Ordering::Acquire) || !self.spawned.borrow().is_empty()
    }

    fn until_next_timer(&self) -> Option<Duration> {
        let timers = self.timers.borrow();
        timers.first_key_value().map(|((due, _), _)| due.saturating_duration_since(Instant::now()))
    }

    fn wait(&self, limit: Option<Duration>) -> io::Result<()> {
        let mut slots = self.slots.borrow_mut();
        self.epoll.borrow_mut().wait(limit, |event| slots.happened(event))?;
        drop(slots);
        let mut timers = self.timers.borrow_mut();
        if !timers.is_empty() {
            let now = Instant::now();
            while let Some(entry) = timers.first_entry().filter(|entry| entry.key().0 <= now) {
                entry.remove().wake();
            }
        }
        Ok(())
    }
}

impl Slots {
    fn happened(&mut self, event: Event) {
        let Some(slot) = self.all.get_mut((event.key & u64::from(u32::MAX)) as usize) else { return };
        if u64::from(slot.generation) != event.key >> 32 {
            return;
        }
        slot.closed |= event.closed;
        if event.readable {
            slot.readable = true;
            slot.reader.take().into_iter().for_each(Waker::wake);
        }
        if event.writable {
            slot.writable = true;
            slot.writer.take().into_iter().for_each(Waker::wake);
        }
    }
}

/// A descriptor's place in the reactor.
struct Registration {
    reactor: Rc<Reactor>,
    index: usize,
}

impl Registration {
    fn new(socket: &impl AsFd) -> io::Result<Self> {
        let reactor = reactor()?;
        let mut slots = reactor.slots.borrow_mut();
        let index = slots.free.pop().unwrap_or_else(|| {
            slots.all.push(Slot::default());
            slots.all.len() - 1
        });
        let generation = slots.all.get(index).map_or(0, |slot| slot.generation);
        let key = index as u64 | u64::from(generation) << 32;
        drop(slots);
        let registration = Self { reactor, index };
        registration.reactor.epoll.borrow().add(socket.as_fd(), key)?;
        Ok(registration)
    }

    fn slot<T>(&self, look: impl FnOnce(&mut Slot) -> T) -> Option<T> {
        self.reactor.slots.borrow_mut().all.get_mut(self.index).map(look)
    }

    /// Waits for the next edge; whoever calls has just seen the socket would block.
    fn wait_readable(&self, waker: &Waker) {
        self.slot(|slot| {
            slot.readable = false;
            slot.reader = Some(waker.clone());
        });
    }

    fn wait_writable(&self, waker: &Waker) {
        self.slot(|slot| {
            slot.writable = false;
            slot.writer = Some(waker.clone());
        });
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        let mut slots = self.reactor.slots.borrow_mut();
        if let Some(slot) = slots.all.get_mut(self.index) {
            *slot = Slot { generation: slot.generation.wrapping_add(1), ..Slot::default() };
            slots.free.push(self.index);
        }
    }
}

/// A timer.
pub(super) struct Sleep {
    due: Instant,
    /// Set once the timer stands in the reactor.
    id: Option<u64>,
}

impl Sleep {
    pub(super) fn until(due: Instant) -> Self {
        Self { due, id: None }
    }
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if Instant::now() >= self.due {
            return Poll::Ready(());
        }
        // Outside of the runtime nothing would ever fire; the wait is over then.
        let Ok(reactor) = reactor() else { return Poll::Ready(()) };
        let id = *self.id.get_or_insert_with(|| {
            reactor.timer_ids.set(reactor.timer_ids.get() + 1);
            reactor.timer_ids.get()
        });
        reactor.timers.borrow_mut().insert((self.due, id), context.waker().clone());
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let (Some(id), Ok(reactor)) = (self.id, reactor()) {
            reactor.timers.borrow_mut().remove(&(self.due, id));
        }
    }
}

/// A TCP connection, Nagle's algorithm off.
pub(crate) struct Socket {
    registration: Rc<Registration>,
    stream: Rc<net::TcpStream>,
    silence_max: Option<Duration>,
}

impl Socket {
    /// Opens a connection. `silence_max` bounds the opening and later every single read and write.
    pub(crate) async fn connect(addr: SocketAddr, silence_max: Duration) -> io::Result<Self> {
        let socket = socket2::Socket::new(Domain::for_address(addr), Type::STREAM, Some(Protocol::TCP))?;
        socket.set_nonblocking(true)?;
        let started = socket.connect(&addr.into());
        let connected = Self::new(socket.into(), Some(silence_max))?;
        match started {
            Err(error) if error.raw_os_error() == Some(libc::EINPROGRESS) => {
                bounded(connected.silence_max, |context| {
                    let writable = connected.registration.slot(|slot| slot.writable) == Some(true);
                    if writable {
                        return Poll::Ready(Ok(()));
                    }
                    connected.registration.wait_writable(context.waker());
                    Poll::Pending
                })
                .await?;
                connected.stream.take_error()?.map_or(Ok(connected), Err)
            }
            outcome => outcome.map(|()| connected),
        }
    }

    fn new(stream: net::TcpStream, silence_max: Option<Duration>) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        let registration = Registration::new(&stream)?;
        Ok(Self { registration: Rc::new(registration), stream: Rc::new(stream), silence_max })
    }

    /// Reads what is there, waiting for the first byte; 0 is the end.
    pub(crate) async fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let Self { registration, stream, silence_max } = self;
        bounded(*silence_max, |context| {
            if registration.slot(|slot| slot.readable) == Some(true) {
                match (&**stream).read(buf) {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {
                        context.waker().wake_by_ref();
                        return Poll::Pending;
                    }
                    Ok(count) => {
                        if count < buf.len() {
                            registration.slot(|slot| slot.readable = slot.closed);
                        }
                        return Poll::Ready(Ok(count));
                    }
                    Err(error) => return Poll::Ready(Err(error)),
                }
            }
            registration.wait_readable(context.waker());
            Poll::Pending
        })
        .await
    }

    /// Writes everything.
    pub(crate) async fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        let Self { registration, stream, silence_max } = self;
        let mut rest = bytes;
        while !rest.is_empty() {
            let count = bounded(*silence_max, |context| match (&**stream).write(rest) {
                Ok(0) => Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    registration.wait_writable(context.waker());
                    Poll::Pending
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => Poll::Ready(Ok(0)),
                outcome => Poll::Ready(outcome),
            })
            .await?;
            rest = rest.get(count..).unwrap_or_default();
        }
        Ok(())
    }

    /// The same connection twice: one to read from, one to write to, each by a task of its own.
    pub(crate) fn split(self) -> (Self, Self) {
        let Self { registration, stream, silence_max } = &self;
        let writer =
            Self { registration: Rc::clone(registration), stream: Rc::clone(stream), silence_max: *silence_max };
        (self, writer)
    }

    /// When the connection is dropped, its peer is told that it broke.
    pub(crate) fn reset_when_dropped(&self) -> io::Result<()> {
        socket2::SockRef::from(&*self.stream).set_linger(Some(Duration::ZERO))
    }

    /// Says that nothing more will be written.
    pub(crate) fn finish(&self) -> io::Result<()> {
        self.stream.shutdown(Shutdown::Write)
    }
}

/// A listening socket that shares its port with others of this process.
pub(crate) struct Listener {
    registration: Registration,
    listener: net::TcpListener,
}

impl Listener {
    /// Listens.
    pub(crate) fn bind(addr: SocketAddr) -> io::Result<Self> {
        let socket = socket2::Socket::new(Domain::for_address(addr), Type::STREAM, Some(Protocol::TCP))?;
        socket.set_reuse_port(true)?;
        socket.set_reuse_address(true)?;
        socket.bind(&addr.into())?;
        socket.listen(BACKLOG)?;
        socket.set_nonblocking(true)?;
        let listener: net::TcpListener = socket.into();
        let registration = Registration::new(&listener)?;
        Ok(Self { registration, listener })
    }

    /// Waits for the next connection.
    pub(crate) async fn accept(&self) -> io::Result<Socket> {
        let stream = poll_fn(|context| match self.listener.accept() {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                self.registration.wait_readable(context.waker());
                Poll::Pending
            }
            outcome => Poll::Ready(outcome),
        })
        .await?
        .0;
        Socket::new(stream, None)
    }
}

/// Repeats an attempt until it is ready or, if there is a limit, until that much time has passed.
async fn bounded<T>(
    limit: Option<Duration>,
    mut attempt: impl FnMut(&mut Context<'_>) -> Poll<io::Result<T>>,
) -> io::Result<T> {
    let mut timer: Option<Sleep> = None;
    poll_fn(|context| {
        if let Poll::Ready(outcome) = attempt(context) {
            return Poll::Ready(outcome);
        }
        let Some(limit) = limit else { return Poll::Pending };
        // Set up only when something has to be waited for.
        let timer = timer.get_or_insert_with(|| Sleep::until(Instant::now() + limit));
        Pin::new(timer).poll(context).map(|()| Err(io::ErrorKind::TimedOut.into()))
    })
    .await
}
