//! From what is written to a plan that can be run.

use std::fmt::Display;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use super::file::{LoadFile, PlanFile, WorkloadFile};
use super::recorded;
use super::types::{Kind, Load, Override, ProviderShape, Target, TestPlan, Workload};
use crate::error::SetupError;
use crate::hosts;
use crate::process::Subjects;
use crate::settings::{Arrivals, Mode, Plan, RequestDialect};

/// The name of the fake provider where the run starts it.
pub(crate) const DIRECT: &str = "direct";
const DURATION_MAX: Duration = Duration::from_secs(24 * 3600);
const RATE_MAX: f64 = 1_000_000.0;
const CONNECTIONS_MAX: u64 = 10_000;
const BODY_BYTES: (u64, u64) = (256, 64 << 20);
/// The length of a body where nobody says one.
const BODY_BYTES_USUAL: u64 = 1024;
const WORKLOADS_MAX: usize = 100;

/// Makes a plan of its text. Files that it names are looked for in `folder`.
pub(super) fn made(name: &str, text: &str, folder: &Path, over: Override) -> Result<TestPlan, SetupError> {
    let in_plan = |error: SetupError| SetupError(format!("plan {name}: {}", error.0));
    let file: PlanFile =
        serde_path_to_error::deserialize(serde_yaml::Deserializer::from_str(text)).map_err(|error| {
            let path = error.path().to_string();
            let place = if path == "." { String::new() } else { format!("{path}: ") };
            let says = error.into_inner().to_string();
            // The reader of YAML names the place too, but less exactly.
            let says = match says.split_once(": ") {
                Some((outer, rest)) if path.starts_with(outer) => rest,
                _ => says.as_str(),
            };
            SetupError(format!("plan {name}: {place}{says}"))
        })?;
    let kept = without_secrets(text, &file);
    let plan = whole(name, file, folder, over).map_err(in_plan)?;
    Ok(TestPlan { text: kept, ..plan })
}

/// The text of a plan without the values of its header fields, which may be keys.
fn without_secrets(text: &str, file: &PlanFile) -> String {
    let values = file.headers.values().filter(|value| !value.is_empty());
    values.fold(text.to_owned(), |text, value| text.replace(value.as_str(), "..."))
}

fn whole(name: &str, file: PlanFile, folder: &Path, over: Override) -> Result<TestPlan, SetupError> {
    let rounds = within("rounds", over.rounds.or(file.rounds).unwrap_or(5), 1, 1000)?;
    let length = |name, given: Option<Duration>, written: Option<super::file::Length>, otherwise, least| {
        duration_within(name, given.or(written.map(|it| it.0)).unwrap_or(otherwise), least)
    };
    let (second, millisecond) = (Duration::from_secs(1), Duration::from_millis(1));
    let duration = length("duration", over.duration, file.duration, 2 * second, millisecond)?;
    let warmup = length("warmup", over.warmup, file.warmup, second / 2, Duration::ZERO)?;
    let timeout = length("timeout", over.timeout, file.timeout, 10 * second, millisecond)?;
    let targets = targets(&file, &over)?;
    let baseline = over.baseline.clone().or(file.baseline.clone());
    let listen = over.provider.or(file.provider.listen.map(|it| it.0));
    let with_provider = targets.is_empty() || listen.is_some();
    let is_there =
        |name: &String| (with_provider && name == DIRECT) || targets.iter().any(|target| target.name == *name);
    if let Some(name) = baseline.as_ref().filter(|name| !is_there(name)) {
        let also = if with_provider && !targets.is_empty() { ", direct" } else { "" };
        let names = if targets.is_empty() { DIRECT.to_owned() } else { names(&targets) };
        return Err(SetupError(format!("baseline is `{name}`; accepted are the targets' names: {names}{also}")));
    }
    if let (Some(rate), Some(Mode::Closed)) = (over.rate, over.mode) {
        return Err(SetupError(format!("--rate {rate} has no meaning in a closed loop; leave out --mode closed")));
    }
    refuse_one_length(&file, &over)?;
    if file.workloads.len() > WORKLOADS_MAX {
        return Err(SetupError(format!("workloads are {}; accepted are up to {WORKLOADS_MAX}", file.workloads.len())));
    }
    if file.workloads.is_empty() {
        return Err(SetupError(
            "workloads: there is none; add one, as in `workloads: [{name: small, body: 1 KB}]`".to_owned(),
        ));
    }
    let mut workloads = Vec::new();
    for (number, written) in file.workloads.iter().enumerate() {
        let workload = workload(&format!("workloads[{number}]"), number, written, &file.load, (folder, &over))?;
        if workloads.iter().any(|other: &Workload| other.name == workload.name) {
            return Err(SetupError(format!(
                "workloads[{number}].name is `{}`, as another's; give each its own",
                workload.name
            )));
        }
        workloads.push(workload);
    }
    if let Some(listen) = listen {
        hosts::require_loopback("provider.listen", listen.ip(), None)?;
        if targets.iter().any(|target| target.name == DIRECT) {
            return Err(SetupError(format!(
                "target `{DIRECT}` is the provider that the run starts; give it another name or none"
            )));
        }
    }
    let provider = ProviderShape {
        listen,
        answer_bytes: counted("provider.answer_bytes", file.provider.answer_bytes.map(|it| it.0), 1024, 512, 64 << 20)?,
        frames: counted("provider.frames", file.provider.frames.map(|it| it.0), 50, 1, 100_000)?,
        frame_ms: counted("provider.frame_ms", file.provider.frame_ms.map(|it| it.0), 10, 0, 60_000)?,
        delay_ms: counted("provider.delay_ms", file.provider.delay_ms.map(|it| it.0), 0, 0, 60_000)?,
        cores: within("provider.cores", file.provider.cores.unwrap_or(1), 1, 64)?,
    };
    let is_secure = targets.iter().any(|target| target.place.secure_name.is_some());
    let trusted = is_secure.then(|| over.trusted.config()).transpose()?;
    let headers = file.headers.into_iter().chain(over.headers).collect();
    Ok(TestPlan {
        name: name.to_owned(),
        targets,
        workloads,
        rounds,
        duration,
        warmup,
        timeout,
        baseline,
        provider,
        ramp: over.ramp,
        seed: over.seed.or(file.seed).unwrap_or(1),
        keep_alive: !over.close && file.keep_alive.unwrap_or(true),
        headers,
        trusted,
        text: String::new(),
        command: over.command,
        notes: over.notes,
    })
}

/// A number that was written, or this one, within bounds.
fn counted(field: &str, written: Option<u64>, otherwise: u64, least: u64, most: u64) -> Result<u32, SetupError> {
    let value = within(field, written.unwrap_or(otherwise), least, most)?;
    // The bounds are far below.
    Ok(u32::try_from(value).unwrap_or(u32::MAX))
}

/// `--body-bytes` gives all workloads one length; where that takes away what tells them apart, it is a mistake.
fn refuse_one_length(file: &PlanFile, over: &Override) -> Result<(), SetupError> {
    let Some(bytes) = over.body_bytes else { return Ok(()) };
    let parts = || {
        file.workloads.iter().flat_map(|workload| {
            if workload.mix.is_empty() { std::slice::from_ref(workload).iter() } else { workload.mix.iter() }
        })
    };
    let what = "change `body:` in a copy of the plan (`weir-loadtest plan NAME` prints one)";
    if let Some(part) = parts().find(|part| part.session || part.recorded.is_some()) {
        let name = part.name.as_deref().unwrap_or("a workload");
        return Err(SetupError(format!(
            "--body-bytes has no meaning for `{name}`, whose requests have lengths of their own; {what}"
        )));
    }
    let lengths: std::collections::BTreeSet<u64> =
        parts().map(|part| part.body.map_or(BODY_BYTES_USUAL, |size| size.0)).collect();
    match lengths.len() {
        0 | 1 => Ok(()),
        _ => Err(SetupError(format!(
            "--body-bytes would make all workloads of the plan the same, {bytes} bytes; {what}"
        ))),
    }
}

fn targets(file: &PlanFile, over: &Override) -> Result<Vec<Target>, SetupError> {
    let written =
        file.targets.iter().map(|target| (target.name.clone(), target.url.clone(), target.process.as_deref()));
    let given = over.targets.iter().map(|(name, url)| (name.clone(), url.clone(), None));
    let all: Vec<_> = if over.targets.is_empty() { written.collect() } else { given.collect() };
    let mut targets: Vec<Target> = Vec::new();
    for (name, url, process) in all {
        if targets.iter().any(|other| other.name == name) {
            return Err(SetupError(format!(
                "target `{name}` is there twice; give each its own name, as in --target NAME=URL"
            )));
        }
        let place = hosts::place(&format!("target {name}"), &url, &over.allowed_hosts)?;
        let subjects = process.map(|process| subjects(&format!("target {name}: process"), process)).transpose()?;
        targets.push(Target { name, url, place, subjects: subjects.unwrap_or_default() });
    }
    for (name, subjects) in &over.processes {
        match targets.iter_mut().find(|target| target.name == *name) {
            Some(target) => target.subjects.clone_from(subjects),
            None => {
                return Err(SetupError(format!(
                    "--process names `{name}`; accepted are the targets' names: {}",
                    names(&targets)
                )));
            }
        }
    }
    Ok(targets)
}

fn names(targets: &[Target]) -> String {
    match targets {
        [] => "there is none, add --target NAME=URL".to_owned(),
        _ => targets.iter().map(|target| target.name.as_str()).collect::<Vec<_>>().join(", "),
    }
}

/// `PID`, `PID,PID` or `cgroup:FOLDER`. The children of processes count with them.
pub(crate) fn subjects(field: &str, text: &str) -> Result<Subjects, SetupError> {
    if let Some(folder) = text.strip_prefix("cgroup:") {
        return Ok(Subjects { groups: vec![folder.into()], ..Subjects::default() });
    }
    // Blanks stand between them where `pidof` has printed several.
    let pids = text.split([',', ' ', '\n']).filter(|pid| !pid.is_empty()).map(str::parse);
    let pids: Result<Vec<u32>, _> =
        if text.trim().is_empty() { "".parse().map(|pid| vec![pid]) } else { pids.collect() };
    let pids = pids.map_err(|_| {
        SetupError(format!(
            "{field} is `{text}`; accepted is PID, PID,PID or cgroup:FOLDER, as in cgroup:/sys/fs/cgroup/weir"
        ))
    })?;
    Ok(Subjects { pids, with_children: true, groups: Vec::new() })
}

fn workload(
    field: &str,
    number: usize,
    written: &WorkloadFile,
    general: &LoadFile,
    (folder, over): (&Path, &Override),
) -> Result<Workload, SetupError> {
    if written.weight.is_some() {
        return Err(SetupError(format!("{field}.weight stands in a mix only; put the kinds below `mix:`")));
    }
    let mut name = written.name.clone().unwrap_or_else(|| format!("workload {}", number + 1));
    if let Some(bytes) = over.body_bytes {
        name = format!("{name}, now {bytes} bytes");
    }
    if !written.mix.is_empty() {
        refuse_unheeded(field, written, "a mix", "put it into the kinds below `mix:`")?;
    }
    let load = load(&format!("{field}.load"), &written.load, general, over)?;
    let mut kinds = Vec::new();
    for (at, part) in written.mix.iter().enumerate() {
        let field = format!("{field}.mix[{at}]");
        if !part.mix.is_empty() {
            return Err(SetupError(format!("{field}.mix: a mix holds no other mix")));
        }
        let weight = counted(&format!("{field}.weight"), part.weight.map(|it| it.0), 1, 1, 1_000_000)?;
        let kind = kind(&field, part, folder, over)?;
        if kinds.iter().any(|(_, other): &(u32, Kind)| other.name == kind.name) {
            return Err(SetupError(format!("{field}.name is `{}`, as another's; give each its own", kind.name)));
        }
        kinds.push((weight, kind));
    }
    if kinds.is_empty() {
        kinds.push((1, kind(field, written, folder, over)?));
    }
    Ok(Workload { name, kinds, load })
}

fn kind(field: &str, written: &WorkloadFile, folder: &Path, over: &Override) -> Result<Kind, SetupError> {
    let plan = match (&written.recorded, written.session) {
        (Some(_), true) => {
            return Err(SetupError(format!("{field} has both `session` and `recorded`; leave one out")));
        }
        (Some(_), false) => Plan::Recorded,
        (None, true) => Plan::Session,
        (None, false) => Plan::Bodies,
    };
    match plan {
        Plan::Session => {
            refuse_unheeded(field, written, "a session", "leave it out: its turns grow from 4 KB to 400 KB with tools")?
        }
        Plan::Recorded if written.stream => {
            return Err(SetupError(format!(
                "{field}.stream has no meaning for recorded requests; leave it out: each says so itself"
            )));
        }
        Plan::Recorded => {
            refuse_unheeded(field, written, "recorded requests", "leave it out: they are sent as they were")?
        }
        Plan::Bodies => {}
    }
    let dialect = written.dialect.or(over.dialect).unwrap_or(RequestDialect::Chat);
    let recorded = match &written.recorded {
        Some(file) => recorded::read(&folder.join(file), dialect)?,
        None => Vec::new(),
    };
    let body = over.body_bytes.map(u64::from).or(written.body.map(|size| size.0)).unwrap_or(BODY_BYTES_USUAL);
    if !(BODY_BYTES.0..=BODY_BYTES.1).contains(&body) {
        return Err(SetupError(format!(
            "{field}.body is {body}; accepted are {} bytes to 64 MB, as a number or with KB or MB as in 4 KB",
            BODY_BYTES.0
        )));
    }
    let history = written.history.map(|share| share.0);
    if let Some(share) = history.filter(|share| !(0.0..=0.95).contains(share)) {
        return Err(SetupError(format!(
            "{field}.history is {share}; accepted are 0 to 0.95, the share that was sent before"
        )));
    }
    let stream = written.stream || over.stream;
    let streamed = if stream { ", streamed" } else { "" };
    let described = match &written.recorded {
        Some(file) => format!("recorded in {file}"),
        None if written.session => format!("{} session{streamed}", dialect.name()),
        None => format!("{} {body} bytes{streamed}", dialect.name()),
    };
    Ok(Kind {
        name: written.name.clone().unwrap_or(described),
        plan,
        dialect,
        body_bytes: usize::try_from(body).unwrap_or(usize::MAX),
        stream,
        tools: written.tools,
        image: written.image,
        history,
        recorded: Rc::from(recorded),
    })
}

/// Fields of a workload's bodies where there are none of that kind.
fn refuse_unheeded(field: &str, written: &WorkloadFile, what: &str, instead: &str) -> Result<(), SetupError> {
    let given = [
        ("body", written.body.is_some()),
        ("tools", written.tools),
        ("image", written.image),
        ("history", written.history.is_some()),
    ];
    match given.iter().find(|(_, is_given)| *is_given) {
        Some((name, _)) => Err(SetupError(format!("{field}.{name} has no meaning for {what}; {instead}"))),
        None => Ok(()),
    }
}

fn load(field: &str, own: &LoadFile, general: &LoadFile, over: &Override) -> Result<Load, SetupError> {
    let rate = over.rate.or(own.rate).or(general.rate);
    let stated = over.mode.or(own.mode).or(general.mode);
    // Who gives a rate and says no more wants that rate.
    let mode = if over.rate.is_some() && over.mode.is_none() { Some(Mode::Open) } else { stated };
    let mode = mode.unwrap_or(if rate.is_some() { Mode::Open } else { Mode::Closed });
    let rate_per_s = match (mode, rate) {
        (Mode::Closed, _) => 0.0,
        (Mode::Open, Some(rate)) => rate_within(&format!("{field}.rate"), rate)?,
        (Mode::Open, None) => {
            return Err(SetupError(format!(
                "{field}.mode is open, and there is no rate; add `rate: 100`, requests per second"
            )));
        }
    };
    let written = own.connections.or(general.connections).map(|it| it.0);
    let connections = over.connections.map(u64::from).or(written);
    let connections = counted(&format!("{field}.connections"), connections, 16, 1, CONNECTIONS_MAX)? as usize;
    let arrivals = over.arrivals.or(own.arrivals).or(general.arrivals).unwrap_or(Arrivals::Constant);
    Ok(Load { mode, rate_per_s, arrivals, connections })
}

/// A rate that can be asked for.
pub(crate) fn rate_within(field: &str, rate: f64) -> Result<f64, SetupError> {
    match (0.1..=RATE_MAX).contains(&rate) {
        true => Ok(rate),
        false => Err(SetupError(format!("{field} is {rate}; accepted are 0.1 to {RATE_MAX} per second"))),
    }
}

fn within<T: PartialOrd + Display>(field: &str, value: T, least: T, most: T) -> Result<T, SetupError> {
    match value >= least && value <= most {
        true => Ok(value),
        false => Err(SetupError(format!("{field} is {value}; accepted are {least} to {most}"))),
    }
}

/// A time between `least` and a day.
pub(crate) fn duration_within(field: &str, value: Duration, least: Duration) -> Result<Duration, SetupError> {
    match (least..=DURATION_MAX).contains(&value) {
        true => Ok(value),
        false => Err(SetupError(format!("{field} is {value:?}; accepted are {least:?} to 24 hours"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made_of(text: &str) -> Result<TestPlan, String> {
        made("p.yaml", text, Path::new("."), Override::default()).map_err(|error| error.0)
    }

    #[test]
    fn what_is_wrong_is_said_with_field_value_range_and_what_to_do() {
        for (text, says) in [
            ("workloads: [{body: 12}]", "plan p.yaml: workloads[0].body is 12; accepted are 256 bytes to 64 MB"),
            (
                "workloads: [{body: 4 XB}]",
                "plan p.yaml: workloads[0].body: it is `4 XB`; accepted is a number of bytes",
            ),
            ("duration: 5", "plan p.yaml: duration: "),
            ("duration: 5 parsecs", "it is `5 parsecs`; accepted is a number with ms, s, m or h"),
            ("workloads: [{bodies: 3}]", "workloads[0].bodies: unknown field `bodies`, expected one of `name`"),
            ("rounds: 3", "workloads: there is none; add one"),
            (
                "load: {mode: open}\nworkloads: [{body: 1 KB}]",
                "workloads[0].load.mode is open, and there is no rate; add `rate: 100`",
            ),
            ("load: {rate: 0}\nworkloads: [{body: 1 KB}]", "workloads[0].load.rate is 0; accepted are 0.1 to 1000000"),
            ("workloads: [{body: 1 KB, weight: 3}]", "workloads[0].weight stands in a mix only"),
            ("workloads: [{mix: [{mix: [{body: 300}]}]}]", "workloads[0].mix[0].mix: a mix holds no other mix"),
            ("workloads: [{mix: [{weight: 0}]}]", "workloads[0].mix[0].weight is 0; accepted are 1 to 1000000"),
            (
                "workloads: [{mix: [{body: 300}, {body: 300}]}]",
                "workloads[0].mix[1].name is `chat 300 bytes`, as another's",
            ),
            ("workloads: [{name: a}, {name: a}]", "workloads[1].name is `a`, as another's; give each its own"),
            ("workloads: [{history: 2}]", "workloads[0].history is 2; accepted are 0 to 0.95"),
            ("workloads: [{session: true, recorded: x}]", "workloads[0] has both `session` and `recorded`"),
            ("baseline: x\nworkloads: [{}]", "baseline is `x`; accepted are the targets' names: direct"),
            (
                "provider: {answer_bytes: 2 XB}\nworkloads: [{}]",
                "provider.answer_bytes: it is `2 XB`; accepted is a number of bytes",
            ),
            (
                "provider: {delay_ms: 5 parsecs}\nworkloads: [{}]",
                "provider.delay_ms: it is `5 parsecs`; accepted is a number of milliseconds",
            ),
            ("provider: {frames: many}\nworkloads: [{}]", "provider.frames: it is `many`; accepted is a whole number"),
            (
                "workloads: [{mix: [{weight: -1}]}]",
                "workloads[0].mix[0].weight: it is `-1`; accepted is a whole number",
            ),
            (
                "workloads: [{history: much}]",
                "workloads[0].history: it is `much`; accepted is a share of 0 to 1, or 0% to 100%",
            ),
            (
                "workloads: [{session: true, body: 1 KB}]",
                "workloads[0].body has no meaning for a session; leave it out",
            ),
            ("workloads: [{session: true, tools: true}]", "workloads[0].tools has no meaning for a session"),
            ("workloads: [{recorded: x, stream: true}]", "workloads[0].stream has no meaning for recorded requests"),
            (
                "workloads: [{body: 1 KB, mix: [{body: 300}]}]",
                "workloads[0].body has no meaning for a mix; put it into the kinds",
            ),
            (
                "targets: [{name: a, url: 'ftp://x'}]\nworkloads: [{}]",
                "target a is `ftp://x`; accepted is http://HOST:PORT",
            ),
            ("targets: [{name: a, url: 'http://192.0.2.1'}]\nworkloads: [{}]", "add --i-may-load-this-host 192.0.2.1"),
            ("provider: {frames: 0}\nworkloads: [{}]", "provider.frames is 0; accepted are 1 to 100000"),
        ] {
            let error = made_of(text).unwrap_err();
            assert!(error.contains(says), "{text}: {error}");
        }
    }

    #[test]
    fn numbers_are_read_as_people_write_them() {
        let plan = made_of(
            "provider: {answer_bytes: 2 KB, delay_ms: 5ms, frame_ms: 7}\nload: {connections: 3}\nworkloads: [{body: 4 KB, history: 80%}]",
        );
        let plan = plan.unwrap();
        assert_eq!((plan.provider.answer_bytes, plan.provider.delay_ms, plan.provider.frame_ms), (2048, 5, 7));
        assert_eq!((plan.workloads[0].kinds[0].1.history, plan.workloads[0].load.connections), (Some(0.8), 3));
    }

    #[test]
    fn the_plan_is_kept_without_the_values_of_its_header_fields() {
        let plan = made_of("headers: {authorization: Bearer s3cret}\nworkloads: [{name: a}]").unwrap();
        assert!(plan.text.contains("authorization: ...") && !plan.text.contains("s3cret"), "{}", plan.text);
        assert!(plan.text.contains("name: a"));
    }

    #[test]
    fn a_workloads_load_goes_before_the_plans_and_the_command_line_before_both() {
        let text =
            "load: {rate: 9, connections: 3}\nworkloads: [{name: a, load: {rate: 5}}, {name: b, load: {mode: closed}}]";
        let plan = made_of(text).unwrap();
        let load = |plan: &TestPlan, at: usize| (plan.workloads[at].load.mode, plan.workloads[at].load.rate_per_s);
        assert_eq!((load(&plan, 0), load(&plan, 1)), ((Mode::Open, 5.0), (Mode::Closed, 0.0)));
        assert_eq!(plan.workloads[0].load.connections, 3);
        let over = Override { rate: Some(70.0), ..Override::default() };
        let plan = made("p", text, Path::new("."), over).unwrap();
        assert_eq!((load(&plan, 0), load(&plan, 1)), ((Mode::Open, 70.0), (Mode::Open, 70.0)));
    }

    #[test]
    fn processes_are_named_by_number_or_by_group() {
        let group = subjects("--process", "cgroup:/sys/fs/cgroup/x").unwrap();
        assert!(group.pids.is_empty() && group.groups.len() == 1);
        assert_eq!(subjects("--process", "1,2").unwrap().pids, [1, 2]);
        assert_eq!(subjects("--process", "12 34\n").unwrap().pids, [12, 34]);
        assert!(subjects("--process", "").is_err(), "what pidof prints where nothing runs");
        assert!(subjects("--process", "x").unwrap_err().0.starts_with("--process is `x`; accepted is PID"));
    }
}
