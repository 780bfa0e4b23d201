//! What admission costs: who sends a request, with 10,000 tenants and 100,000 keys in memory, and what those take.
//!
//! `cargo bench --bench admission`; the memory is printed before the timings.

use std::hint::black_box;
use std::sync::Arc;

use criterion::{Criterion, criterion_group, criterion_main};
use weir::admit::directory::{Digest, Directory, Holder, Whom};
use weir::admit::{CallerCache, Guard, Presented};
use weir::redaction::Redaction;
use weir_config::settings::Auth;
use weir_config::vocab::{KeyId, Role, SharedSecret, TenantId};

const TENANTS: u128 = 10_000;
const KEYS: u128 = 100_000;
const NOW_S: u32 = 1_800_000_000;

fn key(number: u128) -> String {
    format!("svc_{number:064x}")
}

fn directory() -> Directory {
    let tenant = |number: u128| TenantId::from_bytes((number % TENANTS).to_be_bytes());
    let keys = (0..KEYS).map(|number| {
        let id = KeyId::from_bytes(number.to_be_bytes());
        let holder = Holder::Key { id, tenant_id: tenant(number), role: Role::Operator };
        (Digest::of(key(number).as_bytes()), holder)
    });
    let tokens = (0..TENANTS).map(|number| {
        (Digest::of(format!("svt_{number:064x}").as_bytes()), Holder::Token { tenant_id: tenant(number) })
    });
    Directory::new(keys.chain(tokens))
}

fn guard(enabled: bool, directory: &Arc<Directory>) -> Guard {
    let admin_key = Some(SharedSecret::new("bootstrap-0123456789abcdef"));
    Guard::new(&Auth { enabled, admin_key, token_key_file: None, max_stale_seconds: 3_600 }, Arc::clone(directory))
}

/// Resident bytes of this process.
fn resident() -> usize {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    pages.split(' ').nth(1).and_then(|pages| pages.parse::<usize>().ok()).unwrap_or(0) * 4096
}

/// The fields an SDK sends.
fn head(authorization: &str) -> Vec<(&'static [u8], Vec<u8>)> {
    let mut fields: Vec<(&'static [u8], Vec<u8>)> = [
        ("Host", "gateway:8080"),
        ("Accept", "application/json"),
        ("Accept-Encoding", "gzip, deflate, br, zstd"),
        ("Connection", "keep-alive"),
        ("Content-Type", "application/json"),
        ("User-Agent", "OpenAI/Python 2.8.1"),
        ("X-Stainless-Lang", "python"),
        ("X-Stainless-Package-Version", "2.8.1"),
        ("X-Stainless-OS", "Linux"),
        ("X-Stainless-Arch", "x64"),
        ("X-Stainless-Runtime", "CPython"),
        ("X-Stainless-Async", "false"),
        ("X-Stainless-Retry-Count", "0"),
        ("Content-Length", "512"),
    ]
    .map(|(name, value)| (name.as_bytes(), value.as_bytes().to_vec()))
    .to_vec();
    fields.push((b"Authorization", authorization.as_bytes().to_vec()));
    fields
}

fn admission(criterion: &mut Criterion) {
    let before = resident();
    let directory = Arc::new(directory());
    let bytes = resident() - before;
    println!("{} credentials take {:.1} MiB resident", directory.len(), bytes as f64 / 1_048_576.0);
    let mut group = criterion.benchmark_group("admission");
    let read = |fields: &'_ [(&'static [u8], Vec<u8>)]| -> bool {
        Presented::read(fields.iter().map(|(name, value)| (*name, value.as_slice()))).authorization.is_some()
    };
    let provider = head("Bearer sk-proj-0123456789abcdef0123456789abcdef0123456789abcdef");
    group.bench_function("reading_the_fields", |bencher| bencher.iter(|| read(black_box(&provider))));
    let caller = |guard: &Guard, memory: &mut CallerCache, fields: &[(&'static [u8], Vec<u8>)]| {
        let presented = Presented::read(fields.iter().map(|(name, value)| (*name, value.as_slice())));
        guard.caller(memory, &presented, Role::Operator, NOW_S).is_ok()
    };
    let (off, on) = (guard(false, &directory), guard(true, &directory));
    let mut memory = CallerCache::default();
    group.bench_function("off_known_connection", |bencher| {
        bencher.iter(|| caller(&off, &mut memory, black_box(&provider)));
    });
    let heads: Vec<_> = (0..KEYS).step_by(97).map(|number| head(&format!("Bearer {}", key(number)))).collect();
    let mut memory = CallerCache::default();
    group.bench_function("on_known_connection", |bencher| {
        bencher.iter(|| caller(&on, &mut memory, black_box(&heads[7])));
    });
    let mut next = 0;
    group.bench_function("on_another_key_each_time", |bencher| {
        let mut memory = CallerCache::default();
        bencher.iter(|| {
            next = (next + 1) % heads.len();
            caller(&on, &mut memory, black_box(&heads[next]))
        });
    });
    let unknown = head(&format!("Bearer {}", key(KEYS + 1)));
    group.bench_function("on_an_unknown_key", |bencher| {
        let mut memory = CallerCache::default();
        bencher.iter(|| caller(&on, &mut memory, black_box(&unknown)));
    });
    let redaction = |enabled| {
        let admin_key = Some(SharedSecret::new("bootstrap-0123456789abcdef"));
        Redaction::new(&Auth { enabled, admin_key, token_key_file: None, max_stale_seconds: 3_600 })
    };
    let keeps = |redaction: &Redaction, fields: &[(&'static [u8], Vec<u8>)]| {
        fields.iter().filter(|(name, value)| redaction.keeps(name, value)).count()
    };
    let (redaction_off, redaction_on) = (redaction(false), redaction(true));
    group
        .bench_function("off_fields_kept_back", |bencher| bencher.iter(|| keeps(&redaction_off, black_box(&heads[7]))));
    group.bench_function("on_fields_kept_back", |bencher| bencher.iter(|| keeps(&redaction_on, black_box(&heads[7]))));
    group.bench_function("revoking_one_key", |bencher| {
        let mut number = 0;
        bencher.iter(|| {
            number += 1;
            let id = KeyId::from_bytes((KEYS + number).to_be_bytes());
            let holder = Holder::Key { id, tenant_id: TenantId::DEFAULT, role: Role::Viewer };
            directory.insert(Digest::of(&number.to_be_bytes()), holder);
            directory.shut_out(None, Whom::One(holder.named()))
        });
    });
    group.finish();
}

criterion_group!(benches, admission);
criterion_main!(benches);
