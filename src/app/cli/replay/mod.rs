//! `weir replay`: recorded calls looked at once more under other settings or rules, and what would be different. Reads the record
//! beside a running gateway; writes nothing but what is said.
//!
//! Invariants: the texts go through the detectors of the proxy; what a record lacks for a faithful look is counted and said; one
//! piece of the list is in memory at a time.

mod options;
mod report;

use std::process::ExitCode;

use weir_config::Settings;
use weir_config::vocab::TenantId;
use weir_inference::Analyser;
use weir_storage::RecordReader;
use weir_storage::query::{Page, SpanFilter};
use weir_storage::record::SpanRecord;

pub(super) use options::ReplayOptions;

use self::report::Report;
use super::common::{EXIT_USAGE, Options, complain, sources};
use super::scan::{Progress, plain};
use super::traces::{self, TracesError};
use crate::boot::{Extensions, StartError, own_rules, unasked};
use crate::replay::{Looker, Tally, Terms};

/// Spans, and about how many bytes of them, that are in memory at a time.
const PIECE_ITEMS: u32 = 256;
const PIECE_BYTES: usize = 4 << 20;

/// Looks again, says what would change, and gives the exit code.
pub(super) fn run(from: &Options, options: &ReplayOptions, extensions: Extensions) -> Result<ExitCode, StartError> {
    let loaded = weir_config::load(&sources(from))?;
    // Flags that were changed at run time beat the file here, too.
    for warning in loaded.warnings.iter().chain(&loaded.remarks()) {
        complain(&format!("warning: {warning}"));
    }
    let analyser = own_rules::analyser(&loaded.settings, extensions.detectors)?.0.without_memory();
    let not_asked = unasked::all(&loaded.settings)?;
    let done = traces::open(from, &options.of)?.and_then(|record| {
        let mut replay = Replay::new(options, &loaded.settings, &analyser);
        replay.tally.not_asked = not_asked;
        replay.all(&record)?;
        Ok(replay.end())
    });
    Ok(done.unwrap_or_else(|fault| {
        complain(&plain(&fault.to_string()));
        ExitCode::from(EXIT_USAGE)
    }))
}

/// A replay under way.
struct Replay<'a> {
    options: &'a ReplayOptions,
    settings: &'a Settings,
    looker: Looker<'a>,
    tally: Tally,
    report: Report,
    progress: Progress,
}

impl<'a> Replay<'a> {
    fn new(options: &'a ReplayOptions, settings: &'a Settings, analyser: &'a Analyser) -> Self {
        Self {
            options,
            settings,
            looker: Looker::new(settings, analyser),
            tally: Tally::default(),
            report: Report::new(options.json, options.list),
            progress: Progress::counting("spans"),
        }
    }

    /// Looks at the calls of each tenant that is meant; the rules of one are the rules of all.
    fn all(&mut self, record: &RecordReader) -> Result<(), TracesError> {
        let filter = self.options.filter.spans();
        let tenants = self.options.of.tenants(record)?;
        let mut left = self.options.limit.unwrap_or(u64::MAX);
        let mut expected = 0;
        for (tenant, _) in &tenants {
            let page = Page { limit: 1, texts: false, ..Page::default() };
            expected += record.list_spans(*tenant, &filter, page)?.total;
        }
        self.progress.expect(expected.min(left));
        for (tenant, _) in tenants {
            self.of_tenant(record, tenant, &filter, &mut left)?;
        }
        Ok(())
    }

    fn of_tenant(
        &mut self,
        record: &RecordReader,
        tenant: TenantId,
        filter: &SpanFilter,
        left: &mut u64,
    ) -> Result<(), TracesError> {
        let mut page = Page { or_fewer: true, enough_bytes: PIECE_BYTES, ..Page::default() };
        while *left > 0 {
            page.limit = u32::try_from(*left).unwrap_or(u32::MAX).min(PIECE_ITEMS);
            let found = record.list_spans(tenant, filter, page)?;
            for span in &found.data {
                self.one(span);
                self.progress.advance(1);
            }
            *left = left.saturating_sub(found.data.len() as u64);
            match found.next {
                Some(next) => page.after = Some(next.to_the_end()),
                None => return Ok(()),
            }
        }
        Ok(())
    }

    fn one(&mut self, span: &SpanRecord) {
        let look = self.looker.look(span);
        if let Some(change) = self.tally.compare(span, None, (&look, Terms::of(self.settings))) {
            self.progress.clear();
            self.report.change(span, &change);
        }
    }

    /// The last words, and the exit code.
    fn end(mut self) -> ExitCode {
        self.progress.clear();
        self.report.end(&self.tally);
        if self.tally.changed > 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS }
    }
}
