//! `weir models`: lists the ONNX models that the settings name and the folder for models holds, fetches them from the hub, and
//! verifies them by their checksums and known texts.

use std::io::{IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use clap::Subcommand;
use serde_json::{Value, json};
use weir_config::settings::Settings;
use weir_models::{Files, ModelState, Named, Slot, ids_in};

use super::common::{EXIT_USAGE, Options, complain, say, sources};
use super::scan::plain;
use crate::boot::{StartError, models};
use crate::hub::{Fetch, HubError, Manifest, Progress};

/// Subcommands of `weir models`.
#[derive(Debug, Clone, Subcommand)]
pub(super) enum ModelsCommand {
    /// List the models that the settings name and those in the folder for models.
    List {
        /// One JSON object per line.
        #[arg(long)]
        json: bool,
    },
    /// Fetch models from the hub into the folder for models: those named, or those of the settings that are missing. 0 when all
    /// are there.
    Fetch {
        /// Ids, such as owner/name.
        ids: Vec<String>,
    },
    /// Compare models with the checksums of when they came, and try those that are switched on. 0 when nothing is wrong.
    Verify,
}

/// Runs the subcommand.
pub(super) fn run(options: &Options, command: &ModelsCommand) -> Result<ExitCode, StartError> {
    let loaded = weir_config::load(&sources(options))?;
    let settings = &loaded.settings;
    match command {
        ModelsCommand::List { json } => list(settings, *json),
        ModelsCommand::Fetch { ids } => fetch(settings, ids),
        ModelsCommand::Verify => verify(settings),
    }
}

/// One model: what the settings use it for, and what there is of it.
struct Model {
    name: String,
    used_by: Vec<&'static str>,
    is_on: bool,
    folder: PathBuf,
}

impl Model {
    /// The bytes of its graph, or why it cannot be used.
    fn graph_bytes(&self) -> Result<u64, String> {
        let files = Files::find(&self.folder).map_err(|error| error.to_string())?;
        std::fs::metadata(&files.graph).map(|found| found.len()).map_err(|error| error.to_string())
    }

    fn manifest(&self) -> Option<Manifest> {
        Manifest::read(&self.folder).ok().flatten()
    }
}

/// Those of the settings, and the others in the folder for models.
fn all(settings: &Settings) -> Result<Vec<Model>, StartError> {
    let cache = models::cache(settings);
    let mut found: Vec<Model> = Vec::new();
    for (slot, is_on, named) in models::named(settings)? {
        let name = named.to_string();
        match found.iter_mut().find(|model| model.name == name) {
            Some(model) => {
                model.used_by.push(slot.name());
                model.is_on |= is_on;
            }
            None => found.push(Model { folder: named.folder(&cache), name, used_by: vec![slot.name()], is_on }),
        }
    }
    for id in ids_in(&cache) {
        if !found.iter().any(|model| model.name == id) {
            let folder = Named::Id(id.clone()).folder(&cache);
            found.push(Model { name: id, used_by: Vec::new(), is_on: false, folder });
        }
    }
    Ok(found)
}

fn list(settings: &Settings, json: bool) -> Result<ExitCode, StartError> {
    let models = all(settings)?;
    if models.is_empty() && !json {
        say(&format!("no model is named in the settings, and {} holds none", models::cache(settings).display()));
    }
    for model in &models {
        let (bytes, manifest) = (model.graph_bytes(), model.manifest());
        let used = if model.used_by.is_empty() { "-".to_owned() } else { model.used_by.join(",") };
        if json {
            say(&described(model, &bytes, manifest.as_ref()).to_string());
            continue;
        }
        let state = match (&bytes, &manifest) {
            (Err(why), _) => format!("missing: {why}"),
            (Ok(bytes), Some(manifest)) => {
                format!("{}, from {} at {}", size(*bytes), manifest.hub, manifest.fetched_at)
            }
            (Ok(bytes), None) => size(*bytes),
        };
        let on = if model.is_on { "on" } else { "off" };
        say(&plain(&format!("{:40}  {used:20}  {on:3}  {state}", model.name)));
    }
    Ok(ExitCode::SUCCESS)
}

fn described(model: &Model, bytes: &Result<u64, String>, manifest: Option<&Manifest>) -> Value {
    json!({
        "model": model.name,
        "folder": model.folder.display().to_string(),
        "used_by": model.used_by,
        "on": model.is_on,
        "graph_bytes": bytes.as_ref().ok(),
        "missing": bytes.as_ref().err(),
        "manifest": manifest,
    })
}

fn size(bytes: u64) -> String {
    format!("{:.1} MB", bytes as f64 / 1e6)
}

fn fetch(settings: &Settings, ids: &[String]) -> Result<ExitCode, StartError> {
    let Some(hub) = settings.security_analysis.ml_hub_url.clone() else {
        complain("`security_analysis.ml_hub_url` is null: nothing is ever fetched");
        return Ok(ExitCode::from(EXIT_USAGE));
    };
    if let Some(bad) = ids.iter().find(|id| !matches!(Named::read(id), Ok(Named::Id(_)))) {
        complain(&plain(&format!("`{bad}` is not the id of a model; ids look like owner/name")));
        return Ok(ExitCode::from(EXIT_USAGE));
    }
    let missing = || -> Result<Vec<String>, StartError> {
        let named =
            all(settings)?.into_iter().filter(|model| !model.used_by.is_empty() && model.graph_bytes().is_err());
        Ok(named.map(|model| model.name).filter(|name| matches!(Named::read(name), Ok(Named::Id(_)))).collect())
    };
    let ids = if ids.is_empty() { missing()? } else { ids.to_vec() };
    if ids.is_empty() {
        say("no model of the settings that has an id is missing");
    }
    let client = models::client(settings)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|source| StartError::Thread { what: "the network runtime", source })?;
    let limit = Duration::from_secs(settings.security_analysis.ml_download_timeout_seconds);
    let mut failed = false;
    for id in &ids {
        let cache = models::cache(settings);
        let fetch = Fetch { client: &client, hub: &hub, id, cache: &cache, deadline: Instant::now() + limit };
        match runtime.block_on(fetch.run(&mut show)) {
            Ok(manifest) => fetched(id, &cache, &manifest),
            Err(error) => {
                failed = true;
                complain(&plain(&format!("{id}: {}", advice(&error))));
            }
        }
    }
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn advice(error: &HubError) -> String {
    match error {
        HubError::Missing("ONNX graph", _) => format!("{error}; export the model to ONNX and name its folder instead"),
        other => other.to_string(),
    }
}

/// Shows progress: on one line of a terminal, else a line for each file that has come.
fn show(progress: Progress<'_>) {
    let Progress { file, bytes, of, done } = progress;
    let mut error = std::io::stderr();
    if !done && !error.is_terminal() {
        return;
    }
    let of = of.map(|of| format!(" of {}", size(of))).unwrap_or_default();
    let (start, end) = if error.is_terminal() { ("\r\u{1b}[K", if done { "\n" } else { "" }) } else { ("", "\n") };
    drop(write!(error, "{start}{file}: {}{of}{end}", size(bytes)));
}

fn fetched(id: &str, cache: &Path, manifest: &Manifest) {
    say(&plain(&format!("{id}: {}", Named::Id(id.to_owned()).folder(cache).display())));
    for (name, entry) in &manifest.files {
        say(&plain(&format!("  {}  {name}", entry.sha256)));
    }
}

fn verify(settings: &Settings) -> Result<ExitCode, StartError> {
    let mut wrong = false;
    let mut tell = |is_wrong: bool, line: &str| {
        wrong |= is_wrong;
        say(&plain(&format!("{}  {line}", if is_wrong { "FAIL" } else { "ok  " })));
    };
    for model in all(settings)? {
        match (model.graph_bytes(), model.manifest()) {
            (Err(why), _) => tell(model.is_on, &format!("{}: {why}", model.name)),
            (Ok(_), None) => tell(false, &format!("{}: has no manifest; it was not fetched by Weir", model.name)),
            (Ok(_), Some(manifest)) => match manifest.changed(&model.folder).as_slice() {
                [] => tell(false, &format!("{}: as it came at {}", model.name, manifest.fetched_at)),
                changed => changed.iter().for_each(|what| tell(true, &format!("{}: {what}", model.name))),
            },
        }
    }
    for (is_wrong, line) in tried(settings)? {
        tell(is_wrong, &line);
    }
    Ok(if wrong { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Tries the models that are switched on with texts whose verdict is known.
fn tried(settings: &Settings) -> Result<Vec<(bool, String)>, StartError> {
    let on = models::named(settings)?.into_iter().filter(|(_, is_on, _)| *is_on);
    let on: Vec<Slot> = on.map(|(slot, ..)| slot).collect();
    if on.is_empty() {
        return Ok(Vec::new());
    }
    let (ready, is_ready) = channel();
    let places = models::present(settings)?;
    let tell = move || {
        let _nobody_waits = ready.send(());
    };
    let loader = places.start(&on, tell, || {});
    let _loader = loader.map_err(|source| StartError::Thread { what: "the thread that loads models", source })?;
    // The thread says so when it has tried them all, and when it ends.
    let _ended = is_ready.recv();
    let states = places.states().into_iter().filter(|state| on.contains(&state.slot));
    let said = states.map(|ModelState { slot, model, reason, .. }| match reason {
        None => (false, format!("{}: {model} has been loaded and has passed its self-test", slot.name())),
        Some(why) => (true, format!("{}: {model}: {why}", slot.name())),
    });
    Ok(said.collect())
}
