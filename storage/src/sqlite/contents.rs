//! What lies in a database file, for a copy into other stores: rows as they are, in pieces. Nothing is written.

use std::collections::HashMap;
use std::path::Path;
use std::time::Duration;

use rusqlite::types::ValueRef;
use weir_config::vocab::{SpanId, TenantId};

use super::chain::Auditor;
use super::readers::Stop;
use super::{Home, Readers, Reads, examine};
use crate::error::{OpenError, ReadError};
use crate::observer::{BatchOutcome, StoreObserver};

/// Rows of one piece.
pub(crate) const PIECE: u32 = 2_000;

/// A value of a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Value {
    None,
    Int(i64),
    Text(String),
    Bytes(Vec<u8>),
}

/// A database file that nobody writes.
pub(crate) struct Contents {
    readers: Readers,
    auditor: Auditor,
}

/// Nobody is told of reads.
struct Unobserved;

impl StoreObserver for Unobserved {
    fn batch(&self, _rows: usize, _took: Duration, _outcome: BatchOutcome) {}
    fn read(&self, _operation: &'static str, _took: Duration, _ok: bool) {}
}

impl Contents {
    /// Looks at an existing file, which stays as it is.
    pub(crate) fn open(path: &Path) -> Result<Self, OpenError> {
        examine(path, false)?;
        let readers = Readers::looking_on(Home::file(path));
        Ok(Self { readers, auditor: Auditor::default() })
    }

    pub(crate) fn reads(&self) -> Reads<'_> {
        Reads { readers: &self.readers, observer: &Unobserved, auditor: &self.auditor }
    }

    /// One piece of what a question finds, from a row on; the question names an order of its own.
    pub(crate) fn piece(&self, question: &str, from: u64) -> Result<Vec<Vec<Value>>, ReadError> {
        self.reads().ask("read_contents", |conn| {
            let mut statement = conn.prepare(&format!("{question} LIMIT ?1 OFFSET ?2"))?;
            let columns = statement.column_count();
            let rows = statement.query_map((PIECE, from.cast_signed()), |row| {
                (0..columns).map(|at| row.get_ref(at).map(value)).collect::<rusqlite::Result<Vec<Value>>>()
            })?;
            Ok::<_, Stop>(rows.collect::<Result<_, _>>()?)
        })
    }

    /// How many actions were reported for the spans between two rows, where any were.
    pub(crate) fn reported(&self, after: i64, upto: i64) -> Result<HashMap<(TenantId, SpanId), u32>, ReadError> {
        self.reads().ask("read_contents", |conn| {
            let sql = "SELECT t.uuid, s.span_id, count(*) FROM spans s JOIN tenants t ON t.id = s.tenant JOIN actions a ON a.span = s.id \
                WHERE s.id > ?1 AND s.id <= ?2 AND length(t.uuid) = 16 GROUP BY s.id";
            let mut statement = conn.prepare(sql)?;
            let rows = statement.query_map((after, upto), |row| {
                let whose = (TenantId::from_bytes(row.get(0)?), SpanId::from_bytes(row.get(1)?));
                Ok((whose, row.get(2)?))
            })?;
            Ok::<_, Stop>(rows.collect::<Result<_, _>>()?)
        })
    }
}

fn value(of: ValueRef<'_>) -> Value {
    match of {
        ValueRef::Null => Value::None,
        ValueRef::Integer(number) => Value::Int(number),
        // No column of the schema is a number that is not whole.
        ValueRef::Real(number) => Value::Int(number as i64),
        ValueRef::Text(text) => Value::Text(String::from_utf8_lossy(text).into_owned()),
        ValueRef::Blob(bytes) => Value::Bytes(bytes.to_vec()),
    }
}
