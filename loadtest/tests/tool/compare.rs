//! `compare`: its exit codes are a contract.

use serde_json::Value;

use crate::support::{Folder, said, tool};

#[test]
fn the_exit_code_says_whether_something_became_worse() {
    let folder = Folder::new();
    let output = tool(&format!(
        "run --rounds 3 --duration 100ms --warmup 0s --body-bytes 600 --json {}",
        folder.path("measured.json")
    ));
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    // How much the rounds of a busy machine differ is no part of the contract: each is the first one, with its times multiplied.
    let with_times = |factor: f64| {
        let mut results = folder.json("measured.json");
        for cell in results["cells"].as_array_mut().unwrap() {
            let mut round = cell["rounds"][0].clone();
            for figure in ["latency", "first_byte"] {
                for bucket in round[figure].as_array_mut().unwrap() {
                    bucket[0] = (bucket[0].as_f64().unwrap() * factor).into();
                }
            }
            cell["rounds"] = vec![round; 3].into();
        }
        folder.write(&format!("{factor}.json"), &results.to_string())
    };
    let (fast, slow) = (with_times(1.0), with_times(4.0));
    let same = tool(&format!("compare {fast} {fast}"));
    assert_eq!(same.status.code(), Some(0), "{}", said(&same));
    let worse = tool(&format!("compare {fast} {slow}"));
    assert!(worse.status.code() == Some(1) && said(&worse).contains("WORSE"), "{}", said(&worse));
    let better = tool(&format!("compare {slow} {fast} --threshold 0.2"));
    assert!(better.status.code() == Some(0) && said(&better).contains("better"), "{}", said(&better));
}

/// Three rounds that are the same, changed by `change`, as a file.
fn changed(folder: &Folder, name: &str, change: impl Fn(&mut Value)) -> String {
    if !std::path::Path::new(&folder.path("measured.json")).exists() {
        let json = folder.path("measured.json");
        let output = tool(&format!("run --rounds 1 --duration 100ms --warmup 0s --rate 100 --json {json}"));
        assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    }
    let mut results = folder.json("measured.json");
    for cell in results["cells"].as_array_mut().unwrap() {
        let round = cell["rounds"][0].clone();
        cell["rounds"] = vec![round; 3].into();
    }
    change(&mut results);
    folder.write(name, &results.to_string())
}

#[test]
fn other_loads_are_refused_by_field_and_missing_cells_are_named() {
    let folder = Folder::new();
    let before = changed(&folder, "before.json", |_| {});
    for (field, says) in
        [("load", "the load of `1 KB` on `direct` was"), ("sends", "what `1 KB` sends to `direct` was")]
    {
        let other = changed(&folder, "other.json", |results| results["cells"][0][field] = "another".into());
        let output = tool(&format!("compare {before} {other}"));
        assert!(output.status.code() == Some(2) && said(&output).contains(says), "{}", said(&output));
    }
    let fewer = changed(&folder, "fewer.json", |results| {
        results["cells"].as_array_mut().unwrap().pop();
    });
    let output = tool(&format!("compare {before} {fewer}"));
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    assert!(said(&output).contains("missing in the second run: `1 KB streamed` on `direct`"), "{}", said(&output));
    assert!(said(&output).contains("0 of "), "the last line counts: {}", said(&output));
    assert_eq!(tool(&format!("compare {before} {fewer} --allow-missing")).status.code(), Some(0));
}

/// Results of the version before this one have none of the newer fields.
#[test]
fn results_of_the_former_version_are_read() {
    let folder = Folder::new();
    let former = changed(&folder, "former.json", |results| {
        let newer = ["ramp", "command", "plan_text", "warmup_s", "provider", "notes"];
        newer.iter().for_each(|field| drop(results.as_object_mut().unwrap().remove(*field)));
        results["machine"].as_object_mut().unwrap().remove("load_before");
        for cell in results["cells"].as_array_mut().unwrap() {
            cell.as_object_mut().unwrap().remove("sends");
            for field in ["warmup_errors", "refused", "gone"] {
                cell["summary"].as_object_mut().unwrap().remove(field);
            }
            for round in cell["rounds"].as_array_mut().unwrap() {
                for field in ["sending_s", "answers", "warmup_errors", "refused", "gone"] {
                    round.as_object_mut().unwrap().remove(field);
                }
            }
        }
    });
    let now = changed(&folder, "now.json", |_| {});
    let output = tool(&format!("compare {former} {now} --threshold 10%"));
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
}

#[test]
fn what_cannot_be_compared_is_refused() {
    let folder = Folder::new();
    let plain = folder.write("plain.json", "{}");
    let output = tool(&format!("compare {plain} {plain}"));
    assert_eq!(output.status.code(), Some(2));
    assert!(said(&output).contains("make them with `weir-loadtest run --rounds 5 --json FILE`"), "{}", said(&output));
    assert_eq!(tool("compare /nowhere /nowhere").status.code(), Some(2));
    for threshold in ["99", "10", "much"] {
        let output = tool(&format!("compare {plain} {plain} --threshold {threshold}"));
        let text = said(&output);
        assert!(output.status.code() == Some(2) && text.contains("a share of 0 to 1, or 0% to 100%"), "{text}");
    }
}
