//! The controls of each report type, and what speaks to them.

use super::facts::Kind;
use weir_storage::reports::ReportType;

/// One control of a framework.
pub(super) struct Control {
    /// As the framework numbers it.
    pub(super) id: &'static str,
    pub(super) title: &'static str,
    /// Records that are evidence.
    pub(super) records: &'static [Kind],
    /// Records that are gaps.
    pub(super) gaps: &'static [Kind],
    /// First parts of the names of events that are evidence.
    pub(super) events: &'static [&'static str],
    /// Having no such event in the period is a gap.
    pub(super) needs_events: bool,
    /// Having recorded nothing in the period is a gap.
    pub(super) needs_records: bool,
    /// A broken audit log is a gap.
    pub(super) needs_chain: bool,
}

/// What most controls do not have.
const NONE: Control = Control {
    id: "",
    title: "",
    records: &[],
    gaps: &[],
    events: &[],
    needs_events: false,
    needs_records: false,
    needs_chain: false,
};

const ACCESS: &[&str] = &["key.", "token.", "tenant."];
const CHANGES: &[&str] = &["config.", "features.", "feature.", "prices.", "certificate."];

pub(super) fn of(report: ReportType) -> &'static [Control] {
    match report {
        ReportType::Soc2 => SOC2,
        ReportType::Gdpr => GDPR,
        ReportType::Hipaa => HIPAA,
    }
}

const SOC2: &[Control] = &[
    Control {
        id: "CC6.1",
        title: "Logical access: credentials are issued, revoked and enforced",
        records: &[Kind::Denied],
        events: ACCESS,
        needs_events: true,
        ..NONE
    },
    Control {
        id: "CC6.6",
        title: "Threats from outside the boundary are recognised and acted on",
        records: &[Kind::Attack, Kind::Blocked, Kind::Flagged],
        gaps: &[Kind::SevereForwarded],
        ..NONE
    },
    Control {
        id: "CC6.7",
        title: "Confidential information in transmission",
        records: &[Kind::PiiSent, Kind::SecretSent],
        gaps: &[Kind::SecretSent, Kind::LeakReceived],
        ..NONE
    },
    Control {
        id: "CC7.2",
        title: "Operations are monitored for anomalies",
        records: &[Kind::Analysed],
        gaps: &[Kind::NotAnalysed],
        needs_records: true,
        ..NONE
    },
    Control {
        id: "CC7.3",
        title: "Security events are evaluated",
        records: &[Kind::Severe, Kind::DangerousAction],
        gaps: &[Kind::SevereForwarded],
        ..NONE
    },
    Control { id: "CC8.1", title: "Changes are recorded", events: CHANGES, needs_chain: true, ..NONE },
    Control {
        id: "A1.2",
        title: "Availability of the service towards its users",
        records: &[Kind::Recorded],
        gaps: &[Kind::ProviderFailed, Kind::Overloaded],
        needs_records: true,
        ..NONE
    },
];

const GDPR: &[Control] = &[
    Control {
        id: "Art. 5(1)(c)",
        title: "Data minimisation: personal data in what was sent",
        records: &[Kind::PiiSent],
        gaps: &[Kind::PiiSent],
        ..NONE
    },
    Control { id: "Art. 17", title: "Erasure", events: &["tenant.delete", "data.delete"], ..NONE },
    Control { id: "Art. 28", title: "Processors: exchanges with providers", records: &[Kind::Forwarded], ..NONE },
    Control {
        id: "Art. 30",
        title: "Records of processing activities",
        records: &[Kind::Recorded],
        gaps: &[Kind::Truncated],
        needs_records: true,
        ..NONE
    },
    Control {
        id: "Art. 32",
        title: "Security of processing",
        records: &[Kind::Analysed, Kind::Attack, Kind::Blocked],
        gaps: &[Kind::NotAnalysed, Kind::SevereForwarded],
        events: ACCESS,
        needs_chain: true,
        ..NONE
    },
    Control {
        id: "Art. 33",
        title: "Possible personal data breaches",
        records: &[Kind::LeakReceived],
        gaps: &[Kind::LeakReceived],
        ..NONE
    },
];

const HIPAA: &[Control] = &[
    Control {
        id: "164.308(a)(1)(ii)(D)",
        title: "Information system activity review",
        records: &[Kind::Recorded, Kind::Action],
        gaps: &[Kind::NotAnalysed],
        needs_records: true,
        ..NONE
    },
    Control {
        id: "164.308(a)(5)(ii)(B)",
        title: "Protection from malicious input",
        records: &[Kind::Attack, Kind::Blocked],
        gaps: &[Kind::SevereForwarded],
        ..NONE
    },
    Control {
        id: "164.308(a)(6)(ii)",
        title: "Response and reporting of security incidents",
        records: &[Kind::Severe, Kind::LeakReceived],
        gaps: &[Kind::LeakReceived],
        ..NONE
    },
    Control {
        id: "164.312(a)(1)",
        title: "Access control",
        records: &[Kind::Denied],
        events: ACCESS,
        needs_events: true,
        ..NONE
    },
    Control {
        id: "164.312(b)",
        title: "Audit controls",
        records: &[Kind::Recorded],
        gaps: &[Kind::Truncated],
        events: &[""],
        needs_records: true,
        needs_chain: true,
        ..NONE
    },
    Control {
        id: "164.312(e)(1)",
        title: "Transmission security: identifiers in what was sent",
        records: &[Kind::PiiSent, Kind::SecretSent],
        gaps: &[Kind::PiiSent, Kind::SecretSent],
        ..NONE
    },
];
