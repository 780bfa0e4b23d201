//! Commands that destroy, hand the machine over or cover tracks.
//!
//! Each simple command of a line is looked at by its program and its words; wrappers (`sudo`, `env`, `xargs`, ...) are
//! looked through, and what `bash -c`, `eval`, `ssh` and `$(...)` run is a command line of its own.

use weir_config::vocab::Severity;
use weir_config::vocab::Severity::{Critical, High, Low, Medium};

use super::shell::{Simple, is_shell, split};
use super::{DEPTH_MAX, Found, Sign, path, remote, url};

pub(super) const fn sign(rule: &'static str, severity: Severity, description: &'static str) -> Sign {
    Sign { finding_type: "dangerous_command", rule, severity, confidence: 0.9, description }
}

/// Programs whose first word that is no option is the real program.
const WRAPPERS: [&str; 15] = [
    "sudo", "doas", "env", "nohup", "time", "nice", "ionice", "timeout", "xargs", "exec", "command", "busybox",
    "setsid", "stdbuf", "watch",
];
/// Programs whose reading of a file shows it or sends it.
const READERS: [&str; 24] = [
    "cat", "less", "more", "head", "tail", "base64", "xxd", "od", "strings", "curl", "wget", "scp", "rsync", "nc",
    "tar", "zip", "cp", "mv", "dd", "tac", "nl", "gpg", "openssl", "type",
];
/// Programs whose words name files that they change.
const WRITERS: [&str; 6] = ["tee", "vi", "vim", "nano", "ln", "install"];
/// Programs whose words are text or patterns, whatever they look like.
const TALKERS: [&str; 12] =
    ["echo", "printf", "git", "grep", "rg", "egrep", "fgrep", "ag", "man", "touch", "ls", "test"];

/// Looks at a command line.
pub(super) fn line(text: &str, found: &mut Found) {
    nested(text, DEPTH_MAX, found);
}

/// Looks at a command that comes as its words.
pub(super) fn argv(words: &[&str], found: &mut Found) {
    if let [program, flag, text, ..] = words
        && is_shell(program)
        && is_command_flag(flag)
    {
        return line(found.bounds.take(text), found);
    }
    let words = found.bounds.take_words(words);
    let command = Simple { words: words.iter().map(|word| (*word).to_owned()).collect(), ..Simple::default() };
    let text = words.join(" ");
    remote::connection(&text, found);
    simple(&command, None, &text, DEPTH_MAX, found);
}

fn nested(text: &str, depth: u8, found: &mut Found) {
    if text.is_empty() || found.bounds.clock_says_stop() {
        return;
    }
    let Some(deeper) = depth.checked_sub(1) else { return found.bounds.cut() };
    remote::whole_line(text, found);
    let line = split(text);
    if line.commands.iter().any(|command| !command.words.is_empty()) {
        remote::connection(text, found);
    }
    let mut former: Option<&Simple> = None;
    for command in &line.commands {
        simple(command, former.filter(|former| former.piped), text, deeper, found);
        former = Some(command);
    }
    for inner in &line.nested {
        nested(inner, deeper, found);
    }
}

/// One command: `feeds` is the one whose output it reads.
fn simple(command: &Simple, feeds: Option<&Simple>, text: &str, depth: u8, found: &mut Found) {
    if !found.bounds.next_command() {
        return;
    }
    for file in &command.writes_to {
        written(file, text, found);
    }
    for file in &command.reads_from {
        path::access(file, false, found);
    }
    let words: Vec<&str> = command.words.iter().map(String::as_str).collect();
    let Some((program, args)) = unwrapped(&words) else { return };
    let program = program.as_str();
    if is_shell(program) || matches!(program, "eval" | "su" | "ssh") {
        runs(program, args, text, depth, found);
    }
    remote::fetched(program, args, feeds, text, found);
    destroys(program, args, text, found);
    weakens(program, args, text, found);
    files(program, args, found);
}

/// The program behind wrappers and assignments, by its bare name, and its arguments. A wrapper with nothing behind it is
/// the program.
pub(super) fn unwrapped<'a>(words: &'a [&'a str]) -> Option<(String, &'a [&'a str])> {
    /// Options of wrappers whose value is the next word.
    const WITH_VALUE: [&str; 8] = ["-u", "-g", "-U", "-n", "-I", "-P", "-L", "-k"];
    let mut rest = words;
    let mut wrapped = false;
    loop {
        let (first, behind) = rest.split_first()?;
        let name = first.rsplit(['/', '\\']).next().unwrap_or_default().to_ascii_lowercase();
        let of_wrapper = wrapped && (first.starts_with('-') || first.starts_with(|c: char| c.is_ascii_digit()));
        let skip = is_assignment(first) || WRAPPERS.contains(&name.as_str()) || of_wrapper;
        if !skip || behind.is_empty() {
            return Some((name.trim_end_matches(".exe").to_owned(), behind));
        }
        wrapped |= !is_assignment(first);
        let values = usize::from(of_wrapper && WITH_VALUE.contains(first));
        rest = behind.get(values..).unwrap_or_default();
    }
}

fn is_assignment(word: &str) -> bool {
    let Some((name, _)) = word.split_once('=') else { return false };
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

fn is_command_flag(flag: &str) -> bool {
    flag.len() >= 2 && flag.starts_with('-') && !flag.starts_with("--") && flag.ends_with('c')
}

/// `bash -c TEXT`, `eval TEXT`, `su -c TEXT`, `ssh HOST TEXT`.
fn runs(program: &str, args: &[&str], text: &str, depth: u8, found: &mut Found) {
    match program {
        "eval" => nested(&args.join(" "), depth, found),
        "ssh" => {
            let behind_host = args.iter().position(|word| !word.starts_with('-')).map(|at| at + 1);
            let rest = behind_host.and_then(|at| args.get(at..)).unwrap_or_default();
            if !rest.is_empty() {
                nested(&rest.join(" "), depth, found);
            }
        }
        _ => {
            let at = args.iter().position(|word| is_command_flag(word));
            if let Some(inner) = at.and_then(|at| args.get(at + 1)) {
                nested(inner, depth, found);
            }
            remote::interactive(args, text, found);
        }
    }
}

fn flags(args: &[&str]) -> String {
    args.iter().filter(|word| word.starts_with('-') && !word.starts_with("--")).flat_map(|word| word.chars()).collect()
}

fn operands<'a>(args: &'a [&'a str]) -> impl Iterator<Item = &'a str> {
    args.iter().copied().filter(|word| !word.starts_with('-'))
}

/// Folders whose loss is the loss of the machine or of somebody's work.
fn is_vital(target: &str) -> bool {
    const FOLDERS: [&str; 18] = [
        "/", "/*", "/bin", "/boot", "/dev", "/etc", "/home", "/lib", "/lib64", "/opt", "/root", "/sbin", "/srv",
        "/sys", "/usr", "/var", "/var/lib", "/users",
    ];
    const HOMES: [&str; 9] = ["~", "~/", "~/*", "$home", "$home/", "$home/*", "${home}", "${home}/", "${home}/*"];
    let target = target.to_ascii_lowercase();
    let trimmed = target.trim_end_matches("/*").trim_end_matches('/');
    let is_drive = matches!(target.as_bytes(), [b'a'..=b'z', b':'] | [b'a'..=b'z', b':', b'\\' | b'/', ..])
        && target.trim_end_matches(['*', '.', '\\', '/']).len() == 2;
    target == "/" || target == "/*" || FOLDERS.contains(&trimmed) || HOMES.contains(&target.as_str()) || is_drive
}

fn is_disk(path: &str) -> bool {
    const DISKS: [&str; 8] =
        ["/dev/sd", "/dev/hd", "/dev/vd", "/dev/xvd", "/dev/nvme", "/dev/mmcblk", "/dev/disk", "\\\\.\\physicaldrive"];
    let path = path.to_ascii_lowercase();
    DISKS.iter().any(|disk| path.starts_with(disk))
}

/// A file that a command's output goes to.
fn written(file: &str, text: &str, found: &mut Found) {
    if is_disk(file) {
        found.add(sign("disk_overwrite", Critical, "Overwrites a disk."), text);
    } else {
        path::access(file, true, found);
    }
}

fn destroys(program: &str, args: &[&str], text: &str, found: &mut Found) {
    let flags = flags(args);
    let recursive = flags.contains(['r', 'R']) || args.contains(&"--recursive");
    let vital = operands(args).any(is_vital);
    match program {
        "rm" if args.contains(&"--no-preserve-root") || recursive && vital => {
            found.add(
                sign("delete_vital", Critical, "Deletes the file system, a system folder or a home folder."),
                text,
            );
        }
        "rd" | "rmdir" | "del" | "erase" | "remove-item" | "ri" if vital => {
            found.add(
                sign("delete_vital", Critical, "Deletes the file system, a system folder or a home folder."),
                text,
            );
        }
        "find" if vital && (args.contains(&"-delete") || args.windows(2).any(|pair| pair == ["-exec", "rm"])) => {
            found.add(sign("delete_found", High, "Deletes what it finds in a system or home folder."), text);
        }
        "dd" if args.iter().any(|word| word.strip_prefix("of=").is_some_and(is_disk)) => {
            found.add(sign("disk_overwrite", Critical, "Overwrites a disk."), text);
        }
        "shred" | "wipefs" | "blkdiscard" if operands(args).any(is_disk) => {
            found.add(sign("disk_overwrite", Critical, "Overwrites a disk."), text);
        }
        "format" if vital => found.add(sign("disk_overwrite", Critical, "Overwrites a disk."), text),
        _ if program.starts_with("mkfs") && operands(args).any(is_disk) => {
            found.add(sign("disk_overwrite", Critical, "Overwrites a disk."), text);
        }
        "chmod" | "chown" | "chgrp" if recursive && vital => {
            let said = "Changes rights or owners of a whole system or home folder.";
            found.add(sign("rights_vital", High, said), text);
        }
        "vssadmin" | "wbadmin" | "wmic" if args.iter().any(|word| word.eq_ignore_ascii_case("delete")) => {
            found.add(sign("backups_deleted", Critical, "Deletes the copies a machine is restored from."), text);
        }
        "shutdown" | "reboot" | "halt" | "poweroff" => {
            found.add(sign("power", Medium, "Stops or restarts the machine."), text);
        }
        "init" | "telinit" if matches!(args, ["0" | "6"]) => {
            found.add(sign("power", Medium, "Stops or restarts the machine."), text);
        }
        "kill" | "killall5" if args.len() > 1 && args.last() == Some(&"-1") => {
            found.add(sign("kill_all", High, "Ends every process it can."), text);
        }
        "crontab" if flags.contains('r') => {
            found.add(sign("crontab_removed", Medium, "Removes all scheduled jobs."), text)
        }
        _ => {}
    }
}

fn weakens(program: &str, args: &[&str], text: &str, found: &mut Found) {
    let flags = flags(args);
    match program {
        "chmod" if operands(args).next().is_some_and(sets_uid) => {
            found.add(sign("setuid", High, "Makes a program run with its owner's rights."), text);
        }
        "setcap" => found.add(sign("setuid", High, "Gives a program rights of the administrator."), text),
        "setenforce" if args.first().is_some_and(|word| *word == "0" || word.eq_ignore_ascii_case("permissive")) => {
            found.add(sign("protection_off", High, "Switches a protection of the machine off."), text);
        }
        "ufw" if args.first() == Some(&"disable") => {
            found.add(sign("protection_off", High, "Switches a protection of the machine off."), text);
        }
        "iptables" | "ip6tables" | "nft" if flags.contains('F') || args.starts_with(&["flush", "ruleset"]) => {
            found.add(sign("protection_off", High, "Switches a protection of the machine off."), text);
        }
        "systemctl" | "service" if stops_guard(args) => {
            found.add(sign("protection_off", High, "Switches a protection of the machine off."), text);
        }
        "set-mppreference" => {
            found.add(sign("protection_off", High, "Switches a protection of the machine off."), text)
        }
        "history" if flags.contains('c') => found.add(sign("tracks", Medium, "Removes traces of what was done."), text),
        "wevtutil" if args.first().is_some_and(|word| word.eq_ignore_ascii_case("cl")) => {
            found.add(sign("tracks", High, "Removes traces of what was done."), text);
        }
        "useradd" | "adduser" | "usermod" if is_root_account(args) => {
            found.add(sign("account_with_root", High, "Makes an account with the administrator's rights."), text);
        }
        "insmod" | "modprobe" => found.add(sign("kernel_module", Medium, "Loads code into the kernel."), text),
        "nsenter" => found.add(sign("container_escape", High, "Leaves a container or takes the host into it."), text),
        "docker" | "podman" | "nerdctl" if takes_host(args) => {
            found.add(sign("container_escape", High, "Leaves a container or takes the host into it."), text);
        }
        "nmap" | "masscan" | "hydra" | "sqlmap" | "msfconsole" | "msfvenom" | "john" | "hashcat" => {
            found.add(sign("attack_tool", Medium, "Runs a tool made for attacks."), text);
        }
        "mimikatz" => found.add(sign("attack_tool", Critical, "Runs a tool made for attacks."), text),
        "nc" | "ncat" | "netcat" if flags.contains('l') => {
            found.add(sign("listener", Low, "Waits for connections from outside."), text);
        }
        _ => {}
    }
}

/// `u+s`, `+s`, or an octal mode with the set-user-id or set-group-id bit.
fn sets_uid(mode: &str) -> bool {
    let octal = mode.len() == 4 && mode.bytes().all(|byte| matches!(byte, b'0'..=b'7'));
    octal && matches!(mode.as_bytes().first(), Some(b'2' | b'4' | b'6')) || mode.contains("+s")
}

fn stops_guard(args: &[&str]) -> bool {
    const GUARDS: [&str; 9] =
        ["auditd", "firewalld", "ufw", "apparmor", "fail2ban", "falcon-sensor", "osqueryd", "clamav-daemon", "rsyslog"];
    let stops = args.iter().any(|word| matches!(*word, "stop" | "disable" | "mask"));
    let guards = |word: &&str| GUARDS.contains(&word.trim_end_matches(".service"));
    stops && args.iter().any(guards)
}

fn is_root_account(args: &[&str]) -> bool {
    let pair = |pair: &[&str]| {
        matches!(pair, ["-u" | "--uid", "0"])
            || matches!(pair, ["-g" | "-G" | "-aG" | "--groups", groups] if groups.split(',').any(|g| matches!(g, "sudo" | "wheel" | "root")))
    };
    args.windows(2).any(pair)
}

fn takes_host(args: &[&str]) -> bool {
    let mounts_root = |word: &&str| word.starts_with("/:/") || word.contains("=/:/") || word.contains("docker.sock:");
    args.contains(&"run")
        && (args.contains(&"--privileged") || args.contains(&"--pid=host") || args.iter().any(mounts_root))
}

/// Addresses and files among the words.
fn files(program: &str, args: &[&str], found: &mut Found) {
    if TALKERS.contains(&program) {
        return;
    }
    let reads = READERS.contains(&program);
    let writes = WRITERS.contains(&program);
    for word in args {
        let word = word.rsplit_once('=').map_or(*word, |(_, value)| value).trim_start_matches('@');
        if word.contains("://") {
            url::address(word, found);
        } else if (reads || writes) && path::looks_like_path(word) {
            path::access(word, writes, found);
        }
    }
}
