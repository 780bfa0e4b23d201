//! The contract of [`ReportBook`].

use std::time::Duration;

use weir_storage::reports::{EventsOfPeriod, ReportStatus, ReportType, SpanPlace};
use weir_storage::{NotWritten, ReportBook};

use super::checks;
use crate::support::{page, tenant};
use weir_config::vocab::Timestamp;

checks! { dyn ReportBook:
    a_report_waits_until_it_is_complete,
    ten_of_a_tenant_wait_at_most,
    a_period_without_records_is_read_to_its_end,
}

fn at(micros: i64) -> Timestamp {
    Timestamp::from_micros(micros)
}

fn a_report_waits_until_it_is_complete(book: &dyn ReportBook) {
    assert_eq!(book.pending_report().unwrap(), None);
    assert_eq!(book.ask_report(false, tenant(1), ReportType::Soc2, at(0), at(9)).unwrap(), None, "nobody's");
    let ask = |who| book.ask_report(true, tenant(who), ReportType::Gdpr, at(0), at(9)).unwrap().unwrap();
    let (first, second) = (ask(1), ask(2));
    assert_eq!(book.pending_report().unwrap(), Some((tenant(1), first.id)), "the one that has waited longest");
    book.complete_report(tenant(1), first.id, Ok("{\"a\":1}".to_owned())).unwrap();
    assert_eq!(book.pending_report().unwrap(), Some((tenant(2), second.id)));
    book.complete_report(tenant(2), second.id, Err("no".to_owned())).unwrap();
    let shown = |who, id| book.report(tenant(who), id).unwrap();
    let done = shown(1, first.id).unwrap();
    assert_eq!((done.status, done.content.unwrap().as_str()), (ReportStatus::Complete, "{\"a\":1}"));
    let failed = shown(2, second.id).unwrap();
    assert_eq!((failed.status, failed.error.as_deref()), (ReportStatus::Failed, Some("no")));
    assert_eq!(shown(2, first.id), None, "another tenant's report does not exist");
    let later = ask(1);
    let listed = book.list_reports(tenant(1), page(9, 0)).unwrap();
    assert_eq!(listed.data.iter().map(|report| report.id).collect::<Vec<_>>(), [later.id, first.id]);
}

fn ten_of_a_tenant_wait_at_most(book: &dyn ReportBook) {
    let ask = |who| book.ask_report(true, tenant(who), ReportType::Soc2, at(0), at(9));
    assert!((0..10).all(|_| ask(1).is_ok()));
    assert_eq!(ask(1), Err(NotWritten::TooMany { waiting: 10 }));
    assert!(ask(2).is_ok());
}

fn a_period_without_records_is_read_to_its_end(book: &dyn ReportBook) {
    let mut place = SpanPlace::before(at(0));
    let mut take = |span| panic!("{span:?}");
    assert_eq!(book.read_period(tenant(1), &mut place, at(9), Duration::from_secs(1), &mut take), Ok(false));
    let mut events = EventsOfPeriod::new(tenant(1), at(0), at(9));
    assert_eq!(book.read_events(&mut events, Duration::from_secs(1)), Ok(false));
    let events = events.hand_over();
    assert_eq!((events.lines.len(), events.truncated), (0, false));
}
