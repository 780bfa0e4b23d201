//! What a gateway gets beside its built-in parts: how tests bring a part of their own into the real process.

use std::sync::Arc;

use weir_inference::Detector;

use crate::feed::Feed;
use crate::grpc;
use crate::process::OutsideVerdict;
use crate::rewrite::MakeTap;

/// Adds a consumer to the feed.
pub type AddConsumer = Box<dyn FnOnce(&mut Feed) + Send>;

/// Further parts; none by default.
#[derive(Default)]
pub struct Extensions {
    /// Consumers of finished spans, one line each: `Box::new(|feed| feed.add(Alerts::new(feed.client())))`.
    pub consumers: Vec<AddConsumer>,
    /// Detectors, one line each: `Arc::new(Classifier::open(path)?)`.
    pub detectors: Vec<Arc<dyn Detector>>,
    /// Outside verdicts that are asked for before a request is forwarded.
    pub outside: Vec<Arc<dyn OutsideVerdict>>,
    /// What looks at answers before their clients get them; the first that wants an answer has it.
    pub taps: Vec<MakeTap>,
    /// How long the gRPC listener waits for whom.
    pub grpc_times: grpc::Times,
}
