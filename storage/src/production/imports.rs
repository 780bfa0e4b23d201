//! The record of a database file, copied into the stores of this profile: `weir migrate --to production`.
//!
//! Everything beside spans goes into the relational store by one transaction, audit lines as they are, so that their chain stays one.
//! Spans follow in batches whose cut is written down before they are sent, as a gateway ships its journal, and under the number that a
//! gateway on this file would have: what is sent again replaces itself. Where it stopped stands in the relational store.

use std::path::Path;

use serde::Deserialize;
use uuid::Uuid;
use weir_config::vocab::Timestamp;

use super::analytics::Params;
use super::relational::{Fail, P, Tx, col, p};
use super::ship::BATCH_BYTES;
use super::tables::{Column, TABLES, Table};
use super::wide::Mark;
use super::{Production, Stores};
use crate::audit::AuditEvent;
use crate::cursor::Cursor;
use crate::error::{OpenError, ReadError};
use crate::query::Page;
use crate::sqlite::{CONTENTS_PIECE, Contents, Value};

/// Spans of one batch, and of one reading.
const BATCH_SPANS: usize = 5_000;
const READ_SPANS: u32 = 1_000;

/// What was copied, and what the stores say they have of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Imported {
    /// Rows of the file by what they are, and how many of them are in the relational store.
    pub rows: Vec<(String, u64, u64)>,
    /// Spans of the file, and of them in the analytics store.
    pub spans: (u64, u64),
    /// What these spans cost, nanodollars, by the sums of the file and of the analytics store.
    pub cost_nano_usd: (i64, i64),
    /// What budgets have been charged in the periods that the file keeps, by the file and by the ledger.
    pub spent_nano_usd: (i64, i64),
    /// Whether it went on where it had stopped before.
    pub resumed: bool,
}

impl Imported {
    /// Whether the stores have all that the file has.
    pub fn is_whole(&self) -> bool {
        // A gateway that has started since may have added some.
        self.rows.iter().all(|(_, read, there)| read <= there)
            && self.spans.0 == self.spans.1
            && self.cost_nano_usd.0 == self.cost_nano_usd.1
            && self.spent_nano_usd.0 == self.spent_nano_usd.1
    }
}

fn failed(error: impl ToString) -> OpenError {
    OpenError::Stores { reason: error.to_string(), is_lasting: false }
}

fn refused(reason: &str) -> OpenError {
    OpenError::Stores { reason: reason.to_owned(), is_lasting: true }
}

/// Copies; `tell` is told how many of how many rows of spans are passed.
pub(crate) fn import(stores: &Stores, path: &Path, tell: &mut dyn FnMut(u64, u64)) -> Result<Imported, OpenError> {
    let contents = Contents::open(path)?;
    let production = Production::open(stores, &contents.reads())?;
    let file = production.shipping.file;
    let known = production.import_of(file).map_err(failed)?;
    if known.is_none() {
        if production.has_audit().map_err(failed)? {
            return Err(refused(
                "the relational store has an audit log already: a record is copied into empty stores, before a gateway has started on them",
            ));
        }
        production.copy_books(&contents, file)?;
    }
    let at = known.unwrap_or_default();
    production.copy_spans(&contents, at, tell).map_err(failed)?;
    production.compare(&contents, known.is_some()).map_err(failed)
}

/// Of the file's spans, what the analytics store has.
#[derive(Default, Deserialize)]
struct Shipped {
    spans: u64,
    cost: i64,
}

/// How far spans are copied.
#[derive(Debug, Clone, Copy, Default)]
struct Copied {
    cut: i64,
    shipped: i64,
}

impl Production {
    fn import_of(&self, file: i64) -> Result<Option<Copied>, ReadError> {
        self.relational.read(|tx| {
            let row = tx.one("SELECT cut, shipped FROM imports WHERE file = $1", p![file])?;
            row.map(|row| Ok(Copied { cut: col(&row, 0)?, shipped: col(&row, 1)? })).transpose()
        })
    }

    fn has_audit(&self) -> Result<bool, ReadError> {
        self.relational.read(|tx| Ok(tx.one("SELECT 1 FROM audit LIMIT 1", p![])?.is_some()))
    }

    /// All that is no span, by one transaction.
    fn copy_books(&self, contents: &Contents, file: i64) -> Result<(), OpenError> {
        let read = |error: ReadError| Fail::Refused(error.to_string());
        self.relational
            .write(|tx| {
                // Held until the commit: two of these copies are not made at once.
                let sql = "INSERT INTO imports (file, cut, shipped, began_us) VALUES ($1, 0, 0, $2)";
                tx.run(sql, p![file, Timestamp::now().micros()])?;
                for table in TABLES {
                    let mut from = 0;
                    loop {
                        let rows = contents.piece(table.from, from).map_err(read)?;
                        for row in &rows {
                            table.put(tx, file, row)?;
                        }
                        from += rows.len() as u64;
                        if rows.len() < CONTENTS_PIECE as usize {
                            break;
                        }
                    }
                }
                let sql = "INSERT INTO audit_heads (node, seq, hash) \
                    SELECT node, seq, hash FROM audit WHERE node = $1 ORDER BY seq DESC LIMIT 1";
                tx.run(sql, p![self.node])?;
                tx.audit(&AuditEvent {
                    tenant: None,
                    actor: "local".to_owned(),
                    action: "storage.import".to_owned(),
                    target: None,
                    detail: [("journal".to_owned(), self.node.to_string())].into(),
                })?;
                Ok(())
            })
            .map_err(failed)
    }

    /// Spans from where the copy stands on.
    fn copy_spans(&self, contents: &Contents, at: Copied, tell: &mut dyn FnMut(u64, u64)) -> Result<(), String> {
        let text = |error: ReadError| error.to_string();
        let reads = contents.reads();
        let end = reads.end().map_err(text)?;
        let mut shipped = Cursor::new(end.file(), at.shipped);
        let mut cut = (at.cut > at.shipped).then_some(Cursor::new(end.file(), at.cut));
        while shipped.place() < end.place() {
            tell(shipped.place().unsigned_abs(), end.place().unsigned_abs());
            let (mut spans, mut next, mut bytes) = (Vec::new(), shipped, 0);
            let upto = cut.take().unwrap_or(end);
            loop {
                let batch = reads.read_between(next, upto, READ_SPANS, BATCH_BYTES).map_err(text)?;
                bytes += batch.spans.iter().map(crate::queue::weigh).sum::<usize>();
                spans.extend(batch.spans);
                next = batch.next;
                if !batch.more || (upto == end && (spans.len() >= BATCH_SPANS || bytes >= BATCH_BYTES)) {
                    break;
                }
            }
            self.note_import("cut", next)?;
            let reported = contents.reported(shipped.place(), next.place()).map_err(text)?;
            let first = shipped.place() + 1;
            let mut marked: Vec<_> = spans
                .into_iter()
                .enumerate()
                .map(|(at, span)| {
                    let reported = reported.get(&(span.tenant_id, span.span_id)).copied().unwrap_or(0);
                    (Mark { node: self.node, seq: first.unsigned_abs() + at as u64, version: 1, reported }, span)
                })
                .collect();
            if !marked.is_empty() {
                self.send(first, next.place(), &mut marked).map_err(text)?;
            }
            self.note_import("shipped", next)?;
            shipped = next;
        }
        tell(end.place().unsigned_abs(), end.place().unsigned_abs());
        Ok(())
    }

    fn note_import(&self, what: &str, at: Cursor) -> Result<(), String> {
        let sql = format!("UPDATE imports SET {what} = greatest({what}, $2) WHERE file = $1");
        let noted = self.relational.write(|tx| tx.run(&sql, p![at.file(), at.place()]).map(|_| ()));
        noted.map_err(|error| error.to_string())
    }

    /// Counts what the file has, and of that what the stores have.
    fn compare(&self, contents: &Contents, resumed: bool) -> Result<Imported, ReadError> {
        let mut rows = Vec::new();
        for table in TABLES {
            let mut read: u64 = 0;
            loop {
                let piece = contents.piece(table.from, read)?.len();
                read += piece as u64;
                if piece < CONTENTS_PIECE as usize {
                    break;
                }
            }
            let sql = format!("SELECT count(*) FROM {}", table.name);
            let there: i64 = self.relational.read(|tx| tx.value(&sql, p![]))?;
            // One line says that the copy was made.
            let own = u64::from(table.name == "audit");
            rows.push((table.name.to_owned(), read, there.unsigned_abs() - own));
        }
        let reads = contents.reads();
        let mut of_file = (0, 0);
        let mut page = Page { limit: CONTENTS_PIECE, ..Page::default() };
        loop {
            let tenants = reads.list_tenants(page.within_bounds())?;
            for tenant in &tenants.data {
                let sums = reads.stats(tenant.id)?;
                of_file = (of_file.0 + sums.total_spans, of_file.1 + (sums.total_cost_usd * 1e9).round() as i64);
            }
            page.offset += tenants.data.len() as u64;
            if tenants.data.is_empty() || page.offset >= tenants.total {
                break;
            }
        }
        let question = "SELECT count() AS spans, toInt64(sum(ifNull(cost_nano_usd, 0))) AS cost FROM weir_calls FINAL WHERE node = {node:UUID}";
        let shipped: Vec<Shipped> = self.analytics.ask(question, &Params::default().with("node", self.node))?;
        let shipped = shipped.into_iter().next().unwrap_or_default();
        let spent = contents.piece("SELECT ifnull(sum(nano_usd), 0) FROM spend", 0)?;
        let spent = spent.first().and_then(|row| row.first()).map_or(0, int);
        let sql = "SELECT coalesce(sum(nano_usd), 0)::bigint FROM spend_ledger WHERE node = $1";
        let booked = self.relational.read(|tx| tx.value(sql, p![self.node]))?;
        Ok(Imported {
            rows,
            spans: (of_file.0, shipped.spans),
            cost_nano_usd: (of_file.1, shipped.cost),
            spent_nano_usd: (spent, booked),
            resumed,
        })
    }
}

fn int(value: &Value) -> i64 {
    if let Value::Int(number) = value { *number } else { 0 }
}

impl Table {
    /// Puts a row of the file in.
    fn put(&self, tx: &mut Tx<'_>, file: i64, row: &[Value]) -> Result<(), Fail> {
        let node = tx.node;
        let mut values = Vec::with_capacity(row.len() + 2);
        for (value, column) in row.iter().zip(self.columns) {
            values.push(fit(value, *column)?);
        }
        if self.names_node {
            values.push(P::from(node));
        }
        if self.names_file {
            values.push(P::from(file));
        }
        if self.name == "spend_ledger" {
            // The same however often the copy is made.
            let names: Vec<String> = row.iter().take(4).map(|value| format!("{value:?}")).collect();
            values.push(P::from(Uuid::new_v5(&node, names.join("/").as_bytes())));
        }
        tx.run(self.into, &values).map(|_| ())
    }
}

fn fit(value: &Value, column: Column) -> Result<P, Fail> {
    Ok(match (column, value) {
        (Column::Id, Value::Bytes(bytes)) => P::from(Uuid::from_slice(bytes).map_err(|_| Fail::Damaged)?),
        (Column::Id, Value::None) => P::from(None::<Uuid>),
        (Column::Int, Value::Int(number)) => P::from(*number),
        (Column::Int, Value::None) => P::from(None::<i64>),
        // A text of PostgreSQL has no zero byte.
        (Column::Text, Value::Text(text)) => P::from(text.replace('\0', "\u{fffd}")),
        (Column::Text, Value::None) => P::from(None::<&str>),
        (Column::Bytes, Value::Bytes(bytes)) => P::from(bytes.as_slice()),
        _ => return Err(Fail::Damaged),
    })
}
