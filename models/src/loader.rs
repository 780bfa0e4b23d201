//! Loads the models, one after the other, on a thread of its own: those that are to be there at start, and others when they
//! are first asked for.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::{self, JoinHandle, Thread};
use std::time::{Duration, Instant};

use weir_inference::Detector;

use crate::folder::{Files, ModelError, Named};
use crate::known;
use crate::model::Model;
use crate::place::{NotAsked, Place, Status};
use crate::runtime::Runtime;
use crate::slot::Slot;

/// Where models and their library lie, and who runs them.
#[derive(Debug, Clone)]
pub struct Options {
    /// The file or folder of libonnxruntime; the usual places where nothing is named.
    pub runtime: Option<PathBuf>,
    /// The folder for models that are named by an id.
    pub cache: PathBuf,
    /// Threads that run a model at a time: each has a session of its own.
    pub threads: usize,
    /// How a model that is named by an id and not there is fetched.
    pub fetch: Option<FetchModel>,
}

/// Fetches the model of an id into its folder, or says why not.
#[derive(Clone)]
pub struct FetchModel(Arc<FetchFn>);

type FetchFn = dyn Fn(&str) -> Result<(), String> + Send + Sync;

impl FetchModel {
    /// By `fetch`, which may take its time.
    pub fn new(fetch: impl Fn(&str) -> Result<(), String> + Send + Sync + 'static) -> Self {
        Self(Arc::new(fetch))
    }
}

impl fmt::Debug for FetchModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FetchModel")
    }
}

/// How a model is doing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelState {
    /// The place it stands in.
    pub slot: Slot,
    /// What the settings call it.
    pub model: String,
    /// `waiting` for its first use, `loading`, `loaded`, `missing` or `failed`.
    pub status: &'static str,
    /// Why it is missing or failed.
    pub reason: Option<String>,
}

/// The models of a gateway.
#[derive(Debug)]
pub struct Models {
    places: Vec<Arc<Place>>,
    options: Options,
    waker: Arc<Waker>,
}

/// The thread that loads; dropping it lets it end with the model it is loading.
#[derive(Debug)]
pub struct Loader {
    waker: Arc<Waker>,
    thread: Option<JoinHandle<()>>,
}

/// Wakes the thread that loads.
#[derive(Debug, Default)]
struct Waker {
    thread: OnceLock<Thread>,
    stopping: AtomicBool,
}

/// How long the end waits for a model that is being loaded.
const LAST_MODEL: Duration = Duration::from_secs(2);

impl Waker {
    fn wake(&self) {
        if let Some(thread) = self.thread.get() {
            thread.unpark();
        }
    }
}

impl Models {
    /// Places for these models, none of them loaded.
    pub fn new(wanted: impl IntoIterator<Item = (Slot, Named)>, options: Options) -> Arc<Self> {
        let waker = Arc::new(Waker::default());
        let place = |(slot, named)| {
            let waker = Arc::clone(&waker);
            Arc::new(Place::new(slot, named, Box::new(move || waker.wake())))
        };
        Arc::new(Self { places: wanted.into_iter().map(place).collect(), options, waker })
    }

    /// Their detectors, absent until their models are loaded.
    pub fn detectors(&self) -> Vec<Arc<dyn Detector>> {
        let detectors = self.places.iter().filter(|place| place.slot != Slot::Judge);
        detectors.map(|place| Arc::clone(place) as _).collect()
    }

    /// How probable the model in `slot` finds it that the worst of these texts is an attack, 0.0 to 1.0. Linear in the texts; not
    /// for a thread that must not wait. It begins with no window of a text after `until`. A model that nobody has asked for yet is
    /// loaded from now on.
    ///
    /// # Errors
    /// [`NotAsked`].
    pub fn probability<'a>(
        &self,
        slot: Slot,
        texts: impl IntoIterator<Item = &'a str>,
        until: Option<Instant>,
    ) -> Result<f64, NotAsked> {
        let Some(place) = self.places.iter().find(|place| place.slot == slot) else {
            return Err(NotAsked::Absent("no model is named".to_owned()));
        };
        place.probability(texts, until).unwrap_or_else(|| {
            place.missed();
            Err(match &*place.status.lock() {
                Status::Missing(why) | Status::Failed(why) => NotAsked::Absent(why.clone()),
                Status::Waiting | Status::Loading | Status::Loaded => NotAsked::Loading,
            })
        })
    }

    /// The folder of the model in a place, whether it is there or not.
    pub fn folder(&self, slot: Slot) -> Option<PathBuf> {
        let place = self.places.iter().find(|place| place.slot == slot)?;
        Some(place.named.folder(&self.options.cache))
    }

    /// How each is doing.
    pub fn states(&self) -> Vec<ModelState> {
        let state = |place: &Arc<Place>| {
            let (status, reason) = match &*place.status.lock() {
                Status::Waiting => ("waiting", None),
                Status::Loading => ("loading", None),
                Status::Loaded => ("loaded", None),
                Status::Missing(why) => ("missing", Some(why.clone())),
                Status::Failed(why) => ("failed", Some(why.clone())),
            };
            ModelState { slot: place.slot, model: place.named.to_string(), status, reason }
        };
        self.places.iter().map(state).collect()
    }

    /// Starts the thread that loads: first those in `preload`, then `preloaded` is called, then others as they are asked for.
    /// `changed` is called with each that can be used from now on.
    ///
    /// # Errors
    /// When the system gives no thread.
    pub fn start(
        self: &Arc<Self>,
        preload: &[Slot],
        preloaded: impl FnOnce() + Send + 'static,
        changed: impl Fn() + Send + 'static,
    ) -> io::Result<Loader> {
        for place in self.places.iter().filter(|place| preload.contains(&place.slot)) {
            place.ask();
            *place.status.lock() = Status::Loading;
        }
        let models = Arc::clone(self);
        let thread = thread::Builder::new().name("weir-models".to_owned()).spawn(move || {
            models.waker.thread.get_or_init(thread::current);
            models.load_asked(&changed);
            preloaded();
            while !models.waker.stopping.load(Ordering::Acquire) {
                thread::park();
                models.load_asked(&changed);
            }
        })?;
        Ok(Loader { waker: Arc::clone(&self.waker), thread: Some(thread) })
    }

    /// Loads what has been asked for and was not tried yet.
    fn load_asked(&self, changed: &impl Fn()) {
        for place in &self.places {
            let is_due = matches!(*place.status.lock(), Status::Waiting | Status::Loading) && place.is_asked_for();
            if !is_due || self.waker.stopping.load(Ordering::Acquire) {
                continue;
            }
            *place.status.lock() = Status::Loading;
            let status = self.load(place);
            let is_loaded = status == Status::Loaded;
            *place.status.lock() = status;
            if is_loaded {
                changed();
            }
        }
    }

    /// Fetches a model that is not there, where that is possible.
    fn fetch(&self, place: &Place) -> Result<(), String> {
        let (Named::Id(id), Some(fetch)) = (&place.named, &self.options.fetch) else { return Ok(()) };
        match Files::find(&place.named.folder(&self.options.cache)) {
            Err(ModelError::Missing(why)) => (fetch.0)(id).map_err(|error| format!("{why}; {error}")),
            _ => Ok(()),
        }
    }

    fn load(&self, place: &Place) -> Status {
        let (detector, model) = (place.slot.name(), &place.named);
        let begun = Instant::now();
        let runtime = match Runtime::load(self.options.runtime.as_deref()) {
            Ok(runtime) => runtime,
            Err(error) => {
                tracing::warn!(detector, %model, %error, "no model can be loaded: requests are inspected without it");
                return Status::Missing(error.to_string());
            }
        };
        let (library, library_sha256, build) = (runtime.path.display(), &runtime.sha256, &runtime.build);
        tracing::info!(%library, library_sha256, build, "ONNX Runtime");
        let folder = place.named.folder(&self.options.cache);
        if let Err(why) = self.fetch(place) {
            tracing::warn!(detector, %model, why, "a model could not be fetched: requests are inspected without it");
            return Status::Missing(why);
        }
        let loaded = Model::load(place.slot, &folder, &runtime, self.options.threads).and_then(|loaded| {
            known::ask(&loaded, place.slot).map_err(ModelError::Unusable)?;
            Ok(loaded)
        });
        match loaded {
            Ok(loaded) => {
                let (folder, sha256, took_ms) = (folder.display(), &loaded.sha256, begun.elapsed().as_millis());
                tracing::info!(detector, %model, %folder, sha256, took_ms, "a model has been loaded and has passed its self-test");
                if place.slot == Slot::Toxicity && !loaded.can_be_critical() {
                    tracing::warn!(
                        detector, %model,
                        "no class of the model is severe or a threat: what it finds is never Critical, and \
                         `output_safety.block_on_critical` does not act on it"
                    );
                }
                place.put(loaded);
                Status::Loaded
            }
            Err(ModelError::Missing(why)) => {
                tracing::warn!(detector, %model, why, "a model is missing: requests are inspected without it");
                Status::Missing(why)
            }
            Err(ModelError::Unusable(why)) => {
                tracing::error!(detector, %model, why, "a model cannot be used: requests are inspected without it");
                Status::Failed(why)
            }
        }
    }
}

impl Drop for Loader {
    fn drop(&mut self) {
        self.waker.stopping.store(true, Ordering::Release);
        self.waker.wake();
        let Some(thread) = self.thread.take() else { return };
        thread.thread().unpark();
        let until = Instant::now() + LAST_MODEL;
        // Nothing can stop a library in the middle of a model; the process ends without it.
        while !thread.is_finished() && Instant::now() < until {
            thread::sleep(Duration::from_millis(5));
        }
        if thread.is_finished() {
            drop(thread.join());
        }
    }
}
