//! `compare`: its exit codes are a contract.

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

#[test]
fn what_cannot_be_compared_is_refused() {
    let folder = Folder::new();
    let plain = folder.write("plain.json", "{}");
    let output = tool(&format!("compare {plain} {plain}"));
    assert_eq!(output.status.code(), Some(2));
    assert!(said(&output).contains("make them with `weir-loadtest run --rounds 5 --json FILE`"), "{}", said(&output));
    assert_eq!(tool("compare /nowhere /nowhere").status.code(), Some(2));
    assert_eq!(tool(&format!("compare {plain} {plain} --threshold 99")).status.code(), Some(2));
}
