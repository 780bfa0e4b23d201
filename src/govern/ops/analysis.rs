//! What the detectors were spared, and whether the boundary defence acts, for `/metrics`.

use std::sync::Arc;

use arc_swap::ArcSwap;
use weir_config::Settings;
use weir_inference::Analyser;

use crate::meter::{Exposition, Source, names};

/// Shows how much text was scanned, and how much was known from an earlier call.
pub struct AnalysedBytes(pub Arc<Analyser>);

impl Source for AnalysedBytes {
    fn collect(&self, out: &mut Exposition) {
        let met = self.0.text_bytes();
        for (outcome, bytes) in [("scanned", met.scanned), ("known", met.known)] {
            out.counter(names::ANALYSED_BYTES, &[("outcome", outcome)], bytes);
        }
        let texts = self.0.known_texts();
        for (outcome, count) in [("scanned", texts.misses), ("known", texts.hits), ("forgotten", texts.turned_out)] {
            out.counter(names::ANALYSED_TEXTS, &[("outcome", outcome)], count);
        }
        for (what, bytes) in [("taken", texts.bytes), ("most", texts.bytes_max)] {
            out.gauge(names::KNOWN_TEXTS_BYTES, &[("what", what)], bytes as f64);
        }
    }
}

/// Shows whether the boundary defence computes and does not act.
pub struct DefenceShadow(pub Arc<ArcSwap<Settings>>);

impl Source for DefenceShadow {
    fn collect(&self, out: &mut Exposition) {
        let settings = self.0.load();
        let defence = &settings.boundary_defense;
        let is_shadow = defence.enabled && defence.shadow_mode;
        out.gauge(names::DEFENCE_SHADOW, &[], f64::from(u8::from(is_shadow)));
    }
}
