//! The fake provider as a process of this run's own: started where no target is named, ended with the run.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use super::error::SetupError;
use super::plan::ProviderShape;

/// How much longer than the run it may live, should nobody end it.
const LONGER: Duration = Duration::from_secs(600);

/// A provider under way.
pub(super) struct OwnProvider {
    child: Child,
    pub(super) url: String,
}

impl OwnProvider {
    /// Starts one for a run that takes about this long.
    pub(super) fn start(shape: &ProviderShape, length: Duration) -> Result<Self, SetupError> {
        let failed = |what: &str| SetupError(format!("the fake provider cannot be started: {what}"));
        let program = std::env::current_exe().map_err(|error| failed(&error.to_string()))?;
        let mut command = Command::new(program);
        let listen = shape.listen.unwrap_or_else(|| ([127, 0, 0, 1], 0).into());
        command.args(["provider", "--listen", &listen.to_string(), "--digest"]);
        let settings = [
            ("--answer-bytes", shape.answer_bytes),
            ("--frames", shape.frames),
            ("--frame-ms", shape.frame_ms),
            ("--delay-ms", shape.delay_ms),
            ("--cores", u32::from(shape.cores)),
        ];
        for (name, value) in settings {
            command.arg(name).arg(value.to_string());
        }
        command.arg("--for").arg(format!("{}s", (length * 3 + LONGER).as_secs()));
        let spawned = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
        let mut own = Self { child: spawned.map_err(|error| failed(&error.to_string()))?, url: String::new() };
        let mut line = String::new();
        if let Some(out) = own.child.stdout.take() {
            BufReader::new(out).read_line(&mut line).map_err(|error| failed(&error.to_string()))?;
        }
        let addr = line.trim().strip_prefix("listening on ").ok_or_else(|| failed("it ended before it listened"))?;
        own.url = format!("http://{addr}");
        Ok(own)
    }

    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for OwnProvider {
    fn drop(&mut self) {
        // One that has ended already is as good.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
