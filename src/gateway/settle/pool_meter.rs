//! What threads of the pool count with.

use std::cell::OnceCell;

use crate::meter::CoreMeter;
use crate::process::Process;

/// Pool threads have meters of their own: every cell has one writer.
pub(crate) fn with_pool_meter(process: &Process, use_it: impl FnOnce(&CoreMeter)) {
    thread_local! {
        static METER: OnceCell<CoreMeter> = const { OnceCell::new() };
    }
    METER.with(|meter| use_it(meter.get_or_init(|| process.parts.registry.core())));
}
