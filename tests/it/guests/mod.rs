//! Parts that only tests have, in the real gateway: `Setup::guest` starts this test binary again, as a gateway with one of them.

mod toy_faults;
mod toy_model;
mod toy_tap;
mod toy_verdict;
mod webhook;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

pub(crate) use toy_tap::{LONGEST, WARNING};
pub(crate) use webhook::RECEIVER;
use weir::boot::Extensions;
use weir::grpc::Times;
use weir_inference::{CostClass, Detector};

use crate::support::{GUEST, GUEST_ARGS};

/// The parts by the names that tests give.
fn extensions(guest: &str) -> Extensions {
    let mut extensions = Extensions::default();
    match guest {
        "toy_model" => extensions.detectors.push(Arc::new(toy_model::ToyModel)),
        // Each wait long enough to be told from none, and short enough for a test.
        "hasty_grpc" => {
            let ms = Duration::from_millis;
            extensions.grpc_times = Times { handshake: ms(300), ping: ms(300), silence: ms(600), ..Times::default() };
        }
        // An official client on a busy machine may take longer than that to answer a ping: of these, calls alone are short.
        "hasty_calls" => {
            extensions.detectors.push(Arc::new(toy_model::ToyModel));
            let second = Duration::from_secs(1);
            extensions.grpc_times = Times { call: second, batch: second, ..Times::default() };
        }
        "toy_faults" => extensions.detectors.extend([CostClass::Core, CostClass::Model].map(|class| {
            let detector: Arc<dyn Detector> = Arc::new(toy_faults::ToyFaults(class));
            detector
        })),
        "toy_tap" => extensions.taps.push(toy_tap::make),
        "toy_verdict" => extensions.outside.push(Arc::new(toy_verdict::ToyVerdict)),
        "webhook" => extensions.consumers.push(Box::new(webhook::add)),
        other => panic!("no guest is called `{other}`"),
    }
    extensions
}

/// The gateway's process. Run by hand it does nothing.
#[test]
#[ignore = "other tests start it as a gateway"]
fn gateway() -> ExitCode {
    let (Ok(guest), Ok(args)) = (std::env::var(GUEST), std::env::var(GUEST_ARGS)) else { return ExitCode::SUCCESS };
    let args: Vec<String> = serde_json::from_str(&args).unwrap();
    weir::cli::run_with(["weir".to_owned()].into_iter().chain(args).map(Into::into), extensions(&guest))
}
