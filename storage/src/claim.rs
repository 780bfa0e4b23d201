//! The right to read what is stored for a consumer, which one process has at a time.
//!
//! Processes that share a database are on one machine, as its log of changes needs memory they share; so a lock of the system on a file
//! beside the database is the right, and the system gives it on when its holder ends, however that is.

use std::fmt;
use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Processes that can be told apart; later ones use the database all the same.
const LINES_MAX: u32 = 32;
/// Bytes of the line that names a process: it is written and read whole.
const LINE_BYTES: usize = 128;
/// Between two looks at whether a process has ended.
const STEP: Duration = Duration::from_millis(20);

/// Held by whoever reads for a consumer; given up with it.
#[derive(Debug)]
#[must_use = "it is given up at once"]
pub struct ReadingClaim {
    _lock: Option<File>,
}

impl ReadingClaim {
    /// That of a store which one process alone has.
    pub const fn sole() -> Self {
        Self { _lock: None }
    }

    /// That of a store in the file `database`; `None` where somebody else holds it.
    pub(crate) fn beside(database: &Path, consumer: &str) -> io::Result<Option<Self>> {
        let mut path = database.as_os_str().to_owned();
        path.push(format!("-reader-{consumer}"));
        let lock = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path)?;
        match lock.try_lock() {
            Ok(()) => Ok(Some(Self { _lock: Some(lock) })),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }
}

/// Says, as long as it is held, that a gateway uses a database file, and to the others on it which process that is.
///
/// A lock on one file says that there is one at all, so that the database is not exchanged beneath it. Each process also has a file of
/// its own, `<database>-gateway-<number>`, which it has locked and which names it: the system gives both locks back however it ends.
#[derive(Debug)]
#[must_use = "it is given up at once"]
pub struct UseClaim {
    _lock: File,
    /// `None` where there are too many to name each.
    own: Option<OwnLine>,
    database: PathBuf,
}

/// The file that names this process.
#[derive(Debug)]
struct OwnLine {
    number: u32,
    file: File,
    addr: SocketAddr,
}

/// Another process that uses the same database file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Neighbour {
    /// Its number, as it sees it itself; `None` where it has not said yet.
    pub process: Option<u32>,
    /// Where it listens.
    pub addr: Option<SocketAddr>,
    /// How far it is.
    pub phase: UsePhase,
}

/// How far a process is that uses a database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UsePhase {
    /// It takes no calls yet.
    Starting,
    /// It takes calls.
    Serving,
    /// It only finishes what it has begun.
    Draining,
}

impl UsePhase {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Serving => "serving",
            Self::Draining => "draining",
        }
    }
}

impl fmt::Display for Neighbour {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.process, self.addr) {
            (Some(process), Some(addr)) => write!(to, "process {process}, which listens on {addr}"),
            (Some(process), None) => write!(to, "process {process}"),
            _ => write!(to, "a process that is starting"),
        }
    }
}

/// What came of the wish to use a database.
#[derive(Debug)]
pub enum Joined {
    /// This process uses it, beside these.
    Beside(UseClaim, Vec<Neighbour>),
    /// This one stands against it.
    Refused(Neighbour),
}

impl UseClaim {
    /// Begins to use the database in this file as a gateway that listens on `addr`, unless one of those that use it already is none
    /// that is `tolerated`. Such a one is waited for as long as `patience` says: it may be about to end.
    ///
    /// # Errors
    /// The files for the locks cannot be made or locked.
    pub fn join(
        database: &Path,
        addr: SocketAddr,
        patience: impl Fn(&Neighbour) -> Duration,
        tolerated: impl Fn(&Neighbour) -> bool,
    ) -> io::Result<Joined> {
        let begun = Instant::now();
        loop {
            // Of two that start at the same moment one is the first.
            let turn = open(&line_file(database, 0))?;
            turn.lock()?;
            let others = neighbours(database, None)?;
            let Some(other) = others.iter().find(|other| !tolerated(other)) else {
                let lock = open(&users(database))?;
                // Held alone for no longer than a look takes.
                lock.lock_shared()?;
                let own = OwnLine::take(database, addr)?;
                return Ok(Joined::Beside(Self { _lock: lock, own, database: database.to_owned() }, others));
            };
            if begun.elapsed() >= patience(other) {
                return Ok(Joined::Refused(other.clone()));
            }
            drop(turn);
            std::thread::sleep(STEP);
        }
    }

    /// The other processes that use it now.
    ///
    /// # Errors
    /// Their files cannot be read.
    pub fn others(&self) -> io::Result<Vec<Neighbour>> {
        neighbours(&self.database, self.own.as_ref().map(|own| own.number))
    }

    /// Tells the others how far this process is.
    ///
    /// # Errors
    /// The file cannot be written: they go on with what they know.
    pub fn tell(&self, phase: UsePhase) -> io::Result<()> {
        self.own.as_ref().map_or(Ok(()), |own| own.write(phase))
    }

    /// The use of a database by nobody else, while its file is exchanged; `None` where somebody uses it.
    ///
    /// # Errors
    /// The file for the lock cannot be made or locked.
    pub fn alone(database: &Path) -> io::Result<Option<Self>> {
        let lock = open(&users(database))?;
        let own = None;
        Ok(is_free(&lock)?.then(|| Self { _lock: lock, own, database: database.to_owned() }))
    }

    /// Whether a process uses this database now.
    ///
    /// # Errors
    /// The file for the lock is there and cannot be used.
    pub fn is_used(database: &Path) -> io::Result<bool> {
        let lock = match File::open(users(database)) {
            Ok(lock) => lock,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            Err(error) => return Err(error),
        };
        Ok(!is_free(&lock)?)
    }
}

impl OwnLine {
    /// The first that no process has; `None` where all are taken.
    fn take(database: &Path, addr: SocketAddr) -> io::Result<Option<Self>> {
        for number in 1..=LINES_MAX {
            let file = open(&line_file(database, number))?;
            if is_free(&file)? {
                let own = Self { number, file, addr };
                own.write(UsePhase::Starting)?;
                return Ok(Some(own));
            }
        }
        Ok(None)
    }

    fn write(&self, phase: UsePhase) -> io::Result<()> {
        let line = format!("{} {} {}", std::process::id(), self.addr, phase.as_str());
        let line = format!("{line:<width$}\n", width = LINE_BYTES - 1);
        self.file.write_all_at(line.as_bytes(), 0)
    }
}

/// The processes whose files are locked, but for the one with the number `own`.
fn neighbours(database: &Path, own: Option<u32>) -> io::Result<Vec<Neighbour>> {
    let mut found = Vec::new();
    for number in (1..=LINES_MAX).filter(|number| Some(*number) != own) {
        let file = match File::open(line_file(database, number)) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error),
        };
        // Shared, so that two that look at the same moment do not take each other for its holder.
        match file.try_lock_shared() {
            Ok(()) => continue,
            Err(TryLockError::WouldBlock) => {}
            Err(TryLockError::Error(error)) => return Err(error),
        }
        let mut line = [0; LINE_BYTES];
        let read = file.read_at(&mut line, 0)?;
        found.push(neighbour(line.get(..read).unwrap_or_default()));
    }
    Ok(found)
}

/// What the line of a process says.
fn neighbour(line: &[u8]) -> Neighbour {
    let mut words = std::str::from_utf8(line).unwrap_or_default().split_ascii_whitespace();
    Neighbour {
        process: words.next().and_then(|word| word.parse().ok()),
        addr: words.next().and_then(|word| word.parse().ok()),
        phase: match words.next() {
            Some(word) if word == UsePhase::Serving.as_str() => UsePhase::Serving,
            Some(word) if word == UsePhase::Draining.as_str() => UsePhase::Draining,
            _ => UsePhase::Starting,
        },
    }
}

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path)
}

/// Whether nobody has locked it; then it is locked from now on.
fn is_free(file: &File) -> io::Result<bool> {
    match file.try_lock() {
        Ok(()) => Ok(true),
        Err(TryLockError::WouldBlock) => Ok(false),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

/// The file that names the process with this number; the one with 0 names none, and its lock is the right to begin.
fn line_file(database: &Path, number: u32) -> PathBuf {
    let mut path = database.as_os_str().to_owned();
    path.push(format!("-gateway-{number}"));
    PathBuf::from(path)
}

/// The file whose lock says it: SQLite's own locks go when anybody closes the database file itself.
fn users(database: &Path) -> PathBuf {
    let mut path = database.as_os_str().to_owned();
    path.push("-gateways");
    PathBuf::from(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addr(port: u16) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], port))
    }

    fn join(database: &Path, port: u16, tolerated: impl Fn(&Neighbour) -> bool) -> Joined {
        UseClaim::join(database, addr(port), |_| Duration::ZERO, tolerated).unwrap()
    }

    fn begin(database: &Path, port: u16) -> UseClaim {
        match join(database, port, |_| true) {
            Joined::Beside(claim, _) => claim,
            Joined::Refused(by) => panic!("{by}"),
        }
    }

    #[test]
    fn each_process_on_a_file_is_named_while_it_uses_it_and_says_when_it_drains() {
        let folder = tempfile::tempdir().unwrap();
        let database = folder.path().join("weir.db");
        assert!(!UseClaim::is_used(&database).unwrap());
        let first = begin(&database, 1);
        assert!(UseClaim::is_used(&database).unwrap() && first.others().unwrap().is_empty());
        let own = |port, phase| Neighbour { process: Some(std::process::id()), addr: Some(addr(port)), phase };
        let drains = |other: &Neighbour| other.phase == UsePhase::Draining;
        let Joined::Refused(by) = join(&database, 2, drains) else { panic!("it is there") };
        assert_eq!(by, own(1, UsePhase::Starting));
        assert_eq!(by.to_string(), format!("process {}, which listens on 127.0.0.1:1", std::process::id()));
        first.tell(UsePhase::Serving).unwrap();
        assert!(matches!(join(&database, 2, drains), Joined::Refused(by) if by.phase == UsePhase::Serving));
        first.tell(UsePhase::Draining).unwrap();
        let Joined::Beside(second, beside) = join(&database, 2, drains) else { panic!("it drains") };
        let expected = [own(1, UsePhase::Draining)];
        assert_eq!((beside.as_slice(), second.others().unwrap().as_slice()), (&expected[..], &expected[..]));
        assert_eq!(first.others().unwrap(), [own(2, UsePhase::Starting)]);
        assert!(UseClaim::alone(&database).unwrap().is_none());
        drop(first);
        assert!(second.others().unwrap().is_empty());
        // Its place is taken again.
        let third = begin(&database, 3);
        assert_eq!(second.others().unwrap(), [own(3, UsePhase::Starting)]);
        drop((second, third));
        assert!(UseClaim::alone(&database).unwrap().is_some());
    }

    #[test]
    fn of_many_that_begin_at_once_where_none_is_tolerated_one_does() {
        let folder = tempfile::tempdir().unwrap();
        let database = folder.path().join("weir.db");
        let claims: Vec<Joined> = std::thread::scope(|scope| {
            let begun: Vec<_> = (0..8)
                .map(|at| {
                    scope.spawn({
                        let database = &database;
                        move || join(database, at, |_| false)
                    })
                })
                .collect();
            begun.into_iter().map(|begun| begun.join().unwrap()).collect()
        });
        assert_eq!(claims.iter().filter(|claim| matches!(claim, Joined::Beside(..))).count(), 1);
    }

    #[test]
    fn a_line_that_is_not_written_yet_is_of_a_process_that_starts() {
        let nameless = Neighbour { process: None, addr: None, phase: UsePhase::Starting };
        assert_eq!(neighbour(b""), nameless);
        assert_eq!(neighbour(&[0xff; LINE_BYTES]), nameless);
        assert_eq!(neighbour(b"7 127.0.0.1:1 draining   \n").phase, UsePhase::Draining);
    }
}
