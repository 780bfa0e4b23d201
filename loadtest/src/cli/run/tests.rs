//! What the arguments of `run` come to.

use clap::Parser as _;

use super::super::{Cli, Command};
use super::*;

fn work(args: &str) -> Result<Work, String> {
    let cli = Cli::try_parse_from(format!("weir-loadtest run {args}").split_whitespace());
    match cli.map_err(|error| error.to_string())?.command {
        Command::Run(args) => args.work().map_err(|error| error.to_string()),
        _ => Err("not a run".to_owned()),
    }
}

fn once(args: &str) -> Result<Settings, String> {
    match work(args)? {
        Work::Once(settings, _) => Ok(*settings),
        Work::Rounds(..) => Err("rounds".to_owned()),
    }
}

fn rounds(args: &str) -> Result<TestPlan, String> {
    match work(args)? {
        Work::Rounds(plan, _) => Ok(*plan),
        Work::Once(..) => Err("once".to_owned()),
    }
}

#[test]
fn one_target_without_a_name_is_one_measurement() {
    let settings = once("--target http://127.0.0.1:9/a/b/ --mode open --rate 6000 --duration 1500ms").unwrap();
    assert_eq!((settings.authority.as_str(), settings.path_prefix.as_str()), ("127.0.0.1:9", "/a/b"));
    assert_eq!((settings.rate_per_s, settings.duration), (6000.0, Duration::from_millis(1500)));
    assert!(settings.unique && settings.connections == 64 && settings.body_bytes == 1000 && settings.sends_first);
    assert!(once("--target http://127.0.0.1:9 --plan session").unwrap().plan == Plan::Session);
}

#[test]
fn names_plans_and_rounds_make_rounds_and_so_does_no_target() {
    let plan = rounds("").unwrap();
    assert!(plan.targets.is_empty() && plan.name == "quick" && plan.rounds == 5);
    let plan = rounds("--target a=http://127.0.0.1:9 --target b=http://127.0.0.1:8 --process a=1,2 --rate 70").unwrap();
    let names: Vec<&str> = plan.targets.iter().map(|target| target.name.as_str()).collect();
    assert_eq!((names, plan.targets[0].subjects.pids.clone()), (vec!["a", "b"], vec![1, 2]));
    assert!(plan.workloads.iter().all(|workload| workload.load.rate_per_s == 70.0));
    let plan = rounds("--target http://127.0.0.1:9 --rounds 3 --plan session").unwrap();
    assert_eq!((plan.targets[0].name.as_str(), plan.rounds), ("target", 3));
    let ramp = rounds("--ramp 10:1000 --ramp-steps 4").unwrap().ramp.unwrap();
    assert_eq!((ramp.from, ramp.to, ramp.steps), (10.0, 1000.0, 4));
}

#[test]
fn the_command_is_kept_without_the_values_of_header_fields() {
    let args =
        ["weir-loadtest", "run", "--header", "Authorization: Bearer s3cret", "--header=x-key: k3y", "--rate", "5"];
    let shown = command(args.iter().map(|arg| (*arg).to_owned()));
    assert_eq!(shown, "weir-loadtest run --header 'Authorization: ...' --header='x-key: ...' --rate 5");
}

#[test]
fn addresses_and_lengths_are_read_as_people_write_them() {
    let plan = rounds("--provider localhost:9390 --body-bytes 2KB --plan quick").unwrap();
    assert_eq!(plan.provider.listen.unwrap().to_string(), "127.0.0.1:9390");
    assert_eq!(plan.workloads[0].name, "1 KB, now 2048 bytes", "no name says another length");
    assert_eq!(plan.workloads[0].kinds[0].1.body_bytes, 2048);
    let line = "--target weir=http://127.0.0.1:9 --process";
    let cli =
        Cli::try_parse_from(["weir-loadtest", "run"].into_iter().chain(line.split_whitespace()).chain(["weir=12 34"]));
    let Command::Run(args) = cli.unwrap().command else { panic!() };
    let Ok(Work::Rounds(plan, _)) = args.work() else { panic!() };
    assert_eq!(plan.targets[0].subjects.pids, [12, 34], "as pidof prints several");
}

#[test]
fn errors_name_the_argument_and_what_is_accepted() {
    for (args, part) in [
        ("--target ftp://127.0.0.1:9", "accepted is http://HOST:PORT or https://HOST:PORT"),
        ("--target https://127.0.0.1:9 --ca /nowhere", "--ca /nowhere: "),
        ("--target http://192.0.2.1:80", "add --i-may-load-this-host 192.0.2.1"),
        ("--target a=http://192.0.2.1:80", "add --i-may-load-this-host 192.0.2.1"),
        ("--target http://127.0.0.1:9 --mode open", "--mode open needs --rate"),
        ("--target http://127.0.0.1:9 --mode closed --rate 5", "--rate 5 has no meaning in a closed loop"),
        ("--target http://127.0.0.1:9 --rate 0", "accepted are 0.1 to 1000000 per second"),
        ("--target http://127.0.0.1:9 --mode open --rate 0", "accepted are 0.1 to 1000000 per second"),
        ("--target http://127.0.0.1:9 --duration 5", "accepted is a number with ms, s, m or h"),
        ("--target http://127.0.0.1:9 --duration 0s", "--duration is 0ns; accepted are 1ms to 24 hours"),
        ("--target http://127.0.0.1:9 --connections 0", "1..=10000"),
        ("--target http://127.0.0.1:9 --header x", "accepted is `Name: value`"),
        ("--target http://127.0.0.1:9 --gzip", "--stream"),
        ("--ramp 100:10", "accepted is a lower rate before a higher one"),
        ("--ramp 100", "accepted is FROM:TO"),
        ("--process x=1", "--process names `x`; accepted are the targets' names: there is none"),
        ("--pid 1", "--pid is for one measurement"),
        ("--plan nothing", "accepted are quick, sizes, streams, session, mix or the path of a YAML file"),
        ("--target a=http://127.0.0.1:9 --target a=http://127.0.0.1:8", "target `a` is there twice"),
        ("--provider 0.0.0.0:9 --target a=http://127.0.0.1:9", "provider.listen is 0.0.0.0; only loopback"),
        (
            "--provider 127.0.0.1:9 --target direct=http://127.0.0.1:9",
            "target `direct` is the provider that the run starts",
        ),
        ("--baseline b --target a=http://127.0.0.1:9", "baseline is `b`; accepted are the targets' names: a"),
        ("--baseline direct --target a=http://127.0.0.1:9", "baseline is `direct`; accepted are the targets' names: a"),
        (
            "--baseline b --provider 127.0.0.1:9 --target a=http://127.0.0.1:9",
            "baseline is `b`; accepted are the targets' names: a, direct",
        ),
        ("--plan bodies --rounds 1", "--plan bodies is for one measurement"),
        ("--plan sizes --body-bytes 2000", "--body-bytes would make all workloads of the plan the same"),
        ("--plan session --rounds 2 --body-bytes 2000", "--body-bytes has no meaning for `agent session`"),
        ("--rate 10 --mode closed", "--rate 10 has no meaning in a closed loop; leave out --mode closed"),
        ("--provider nowhere", "accepted is ADDRESS:PORT, as in 127.0.0.1:9000, or a port alone"),
        ("--body-bytes 1XB", "accepted is a number of bytes, or one with KB or MB"),
        ("--body-bytes 1", "accepted are 256 to 67108864 bytes"),
    ] {
        let error = work(args).map(|_| ()).unwrap_err();
        assert!(error.contains(part), "{args}: {error}");
    }
}
