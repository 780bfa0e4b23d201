//! `weir judge try`: what the configured judge says of a text, and why: the question, the answer as it came, the verdict and
//! what it cost. The findings in the question are those of the detectors, rules and models that the settings name, by the
//! inspection of the proxy; a model that is not at hand is not fetched.

use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;

use clap::Subcommand;
use weir_config::settings::Settings;
use weir_config::vocab::Finding;
use weir_inference::{Analyser, Part, PoolOptions, WorkerPool};
use weir_models::{Loader, Models, Slot};

use super::common::{EXIT_USAGE, Options, complain, say, sources};
use super::scan::{TextRole, plain};
use crate::boot::{Extensions, StartError, models, own_rules};
use crate::judge::{Candidate, Judge, Outcome, Prompt, Reply};
use crate::limits::KEPT_BYTES_MAX;
use crate::money::{Prices, dollars};
use crate::outbound::Client;
use crate::settle::inspection::Alone;
use crate::settle::whole::WholeLook;

/// The location that findings get here; they are in no record.
const LOCATION: &str = "text";

/// Subcommands of `weir judge`.
#[derive(Debug, Clone, Subcommand)]
pub(super) enum JudgeCommand {
    /// Ask the configured judge about a text and show the question, the answer, the verdict and the cost. 0 when there is a
    /// verdict, 1 when there is none.
    Try {
        /// The text.
        #[arg(long, conflicts_with = "file", required_unless_present = "file")]
        text: Option<String>,
        /// A file with the text; `-` is standard input.
        #[arg(long, value_name = "FILE")]
        file: Option<PathBuf>,
        /// The author of the text.
        #[arg(long, value_enum, default_value = "user")]
        role: TextRole,
    },
}

/// Asks the judge and prints what it answered.
pub(super) fn run(from: &Options, command: &JudgeCommand, extensions: Extensions) -> Result<ExitCode, StartError> {
    let JudgeCommand::Try { text, file, role } = command;
    let loaded = weir_config::load(&sources(from))?;
    let text = match (text, file) {
        (Some(text), _) => text.clone(),
        (None, Some(path)) => match read(path) {
            Ok(text) => text,
            Err(error) => {
                complain(&format!("{}: {error}", path.display()));
                return Ok(ExitCode::from(EXIT_USAGE));
            }
        },
        (None, None) => return Ok(ExitCode::from(EXIT_USAGE)),
    };
    let settings = &loaded.settings;
    let models = models::present(settings)?;
    let detectors = models.detectors().into_iter().chain(extensions.detectors).collect();
    let analyser = own_rules::analyser(settings, detectors)?.0;
    // Held until the judge has spoken: what it loads is in use until then.
    let loader = load(settings, &models)?;
    let findings = find(settings, analyser, Part { text: &text, kind: role.kind() })?;
    let candidate = Candidate::choose(&[(role.kind(), &text)], &findings, settings.judge.worker.max_text_bytes);
    let judge = open(settings, &models)?;
    let prompt = judge.prompt(&candidate);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|source| StartError::Thread { what: "the network runtime", source })?;
    let outcome = runtime.block_on(judge.ask(&candidate, &prompt));
    // A classifier that had its time may still be at work.
    runtime.shutdown_background();
    drop(loader);
    Ok(show(&judge, &prompt, &outcome))
}

/// Loads the models that the settings switch on, and the one that judges in the place of the embedded classifier, as far as they
/// are at hand.
fn load(settings: &Settings, models: &Arc<Models>) -> Result<Loader, StartError> {
    let on = models::named(settings)?.into_iter().filter(|(slot, is_on, _)| *is_on || *slot == Slot::Judge);
    let wanted: Vec<Slot> = on.map(|(slot, ..)| slot).collect();
    let (ready, is_ready) = channel();
    let tell = move || {
        let _nobody_waits = ready.send(());
    };
    let loader = models.start(&wanted, tell, || {});
    let loader = loader.map_err(|source| StartError::Thread { what: "the thread that loads models", source })?;
    // The thread says so when it has tried them, and when it ends.
    let _ended = is_ready.recv();
    Ok(loader)
}

fn open(settings: &Settings, models: &Arc<Models>) -> Result<Judge, StartError> {
    let connect_limit = Duration::from_millis(settings.limits.connection_timeout_ms);
    let client = Client::new(&settings.egress, settings.upstream_ca_file.as_deref(), connect_limit)?;
    let prices = Arc::new(Prices::open(&settings.cost_estimation, &settings.upstream.host)?);
    Ok(Judge::new(&settings.judge, &client, prices, models::judging(settings, models))?)
}

/// Findings in the text, as the judge is told of them; none of a detector that failed.
fn find(settings: &Settings, analyser: Analyser, part: Part<'_>) -> Result<Vec<Finding>, StartError> {
    let analyser = Arc::new(analyser);
    let options = PoolOptions {
        threads: 1,
        queue_jobs: 1,
        queue_bytes: KEPT_BYTES_MAX,
        several: false,
        batch_jobs: 1,
        batch_wait: Duration::ZERO,
    };
    let pool = WorkerPool::start(options, Arc::clone(&analyser))
        .map_err(|source| StartError::Thread { what: "the inference pool", source })?;
    let handle = pool.handle();
    let look = WholeLook::new(&analyser, &handle, settings);
    let found = look.findings(&mut look.scratch(), &Alone { part, location: LOCATION });
    pool.stop();
    Ok(found.unwrap_or_default())
}

fn read(path: &std::path::Path) -> io::Result<String> {
    let mut bytes = Vec::new();
    let longer = if path.as_os_str() == "-" {
        super::scan::read_up_to(io::stdin().lock(), KEPT_BYTES_MAX, &mut bytes)?
    } else {
        super::scan::read_up_to(File::open(path)?, KEPT_BYTES_MAX, &mut bytes)?
    };
    if longer {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, format!("longer than {KEPT_BYTES_MAX} bytes")));
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn show(judge: &Judge, prompt: &Prompt, outcome: &Outcome) -> ExitCode {
    let line = |topic: &str, text: &str| say(&format!("{topic:<8}  {}", plain(text)));
    line("judge", &format!("{}, {}", judge.backend(), judge.model()));
    line("system", &prompt.system);
    line("user", &prompt.user);
    outcome.replies.iter().for_each(|reply| show_reply(reply, &line));
    let took = format!("{} ms", outcome.took.as_millis());
    line("took", &took);
    match &outcome.verdict {
        Ok(verdict) => {
            line("verdict", &serde_json::to_string(verdict).unwrap_or_default());
            ExitCode::SUCCESS
        }
        Err(failure) => {
            line("verdict", &format!("none ({}): {}", failure.status.as_str(), failure.reason));
            ExitCode::FAILURE
        }
    }
}

fn show_reply(reply: &Reply, line: &impl Fn(&str, &str)) {
    line("asked", &format!("{}, {}", reply.backend, reply.model));
    line("answer", if reply.raw.is_empty() { "-" } else { &reply.raw });
    if let Err(failure) = &reply.verdict {
        line("failed", &format!("{}: {}", failure.status.as_str(), failure.reason));
    }
    let cost = match reply.cost_nano_usd {
        Some(cost) => format!("{} USD", dollars(cost)),
        None if reply.backend == "classifier" => "nothing".to_owned(),
        None => "unknown: the model has no price".to_owned(),
    };
    line("cost", &format!("{cost} ({} tokens in, {} out)", reply.tokens.input, reply.tokens.output));
}
