//! `action_router.*`, checked: what is done about findings.

use crate::vocab::{FINDING_ALLOWED, Finding, Severity, SharedSecret};

/// `action_router.*`.
#[derive(Debug, Clone, PartialEq)]
pub struct ActionRouter {
    /// `enabled`.
    pub enabled: bool,
    /// `default_actions`: of a finding that no rule matches.
    pub default_actions: ActionSet,
    /// `rules[]`.
    pub rules: Vec<ActionRule>,
    /// `ip_block.*`.
    pub ip_block: IpBlock,
    /// `webhook.*`.
    pub webhook: ActionWebhook,
    /// `judge_route.inline_await`: requests wait for the verdict.
    pub inline_await: bool,
    /// `judge_route.inline_timeout_ms`.
    pub inline_timeout_ms: u64,
}

/// One of `action_router.rules[]`.
#[derive(Debug, Clone, PartialEq)]
pub struct ActionRule {
    /// `finding_type`; `None` for all.
    pub finding_type: Option<String>,
    /// `min_severity`.
    pub min_severity: Severity,
    /// `min_confidence`, 0.0 to 1.0.
    pub min_confidence: f64,
    /// `actions`.
    pub actions: ActionSet,
}

/// `action_router.ip_block.*`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IpBlock {
    /// `ttl_seconds`: how long an address is turned away, and how long an offence counts.
    pub ttl_seconds: u64,
    /// `max_offenses`: with how many calls it begins.
    pub max_offenses: u32,
    /// `allow_shared` (ours): also loopback, and an address that most requests come from.
    pub allow_shared: bool,
}

/// `action_router.webhook.*`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ActionWebhook {
    /// `url`.
    pub url: Option<SharedSecret>,
    /// `timeout_ms`, for one message.
    pub timeout_ms: u64,
    /// `secret` (ours): what messages are signed with.
    pub secret: Option<SharedSecret>,
}

/// What can be done about a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RouterAction {
    /// A line in the log.
    Log,
    /// A message to `action_router.webhook.url`.
    Webhook,
    /// A question to the judge.
    JudgeRoute,
    /// A message to the channels of `alerts`.
    Alert,
    /// An offence of the address the call came from.
    BlockIp,
    /// The request is forwarded with a mark.
    Flag,
    /// The request is refused.
    Block,
}

impl RouterAction {
    /// All of them, the mildest first.
    pub const ALL: [Self; 7] =
        [Self::Log, Self::Webhook, Self::JudgeRoute, Self::Alert, Self::BlockIp, Self::Flag, Self::Block];

    /// As the settings spell it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Log => "log",
            Self::Webhook => "webhook",
            Self::JudgeRoute => "judge_route",
            Self::Alert => "alert",
            Self::BlockIp => "block_ip",
            Self::Flag => "flag",
            Self::Block => "block",
        }
    }
}

/// Several actions.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ActionSet(u8);

impl ActionSet {
    /// None.
    pub const NONE: Self = Self(0);

    /// Whether `action` is among them.
    pub const fn has(self, action: RouterAction) -> bool {
        self.0 & 1 << action as u8 != 0
    }

    /// These, and those.
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// These without those.
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Whether there are none.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Each of them, the mildest first.
    pub fn iter(self) -> impl Iterator<Item = RouterAction> {
        RouterAction::ALL.into_iter().filter(move |action| self.has(*action))
    }
}

impl From<RouterAction> for ActionSet {
    fn from(action: RouterAction) -> Self {
        Self(1 << action as u8)
    }
}

impl FromIterator<RouterAction> for ActionSet {
    fn from_iter<I: IntoIterator<Item = RouterAction>>(actions: I) -> Self {
        actions.into_iter().fold(Self::NONE, |all, action| all.with(action.into()))
    }
}

/// By name, one after the other.
impl std::fmt::Display for ActionSet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (at, action) in self.iter().enumerate() {
            f.write_str(if at == 0 { "" } else { "," })?;
            f.write_str(action.as_str())?;
        }
        Ok(())
    }
}

impl Default for ActionRouter {
    fn default() -> Self {
        Self {
            enabled: false,
            default_actions: RouterAction::Log.into(),
            rules: Vec::new(),
            ip_block: IpBlock { ttl_seconds: 3_600, max_offenses: 3, allow_shared: false },
            webhook: ActionWebhook { url: None, timeout_ms: 5_000, secret: None },
            inline_await: false,
            inline_timeout_ms: 10_000,
        }
    }
}

impl ActionRouter {
    /// What is to be done about `finding`: what all matching rules say, or the default where none matches. Nothing about what
    /// an operator allows, and nothing while the router is off.
    pub fn actions(&self, finding: &Finding) -> ActionSet {
        if !self.enabled || finding.finding_type == FINDING_ALLOWED {
            return ActionSet::NONE;
        }
        let mut matching = self.rules.iter().filter(|rule| rule.matches(finding)).peekable();
        if matching.peek().is_none() {
            return self.default_actions;
        }
        matching.fold(ActionSet::NONE, |all, rule| all.with(rule.actions))
    }

    /// Whether some finding could lead to `action`.
    pub fn may(&self, action: RouterAction) -> bool {
        self.enabled && self.names(action)
    }

    /// Whether a rule or the default names this action, whether or not the router is on.
    pub fn names(&self, action: RouterAction) -> bool {
        let mut sets = self.rules.iter().map(|rule| rule.actions).chain([self.default_actions]);
        sets.any(|set| set.has(action))
    }
}

impl ActionRule {
    fn matches(&self, finding: &Finding) -> bool {
        self.finding_type.as_ref().is_none_or(|wanted| *wanted == finding.finding_type)
            && finding.severity >= self.min_severity
            && finding.confidence >= self.min_confidence
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(
        finding_type: Option<&str>,
        min_severity: Severity,
        min_confidence: f64,
        action: RouterAction,
    ) -> ActionRule {
        let finding_type = finding_type.map(str::to_owned);
        ActionRule { finding_type, min_severity, min_confidence, actions: action.into() }
    }

    #[test]
    fn matching_rules_add_up_and_take_the_place_of_the_default() {
        let router = ActionRouter {
            enabled: true,
            rules: vec![
                rule(Some("jailbreak"), Severity::High, 0.8, RouterAction::Block),
                rule(None, Severity::High, 0.0, RouterAction::Alert),
            ],
            ..ActionRouter::default()
        };
        let told = |kind: &'static str, severity, confidence| {
            router.actions(&Finding::new(kind, severity, confidence, "rules", "")).to_string()
        };
        assert_eq!(told("jailbreak", Severity::High, 0.8), "alert,block");
        assert_eq!(told("jailbreak", Severity::High, 0.79), "alert");
        assert_eq!(told("pii_detected", Severity::Critical, 1.0), "alert");
        assert_eq!(told("jailbreak", Severity::Medium, 1.0), "log");
        assert_eq!(told(FINDING_ALLOWED, Severity::Critical, 1.0), "");
        assert!(router.may(RouterAction::Log) && router.may(RouterAction::Block) && !router.may(RouterAction::BlockIp));
        let off = ActionRouter { enabled: false, ..router.clone() };
        assert!(!off.may(RouterAction::Block));
        assert!(off.actions(&Finding::new("jailbreak", Severity::High, 1.0, "rules", "")).is_empty());
    }
}
