//! Databases as each released schema wrote them, opened by this build: records, tenants, keys, tokens, provider keys and the audit log are
//! what they were.
//!
//! A new schema that is released gets a file here: `cargo test -p weir-storage --test it released::write -- --ignored` with
//! `WEIR_WRITE_RELEASED=1` writes it of the build at hand. A file that is committed is never written again.

use std::path::{Path, PathBuf};

use serde_json::{Map, json};
use tempfile::TempDir;
use weir_config::vocab::part::{PartForm, PartKind, PartRecord, PartSide};
use weir_config::vocab::{Finding, KeyId, Role, Severity, TenantId, Timestamp};
use weir_storage::query::{Page, SpanFilter};
use weir_storage::record::SpanRecord;
use weir_storage::tenants::{KeyRecord, NewTenant, SealedKey};
use weir_storage::{AuditLog as _, Registry as _, SpanLog as _, check};

use crate::ledger::event;
use crate::support::{PATIENCE, open, put, span, tenant};

/// The schemas that were released, with what each file holds: the database, and its spans as JSON Lines.
const RELEASED: [(u32, &[u8], &[u8]); 1] =
    [(28, include_bytes!("data/schema28.db.zst"), include_bytes!("data/schema28.jsonl.zst"))];

const DIGEST: [u8; 32] = [7; 32];

fn key(at: u8) -> KeyRecord {
    KeyRecord {
        id: KeyId::from_bytes([at; 16]),
        tenant_id: tenant(1),
        name: format!("key {at}"),
        key_prefix: "svc_01234567".to_owned(),
        role: Role::Operator,
        created_at: Timestamp::from_micros(1_795_860_000_000_000),
        revoked_at: None,
        last_used_at: None,
    }
}

fn spans() -> Vec<SpanRecord> {
    let mut all: Vec<SpanRecord> = (0..6_i64)
        .map(|at| SpanRecord {
            tenant_id: tenant(1 + (at % 2) as u8),
            agent_id: Some(format!("agent {}", at % 3)),
            session_id: Some("session".to_owned()),
            prompt: Some(format!("Be brief.\nWhat is {at} and {at}?")),
            response: Some(format!("It is {}.", 2 * at)),
            ..span(1_795_860_000_000_000 + at * 1_000_000)
        })
        .collect();
    for span in &mut all {
        let range = |text: &str, from: usize| Some(from as u32..text.len() as u32);
        let prompt = span.prompt.clone().unwrap();
        let part = |kind, message, text| PartRecord {
            side: PartSide::Request,
            kind,
            form: PartForm::Text,
            role: Some(if kind == PartKind::System { "system" } else { "user" }.into()),
            message: Some(message),
            text,
            raw: None,
            tool: None,
        };
        span.parts = vec![part(PartKind::System, 0, Some(0..9)), part(PartKind::User, 1, range(&prompt, 10))];
        let found =
            Finding { evidence: "and".to_owned(), ..Finding::new("jailbreak", Severity::Medium, 0.6, "rules", "why") };
        span.security_findings = vec![Finding { detected_at: span.end_time, part: Some(1), ..found }];
        span.security_score = Some(60);
    }
    all
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/data")
}

#[test]
#[ignore = "writes a file that is to be committed, once for each released schema"]
fn write() {
    assert!(std::env::var_os("WEIR_WRITE_RELEASED").is_some(), "only on purpose");
    let home = TempDir::new().unwrap();
    let path = home.path().join("weir.db");
    let store = open(&path);
    let named = |id, name: &str| NewTenant {
        id,
        name: name.to_owned(),
        plan: Some("gold".to_owned()),
        config: Map::from_iter([("access".to_owned(), json!({"allowed_models": ["gpt-*"]}))]),
    };
    store.create_tenant(named(tenant(1), "Acme"), event("tenant.create", Some(tenant(1)))).unwrap();
    store.create_tenant(named(tenant(2), "Umbrella"), event("tenant.create", Some(tenant(2)))).unwrap();
    for at in 1..=2 {
        store.create_key(key(at), [at; 32], event("key.create", Some(tenant(1)))).unwrap();
    }
    store.revoke_key(key(2).id, event("key.revoke", None)).unwrap();
    store.issue_token(tenant(1), 4_711, false, event("token.issue", Some(tenant(1))), None).unwrap();
    store.note_token_key(DIGEST).unwrap();
    let now = Timestamp::from_micros(1_795_860_000_000_000);
    let sealed = SealedKey {
        tenant_id: tenant(1),
        upstream: "openai".to_owned(),
        sealed: vec![1, 2, 3],
        key_sha256: DIGEST,
        created_at: now,
        changed_at: now,
    };
    store.set_provider_key(sealed, event("provider_key.set", Some(tenant(1)))).unwrap();
    let spans = spans();
    put(&store, spans.iter().cloned());
    let kept: Vec<SpanRecord> =
        spans.iter().map(|span| store.span(span.tenant_id, span.span_id).unwrap().unwrap()).collect();
    assert_eq!(kept, spans);
    assert!(store.close(PATIENCE));
    let schema = check(&path, &mut |_| {}).unwrap().schema;
    let lines: Vec<String> = kept.iter().map(|span| serde_json::to_string(span).unwrap()).collect();
    let pack = |bytes: &[u8]| zstd::encode_all(bytes, 19).unwrap();
    std::fs::write(folder().join(format!("schema{schema}.db.zst")), pack(&std::fs::read(&path).unwrap())).unwrap();
    std::fs::write(folder().join(format!("schema{schema}.jsonl.zst")), pack(lines.join("\n").as_bytes())).unwrap();
}

fn unpacked(folder: &Path, packed: &[u8]) -> PathBuf {
    let path = folder.join("weir.db");
    std::fs::write(&path, zstd::decode_all(packed).unwrap()).unwrap();
    path
}

#[test]
fn what_a_released_schema_holds_is_what_it_was() {
    for (schema, database, spans) in RELEASED {
        let home = TempDir::new().unwrap();
        let path = unpacked(home.path(), database);
        let examined = check(&path, &mut |_| {}).unwrap();
        assert_eq!((examined.schema, examined.faults), (schema, Vec::new()));
        let store = open(&path);
        let text = String::from_utf8(zstd::decode_all(spans).unwrap()).unwrap();
        let written: Vec<SpanRecord> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(written.len(), 6);
        for then in &written {
            let mut now = store.span(then.tenant_id, then.span_id).unwrap().unwrap();
            // Parts are not in the JSON of a span.
            assert_eq!(now.parts.len(), 2, "schema {schema}");
            now.parts.clear();
            // Nor the part in which a finding lies.
            let finding = &mut now.security_findings[0];
            assert_eq!(finding.part.take(), Some(1), "schema {schema}");
            assert_eq!(&SpanRecord { parts: Vec::new(), ..then.clone() }, &now, "schema {schema}");
        }
        let page = Page { limit: 100, ..Page::default() };
        for (at, name) in [(1, "Acme"), (2, "Umbrella")] {
            let id: TenantId = tenant(at);
            assert_eq!(store.tenant(id).unwrap().unwrap().name, name);
            assert_eq!(store.list_spans(id, &SpanFilter::default(), page).unwrap().total, 3);
            assert_eq!(store.stats(id).unwrap().total_spans, 3);
        }
        let credentials = store.load_credentials(None).unwrap();
        let keys: Vec<_> = credentials.keys.iter().map(|key| (key.id, key.sha256)).collect();
        assert_eq!(keys, [(key(1).id, [1; 32])], "the other one is revoked");
        assert_eq!(credentials.tokens, [(tenant(1), 4_711)]);
        assert_eq!(credentials.token_key_sha256, Some(DIGEST));
        let sealed = store.provider_keys(Some(tenant(1))).unwrap();
        assert_eq!(
            (sealed.len(), sealed[0].upstream.as_str(), sealed[0].sealed.as_slice()),
            (1, "openai", &[1, 2, 3][..])
        );
        let audit = store.check_audit().unwrap();
        assert!(audit.intact && audit.entries >= 7, "{audit:?}");
        // And it goes on.
        put(&store, [SpanRecord { tenant_id: tenant(1), ..span(1_795_900_000_000_000) }]);
        assert_eq!(store.stats(tenant(1)).unwrap().total_spans, 4);
        assert!(store.close(PATIENCE));
        assert_eq!(check(&path, &mut |_| {}).unwrap().pending, 0);
    }
}
