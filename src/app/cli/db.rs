//! `weir db`: examines the database file.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Subcommand;
use weir_config::settings::StorageProfile;
use weir_storage::OpenError;

use super::common::{EXIT_USAGE, Options, complain, say, sources};
use super::scan::{Progress, plain};
use super::traces::TracesError;
use crate::boot::StartError;

#[derive(Debug, Clone, Subcommand)]
pub(super) enum DbCommand {
    /// Look at every page, row, index and reference, and at the chain of the audit log. Changes nothing; may run beside gateways. 0 when the
    /// database is whole.
    Check {
        /// The database file, in place of `storage.database_path`.
        #[arg(long, value_name = "FILE")]
        database: Option<PathBuf>,
    },
}

/// Examines the file and says what is wrong with it.
pub(super) fn run(from: &Options, command: &DbCommand) -> Result<ExitCode, StartError> {
    let DbCommand::Check { database } = command;
    let path = match database {
        Some(path) => path.clone(),
        None => {
            let storage = weir_config::load(&sources(from))?.settings.storage.clone();
            if storage.profile == StorageProfile::Memory {
                complain("storage.profile is `memory`: there is no file");
                return Ok(ExitCode::from(EXIT_USAGE));
            }
            storage.database_path
        }
    };
    if !path.exists() {
        complain(&plain(&TracesError::NoFile(path).to_string()));
        return Ok(ExitCode::from(EXIT_USAGE));
    }
    let mut progress = Progress::counting("seconds of examination");
    let mut told = 0;
    let examined = weir_storage::check(&path, &mut |took| {
        progress.advance(took.as_secs().saturating_sub(told));
        told = took.as_secs();
    });
    progress.clear();
    let (examined, mut faults) = match examined {
        // So damaged that it cannot even be opened: that is an answer, too.
        Err(OpenError::Damaged { detail, .. }) => (None, vec![detail]),
        other => {
            let examined = other?;
            let faults = examined.faults.clone();
            (Some(examined), faults)
        }
    };
    if faults.is_empty() && examined.as_ref().is_some_and(|examined| examined.pending == 0) {
        faults.extend(audit_fault(&path)?);
    }
    let shown = path.display();
    faults.iter().flat_map(|fault| shown_lines(fault)).for_each(|line| say(&line));
    if !faults.is_empty() {
        say(&plain(&format!(
            "{shown}: damaged; stop the gateways, keep a copy of the file, and put the newest backup back (`weir restore BACKUP --replace`)"
        )));
        return Ok(ExitCode::FAILURE);
    }
    let Some(examined) = examined else { return Ok(ExitCode::FAILURE) };
    let pending = match examined.pending {
        0 => String::new(),
        pending => format!(", {pending} migration(s) pending"),
    };
    say(&plain(&format!("{shown}: whole, {} bytes, schema version {}{pending}", examined.bytes, examined.schema)));
    Ok(ExitCode::SUCCESS)
}

/// A fault as lines of a terminal: SQLite names several places of one page in one text with line ends.
fn shown_lines(fault: &str) -> impl Iterator<Item = String> {
    fault.lines().enumerate().map(|(at, line)| plain(&format!("{}{line}", if at == 0 { "FAIL  " } else { "      " })))
}

/// What is wrong with the audit log, where something is.
fn audit_fault(path: &std::path::Path) -> Result<Option<String>, StartError> {
    let audit = weir_storage::RecordReader::open(path)?.check_audit()?;
    let at = audit.first_bad_seq.map_or_else(String::new, |seq| format!(" at line {seq}"));
    Ok((!audit.intact).then(|| format!("the audit log's chain is broken{at}: a line was altered, removed or put in")))
}

#[cfg(test)]
mod tests {
    use super::shown_lines;

    #[test]
    fn each_line_of_a_fault_is_a_line_and_nothing_in_it_steers_the_terminal() {
        let lines = |fault| shown_lines(fault).collect::<Vec<_>>();
        let fault = "*** in database main ***\nTree 7 page 7: btreeInitPage() returns error code 11\n";
        assert_eq!(
            lines(fault),
            ["FAIL  *** in database main ***", "      Tree 7 page 7: btreeInitPage() returns error code 11"]
        );
        assert_eq!(lines("a table named \u{1b}[2J"), ["FAIL  a table named \u{fffd}[2J"]);
    }
}
