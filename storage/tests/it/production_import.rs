//! `weir migrate --to production`: a file's whole record in the stores, once, however often the copy breaks off.

use serde_json::Map;
use tempfile::TempDir;
use weir_config::settings::Window;
use weir_config::vocab::{KeyId, Role, Timestamp};
use weir_storage::query::SpanFilter;
use weir_storage::reports::ReportType;
use weir_storage::tenants::{KeyRecord, NewTenant};
use weir_storage::{
    AuditLog as _, RecordReader, Registry as _, ReportBook as _, SpanLog as _, SpendBook as _, SpendRow,
};
use weir_storage::{Imported, Store, Stores};

use crate::journals::gateway;
use crate::ledger::{action, event};
use crate::stores::{Three, name};
use crate::support::{PATIENCE, open, page, put, span, tenant, total};

/// More than one batch of a copy.
const SPANS: i64 = 11_000;

fn key(id: KeyId) -> KeyRecord {
    KeyRecord {
        id,
        tenant_id: tenant(1),
        name: "k".to_owned(),
        key_prefix: "svc_01234567".to_owned(),
        role: Role::Viewer,
        created_at: Timestamp::from_micros(5),
        revoked_at: None,
        last_used_at: None,
    }
}

/// A record with something of everything; the newest span has an action.
fn fill(store: &Store) {
    let new = NewTenant { id: tenant(1), name: "Acme".to_owned(), plan: Some("gold".to_owned()), config: Map::new() };
    store.create_tenant(new, event("tenant.create", Some(tenant(1)))).unwrap();
    assert!(store.create_key(key(KeyId::fresh()), [7; 32], event("key.create", Some(tenant(1)))).unwrap());
    store.issue_token(tenant(1), 77, false, event("token.issue", Some(tenant(1))), None).unwrap();
    put(store, (0..SPANS).map(|at| span(at).of(1)));
    put(store, [span(5).of(2), span(6).of(3)]);
    let newest = span(SPANS).of(1);
    put(store, [newest.clone()]);
    store.add_action(tenant(1), newest.trace_id, None, action("rm", false), vec![]).unwrap().unwrap();
    store.delete_tenant_data(tenant(3)).unwrap();
    let period = [Timestamp::from_micros(0), Timestamp::from_micros(9)];
    store.ask_report(true, tenant(1), ReportType::Soc2, period[0], period[1]).unwrap().unwrap();
    let (tenant, agent) = (tenant(1), "agent".to_owned());
    let row = SpendRow {
        tenant,
        agent,
        window: Window::Daily,
        period_start_s: 86_400,
        since_s: 86_400,
        spent_nano_usd: 1_234_567_891,
    };
    assert_eq!(store.save_spend(vec![row]).unwrap(), []);
}

trait Of {
    fn of(self, who: u8) -> Self;
}

impl Of for weir_storage::record::SpanRecord {
    fn of(self, who: u8) -> Self {
        Self { tenant_id: tenant(who), ..self }
    }
}

fn rows(copied: &Imported, name: &str) -> (u64, u64) {
    copied.rows.iter().find(|(known, ..)| known == name).map(|(_, read, there)| (*read, *there)).unwrap()
}

/// The file's record and the stores' are the same, as whoever asks for them sees it.
fn assert_same(path: &std::path::Path, stores: &Stores) {
    let (file, shared) = (
        RecordReader::open(path).unwrap(),
        RecordReader::of_stores(stores, None, path.with_extension("absent")).unwrap(),
    );
    let sorted = |record: &RecordReader| {
        let mut tenants = record.tenants().unwrap();
        tenants.sort();
        tenants
    };
    assert_eq!(sorted(&file), sorted(&shared));
    for who in [1, 2, 3] {
        let newest = |record: &RecordReader| {
            let spans = record.list_spans(tenant(who), &SpanFilter::default(), page(3, 0)).unwrap();
            (spans.total, spans.data)
        };
        assert_eq!(newest(&file), newest(&shared), "tenant {who}");
    }
    let audit = shared.check_audit().unwrap();
    assert_eq!((audit.intact, audit.entries), (true, file.check_audit().unwrap().entries + 1), "one line of the copy");
}

#[test]
#[ignore = "starts three stores: .ci/full"]
fn a_record_is_copied_whole_though_the_copy_breaks_off() {
    let three = Three::new();
    let stores = three.named(&name());
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("lite.db");
    let store = open(&path);
    fill(&store);
    assert!(store.close(PATIENCE));
    drop(store);

    // The analytics store goes when the first batch is about to be sent, and once more at the second.
    for batch in 1..3 {
        let mut told = 0;
        let broken = Store::import(&stores, &path, |_, _| {
            told += 1;
            if told == batch {
                three.analytics.kill();
            }
        });
        assert!(broken.is_err(), "{broken:?}");
        three.analytics.start();
    }
    let copied = Store::import(&stores, &path, |_, _| {}).unwrap();
    assert!(copied.is_whole() && copied.resumed, "{copied:?}");
    assert_eq!(copied.spans, (SPANS as u64 + 2, SPANS as u64 + 2));
    assert_eq!(copied.cost_nano_usd.0, (SPANS + 2) * 120_000, "as one span costs");
    assert_eq!(copied.spent_nano_usd, (1_234_567_891, 1_234_567_891));
    assert_eq!(
        (rows(&copied, "tenants"), rows(&copied, "api_keys"), rows(&copied, "reports")),
        ((2, 2), (1, 1), (1, 1))
    );
    assert_eq!((rows(&copied, "burials"), rows(&copied, "spend")), ((1, 1), (1, 1)));
    assert_same(&path, &stores);
    assert!(Store::import(&stores, &path, |_, _| {}).unwrap().is_whole(), "once more changes nothing");
    assert_same(&path, &stores);

    // A gateway goes on with it, and nothing that was deleted comes back.
    let store = Store::open(gateway(&folder.path().join("journal.db"), stores.clone())).unwrap();
    let credentials = store.load_credentials(None).unwrap();
    assert_eq!((credentials.keys.len(), credentials.tokens), (1, vec![(tenant(1), 77)]));
    let sums: Vec<u64> = store.load_spend(86_500).unwrap().iter().map(|row| row.spent_nano_usd).collect();
    assert_eq!((sums, total(&store, tenant(3))), (vec![1_234_567_891], 0));
    assert_eq!(store.actions_summary(tenant(1), &SpanFilter::default()).unwrap().total_actions, 1);
    store.audit(event("key.create", None)).unwrap();
    assert!(store.check_audit().unwrap().intact);
    assert!(store.close(PATIENCE));

    // Another file does not go into stores that have a record.
    let other = folder.path().join("other.db");
    open(&other).close(PATIENCE);
    let refused = Store::import(&stores, &other, |_, _| {}).err().unwrap();
    assert!(refused.is_lasting() && refused.to_string().contains("empty stores"), "{refused}");
}
