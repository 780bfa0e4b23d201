//! Models that operators provide: which of them the settings ask for, and how they are doing.
//!
//! Invariant: a model that is not at hand does not stop the start; it is missing, which the log and `/health` say.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use weir_config::Settings;
use weir_config::settings::{EMBEDDED_MODEL, JudgeTier};
use weir_models::{
    FetchModel, Files, ModelError, ModelState, Models, Named, NotAsked, Options, Runtime, Slot, default_cache,
};

use super::StartError;
use crate::hub::{Fetch, Progress};
use crate::judge::{Candidate, Classify, Failure, Status};
use crate::ops::health::{ModelReport, ModelsReport};
use crate::outbound::Client;

/// What the settings say of one place for a model.
struct Said<'a> {
    slot: Slot,
    /// Whether it is to be used.
    is_on: bool,
    model: Option<&'a str>,
    setting: &'static str,
}

fn said(settings: &Settings) -> [Said<'_>; 7] {
    let analysis = &settings.security_analysis;
    let said = |slot, is_on, model, setting| Said { slot, is_on, model, setting };
    let classifier = Some(&*analysis.ml_model).filter(|model| *model != EMBEDDED_MODEL);
    let toxicity = &settings.toxicity;
    let (a, b, ner) = (&analysis.guard_a, &analysis.guard_b, &analysis.ner);
    let judges = settings.judge.tiers().any(|tier| tier == JudgeTier::Classifier);
    let judge = Some(&*settings.judge.classifier.model).filter(|model| judges && *model != EMBEDDED_MODEL);
    let is_asked = settings.judge.enabled && settings.action_router.enabled && judge.is_some();
    [
        said(Slot::Classifier, analysis.ml_enabled && classifier.is_some(), classifier, "security_analysis.ml_model"),
        said(Slot::GuardA, a.enabled, a.model.as_deref(), "security_analysis.guard_a_model"),
        said(Slot::GuardB, b.enabled, b.model.as_deref(), "security_analysis.guard_b_model"),
        said(Slot::Entities, ner.enabled, ner.model.as_deref(), "security_analysis.ner_model"),
        said(
            Slot::Toxicity,
            settings.output_safety.enabled && toxicity.enabled && toxicity.model.is_some(),
            toxicity.model.as_deref(),
            "output_safety.toxicity_model",
        ),
        said(
            Slot::Hallucination,
            settings.output_safety.enabled && settings.hallucination.enabled,
            settings.hallucination.model.as_deref(),
            "output_safety.hallucination_model",
        ),
        said(Slot::Judge, is_asked, judge, "judge.classifier.model_id"),
    ]
}

/// The places for models that the settings name, none of them loaded; `threads` may run one at a time. What is not there is
/// fetched when it is asked for.
pub(crate) fn open(settings: &Settings, threads: usize) -> Result<Arc<Models>, StartError> {
    let by_id = named(settings)?.iter().any(|(_, _, named)| matches!(named, Named::Id(_)));
    places(settings, threads, if by_id { fetcher(settings)? } else { None })
}

/// The same, with what is there and nothing else.
pub(crate) fn present(settings: &Settings) -> Result<Arc<Models>, StartError> {
    places(settings, 1, None)
}

fn places(settings: &Settings, threads: usize, fetch: Option<FetchModel>) -> Result<Arc<Models>, StartError> {
    let wanted: Vec<(Slot, Named)> = named(settings)?.into_iter().map(|(slot, _, named)| (slot, named)).collect();
    let runtime = settings.security_analysis.ml_runtime_path.clone();
    Ok(Models::new(wanted, Options { runtime, cache: cache(settings), threads, fetch }))
}

/// The models the settings name, and whether each is switched on.
pub(crate) fn named(settings: &Settings) -> Result<Vec<(Slot, bool, Named)>, StartError> {
    let named = said(settings).into_iter().filter_map(|Said { slot, is_on, model, setting }| {
        let named = Named::read(model?).map_err(|why| StartError::Models(format!("{setting}: {why}")));
        let judges = settings.judge.classifier.cache_dir.as_deref().filter(|_| slot == Slot::Judge);
        // A folder of the judge's own is never fetched into.
        let placed = |named: Named| judges.map_or(named.clone(), |cache| Named::Folder(named.folder(cache)));
        Some(named.map(|named| (slot, is_on, placed(named))))
    });
    named.collect()
}

/// The folder for models that are named by an id.
pub(crate) fn cache(settings: &Settings) -> PathBuf {
    settings.security_analysis.ml_cache_dir.clone().unwrap_or_else(default_cache)
}

/// What asks the hub.
pub(crate) fn client(settings: &Settings) -> Result<Client, StartError> {
    let connect_limit = Duration::from_millis(settings.limits.connection_timeout_ms);
    Ok(Client::new(&settings.egress, settings.upstream_ca_file.as_deref(), connect_limit)?)
}

/// How a model that is named by an id and not at hand is fetched; `None` where nothing ever is.
fn fetcher(settings: &Settings) -> Result<Option<FetchModel>, StartError> {
    let Some(hub) = settings.security_analysis.ml_hub_url.clone() else { return Ok(None) };
    let (client, cache) = (client(settings)?, cache(settings));
    let limit = Duration::from_secs(settings.security_analysis.ml_download_timeout_seconds);
    Ok(Some(FetchModel::new(move |id| {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|error| error.to_string())?;
        let fetch = Fetch { client: &client, hub: &hub, id, cache: &cache, deadline: Instant::now() + limit };
        let mut say = |Progress { file, bytes, of, done }: Progress<'_>| {
            tracing::info!(model = id, file, bytes, of, done, "a model is fetched");
        };
        let manifest = runtime.block_on(fetch.run(&mut say)).map_err(|error| format!("{hub}: {error}"))?;
        for (file, entry) in &manifest.files {
            tracing::info!(model = id, file, sha256 = entry.sha256, bytes = entry.bytes, "fetched");
        }
        Ok(())
    })))
}

/// The model that judges, where the settings name one in the place of the embedded classifier.
struct Judging {
    models: Arc<Models>,
    name: String,
}

/// What judges with the model in its place among `models`, where the settings name one.
pub(crate) fn judging(settings: &Settings, models: &Arc<Models>) -> Option<Arc<dyn Classify>> {
    models.folder(Slot::Judge)?;
    Some(Arc::new(Judging { models: Arc::clone(models), name: settings.judge.classifier.model.clone() }))
}

impl Classify for Judging {
    fn name(&self) -> &str {
        &self.name
    }

    fn probability(&self, candidate: &Candidate, until: Option<Instant>) -> Result<f64, Failure> {
        let texts = candidate.pieces.iter().map(|piece| piece.text.as_str());
        self.models.probability(Slot::Judge, texts, until).map_err(|why| {
            let status = match &why {
                NotAsked::Absent(_) => Status::Misconfigured,
                NotAsked::Late => Status::Timeout,
                NotAsked::Loading | NotAsked::Failed(_) => Status::BackendError,
            };
            Failure::lasting(status, format!("judge.classifier.model_id `{}`: {why}", self.name))
        })
    }
}

/// Those that are loaded before the gateway calls itself ready.
pub(super) fn preloaded(settings: &Settings) -> Vec<Slot> {
    if !settings.security_analysis.ml_preload || !settings.enable_security_analysis {
        return Vec::new();
    }
    let wanted = said(settings).into_iter().filter(|said| said.is_on && said.model.is_some());
    wanted.map(|said| said.slot).collect()
}

/// What something is for, and where it lies or why it cannot be used.
pub(crate) type AtHand = (&'static str, Result<String, String>);

/// The library and the folders of the models that are switched on, or why one cannot be used, by what each is for. Nothing is
/// loaded.
pub(crate) fn at_hand(settings: &Settings) -> Result<Vec<AtHand>, StartError> {
    let models = present(settings)?;
    let on: Vec<Said<'_>> = said(settings).into_iter().filter(|said| said.is_on).collect();
    if on.is_empty() {
        return Ok(Vec::new());
    }
    let library = Runtime::find(settings.security_analysis.ml_runtime_path.as_deref());
    let library = library.map(|path| path.display().to_string()).map_err(|error| error.to_string());
    let hub = settings.security_analysis.ml_hub_url.as_deref();
    let found = on.into_iter().map(|Said { slot, setting, model, .. }| {
        let folder = models.folder(slot).ok_or_else(|| unnamed(setting));
        let is_id = model.is_some_and(|model| matches!(Named::read(model), Ok(Named::Id(_))));
        let found = folder.and_then(|folder| match (Files::find(&folder), hub) {
            (Ok(_), _) => Ok(folder.display().to_string()),
            (Err(ModelError::Missing(why)), Some(hub)) if is_id => {
                Err(format!("{why}; the start fetches it from {hub}"))
            }
            (Err(error), _) => Err(error.to_string()),
        });
        (slot.name(), found)
    });
    Ok(std::iter::once(("ONNX Runtime", library)).chain(found).collect())
}

fn unnamed(setting: &str) -> String {
    format!("no model is named; set `{setting}` to a folder or an id, and restart")
}

/// How the models that are switched on are doing.
pub(super) fn report(models: &Models, settings: &Settings) -> ModelsReport {
    let states = models.states();
    let mut reports = Vec::new();
    for Said { slot, is_on, setting, .. } in said(settings) {
        if is_on {
            reports.push(one(slot, states.iter().find(|state| state.slot == slot), setting));
        }
    }
    let replaced = reports.iter().any(|model| model.name == Slot::Classifier.name() && model.status == "loaded");
    // One that fails its self-test stops the start.
    let embedded = |name| ModelReport { name, status: "loaded", self_test: true, model: None, reason: None };
    if settings.security_analysis.ml_enabled && !replaced {
        reports.insert(0, embedded("embedded"));
    }
    if settings.output_safety.enabled && settings.toxicity.enabled && settings.toxicity.model.is_none() {
        reports.push(embedded(Slot::Toxicity.name()));
    }
    let any = |statuses: &[&str]| reports.iter().any(|model| statuses.contains(&model.status));
    let status = match () {
        () if reports.is_empty() => "disabled",
        () if any(&["loading", "waiting"]) => "loading",
        () if any(&["missing", "failed"]) => "fallback_regex",
        () => "loaded",
    };
    ModelsReport { status, models: reports }
}

fn one(slot: Slot, state: Option<&ModelState>, setting: &str) -> ModelReport {
    let name = slot.name();
    match state {
        Some(ModelState { status, model, reason, .. }) => ModelReport {
            name,
            status,
            self_test: *status == "loaded",
            model: Some(model.clone()),
            reason: reason.clone(),
        },
        None => ModelReport { name, status: "missing", self_test: false, model: None, reason: Some(unnamed(setting)) },
    }
}
