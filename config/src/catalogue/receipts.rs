//! Rows of signed receipts.

use super::value::{flag, int, optional_path};
use super::{Kind, Literal, Setting, set};

pub(super) static SETTINGS: &[Setting] = &[
    Setting::built(
        "receipts.enabled",
        Kind::Bool,
        Literal::Bool(false),
        "Give each recorded call a signed receipt: digests of what was sent and what came back, models, findings, cost, chained. \
         `weir receipts init` makes the key. Ours.",
        set!(receipts.enabled, flag),
    ),
    Setting::built(
        "receipts.key_file",
        Kind::File,
        Literal::Null,
        "The private key (Ed25519, PKCS #8, PEM), which `weir receipts init` makes; null means <storage.database_path>.receipts.key. Ours.",
        set!(receipts.key_file, optional_path),
    ),
    Setting::built(
        "receipts.directory",
        Kind::File,
        Literal::Null,
        "The folder in which receipts are kept, one JSON object a line; null means <storage.database_path>.receipts. Ours.",
        set!(receipts.directory, optional_path),
    ),
    Setting::built(
        "receipts.retention_days",
        Kind::u32_at_least(1),
        Literal::Int(365),
        "How long receipts are kept, in files of 32 MiB; the records they are of may go sooner. Ours.",
        set!(receipts.retention_days, int),
    ),
];
