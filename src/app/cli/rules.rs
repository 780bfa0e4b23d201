//! `weir rules`: what the rules in the binary, and the operator's own, look for, and where one matches.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Subcommand;
use serde_json::{Value, json};
use weir_config::vocab::part::PartKind;
use weir_inference::{RuleBook, RuleMatch, RuleView};

use super::common::{EXIT_USAGE, Options, complain, say, sources};
use super::scan::{TextRole, plain};
use crate::boot::{StartError, own_rules};
use crate::limits::KEPT_BYTES_MAX;

/// Subcommands of `weir rules`.
#[derive(Debug, Clone, Subcommand)]
pub(super) enum RulesCommand {
    /// List all rules: id, finding type, severity, whose texts they read, and their file.
    List {
        /// One JSON object per line.
        #[arg(long)]
        json: bool,
    },
    /// Say what one rule looks for and where, with its pattern and examples.
    Explain {
        /// The rule's id, as `weir rules list` shows it.
        id: String,
    },
    /// Try rules on their own examples, and on a text if one is given. 0 when every example is as it must be, 1 when one is
    /// not.
    Test {
        /// The rule's id; leave it out with --all.
        #[arg(required_unless_present = "all")]
        id: Option<String>,
        /// The text to look at; `-` is standard input.
        #[arg(value_name = "FILE")]
        file: Option<PathBuf>,
        /// Try all rules; the text, if any, is then the only argument.
        #[arg(long)]
        all: bool,
        /// Only rules that read texts of this author are tried on the text.
        #[arg(long, value_enum)]
        role: Option<TextRole>,
    },
}

/// Roles with the names that `weir scan --role` and rule files have for them.
const ROLES: [(PartKind, &str); 7] = [
    (PartKind::System, "system"),
    (PartKind::User, "user"),
    (PartKind::Assistant, "assistant"),
    (PartKind::Tool, "tool"),
    (PartKind::ToolDefinition, "tool_definition"),
    (PartKind::ToolCall, "tool_call"),
    (PartKind::Output, "output"),
];

/// Runs the subcommand.
pub(super) fn run(from: &Options, command: &RulesCommand) -> Result<ExitCode, StartError> {
    let loaded = weir_config::load(&sources(from))?;
    let mut books = vec![RuleBook::builtin()?];
    books.extend(own_rules::book(&loaded.settings)?);
    let book = Books(books);
    Ok(match command {
        RulesCommand::List { json } => list(&book, *json),
        RulesCommand::Explain { id } => match find(&book, id) {
            Some(rule) => explain(&rule),
            None => unknown(id),
        },
        RulesCommand::Test { id: file, file: None, all: true, role } => {
            test(&book, None, file.as_deref().map(Path::new), *role)
        }
        RulesCommand::Test { id: Some(id), file, all: false, role } => match find(&book, id) {
            Some(rule) => test(&book, Some(&rule), file.as_deref(), *role),
            None => unknown(id),
        },
        RulesCommand::Test { .. } => {
            complain("`weir rules test` takes the id of one rule or --all, and one file");
            ExitCode::from(EXIT_USAGE)
        }
    })
}

/// The rules of the binary, and the operator's.
struct Books(Vec<RuleBook>);

impl Books {
    fn rules(&self) -> impl Iterator<Item = RuleView<'_>> {
        self.0.iter().flat_map(RuleBook::rules)
    }

    fn matches(&self, text: &str, kind: Option<PartKind>) -> Vec<RuleMatch> {
        let mut all: Vec<RuleMatch> = self.0.iter().flat_map(|book| book.matches(text, kind)).collect();
        all.sort_by(|a, b| (a.start, &a.rule, a.end).cmp(&(b.start, &b.rule, b.end)));
        all
    }
}

fn find<'a>(book: &'a Books, id: &str) -> Option<RuleView<'a>> {
    book.rules().find(|rule| rule.text.id == id)
}

fn unknown(id: &str) -> ExitCode {
    complain(&plain(&format!("no rule is named `{id}`; `weir rules list` shows all")));
    ExitCode::from(EXIT_USAGE)
}

fn roles(rule: &RuleView<'_>) -> Vec<&'static str> {
    let roles = ROLES.iter().filter(|(kind, _)| rule.reads(*kind)).map(|(_, name)| *name);
    roles.chain(rule.reads_disguised_only().then_some("disguised")).collect()
}

/// The severity, or what a rule without one is.
fn severity(rule: &RuleView<'_>) -> &'static str {
    rule.severity().map_or("signal", |severity| severity.as_str())
}

fn list(book: &Books, json: bool) -> ExitCode {
    for rule in book.rules() {
        let (id, file, roles) = (&rule.text.id, &rule.text.file, roles(&rule));
        if json {
            let severity = rule.severity().map(|severity| severity.as_str());
            let line: Value = json!({
                "id": id, "finding_type": rule.finding_type(), "severity": severity, "signal": rule.signal(),
                "confidence": rule.confidence(), "detector": rule.detector(), "roles": roles, "file": file,
                "about": rule.about(),
            });
            say(&line.to_string());
        } else {
            let (severity, roles) = (severity(&rule), roles.join(","));
            say(&format!("{id:<32}  {:<21}  {severity:<8}  {file:<17}  {roles}", rule.finding_type()));
        }
    }
    ExitCode::SUCCESS
}

fn explain(rule: &RuleView<'_>) -> ExitCode {
    let line = |topic: &str, text: &str| say(&format!("{topic:<11}  {}", plain(text)));
    line("rule", &rule.text.id);
    line("looks for", rule.about());
    line("reports", &format!("{}, by the detector `{}`", rule.finding_type(), rule.detector()));
    match rule.severity() {
        Some(severity) => line("severity", &format!("{severity}, confidence {}", rule.confidence())),
        None => line("severity", "none of its own"),
    }
    if rule.signal() > 0 {
        line("signal", &format!("{} points; 100 from several rules of one type make a finding", rule.signal()));
    }
    line("reads", &roles(rule).join(", "));
    line("file", &rule.text.file);
    line("literals", &format!("one of: {}", rule.literals().join(" | ")));
    line("pattern", &rule.text.pattern);
    rule.text.hits.iter().for_each(|hit| line("matches", hit));
    rule.text.misses.iter().for_each(|miss| line("not", miss));
    ExitCode::SUCCESS
}

/// Tries one rule, or all, on examples and on a text.
fn test(book: &Books, one: Option<&RuleView<'_>>, file: Option<&Path>, role: Option<TextRole>) -> ExitCode {
    let text = match file.map(read).transpose() {
        Ok(text) => text,
        Err(error) => {
            complain(&plain(&format!("{}: {error}", file.unwrap_or(Path::new("-")).display())));
            return ExitCode::from(EXIT_USAGE);
        }
    };
    let asked = |id: &str| one.is_none_or(|rule| rule.text.id == id);
    let (mut tried, mut wrong) = (0, 0);
    for rule in book.rules().filter(|rule| asked(&rule.text.id)) {
        let id = &rule.text.id;
        let matches = |example: &str| book.matches(example, None).iter().any(|found| found.rule == *id);
        let hits = rule.text.hits.iter().map(|hit| (hit, true));
        for (example, wanted) in hits.chain(rule.text.misses.iter().map(|miss| (miss, false))) {
            tried += 1;
            if matches(example) != wanted {
                wrong += 1;
                let said = if wanted { "does not match" } else { "matches" };
                say(&plain(&format!("FAIL  {id} {said} its example: {example}")));
            }
        }
    }
    say(&format!("examples: {tried}, wrong: {wrong}"));
    if let (Some(text), Some(file)) = (text, file) {
        let name = file.display().to_string();
        let found = book.matches(&text, role.map(TextRole::kind)).into_iter().filter(|found| asked(&found.rule));
        let mut count = 0;
        for found in found {
            count += 1;
            let before = text.as_bytes().get(..found.start).unwrap_or_default();
            let line = memchr::memchr_iter(b'\n', before).count() + 1;
            let span = format!("bytes {} to {}", found.start, found.end);
            say(&plain(&format!("{name}:{line}  {}  {span}: {}", found.rule, found.evidence)));
        }
        say(&plain(&format!("matches in {name}: {count}")));
    }
    if wrong == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Reads a text, at most as much as the gateway would.
fn read(path: &Path) -> io::Result<String> {
    let input: Box<dyn Read> =
        if path.as_os_str() == "-" { Box::new(io::stdin().lock()) } else { Box::new(File::open(path)?) };
    let mut bytes = Vec::new();
    input.take(KEPT_BYTES_MAX as u64 + 1).read_to_end(&mut bytes)?;
    if bytes.len() > KEPT_BYTES_MAX {
        return Err(io::Error::other(format!("longer than {KEPT_BYTES_MAX} bytes; `weir scan` reads its beginning")));
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
