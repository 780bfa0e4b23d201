//! Which texts of an action are commands, addresses or files.
//!
//! Arguments are JSON most of the time. Their names say what they are (`command`, `url`, `path`); where no name does, the
//! action's kind decides. What a tool writes into a file or sends as a text is content and no command.

use serde_json::Value;

use super::{Action, ActionKind, Found, command, path, pruned, url};

/// Names of arguments that hold a command line or its parts.
const COMMANDS: [&str; 10] =
    ["command", "cmd", "commands", "script", "shell", "bash", "shell_command", "command_line", "argv", "exec"];
/// Names of arguments that hold an address.
const ADDRESSES: [&str; 9] = ["url", "uri", "urls", "link", "href", "endpoint", "address", "target_url", "webhook"];
/// Names of arguments that hold a file's path.
const FILES: [&str; 14] = [
    "path",
    "paths",
    "file",
    "files",
    "filename",
    "file_name",
    "file_path",
    "filepath",
    "target_file",
    "source",
    "destination",
    "src",
    "dst",
    "directory",
];
/// Words in the name of a tool that runs commands.
const RUNNERS: [&str; 8] = ["bash", "shell", "terminal", "exec", "run_command", "command", "powershell", "subprocess"];
/// JSON inside arguments is followed this deep.
const JSON_DEPTH_MAX: u8 = 8;

/// What a text is taken for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    Command,
    Address,
    File,
    /// Not known: an address or a path when it looks like one.
    Plain,
}

/// Looks at all texts of `action`.
pub(super) fn look(action: &Action<'_>, found: &mut Found) {
    found.location = "action.name";
    let role = match action.kind {
        ActionKind::Command => Role::Command,
        ActionKind::Web => Role::Address,
        ActionKind::File => Role::File,
        ActionKind::Tool => Role::Plain,
    };
    text(action.name, role, action, found);
    let Some(arguments) = action.arguments else { return };
    found.location = "action.arguments";
    let role = if role == Role::Plain && is_runner(action.name) { Role::Command } else { role };
    match pruned::read(arguments, &mut found.bounds) {
        Some(value) => json(&value, role, action, JSON_DEPTH_MAX, found),
        None => {
            text(arguments, role, action, found);
            if action.kind == ActionKind::Command {
                text(&format!("{} {arguments}", action.name), role, action, found);
            }
        }
    }
}

fn is_runner(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    RUNNERS.iter().any(|word| name.contains(word))
}

fn json(value: &Value, role: Role, action: &Action<'_>, depth: u8, found: &mut Found) {
    let Some(deeper) = depth.checked_sub(1) else { return found.bounds.cut() };
    match value {
        Value::String(value) => text(value, role, action, found),
        Value::Array(items) => {
            let words: Option<Vec<&str>> = items.iter().map(Value::as_str).collect();
            match words {
                Some(words) if role == Role::Command => argv(action, &words, found),
                _ => items.iter().for_each(|item| json(item, role, action, deeper, found)),
            }
        }
        Value::Object(fields) => {
            let words = |names: &[&str]| names.iter().find_map(|name| fields.get(*name));
            let program = words(&["command", "cmd", "program", "executable"]).and_then(Value::as_str);
            let given = words(&["args", "arguments", "argv"]).and_then(Value::as_array);
            if let Some((program, given)) = program.zip(given) {
                let words: Vec<&str> = std::iter::once(program).chain(given.iter().filter_map(Value::as_str)).collect();
                command::argv(&words, found);
            }
            for (name, value) in fields {
                json(value, named(name, role, action.kind), action, deeper, found);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// What an argument of this name is, inside something taken for `role`.
fn named(name: &str, role: Role, kind: ActionKind) -> Role {
    let name = name.to_ascii_lowercase();
    let is = |names: &[&str]| names.contains(&name.as_str());
    if is(&COMMANDS) {
        Role::Command
    } else if is(&ADDRESSES) {
        Role::Address
    } else if is(&FILES) {
        Role::File
    } else if kind == ActionKind::Command && is(&["args", "arguments", "input", "code"]) {
        role
    } else {
        Role::Plain
    }
}

/// A list of words: a whole command, or what follows the program that the action's name is.
fn argv(action: &Action<'_>, words: &[&str], found: &mut Found) {
    command::argv(words, found);
    if action.kind == ActionKind::Command {
        let words: Vec<&str> = std::iter::once(action.name).chain(words.iter().copied()).collect();
        command::argv(&words, found);
    }
}

fn text(text: &str, role: Role, action: &Action<'_>, found: &mut Found) {
    match role {
        Role::Command => command::line(found.bounds.take(text), found),
        Role::Address => url::address(found.bounds.take(text.trim()), found),
        Role::File => path::access(found.bounds.take(text.trim()), action.writes, found),
        Role::Plain => {
            let text = text.trim();
            if text.contains("://") && !text.contains(char::is_whitespace) {
                url::address(found.bounds.take(text), found);
            } else if (text.starts_with(['/', '~']) || text.contains(":\\")) && !text.contains(char::is_whitespace) {
                path::access(found.bounds.take(text), action.writes, found);
            }
        }
    }
}
