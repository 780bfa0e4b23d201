//! What each role of a store has to keep, as one suite over the traits. An implementation runs it with one line in
//! [`implementations`]; what is particular to one (files, kills, faults) is tested elsewhere.
//!
//! Each check gets an empty store. None knows how one is made.

mod alerts;
mod objects;
mod offences;
mod registry;
mod reports;
mod span_log;
mod spend;
mod toy_log;
mod verdicts;

use tempfile::TempDir;
use weir_storage::{Backend, Store};

use crate::support::{ROOMY, file, options};

/// An empty store, and the folder it may live in.
struct Fresh<S> {
    store: S,
    _folder: Option<TempDir>,
}

fn in_a_file() -> Fresh<Store> {
    let folder = TempDir::new().unwrap();
    let store = Store::open(options(file(&folder.path().join("service.db")))).unwrap();
    Fresh { store, _folder: Some(folder) }
}

fn in_memory() -> Fresh<Store> {
    let store = Store::open(options(Backend::Memory { max_bytes: ROOMY })).unwrap();
    Fresh { store, _folder: None }
}

fn toy() -> Fresh<toy_log::ToyLog> {
    Fresh { store: toy_log::ToyLog::default(), _folder: None }
}

fn in_stores() -> Fresh<Store> {
    let (folder, options) = crate::journals::fresh();
    Fresh { store: Store::open(options).unwrap(), _folder: Some(folder) }
}

/// A test per role; each of its checks meets a store of its own. Those of `slow` implementations run where they are asked for.
macro_rules! keeps {
    ($name:ident: $make:expr => $($role:ident),+) => {
        mod $name {
            $(
                #[test]
                fn $role() {
                    crate::contract::check(crate::contract::$role::CHECKS, |check| check(&$make().store));
                }
            )+
        }
    };
    (slow $name:ident: $make:expr => $($role:ident),+) => {
        mod $name {
            $(
                #[test]
                #[ignore = "starts three stores: .ci/full"]
                fn $role() {
                    crate::contract::check(crate::contract::$role::CHECKS, |check| check(&$make().store));
                }
            )+
        }
    };
}

/// Runs checks one after another, each by its name.
fn check<C: Copy>(checks: &[(&str, C)], run: impl Fn(C)) {
    for (name, check) in checks {
        eprintln!("{name}");
        run(*check);
    }
}

/// Every implementation, with the roles it plays.
mod implementations {
    keeps!(lite: crate::contract::in_a_file => span_log, registry, reports, spend, offences, objects, verdicts, alerts);
    keeps!(memory: crate::contract::in_memory => span_log, registry, reports, spend, offences, objects, verdicts, alerts);
    keeps!(slow production: crate::contract::in_stores => span_log, registry, reports, spend, offences, objects, verdicts, alerts);
    keeps!(toy: crate::contract::toy => span_log);
}

/// Checks with their names.
macro_rules! checks {
    ($role:ty: $($name:ident),+ $(,)?) => {
        pub(crate) const CHECKS: &[(&str, fn(&$role))] = &[$((stringify!($name), $name)),+];
    };
}
use checks;
