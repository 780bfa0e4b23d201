//! The cores' pulses as metrics: how late each loop ran, and how long it has been silent.

use std::sync::Arc;

use crate::meter::{Exposition, Source, names};
use crate::rt::Heartbeats;

/// Shows the pulses in `/metrics`.
#[derive(Debug)]
pub struct CorePulses(pub Arc<Heartbeats>);

impl Source for CorePulses {
    fn collect(&self, out: &mut Exposition) {
        for (index, pulse) in self.0.read().enumerate() {
            let core = index.to_string();
            let labels = [("core", core.as_str())];
            out.gauge(names::LOOP_LAG, &labels, pulse.lag.as_secs_f64());
            out.gauge(names::LOOP_LAG_MAX, &labels, pulse.lag_max.as_secs_f64());
            out.gauge(names::HEARTBEAT_AGE, &labels, pulse.age.as_secs_f64());
        }
    }
}
