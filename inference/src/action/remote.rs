//! Commands through which somebody else's code runs here, or a shell of this machine ends up elsewhere.

use weir_config::vocab::Severity::{Critical, High};

use super::Found;
use super::command::{sign, unwrapped};
use super::shell::{Simple, is_shell};

const SHELL_OUT: &str = "Hands a shell of this machine to somebody else.";
const FETCHED: &str = "Runs what it has just fetched, unseen.";
const HIDDEN: &str = "Runs a command that is hidden by an encoding.";
const CARRIED: &str = "Sends secrets or the environment away.";

/// Languages whose one-liners open shells.
const LANGUAGES: [&str; 9] = ["python", "python2", "python3", "perl", "ruby", "php", "node", "lua", "awk"];
/// What a one-liner must have to connect, and to hand a shell over.
const CONNECTS: [&str; 7] = ["socket", "fsockopen", "net.connect", "tcpsocket", "inet/tcp", "net.socket", "inet_aton"];
const HANDS_OVER: [&str; 12] = [
    "subprocess",
    "pty.spawn",
    "os.dup2",
    "/bin/sh",
    "/bin/bash",
    "exec(",
    "exec ",
    "child_process",
    "spawn",
    "popen",
    "shell_exec",
    "cmd.exe",
];

/// What shows in the whole line only, whatever its words are.
pub(super) fn whole_line(text: &str, found: &mut Found) {
    let dense: String = text.chars().filter(|c| !c.is_whitespace()).collect();
    if dense.contains(":(){:|:&};:") {
        found.add(sign("fork_bomb", Critical, "Starts processes until the machine stands still."), text);
    }
    let lower = dense.to_ascii_lowercase();
    let downloads = ["downloadstring(", "downloadfile(", "invoke-webrequest", "iwr", "net.webclient"];
    if (lower.contains("iex(") || lower.contains("|iex") || lower.contains("invoke-expression"))
        && downloads.iter().any(|word| lower.contains(word))
    {
        found.add(sign("fetched_code", Critical, FETCHED), text);
    }
}

/// A connection that bash opens as a file, wherever it stands in the line. Once for a line, not for each of its commands.
pub(super) fn connection(text: &str, found: &mut Found) {
    if text.contains("/dev/tcp/") || text.contains("/dev/udp/") {
        found.add(sign("reverse_shell", Critical, SHELL_OUT), text);
    }
}

/// `bash <(curl ...)` and `bash -c "$(curl ...)"`.
pub(super) fn interactive(args: &[&str], text: &str, found: &mut Found) {
    let fetches = |word: &&str| {
        word.starts_with("$(") && ["curl ", "wget ", "fetch "].iter().any(|program| word.contains(program))
    };
    if args.iter().any(fetches) {
        found.add(sign("fetched_code", High, FETCHED), text);
    }
}

/// A program and what feeds it: fetched code, encoded code, shells over sockets, data carried out.
pub(super) fn fetched(program: &str, args: &[&str], feeds: Option<&Simple>, text: &str, found: &mut Found) {
    let joined = args.join(" ");
    let executes = |args: &[&str]| args.iter().any(|word| matches!(*word, "-e" | "-c" | "--exec" | "--sh-exec"));
    match program {
        "nc" | "ncat" | "netcat" if executes(args) || clustered(args) => {
            found.add(sign("reverse_shell", Critical, SHELL_OUT), text);
        }
        "socat" if joined.to_ascii_lowercase().contains("exec:") => {
            found.add(sign("reverse_shell", Critical, SHELL_OUT), text);
        }
        "telnet" | "nc" | "ncat" | "netcat" if feeds.is_some_and(runs_shell) => {
            found.add(sign("reverse_shell", Critical, SHELL_OUT), text);
        }
        "powershell" | "pwsh" if is_encoded(args) => found.add(sign("hidden_code", High, HIDDEN), text),
        "certutil" if joined.to_ascii_lowercase().contains("urlcache") => {
            found.add(sign("fetched_code", High, FETCHED), text);
        }
        "mshta" | "regsvr32" if joined.contains("http") => found.add(sign("fetched_code", High, FETCHED), text),
        _ if LANGUAGES.contains(&program) => one_liner(&joined, text, found),
        _ => {}
    }
    let Some(feeds) = feeds else { return };
    let words: Vec<&str> = feeds.words.iter().map(String::as_str).collect();
    let Some((source, source_args)) = unwrapped(&words) else { return };
    let runs = is_shell(program) || LANGUAGES.contains(&program) && !args.iter().any(|word| word.starts_with("-m"));
    let runs_input = runs && args.iter().all(|word| word.starts_with('-') && *word != "-c");
    match source.as_str() {
        "curl" | "wget" | "fetch" if runs_input => found.add(sign("fetched_code", High, FETCHED), text),
        "base64" | "xxd" | "openssl" | "rev" | "gunzip" | "zcat" if runs_input && decodes(source_args) => {
            found.add(sign("hidden_code", High, HIDDEN), text);
        }
        "env" | "printenv" | "set" if sends(program) => found.add(sign("carried_out", High, CARRIED), text),
        "cat" | "tar" | "gzip" | "base64" if matches!(program, "nc" | "ncat" | "netcat") => {
            found.add(sign("carried_out", High, CARRIED), text);
        }
        _ => {}
    }
}

fn clustered(args: &[&str]) -> bool {
    args.iter().any(|word| {
        let letters = word.strip_prefix('-').unwrap_or_default();
        letters.len() > 1 && letters.contains('e') && letters.bytes().all(|byte| byte.is_ascii_alphabetic())
    })
}

fn runs_shell(command: &Simple) -> bool {
    let words: Vec<&str> = command.words.iter().map(String::as_str).collect();
    unwrapped(&words).is_some_and(|(program, args)| is_shell(&program) && args.iter().all(|word| word.starts_with('-')))
}

fn is_encoded(args: &[&str]) -> bool {
    args.iter().any(|word| {
        let word = word.to_ascii_lowercase();
        // PowerShell takes any beginning of the option's name.
        matches!(word.as_str(), "-e" | "-ec") || word.len() >= 3 && "-encodedcommand".starts_with(&word)
    })
}

fn one_liner(joined: &str, text: &str, found: &mut Found) {
    let lower = joined.to_ascii_lowercase();
    let has = |words: &[&str]| words.iter().any(|word| lower.contains(word));
    if has(&CONNECTS) && has(&HANDS_OVER) && has(&["connect", "fsockopen", "inet/tcp"]) {
        found.add(sign("reverse_shell", Critical, SHELL_OUT), text);
    }
}

fn decodes(args: &[&str]) -> bool {
    args.is_empty()
        || args.iter().any(|word| matches!(*word, "-d" | "-D" | "--decode" | "-r" | "-c" | "enc" | "base64"))
}

fn sends(program: &str) -> bool {
    matches!(program, "curl" | "wget" | "nc" | "ncat" | "netcat" | "socat" | "telnet")
}
