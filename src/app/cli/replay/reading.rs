//! The calls of a record that are meant, one after the other.

use weir_config::vocab::TenantId;
use weir_storage::RecordReader;
use weir_storage::query::{Page, SpanFilter};
use weir_storage::record::SpanRecord;

use crate::cli::scan::Progress;
use crate::cli::traces::{Filter, Of, TracesError};

/// Spans, and about how many bytes of them, that are in memory at a time.
const PIECE_ITEMS: u32 = 256;
const PIECE_BYTES: usize = 4 << 20;

/// Which calls are meant.
#[derive(Clone, Copy)]
pub(in crate::app::cli) struct Meant<'a> {
    pub(in crate::app::cli) of: &'a Of,
    pub(in crate::app::cli) filter: &'a Filter,
    /// At most so many, the newest of each tenant first.
    pub(in crate::app::cli) limit: Option<u64>,
}

impl Meant<'_> {
    /// Calls `each` with them; the rules of one tenant are the rules of all.
    pub(in crate::app::cli) fn each(
        &self,
        record: &RecordReader,
        mut each: impl FnMut(&SpanRecord, &mut Progress),
    ) -> Result<(), TracesError> {
        let mut progress = Progress::counting("spans");
        let filter = self.filter.spans();
        let tenants = self.of.tenants(record)?;
        let mut left = self.limit.unwrap_or(u64::MAX);
        let mut expected = 0;
        for (tenant, _) in &tenants {
            let page = Page { limit: 1, texts: false, ..Page::default() };
            expected += record.list_spans(*tenant, &filter, page)?.total;
        }
        progress.expect(expected.min(left));
        let mut one = |span: &SpanRecord| {
            each(span, &mut progress);
            progress.advance(1);
        };
        for (tenant, _) in tenants {
            of_tenant(record, tenant, &filter, &mut left, &mut one)?;
        }
        progress.clear();
        Ok(())
    }
}

fn of_tenant(
    record: &RecordReader,
    tenant: TenantId,
    filter: &SpanFilter,
    left: &mut u64,
    one: &mut dyn FnMut(&SpanRecord),
) -> Result<(), TracesError> {
    let mut page = Page { or_fewer: true, enough_bytes: PIECE_BYTES, ..Page::default() };
    while *left > 0 {
        page.limit = u32::try_from(*left).unwrap_or(u32::MAX).min(PIECE_ITEMS);
        let found = record.list_spans(tenant, filter, page)?;
        found.data.iter().for_each(&mut *one);
        *left = left.saturating_sub(found.data.len() as u64);
        match found.next {
            Some(next) => page.after = Some(next.to_the_end()),
            None => return Ok(()),
        }
    }
    Ok(())
}
