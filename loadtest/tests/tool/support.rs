//! Starting the binary, and reading what it says.

use std::io::{BufRead as _, BufReader, Read as _};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::Value;

pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_weir-loadtest");

/// Runs the binary to its end.
pub(crate) fn tool(args: &str) -> Output {
    Command::new(PROGRAM).args(args.split_whitespace()).stdin(Stdio::null()).output().unwrap()
}

/// What it wrote, both ways.
pub(crate) fn said(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// A `provider` or `relay` under way, ended with the test.
pub(crate) struct Server {
    child: Child,
    out: BufReader<ChildStdout>,
    pub(crate) url: String,
}

impl Server {
    pub(crate) fn start(args: &str) -> Self {
        let mut command = Command::new(PROGRAM);
        command.args(args.split_whitespace()).stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        out.read_line(&mut line).unwrap();
        let addr = line.trim().strip_prefix("listening on ").unwrap_or_else(|| panic!("{args}: {line}"));
        Self { url: format!("http://{addr}"), child, out }
    }

    pub(crate) fn provider(args: &str) -> Self {
        Self::start(&format!("provider --listen 127.0.0.1:0 {args}"))
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// What it says until it ends by itself.
    pub(crate) fn rest(mut self) -> String {
        let mut rest = String::new();
        self.out.read_to_string(&mut rest).unwrap();
        assert!(self.child.wait().unwrap().success());
        rest
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// A folder of the test's own, removed with it.
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("weir-loadtest-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    /// The path of a file in it, which may not be there yet.
    pub(crate) fn path(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }

    pub(crate) fn write(&self, name: &str, text: &str) -> String {
        std::fs::write(self.0.join(name), text).unwrap();
        self.path(name)
    }

    pub(crate) fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.0.join(name)).unwrap()
    }

    pub(crate) fn json(&self, name: &str) -> Value {
        serde_json::from_str(&self.read(name)).unwrap()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.0));
    }
}

/// The cell of a workload and a target.
pub(crate) fn cell<'a>(results: &'a Value, workload: &str, target: &str) -> &'a Value {
    let cells = results["cells"].as_array().unwrap();
    let found = cells.iter().find(|cell| cell["workload"] == workload && cell["target"] == target);
    found.unwrap_or_else(|| panic!("{workload} on {target} is not among {} cells", cells.len()))
}
