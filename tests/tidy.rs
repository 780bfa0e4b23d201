//! The shape of the code as a test: who may import whom, where `unsafe` may stand, which crates see which libraries.
//! ARCHITECTURE.md gives the reasons.
#![allow(clippy::unwrap_used, clippy::expect_used)] // Tests fail by panicking, their helpers too.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use graph::Graph;

#[path = "tidy/evidence.rs"]
mod evidence;

#[path = "tidy/limits.rs"]
mod limits;

#[path = "tidy/pages.rs"]
mod pages;

#[path = "tidy/graph.rs"]
#[allow(dead_code)] // `examples/house.rs` prints more of it than is checked here.
mod graph;

/// The rooms of `src` from the ground up, and the folders of each: a folder may import what stands in front of it. One that is not here
/// may not be.
const ROOMS: &[(&str, &[&str])] = &[
    // Bytes and sockets.
    ("net", &["limits", "per_tenant", "wire", "json", "codec", "rt", "forward", "outbound"]),
    // What requests and answers say, and what the stages say to each other in. No stage imports another one.
    ("read", &["record", "exchange", "inspect", "rewrite", "observe", "defence"]),
    // Who may do what, and at which price.
    ("govern", &["meter", "money", "redaction", "ops", "control", "admit", "enforce", "identity", "upstreams"]),
    // What follows from a finished call.
    ("react", &["feed", "hub", "judge", "anomalies", "alerts", "router", "otel", "siem", "receipts"]),
    // The way of a request.
    ("gateway", &["process", "judging", "settle", "replay", "golden", "output", "client", "flow"]),
    // The gateway's own interfaces.
    ("serve", &["reports", "ingest", "grpc", "api"]),
    // What puts all together.
    ("app", &["boot", "cli"]),
];

/// Where a folder of `src` lies.
fn place(folder: &str) -> String {
    let room = ROOMS.iter().find(|(_, folders)| folders.contains(&folder));
    format!("src/{}/{folder}", room.unwrap_or_else(|| panic!("no room has `{folder}`")).0)
}

/// The same for the crates below: folders and files at a crate's root, each line above all that its names may import. Names of one line
/// import one another only in a circle that `CIRCLES` names.
const CRATE_FLOORS: &[(&str, &[&[&str]])] = &[
    (
        "config/src",
        &[
            &["address", "error", "store_url", "vocab", "yaml"],
            &["egress", "prices"],
            &["settings"],
            &["catalogue"],
            &["load", "schema"],
            &["effective", "flags", "remarks"],
        ],
    ),
    (
        "inference/src",
        &[
            &[
                "bits",
                "detector_set",
                "evidence",
                "fold",
                "literals",
                "names",
                "part",
                "personal_coded",
                "pool_thread",
                "secret",
                "shape",
                "stopwatch",
                "trained",
                "tuning",
                "repeated",
            ],
            &["action", "decode", "gate", "grams", "pii", "rules", "signals"],
            &["frame", "personal", "rule_matcher", "strictness"],
            &["candidate", "rule_book", "taken"],
            &["definition", "pins", "provenance", "shared_look", "addressee", "suppressor"],
            // What a detector is, and which of them run.
            &["detector"],
            &["change", "clean", "fusion", "plan", "toxic"],
            &["builtin"],
            &["learned", "operator"],
            // One analysis, and the pool that has what is left of it.
            &["analyser", "later", "ran"],
            &["pool"],
        ],
    ),
    (
        "models/src",
        &[
            &["folder", "runtime", "second", "sentences", "slot"],
            &["labels", "tokens"],
            &["entities", "network", "support"],
            &["model"],
            &["known", "place"],
            &["loader"],
        ],
    ),
    (
        "storage/src",
        &[
            // What is kept.
            &[
                "actions",
                "attributes",
                "audit",
                "charges",
                "claim",
                "leases",
                "objects",
                "offences",
                "pause",
                "prompt_cache",
                "query",
                "record",
                "retention",
                "room",
                "spend",
                "stats",
                "tenants",
                "usage",
                "verdicts",
            ],
            &["alerts", "cursor", "encode", "error", "messages", "observer", "prompt", "reports"],
            // What is asked of a store, and what waits for its thread.
            &["change", "order", "queue", "roles"],
            &["engine"],
            &["sqlite", "writer"],
            // What several gateways share asks the store for its journal.
            &["production", "store"],
            &["reader"],
        ],
    ),
    ("proto/src", &[&["bounded"], &["generated"], &["otlp"]]),
    (
        "loadtest/src",
        &[
            &["error", "frames", "settings"],
            &["hosts", "runtime", "spelling", "trust"],
            &["arrivals", "fast", "process", "request", "stream", "tally"],
            &["prose", "relay", "report"],
            // What is asked of a run, and what it found.
            &["plan", "results"],
            &["bodies", "sessions", "table"],
            &["corpus", "own", "progress"],
            &["connection"],
            &["run"],
            &["rounds"],
            &["cli"],
        ],
    ),
    ("loadtest/provider/src", &[&["http"], &["provider"], &["server"]]),
];

/// Files that import one another are of one concern, and few: at most so many together, below one folder of one crate.
const CIRCLES: &[(&str, &str, usize, &str)] = &[
    ("src", "admit", 2, "a limit, and what a gateway holds of one that several share"),
    (
        "src",
        "api",
        3,
        "the document of the routes is a route itself; what a handler works with holds the costs it shows",
    ),
    ("src", "cli", 5, "a backup, the files it is made of, and the names that tell its age"),
    ("src", "flow", 2, "a tunnel, and what reads one of its directions"),
    ("src", "forward", 2, "a pool and its dialer; a peer and its trust"),
    (
        "src",
        "ingest",
        6,
        "one reader of a protocol, the span it makes, and its words; the intake, and the threads behind it",
    ),
    ("src", "inspect", 10, "one walk over a body, and what it meets there"),
    ("src", "judge", 2, "the judge, and what is counted of its answers"),
    ("src", "meter", 3, "a core's cells, and those for costs and for the boundary defence"),
    ("src", "money", 3, "an account's cell, and the hold on it"),
    ("src", "observe", 4, "one reader of answers, and the shapes it meets"),
    ("src", "rt", 5, "a connection, its deadline, and what ends an operation"),
    ("src", "wire", 6, "one parser of heads, and what it says of a bad one"),
    ("config/src", "catalogue", 15, "one table in several files, and what a reload does with its rows"),
    (
        "config/src",
        "load",
        3,
        "one loading, what it takes from records of upstreams, and the same once more for a reload",
    ),
    ("inference/src", "action", 8, "one reader of commands, and what it meets there"),
    ("inference/src", "analyser", 4, "one analysis, what it did, what changed, and what of it is left to the pool"),
    ("inference/src", "pii", 7, "one scan for personal data, by kind"),
    ("inference/src", "pool", 3, "one pool, its lanes and its threads"),
    ("storage/src", "change", 3, "an order waits in the queue, and holds room there"),
    ("storage/src", "production", 8, "a store plays its roles by what gateways share, which asks it for its journal"),
    ("storage/src", "encode", 9, "one form of a span in a row"),
    ("storage/src", "sqlite", 16, "one transaction, and the tables that are written in it"),
    ("loadtest/provider/src", "provider", 7, "one script of answers, spelled in each dialect"),
    ("loadtest/provider/src", "http", 2, "one reader of HTTP, and its chunks"),
];

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// All Rust files below `folder`, with their text.
fn sources(folder: &str) -> Vec<(PathBuf, String)> {
    fn walk(folder: &Path, found: &mut Vec<(PathBuf, String)>) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                walk(&path, found);
            } else if path.extension().is_some_and(|end| end == "rs") {
                let text = std::fs::read_to_string(&path).unwrap();
                found.push((path, text));
            }
        }
    }
    let mut found = Vec::new();
    walk(&root().join(folder), &mut found);
    assert!(!found.is_empty(), "{folder} holds no source");
    found
}

/// Code lines of `text`: no comments.
fn code(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let lines = text.lines().enumerate().map(|(at, line)| (at + 1, line));
    lines.filter(|(_, line)| !line.trim_start().starts_with("//"))
}

/// Lines below `folder` that hold one of `words`, outside the files whose path contains one of `allowed`.
fn offences(folder: &str, words: &[&str], allowed: &[&str]) -> Vec<String> {
    let mut found = Vec::new();
    for (path, text) in sources(folder) {
        let name = path.strip_prefix(root()).unwrap().display().to_string();
        if allowed.iter().any(|part| name.contains(part)) {
            continue;
        }
        for (line, text) in code(&text) {
            if words.iter().any(|word| text.contains(word)) {
                found.push(format!("{name}:{line}: {}", text.trim()));
            }
        }
    }
    found
}

#[track_caller]
fn assert_none(found: Vec<String>, rule: &str) {
    assert!(found.is_empty(), "{rule}\n{}", found.join("\n"));
}

#[test]
fn only_the_runtime_seam_imports_monoio() {
    let words = ["monoio::", "use monoio", "io_uring::"];
    assert_none(offences("src", &words, &["src/net/rt/"]), "the driver must be replaceable: only src/net/rt sees it");
}

#[test]
fn unsafe_stands_in_the_runtime_seam_only() {
    let words = ["unsafe {", "unsafe impl", "unsafe fn", "allow(unsafe_code)"];
    for (folder, allowed) in [
        ("src", &["src/net/rt/"][..]),
        ("config/src", &[]),
        ("inference/src", &[]),
        ("models/src", &[]),
        ("storage/src", &["sqlite/log_file.rs", "sqlite/gaps.rs"]),
        ("loadtest/provider/src", &[]),
        ("proto/src", &[]),
        ("loadtest/src", &["epoll_sys.rs"]),
    ] {
        assert_none(offences(folder, &words, allowed), "unsafe is fenced");
    }
}

#[test]
fn no_folder_imports_one_above_it() {
    let own: Vec<&[&str]> = ROOMS.iter().flat_map(|(_, folders)| folders.chunks(1)).collect();
    for (folder, floors) in [("src", &own[..])].into_iter().chain(CRATE_FLOORS.iter().copied()) {
        let graph = Graph::read(&root().join(folder));
        let floor = |name: &str| floors.iter().position(|known| known.contains(&name));
        let there: BTreeSet<&str> = graph.files.keys().map(|module| Graph::folder(module)).collect();
        let is_code = |name: &&&str| !name.is_empty() && **name != "tests";
        let unknown: Vec<_> = there.iter().filter(is_code).filter(|name| floor(name).is_none()).collect();
        assert!(unknown.is_empty(), "{folder}: the floors do not say where {unknown:?} stand");
        let gone: Vec<_> = floors.iter().copied().flatten().filter(|name| !there.contains(**name)).collect();
        assert!(gone.is_empty(), "{folder}: the floors name {gone:?}, which are gone");
        let up = graph.folders().into_iter().filter(|((from, to), _)| floor(from) < floor(to));
        let up = up.flat_map(|(_, files)| files).map(|(from, to)| format!("{folder}: {from} -> {to}")).collect();
        assert_none(up, "an arrow runs up the floors");
    }
}

#[test]
fn each_folder_lies_in_its_room() {
    for (room, folders) in ROOMS {
        let there = std::fs::read_dir(root().join("src").join(room)).unwrap();
        let there = there.map(|entry| entry.unwrap().file_name().to_string_lossy().trim_end_matches(".rs").to_owned());
        let there: BTreeSet<String> = there.filter(|name| name != "mod" && name != "Cargo.toml").collect();
        assert_eq!(there, folders.iter().map(|name| (*name).to_owned()).collect(), "src/{room}");
    }
}

/// The rooms that are crates, from the ground up, with the crates of this workspace that each names in its `Cargo.toml`.
fn crates_of_rooms() -> Vec<(&'static str, BTreeSet<String>)> {
    let manifest = |room: &str| std::fs::read_to_string(root().join("src").join(room).join("Cargo.toml")).ok();
    ROOMS.iter().filter_map(|(room, _)| Some((*room, own_crates(&manifest(room)?)))).collect()
}

/// The crates of this workspace that a manifest depends on, tests and benchmarks included.
fn own_crates(manifest: &str) -> BTreeSet<String> {
    let names = manifest.lines().filter_map(|line| line.split(['.', ' ', '=']).next());
    names.filter(|name| *name == "weir" || name.starts_with("weir-")).map(str::to_owned).collect()
}

/// Rooms become crates from the ground up, so that the compiler holds the order: each names rooms below it only. So that the import graph
/// (and with it the floors inside a room) sees the rest, a crate of a room is named where a room takes it in, and nowhere else: in the code
/// of all rooms a folder is `crate::wire`, wherever it lies.
#[test]
fn a_room_that_is_a_crate_names_only_rooms_below_it() {
    let crates = crates_of_rooms();
    let first: Vec<&str> = ROOMS.iter().map(|(room, _)| *room).take(crates.len()).collect();
    assert_eq!(crates.iter().map(|(room, _)| *room).collect::<Vec<_>>(), first, "from the ground up");
    assert!(!crates.is_empty());
    let name = |room: &str| format!("weir-{room}");
    for (at, (room, named)) in crates.iter().enumerate() {
        for (above, _) in ROOMS.iter().skip(at) {
            assert!(!named.contains(&name(above)), "src/{room}/Cargo.toml names `{above}`, which is not below it");
        }
        assert!(!named.contains("weir"), "src/{room}/Cargo.toml names what stands above all rooms");
    }
    for folder in ["config", "inference", "models", "storage", "proto", "loadtest", "loadtest/provider"] {
        let named = own_crates(&std::fs::read_to_string(root().join(folder).join("Cargo.toml")).unwrap());
        let rooms: Vec<_> = ROOMS.iter().map(|(room, _)| name(room)).filter(|room| named.contains(room)).collect();
        assert!(rooms.is_empty(), "{folder}/Cargo.toml names {rooms:?}, which stand above it");
    }
    let roots: Vec<String> = ROOMS.iter().map(|(room, _)| format!("src/{room}/mod.rs")).collect();
    let roots: Vec<&str> = roots.iter().map(String::as_str).chain(["src/lib.rs"]).collect();
    let words: Vec<String> = ROOMS.iter().map(|(room, _)| format!("weir_{room}")).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    assert_none(
        offences("src", &words, &roots),
        "a room below is taken in by a room's mod.rs, and its folders are `crate::` in the code",
    );
}

#[test]
fn stages_do_not_import_one_another() {
    let stages = ["admit", "inspect", "enforce", "rewrite", "forward", "observe"];
    let arrows = Graph::read(&root().join("src")).folders();
    let between = arrows.into_iter().filter(|((from, to), _)| stages.contains(&&**from) && stages.contains(&&**to));
    let between = between.flat_map(|(_, files)| files).map(|(from, to)| format!("{from} -> {to}")).collect();
    assert_none(between, "only flow composes the stages");
}

#[test]
fn files_of_different_concerns_do_not_import_one_another_in_a_circle() {
    let mut found = Vec::new();
    let mut named: BTreeSet<(&str, &str)> = BTreeSet::new();
    for folder in ["src"].into_iter().chain(CRATE_FLOORS.iter().map(|(folder, _)| *folder)) {
        for circle in Graph::read(&root().join(folder)).circles() {
            let at: BTreeSet<&str> = circle.iter().map(|module| Graph::folder(module)).collect();
            let first = circle.first().map_or("", |module| Graph::folder(module));
            let allowed = CIRCLES.iter().find(|(crate_folder, name, most, _)| {
                // The crates below have their files at the root.
                *crate_folder == folder && *name == first && circle.len() <= *most && (at.len() == 1 || folder != "src")
            });
            match allowed {
                Some((folder, name, ..)) => drop(named.insert((folder, name))),
                None => found.push(format!("{folder}: {}", circle.into_iter().collect::<Vec<_>>().join(", "))),
            }
        }
    }
    assert_none(found, "files import one another in a circle that CIRCLES does not name");
    let gone = CIRCLES.iter().filter(|(folder, name, ..)| !named.contains(&(folder, name)));
    assert_none(
        gone.map(|(folder, name, ..)| format!("{folder}: {name}")).collect(),
        "CIRCLES names what is none any more",
    );
}

/// Words of which each means one thing, the types that bear them, and what that is. A type with another meaning takes another word.
const WORDS: &[(&str, &[&str], &str)] = &[
    ("Fault", &["wire::Fault", "wire::FaultKind"], "what a peer did against HTTP's rules"),
    ("Identity", &["identity::IdentityError"], "tenants, their keys and tokens"),
    ("Watch", &["rt::Watch", "client::ClientWatch"], "notices that a connection's peer has gone"),
    (
        "Pool",
        &["forward::ConnPool", "inference::WorkerPool", "inference::PoolHandle", "inference::PoolOptions"],
        "with its kind in front: kept connections, threads that analyse",
    ),
    ("Engine", &["storage::Engine", "storage::SqliteEngine"], "what the storage thread writes with"),
    ("Memory", &["ops::MemoryLimit"], "the process's own"),
];

#[test]
fn a_word_of_the_house_means_one_thing() {
    for (word, bearers, meaning) in WORDS {
        let mut found: BTreeSet<String> = BTreeSet::new();
        for folder in ["src"].into_iter().chain(CRATE_FLOORS.iter().map(|(folder, _)| *folder)) {
            for (path, text) in sources(folder).into_iter().filter(|(path, _)| !path.ends_with("tests.rs")) {
                let room = match folder {
                    "src" => path.strip_prefix(root().join("src")).unwrap(),
                    _ => path.strip_prefix(root()).unwrap(),
                };
                let room = room.iter().nth(usize::from(folder == "src")).unwrap_or(room.as_os_str());
                let room = room.to_string_lossy().into_owned();
                let types = code(&text).filter_map(|(_, line)| type_named(line));
                let types = types.filter(|name| words_of(name).any(|part| part == *word));
                found.extend(types.map(|name| format!("{}::{name}", room.trim_end_matches(".rs"))));
            }
        }
        let known: BTreeSet<String> = bearers.iter().map(|name| (*name).to_owned()).collect();
        assert_eq!(found, known, "`{word}` means: {meaning}");
    }
}

/// The name of the type that a line defines.
fn type_named(line: &str) -> Option<&str> {
    let line = line.trim_start();
    let line = line.strip_prefix("pub").map_or(line, |rest| match rest.strip_prefix('(') {
        Some(rest) => rest.split_once(')').map_or(rest, |(_, rest)| rest),
        None => rest,
    });
    let line = line.trim_start();
    let rest = ["struct ", "enum ", "trait ", "type "].iter().find_map(|kind| line.strip_prefix(kind))?;
    let end = rest.find(|it: char| !it.is_alphanumeric()).unwrap_or(rest.len());
    rest.get(..end)
}

/// The words a name is made of.
fn words_of(name: &str) -> impl Iterator<Item = &str> {
    let mut starts: Vec<usize> = name.char_indices().filter(|(_, it)| it.is_uppercase()).map(|(at, _)| at).collect();
    starts.push(name.len());
    (1..starts.len()).map(move |at| &name[starts[at - 1]..starts[at]])
}

#[test]
fn the_store_is_none_of_the_stages_business() {
    for folder in [
        "admit", "money", "exchange", "control", "enforce", "rewrite", "forward", "inspect", "observe", "client",
        "flow",
    ] {
        assert_none(offences(&place(folder), &["weir_storage"], &[]), "only what keeps or shows records sees them");
    }
}

#[test]
fn pure_folders_know_no_runtime() {
    for folder in [
        "wire",
        "json",
        "codec",
        "admit",
        "inspect",
        "observe",
        "enforce",
        "rewrite",
        "exchange",
        "record",
        "redaction",
        "meter",
    ] {
        let words = ["crate::rt", "crate::flow", "crate::boot", "tokio::", "std::net::Tcp"];
        assert_none(offences(&place(folder), &words, &[]), "pure folders run anywhere");
    }
}

#[test]
fn each_library_has_one_home() {
    for (library, home) in
        [("rusqlite", "storage"), ("regex_automata", "inference"), ("serde_yaml", "config"), ("tokenizers", "models")]
    {
        let words = [format!("{library}::")];
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        for folder in
            ["src", "config/src", "inference/src", "models/src", "storage/src", "loadtest/provider/src", "loadtest/src"]
        {
            if !folder.starts_with(home) {
                // Rule files are data, and so are plans of load; both are read with the library that settings use.
                let allowed = ["inference/src/rules/", "loadtest/src/plan/"];
                assert_none(offences(folder, &words, &allowed), "one crate sees each library");
            }
        }
    }
}

#[test]
fn only_the_grpc_listener_speaks_http_2() {
    assert_none(
        offences("src", &["tonic::", "weir_proto::"], &["src/serve/grpc/"]),
        "it stays where it can be taken out",
    );
}

#[test]
fn inference_and_storage_never_see_each_other() {
    assert_none(
        offences("inference/src", &["weir_storage", "http::"], &[]),
        "inference knows neither records nor HTTP",
    );
    assert_none(
        offences("storage/src", &["weir_inference", "http::"], &[]),
        "storage knows neither detectors nor HTTP",
    );
}

#[test]
fn every_limit_has_a_reason_and_stands_on_one_page() {
    let page =
        limits::page(&root()).unwrap_or_else(|missing| panic!("no comment gives a reason:\n{}", missing.join("\n")));
    let path = root().join("docs/limits.md");
    if std::env::var_os("UPDATE_LIMITS").is_some() {
        std::fs::write(&path, &page).unwrap();
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    let differ: Vec<String> =
        page.lines().filter(|line| !kept.lines().any(|known| known == *line)).map(str::to_owned).collect();
    assert_none(differ, "docs/limits.md is not up to date: UPDATE_LIMITS=1 cargo test --test tidy");
    assert_eq!(kept.lines().count(), page.lines().count(), "docs/limits.md names limits that are gone");
}

/// What goes together through the journey of a request belongs to a value that owns it, and is not handed on piece by piece.
const ARGUMENTS_MAX: usize = 5;

#[test]
fn what_a_request_needs_is_owned_and_not_handed_on_piece_by_piece() {
    let mut found = Vec::new();
    for (path, text) in ["client", "flow", "settle", "process"].iter().flat_map(|room| sources(&place(room))) {
        let code: String = code(&text).map(|(_, line)| format!("{line}\n")).collect();
        for function in code.split("fn ").skip(1) {
            let count = arguments(function);
            if count > ARGUMENTS_MAX {
                let name = function.split(['(', '<']).next().unwrap_or_default();
                found.push(format!("{}: `{name}` takes {count}", path.strip_prefix(root()).unwrap().display()));
            }
        }
    }
    assert_none(found, "a function of the journey takes more arguments than it may");
}

/// How many arguments a function takes beside itself: `function` begins with its name.
fn arguments(function: &str) -> usize {
    // Brackets of types are no ends of arguments, and the arrow of a function's type is no bracket.
    let function = function.replace("->", "");
    let (mut depth, mut count, mut has_begun, mut is_empty) = (0, 0, false, true);
    let head = function.trim_start_matches(|it: char| it.is_alphanumeric() || it == '_');
    for it in head.chars() {
        match it {
            '(' | '<' | '[' | '{' => depth += 1,
            ')' | '>' | ']' | '}' => depth -= 1,
            ',' if depth == 1 && has_begun => {
                count += usize::from(!is_empty);
                is_empty = true;
                continue;
            }
            _ => {}
        }
        if !has_begun {
            // Generic parameters stand in front.
            has_begun = it == '(' && depth == 1;
        } else if depth == 0 {
            break;
        } else if !it.is_whitespace() {
            is_empty = false;
        }
    }
    let first = function.split_once('(').map_or("", |(_, rest)| rest);
    let takes_itself = first.split([',', ')', ':']).next().is_some_and(|it| it.trim_end().ends_with("self"));
    count + usize::from(!is_empty) - usize::from(takes_itself)
}

#[test]
fn arguments_are_counted_as_a_reader_counts_them() {
    for (function, count) in [
        ("none() {}", 0),
        ("method(&mut self) {}", 0),
        ("one(a: &str) {}", 1),
        ("several(self: &Arc<Self>, (a, b): (A, B), c: HashMap<K, V>,\n) {}", 2),
        ("generic<T: Fn(A, B) -> C, U>(t: T, then: impl FnOnce(&[A], B) -> Option<C>) {}", 2),
    ] {
        assert_eq!(arguments(function), count, "{function}");
    }
}

#[test]
fn every_file_says_what_it_is_for() {
    for folder in ["src"].into_iter().chain(CRATE_FLOORS.iter().map(|(folder, _)| *folder)) {
        for (path, text) in sources(folder).into_iter().filter(|(path, _)| !path.iter().any(|part| part == "generated"))
        {
            assert!(text.starts_with("//!"), "{} does not open with its purpose", path.display());
        }
    }
}

/// `doctest = false` stands in every crate: rustdoc would read all of each to find nothing to run. Code in a comment that looks as if
/// it were run, and is not, would not be noticed when it goes wrong.
#[test]
fn no_documentation_holds_code_that_nobody_runs() {
    let mut found = Vec::new();
    for folder in ["src"].into_iter().chain(CRATE_FLOORS.iter().map(|(folder, _)| *folder)) {
        for (path, text) in sources(folder) {
            let comments = text.lines().enumerate().filter_map(|(at, line)| {
                let line = line.trim_start();
                Some((at + 1, line.strip_prefix("///").or_else(|| line.strip_prefix("//!"))?))
            });
            let fences = comments.filter(|(_, line)| line.trim_start().starts_with("```")).step_by(2);
            let run = fences.filter(|(_, line)| !matches!(line.trim(), "```text" | "```json" | "```sh" | "```yaml"));
            found.extend(run.map(|(line, _)| format!("{}:{line}", path.display())));
        }
    }
    assert_none(found, "code in a comment says which language it is in, and is not Rust: nobody runs it");
}

/// What the lock file pins comes from the registry, with a checksum; what is known to be unmaintained has a line that says why
/// it stays.
#[test]
fn dependencies_come_from_the_registry_and_the_unmaintained_ones_have_a_reason() {
    let lock = std::fs::read_to_string(root().join("Cargo.lock")).unwrap();
    let decisions = std::fs::read_to_string(root().join("docs/decisions/design-card.md")).unwrap();
    let packages: Vec<&str> = lock.split("[[package]]").skip(1).collect();
    assert!(packages.len() > 100, "{}", packages.len());
    let value = |package: &str, key: &str| -> Option<String> {
        let line = package.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(" = "))?;
        Some(line.trim_matches('"').to_owned())
    };
    for package in packages {
        let name = value(package, "name").unwrap();
        match value(package, "source") {
            None => assert!(name.starts_with("weir"), "`{name}` lies in no registry"),
            Some(source) => {
                assert!(source.starts_with("registry+"), "`{name}` comes from {source}");
                assert!(value(package, "checksum").is_some(), "`{name}` has no checksum");
            }
        }
        if ["serde_yaml", "unsafe-libyaml", "fxhash", "bincode", "instant", "paste"].contains(&name.as_str()) {
            assert!(
                decisions.contains(&format!("`{name}`")),
                "docs/decisions/design-card.md has no word on `{name}`, which is unmaintained"
            );
        }
    }
}
