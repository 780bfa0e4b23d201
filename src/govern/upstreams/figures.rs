//! What `/metrics` says of upstreams. Their names are the operator's, and bounded (`upstreams`).

use std::sync::Arc;

use super::shared::SharedUpstreams;
use crate::meter::{Exposition, Source, names};

/// Shows calls by upstream, and which upstreams are passed by; nothing where there is only `upstream_url`.
pub struct Figures(pub Arc<SharedUpstreams>);

impl Source for Figures {
    fn collect(&self, out: &mut Exposition) {
        let table = self.0.table();
        if table.is_alone {
            return;
        }
        for member in &table.members {
            for (outcome, count) in member.health.counts() {
                out.counter(names::UPSTREAM_CALLS, &[("upstream", &member.name), ("outcome", outcome)], count);
            }
            let labels = [("upstream", &*member.name)];
            out.gauge(names::UPSTREAM_HEALTHY, &labels, f64::from(u8::from(member.health.is_healthy())));
            out.counter(names::UPSTREAM_EJECTIONS, &labels, member.health.ejected());
        }
    }
}
