//! The chain of a gateway's receipts in its folder: files of JSON lines, each named by the number of its first receipt.
//!
//! Invariants: a receipt that was said to be written is on the disk; a line that a crash has cut is taken away, and no number is given
//! twice. Several processes may have the folder, one after the other or for a while together: each locks it while it writes, and looks
//! first whether another one has gone on. A call has one receipt, also when it comes again after a crash.

use std::collections::{HashSet, VecDeque};
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use serde_json::Value;
use weir_storage::record::SpanRecord;

use super::hex::hex;
use super::key::SigningKey;
use super::receipt::{Draft, NO_FORMER, draft, hash, of_call, sign};

/// A file that is longer is not written to any more.
const FILE_BYTES: u64 = 32 * 1024 * 1024;
/// Calls whose receipts are remembered: several times as many as come again after a crash.
const REMEMBERED: usize = 4_096;
const ENDING: &str = "jsonl";
const LOCK: &str = "lock";

/// A folder of receipts, and where its chain ends.
pub(super) struct Chain {
    folder: PathBuf,
    key: SigningKey,
    keep: Duration,
    end: Option<End>,
}

/// Where the chain ends, as far as this process knows.
struct End {
    /// The file that is written to; none before the first receipt.
    file: Option<PathBuf>,
    bytes: u64,
    gateway: String,
    /// Of the last receipt.
    seq: u64,
    hash: String,
    known: Known,
    /// What the last checkpoint said of the audit log.
    audit: Option<(u64, String)>,
}

/// The last calls that have receipts.
#[derive(Default)]
struct Known {
    ids: HashSet<String>,
    order: VecDeque<String>,
}

impl Known {
    fn insert(&mut self, id: String) {
        if self.ids.insert(id.clone()) {
            self.order.push_back(id);
        }
        while self.order.len() > REMEMBERED {
            if let Some(oldest) = self.order.pop_front() {
                self.ids.remove(&oldest);
            }
        }
    }
}

impl Chain {
    /// The chain in this folder, which is made where it is missing.
    pub(super) fn open(folder: &Path, key: SigningKey, keep: Duration) -> io::Result<Self> {
        fs::create_dir_all(folder)?;
        let mut chain = Self { folder: folder.to_owned(), key, keep, end: None };
        let _lock = chain.lock()?;
        chain.find_end()?;
        Ok(chain)
    }

    /// Writes receipts for calls that have none yet; how many there were.
    pub(super) fn add_calls<'a>(
        &mut self,
        spans: impl Iterator<Item = &'a SpanRecord>,
        settings: &str,
    ) -> io::Result<u64> {
        let _lock = self.lock()?;
        self.find_end()?;
        let Some(end) = &mut self.end else { return Err(gone()) };
        let (mut lines, mut count) = (Lines::after(end), 0);
        for span in spans {
            let id = format!("{}/{}", span.tenant_id, span.span_id);
            if end.known.ids.contains(&id) {
                continue;
            }
            lines.add(of_call(draft("call", &end.gateway), span, settings), &self.key);
            end.known.insert(id);
            count += 1;
        }
        let lines = lines.done();
        self.write(lines).map(|()| count)
    }

    /// Writes down how the audit log stands, unless the last checkpoint says the same.
    pub(super) fn add_checkpoint(&mut self, entries: u64, head: &str, intact: bool) -> io::Result<bool> {
        let _lock = self.lock()?;
        self.find_end()?;
        let Some(end) = &mut self.end else { return Err(gone()) };
        let stands = (entries, head.to_owned());
        if end.audit.as_ref() == Some(&stands) && intact {
            return Ok(false);
        }
        let mut fields = draft("audit", &end.gateway);
        let said = [("entries", Value::from(entries)), ("head", head.into()), ("intact", intact.into())];
        fields.extend(said.map(|(name, value)| (name.to_owned(), value)));
        let mut lines = Lines::after(end);
        lines.add(fields, &self.key);
        end.audit = Some(stands);
        let lines = lines.done();
        self.write(lines).map(|()| true)
    }

    fn lock(&self) -> io::Result<File> {
        let path = self.folder.join(LOCK);
        let file = OpenOptions::new().create(true).truncate(false).write(true).open(path)?;
        file.lock()?;
        Ok(file)
    }

    /// Appends lines, durably. Where that fails the end is looked for again: nobody knows how far it came.
    fn write(&mut self, (text, seq, hash): (String, u64, String)) -> io::Result<()> {
        if text.is_empty() {
            return Ok(());
        }
        let Some(mut end) = self.end.take() else { return Err(gone()) };
        let path = match end.file.take().filter(|_| end.bytes < FILE_BYTES) {
            Some(path) => path,
            None => {
                self.remove_old();
                end.bytes = 0;
                self.folder.join(format!("{:016}.{ENDING}", end.seq + 1))
            }
        };
        let mut file = OpenOptions::new().create(true).append(true).open(&path)?;
        file.write_all(text.as_bytes())?;
        file.sync_data()?;
        if end.bytes == 0 {
            File::open(&self.folder)?.sync_all()?;
        }
        (end.bytes, end.seq, end.hash) = (end.bytes + text.len() as u64, seq, hash);
        end.file = Some(path);
        self.end = Some(end);
        Ok(())
    }

    /// Reads where the chain ends, unless it ends where it did.
    fn find_end(&mut self) -> io::Result<()> {
        let files = files(&self.folder)?;
        let last = files.last();
        let bytes = last.map_or(Ok(0), |path| fs::metadata(path).map(|data| data.len()))?;
        if self.end.as_ref().is_some_and(|end| end.file.as_ref() == last && end.bytes == bytes) {
            return Ok(());
        }
        let mut random = [0; 16];
        ring::rand::SecureRandom::fill(&ring::rand::SystemRandom::new(), &mut random)
            .map_err(|_| io::Error::other("the kernel gives no random bytes"))?;
        let (gateway, hash) = (hex(&random), NO_FORMER.to_owned());
        let mut end =
            End { file: last.cloned(), bytes: 0, gateway, seq: 0, hash, known: Known::default(), audit: None };
        for path in files.iter().rev().take(2).rev() {
            end.bytes = end.read(path)?;
        }
        self.end = Some(end);
        Ok(())
    }

    /// Removes files that are over their time.
    fn remove_old(&self) {
        let Some(before) = SystemTime::now().checked_sub(self.keep) else { return };
        for path in files(&self.folder).unwrap_or_default() {
            let is_old = fs::metadata(&path).and_then(|data| data.modified()).is_ok_and(|written| written < before);
            if is_old && let Err(error) = fs::remove_file(&path) {
                tracing::warn!(%error, path = %path.display(), "receipts that are over their time cannot be removed");
            }
        }
    }
}

impl End {
    /// Goes through a file; gives its length. What a crash has cut is taken away.
    fn read(&mut self, path: &Path) -> io::Result<u64> {
        let file = OpenOptions::new().read(true).write(true).open(path)?;
        let (mut whole, mut line) = (0, String::new());
        let mut reader = BufReader::new(&file);
        loop {
            line.clear();
            let bytes = reader.read_line(&mut line)?;
            let Some(text) = line.strip_suffix('\n') else {
                if bytes > 0 {
                    tracing::warn!(path = %path.display(), bytes, "a receipt that a crash has cut is taken away; it is made again");
                }
                break;
            };
            self.note(text).ok_or_else(|| io::Error::other(format!("{}: a line is no receipt", path.display())))?;
            whole += bytes as u64;
        }
        file.set_len(whole)?;
        Ok(whole)
    }

    fn note(&mut self, line: &str) -> Option<()> {
        let receipt: Value = serde_json::from_str(line).ok()?;
        let text = |name: &str| receipt.get(name).and_then(Value::as_str);
        self.seq = receipt.get("seq")?.as_u64()?;
        self.gateway = text("gateway")?.to_owned();
        self.hash = hash(line);
        match text("kind")? {
            "call" => self.known.insert(format!("{}/{}", text("tenant_id")?, text("span_id")?)),
            "audit" => self.audit = Some((receipt.get("entries")?.as_u64()?, text("head")?.to_owned())),
            _ => {}
        }
        Some(())
    }
}

/// Lines that follow on one another.
struct Lines {
    text: String,
    seq: u64,
    hash: String,
}

impl Lines {
    fn after(end: &End) -> Self {
        Self { text: String::new(), seq: end.seq, hash: end.hash.clone() }
    }

    fn add(&mut self, draft: Draft, key: &SigningKey) {
        self.seq += 1;
        let line = sign(draft, Some((self.seq, &self.hash)), key);
        self.hash = hash(&line);
        self.text.push_str(&line);
        self.text.push('\n');
    }

    fn done(self) -> (String, u64, String) {
        (self.text, self.seq, self.hash)
    }
}

fn gone() -> io::Error {
    io::Error::other("the end of the chain is not known")
}

/// The files of receipts in a folder, in their order.
pub(super) fn files(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder)?.collect::<io::Result<Vec<_>>>()?;
    let mut files: Vec<PathBuf> = entries.into_iter().map(|entry| entry.path()).collect();
    files.retain(|path| path.extension().is_some_and(|ending| ending == ENDING));
    files.sort();
    Ok(files)
}
