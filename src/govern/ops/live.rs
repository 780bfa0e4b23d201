//! The settings in effect and their change while the gateway runs.
//!
//! ```text
//!   change: check ─▶ write the overlay ─▶ publish one new snapshot          (one change at a time)
//!   cores:  read the snapshot once per request; what is in flight keeps the one it began with
//! ```
//!
//! Invariant: a snapshot is published whole, so nobody sees half of a change; readers take no lock. A change blocks on
//! the disk and belongs on a blocking thread. Knows no HTTP.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use serde_json::{Map, Value, json};
use weir_config::{Changes, FlagError, Loaded, Settings, write_overlay};

use super::store::breaker_advice;

/// The settings in effect.
pub struct LiveSettings {
    snapshot: Arc<ArcSwap<Settings>>,
    loaded: ArcSwap<Loaded>,
    changing: Mutex<()>,
    /// The overlay's text when it was last followed.
    followed: Mutex<Option<String>>,
}

/// What a change came to.
#[derive(Debug, Clone, PartialEq)]
pub struct Changed {
    /// The flags now, by wire name.
    pub flags: Map<String, Value>,
    /// Whether they survive a restart.
    pub persisted: bool,
    /// Those that are not what they were: from and to.
    pub moved: BTreeMap<String, String>,
}

impl LiveSettings {
    /// What was loaded at start.
    pub fn new(loaded: Loaded) -> Self {
        Self {
            snapshot: Arc::new(ArcSwap::from_pointee(loaded.settings.clone())),
            loaded: ArcSwap::from_pointee(loaded),
            changing: Mutex::new(()),
            followed: Mutex::new(None),
        }
    }

    /// Where the cores read their snapshots.
    pub fn snapshot(&self) -> &Arc<ArcSwap<Settings>> {
        &self.snapshot
    }

    /// Publishes the settings as they are once more: what is made from them is made anew.
    pub fn renew(&self) {
        let _one = self.changing.lock();
        self.snapshot.store(Arc::new(Settings::clone(&self.snapshot.load())));
    }

    /// The settings as of now, with their sources.
    pub fn loaded(&self) -> Arc<Loaded> {
        self.loaded.load_full()
    }

    /// The flags by wire name.
    pub fn flags(&self) -> Map<String, Value> {
        self.loaded.load().flags()
    }

    /// Every setting with its source, secrets masked: `{"config":{...},"sources":{path: layer},"not_built":{path: feature}}`.
    pub fn show(&self) -> Value {
        let loaded = self.loaded.load();
        json!({ "config": weir_config::effective(&loaded), "sources": loaded.origins, "not_built": weir_config::not_built() })
    }

    /// Changes some flags, all or none. The overlay is written first, so that what was answered survives; where it
    /// cannot be written the change holds until the next restart.
    ///
    /// # Errors
    /// Every flag that cannot be changed so.
    pub fn change(&self, changes: &Map<String, Value>) -> Result<Changed, Vec<FlagError>> {
        let _one_at_a_time = self.changing.lock();
        let before = self.loaded.load_full();
        let next = before.with_flags(changes)?;
        let persisted = persist(&next);
        let flags = next.flags();
        let moved = moved(&before.flags(), &flags, persisted);
        self.snapshot.store(Arc::new(next.settings.clone()));
        self.loaded.store(Arc::new(next));
        Ok(Changed { flags, persisted, moved })
    }
}

/// What these settings should be warned of.
fn advice(loaded: &Loaded) -> Vec<String> {
    loaded.remarks().into_iter().chain(breaker_advice(&loaded.settings).map(str::to_owned)).collect()
}

impl LiveSettings {
    /// Takes over the flags that another process has written into the overlay. A text that was looked at is not looked at again.
    ///
    /// # Errors
    /// What is wrong with what is written; nothing has changed.
    pub fn follow(&self) -> Result<(), String> {
        let mut followed = self.followed.lock();
        let before = self.loaded.load_full();
        let Some(path) = &before.overlay_path else { return Ok(()) };
        let text = match std::fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
            Err(error) => return Err(format!("{}: {error}", path.display())),
        };
        if followed.as_ref() == Some(&text) {
            return Ok(());
        }
        *followed = Some(text);
        let _one_at_a_time = self.changing.lock();
        let before = self.loaded.load_full();
        let changes = before.overlay_changes()?;
        if changes.is_empty() {
            return Ok(());
        }
        let next = before
            .with_flags(&changes)
            .map_err(|faults| faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))?;
        moved(&before.flags(), &next.flags(), true);
        self.snapshot.store(Arc::new(next.settings.clone()));
        self.loaded.store(Arc::new(next));
        Ok(())
    }

    /// Reads the sources again and puts in force what a reload takes: flags, upstreams, routes and their keys. `prepare` makes what
    /// has to be there before requests see them, and may refuse; then nothing changes. In words what is in force, and every change.
    ///
    /// # Errors
    /// What is wrong with the settings, or what `prepare` says.
    pub fn reread(&self, prepare: impl FnOnce(&Settings) -> Result<(), String>) -> Result<(String, Changes), String> {
        let _one_at_a_time = self.changing.lock();
        let (next, changes) = self.loaded.load().reread().map_err(|error| error.to_string())?;
        prepare(&next.settings)?;
        let upstreams = &next.settings.upstreams;
        let said = format!(
            "{} upstreams, {} groups, {} routes; {} changes in force, {} at the next start",
            upstreams.members.len(),
            upstreams.groups.len(),
            upstreams.routes.len(),
            changes.in_force.len(),
            changes.next_start.len()
        );
        let former = advice(&self.loaded.load());
        // What a start would have warned of, too.
        for warning in advice(&next).iter().filter(|warning| !former.contains(warning)) {
            tracing::warn!("{warning}");
        }
        self.snapshot.store(Arc::new(next.settings.clone()));
        self.loaded.store(Arc::new(next));
        Ok((said, changes))
    }
}

fn persist(loaded: &Loaded) -> bool {
    let write = |path: &Path| match write_overlay(path, &loaded.overlay_text()) {
        Ok(()) => true,
        Err(error) => {
            let overlay = path.display();
            tracing::warn!(%overlay, %error, "the runtime overlay cannot be written: flags hold until the next restart");
            false
        }
    };
    loaded.overlay_path.as_deref().is_some_and(write)
}

/// What has changed, which is logged, too.
fn moved(before: &Map<String, Value>, after: &Map<String, Value>, persisted: bool) -> BTreeMap<String, String> {
    let mut moved = BTreeMap::new();
    for (flag, now) in after {
        let was = before.get(flag).unwrap_or(&Value::Null);
        if was != now {
            tracing::info!(flag, from = %was, to = %now, persisted, "flag changed");
            moved.insert(flag.clone(), format!("{was} to {now}"));
        }
    }
    moved
}

#[cfg(test)]
mod tests {
    use weir_config::Sources;

    use super::*;

    fn live(overlay: &Path) -> LiveSettings {
        let sources = Sources { runtime_config: Some(overlay.to_owned()), ..Sources::default() };
        LiveSettings::new(weir_config::load(&sources).unwrap())
    }

    fn flags(value: Value) -> Map<String, Value> {
        value.as_object().unwrap().clone()
    }

    #[test]
    fn a_change_is_one_snapshot_and_survives_a_restart() {
        let folder = tempfile::tempdir().unwrap();
        let overlay = folder.path().join("config.runtime.yaml");
        let first = live(&overlay);
        let kept = first.snapshot().load_full();
        let changed =
            first.change(&flags(json!({"enforcement_mode": "block", "rate_limiting_enabled": false}))).unwrap();
        assert!(changed.persisted && changed.flags["enforcement_mode"] == "block");
        assert!(kept.rate_limiting.enabled, "a snapshot never changes");
        assert!(!first.snapshot().load().rate_limiting.enabled);
        assert_eq!(first.show()["sources"]["enforcement.mode"], "overlay");
        assert_eq!(first.show()["config"]["enforcement"]["mode"], "block");
        first.change(&flags(json!({"enforcement_mode": "flag"}))).unwrap();

        let second = live(&overlay);
        assert_eq!(second.flags(), first.flags());
        assert_eq!(**second.snapshot().load(), **first.snapshot().load());
        let left: Vec<_> = std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(left, ["config.runtime.yaml"], "no temporary file stays");
    }

    #[test]
    fn what_another_process_changes_is_followed_and_what_it_takes_back_too() {
        let folder = tempfile::tempdir().unwrap();
        let overlay = folder.path().join("config.runtime.yaml");
        let (one, other) = (live(&overlay), live(&overlay));
        let mode = |of: &LiveSettings| of.flags()["enforcement_mode"].as_str().unwrap().to_owned();
        let first = mode(&one);
        for set in ["block", "flag", first.as_str()] {
            one.change(&flags(json!({"enforcement_mode": set}))).unwrap();
            other.follow().unwrap();
            assert_eq!((mode(&other).as_str(), other.snapshot().load().enforcement.mode.as_str()), (set, set));
        }
        // Both have what both have changed.
        other.change(&flags(json!({"rate_limiting_enabled": false}))).unwrap();
        one.follow().unwrap();
        one.change(&flags(json!({"enforcement_mode": "block"}))).unwrap();
        other.follow().unwrap();
        assert_eq!(other.flags(), one.flags());
        assert_eq!(live(&overlay).flags(), one.flags());
        // What makes no sense changes nothing, and says so once.
        std::fs::write(&overlay, "enforcement_mode: perhaps\n").unwrap();
        assert!(one.follow().unwrap_err().contains("enforcement"));
        assert_eq!((one.follow(), mode(&one).as_str()), (Ok(()), "block"));
    }

    #[test]
    fn one_bad_flag_leaves_everything_as_it_was() {
        let folder = tempfile::tempdir().unwrap();
        let overlay = folder.path().join("config.runtime.yaml");
        let live = live(&overlay);
        let before = live.flags();
        let faults = live.change(&flags(json!({"enforcement_mode": "block", "over_defense": true}))).unwrap_err();
        assert_eq!(faults.len(), 1);
        assert_eq!(faults[0].to_string(), "`over_defense`: unknown flag; did you mean `over_defence`?");
        assert_eq!(live.flags(), before);
        assert!(!overlay.exists());
    }

    #[test]
    fn an_overlay_that_cannot_be_written_costs_the_restart_only() {
        let live = live(Path::new("/proc/weir/config.runtime.yaml"));
        let changed = live.change(&flags(json!({"enforcement_mode": "flag"}))).unwrap();
        assert!(!changed.persisted);
        assert_eq!(live.flags()["enforcement_mode"], "flag");
    }
}
