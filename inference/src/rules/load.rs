//! Reads rule files, embedded ones and those of operators: macros, literal sets, checks on every rule.
//!
//! Patterns see folded bytes, so Unicode mode is off: it would turn the fast engines off for nothing.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use weir_config::vocab::Severity;
use weir_config::vocab::part::PartKind;

use super::allow::RawAllow;
use super::credential::{Credential, RawCredential};
use super::pattern::{self, Pattern};
use super::{Allow, DISGUISED, Group, LoadError, Rule, RuleText, Words, words};
use crate::decode::{VOCABULARY_BYTES, Vocabulary};
use crate::literals::LITERAL_BYTES_MIN;

/// The embedded files; macros and literal sets of one file are known to all.
const FILES: [(&str, &str); 18] = [
    ("words.yaml", include_str!("../../rules/words.yaml")),
    ("injection.yaml", include_str!("../../rules/injection.yaml")),
    ("indirect.yaml", include_str!("../../rules/indirect.yaml")),
    ("data.yaml", include_str!("../../rules/data.yaml")),
    ("techniques.yaml", include_str!("../../rules/techniques.yaml")),
    ("extraction.yaml", include_str!("../../rules/extraction.yaml")),
    ("pretexts.yaml", include_str!("../../rules/pretexts.yaml")),
    ("tools.yaml", include_str!("../../rules/tools.yaml")),
    ("poison.yaml", include_str!("../../rules/poison.yaml")),
    ("overreach.yaml", include_str!("../../rules/overreach.yaml")),
    ("multilingual.yaml", include_str!("../../rules/multilingual.yaml")),
    ("languages.yaml", include_str!("../../rules/languages.yaml")),
    ("tongues.yaml", include_str!("../../rules/tongues.yaml")),
    ("jailbreak.yaml", include_str!("../../rules/jailbreak.yaml")),
    ("payloads.yaml", include_str!("../../rules/payloads.yaml")),
    ("manipulation.yaml", include_str!("../../rules/manipulation.yaml")),
    ("secrets.yaml", include_str!("../../rules/secrets.yaml")),
    ("credentials.yaml", include_str!("../../rules/credentials.yaml")),
];

/// Those of credentials: nothing in them needs the others.
const SECRET_FILES: [&str; 2] = ["secrets.yaml", "credentials.yaml"];

/// Finding types a rule may report.
const TYPES: [&str; 23] = [
    "prompt_injection",
    "indirect_injection",
    "role_injection",
    "jailbreak",
    "prompt_extraction",
    "data_exfiltration",
    "shell_injection",
    "sql_injection",
    "header_injection",
    "synonym_injection",
    "context_flooding",
    "many_shot",
    "is_incentive",
    "is_urgent",
    "is_hypothetical",
    "is_systemic",
    "is_covert",
    "is_immoral",
    "secret_leakage",
    "data_leakage",
    "dangerous_command",
    "suspicious_url",
    "sensitive_file_access",
];

/// Largest counted repetition a pattern may ask for.
const REPEAT_MAX: u32 = 128;
/// Largest counted repetition of a negated class: counting such bytes multiplies the states of the automaton.
const WIDE_REPEAT_MAX: u32 = 64;
/// Longest window on either side of a literal, in bytes.
const WINDOW_MAX: usize = 512;
/// Least entropy of a credential, in bits per character: random ones of twenty characters and more have three.
const CREDENTIAL_ENTROPY_MIN: f64 = 2.6;
/// How deep macros may use macros.
const MACRO_DEPTH_MAX: usize = 4;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawFile {
    #[serde(default)]
    macros: BTreeMap<String, String>,
    #[serde(default)]
    literal_sets: BTreeMap<String, Vec<String>>,
    #[serde(default)]
    rules: Vec<RawRule>,
    #[serde(default)]
    credentials: Vec<RawCredential>,
    #[serde(default)]
    allow: Vec<RawAllow>,
}

impl RawFile {
    /// The ids of everything in it.
    fn ids(&self) -> impl Iterator<Item = &str> {
        let rules = self.rules.iter().map(|rule| &*rule.id);
        let credentials = self.credentials.iter().map(|credential| &*credential.id);
        rules.chain(credentials).chain(self.allow.iter().map(|allow| &*allow.id))
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawRule {
    id: String,
    #[serde(rename = "type")]
    finding_type: String,
    #[serde(default)]
    severity: Option<Severity>,
    #[serde(default = "default_confidence")]
    confidence: f64,
    about: String,
    #[serde(default)]
    scope: Vec<Scope>,
    #[serde(default)]
    jailbreak: Option<String>,
    #[serde(default)]
    secret: Option<String>,
    #[serde(default)]
    signal: u16,
    #[serde(default = "default_frame")]
    frame: bool,
    #[serde(default)]
    before: usize,
    #[serde(default = "default_after")]
    after: usize,
    #[serde(default)]
    entropy: f64,
    #[serde(default)]
    digit: bool,
    #[serde(default)]
    exact_case: bool,
    literals: Vec<String>,
    pattern: String,
    hits: Vec<String>,
    misses: Vec<String>,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Scope {
    System,
    User,
    Assistant,
    Tool,
    ToolDefinition,
    ToolCall,
    Output,
    Disguised,
}

/// The rules of all files, in the order of the files.
#[derive(Debug)]
pub(crate) struct Loaded {
    pub(crate) rules: Vec<Rule>,
    /// What they say for people, in the same order.
    pub(crate) texts: Vec<RuleText>,
    /// Words the patterns know, lower case; what decoders of ambiguous ciphers check against.
    pub(crate) vocabulary: Vocabulary,
    /// What is to be reported no more.
    pub(crate) allow: Vec<Allow>,
    /// What all patterns take once they are compiled, in bytes; of this build's own nobody asks.
    pub(crate) pattern_bytes: usize,
}

/// Whose rules are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Origin {
    /// Patterns are compiled when a text first needs them, and all of them by a test.
    Build,
    /// Patterns are compiled to see that they can be.
    Operator,
}

/// Reads the rule files that are part of the binary.
pub(crate) fn builtin() -> Result<Loaded, LoadError> {
    load(&FILES, Origin::Build)
}

/// The rules of the binary about credentials alone.
pub(crate) fn secrets() -> Result<Loaded, LoadError> {
    let files: Vec<(&str, &str)> = FILES.into_iter().filter(|(file, _)| SECRET_FILES.contains(file)).collect();
    load(&files, Origin::Build)
}

/// Reads an operator's files, each with its name; macros and literal sets of one are known to all of them, those of the
/// binary are not.
pub(crate) fn of_operator(files: &[(&str, &str)]) -> Result<Loaded, LoadError> {
    load(files, Origin::Operator)
}

/// The same with a change: what it names again takes the place of what the files say, and the rules in `without` are left out of them.
/// Rules are meant, credentials and allow rules, by their ids.
pub(crate) fn of_operator_changed(
    files: &[(&str, &str)],
    change: (&str, &str),
    without: &[String],
) -> Result<Loaded, LoadError> {
    let (mut all, changed) = (read_all(files)?, read(change.0, change.1)?);
    let mut absent: BTreeSet<&str> = without.iter().map(String::as_str).collect();
    for id in &absent {
        if !all.iter().any(|(_, raw)| raw.ids().any(|known| known == *id)) {
            return Err(LoadError::NoSuchRule((*id).to_owned()));
        }
    }
    absent.extend(changed.ids());
    for (_, raw) in &mut all {
        raw.rules.retain(|rule| !absent.contains(&*rule.id));
        raw.credentials.retain(|credential| !absent.contains(&*credential.id));
        raw.allow.retain(|allow| !absent.contains(&*allow.id));
    }
    all.push((change.0, changed));
    made_of(all, Origin::Operator)
}

/// Files with their names.
fn read_all<'a>(files: &[(&'a str, &str)]) -> Result<Vec<(&'a str, RawFile)>, LoadError> {
    files.iter().map(|(file, text)| Ok((*file, read(file, text)?))).collect()
}

/// Names of the rules that are part of the binary.
pub(crate) fn builtin_ids() -> Result<BTreeSet<String>, LoadError> {
    let mut ids = BTreeSet::new();
    for (file, text) in FILES {
        let raw = read(file, text)?;
        ids.extend(raw.rules.into_iter().map(|rule| rule.id));
        ids.extend(raw.credentials.into_iter().map(|credential| credential.id));
    }
    Ok(ids)
}

fn read(file: &str, text: &str) -> Result<RawFile, LoadError> {
    serde_yaml::from_str(text).map_err(|error| LoadError::File { file: file.to_owned(), reason: error.to_string() })
}

/// The rule about a credential of a fixed shape.
fn raw_credential(credential: Credential) -> RawRule {
    let Credential { id, about, literals, pattern, hits, misses, after } = credential;
    RawRule {
        secret: Some(id.replace('-', "_")),
        id,
        finding_type: "secret_leakage".to_owned(),
        severity: Some(Severity::High),
        confidence: 0.95,
        about,
        scope: Vec::new(),
        jailbreak: None,
        signal: 0,
        frame: true,
        before: 0,
        after,
        entropy: CREDENTIAL_ENTROPY_MIN,
        digit: false,
        exact_case: true,
        literals,
        pattern,
        hits,
        misses,
    }
}

fn load(files: &[(&str, &str)], origin: Origin) -> Result<Loaded, LoadError> {
    made_of(read_all(files)?, origin)
}

fn made_of(files: Vec<(&str, RawFile)>, origin: Origin) -> Result<Loaded, LoadError> {
    let mut macros = BTreeMap::new();
    let mut sets = BTreeMap::new();
    let (mut raw_rules, mut allow) = (Vec::new(), Vec::new());
    for (file, raw) in files {
        macros.extend(raw.macros);
        sets.extend(raw.literal_sets);
        raw_rules.extend(raw.rules.into_iter().map(|rule| (file, rule)));
        for raw in raw.credentials {
            let id = raw.id.clone();
            let fail = |reason| LoadError::Rule { file: file.to_owned(), rule: id, reason };
            raw_rules.push((file, raw_credential(raw.read().map_err(fail)?)));
        }
        for raw in raw.allow {
            let id = raw.id.clone();
            let fail = |reason| LoadError::Rule { file: file.to_owned(), rule: id, reason };
            allow.push(Allow::new(raw).map_err(fail)?);
        }
    }
    let (mut ids, mut pattern_bytes) = (BTreeSet::new(), 0);
    let mut vocabulary = Vocabulary::new();
    let mut rules = Vec::with_capacity(raw_rules.len());
    let mut texts = Vec::with_capacity(raw_rules.len());
    for (file, mut raw) in raw_rules {
        let id = raw.id.clone();
        let fail = |reason: String| LoadError::Rule { file: file.to_owned(), rule: id.clone(), reason };
        if !ids.insert(raw.id.clone()) {
            return Err(fail("`id` is used twice; give each rule one of its own".to_owned()));
        }
        let pattern = expand(&raw.pattern, &macros, 0).map_err(fail)?;
        collect_words(&pattern, &mut vocabulary);
        let (hits, misses) = (std::mem::take(&mut raw.hits), std::mem::take(&mut raw.misses));
        if hits.is_empty() || misses.is_empty() {
            let what =
                "`hits` and `misses` need at least one text each: one that matches, one close to it that does not";
            return Err(fail(what.to_owned()));
        }
        let rule = rule(raw, &pattern, &sets).map_err(fail)?;
        if origin == Origin::Operator {
            let measured = rule.pattern.measure();
            pattern_bytes +=
                measured.map_err(|error| fail(format!("`pattern` does not compile: {}", innermost(&*error))))?;
        }
        let hits = hits.into_iter().map(|hit| spelled(&rule, hit)).collect();
        texts.push(RuleText { id: rule.id.clone(), file: file.to_owned(), pattern, hits, misses });
        rules.push(rule);
    }
    Ok(Loaded { rules, texts, vocabulary, allow, pattern_bytes })
}

/// An example as the rule sees it: `~` breaks up those of credentials, and only one kind of credential has one of its own.
fn spelled(rule: &Rule, example: String) -> String {
    let broken = rule.group == Group::Secrets && rule.id != "azure-client-secret";
    if broken { example.replacen('~', "", 1) } else { example }
}

fn rule(raw: RawRule, pattern: &str, sets: &BTreeMap<String, Vec<String>>) -> Result<Rule, String> {
    let finding_type = TYPES
        .iter()
        .find(|known| **known == raw.finding_type)
        .ok_or_else(|| format!("`type`: unknown finding type `{}`; one of {}", raw.finding_type, TYPES.join(", ")))?;
    if raw.severity.is_none() && raw.signal == 0 {
        return Err("neither `severity` nor `signal` is given: the rule could never say anything; give one".to_owned());
    }
    if finding_type.starts_with("is_") && raw.severity.is_some_and(|severity| severity > Severity::Low) {
        return Err("`severity`: findings of manipulation types never exceed Low; use Info or Low".to_owned());
    }
    if raw.before > WINDOW_MAX || raw.after > WINDOW_MAX || raw.after == 0 {
        return Err(format!(
            "`before` is {} and `after` {}; `before` may be 0 to {WINDOW_MAX} bytes, `after` 1 to {WINDOW_MAX}",
            raw.before, raw.after
        ));
    }
    if let Some(count) = widest_repeat(pattern).filter(|count| *count > REPEAT_MAX) {
        return Err(format!(
            "`pattern`: counted repetition {{{count}}} is above {REPEAT_MAX}; count less, or say `*?`"
        ));
    }
    if let Some(count) = wide_repeat(pattern).filter(|count| *count > WIDE_REPEAT_MAX) {
        return Err(format!(
            "`pattern`: a class of nearly all bytes is repeated {count} times, {WIDE_REPEAT_MAX} is the most; say `*?`, the \
             window bounds it"
        ));
    }
    let literals = literals(&raw, sets)?;
    let group = match (&raw.jailbreak, &raw.secret) {
        (Some(_), None) => Group::Jailbreak,
        (None, Some(_)) => Group::Secrets,
        (None, None) => Group::Rules,
        (Some(_), Some(_)) => return Err("`jailbreak` and `secret` exclude each other; leave one out".to_owned()),
    };
    let read = pattern::read_as_written(pattern);
    // The patterns of credentials are short and hold few words.
    let words = read.as_ref().filter(|_| group != Group::Secrets).and_then(|read| Words::of(read, &literals));
    let rare_byte = read.as_ref().filter(|_| words.is_none()).and_then(words::rare_byte);
    Ok(Rule {
        id: raw.id,
        group,
        finding_type,
        severity: raw.severity,
        confidence: raw.confidence.clamp(0.0, 1.0),
        about: raw.about,
        scope: scope_mask(&raw.scope, group),
        jailbreak_type: raw.jailbreak,
        secret_type: raw.secret,
        signal: raw.signal,
        frame: raw.frame,
        before: raw.before,
        after: raw.after,
        entropy: raw.entropy,
        digit: raw.digit,
        literals,
        exact_case: raw.exact_case,
        pattern: Pattern::new(pattern, raw.exact_case, read.as_ref()),
        rare_byte,
        words,
    })
}

/// What a compiler says, with what is behind it: the outermost error names the pattern's number only.
fn innermost(error: &dyn std::error::Error) -> String {
    let mut innermost = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    innermost.to_string().lines().last().unwrap_or_default().to_owned()
}

/// The literals of a rule with `@name` replaced by the set of that name; at least one, none shorter than the index can find.
fn literals(raw: &RawRule, sets: &BTreeMap<String, Vec<String>>) -> Result<Vec<String>, String> {
    let mut literals = Vec::new();
    for literal in &raw.literals {
        match literal.strip_prefix('@') {
            Some(name) if !name.is_empty() => {
                literals.extend(
                    sets.get(name).ok_or_else(|| format!("`literals`: unknown literal set `{name}`"))?.iter().cloned(),
                );
            }
            _ => literals.push(literal.clone()),
        }
    }
    if literals.is_empty() {
        return Err(
            "`literals` holds no literal: the pattern would run on every byte of every text; name words of which each \
                    match holds one"
                .to_owned(),
        );
    }
    if let Some(short) = literals.iter().find(|literal| literal.len() < LITERAL_BYTES_MIN) {
        return Err(format!("`literals`: `{short}` is too short to be rare; {LITERAL_BYTES_MIN} bytes are the least"));
    }
    // Where case counts, it counts for them, too.
    Ok(literals.into_iter().map(|literal| if raw.exact_case { literal } else { literal.to_lowercase() }).collect())
}

fn scope_mask(scope: &[Scope], group: Group) -> u8 {
    if scope.is_empty() {
        return match group {
            Group::Secrets => u8::MAX,
            Group::Rules | Group::Jailbreak => PartKind::User.bit() | PartKind::Tool.bit(),
        };
    }
    scope.iter().fold(0, |mask, scope| {
        mask | match scope {
            Scope::System => PartKind::System,
            Scope::User => PartKind::User,
            Scope::Assistant => PartKind::Assistant,
            Scope::Tool => PartKind::Tool,
            Scope::ToolDefinition => PartKind::ToolDefinition,
            Scope::ToolCall => PartKind::ToolCall,
            Scope::Output => PartKind::Output,
            Scope::Disguised => return mask | DISGUISED,
        }
        .bit()
    })
}

/// Replaces `{{name}}` by the macro of that name; blanks are widened by [`blanks`].
fn expand(pattern: &str, macros: &BTreeMap<String, String>, depth: usize) -> Result<String, String> {
    if depth > MACRO_DEPTH_MAX {
        return Err(format!("`macros` use macros more than {MACRO_DEPTH_MAX} deep"));
    }
    let mut out = String::with_capacity(pattern.len() * 2);
    let mut rest = pattern;
    while let Some((head, tail)) = rest.split_once("{{") {
        let (name, after) = tail.split_once("}}").ok_or("`pattern`: `{{` without `}}`")?;
        let body = macros.get(name).ok_or_else(|| format!("`pattern`: unknown macro `{name}`"))?;
        out.push_str(&blanks(head));
        out.push_str("(?:");
        out.push_str(&expand(body, macros, depth + 1)?);
        out.push(')');
        rest = after;
    }
    out.push_str(&blanks(rest));
    Ok(out)
}

/// A blank stands for any run of white space, an optional blank for a run that may be empty.
fn blanks(pattern: &str) -> String {
    pattern.replace(" ?", r"\s*").replace(' ', r"\s+")
}

/// The largest number in any `{n}`, `{n,}` or `{n,m}` of a pattern.
fn widest_repeat(pattern: &str) -> Option<u32> {
    pattern
        .split('{')
        .skip(1)
        .filter_map(|tail| tail.split_once('}'))
        .flat_map(|(counts, _)| counts.split(','))
        .filter_map(|count| count.trim().parse().ok())
        .max()
}

/// The largest number that counts repetitions of a negated class or of the dot.
fn wide_repeat(pattern: &str) -> Option<u32> {
    let (mut in_class, mut wide, mut escaped) = (false, false, false);
    let mut widest = None;
    for (at, byte) in pattern.bytes().enumerate() {
        let rest = pattern.get(at + 1..).unwrap_or_default();
        match byte {
            _ if escaped => (escaped, wide) = (false, wide && in_class),
            b'\\' => escaped = true,
            b'[' if !in_class => (in_class, wide) = (true, rest.starts_with('^')),
            b']' if in_class => in_class = false,
            b'{' if !in_class && wide => {
                widest = widest.max(widest_repeat(&format!("{{{}", rest.split_inclusive('}').next().unwrap_or(rest))))
            }
            b'.' if !in_class => wide = true,
            _ if !in_class => wide = false,
            _ => {}
        }
    }
    widest
}

/// Plain words of three letters or more in a pattern.
fn collect_words(pattern: &str, words: &mut Vocabulary) {
    let plain = pattern.replace(r"\s", " ").replace(r"\b", " ").replace("(?:", " ");
    for word in plain.split(|c: char| !c.is_ascii_alphabetic()).filter(|word| VOCABULARY_BYTES.contains(&word.len())) {
        words.insert(word.to_ascii_lowercase());
    }
}

const fn default_confidence() -> f64 {
    0.8
}

const fn default_frame() -> bool {
    true
}

const fn default_after() -> usize {
    160
}

#[cfg(test)]
mod tests {
    use regex_automata::hybrid::dfa::DFA;
    use regex_automata::{Anchored, Input};
    use weir_config::vocab::{rules_may_raise, worst_in_requests};

    use super::*;

    /// `weir check` says of a category that it never acts by the table that this holds against the rules: nothing is worse than the
    /// table says, and of what rules alone find something is as bad.
    #[test]
    fn the_worst_of_each_type_in_a_request_is_what_the_configuration_says() {
        let rules = builtin().unwrap().rules;
        for finding_type in TYPES {
            let worst =
                rules.iter().filter(|rule| rule.finding_type == finding_type).filter_map(|rule| rule.severity).max();
            let said = worst_in_requests(finding_type);
            match finding_type {
                // Found by how the text is built; and in answers.
                "many_shot" => assert_eq!((worst, said), (None, Some(Severity::Medium))),
                "data_leakage" => assert_eq!((worst, said), (None, None)),
                _ => assert_eq!(worst, said, "{finding_type}"),
            }
            assert_eq!(rules_may_raise(finding_type), !finding_type.starts_with("is_"), "{finding_type}");
        }
        for not_of_rules in
            ["pii_detected", "person_name", "ml_prompt_injection", "output_toxicity", "llm_judge_verdict"]
        {
            assert!(!rules_may_raise(not_of_rules));
        }
    }

    fn one(body: &str) -> Result<Loaded, LoadError> {
        let text = format!(
            "macros: {{verb: 'ignore|forget'}}\nrules:\n  - id: x\n    type: prompt_injection\n    about: A.\n    \
             hits: [a]\n    misses: [b]\n{body}"
        );
        load(&[("test.yaml", &text)], Origin::Operator)
    }

    #[test]
    fn refuses_a_rule_without_a_literal() {
        let error = one("    severity: High\n    literals: []\n    pattern: 'x'\n").unwrap_err().to_string();
        assert!(error.contains("no literal"), "{error}");
    }

    #[test]
    fn refuses_wide_repetitions_and_huge_patterns() {
        let wide = one("    severity: High\n    literals: [abc]\n    pattern: 'abc.{5,900}'\n").unwrap_err();
        assert!(wide.to_string().contains("900"), "{wide}");
        let huge =
            one("    severity: High\n    literals: [abc]\n    pattern: '(?:(?:[a-z]{90}x){90}y){90}'\n").unwrap_err();
        assert!(huge.to_string().contains("does not compile"), "{huge}");
    }

    #[test]
    fn refuses_manipulation_above_low_and_unknown_types() {
        let text = "rules:\n  - {id: m, type: is_urgent, severity: Medium, about: A., literals: [abc], pattern: abc, hits: [a], misses: [b]}";
        assert!(load(&[("t", text)], Origin::Operator).unwrap_err().to_string().contains("never exceed Low"));
        let text = "rules:\n  - {id: m, type: nonsense, severity: Low, about: A., literals: [abc], pattern: abc, hits: [a], misses: [b]}";
        assert!(load(&[("t", text)], Origin::Operator).unwrap_err().to_string().contains("unknown finding type"));
    }

    /// One at which no match can begin is looked for in every text, and its pattern run, for nothing.
    #[test]
    fn a_match_may_begin_at_every_literal_of_a_rule_whose_matches_begin_there() {
        let (rules, mut useless) = (builtin().unwrap().rules, Vec::new());
        for rule in rules.iter().filter(|rule| rule.before == 0) {
            let dfa = rule.pattern.dfa().unwrap_or_else(|error| panic!("{}: {error}", rule.id));
            useless.extend(rule.literals.iter().filter(|literal| !may_begin(&dfa, literal)).map(|it| (&rule.id, it)));
        }
        assert!(useless.is_empty(), "{useless:?}");
    }

    /// Whether some text that begins with `literal` matches from there on.
    fn may_begin(dfa: &DFA, literal: &str) -> bool {
        let mut cache = dfa.create_cache();
        let mut state = dfa.start_state_forward(&mut cache, &Input::new("").anchored(Anchored::Yes)).unwrap();
        for byte in literal.bytes() {
            state = dfa.next_state(&mut cache, state, byte).unwrap();
            if state.is_dead() {
                return false;
            }
            // It is longer than the match.
            if state.is_match() {
                return true;
            }
        }
        true
    }

    #[test]
    fn every_pattern_of_this_build_can_be_compiled() {
        for rule in builtin().unwrap().rules {
            rule.pattern.measure().unwrap_or_else(|error| panic!("{}: {}", rule.id, innermost(&*error)));
        }
    }

    /// An automaton is made anew by each thread, and grows with what is read.
    #[test]
    fn patterns_of_this_build_are_programs_and_small() {
        let rules = builtin().unwrap().rules;
        let others: Vec<_> =
            rules.iter().filter(|rule| rule.pattern.program().is_none()).map(|rule| &rule.id).collect();
        assert!(others.is_empty(), "{others:?}");
        let bytes: Vec<_> = rules.iter().filter_map(|rule| Some(rule.pattern.program()?.memory_usage())).collect();
        assert!(bytes.iter().all(|bytes| *bytes < 64 << 10) && bytes.iter().sum::<usize>() < 4 << 20, "{bytes:?}");
    }

    #[test]
    fn expands_macros_and_spaces() {
        let loaded = one("    severity: High\n    literals: [ignore, forget]\n    pattern: '{{verb}} it'\n").unwrap();
        let pattern = &loaded.rules.first().unwrap().pattern;
        assert!(pattern.is_match("please forget \n it"));
        assert!(!pattern.is_match("forgetit"));
    }
}
