//! `weir scan`: what the gateway would find in files, without one. Texts go through the inspection of the proxy, request bodies
//! through its reader, too.
//!
//! Invariants: at most `max_request_size_bytes` of a file, or of a line of JSON Lines, are in memory; nothing is written but what
//! is said; no network, no database.

mod input;
mod options;
mod progress;
mod report;
mod strings;
mod walk;

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use weir_config::Settings;
use weir_config::vocab::{Finding, Unread};
use weir_inference::{Analyser, Call, Part, Plan, Scratch};

pub(super) use input::read_up_to;
pub(super) use options::{ScanOptions, TextRole};
pub(super) use progress::Progress;
pub(super) use report::plain;

use self::options::InputKind;
use self::report::{FAILED, MODELS, NO_FIELD, NOT_A_FILE, Report, TIMEOUT, Where};
use self::walk::Found;
use super::common::{EXIT_USAGE, Options, complain, sources};
use crate::boot::{Extensions, StartError, own_rules};
use crate::inspect::{Takes, ZoneAsk, route};
use crate::limits::kept_bytes_max;
use crate::process::plan_at_leisure;
use crate::record::Budget;
use crate::settle::inspection::{self, Alone, How, Inspection, Texts};
use crate::settle::text::{Goes, RawBody, ReadRaw, read_raw};

/// What standard input is called.
const STDIN: &str = "-";

/// Looks at what was named, says what it found, and gives the exit code.
pub(super) fn run(from: &Options, options: &ScanOptions, extensions: Extensions) -> Result<ExitCode, StartError> {
    let loaded = weir_config::load(&sources(from))?;
    let analyser = own_rules::analyser(&loaded.settings, extensions.detectors)?.0;
    let mut scan = Scan::new(options, &loaded.settings, &analyser);
    let stdin = [PathBuf::from(STDIN)];
    let paths = if options.paths.is_empty() { &stdin[..] } else { &options.paths };
    scan.measure(paths);
    for path in paths {
        if path.as_os_str() == STDIN {
            scan.read(None, &mut io::stdin().lock());
        } else {
            walk::each(path, &mut |found| scan.found(found));
        }
    }
    scan.progress.clear();
    scan.report.end();
    let totals = &scan.report.totals;
    let fails = options.fail_on.severity().is_some_and(|least| totals.worst() >= Some(least));
    Ok(match totals.errors {
        0 if fails => ExitCode::FAILURE,
        0 => ExitCode::SUCCESS,
        _ => ExitCode::from(EXIT_USAGE),
    })
}

/// A scan under way.
struct Scan<'a> {
    options: &'a ScanOptions,
    settings: &'a Settings,
    analyser: &'a Analyser,
    plan: Arc<Plan>,
    scratch: Scratch,
    report: Report,
    progress: Progress,
}

impl<'a> Scan<'a> {
    fn new(options: &'a ScanOptions, settings: &'a Settings, analyser: &'a Analyser) -> Self {
        Self {
            options,
            settings,
            analyser,
            plan: Arc::new(plan_at_leisure(analyser, settings)),
            scratch: analyser.scratch(),
            report: Report::new(options.json, options.min_severity.severity()),
            progress: Progress::new(),
        }
    }

    /// Adds up how much there is to do, where somebody looks at the bar.
    fn measure(&mut self, paths: &[PathBuf]) {
        let files = paths.iter().filter(|path| self.progress.is_shown() && path.as_os_str() != STDIN);
        let mut bytes = 0;
        files.for_each(|path| {
            walk::each(path, &mut |found| {
                if let Found::File(_, len) = found {
                    bytes += len
                }
            });
        });
        self.progress.expect(bytes);
    }

    fn found(&mut self, found: Found) {
        match found {
            Found::File(path, _) => match File::open(&path) {
                Ok(mut file) => self.read(Some(&path), &mut file),
                Err(error) => self.fail(&path, &error),
            },
            Found::Other(path) => {
                let name = path.to_string_lossy();
                self.report.not_read(Where { file: &name, ..Where::default() }, NOT_A_FILE);
            }
            Found::Unlisted(path, error) => self.fail(&path, &error),
        }
    }

    fn fail(&mut self, path: &Path, error: &io::Error) {
        self.report.totals.errors += 1;
        self.report.flush();
        self.progress.clear();
        complain(&plain(&format!("{}: {error}", path.display())));
    }

    /// Looks at one file; `None` is standard input.
    fn read(&mut self, path: Option<&Path>, input: &mut dyn Read) {
        let name = path.unwrap_or(Path::new(STDIN));
        let file = name.to_string_lossy();
        let at = Where { file: &file, ..Where::default() };
        let outcome = match input::kind(self.options.input, path) {
            InputKind::Jsonl => self.lines(at, &mut BufReader::new(input)),
            kind => self.whole(at, kind, input),
        };
        self.report.totals.files += 1;
        self.progress.file();
        if let Err(error) = outcome {
            self.fail(name, &error);
        }
    }

    fn whole(&mut self, at: Where<'_>, kind: InputKind, input: &mut dyn Read) -> io::Result<()> {
        let mut body = Vec::new();
        let longer = input::read_up_to(input, kept_bytes_max(self.settings), &mut body)?;
        self.report.totals.bytes += body.len() as u64;
        match kind {
            InputKind::Request => self.request(at, &body, longer),
            InputKind::Json => self.json(at, &body, longer),
            _ => self.words(at, &body, longer),
        }
        self.progress.advance(body.len() as u64);
        Ok(())
    }

    /// JSON Lines: each a record.
    fn lines(&mut self, at: Where<'_>, input: &mut impl BufRead) -> io::Result<()> {
        let mut line = Vec::new();
        for record in 1.. {
            let Some(read) = input::read_line(input, kept_bytes_max(self.settings), &mut line)? else { break };
            self.report.totals.bytes += line.len() as u64;
            if !line.trim_ascii().is_empty() {
                self.json(Where { record: Some(record), ..at }, &line, read.longer);
            }
            self.progress.advance(read.bytes);
        }
        Ok(())
    }

    /// The strings of a JSON document; what is none is looked at as one text.
    fn json(&mut self, at: Where<'_>, body: &[u8], longer: bool) {
        let field = self.options.field.as_deref();
        // Once without a look: what breaks off half way is looked at as a whole, and nothing of it twice.
        let Ok(met) = strings::each(body, field, &mut |_, _| {}) else {
            if !longer {
                self.report.not_read(at, Unread::UnreadableBody.as_str());
            }
            return self.words(at, body, longer);
        };
        drop(strings::each(body, field, &mut |place, text| self.text(at, place, text)));
        if !met {
            self.report.not_read(at, NO_FIELD);
        }
        self.cut(at, longer);
    }

    /// Bytes that are one text, or none.
    fn words(&mut self, at: Where<'_>, body: &[u8], longer: bool) {
        match input::words(body) {
            Some(text) => self.text(at, "", &text),
            None => self.report.not_read(at, Unread::MediaType.as_str()),
        }
        self.cut(at, longer);
    }

    fn text(&mut self, at: Where<'_>, place: &str, text: &str) {
        self.report.totals.texts += 1;
        let alone = Alone { part: Part { text, kind: self.options.role.kind() }, location: place };
        let plan = Arc::clone(&self.plan);
        let how = self.how(&plan);
        let seen = inspection::run(self.analyser, &mut self.scratch, &alone, &how);
        let Some(findings) = self.seen(at, seen) else { return };
        let mut lines = Lines { text, at: 0, line: 1 };
        for finding in &findings {
            let start = finding.span.map(|span| span.start);
            let line = start.filter(|_| place.is_empty() && at.record.is_none()).map(|start| lines.of(start));
            self.report.finding(Where { line, ..at }, finding);
        }
    }

    /// A request body, as the gateway reads it.
    fn request(&mut self, at: Where<'_>, body: &[u8], longer: bool) {
        let path = self.options.path.as_str();
        let target = path.split('?').next().unwrap_or_default();
        let route = route(None, target, &self.settings.upstream.host);
        let raw = RawBody {
            body: Bytes::copy_from_slice(body),
            takes: Takes::of(route.operation, target),
            content_type: Some(Bytes::from_static(b"application/json")),
            content_encoding: None,
            repeated: None,
            truncated: longer,
            zones: ZoneAsk::of(self.settings, None),
        };
        let max = kept_bytes_max(self.settings);
        let read = inspection::survive(|| {
            read_raw(route.dialect, &raw, Goes::Changed, max, (&Budget::new(usize::MAX, false), None))
        });
        let Some(ReadRaw { view, .. }) = read else {
            self.report.totals.errors += 1;
            return self.report.not_read(at, FAILED);
        };
        self.report.totals.texts += view.parts.len() as u64;
        let plan = Arc::clone(&self.plan);
        let texts = Texts { request: Some(&view), answer: None, before: 0, context: None };
        let how = self.how(&plan);
        let seen = inspection::run(self.analyser, &mut self.scratch, &texts, &how);
        for finding in self.seen(at, seen).unwrap_or_default() {
            self.report.finding(at, &finding);
        }
        for unread in view.unread().iter() {
            self.report.not_read(at, unread.as_str());
        }
    }

    /// How texts are inspected, with the time they may take from now on.
    fn how<'b>(&self, plan: &'b Arc<Plan>) -> How<'b> {
        let limit = Duration::from_millis(self.settings.limits.security_analysis_timeout_ms);
        let call = Call { deadline: Some(Instant::now() + limit), ..Call::of(plan) };
        How { call, text_max: self.settings.security_analysis.max_analysis_text_bytes }
    }

    /// What was found; says what was not looked at.
    fn seen(&mut self, at: Where<'_>, mut seen: Option<Inspection>) -> Option<Vec<Finding>> {
        seen.iter_mut().for_each(|seen| inspection::look_again(self.analyser, &mut self.scratch, seen));
        let Some(Inspection { findings, ran, rest, .. }) = seen else {
            self.report.totals.errors += 1;
            self.report.not_read(at, FAILED);
            return None;
        };
        for (missed, reason) in [
            (ran.cut, TIMEOUT),
            (ran.failed, FAILED),
            (ran.full || ran.verify_cap_reached, Unread::Truncated.as_str()),
            (rest.is_some() || !ran.second_stage_skipped.is_empty(), MODELS),
        ] {
            if missed {
                self.report.not_read(at, reason);
            }
        }
        Some(findings)
    }

    fn cut(&mut self, at: Where<'_>, longer: bool) {
        if longer {
            self.report.not_read(at, Unread::Truncated.as_str());
        }
    }
}

/// Numbers the lines of a text; places that come in order cost one pass over it.
struct Lines<'a> {
    text: &'a str,
    at: usize,
    line: u64,
}

impl Lines<'_> {
    fn of(&mut self, at: usize) -> u64 {
        if at < self.at {
            (self.at, self.line) = (0, 1);
        }
        let between = self.text.as_bytes().get(self.at..at).unwrap_or_default();
        self.line += memchr::memchr_iter(b'\n', between).count() as u64;
        self.at = at;
        self.line
    }
}
