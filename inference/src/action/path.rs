//! Files that hold credentials, accounts or other processes' secrets.
//!
//! A path is normalised first: `~` and `$HOME` are a home folder, `.` and `..` are resolved, doubled separators and
//! percent-encoding are undone, so that `../../../etc//shadow` is what it is. Templates (`.env.example`) and public keys
//! are not flagged.

use weir_config::vocab::Severity;

use super::{Found, Sign};

/// How the name of a rule's file is compared.
#[derive(Clone, Copy)]
enum Form {
    /// The whole path.
    Is(&'static str),
    /// The path is, or ends with, these segments.
    Ends(&'static str),
    /// The path starts with, or has inside, these segments.
    Below(&'static str),
}

struct Rule {
    form: Form,
    rule: &'static str,
    severity: Severity,
    description: &'static str,
}

const fn rule(form: Form, rule: &'static str, severity: Severity, description: &'static str) -> Rule {
    Rule { form, rule, severity, description }
}

use Form::{Below, Ends, Is};
use Severity::{Critical, High, Medium};

const ACCOUNTS: &str = "Touches the system's accounts or their passwords.";
const KEYS: &str = "Touches private keys.";
const CLOUD: &str = "Touches credentials of a cloud or cluster.";
const TOKENS: &str = "Touches stored logins or tokens.";
const PROCESS: &str = "Touches the memory or environment of processes.";
const BROWSER: &str = "Touches passwords or cookies of a browser or wallet.";
const HISTORY: &str = "Touches the history of a shell or database client.";
const DOTENV: &str = "Touches a file of environment secrets.";
const DAEMON: &str = "Touches a control socket that amounts to root.";
const START: &str = "Changes what runs at login, by schedule or with other rights.";

const RULES: &[Rule] = &[
    rule(Is("/etc/shadow"), "etc_shadow", Critical, ACCOUNTS),
    rule(Is("/etc/gshadow"), "etc_shadow", Critical, ACCOUNTS),
    rule(Is("/etc/shadow-"), "etc_shadow", Critical, ACCOUNTS),
    rule(Is("/etc/sudoers"), "etc_sudoers", High, ACCOUNTS),
    rule(Below("/etc/sudoers.d"), "etc_sudoers", High, ACCOUNTS),
    rule(Is("/etc/passwd"), "etc_passwd", Medium, ACCOUNTS),
    rule(Is("/etc/master.passwd"), "etc_shadow", Critical, ACCOUNTS),
    rule(Below("/etc/ssl/private"), "private_key", High, KEYS),
    rule(Ends(".ssh/id_rsa"), "ssh_key", Critical, KEYS),
    rule(Ends(".ssh/id_ed25519"), "ssh_key", Critical, KEYS),
    rule(Ends(".ssh/id_ecdsa"), "ssh_key", Critical, KEYS),
    rule(Ends(".ssh/id_dsa"), "ssh_key", Critical, KEYS),
    rule(Ends(".ssh/identity"), "ssh_key", Critical, KEYS),
    rule(Ends(".ssh/authorized_keys"), "ssh_authorized_keys", High, KEYS),
    rule(Ends("id_rsa"), "ssh_key", High, KEYS),
    rule(Ends("id_ed25519"), "ssh_key", High, KEYS),
    rule(Below(".gnupg"), "gnupg", High, KEYS),
    rule(Ends(".aws/credentials"), "cloud_credentials", Critical, CLOUD),
    rule(Below(".aws/sso/cache"), "cloud_credentials", High, CLOUD),
    rule(Ends("application_default_credentials.json"), "cloud_credentials", Critical, CLOUD),
    rule(Ends(".config/gcloud/credentials.db"), "cloud_credentials", Critical, CLOUD),
    rule(Ends(".config/gcloud/access_tokens.db"), "cloud_credentials", Critical, CLOUD),
    rule(Ends(".azure/accesstokens.json"), "cloud_credentials", Critical, CLOUD),
    rule(Ends(".azure/msal_token_cache.json"), "cloud_credentials", Critical, CLOUD),
    rule(Ends(".kube/config"), "cluster_credentials", High, CLOUD),
    rule(Ends("kubernetes/admin.conf"), "cluster_credentials", Critical, CLOUD),
    rule(Below("/var/run/secrets"), "cluster_credentials", High, CLOUD),
    rule(Below("/run/secrets"), "cluster_credentials", High, CLOUD),
    rule(Ends(".docker/config.json"), "stored_login", High, TOKENS),
    rule(Ends(".netrc"), "stored_login", High, TOKENS),
    rule(Ends(".git-credentials"), "stored_login", High, TOKENS),
    rule(Ends(".pgpass"), "stored_login", High, TOKENS),
    rule(Ends(".my.cnf"), "stored_login", High, TOKENS),
    rule(Ends(".pypirc"), "stored_login", High, TOKENS),
    rule(Is("~/.npmrc"), "stored_login", Medium, TOKENS),
    rule(Ends(".vault-token"), "stored_login", High, TOKENS),
    rule(Ends(".config/gh/hosts.yml"), "stored_login", High, TOKENS),
    rule(Ends(".htpasswd"), "stored_login", High, TOKENS),
    rule(Ends("login data"), "browser_store", Critical, BROWSER),
    rule(Ends("logins.json"), "browser_store", High, BROWSER),
    rule(Ends("key4.db"), "browser_store", High, BROWSER),
    rule(Ends("wallet.dat"), "browser_store", High, BROWSER),
    rule(Below("library/keychains"), "browser_store", High, BROWSER),
    rule(Ends(".bash_history"), "shell_history", Medium, HISTORY),
    rule(Ends(".zsh_history"), "shell_history", Medium, HISTORY),
    rule(Ends(".psql_history"), "shell_history", Medium, HISTORY),
    rule(Ends(".mysql_history"), "shell_history", Medium, HISTORY),
    rule(Is("/proc/kcore"), "process_memory", Critical, PROCESS),
    rule(Is("/dev/mem"), "process_memory", Critical, PROCESS),
    rule(Is("/dev/kmem"), "process_memory", Critical, PROCESS),
    rule(Ends("docker.sock"), "control_socket", High, DAEMON),
    rule(Ends("containerd.sock"), "control_socket", High, DAEMON),
    rule(Ends("windows/system32/config/sam"), "windows_accounts", Critical, ACCOUNTS),
    rule(Ends("windows/system32/config/system"), "windows_accounts", High, ACCOUNTS),
    rule(Ends("ntds.dit"), "windows_accounts", Critical, ACCOUNTS),
];

/// Places where writing means running something later, or as somebody else.
const STARTS: &[Form] = &[
    Below("/etc/cron.d"),
    Below("/etc/cron.daily"),
    Below("/etc/cron.hourly"),
    Is("/etc/crontab"),
    Below("/var/spool/cron"),
    Below("/etc/systemd/system"),
    Below("/etc/init.d"),
    Is("/etc/ld.so.preload"),
    Below("/etc/profile.d"),
    Ends(".bashrc"),
    Ends(".zshrc"),
    Ends(".profile"),
    Ends(".bash_profile"),
    Below("launchagents"),
    Below("launchdaemons"),
];

/// Ends of names that hold a private key or a store of them.
const KEY_ENDS: [&str; 7] = [".key", ".p12", ".pfx", ".kdbx", ".jks", ".keystore", ".ppk"];
/// Names of environment files that hold no secrets.
const TEMPLATES: [&str; 7] = [".example", ".sample", ".template", ".dist", ".test", ".defaults", ".schema"];

/// Looks at a file that was read, or with `writes` changed.
pub(super) fn access(path: &str, writes: bool, found: &mut Found) {
    let normal = normalise(path);
    if normal.is_empty() {
        return;
    }
    let sign = |rule, severity, description| Sign {
        finding_type: "sensitive_file_access",
        rule,
        severity,
        confidence: 0.9,
        description,
    };
    if let Some(rule) = RULES.iter().find(|rule| rule.form.matches(&normal)) {
        // Anybody who can write an account file owns the machine.
        let worse = writes && rule.description == ACCOUNTS;
        found.add(sign(rule.rule, if worse { Critical } else { rule.severity }, rule.description), path);
    } else if is_environ(&normal) {
        found.add(sign("process_memory", High, PROCESS), path);
    } else if is_dotenv(&normal) {
        found.add(sign("dotenv", Medium, DOTENV), path);
    } else if is_key(&normal) {
        found.add(sign("private_key", Medium, KEYS), path);
    } else if writes && STARTS.iter().any(|form| form.matches(&normal)) {
        found.add(sign("autostart", High, START), path);
    }
}

/// Whether `word` of a command line is a path rather than a word.
pub(super) fn looks_like_path(word: &str) -> bool {
    word.contains('/') || word.starts_with(['~', '.']) || word.contains(":\\") || is_key(&word.to_ascii_lowercase())
}

impl Form {
    fn matches(self, path: &str) -> bool {
        match self {
            Is(whole) => path == whole,
            Ends(end) => path.strip_suffix(end).is_some_and(|before| before.is_empty() || before.ends_with('/')),
            Below(folder) => path.match_indices(folder).any(|(at, _)| {
                let starts = at == 0 || path[..at].ends_with('/') && !folder.starts_with('/');
                let rest = &path[at + folder.len()..];
                starts && (rest.is_empty() || rest.starts_with('/'))
            }),
        }
    }
}

/// Lower case, `/` between segments, `~` for a home folder, nothing left of `.`, `..`, `//` and percent-encoding.
fn normalise(path: &str) -> String {
    let path = path.trim().trim_matches(['"', '\'']);
    let path = path.strip_prefix("file://").unwrap_or(path);
    let path = percent_decoded(path).replace('\\', "/").to_ascii_lowercase();
    let path = ["$home/", "${home}/"]
        .iter()
        .find_map(|home| path.strip_prefix(home))
        .map_or(path.clone(), |rest| format!("~/{rest}"));
    let absolute = path.starts_with('/');
    let mut segments: Vec<&str> = Vec::new();
    let mut climbed = false;
    for segment in path.split('/') {
        match segment {
            "" | "." => {}
            ".." => climbed |= segments.pop().is_none(),
            segment => segments.push(segment),
        }
    }
    // A path that climbs out of the working folder may arrive at the root.
    let root = if absolute || climbed && segments.first().is_some_and(|first| *first == "etc") { "/" } else { "" };
    format!("{root}{}", segments.join("/"))
}

fn percent_decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, behind)) = rest.split_first() {
        let pair = if *first == b'%' { behind.get(..2) } else { None };
        let byte = pair.and_then(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok());
        match byte {
            Some(byte) => {
                bytes.push(byte);
                rest = behind.get(2..).unwrap_or_default();
            }
            None => {
                bytes.push(*first);
                rest = behind;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or_default()
}

/// `/proc/<pid>/environ`, `mem` and the like.
fn is_environ(path: &str) -> bool {
    path.starts_with("/proc/") && matches!(name(path), "environ" | "mem" | "maps" | "auxv")
}

fn is_dotenv(path: &str) -> bool {
    let name = name(path);
    let is_one = name == ".env" || name.starts_with(".env.") || name == ".envrc";
    is_one && !TEMPLATES.iter().any(|end| name.ends_with(end))
}

fn is_key(path: &str) -> bool {
    let name = name(path);
    let stem_says_private = name.contains("priv") || name.contains("key");
    KEY_ENDS.iter().any(|end| name.len() > end.len() && name.ends_with(end))
        || name.ends_with(".pem") && stem_says_private
}
