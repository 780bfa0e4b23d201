//! Log lines: filtered by `logging.filter`, as text or one JSON object per line, to standard error; and the access log's, to
//! standard output.
//!
//! Invariant: writing a line never blocks the thread that logs. Lines go over a bounded queue to one writer thread each; when
//! the queue is full a line is dropped and counted. Dropping the [`LogGuard`] writes out what is queued, within two seconds.
//! Knows nothing of what is logged.

use std::io::{self, IsTerminal, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use tracing::Subscriber;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;
use weir_config::settings::{LogFormat, Logging};

use crate::meter::Shared;

/// Lines waiting to be written; at 200 bytes a line about 1.6 MB.
const QUEUE_LINES: usize = 8_192;
/// How long the end of the process waits for queued lines to be read.
const FAREWELL: Duration = Duration::from_secs(2);

/// Why logging could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The filter has a directive nobody understands.
    #[error(
        "log filter `{filter}`: {reason}; use a level (error, warn, info, debug, trace) or directives such as `info,weir=debug`"
    )]
    Filter {
        /// What was configured.
        filter: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The writer thread could not be started.
    #[error("the log writer thread could not be started: {0}")]
    Thread(#[from] io::Error),
    /// A subscriber is in place already.
    #[error("logging was set up twice")]
    AlreadySet,
}

/// Keeps the log writer running; dropping it writes out what is queued.
#[derive(Debug)]
pub struct LogGuard {
    lines: LineQueue,
    closed: Arc<AtomicBool>,
    writer: Option<JoinHandle<()>>,
}

/// Sends the process's log lines to standard error from now on. Dropped lines are counted in `shared`.
pub fn init(settings: &Logging, shared: Arc<Shared>) -> Result<LogGuard, LogError> {
    let guard = LogGuard::start("log", shared, io::stderr())?;
    let subscriber = subscriber(settings, guard.lines.clone(), io::stderr().is_terminal())?;
    tracing::subscriber::set_global_default(subscriber).map_err(|_| LogError::AlreadySet)?;
    Ok(guard)
}

/// The access log's queue, and what keeps its writer running. Dropped lines are counted in `shared`.
pub fn access(shared: Arc<Shared>) -> Result<(LineQueue, LogGuard), LogError> {
    let guard = LogGuard::start("access", shared, io::stdout())?;
    Ok((guard.lines.clone(), guard))
}

/// Whether [`init`] would take the filter.
pub fn check_filter(filter: &str) -> Result<(), LogError> {
    parse_filter(filter).map(drop)
}

fn parse_filter(filter: &str) -> Result<EnvFilter, LogError> {
    EnvFilter::try_new(filter)
        .map_err(|fault| LogError::Filter { filter: filter.to_owned(), reason: fault.to_string() })
}

fn subscriber<W>(settings: &Logging, writer: W, colours: bool) -> Result<Box<dyn Subscriber + Send + Sync>, LogError>
where
    W: for<'w> MakeWriter<'w> + Send + Sync + 'static,
{
    let lines = tracing_subscriber::fmt().with_env_filter(parse_filter(&settings.filter)?).with_writer(writer);
    Ok(match settings.format {
        LogFormat::Text => Box::new(lines.with_ansi(colours).finish()),
        LogFormat::Json => Box::new(lines.json().flatten_event(true).with_current_span(false).finish()),
    })
}

/// The queue of lines.
#[derive(Debug, Clone)]
pub struct LineQueue {
    /// As `service_dropped_total` calls it.
    name: &'static str,
    queue: SyncSender<Vec<u8>>,
    shared: Arc<Shared>,
}

/// One line in the making; queued when dropped.
#[derive(Debug)]
pub struct Line<'a> {
    bytes: Vec<u8>,
    lines: &'a LineQueue,
}

impl LogGuard {
    fn start(name: &'static str, shared: Arc<Shared>, mut out: impl Write + Send + 'static) -> io::Result<Self> {
        let (queue, lines) = sync_channel(QUEUE_LINES);
        let closed = Arc::new(AtomicBool::new(false));
        let writer = thread::Builder::new().name(format!("weir-{name}")).spawn({
            let closed = Arc::clone(&closed);
            move || write_lines(&lines, &closed, &mut out)
        })?;
        Ok(Self { lines: LineQueue { name, queue, shared }, closed, writer: Some(writer) })
    }
}

impl Drop for LogGuard {
    fn drop(&mut self) {
        self.closed.store(true, Ordering::SeqCst);
        // Wakes a writer that waits; one whose queue is full has no need of it.
        let _full = self.lines.queue.try_send(Vec::new()).is_err();
        let Some(writer) = self.writer.take() else { return };
        // A reader that never reads must not keep the process from ending.
        let patience_ends = Instant::now() + FAREWELL;
        while !writer.is_finished() && Instant::now() < patience_ends {
            thread::sleep(Duration::from_millis(1));
        }
        if writer.is_finished() && writer.join().is_err() {
            self.lines.shared.panic();
        }
    }
}

impl LineQueue {
    /// Queues one line, its end included, or drops and counts it.
    pub fn push(&self, line: Vec<u8>) {
        if self.queue.try_send(line).is_err() {
            self.shared.dropped(self.name, "queue_full", 1);
        }
    }
}

impl<'w> MakeWriter<'w> for LineQueue {
    type Writer = Line<'w>;

    fn make_writer(&'w self) -> Line<'w> {
        Line { bytes: Vec::new(), lines: self }
    }
}

impl Write for Line<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Line<'_> {
    fn drop(&mut self) {
        self.lines.push(std::mem::take(&mut self.bytes));
    }
}

fn write_lines(lines: &Receiver<Vec<u8>>, closed: &AtomicBool, out: &mut impl Write) {
    while let Ok(first) = lines.recv() {
        for line in std::iter::once(first).chain(lines.try_iter()) {
            // There is nowhere to report that standard error is gone; the gateway goes on without it.
            drop(out.write_all(&line));
        }
        drop(out.flush());
        if closed.load(Ordering::SeqCst) {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;
    use weir_config::settings::AccessFormat;

    use crate::meter::Registry;

    /// Hands every write to a channel; a full channel blocks, like a pipe nobody reads.
    struct Pipe(mpsc::SyncSender<Vec<u8>>);

    impl Write for Pipe {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.send(bytes.to_vec()).map_err(|_| io::ErrorKind::BrokenPipe)?;
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn logged(filter: &str, format: LogFormat, log: impl FnOnce()) -> Vec<String> {
        let (pipe, read) = mpsc::sync_channel(100);
        let guard = LogGuard::start("log", Registry::new().shared().clone(), Pipe(pipe)).unwrap();
        let settings = Logging { filter: filter.to_owned(), format, access: AccessFormat::Off };
        tracing::subscriber::with_default(subscriber(&settings, guard.lines.clone(), false).unwrap(), log);
        drop(guard);
        read.into_iter().map(|line| String::from_utf8(line).unwrap()).collect()
    }

    #[test]
    fn json_is_one_object_per_line_even_with_line_breaks_inside() {
        let lines = logged("info", LogFormat::Json, || {
            tracing::warn!(target: "weir::boot", port = 8080, "two\nlines");
        });
        assert_eq!(lines.len(), 1);
        assert_eq!(lines[0].matches('\n').count(), 1);
        let object: serde_json::Value = serde_json::from_str(&lines[0]).unwrap();
        assert_eq!(object["level"], "WARN");
        assert_eq!(object["message"], "two\nlines");
        assert_eq!(object["port"], 8080);
        assert_eq!(object["target"], "weir::boot");
    }

    #[test]
    fn directives_choose_a_level_per_module() {
        let lines = logged("warn,weir::flow=debug", LogFormat::Text, || {
            tracing::debug!(target: "weir::flow", "kept");
            tracing::info!(target: "weir::boot", "left out");
            tracing::error!(target: "weir::boot", "kept too");
        });
        assert_eq!(lines.len(), 2);
        assert!(lines[0].contains("DEBUG") && lines[0].contains("kept"));
        assert!(lines[1].contains("ERROR") && lines[1].contains("kept too"));
    }

    #[test]
    fn a_bad_filter_is_named() {
        let settings = Logging { filter: "weir=loud".to_owned(), format: LogFormat::Text, access: AccessFormat::Off };
        let fault = subscriber(&settings, io::sink, false).err().unwrap().to_string();
        assert!(fault.contains("`weir=loud`") && fault.contains("use a level"), "{fault}");
    }

    #[test]
    fn a_reader_that_stands_still_costs_lines_but_blocks_nobody() {
        let registry = Registry::new();
        let (pipe, read) = mpsc::sync_channel(0);
        let guard = LogGuard::start("log", registry.shared().clone(), Pipe(pipe)).unwrap();
        let settings = Logging { filter: "info".to_owned(), format: LogFormat::Text, access: AccessFormat::Off };
        // One line may be in the writer's hands besides those in the queue.
        let logged = QUEUE_LINES as u64 + 100;
        tracing::subscriber::with_default(subscriber(&settings, guard.lines.clone(), false).unwrap(), || {
            (0..logged).for_each(|n| tracing::info!(n));
        });
        let reader = thread::spawn(move || read.into_iter().count() as u64);
        drop(guard);
        let written = reader.join().unwrap();
        let text = registry.render().unwrap();
        let dropped: u64 = text
            .lines()
            .find_map(|line| line.strip_prefix(r#"service_dropped_total{queue="log",reason="queue_full"} "#))
            .unwrap()
            .parse()
            .unwrap();
        assert_eq!(written + dropped, logged);
        assert!((99..=100).contains(&dropped), "{dropped}");
    }
}
