//! How gateways of the `production` profile open their stores: each with a journal of its own.

use std::path::Path;

use tempfile::TempDir;
use weir_storage::{Backend, StoreOptions, Stores};

use crate::stores::{name, shared};
use crate::support::options;

/// How a gateway with this journal opens these stores.
pub(crate) fn gateway(journal: &Path, stores: Stores) -> StoreOptions {
    options(Backend::Production { path: journal.to_owned(), stores: Box::new(stores) })
}

/// For a gateway of its own on empty databases, and the folder of its journal.
pub(crate) fn fresh() -> (TempDir, StoreOptions) {
    let folder = TempDir::new().unwrap();
    let options = gateway(&folder.path().join("journal.db"), shared().named(&name()));
    (folder, options)
}
