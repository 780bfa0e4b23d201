//! Where an export goes: standard output, or a file that takes its name when it is whole.

use std::fs::File;
use std::io::{BufWriter, IsTerminal as _, Write};
use std::path::{Path, PathBuf};

use weir_storage::ReadError;
use weir_storage::query::{Page, Paged};

use super::TracesError;
use crate::cli::scan::Progress;

/// The lines of an export.
pub(super) struct Sheet {
    out: BufWriter<Box<dyn Write>>,
    /// The file that is being written, and what it is called when it is whole.
    file: Option<(PathBuf, PathBuf)>,
    /// Nobody reads any more.
    closed: bool,
    /// Writing to the file has failed.
    failed: Option<std::io::Error>,
    progress: Option<Progress>,
}

impl Sheet {
    /// A sheet of so named things.
    pub(super) fn open(path: Option<&Path>, things: &'static str) -> Result<Self, TracesError> {
        let (out, file): (Box<dyn Write>, _) = match path {
            None => (Box::new(std::io::stdout()), None),
            Some(path) => {
                let mut part = path.as_os_str().to_owned();
                part.push(".part");
                let part = PathBuf::from(part);
                let file = File::create(&part).map_err(|source| TracesError::Write { path: part.clone(), source })?;
                (Box::new(file), Some((part, path.to_owned())))
            }
        };
        // Where lines are shown as they come, they say how far it is.
        let is_shown = file.is_some() || !std::io::stdout().is_terminal();
        let progress = is_shown.then(|| Progress::counting(things));
        Ok(Self { out: BufWriter::new(out), file, closed: false, failed: None, progress })
    }

    /// Writes a list to its end, a line per item, in the memory of one piece.
    pub(super) fn write<T>(
        &mut self,
        mut page: Page,
        shown: fn(&T) -> String,
        list: impl Fn(Page) -> Result<Paged<T>, ReadError>,
    ) -> Result<(), TracesError> {
        let mut is_first = true;
        while !self.closed {
            let found = list(page)?;
            if let Some(progress) = &mut self.progress {
                if std::mem::take(&mut is_first) {
                    progress.expect(found.total);
                }
                progress.advance(found.data.len() as u64);
            }
            found.data.iter().for_each(|item| self.line(&shown(item)));
            self.note(|out| out.flush());
            let Some(next) = found.next else { break };
            page.after = Some(next.to_the_end());
        }
        Ok(())
    }

    pub(super) fn line(&mut self, line: &str) {
        self.note(|out| writeln!(out, "{line}"));
    }

    fn note(&mut self, write: impl FnOnce(&mut BufWriter<Box<dyn Write>>) -> std::io::Result<()>) {
        if self.closed {
            return;
        }
        if let Err(error) = write(&mut self.out) {
            self.closed = true;
            // A closed pipe is no error: the reader has seen enough.
            self.failed = Some(error).filter(|_| self.file.is_some());
        }
    }

    /// All is written.
    pub(super) fn close(mut self) -> Result<(), TracesError> {
        self.note(|out| out.flush());
        if let Some(progress) = &mut self.progress {
            progress.clear();
        }
        let Some((part, path)) = self.file else { return Ok(()) };
        let kept = match self.failed {
            Some(error) => Err(error),
            None => File::open(&part).and_then(|file| file.sync_all()).and_then(|()| std::fs::rename(&part, &path)),
        };
        kept.map_err(|source| TracesError::Write { path, source })
    }
}
