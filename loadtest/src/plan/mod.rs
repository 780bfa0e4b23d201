//! What a run does: which targets, which requests, which load, how often. From YAML, with what the command line says on top.
//!
//! Invariant: a plan that was made is whole and within bounds; what is wrong is said with the field's name, its value, what is
//! accepted and what to do.

mod check;
mod file;
mod recorded;
mod types;
mod units;

use std::path::Path;

use super::error::SetupError;
pub(super) use check::{DIRECT, duration_within, rate_within, subjects};
pub(super) use types::{Override, ProviderShape, RAMP_HALVINGS, Ramp, Target, TestPlan, Workload};
pub(super) use units::{parse_bytes_within, parse_duration, parse_listen, parse_share};

/// The plans that need no file: name and text.
const BUILT_IN: [(&str, &str); 5] = [
    ("quick", include_str!("../../plans/quick.yaml")),
    ("sizes", include_str!("../../plans/sizes.yaml")),
    ("streams", include_str!("../../plans/streams.yaml")),
    ("session", include_str!("../../plans/session.yaml")),
    ("mix", include_str!("../../plans/mix.yaml")),
];

/// Reads a plan by the name of a built-in one, or from a file.
pub(super) fn load(name: &str, over: Override) -> Result<TestPlan, SetupError> {
    match BUILT_IN.iter().find(|(built_in, _)| *built_in == name) {
        Some((_, text)) => check::made(name, text, Path::new("."), over),
        None => {
            let path = Path::new(name);
            let text = std::fs::read_to_string(path).map_err(|error| {
                let names: Vec<&str> = BUILT_IN.iter().map(|(name, _)| *name).collect();
                SetupError(format!(
                    "--plan {name}: {error}; accepted are {} or the path of a YAML file (`weir-loadtest plan sizes` prints one to begin with)",
                    names.join(", ")
                ))
            })?;
            check::made(name, &text, path.parent().unwrap_or(Path::new(".")), over)
        }
    }
}

/// The text of a built-in plan, or the list of them.
pub(super) fn shown(name: Option<&str>) -> Result<String, SetupError> {
    let Some(name) = name else {
        let line = |(name, text): &(&str, &str)| {
            format!("{name:<9}{}\n", text.lines().next().unwrap_or_default().trim_start_matches("# "))
        };
        return Ok(BUILT_IN.iter().map(line).collect());
    };
    let found = BUILT_IN.iter().find(|(built_in, _)| *built_in == name);
    found.map(|(_, text)| (*text).to_owned()).ok_or_else(|| {
        let names: Vec<&str> = BUILT_IN.iter().map(|(name, _)| *name).collect();
        SetupError(format!("there is no plan `{name}`; accepted are {}", names.join(", ")))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_built_in_plans_are_whole() {
        for (name, _) in BUILT_IN {
            let plan = load(name, Override::default()).unwrap();
            assert!(!plan.workloads.is_empty() && plan.rounds == 5, "{name}");
            assert!(shown(None).unwrap().contains(name));
        }
        assert!(shown(Some("x")).unwrap_err().0.contains("accepted are quick, sizes"));
        assert!(load("x.yaml", Override::default()).unwrap_err().0.contains("accepted are quick, sizes"));
    }

    #[test]
    fn the_plan_in_the_readme_is_whole() {
        let readme = include_str!("../../README.md");
        let mut blocks = readme.split("```yaml\n").skip(1).filter_map(|block| block.split("```").next());
        let yaml = blocks.find(|block| block.contains("workloads:")).unwrap();
        // Its recorded requests lie nowhere.
        let yaml = yaml.replace("recorded: traces.jsonl", "body: 2 KB");
        let plan = check::made("README.md", &yaml, Path::new("."), Override::default()).unwrap();
        assert_eq!((plan.workloads.len(), plan.workloads[5].kinds.len(), plan.rounds), (6, 2, 5));
    }

    #[test]
    fn the_sizes_are_those_that_agents_send() {
        let plan = load("sizes", Override::default()).unwrap();
        let sizes: Vec<usize> = plan.workloads.iter().map(|workload| workload.kinds[0].1.body_bytes).collect();
        assert_eq!(sizes, [300, 4 << 10, 30 << 10, 100 << 10, 300 << 10, 1 << 20]);
        assert!(plan.workloads[5].kinds[0].1.image && plan.workloads[3].kinds[0].1.tools);
    }
}
