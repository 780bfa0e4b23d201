//! Models from a hub: the files a model is made of, asked for by its id, into the folder for models.
//!
//! ```text
//! {hub}/{id}/resolve/main/{file}  ─▶ a folder beside the others, hashed as it comes ─▶ renamed to the id, with a manifest
//! ```
//!
//! Invariants: nothing is fetched but the files of one model; what is there under an id is whole and has a manifest with the
//! checksums of its files; a folder that was not fetched is never replaced; one deadline covers a model, and each file has a
//! bound; no credential is sent, so redirects are followed, never from https to http. Calls go out under the rules of all
//! others (`outbound`).

mod manifest;

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use http::{Method, StatusCode};
use sha2::{Digest as _, Sha256};
use uuid::Uuid;
use weir_models::{GRAPHS, Named};

use crate::outbound::{Call, Client, Limits, OutboundError};

pub use manifest::{FileEntry, Manifest};

/// Most redirects of one file.
const REDIRECTS_MAX: usize = 5;
/// Largest graph, and largest file of weights beside one, in bytes.
const GRAPH_BYTES_MAX: usize = 8 << 30;
/// Largest of the other files, in bytes.
const FILE_BYTES_MAX: usize = 64 << 20;
/// How a folder begins whose fetch has not come to its end.
const UNFINISHED: &str = ".fetching-";
/// From when on such a folder belongs to nobody any more: no fetch takes so long.
const LEFT_BEHIND: Duration = Duration::from_secs(2 * 24 * 60 * 60);
/// How often a fetch says how far it is.
const SAY_EVERY: Duration = Duration::from_secs(2);

/// Why a model was not fetched.
#[derive(Debug, thiserror::Error)]
pub enum HubError {
    /// The hub was not reached, or broke off.
    #[error("{0}")]
    Call(#[from] OutboundError),
    /// The hub has no such file.
    #[error("the hub has no {0} of `{1}`")]
    Missing(&'static str, String),
    /// It says something else.
    #[error("the hub answered {status} for {file}")]
    Status {
        /// What.
        status: StatusCode,
        /// Of which file.
        file: String,
    },
    /// What came is not what the hub says it is.
    #[error("{file} has the SHA-256 {found}, and the hub says {said}")]
    Checksum {
        /// Which file.
        file: String,
        /// What was computed.
        found: String,
        /// What was said.
        said: String,
    },
    /// A redirect that is not followed.
    #[error("the hub redirects {0} to a place that is not followed")]
    Redirect(String),
    /// Nobody could tell whether all of a file has come.
    #[error("the hub does not say how long {0} is")]
    Length(String),
    /// Something else lies there.
    #[error("`{0}` is there and was not fetched by Weir: it stays; move it away to have the model fetched")]
    Occupied(PathBuf),
    /// The time was up.
    #[error("it took longer than `security_analysis.ml_download_timeout_seconds`")]
    Late,
    /// It cannot be written down.
    #[error("`{path}`: {source}")]
    Disk {
        /// Where.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// How far a fetch is.
#[derive(Debug, Clone, Copy)]
pub struct Progress<'a> {
    /// The file's name in the model's folder.
    pub file: &'a str,
    /// Bytes that have come.
    pub bytes: u64,
    /// Bytes that it has, where the hub says so.
    pub of: Option<u64>,
    /// Whether it is there as a whole.
    pub done: bool,
}

/// One fetch.
pub struct Fetch<'a> {
    /// What it calls out with.
    pub client: &'a Client,
    /// `security_analysis.ml_hub_url`.
    pub hub: &'a str,
    /// The model's name at the hub: `owner/name`.
    pub id: &'a str,
    /// The folder for models.
    pub cache: &'a Path,
    /// When it is given up.
    pub deadline: Instant,
}

/// A file that came.
struct Came {
    status: StatusCode,
    entry: FileEntry,
    location: Option<String>,
    said_sha256: Option<String>,
}

impl Fetch<'_> {
    /// Fetches the model.
    ///
    /// # Errors
    /// [`HubError`]; nothing is there then.
    pub async fn run(&self, say: &mut (dyn FnMut(Progress<'_>) + Send)) -> Result<Manifest, HubError> {
        let folder = Named::Id(self.id.to_owned()).folder(self.cache);
        if !is_free(&folder) {
            return Err(HubError::Occupied(folder));
        }
        remove_left_behind(self.cache);
        // Several gateways may share the folder for models.
        let beside = self.cache.join(format!("{UNFINISHED}{}", Uuid::new_v4()));
        let made = self.files_into(&beside, say).await.and_then(|manifest| {
            manifest.write(&beside).map_err(disk(&beside))?;
            put(&beside, &folder).map_err(disk(&folder))?;
            Ok(manifest)
        });
        if made.is_err() {
            // What is left of a fetch that failed is of no use to anybody.
            drop(fs::remove_dir_all(&beside));
        }
        made
    }

    async fn files_into(
        &self,
        folder: &Path,
        say: &mut (dyn FnMut(Progress<'_>) + Send),
    ) -> Result<Manifest, HubError> {
        fs::create_dir_all(folder.join("onnx")).map_err(disk(folder))?;
        let mut manifest = Manifest::new(self.id, self.hub);
        let wanted: [(&'static str, &[&str]); 3] = [
            ("config.json", &["config.json", "onnx/config.json"]),
            ("tokenizer.json", &["tokenizer.json", "onnx/tokenizer.json"]),
            ("ONNX graph", &GRAPHS),
        ];
        for (what, names) in wanted {
            let name = self.first_of(names, folder, &mut manifest, say).await?;
            let name = name.ok_or_else(|| HubError::Missing(what, self.id.to_owned()))?;
            if name.ends_with(".onnx") {
                // Weights of large graphs lie beside them.
                let data = format!("{name}_data");
                self.first_of(&[&data], folder, &mut manifest, say).await?;
            }
        }
        Ok(manifest)
    }

    /// Fetches the first of some files that the hub has.
    async fn first_of(
        &self,
        names: &[&str],
        folder: &Path,
        manifest: &mut Manifest,
        say: &mut (dyn FnMut(Progress<'_>) + Send),
    ) -> Result<Option<String>, HubError> {
        for name in names {
            if let Some(entry) = self.file(name, &folder.join(name), say).await? {
                manifest.files.insert((*name).to_owned(), entry);
                return Ok(Some((*name).to_owned()));
            }
        }
        Ok(None)
    }

    /// Fetches one file; `None` when the hub has none of this name.
    async fn file(
        &self,
        name: &str,
        path: &Path,
        say: &mut (dyn FnMut(Progress<'_>) + Send),
    ) -> Result<Option<FileEntry>, HubError> {
        let mut url = format!("{}/{}/resolve/main/{name}", self.hub.trim_end_matches('/'), self.id);
        let mut said = None;
        for _ in 0..=REDIRECTS_MAX {
            let came = self.once(&url, name, path, say).await?;
            said = came.said_sha256.or(said);
            match came.status {
                StatusCode::OK => {
                    let found = &came.entry.sha256;
                    return match said {
                        Some(said) if said != *found => {
                            Err(HubError::Checksum { file: name.to_owned(), found: found.clone(), said })
                        }
                        _ => Ok(Some(came.entry)),
                    };
                }
                StatusCode::NOT_FOUND => return Ok(None),
                status if status.is_redirection() => {
                    url = came
                        .location
                        .and_then(|location| follow(&url, &location))
                        .ok_or_else(|| HubError::Redirect(name.to_owned()))?;
                }
                status => return Err(HubError::Status { status, file: name.to_owned() }),
            }
        }
        Err(HubError::Redirect(name.to_owned()))
    }

    async fn once(
        &self,
        url: &str,
        name: &str,
        path: &Path,
        say: &mut (dyn FnMut(Progress<'_>) + Send),
    ) -> Result<Came, HubError> {
        let left = self.deadline.checked_duration_since(Instant::now()).ok_or(HubError::Late)?;
        let answer_bytes = if name.contains(".onnx") { GRAPH_BYTES_MAX } else { FILE_BYTES_MAX };
        let limits = Limits { total: left, answer_bytes, cut: false };
        let mut sink = Sink::create(path, name).map_err(disk(path))?;
        let call = Call::new(Method::GET, url)?;
        let came = self.client.download(call, limits, &mut |piece, of| sink.take(piece, of, say)).await;
        let answer = came.map_err(|error| match error {
            OutboundError::Deadline { .. } => HubError::Late,
            other => HubError::Call(other),
        })?;
        let field = |name: &str| answer.fields.get(name)?.to_str().ok().map(str::to_owned);
        if answer.status == StatusCode::OK
            && !["content-length", "transfer-encoding"].iter().any(|name| field(name).is_some())
        {
            return Err(HubError::Length(name.to_owned()));
        }
        let entry = sink.finish(say).map_err(disk(path))?;
        if answer.status != StatusCode::OK {
            fs::remove_file(path).map_err(disk(path))?;
        }
        let said_sha256 = field("x-linked-etag").and_then(|etag| sha256_in(&etag));
        Ok(Came { status: answer.status, entry, location: field("location"), said_sha256 })
    }
}

/// A file that is being written, hashed as it comes.
struct Sink<'a> {
    file: File,
    name: &'a str,
    hasher: Sha256,
    bytes: u64,
    failed: Option<io::Error>,
    told: Instant,
}

impl<'a> Sink<'a> {
    fn create(path: &Path, name: &'a str) -> io::Result<Self> {
        let file = File::create(path)?;
        Ok(Self { file, name, hasher: Sha256::new(), bytes: 0, failed: None, told: Instant::now() })
    }

    fn take(&mut self, piece: &[u8], of: Option<u64>, say: &mut (dyn FnMut(Progress<'_>) + Send)) -> ControlFlow<()> {
        self.hasher.update(piece);
        self.bytes += piece.len() as u64;
        self.failed = self.file.write_all(piece).err();
        if self.told.elapsed() >= SAY_EVERY {
            self.told = Instant::now();
            say(Progress { file: self.name, bytes: self.bytes, of, done: false });
        }
        if self.failed.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    /// What has come, on the disk.
    fn finish(self, say: &mut (dyn FnMut(Progress<'_>) + Send)) -> io::Result<FileEntry> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        self.file.sync_all()?;
        if self.bytes > 0 {
            say(Progress { file: self.name, bytes: self.bytes, of: Some(self.bytes), done: true });
        }
        Ok(FileEntry { bytes: self.bytes, sha256: hexadecimal(&self.hasher.finalize()) })
    }
}

/// Whether nothing lies there, or what was fetched before.
fn is_free(folder: &Path) -> bool {
    fs::symlink_metadata(folder).is_err() || matches!(Manifest::read(folder), Ok(Some(_)))
}

/// Puts a whole model in its place; what was fetched before goes.
fn put(made: &Path, folder: &Path) -> io::Result<()> {
    if let Some(above) = folder.parent() {
        fs::create_dir_all(above)?;
    }
    if folder.exists() {
        fs::remove_dir_all(folder)?;
    }
    fs::rename(made, folder)
}

/// Removes what fetches have left that did not come to their end.
fn remove_left_behind(cache: &Path) {
    for entry in fs::read_dir(cache).into_iter().flatten().filter_map(Result::ok) {
        let is_ours = entry.file_name().to_str().is_some_and(|name| name.starts_with(UNFINISHED));
        let age = entry.metadata().and_then(|found| found.modified()).ok().and_then(|at| at.elapsed().ok());
        if is_ours && age.is_some_and(|age| age > LEFT_BEHIND) {
            drop(fs::remove_dir_all(entry.path()));
        }
    }
}

/// Where a redirect leads; nowhere from https to http.
fn follow(from: &str, location: &str) -> Option<String> {
    let (scheme, rest) = from.split_once("://")?;
    if location.starts_with('/') && !location.starts_with("//") {
        let authority = rest.split('/').next()?;
        return Some(format!("{scheme}://{authority}{location}"));
    }
    let (to, _) = location.split_once("://")?;
    (to == "https" || to == "http" && scheme == "http").then(|| location.to_owned())
}

/// The checksum that an entity tag is, if it is one.
fn sha256_in(etag: &str) -> Option<String> {
    let tag = etag.trim_start_matches("W/").trim_matches('"');
    (tag.len() == 64 && tag.bytes().all(|byte| byte.is_ascii_hexdigit())).then(|| tag.to_ascii_lowercase())
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn disk(path: &Path) -> impl Fn(io::Error) -> HubError {
    let path = path.to_owned();
    move |source| HubError::Disk { path: path.clone(), source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_redirect_is_followed_on_its_host_and_to_others_but_never_out_of_tls() {
        let from = "https://hub.example/a/b?c";
        assert_eq!(follow(from, "/x?y").as_deref(), Some("https://hub.example/x?y"));
        assert_eq!(follow(from, "https://cdn.example/x").as_deref(), Some("https://cdn.example/x"));
        assert_eq!(follow(from, "http://cdn.example/x"), None);
        assert_eq!(follow("http://127.0.0.1:1/a", "http://127.0.0.1:2/x").as_deref(), Some("http://127.0.0.1:2/x"));
        for bad in ["//cdn.example/x", "x", "ftp://h/x", "file:///etc/passwd"] {
            assert_eq!(follow(from, bad), None, "{bad}");
        }
    }

    #[test]
    fn only_a_checksum_is_taken_for_one() {
        let sum = "BA7816BF8F01CFEA414140DE5DAE2223B00361A396177A9CB410FF61F20015AD";
        assert_eq!(sha256_in(&format!("\"{sum}\"")), Some(sum.to_ascii_lowercase()));
        assert_eq!(sha256_in("\"686897696a7c876b7e\""), None);
    }
}
