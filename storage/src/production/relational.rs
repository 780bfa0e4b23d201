//! The relational store: connections to PostgreSQL, and transactions on them.
//!
//! Every question and every change is one transaction with unnamed statements and no state of a session, so that a pooler in
//! transaction mode may stand in between. Invariants: a change that failed was not made, but for one whose commit was not answered,
//! which its error says; nobody waits for a store that is away for longer than [`CONNECT_WAIT`].

use std::time::{Duration, Instant};

use parking_lot::Mutex;
use postgres::config::SslMode;
use postgres::types::{FromSql, ToSql, Type};
use postgres::{Client, Config, NoTls, Row};
use uuid::Uuid;
use weir_config::store_url::StoreUrl;
use weir_config::vocab::{KeyId, SpanId, TenantId, TraceId};

use super::tls::{self, PostgresTls};
use crate::error::{NotWritten, ReadError};

/// How long a connection may take to come about.
const CONNECT_WAIT: Duration = Duration::from_secs(2);
/// After a connection that failed, nobody tries for so long: who asks is told at once.
const AWAY_FOR: Duration = Duration::from_millis(300);
/// Connections that are kept when nobody uses them.
const IDLE_MAX: usize = 4;
/// Attempts at a change that another one stood in the way of.
const ATTEMPTS: u32 = 5;
/// Begins a transaction that reads, and one that writes: in one exchange, so that a question is three of them and a change that is
/// polled for is known sooner.
const BEGIN_READING: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; SET LOCAL statement_timeout = '5s'; \
     SET LOCAL lock_timeout = '2s'; SET LOCAL synchronous_commit = on";
const BEGIN_WRITING: &str = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE; SET LOCAL statement_timeout = '5s'; \
     SET LOCAL lock_timeout = '2s'; SET LOCAL synchronous_commit = on";

/// What a transaction failed by.
#[derive(Debug)]
pub(super) enum Fail {
    /// The change itself cannot be made.
    Refused(String),
    /// The store.
    Store(String),
    /// Another transaction stood in the way; the same may succeed now.
    Again(String),
    /// The connection is no longer one.
    Gone(String),
    /// What is stored cannot be read.
    Damaged,
    /// An answer for the asker of a change.
    Write(NotWritten),
}

impl From<postgres::Error> for Fail {
    fn from(error: postgres::Error) -> Self {
        let Some(db) = error.as_db_error() else {
            let reason = source_of(&error);
            return if error.is_closed() || error.code().is_none() { Self::Gone(reason) } else { Self::Store(reason) };
        };
        let (code, reason) = (db.code().code(), db.message().to_owned());
        match code.get(..2).unwrap_or_default() {
            "22" | "23" => Self::Refused(reason),
            "40" => Self::Again(reason),
            "57" | "08" if code != "57014" => Self::Gone(reason),
            _ if code == "55P03" => Self::Again(reason),
            _ => Self::Store(reason),
        }
    }
}

/// What went wrong, without what was asked.
fn source_of(error: &postgres::Error) -> String {
    let source = std::error::Error::source(error).map(ToString::to_string);
    source.map_or_else(|| error.to_string(), |source| format!("{error}: {source}"))
}

impl Fail {
    fn reason(&self) -> String {
        match self {
            Self::Refused(reason) | Self::Store(reason) | Self::Again(reason) | Self::Gone(reason) => reason.clone(),
            Self::Damaged => "a stored record is damaged".to_owned(),
            Self::Write(error) => error.to_string(),
        }
    }

    pub(super) fn of_read(self) -> ReadError {
        match self {
            Self::Damaged => ReadError::Damaged { row: 0 },
            other => ReadError::Unavailable { reason: format!("the relational store: {}", other.reason()) },
        }
    }

    pub(super) fn of_write(self) -> NotWritten {
        match self {
            Self::Write(error) => error,
            Self::Refused(reason) => NotWritten::Refused { reason },
            other => NotWritten::Unavailable { reason: format!("the relational store: {}", other.reason()) },
        }
    }
}

/// A value of a statement.
#[derive(Debug)]
pub(super) enum P {
    Id(Option<Uuid>),
    Int(Option<i64>),
    Text(Option<String>),
    Bytes(Vec<u8>),
    Ids(Vec<Uuid>),
}

impl P {
    fn pair(&self) -> (&(dyn ToSql + Sync), Type) {
        match self {
            Self::Id(id) => (id, Type::UUID),
            Self::Int(number) => (number, Type::INT8),
            Self::Text(text) => (text, Type::TEXT),
            Self::Bytes(bytes) => (bytes, Type::BYTEA),
            Self::Ids(ids) => (ids, Type::UUID_ARRAY),
        }
    }
}

macro_rules! from {
    ($($from:ty, $value:ident => $to:expr;)+) => { $(
        impl From<$from> for P {
            fn from($value: $from) -> Self {
                $to
            }
        }
    )+ };
}

from! {
    Uuid, id => Self::Id(Some(id));
    Option<Uuid>, id => Self::Id(id);
    TenantId, id => Self::Id(Some(Uuid::from_bytes(*id.as_bytes())));
    TraceId, id => Self::Id(Some(Uuid::from_bytes(*id.as_bytes())));
    SpanId, id => Self::Id(Some(Uuid::from_bytes(*id.as_bytes())));
    KeyId, id => Self::Id(Some(Uuid::from_bytes(*id.as_bytes())));
    i64, number => Self::Int(Some(number));
    Option<i64>, number => Self::Int(number);
    &str, text => Self::Text(Some(text.to_owned()));
    &String, text => Self::Text(Some(text.clone()));
    String, text => Self::Text(Some(text));
    &Option<String>, text => Self::Text(text.clone());
    Option<&str>, text => Self::Text(text.map(str::to_owned));
    &[u8], bytes => Self::Bytes(bytes.to_vec());
    Vec<Uuid>, ids => Self::Ids(ids);
}

/// Values of a statement.
macro_rules! p {
    ($($value:expr),* $(,)?) => { &[$($crate::production::relational::P::from($value)),*] };
}
pub(super) use p;

/// A column's value.
pub(super) fn col<T: for<'a> FromSql<'a>>(row: &Row, column: usize) -> Result<T, Fail> {
    row.try_get(column).map_err(|_| Fail::Damaged)
}

/// An id.
pub(super) fn tenant_of(row: &Row, column: usize) -> Result<TenantId, Fail> {
    Ok(TenantId::from_bytes(*col::<Uuid>(row, column)?.as_bytes()))
}

/// One transaction; who begins it ends it.
pub(super) struct Tx<'a> {
    inner: &'a mut Client,
    /// This gateway.
    pub(super) node: Uuid,
}

impl Tx<'_> {
    pub(super) fn rows(&mut self, sql: &str, values: &[P]) -> Result<Vec<Row>, Fail> {
        let values: Vec<_> = values.iter().map(P::pair).collect();
        Ok(self.inner.query_typed(sql, &values)?)
    }

    /// The first row.
    pub(super) fn one(&mut self, sql: &str, values: &[P]) -> Result<Option<Row>, Fail> {
        Ok(self.rows(sql, values)?.into_iter().next())
    }

    /// The only column of the only row.
    pub(super) fn value<T: for<'a> FromSql<'a>>(&mut self, sql: &str, values: &[P]) -> Result<T, Fail> {
        let row = self.one(sql, values)?;
        col(row.as_ref().ok_or(Fail::Damaged)?, 0)
    }

    /// How many rows it was about.
    pub(super) fn run(&mut self, sql: &str, values: &[P]) -> Result<u64, Fail> {
        let values: Vec<_> = values.iter().map(P::pair).collect();
        Ok(self.inner.execute_typed(sql, &values)?)
    }

    /// Statements without values.
    pub(super) fn batch(&mut self, sql: &str) -> Result<(), Fail> {
        Ok(self.inner.batch_execute(sql)?)
    }

    /// Waits for a lock that ends with the transaction.
    pub(super) fn lock(&mut self, what: i64) -> Result<(), Fail> {
        self.rows("SELECT pg_advisory_xact_lock($1)", &[P::from(what)]).map(|_| ())
    }
}

/// What failed on a connection that can no longer be used.
fn gone(fail: Fail) -> Fail {
    match fail {
        Fail::Write(error) => Fail::Write(error),
        Fail::Damaged => Fail::Damaged,
        other => Fail::Gone(other.reason()),
    }
}

/// The relational store.
pub(crate) struct Relational {
    config: Config,
    tls: Option<PostgresTls>,
    shown: String,
    pub(super) node: Uuid,
    idle: Mutex<Vec<Client>>,
    /// When it was last found to be away, and what was said.
    away: Mutex<Option<(Instant, String)>>,
}

impl Relational {
    /// Connects to nothing yet.
    pub(super) fn new(url: &StoreUrl, ca_file: Option<&std::path::Path>, node: Uuid) -> Result<Self, String> {
        let mut config = Config::new();
        config.host(&url.host).port(url.port.unwrap_or(5432));
        config.connect_timeout(CONNECT_WAIT).tcp_user_timeout(Duration::from_secs(5));
        config.application_name("weir");
        config.user(if url.user.is_empty() { "postgres" } else { &url.user });
        if let Some(password) = &url.password {
            config.password(password);
        }
        config.dbname(if url.path.is_empty() { "postgres" } else { &url.path });
        let mode = url.parameter("sslmode").unwrap_or("prefer");
        let (ssl, tls) = match mode {
            "disable" => (SslMode::Disable, None),
            "prefer" | "allow" => (SslMode::Prefer, Some(tls::unchecked()?)),
            "require" => (SslMode::Require, Some(tls::unchecked()?)),
            "verify-ca" | "verify-full" => (SslMode::Require, Some(tls::checked(ca_file)?)),
            _ => {
                let accepted = "disable, prefer, require or verify-full";
                return Err(format!("storage.relational_url: `sslmode` has to be {accepted}"));
            }
        };
        config.ssl_mode(ssl);
        let (tls, shown) = (tls.map(PostgresTls), url.shown());
        Ok(Self { config, tls, shown, node, idle: Mutex::default(), away: Mutex::default() })
    }

    fn connect(&self) -> Result<Client, Fail> {
        if let Some((at, reason)) = &*self.away.lock()
            && at.elapsed() < AWAY_FOR
        {
            return Err(Fail::Gone(reason.clone()));
        }
        let connected = match &self.tls {
            Some(tls) => self.config.connect(tls.clone()),
            None => self.config.connect(NoTls),
        };
        match connected {
            Ok(client) => {
                *self.away.lock() = None;
                Ok(client)
            }
            Err(error) => {
                let reason = format!("{}: {}", self.shown, source_of(&error));
                *self.away.lock() = Some((Instant::now(), reason.clone()));
                Err(Fail::Gone(reason))
            }
        }
    }

    /// A connection, and whether it has been used before, so that it may have ended meanwhile.
    fn take(&self) -> Result<(Client, bool), Fail> {
        while let Some(client) = self.idle.lock().pop() {
            if !client.is_closed() {
                return Ok((client, true));
            }
        }
        Ok((self.connect()?, false))
    }

    fn give_back(&self, client: Client) {
        let mut idle = self.idle.lock();
        if idle.len() < IDLE_MAX && !client.is_closed() {
            idle.push(client);
        }
    }

    /// Makes a change in one transaction; `make` may be called again.
    pub(super) fn write<T>(&self, mut make: impl FnMut(&mut Tx<'_>) -> Result<T, Fail>) -> Result<T, NotWritten> {
        self.transact(false, &mut make).map_err(Fail::of_write)
    }

    /// Asks in one snapshot.
    pub(super) fn read<T>(&self, mut ask: impl FnMut(&mut Tx<'_>) -> Result<T, Fail>) -> Result<T, ReadError> {
        self.transact(true, &mut ask).map_err(Fail::of_read)
    }

    fn transact<T>(&self, reads: bool, make: &mut dyn FnMut(&mut Tx<'_>) -> Result<T, Fail>) -> Result<T, Fail> {
        let mut attempt = 0;
        loop {
            attempt += 1;
            let (mut client, is_used) = self.take()?;
            let mut committing = false;
            match self.attempt(&mut client, reads, make, &mut committing) {
                Ok(made) => {
                    self.give_back(client);
                    return Ok(made);
                }
                // It may have ended while nobody used it.
                Err(Fail::Gone(_)) if is_used && !committing => self.idle.lock().clear(),
                Err(Fail::Gone(reason)) if committing => {
                    return Err(Fail::Store(format!("{reason}; whether the change was made is not known")));
                }
                Err(Fail::Again(_)) if attempt < ATTEMPTS => self.give_back(client),
                Err(fail) => {
                    self.give_back(client);
                    return Err(fail);
                }
            }
        }
    }

    fn attempt<T>(
        &self,
        client: &mut Client,
        reads: bool,
        make: &mut dyn FnMut(&mut Tx<'_>) -> Result<T, Fail>,
        committing: &mut bool,
    ) -> Result<T, Fail> {
        client.batch_execute(if reads { BEGIN_READING } else { BEGIN_WRITING })?;
        let made = make(&mut Tx { inner: client, node: self.node });
        if let Err(fail) = made {
            // Nothing of it stays; where it cannot be said, the connection is gone and the server undoes it.
            return Err(if client.batch_execute("ROLLBACK").is_ok() { fail } else { gone(fail) });
        }
        *committing = !reads;
        client.batch_execute("COMMIT")?;
        made
    }

    /// Whether it answers.
    pub(super) fn probe(&self) -> Result<(), ReadError> {
        self.read(|tx| tx.rows("SELECT 1", &[]).map(|_| ()))
    }
}
