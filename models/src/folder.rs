//! Where a model lies: a folder the operator names, or an id below the folder for models; and the files in it that are used.
//!
//! The files are those of the usual exports: `config.json`, `tokenizer.json` and one ONNX graph. Invariant: what is read whole
//! is bounded, and an id never leads out of the folder for models.

use std::fmt;
use std::fs::{self, File};
use std::io::Read as _;
use std::path::{Path, PathBuf};

use serde::Deserialize;

/// Names of the graph, the first that is there counts.
pub const GRAPHS: [&str; 6] = [
    "model.onnx",
    "onnx/model.onnx",
    "model_quantized.onnx",
    "onnx/model_quantized.onnx",
    "model_int8.onnx",
    "onnx/model_int8.onnx",
];
/// Largest `config.json`, in bytes.
const CONFIG_BYTES_MAX: u64 = 1 << 20;
/// Largest `tokenizer.json`, in bytes.
const TOKENIZER_BYTES_MAX: u64 = 64 << 20;
/// Longest part of an id.
const ID_PART_MAX: usize = 96;

/// A model as the settings name it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Named {
    /// By its folder.
    Folder(PathBuf),
    /// By its id: `name` or `owner/name`.
    Id(String),
}

/// The files of a model.
#[derive(Debug, Clone)]
pub struct Files {
    /// `config.json`.
    pub config: PathBuf,
    /// `tokenizer.json`.
    pub tokenizer: PathBuf,
    /// The graph.
    pub graph: PathBuf,
}

/// Why a model cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ModelError {
    /// It is not there.
    #[error("{0}")]
    Missing(String),
    /// It is there and not as it must be.
    #[error("{0}")]
    Unusable(String),
}

/// `config.json`, as far as it is used.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct ModelConfig {
    pub(crate) id2label: std::collections::BTreeMap<String, String>,
    pub(crate) problem_type: Option<String>,
    pub(crate) model_type: Option<String>,
    pub(crate) max_position_embeddings: Option<usize>,
    pub(crate) pad_token_id: Option<i64>,
}

// === impl Named ===

impl Named {
    /// Reads what a setting says.
    ///
    /// # Errors
    /// When it is neither a path nor an id; the sentence says what both look like.
    pub fn read(said: &str) -> Result<Self, String> {
        if ["/", "./", "../"].iter().any(|start| said.starts_with(start)) {
            return Ok(Self::Folder(PathBuf::from(said)));
        }
        let fits = |part: &str| {
            let known = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
            !part.is_empty() && part.len() <= ID_PART_MAX && !part.starts_with('.') && part.chars().all(known)
        };
        let parts: Vec<&str> = said.split('/').collect();
        match parts.len() {
            1 | 2 if parts.iter().all(|part| fits(part)) => Ok(Self::Id(said.to_owned())),
            _ => Err(format!(
                "`{said}` names no model; expected the path of a folder that begins with `/`, `./` or `../`, or an id \
                 such as `owner/name` of letters, digits, `.`, `_` and `-`"
            )),
        }
    }

    /// Its folder, with ids below `cache`.
    pub fn folder(&self, cache: &Path) -> PathBuf {
        match self {
            Self::Folder(folder) => folder.clone(),
            Self::Id(id) => cache.join(id),
        }
    }
}

impl fmt::Display for Named {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Folder(folder) => write!(f, "{}", folder.display()),
            Self::Id(id) => f.write_str(id),
        }
    }
}

// === impl Files ===

impl Files {
    /// Finds them in a folder.
    ///
    /// # Errors
    /// [`ModelError::Missing`] names what is not there.
    pub fn find(folder: &Path) -> Result<Self, ModelError> {
        if !folder.is_dir() {
            return Err(ModelError::Missing(format!("there is no folder `{}`", folder.display())));
        }
        let missing = |what: &str| ModelError::Missing(format!("`{}` holds no {what}", folder.display()));
        let one = |names: &[&str]| names.iter().map(|name| folder.join(name)).find(|path| path.is_file());
        // Some exports keep the tokenizer beside the graph.
        let config = one(&["config.json", "onnx/config.json"]).ok_or_else(|| missing("config.json"))?;
        let tokenizer = one(&["tokenizer.json", "onnx/tokenizer.json"]).ok_or_else(|| missing("tokenizer.json"))?;
        let graph = one(&GRAPHS).ok_or_else(|| missing("graph (model.onnx, onnx/model.onnx)"))?;
        Ok(Self { config, tokenizer, graph })
    }

    pub(crate) fn config(&self) -> Result<ModelConfig, ModelError> {
        let text = read_up_to(&self.config, CONFIG_BYTES_MAX)?;
        serde_json::from_slice(&text)
            .map_err(|error| ModelError::Unusable(format!("`{}`: {error}", self.config.display())))
    }

    pub(crate) fn tokenizer(&self) -> Result<Vec<u8>, ModelError> {
        read_up_to(&self.tokenizer, TOKENIZER_BYTES_MAX)
    }
}

fn read_up_to(path: &Path, most: u64) -> Result<Vec<u8>, ModelError> {
    let unusable = |why: String| ModelError::Unusable(format!("`{}`: {why}", path.display()));
    let mut bytes = Vec::new();
    File::open(path)
        .and_then(|file| file.take(most + 1).read_to_end(&mut bytes))
        .map_err(|error| unusable(error.to_string()))?;
    match bytes.len() as u64 <= most {
        true => Ok(bytes),
        false => Err(unusable(format!("longer than {most} bytes; this is no such file"))),
    }
}

/// The folder for models where none is set: one for each user.
pub fn default_cache() -> PathBuf {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let below = set("XDG_CACHE_HOME").or_else(|| set("HOME").map(|home| home.join(".cache")));
    below.unwrap_or_else(|| PathBuf::from("/var/cache")).join("weir/models")
}

/// The ids below a folder for models that hold a graph.
pub fn ids_in(cache: &Path) -> Vec<String> {
    let folders = |folder: &Path| -> Vec<(String, PathBuf)> {
        let entries = fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok);
        let folders = entries.filter(|entry| entry.path().is_dir());
        folders.filter_map(|entry| Some((entry.file_name().into_string().ok()?, entry.path()))).collect()
    };
    let mut found = Vec::new();
    for (owner, folder) in folders(cache) {
        if Files::find(&folder).is_ok() {
            found.push(owner.clone());
        }
        let names = folders(&folder).into_iter().filter(|(_, folder)| Files::find(folder).is_ok());
        found.extend(names.map(|(name, _)| format!("{owner}/{name}")));
    }
    found.retain(|id| matches!(Named::read(id), Ok(Named::Id(_))));
    found.sort_unstable();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_never_leads_out_of_the_folder_for_models() {
        let id = |said: &str| Named::read(said);
        assert_eq!(id("owner/name-1.0_x"), Ok(Named::Id("owner/name-1.0_x".to_owned())));
        assert_eq!(id("/srv/models/a"), Ok(Named::Folder(PathBuf::from("/srv/models/a"))));
        assert_eq!(id("../a"), Ok(Named::Folder(PathBuf::from("../a"))));
        for bad in ["", "a/../b", "a/b/c", "a//b", "a/.b", "a b", "a/", "owner/..", "a\\b"] {
            assert!(id(bad).is_err(), "{bad}");
        }
        assert_eq!(id("a/b").unwrap().folder(Path::new("/c")), Path::new("/c/a/b"));
    }

    #[test]
    fn what_is_missing_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let said = |folder: &Path| Files::find(folder).unwrap_err().to_string();
        assert!(said(&folder.path().join("x")).contains("there is no folder"));
        assert!(said(folder.path()).contains("config.json"));
        fs::write(folder.path().join("config.json"), "{}").unwrap();
        assert!(said(folder.path()).contains("tokenizer.json"));
        fs::write(folder.path().join("tokenizer.json"), "{}").unwrap();
        assert!(said(folder.path()).contains("onnx/model.onnx"));
        fs::create_dir(folder.path().join("onnx")).unwrap();
        fs::write(folder.path().join("onnx/model.onnx"), "x").unwrap();
        assert_eq!(Files::find(folder.path()).unwrap().graph, folder.path().join("onnx/model.onnx"));
    }
}
