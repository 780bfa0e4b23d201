//! Promise: what the promotion gate lets a judge block is less wrong than what the judge alone would block. Shown with the embedded
//! classifier and with a scripted judge that errs as models do, asked about every text of the golden set that ships, one call per
//! text. The tables of docs/judge.md are what this test counts.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::support::{Answer, Call, Client, Driver, Gateway, Setup, Upstream, eventually, provider};

const SHIPPED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/config/golden_set");
const DOCUMENT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/judge.md");
/// Share of attacks a scripted judge recognises, and of harmless texts it takes for attacks, in percent.
const RECALL: usize = 65;
const FALSE_ALARMS: usize = 10;
/// What every call says beside its text, with a number, so that the judge is asked about it whatever the detectors find; and the rule
/// that finds it, with a severity that supports nobody.
const BESIDE: &str = "This belongs to project bluebird, number ";
const RULE: &str = "
rules:
  - id: project-name
    type: data_leakage
    severity: Low
    confidence: 0.95
    about: Names a project
    scope: [user]
    before: 16
    literals: [bluebird]
    pattern: 'project bluebird'
    hits: ['project bluebird']
    misses: ['a bluebird sings']
";

/// A text of the golden set.
struct Fixture {
    id: String,
    is_threat: bool,
    text: String,
}

fn golden() -> Vec<Fixture> {
    let inside =
        |folder: &Path| -> Vec<_> { fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect() };
    let folders = inside(Path::new(SHIPPED)).into_iter().filter(|path| path.is_dir());
    let mut files: Vec<_> = folders.flat_map(|folder| inside(&folder)).collect();
    files.sort();
    let read = |path: &std::path::PathBuf| {
        let fixture: Value = serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap();
        let text = |name: &str| fixture[name].as_str().unwrap().to_owned();
        Fixture { id: text("id"), is_threat: fixture["is_threat"].as_bool().unwrap(), text: text("text") }
    };
    files.iter().map(read).collect()
}

/// A number that belongs to a text and to nothing else: FNV-1a over its id.
fn lot(id: &str) -> u64 {
    let step = |hash: u64, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    id.bytes().fold(0xcbf2_9ce4_8422_2325, step) >> 16
}

/// Whether a judge with these error rates calls a text an attack, for each text of the golden set.
fn erring(fixtures: &[Fixture]) -> Vec<bool> {
    let calls = |fixture: &Fixture| {
        let of_kind = || fixtures.iter().filter(|other| other.is_threat == fixture.is_threat);
        let before = of_kind().filter(|other| lot(&other.id) < lot(&fixture.id)).count();
        before < of_kind().count() * if fixture.is_threat { RECALL } else { FALSE_ALARMS } / 100
    };
    fixtures.iter().map(calls).collect()
}

/// A judge that knows the golden set, and errs.
fn scripted() -> Upstream {
    let fixtures = golden();
    let judged = erring(&fixtures);
    Upstream::play(move |peer| {
        while let Some(request) = peer.request() {
            let asked: Value = serde_json::from_slice(&request.body).unwrap();
            let message: Value = serde_json::from_str(asked["messages"][1]["content"].as_str().unwrap()).unwrap();
            let key = format!("candidate_{}", message["boundary"].as_str().unwrap());
            let number: usize =
                message[&key][1]["text"].as_str().unwrap().strip_prefix(BESIDE).unwrap().parse().unwrap();
            let (fixture, calls) = (&fixtures[number], judged[number]);
            // Where it is wrong it is less sure, but often sure enough.
            let sure = if calls == fixture.is_threat { 0.75 } else { 0.55 } + (lot(&fixture.id) % 25) as f64 / 100.0;
            let verdict = json!({
                "is_threat": calls,
                "category": if calls { "prompt_injection" } else { "benign" },
                "confidence": sure,
                "security_score": if calls { 85 } else { 5 },
                "recommended_action": if calls { "block" } else { "allow" },
                "reasoning": "As scripted.",
            });
            let content = json!({"choices": [{"message": {"content": verdict.to_string()}}]}).to_string();
            peer.say(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{content}", content.len()));
        }
    })
}

/// What became of texts of one kind.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Row {
    texts: usize,
    /// That the judge would block.
    called: usize,
    /// That passed the gate.
    promoted: usize,
}

/// Attacks and harmless texts, each said to a gateway whose judge is set so.
fn confusion(judge: &str) -> [Row; 2] {
    let (provider, rules) = (provider(), tempfile::tempdir().unwrap());
    fs::write(rules.path().join("own.yaml"), RULE).unwrap();
    let settings = format!(
        "judge: {{enabled: true, min_score_threshold: 0, {judge}}}\n\
         action_router: {{enabled: true, default_actions: [judge_route]}}\nenforcement: {{mode: log}}\n\
         security_analysis: {{rules_dir: '{}'}}",
        rules.path().display()
    );
    let gateway = Setup::new(Driver::Auto).upstream(provider.url()).unlimited().with(&settings).start();
    let mut client = Client::connect(gateway.addr);
    let said: Vec<_> = golden()
        .into_iter()
        .enumerate()
        .map(|(number, fixture)| {
            let messages =
                [fixture.text, format!("{BESIDE}{number}")].map(|text| json!({"role": "user", "content": text}));
            let body = json!({"model": "gpt-4o-mini", "messages": messages}).to_string();
            client.say(Call::post("/v1/chat/completions", body).bytes());
            (fixture.is_threat, client.answer())
        })
        .collect();
    let verdicts = || gateway.metric("service_judge_verdicts_total", "");
    eventually("every text has a verdict", || (verdicts() >= said.len() as f64).then_some(()));
    let mut rows = [Row::default(); 2];
    for (is_threat, answer) in &said {
        let verdict = eventually("the verdict joins the record", || verdict_of(&gateway, answer));
        let row = &mut rows[usize::from(!is_threat)];
        row.texts += 1;
        row.called += usize::from(verdict["metadata"]["recommended_action"] == "block");
        row.promoted += usize::from(verdict["metadata"]["promotion"] == "promoted");
    }
    rows
}

fn verdict_of(gateway: &Gateway, answer: &Answer) -> Option<Value> {
    let span = gateway.trace_of(answer)["spans"][0].clone();
    span["security_findings"].as_array()?.iter().find(|finding| finding["finding_type"] == "llm_judge_verdict").cloned()
}

/// The gate lets through no more than the judge calls for, and the document has the table.
fn holds(name: &str, [attacks, harmless]: [Row; 2]) {
    assert_eq!((attacks.texts, harmless.texts), (69, 67));
    assert!(attacks.promoted <= attacks.called && harmless.promoted <= harmless.called);
    assert!(harmless.promoted * 20 <= harmless.texts, "at most one harmless text of twenty is blocked: {harmless:?}");
    assert!(attacks.promoted * 10 >= attacks.called * 9, "what is rightly called for passes: {attacks:?}");
    let row = |when: &str, blocked: fn(Row) -> usize| {
        let (hit, wrong) = (blocked(attacks), blocked(harmless));
        let (missed, passed) = (attacks.texts - hit, harmless.texts - wrong);
        format!("| {name}, {when} | {hit} | {missed} | {wrong} | {passed} |\n")
    };
    let table = [row("alone", |row| row.called), row("behind the gate", |row| row.promoted)].concat();
    let document = fs::read_to_string(DOCUMENT).unwrap();
    assert!(document.contains(&table), "docs/judge.md does not say what was counted:\n{table}");
}

#[test]
fn the_embedded_classifier_before_and_behind_the_gate() {
    holds("embedded classifier", confusion("backend: classifier"));
}

#[test]
fn a_judge_that_errs_before_and_behind_the_gate() {
    let backend = scripted();
    let rows = confusion(&format!("selfhosted: {{base_url: '{}'}}", backend.url()));
    let (fixtures, judged) = (golden(), erring(&golden()));
    let calls =
        |is_threat| fixtures.iter().zip(&judged).filter(|(text, calls)| text.is_threat == is_threat && **calls).count();
    assert_eq!(rows.map(|row| row.called), [calls(true), calls(false)], "it was asked about each of them");
    holds("scripted judge", rows);
    assert!(rows[1].promoted < rows[1].called, "wrong blocks are held back: {rows:?}");
}
