//! What the findings mean for the request: forward, flag or refuse. A pure decision over findings and settings.
//!
//! | the finding                                    | action                                   |
//! |------------------------------------------------|------------------------------------------|
//! | of the type `finding_allowed`                  | none                                     |
//! | in a text of an earlier forwarded call, with `scope: new` | none                          |
//! | below `min_severity` or `min_confidence`       | none                                     |
//! | its type has an entry in `categories`          | that entry's action, whatever the mode   |
//! | otherwise                                      | the mode's: log nothing, flag, block     |
//! | a verdict of the judge                         | `block` if promoted, unless the mode is log |
//! | one that a rule of the action router matches   | `flag` or `block`, unless the mode is log |
//!
//! The strictest action of all findings wins. Enforcement never sees HTTP.

mod scope;

use std::collections::BTreeSet;

use serde_json::{Value, json};
use weir_config::settings::{Enforcement, EnforcementAction, EnforcementMode, RouterAction};
use weir_config::vocab::{FINDING_ALLOWED, Finding, JUDGE_VERDICT, PROMOTED, PROMOTION, Unread, UnreadSet};

use crate::exchange::Refusal;
pub use scope::{ActingTexts, EARLIER_CALL, Earlier};

/// What is to be done with the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Decision {
    /// Forward as it is.
    Forward,
    /// Forward and tell the client by response headers.
    Flag,
    /// Answer 403.
    Block,
}

impl Decision {
    /// The span's `enforcement` value.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Forward => "none",
            Self::Flag => "flagged",
            Self::Block => "blocked",
        }
    }
}

/// Decides over all findings of a request.
pub fn decide(findings: &[Finding], rules: &Enforcement) -> Decision {
    findings.iter().map(|finding| action(finding, rules)).max().unwrap_or(Decision::Forward)
}

/// Whether any finding could lead to more than forwarding: then the request has to wait for its analysis.
pub fn can_act(rules: &Enforcement) -> bool {
    rules.mode != EnforcementMode::Log || !rules.categories.is_empty()
}

/// Whether some finding would be blocked: then what cannot be read must not pass either.
pub fn can_block(rules: &Enforcement) -> bool {
    rules.can_block()
}

/// The finding that speaks for the request in the flag headers: the worst of those that flag it, the surest of equals.
pub fn worst<'a>(findings: &'a [Finding], rules: &Enforcement) -> Option<&'a Finding> {
    let flags = findings.iter().filter(|finding| action(finding, rules) >= Decision::Flag);
    flags.max_by(|a, b| a.severity.cmp(&b.severity).then(a.confidence.total_cmp(&b.confidence)))
}

/// Whether a finding leads to more than forwarding.
pub fn acts(finding: &Finding, rules: &Enforcement) -> bool {
    action(finding, rules) != Decision::Forward
}

fn action(finding: &Finding, rules: &Enforcement) -> Decision {
    // What an operator allows has no weight, however low the bar.
    if finding.finding_type == FINDING_ALLOWED || finding.metadata.contains_key(EARLIER_CALL) {
        return Decision::Forward;
    }
    if finding.finding_type == JUDGE_VERDICT {
        return by_judge(finding, rules);
    }
    by_settings(finding, rules).max(by_router(finding, rules))
}

/// A verdict that has passed the promotion gate blocks; none else does anything, whatever the thresholds.
fn by_judge(verdict: &Finding, rules: &Enforcement) -> Decision {
    let promoted = verdict.metadata.get(PROMOTION).is_some_and(|said| said == PROMOTED);
    if promoted && rules.mode != EnforcementMode::Log { Decision::Block } else { Decision::Forward }
}

/// What the rules of the action router say, whose thresholds are their own.
fn by_router(finding: &Finding, rules: &Enforcement) -> Decision {
    let Some(router) = rules.router.as_ref().filter(|_| rules.mode != EnforcementMode::Log) else {
        return Decision::Forward;
    };
    let actions = router.actions(finding);
    match () {
        () if actions.has(RouterAction::Block) => Decision::Block,
        () if actions.has(RouterAction::Flag) => Decision::Flag,
        () => Decision::Forward,
    }
}

fn by_settings(finding: &Finding, rules: &Enforcement) -> Decision {
    if finding.severity < rules.min_severity || finding.confidence < rules.min_confidence {
        return Decision::Forward;
    }
    let category = rules.categories.iter().find(|(finding_type, _)| *finding_type == finding.finding_type);
    match (category, rules.mode) {
        (Some((_, EnforcementAction::Block)), _) | (None, EnforcementMode::Block) => Decision::Block,
        (Some((_, EnforcementAction::Flag)), _) | (None, EnforcementMode::Flag) => Decision::Flag,
        (None, EnforcementMode::Log) => Decision::Forward,
    }
}

/// Most finding types the message of a refusal names.
const NAMED_MAX: usize = 8;

/// The 403 a blocked request gets, naming what was found but never the matched words. Many clients show their user the
/// message and nothing else, and send again what was refused unless they are told not to.
pub fn refusal(findings: &[Finding], rules: &Enforcement) -> Refusal {
    let blocking: Vec<&Finding> = findings.iter().filter(|finding| action(finding, rules) == Decision::Block).collect();
    let types: BTreeSet<&str> = blocking.iter().map(|finding| finding.finding_type.as_ref()).collect();
    let named: Vec<&str> = types.into_iter().take(NAMED_MAX).collect();
    let listed: Vec<Value> = blocking
        .iter()
        .map(|finding| {
            json!({
                "finding_type": finding.finding_type,
                "severity": finding.severity,
                "confidence": finding.confidence,
                "description": finding.description,
            })
        })
        .collect();
    Refusal::new(
        403,
        "security_enforcement_blocked",
        format!(
            "the request was refused: security analysis found {}, which the gateway's `enforcement` blocks; sending it \
             again unchanged will be refused too",
            named.join(", ")
        ),
    )
    .header("x-should-retry", "false")
    .with("findings", listed)
}

/// What was not read of a request, and what the request is for.
#[derive(Debug)]
pub struct Unseen<'a> {
    /// What was not read.
    pub unread: UnreadSet,
    /// Why the body could not be read as what it claims to be.
    pub unreadable: Option<&'a str>,
    /// Files are what the operation is for.
    pub takes_files: bool,
    /// Its tokens become a vector: nothing follows what they say.
    pub is_embedding: bool,
}

/// What was not read must not pass a gateway that blocks: a provider may read it. Files pass where they are what the
/// operation is for, and inside JSON, where models take them as pictures and sounds. Tokens pass where they become a vector. A text
/// that is too long for the gateway's models passes when the rules have read all of it.
///
/// # Errors
/// What was not read and has to be.
pub fn refuse_unread(seen: &Unseen<'_>, rules: &Enforcement) -> Result<(), Refusal> {
    let refused = |reason: &Unread| match reason {
        Unread::BinaryPart | Unread::WebSocket | Unread::TruncatedForModels => false,
        Unread::FilePart | Unread::MediaType => !seen.takes_files,
        Unread::TokenIds => !seen.is_embedding,
        Unread::Truncated | Unread::UnreadableBody => true,
    };
    let Some(worst) = seen.unread.iter().filter(refused).last().filter(|_| can_block(rules)) else {
        return Ok(());
    };
    let (what, instead) = match worst {
        Unread::UnreadableBody => {
            (seen.unreadable.unwrap_or("a text in it is not UTF-8"), "send it as plain UTF-8 JSON")
        }
        Unread::Truncated => {
            ("more than is looked at", "send less at a time, and within `max_request_size_bytes` unpacked")
        }
        Unread::TokenIds => ("a prompt of token numbers", "send the prompt as text"),
        _ => ("a binary file where this version expects none", "send it to an operation for files"),
    };
    let message = format!(
        "the request body cannot be inspected in full ({what}), and `enforcement` blocks requests (`enforcement.mode`, \
         `enforcement.categories`); {instead}"
    );
    Err(Refusal::new(400, "invalid_request", message))
}

/// The refusal of a request whose personal data was to be taken out, and not all of it was looked for in time: because of what it
/// is, or of what else there is to do.
pub fn refuse_unredacted(by_content: bool) -> Refusal {
    let why = "personal data could not be taken out of the request body (`pii.action`) within `enforcement.timeout_ms`, and \
               `enforcement` blocks requests (`enforcement.mode`, `enforcement.categories`)";
    if by_content {
        return Refusal::new(400, "invalid_request", format!("{why}; send less at a time"));
    }
    Refusal::new(503, "redaction_saturated", format!("{why}; retry after a second")).header("Retry-After", 1)
}

/// The refusal of a request for a stream where streaming is switched off.
pub fn streaming_refusal() -> Refusal {
    let message = "streaming is switched off by `enable_streaming: false`; send `\"stream\": false`";
    Refusal::new(400, "streaming_disabled", message)
}

#[cfg(test)]
mod tests {
    use weir_config::catalogue::{self, Kind};
    use weir_config::settings::EnforcementScope;
    use weir_config::vocab::Severity;

    use super::*;

    fn finding(finding_type: &'static str, severity: Severity, confidence: f64) -> Finding {
        Finding::new(finding_type, severity, confidence, "rules", "test")
    }

    fn rules(mode: EnforcementMode) -> Enforcement {
        Enforcement {
            mode,
            min_severity: Severity::High,
            min_confidence: 0.8,
            timeout_ms: 5_000,
            categories: Vec::new(),
            scope: EnforcementScope::All,
            retrying_clients: Vec::new(),
            router: None,
        }
    }

    #[test]
    fn needs_both_severity_and_confidence() {
        let block = rules(EnforcementMode::Block);
        assert_eq!(decide(&[finding("jailbreak", Severity::Medium, 1.0)], &block), Decision::Forward);
        assert_eq!(decide(&[finding("jailbreak", Severity::High, 0.79)], &block), Decision::Forward);
        assert_eq!(decide(&[finding("jailbreak", Severity::High, 0.8)], &block), Decision::Block);
        assert_eq!(decide(&[], &block), Decision::Forward);
    }

    #[test]
    fn log_mode_always_forwards_unless_a_category_says_otherwise() {
        let mut log = rules(EnforcementMode::Log);
        let found = [finding("pii_detected", Severity::High, 0.9), finding("jailbreak", Severity::High, 0.9)];
        assert_eq!(decide(&found, &log), Decision::Forward);
        assert!(!can_act(&log));
        log.categories.push(("pii_detected".to_owned(), EnforcementAction::Flag));
        assert_eq!((decide(&found, &log), can_block(&log)), (Decision::Flag, false));
        log.categories.push(("jailbreak".to_owned(), EnforcementAction::Block));
        assert!(can_block(&log));
        assert_eq!(decide(&found, &log), Decision::Block);
    }

    #[test]
    fn a_category_can_soften_the_mode() {
        let mut block = rules(EnforcementMode::Block);
        block.categories.push(("jailbreak".to_owned(), EnforcementAction::Flag));
        assert_eq!(decide(&[finding("jailbreak", Severity::Critical, 1.0)], &block), Decision::Flag);
    }

    /// Every value of every setting that bears on a finding, with every kind of finding, against the table at the head of this file.
    #[test]
    fn the_whole_product_decides_as_the_table_says() {
        let choices = |path: &str| match catalogue::by_path(path).unwrap().kind {
            Kind::Choice(values) => values,
            other => panic!("{path} is no choice: {other:?}"),
        };
        let modes = choices("enforcement.mode").iter().map(|mode| match *mode {
            "log" => (EnforcementMode::Log, Decision::Forward),
            "flag" => (EnforcementMode::Flag, Decision::Flag),
            "block" => (EnforcementMode::Block, Decision::Block),
            new => panic!("the catalogue has a new mode: {new}"),
        });
        let Kind::Records(fields) = catalogue::by_path("enforcement.categories").unwrap().kind else {
            panic!("a list")
        };
        let Kind::Choice(actions) = fields.iter().find(|field| field.name == "action").unwrap().kind else { panic!() };
        let actions = actions.iter().map(|action| match *action {
            "flag" => Some((EnforcementAction::Flag, Decision::Flag)),
            "block" => Some((EnforcementAction::Block, Decision::Block)),
            new => panic!("the catalogue has a new action: {new}"),
        });
        let actions: Vec<_> = std::iter::once(None).chain(actions).collect();
        let severities: Vec<Severity> =
            choices("enforcement.min_severity").iter().map(|severity| severity.parse().unwrap()).collect();
        let confidences = [0.0, 0.5, 0.799, 0.8, 0.801, 1.0];
        let mut count = 0;
        for (mode, by_mode) in modes {
            for (category, bar, least) in product(&actions, &severities, &confidences) {
                let mut rules = rules(mode);
                (rules.min_severity, rules.min_confidence) = (bar, least);
                rules.categories.extend(category.map(|(action, _)| ("jailbreak".to_owned(), action)));
                // Without a verdict (time was over, the queue full, the breaker open) nothing was found, and no bar turns that
                // into something; what was not read is refused where anything is blocked, however high the bars.
                assert_eq!((decide(&[], &rules), worst(&[], &rules)), (Decision::Forward, None));
                let blocks =
                    by_mode == Decision::Block || category.is_some_and(|(_, action)| action == Decision::Block);
                for reason in Unread::ALL {
                    let mut unread = UnreadSet::default();
                    unread.insert(reason);
                    let seen = Unseen { unread, unreadable: None, takes_files: false, is_embedding: false };
                    let passes = matches!(reason, Unread::BinaryPart | Unread::WebSocket | Unread::TruncatedForModels);
                    assert_eq!(refuse_unread(&seen, &rules).is_err(), blocks && !passes, "{rules:?}: {reason:?}");
                }
                for (severity, confidence, mark) in product(&severities, &confidences, &["", "earlier", "allowed"]) {
                    let mut found = finding("jailbreak", severity, confidence);
                    match mark {
                        "earlier" => drop(found.metadata.insert(EARLIER_CALL.to_owned(), "true".to_owned())),
                        "allowed" => found.finding_type = FINDING_ALLOWED.into(),
                        _ => {}
                    }
                    let is_over = mark.is_empty() && severity >= bar && confidence >= least;
                    let expected =
                        if is_over { category.map_or(by_mode, |(_, action)| action) } else { Decision::Forward };
                    assert_eq!(decide(std::slice::from_ref(&found), &rules), expected, "{rules:?}: {found:?}");
                    // Beside another finding the stricter of the two wins.
                    let other = finding("pii_detected", bar, least);
                    assert_eq!(decide(&[other, found], &rules), expected.max(by_mode));
                    count += 1;
                }
            }
        }
        assert_eq!(count, 3 * (3 * 5 * 6) * (5 * 6 * 3));
    }

    /// Each value with each of the two others.
    fn product<A: Copy, B: Copy, C: Copy>(first: &[A], second: &[B], third: &[C]) -> Vec<(A, B, C)> {
        let pairs = first.iter().flat_map(|a| second.iter().map(move |b| (*a, *b)));
        pairs.flat_map(|(a, b)| third.iter().map(move |c| (a, b, *c))).collect()
    }

    #[test]
    fn the_refusal_lists_only_what_blocked() {
        let found = [finding("jailbreak", Severity::High, 0.9), finding("is_urgent", Severity::Low, 0.9)];
        let refusal = refusal(&found, &rules(EnforcementMode::Block));
        assert_eq!(refusal.status, 403);
        assert_eq!(refusal.extra["findings"].as_array().map(Vec::len), Some(1));
        assert!(refusal.message.contains("found jailbreak,"), "{}", refusal.message);
    }
}
