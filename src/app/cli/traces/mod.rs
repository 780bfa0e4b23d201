//! `weir traces`: the record in a terminal, read from the database file, or from the stores that several gateways share.
//!
//! Over the file and not over the API: it works where the gateway does not run, needs no credential beyond the right to
//! read the file, and takes no worker from those who ask the API. It reads as any other reader does, beside a gateway
//! that writes. Records of the profile `memory` are in the gateway's process only; `format=jsonl` of the API exports
//! those.

mod cells;
mod options;
mod screen;
mod sheet;
mod table;
mod talk;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use serde::Serialize;
use weir_config::settings::StorageProfile;
use weir_config::vocab::{SpanId, TenantId};
use weir_storage::query::{Page, Place, TraceFilter};
use weir_storage::record::{SpanRecord, TraceRecord};
use weir_storage::{OpenError, ReadError, RecordReader, Shipped};

pub(super) use self::options::{ExportOptions, Filter, Of, TracesCommand};
use self::options::{Wanted, Whose};
use self::screen::Screen;
use self::sheet::Sheet;
use self::table::Row;
use super::common::{EXIT_USAGE, Options, complain, sources};
use super::scan::plain;
use crate::api::{SpanShown, TraceShown};
use crate::boot::StartError;

/// Items, and about how many bytes of them, that are in memory at a time.
const PIECE_ITEMS: u32 = 256;
const PIECE_BYTES: usize = 1024 * 1024;
/// How long an export waits for this machine's gateway to ship what it has recorded: it does so every second.
const SHIPPED_WITHIN: Duration = Duration::from_secs(3);
/// How often new calls are looked for.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// Why there is nothing to show.
#[derive(Debug, thiserror::Error)]
pub(super) enum TracesError {
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error("the record cannot be read: {0}")]
    Read(#[from] ReadError),
    #[error("no trace or span {0} {1}; `weir traces list` shows what there is, `--tenant` says whose are looked at")]
    NoTrace(Wanted, String),
    #[error(
        "{}: there is no such file; it was looked for as `storage.database_path` (or --database) says. Name the gateway's \
         configuration with --config, or its database with --database", whole(.0)
    )]
    NoFile(PathBuf),
    #[error("{}: it cannot be written: {source}", path.display())]
    Write { path: PathBuf, source: std::io::Error },
    #[error("no tenant is named `{name}`; there {}, and `all` is every one", listed(names))]
    NoTenant { name: String, names: Vec<String> },
    #[error(
        "storage.profile is `memory`: its records are in the gateway's process only. Ask its API, e.g. \
         /api/v1/traces?format=jsonl, or name a file with --database"
    )]
    InMemory,
    #[error(
        "storage.profile is `production`: its stores have no one order of arrival to follow. `weir traces list` shows the newest of all \
         gateways; for this gateway's own, name its journal with --database"
    )]
    Shared,
}

/// Answers.
pub(super) fn run(from: &Options, command: &TracesCommand) -> Result<ExitCode, StartError> {
    let of = match command {
        TracesCommand::List { of, .. } | TracesCommand::Show { of, .. } | TracesCommand::Tail { of, .. } => of,
        TracesCommand::Export(options) => &options.of,
    };
    let done = open(from, of)?.and_then(|record| {
        if matches!(command, TracesCommand::Tail { .. }) && !record.has_order() {
            return Err(TracesError::Shared);
        }
        let tenants = of.tenants(&record)?;
        Asked { record, tenants, whose: of.whose().clone() }.answer(command)
    });
    Ok(match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(fault) => {
            complain(&plain(&fault.to_string()));
            if matches!(fault, TracesError::NoTrace(..)) { ExitCode::FAILURE } else { ExitCode::from(EXIT_USAGE) }
        }
    })
}

/// Opens the record that was named, or that of the settings.
pub(super) fn open(from: &Options, of: &Of) -> Result<Result<RecordReader, TracesError>, StartError> {
    let opened = |path: PathBuf| {
        if path.exists() { Ok(RecordReader::open(&path)?) } else { Err(TracesError::NoFile(path)) }
    };
    match &of.database {
        Some(path) => Ok(opened(path.clone())),
        None => configured(from, opened),
    }
}

/// What the settings name.
fn configured(
    from: &Options,
    opened: impl Fn(PathBuf) -> Result<RecordReader, TracesError>,
) -> Result<Result<RecordReader, TracesError>, StartError> {
    let settings = weir_config::load(&sources(from))?.settings;
    let storage = &settings.storage;
    Ok(match storage.profile {
        StorageProfile::Memory => Err(TracesError::InMemory),
        StorageProfile::Production => {
            let stores = crate::boot::stores_of(&settings)?;
            let age = crate::ops::store::retention(storage).max_age;
            let age_us = age.and_then(|age| i64::try_from(age.as_micros()).ok());
            RecordReader::of_stores(&stores, age_us, storage.database_path.clone()).map_err(TracesError::from)
        }
        StorageProfile::Lite => opened(storage.database_path.clone()),
    })
}

/// The record of one tenant, or of all.
struct Asked {
    record: RecordReader,
    /// Whose is shown, with their names.
    tenants: Vec<(TenantId, String)>,
    whose: Whose,
}

impl Asked {
    fn answer(&self, command: &TracesCommand) -> Result<(), TracesError> {
        match command {
            TracesCommand::List { filter, limit, json, .. } => self.list(filter, *limit, *json),
            TracesCommand::Show { id, json, width, .. } => self.show(*id, *json, *width),
            TracesCommand::Tail { filter, json, .. } => self.tail(filter, *json),
            TracesCommand::Export(options) => self.export(options),
        }
    }

    fn export(&self, options: &ExportOptions) -> Result<(), TracesError> {
        let ExportOptions { filter, spans, messages, no_texts, csv, output, .. } = options;
        let page = Page { texts: !(*no_texts || *csv), whole: true, ..piece(None) };
        let of = if let Whose::All = self.whose { None } else { self.tenants.first().map(|(tenant, _)| *tenant) };
        // Before the first line, so that what is shipped by then is in the export.
        let shipped = self.record.await_shipped(of, SHIPPED_WITHIN)?;
        let mut sheet = Sheet::open(output.as_deref(), if *spans || *csv { "spans" } else { "traces" })?;
        if *csv {
            sheet.line(&cells::head());
        }
        for (tenant, _) in &self.tenants {
            if *spans || *csv {
                let filter = filter.spans();
                let shown: fn(&SpanRecord) -> _ = match (csv, messages) {
                    (true, _) => cells::row,
                    (false, true) => |span| json_of(&SpanShown::of(span)),
                    (false, false) => json_of,
                };
                sheet.write(page, shown, |page| self.record.list_spans(*tenant, &filter, page))?;
            } else {
                let filter = filter.traces();
                let shown: fn(&TraceRecord) -> _ =
                    if *messages { |trace| json_of(&TraceShown::of(trace)) } else { json_of };
                sheet.write(page, shown, |page| self.record.list_traces(*tenant, &filter, page))?;
            }
        }
        sheet.close()?;
        if let Some(lacking) = lacking(shipped) {
            complain(&plain(&lacking));
        }
        Ok(())
    }

    /// What a tenant is called.
    fn name_of(&self, tenant: TenantId) -> &str {
        self.tenants.iter().find(|(id, _)| *id == tenant).map_or("", |(_, name)| name)
    }

    fn list(&self, filter: &Filter, limit: u32, json: bool) -> Result<(), TracesError> {
        let mut screen = Screen::new(None);
        if !json {
            table::head(&mut screen);
        }
        let filter = filter.traces();
        if let [(tenant, _)] = self.tenants.as_slice() {
            return self.list_one(*tenant, &filter, limit, |trace| self.print_trace(trace, json, &mut screen));
        }
        // The newest of all, with no more in memory than are shown.
        let mut newest: Vec<TraceRecord> = Vec::new();
        for (tenant, _) in &self.tenants {
            self.list_one(*tenant, &filter, limit, |trace| {
                let at = newest.partition_point(|held| held.created_at >= trace.created_at);
                let is_new = at < limit as usize;
                if is_new {
                    newest.insert(at, trace.clone());
                    newest.truncate(limit as usize);
                }
                // A tenant's own come newest first, too.
                is_new
            })?;
        }
        newest.iter().all(|trace| self.print_trace(trace, json, &mut screen));
        Ok(())
    }

    /// Gives `take` a tenant's newest traces, until there are no more or it wants none.
    fn list_one(
        &self,
        tenant: TenantId,
        filter: &TraceFilter,
        limit: u32,
        mut take: impl FnMut(&TraceRecord) -> bool,
    ) -> Result<(), TracesError> {
        let (mut left, mut after) = (limit, None);
        loop {
            let page = Page { limit: left.min(PIECE_ITEMS), ..piece(after) };
            let found = self.record.list_traces(tenant, filter, page)?;
            if !found.data.iter().all(&mut take) {
                return Ok(());
            }
            left = left.saturating_sub(found.data.len() as u32);
            after = found.next.map(Place::to_the_end);
            if after.is_none() || left == 0 {
                return Ok(());
            }
        }
    }

    /// Writes a line; false when nothing reads it.
    fn print_trace(&self, trace: &TraceRecord, json: bool, screen: &mut Screen) -> bool {
        if json {
            screen.raw(&json_of(trace));
        } else {
            Row::of_trace(trace, self.name_of(trace.tenant_id)).print(screen);
        }
        screen.flush();
        !screen.is_closed()
    }

    /// The trace, wherever a tenant whose records are looked at has it.
    fn find(&self, wanted: Wanted) -> Result<Option<TraceRecord>, ReadError> {
        for (tenant, _) in &self.tenants {
            let span = match wanted {
                Wanted::Id(id) => match self.record.trace(*tenant, id)? {
                    Some(trace) => return Ok(Some(trace)),
                    None => self.record.span(*tenant, SpanId::from_uuid(id.uuid()))?,
                },
                Wanted::OfSpan(id) => self.record.span_by_w3c(*tenant, id)?,
            };
            if let Some(span) = span {
                return self.record.trace(*tenant, span.trace_id);
            }
        }
        Ok(None)
    }

    fn show(&self, wanted: Wanted, json: bool, width: Option<u16>) -> Result<(), TracesError> {
        let found = self.find(wanted)?;
        let of = || match &self.whose {
            Whose::One(tenant) => format!("of tenant {tenant}"),
            Whose::Named(name) => format!("of tenant {name}"),
            Whose::All => "of any tenant".to_owned(),
        };
        let found = found.ok_or_else(|| TracesError::NoTrace(wanted, of()))?;
        let mut screen = Screen::new(width);
        if json {
            screen.raw(&json_of(&TraceShown::of(&found)));
        } else {
            talk::print(&found, self.name_of(found.tenant_id), &mut screen);
        }
        screen.flush();
        Ok(())
    }

    fn tail(&self, filter: &Filter, json: bool) -> Result<(), TracesError> {
        let mut screen = Screen::new(None);
        // Of tenants that are new since, too.
        let is_shown = |tenant| self.whose == Whose::All || self.tenants.iter().any(|(id, _)| *id == tenant);
        // Whoever has read the head sees every call that is recorded from then on.
        let mut at = self.record.end()?;
        if !json {
            table::head(&mut screen);
            screen.flush();
        }
        while !screen.is_closed() {
            let batch = self.record.read_after(at, PIECE_ITEMS, PIECE_BYTES)?;
            let is_all = batch.spans.is_empty();
            at = batch.next;
            for span in batch.spans.iter().filter(|span| is_shown(span.tenant_id) && filter.fits(span)) {
                if json {
                    screen.raw(&json_of(span));
                } else {
                    Row::of_span(span, self.name_of(span.tenant_id)).print(&mut screen);
                }
            }
            screen.flush();
            if is_all {
                std::thread::sleep(LOOK_EVERY);
            }
        }
        Ok(())
    }
}

/// What an export of the stores lacks.
fn lacking(shipped: Shipped) -> Option<String> {
    match shipped {
        Shipped::All => None,
        Shipped::AllBut(many, journal) => Some(format!(
            "{many} span(s) of this gateway wait in its journal to be shipped and are not in this export; they are in {0}: weir traces \
             export --database {0}, or export again when they are shipped",
            whole(&journal)
        )),
        Shipped::Unknown(journal) => Some(format!(
            "there is no gateway's journal at {}: whether gateways have spans that are not shipped yet, and so not in this export, is not \
             known here",
            whole(&journal)
        )),
    }
}

/// Most names of tenants that a complaint has.
const NAMES_TOLD: usize = 20;

/// What tenants there are.
fn listed(names: &[String]) -> String {
    match names {
        [] => "is none".to_owned(),
        [one] => format!("is `{one}`"),
        some => {
            let told: Vec<String> = some.iter().take(NAMES_TOLD).map(|name| format!("`{name}`")).collect();
            let more = if some.len() > NAMES_TOLD { " and more" } else { "" };
            format!("are {}{more}", told.join(", "))
        }
    }
}

/// The path from the root, so that a reader sees in which folder it was looked for.
fn whole(path: &Path) -> String {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned()).display().to_string()
}

/// A piece of a list.
fn piece(after: Option<Place>) -> Page {
    Page { limit: PIECE_ITEMS, or_fewer: true, enough_bytes: PIECE_BYTES, after, ..Page::default() }
}

/// The JSON of a record, which always has one.
fn json_of<T: Serialize>(record: &T) -> String {
    serde_json::to_string(record).unwrap_or_default()
}
