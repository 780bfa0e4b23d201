//! Reads the ids of objects that an answer says were made, while it goes to its client: they are their tenant's from before the client
//! has them.

use bytes::Bytes;
use smallvec::SmallVec;
use weir_config::vocab::TenantId;
use weir_storage::{MadeObject, OBJECT_ID_BYTES_MAX};

use crate::inspect::decode_body;
use crate::json::{Event, Walker};
use crate::process::objects::MadeObjects;

/// Bytes of an answer that are read for ids; objects describe themselves in one or two thousand.
const READ_BYTES_MAX: usize = 256 * 1024;
/// Times a compressed answer may grow.
const DECODE_RATIO_MAX: u32 = 100;

/// What an operation makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Makes {
    /// An object with an `id`.
    One,
    /// A batch, which makes files.
    Batch,
    /// A run, which makes its thread.
    Run,
    /// An upload, which becomes a file.
    Upload,
    /// An object with an `id`, or with a `name` that ends with its id.
    Named,
}

impl Makes {
    /// Whether what stands under this key names an object; `around` is the key of the object it stands in, if there is one.
    fn names(self, around: Option<&str>, key: &str) -> bool {
        match (around, key) {
            // A stream says it in the object that its events are about.
            (None | Some("response"), "id") => true,
            (None, "output_file_id" | "error_file_id") => self == Self::Batch,
            (None, "thread_id") => self == Self::Run,
            (Some("file"), "id") => self == Self::Upload,
            // Gemini's are known by a name, an uploaded file within what is said of it.
            (None | Some("file"), "name") => self == Self::Named,
            _ => false,
        }
    }
}

/// Reads one answer.
pub(crate) struct Maker {
    pub(crate) makes: Makes,
    pub(crate) tenant: TenantId,
    pub(crate) upstream: String,
    pub(crate) coding: Option<Bytes>,
    pub(crate) is_stream: bool,
    pub(crate) buffer: Vec<u8>,
    pub(crate) noted: SmallVec<[String; 3]>,
}

/// Notes that a tenant has made an object at an upstream. False where it could not be noted, or its id is longer than is kept.
pub(crate) fn note_object(objects: &MadeObjects, tenant: TenantId, upstream: String, object: &str) -> bool {
    object.len() <= OBJECT_ID_BYTES_MAX && objects.note(MadeObject { tenant, upstream, object: object.to_owned() })
}

impl Maker {
    /// Takes in what came of the answer, and notes what it names. False where nothing could be kept of it.
    pub(crate) fn feed<'a>(&mut self, pieces: impl Iterator<Item = &'a [u8]>, objects: &MadeObjects) -> bool {
        let is_over = matches!(self.makes, Makes::One | Makes::Named) && !self.noted.is_empty();
        if is_over || self.buffer.len() >= READ_BYTES_MAX {
            return true;
        }
        for piece in pieces {
            let room = READ_BYTES_MAX - self.buffer.len();
            self.buffer.extend_from_slice(piece.get(..room).unwrap_or(piece));
        }
        let mut is_kept = true;
        for object in self.named() {
            if !self.noted.contains(&object) {
                self.noted.push(object.clone());
                let made = MadeObject { tenant: self.tenant, upstream: self.upstream.clone(), object };
                is_kept &= objects.note(made);
            }
        }
        is_kept
    }

    /// The ids that the answer names as far as it has come.
    fn named(&self) -> SmallVec<[String; 3]> {
        let decoded = decode_body(self.coding.as_deref(), &self.buffer, READ_BYTES_MAX, DECODE_RATIO_MAX);
        let mut ids = SmallVec::new();
        if !self.is_stream {
            self.read(&decoded.bytes, &mut ids);
            return ids;
        }
        for line in decoded.bytes.split(|&byte| byte == b'\n') {
            let Some(event) = line.strip_prefix(b"data:") else { continue };
            self.read(event, &mut ids);
            // The first event that names one names it all.
            if !ids.is_empty() {
                break;
            }
        }
        ids
    }

    /// Reads one document, which may end early.
    fn read(&self, document: &[u8], ids: &mut SmallVec<[String; 3]>) {
        let Ok(mut walker) = Walker::new(document.trim_ascii()) else { return };
        let (mut around, mut key, mut depth) = (None, String::new(), 0_usize);
        while let Ok(Some(event)) = walker.next_event() {
            match event {
                Event::ObjectStart | Event::ArrayStart => {
                    if depth == 1 {
                        around = Some(std::mem::take(&mut key));
                    }
                    depth += 1;
                }
                Event::ObjectEnd | Event::ArrayEnd => {
                    depth = depth.saturating_sub(1);
                    if depth == 1 {
                        around = None;
                    }
                }
                Event::Key(text) if depth <= 2 => key = text.decode().into_owned(),
                Event::Str(text) if (1..=2).contains(&depth) && self.makes.names(around.as_deref(), &key) => {
                    let named = text.decode();
                    // The name of an object stands behind that of its kind.
                    let id = if key == "name" { named.rsplit_once('/').map(|(_, id)| id) } else { Some(&*named) };
                    let Some(id) = id.filter(|id| !id.is_empty()) else { continue };
                    ids.push(id.to_owned());
                    if matches!(self.makes, Makes::One | Makes::Named) {
                        return;
                    }
                }
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(makes: Makes, is_stream: bool, answer: &str) -> Vec<String> {
        let maker = Maker {
            makes,
            tenant: TenantId::DEFAULT,
            upstream: String::new(),
            coding: None,
            is_stream,
            buffer: answer.into(),
            noted: SmallVec::new(),
        };
        maker.named().into_vec()
    }

    #[test]
    fn an_answer_names_what_it_made_and_nothing_that_it_repeats() {
        for (makes, is_stream, answer, expected) in [
            (Makes::One, false, r#"{"id":"file-1","object":"file"}"#, &["file-1"][..]),
            (Makes::One, false, r#"{"metadata":{"id":"file-9"},"tools":[{"id":"x"}],"id":"asst-1"}"#, &["asst-1"]),
            (Makes::One, false, r#"{"id":"file-1","obj"#, &["file-1"]),
            (Makes::One, false, r#"{"object":"file","i"#, &[]),
            (Makes::One, false, r#"{"assistant_id":"asst-9","thread_id":"t-9","id":"run-1"}"#, &["run-1"]),
            (Makes::Run, false, r#"{"assistant_id":"asst-9","thread_id":"t-1","id":"run-1"}"#, &["t-1", "run-1"]),
            (
                Makes::Batch,
                false,
                r#"{"id":"b","input_file_id":"f-9","output_file_id":"f-1","error_file_id":null}"#,
                &["b", "f-1"],
            ),
            (
                Makes::Named,
                false,
                r#"{"file":{"display_name":"a/b","name":"files/abc","uri":"https://x.test/files/abc"}}"#,
                &["abc"],
            ),
            (Makes::Named, false, r#"{"name":"projects/p/locations/l/cachedContents/77","model":"m"}"#, &["77"]),
            (Makes::Named, false, r#"{"name":"my.txt","id":"file-1"}"#, &["file-1"]),
            (Makes::Upload, false, r#"{"id":"u","file":{"id":"file-1","parts":[{"id":"x"}]}}"#, &["u", "file-1"]),
            (
                Makes::One,
                true,
                "event: response.created\ndata: {\"type\":\"response.created\",\"response\":{\"id\":\"resp-1\"}}\n\n",
                &["resp-1"],
            ),
            (Makes::One, true, "data: {\"type\":\"response.cre", &[]),
            (Makes::One, false, "<html>", &[]),
        ] {
            assert_eq!(named(makes, is_stream, answer), expected, "{answer}");
        }
    }
}
