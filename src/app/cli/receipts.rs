//! `weir receipts`: the key, the files, and the check that needs neither gateway nor record.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Subcommand};
use serde_json::Value;
use weir_config::Settings;
use weir_config::vocab::TenantId;

use super::common::{EXIT_USAGE, Options, complain, say, sources};
use super::scan::plain;
use crate::boot::StartError;
use crate::receipts::{self, Found, KeyError, PublicKey, SigningKey, Tampering, Verifier};

/// The commands.
#[derive(Debug, Clone, Subcommand)]
pub(super) enum ReceiptsCommand {
    /// Make the key that receipts are signed with (Ed25519), readable by its owner alone, and print the public key. A file that is
    /// there stays as it is.
    Init {
        /// Where the key goes, in place of `receipts.key_file`.
        #[arg(long, value_name = "FILE")]
        key: Option<PathBuf>,
    },
    /// Print the public key, as PEM: whoever checks receipts needs it.
    Key {
        /// The key file, in place of `receipts.key_file`.
        #[arg(long, value_name = "FILE")]
        key: Option<PathBuf>,
    },
    /// Write all receipts, in the order of the chain, as JSON Lines.
    Export {
        #[command(flatten)]
        to: Whither,
    },
    /// Sign a receipt of a session now, of those of its calls, and write it with them behind it.
    Session {
        /// The session, as the record names it.
        session: String,
        /// Whose session it is: a tenant's id. It can be left out where the session is one tenant's.
        #[arg(long, value_name = "ID")]
        tenant: Option<TenantId>,
        /// The private key, in place of `receipts.key_file`.
        #[arg(long, value_name = "FILE")]
        key: Option<PathBuf>,
        #[command(flatten)]
        to: Whither,
    },
    /// Check receipts in files, which follow on one another: signatures, chain, sessions. 0 where all is as it was signed, 1 where not.
    Verify(VerifyOptions),
}

/// Where receipts are, and where they go.
#[derive(Debug, Clone, Args)]
pub(super) struct Whither {
    /// The folder with the receipts, in place of `receipts.directory`.
    #[arg(long, value_name = "FOLDER")]
    directory: Option<PathBuf>,
    /// Where to, instead of standard output.
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// What is checked, and by what.
#[derive(Debug, Clone, Args)]
pub(super) struct VerifyOptions {
    /// Files of receipts; `-` is standard input.
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Public keys that may have signed: PEM, 64 hexadecimal digits, or what /api/v1/receipts/key shows. Left out, that of
    /// `receipts.key_file`.
    #[arg(long, value_name = "FILE")]
    key: Vec<PathBuf>,
    /// The hash of the last receipt, as it was noted elsewhere: tells when receipts are missing at the end.
    #[arg(long, value_name = "SHA256")]
    head: Option<String>,
    /// The first receipt of the chain has to be there.
    #[arg(long)]
    whole: bool,
    /// The audit log as JSON Lines (/api/v1/audit?format=jsonl): holds the checkpoints against it.
    #[arg(long, value_name = "FILE")]
    audit: Option<PathBuf>,
    /// The outcome as JSON.
    #[arg(long)]
    json: bool,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error(transparent)]
    Key(#[from] KeyError),
    #[error("{}: {source}", path.display())]
    File { path: PathBuf, source: io::Error },
    #[error("{0}")]
    Read(#[from] io::Error),
    #[error("no call of this session has a receipt")]
    NoSession,
    #[error("several tenants have a session of this name; say whose is meant with --tenant: {0}")]
    Tenants(String),
    #[error("{0}")]
    Tampered(#[from] Tampering),
    #[error("the first receipt has the number {0}: others are missing before it")]
    Incomplete(u64),
    #[error("{0}")]
    Audit(String),
}

/// Answers.
pub(super) fn run(from: &Options, command: &ReceiptsCommand) -> Result<ExitCode, StartError> {
    let settings = || weir_config::load(&sources(from)).map(|loaded| loaded.settings);
    let done = match command {
        ReceiptsCommand::Init { key } => init(&or(key.as_ref(), settings, key_file)?),
        ReceiptsCommand::Key { key } => PublicKey::read(&or(key.as_ref(), settings, key_file)?)
            .map(|key| say(key.to_pem().trim_end()))
            .map_err(Failure::from),
        ReceiptsCommand::Export { to } => export(&or(to.directory.as_ref(), settings, folder)?, to),
        ReceiptsCommand::Session { session, tenant, key, to } => {
            let folder = or(to.directory.as_ref(), settings, folder)?;
            session_of(&folder, session, *tenant, &or(key.as_ref(), settings, key_file)?, to)
        }
        ReceiptsCommand::Verify(options) => {
            let keys = match &options.key[..] {
                [] => vec![key_file(&settings()?)],
                keys => keys.to_vec(),
            };
            verify(options, &keys)
        }
    };
    Ok(match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            complain(&plain(&failure.to_string()));
            let is_no = matches!(
                failure,
                Failure::Tampered(_) | Failure::Incomplete(_) | Failure::Audit(_) | Failure::NoSession
            );
            if is_no { ExitCode::FAILURE } else { ExitCode::from(EXIT_USAGE) }
        }
    })
}

/// What was named, or what the settings say; these are read only where they are needed.
fn or(
    named: Option<&PathBuf>,
    settings: impl FnOnce() -> Result<Settings, weir_config::LoadError>,
    of: fn(&Settings) -> PathBuf,
) -> Result<PathBuf, StartError> {
    Ok(match named {
        Some(path) => path.clone(),
        None => of(&settings()?),
    })
}

fn key_file(settings: &Settings) -> PathBuf {
    settings.receipts.key_file(&settings.storage.database_path)
}

fn folder(settings: &Settings) -> PathBuf {
    settings.receipts.directory(&settings.storage.database_path)
}

fn init(path: &Path) -> Result<(), Failure> {
    let public = SigningKey::create(path)?.public();
    say(&format!(
        "{}: made; keep a copy where it is safe, and give the public key to whoever checks receipts",
        path.display()
    ));
    say(&format!("key {}\n{}", public.id(), public.to_pem().trim_end()));
    Ok(())
}

fn export(folder: &Path, to: &Whither) -> Result<(), Failure> {
    let mut out = open(to)?;
    read(folder, |line| Ok(writeln!(out, "{line}")?))?;
    Ok(out.flush()?)
}

fn session_of(folder: &Path, session: &str, tenant: Option<TenantId>, key: &Path, to: &Whither) -> Result<(), Failure> {
    let key = SigningKey::read(key)?;
    let (session, tenant, mut lines) = (receipts::sha256(session), tenant.map(|id| id.to_string()), Vec::new());
    let mut tenants = BTreeSet::new();
    read(folder, |line| {
        // Most are of other sessions, and need not be read for that.
        if line.contains(&session)
            && let Ok(call) = serde_json::from_str::<Value>(line)
            && call["session_sha256"] == *session
            && tenant.as_ref().is_none_or(|tenant| call["tenant_id"] == **tenant)
        {
            tenants.insert(call["tenant_id"].as_str().unwrap_or_default().to_owned());
            lines.push(line.to_owned());
        }
        Ok(())
    })?;
    if tenants.len() > 1 {
        return Err(Failure::Tenants(tenants.into_iter().collect::<Vec<_>>().join(", ")));
    }
    let signed = receipts::of_session(&lines, &key).ok_or(Failure::NoSession)?;
    let mut out = open(to)?;
    for line in std::iter::once(&signed).chain(&lines) {
        writeln!(out, "{line}")?;
    }
    Ok(out.flush()?)
}

fn read(folder: &Path, take: impl FnMut(&str) -> Result<(), Failure>) -> Result<(), Failure> {
    receipts::read(folder, take).map_err(|failure| match failure {
        Failure::Read(source) => Failure::File { path: folder.to_owned(), source },
        other => other,
    })
}

fn open(to: &Whither) -> Result<Box<dyn io::Write>, Failure> {
    let Some(path) = &to.output else { return Ok(Box::new(io::BufWriter::new(io::stdout()))) };
    let file = File::create(path).map_err(|source| Failure::File { path: path.clone(), source })?;
    Ok(Box::new(io::BufWriter::new(file)))
}

fn verify(options: &VerifyOptions, keys: &[PathBuf]) -> Result<(), Failure> {
    let keys = keys.iter().map(|path| PublicKey::read(path)).collect::<Result<Vec<_>, _>>()?;
    let mut verifier = Verifier::new(&keys);
    for path in &options.files {
        let fail = |source| Failure::File { path: path.clone(), source };
        let lines: Box<dyn BufRead> = if path.as_os_str() == "-" {
            Box::new(BufReader::new(io::stdin()))
        } else {
            Box::new(BufReader::new(File::open(path).map_err(fail)?))
        };
        for line in lines.split(b'\n') {
            let line = line.map_err(fail)?;
            // What is no text is no receipt either.
            verifier.check(&String::from_utf8_lossy(&line))?;
        }
    }
    let found = verifier.finish(options.head.as_deref())?;
    if options.whole && found.from != 1 {
        return Err(Failure::Incomplete(found.from));
    }
    if let Some(path) = &options.audit {
        hold_against(&found, path)?;
    }
    report(&found, options.json);
    Ok(())
}

/// Holds checkpoints against the lines of the audit log.
fn hold_against(found: &Found, path: &Path) -> Result<(), Failure> {
    let fail = |source| Failure::File { path: path.to_owned(), source };
    let mut hashes = std::collections::HashMap::new();
    for line in BufReader::new(File::open(path).map_err(fail)?).lines() {
        let entry: Value = serde_json::from_str(&line.map_err(fail)?).unwrap_or_default();
        if let (Some(seq), Some(hash)) = (entry["seq"].as_u64(), entry["hash"].as_str()) {
            hashes.insert(seq, hash.to_owned());
        }
    }
    for (entries, head) in found.checkpoints.iter().filter(|(entries, _)| *entries > 0) {
        match hashes.get(entries) {
            Some(hash) if hash == head => {}
            Some(_) => {
                return Err(Failure::Audit(format!("line {entries} of the audit log is another one than was signed")));
            }
            None => {
                return Err(Failure::Audit(format!("line {entries} of the audit log, which was signed, is missing")));
            }
        }
    }
    Ok(())
}

fn report(found: &Found, as_json: bool) {
    let Found { calls, checkpoints, sessions, from, to, head } = found;
    let checkpoints = checkpoints.len();
    if as_json {
        let all = serde_json::json!({
            "valid": true, "calls": calls, "checkpoints": checkpoints, "sessions": sessions, "from": from, "to": to, "head": head,
        });
        return say(&all.to_string());
    }
    say(&format!(
        "valid: {calls} calls, {checkpoints} checkpoints of the audit log, {sessions} sessions, numbers {from} to {to}"
    ));
    if *from > 1 && *sessions == 0 {
        say(&format!("  the receipts before number {from} are not in these files"));
    }
    say(&format!("  the last one has the hash {head}"));
}
