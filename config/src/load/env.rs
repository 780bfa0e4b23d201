//! Environment variables and the two command-line options as layers.
//!
//! A variable that is set to nothing counts as unset, as compose files and charts write it. Reads no environment
//! itself: the caller hands the variables in.

use std::collections::BTreeMap;

use super::check::check;
use super::layers::{Layers, Origin, advise, mend};
use super::suggest::nearest;
use crate::catalogue::{self, EnvRule, Kind, Setting};
use crate::error::{Place, Violation};
use crate::yaml::Node;

/// Variables that name files instead of setting a value.
pub(super) const CONFIG: &str = "SERVICE_CONFIG";
pub(super) const RUNTIME_CONFIG: &str = "SERVICE_RUNTIME_CONFIG";

/// The filter that `tracing` reads.
const RUST_LOG: &str = "RUST_LOG";

/// The value of a variable, unless it is empty.
pub(super) fn variable<'a>(env: &'a BTreeMap<String, String>, name: &str) -> Option<&'a str> {
    env.get(name).map(|value| value.trim()).filter(|value| !value.is_empty())
}

/// Lays the environment over `layers`.
pub(super) fn read(env: &BTreeMap<String, String>, layers: &mut Layers) {
    for setting in catalogue::settings() {
        let Some((name, rule)) = setting.env else { continue };
        if let Some(text) = variable(env, name) {
            let node = node(setting, rule, text);
            if rule == EnvRule::TruthyOrFalse && !is_word_for_bool(text) {
                // Not the value: it may be a credential in the wrong variable.
                layers.alarms.push(format!(
                    "{name}: the value is none of 1, true, yes, 0, false, no, off and counts as false, so `{}` is off; \
                     set it to `true` or `false`",
                    setting.path
                ));
            }
            one(setting, &node, Origin::Env, Place::Variable(name), rule, layers);
        }
    }
    warn_about_near_misses(env, layers);
    warn_about_log_filter(env, layers);
}

/// Lays a command-line option over `layers`.
pub(super) fn option(path: &str, option: &'static str, value: Option<&str>, layers: &mut Layers) {
    if let (Some(setting), Some(text)) = (catalogue::by_path(path), value) {
        one(setting, &Node::Text(text.to_owned()), Origin::Cli, Place::Option(option), EnvRule::Plain, layers);
    }
}

fn one(setting: &'static Setting, node: &Node, origin: Origin, place: Place, rule: EnvRule, layers: &mut Layers) {
    let mismatches = match check(setting, node) {
        Ok(value) => return layers.put(setting, value, origin, place, None),
        Err(mismatches) => mismatches,
    };
    let undo = if origin == Origin::Cli { "drop the option" } else { "unset the variable" };
    for mismatch in advise(setting, mismatches, &mend(setting, undo)) {
        let path = Some(format!("{}{}", setting.path.trim_start_matches("environment."), mismatch.below));
        let advice = mismatch.advice.unwrap_or_else(|| undo.to_owned());
        let place = place.clone();
        let mut violation = Violation { place, path, problem: mismatch.problem, accepted: mismatch.accepted, advice };
        if rule == EnvRule::Lenient {
            violation.advice = "ignored".to_owned();
            layers.warnings.push(violation.to_string());
        } else {
            layers.violations.push(violation);
        }
    }
}

/// What a variable's text means for a setting of this kind. Text that means nothing stays text and fails the check.
fn node(setting: &Setting, rule: EnvRule, text: &str) -> Node {
    let is = |words: [&str; 3]| words.iter().any(|word| word.eq_ignore_ascii_case(text));
    let digits = !text.is_empty() && text.strip_prefix('-').unwrap_or(text).bytes().all(|byte| byte.is_ascii_digit());
    let read = match (rule, &setting.kind) {
        (EnvRule::TruthyOrFalse, _) => Some(Node::Bool(is(["1", "true", "yes"]))),
        (EnvRule::FalsyOrTrue, _) => Some(Node::Bool(!is(["0", "false", "no"]))),
        (_, Kind::Bool) if is(["1", "true", "yes"]) => Some(Node::Bool(true)),
        (_, Kind::Bool) if is(["0", "false", "no"]) => Some(Node::Bool(false)),
        (_, Kind::Int { .. }) if digits => text.parse().ok().map(Node::Int),
        (_, Kind::Float { .. }) => text.parse().ok().map(Node::Float),
        _ => None,
    };
    read.unwrap_or_else(|| Node::Text(text.to_owned()))
}

/// Whether somebody who wrote this meant true or false for certain.
fn is_word_for_bool(text: &str) -> bool {
    ["1", "true", "yes", "0", "false", "no", "off"].iter().any(|word| word.eq_ignore_ascii_case(text))
}

/// Warns about a word in RUST_LOG that is no level: it is taken for a module, and silences everything else.
fn warn_about_log_filter(env: &BTreeMap<String, String>, layers: &mut Layers) {
    const LEVELS: [&str; 6] = ["error", "warn", "info", "debug", "trace", "off"];
    let filter = variable(env, RUST_LOG).unwrap_or_default();
    for word in filter.split(',').map(str::trim).filter(|word| !word.is_empty() && !word.contains(['=', '['])) {
        let is_level =
            LEVELS.iter().any(|level| level.eq_ignore_ascii_case(word)) || word.parse::<u8>().is_ok_and(|n| n <= 5);
        if is_level || word.starts_with("weir") {
            continue;
        }
        let meant = nearest(word, LEVELS).map(|near| format!(" (did you mean `{near}`?)")).unwrap_or_default();
        layers.warnings.push(format!(
            "{RUST_LOG}: `{word}` is no level{meant}: it is taken for the name of a module, of which nothing is logged here; \
             use error, warn, info, debug or trace, or directives such as `info,weir::gateway::flow=debug`"
        ));
    }
}

/// Warns about `SERVICE_*` variables that look like a known one with a typing mistake, and about those that are named like a setting which
/// has none. Others are left alone: an orchestrator may inject variables of that prefix on its own.
fn warn_about_near_misses(env: &BTreeMap<String, String>, layers: &mut Layers) {
    let known = || {
        let files = [CONFIG, RUNTIME_CONFIG].into_iter();
        catalogue::settings().filter_map(|setting| setting.env.map(|(name, _)| name)).chain(files)
    };
    for name in env.keys().filter(|name| name.starts_with("SERVICE_")) {
        if known().any(|known| known == name) {
            continue;
        }
        let path = |setting: &Setting| {
            setting.path.replace('.', "_").eq_ignore_ascii_case(name.trim_start_matches("SERVICE_"))
        };
        if let Some(setting) = catalogue::settings().find(|setting| path(setting)) {
            let path = setting.path;
            layers
                .warnings
                .push(format!("{name}: no variable sets `{path}`, so this one does nothing; set it in the file"));
        } else if let Some(near) = nearest(name, known()) {
            layers.warnings.push(format!("{name}: unknown variable; did you mean `{near}`?"));
        }
    }
}
