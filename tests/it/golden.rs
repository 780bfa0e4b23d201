//! Promise: the golden set that ships is judged as it says, the replay reports it as specified, and a set with a mistake in it is
//! refused by name.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::support::{Answer, Call, Client, Driver, Gateway, Setup, on_both_drivers_in_full, provider};

const PATH: &str = "/debug/judge/golden_set/replay";
const SHIPPED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/config/golden_set");
/// The drift alerts fire below and above these.
const ALIGNMENT_MIN: f64 = 0.85;
const FALSE_POSITIVES_MAX: f64 = 0.25;

fn debugging(driver: Driver, root: Option<&str>) -> Gateway {
    let setup = Setup::new(driver).upstream("http://127.0.0.1:9").server("debug_endpoints: true");
    root.map_or(setup.clone(), |root| setup.env("SERVICE_GOLDEN_SET_PATH", root)).start()
}

fn replay(gateway: &Gateway) -> Answer {
    let mut client = Client::connect(gateway.addr).patient();
    client.say(Call::get(PATH).bytes());
    client.answer()
}

/// What the files themselves say: per category its attacks and its harmless texts.
fn shipped() -> Vec<(String, usize, usize)> {
    let mut folders: Vec<_> = fs::read_dir(SHIPPED).unwrap().map(|entry| entry.unwrap().path()).collect();
    folders.retain(|path| path.is_dir());
    folders.sort();
    let threats = |folder: &Path| {
        let files = fs::read_dir(folder).unwrap().map(|entry| fs::read_to_string(entry.unwrap().path()).unwrap());
        let parsed = files.map(|text| serde_json::from_str::<Value>(&text).unwrap()["is_threat"].as_bool().unwrap());
        parsed.collect::<Vec<bool>>()
    };
    let count = |all: &[bool], wanted: bool| all.iter().filter(|is_threat| **is_threat == wanted).count();
    let name = |path: &Path| path.file_name().unwrap().to_str().unwrap().to_owned();
    folders
        .iter()
        .map(|path| (path, threats(path)))
        .map(|(path, all)| (name(path), count(&all, true), count(&all, false)))
        .collect()
}

on_both_drivers_in_full! {
    fn the_shipped_set_is_judged_as_it_says(driver) {
        let gateway = debugging(driver, Some(SHIPPED));
        let before = gateway.metrics();
        assert!(!before.contains("\nservice_judge_golden_set_last_replay_timestamp_seconds "), "{before}");
        let report = replay(&gateway).json();
        let expected = shipped();
        let total: usize = expected.iter().map(|(_, threats, benign)| threats + benign).sum();
        assert!(total >= 120, "{total}");
        assert_eq!((&report["fixture_root"], &report["total_entries"]), (&json!(SHIPPED), &json!(total)));
        let categories = report["categories"].as_array().unwrap();
        let names: Vec<&str> = categories.iter().map(|category| category["category"].as_str().unwrap()).collect();
        assert_eq!(names, expected.iter().map(|(name, ..)| name.as_str()).collect::<Vec<_>>());
        let mut disagreements = 0;
        for (category, (name, threats, benign)) in categories.iter().zip(&expected) {
            assert_eq!((&category["n_threats"], &category["n_benign"]), (&json!(threats), &json!(benign)), "{name}");
            let (agreed, wrong) = (category["agreed"].as_u64().unwrap(), category["false_positives"].as_u64().unwrap());
            disagreements += *threats as u64 - agreed + wrong;
            let label = format!("category=\"{name}\"");
            for (rate, count, of, gauge) in [
                ("alignment_rate", agreed, *threats, "service_judge_golden_set_alignment"),
                ("false_positive_rate", wrong, *benign, "service_judge_golden_set_false_positive_rate"),
            ] {
                if of == 0 {
                    assert_eq!(category[rate], Value::Null, "{name}");
                    assert!(!gateway.metrics().contains(&format!("{gauge}{{{label}}}")), "{name}");
                } else {
                    assert_eq!(category[rate].as_f64().unwrap(), count as f64 / of as f64, "{name}");
                    assert_eq!(gateway.metric(gauge, &label), count as f64 / of as f64, "{name}");
                }
            }
            let (aligned, wrongly) = (category["alignment_rate"].as_f64(), category["false_positive_rate"].as_f64());
            let said = &report["disagreement_ids"];
            assert!(aligned.is_none_or(|rate| rate >= ALIGNMENT_MIN), "{name}: {category}, {said}");
            assert!(wrongly.is_none_or(|rate| rate <= FALSE_POSITIVES_MAX), "{name}: {category}, {said}");
        }
        assert_eq!(report["disagreement_ids"].as_array().unwrap().len() as u64, disagreements);
        assert!(gateway.metric("service_judge_golden_set_last_replay_timestamp_seconds", "") > 1.7e9);
    }

    fn a_set_with_a_mistake_is_refused_by_name(driver) {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().to_str().unwrap();
        let gateway = debugging(driver, Some(root));
        let write = |name: &str, id: &str, category: &str| {
            let fixture = json!({"id": id, "category": category, "is_threat": false, "text": "Hello", "rationale": "none"});
            fs::create_dir_all(folder.path().join("a")).unwrap();
            fs::write(folder.path().join(format!("a/{name}.json")), fixture.to_string()).unwrap();
        };
        let refused = |what: &str| {
            let answer = replay(&gateway);
            assert_eq!(answer.status, 503, "{}", answer.text());
            let message = answer.json()["error"]["message"].as_str().unwrap().to_owned();
            assert!(message.contains(what), "{message}");
        };
        refused("SERVICE_GOLDEN_SET_PATH");
        write("one", "one", "a");
        assert_eq!(replay(&gateway).json()["total_entries"], 1);
        write("two", "three", "a");
        refused("two.json` is no fixture: its `id` is \"three\" and its file is named \"two\"");
        write("two", "two", "b");
        refused("two.json` is no fixture: its `category` is \"b\" and its folder is named \"a\"");
        // What the last good replay said stays.
        assert_eq!(gateway.metric("service_judge_golden_set_false_positive_rate", "category=\"a\""), 0.0);
        write("two", "two", "a");
        assert_eq!(replay(&gateway).json()["total_entries"], 2);
    }

    fn it_is_there_only_where_it_was_switched_on(driver) {
        let unset = debugging(driver, None);
        let answer = replay(&unset);
        assert_eq!(answer.status, 503);
        assert!(answer.text().contains("SERVICE_GOLDEN_SET_PATH is not set"), "{}", answer.text());
        let provider = provider();
        let setup = Setup::new(driver).upstream(provider.url()).env("SERVICE_GOLDEN_SET_PATH", SHIPPED);
        let off = setup.start();
        let answer = replay(&off);
        assert_eq!((answer.status, &answer.json()["error"]["type"]), (404, &json!("not_found")));
    }
}
