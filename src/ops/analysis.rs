//! What the detectors were spared, for `/metrics`.

use std::sync::Arc;

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
    }
}
