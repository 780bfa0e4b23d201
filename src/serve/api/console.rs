//! The console at `/ui`: a page that shows what the API answers, from files in the binary.
//!
//! There is no build step: `console/` holds the modules as the browser gets them, three small libraries among them (`console/README.md`).
//! The files hold no data and need no credential; whoever opens the page signs in, and the API decides what it shows.

use super::ask::Ask;
use super::error::ErrorAnswer;
use super::route::Answer;
use super::state::Api;
use super::static_file::StaticFile;

const SCRIPT: &str = "text/javascript; charset=utf-8";
const STYLE: &str = "text/css; charset=utf-8";

macro_rules! file {
    ($name:literal, $kind:expr) => {
        StaticFile::plain($name, $kind, include_bytes!(concat!("console/", $name)))
    };
}

static INDEX: StaticFile = file!("index.html", "text/html; charset=utf-8");
static FILES: [StaticFile; 24] = [
    file!("api.js", SCRIPT),
    file!("app.js", SCRIPT),
    file!("cache.js", SCRIPT),
    file!("calls.js", SCRIPT),
    file!("conversation.js", SCRIPT),
    file!("diff.js", SCRIPT),
    file!("dom.js", SCRIPT),
    file!("export.js", SCRIPT),
    file!("findings.js", SCRIPT),
    file!("format.js", SCRIPT),
    file!("health.js", SCRIPT),
    file!("hooks.js", SCRIPT),
    file!("htm.js", SCRIPT),
    file!("icon.svg", "image/svg+xml"),
    file!("money.js", SCRIPT),
    file!("preact.js", SCRIPT),
    file!("replay.js", SCRIPT),
    file!("route.js", SCRIPT),
    file!("settings.js", SCRIPT),
    file!("style.css", STYLE),
    file!("traces.js", SCRIPT),
    file!("uplot.css", STYLE),
    // The largest, and nobody edits it here: it lies in the sources, and in the binary, as gzip.
    StaticFile::packed("uplot.js", SCRIPT, include_bytes!("console/uplot.js.gz")),
    file!("widgets.js", SCRIPT),
];
/// The pages that have an address below `/ui/`; each is the same document, which shows what its address says.
const PAGES: [&str; 12] = [
    "live", "calls", "sessions", "cache", "diff", "findings", "replay", "money", "health", "settings", "trace",
    "session",
];
/// Scripts and styles from files of ours alone; no text ever becomes markup (Trusted Types without any policy).
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; \
    form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'";

/// The page.
pub(super) async fn index(_api: Api, ask: Ask) -> Answer {
    INDEX.serve(ask.headers(), POLICY)
}

/// A page by its name, or a file.
pub(super) async fn file(_api: Api, ask: Ask) -> Answer {
    let name = ask.text("file").unwrap_or_default();
    if PAGES.contains(&name) {
        return INDEX.serve(ask.headers(), POLICY);
    }
    let file = FILES.iter().find(|file| file.name == name);
    file.ok_or_else(|| ErrorAnswer::not_found("the console has no page or file of this name"))?
        .serve(ask.headers(), POLICY)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_console_stays_small() {
        let sent = FILES.iter().chain([&INDEX]).map(StaticFile::sent_bytes).sum::<usize>();
        assert!(sent < 150_000, "{sent} bytes as sent");
        let held = FILES.iter().chain([&INDEX]).map(StaticFile::held_bytes).sum::<usize>();
        assert!(held < 200_000, "{held} bytes in the binary");
    }

    #[test]
    fn every_module_that_is_imported_is_served_and_none_comes_from_elsewhere() {
        for file in FILES.iter().filter(|file| file.name.ends_with(".js")) {
            let text = String::from_utf8(file.unpacked().unwrap().to_vec()).unwrap();
            let imports = text.lines().filter(|line| line.starts_with("import"));
            for from in imports.filter_map(|line| line.split_once("from").map(|(_, rest)| rest.trim_start())) {
                let Some(module) = from.split('"').nth(1) else { continue };
                let name = module.strip_prefix("./").unwrap_or_else(|| panic!("{}: imports {module}", file.name));
                assert!(FILES.iter().any(|file| file.name == name), "{}: imports {module}", file.name);
            }
            // preact has the one way to make text markup, and nothing of ours takes it.
            assert!(file.name == "preact.js" || !text.contains("dangerouslySetInnerHTML"), "{}", file.name);
            assert!(file.name == "preact.js" || !text.contains("innerHTML"), "{}", file.name);
        }
    }
}
