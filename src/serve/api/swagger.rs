//! Swagger UI over the served document, from files in the binary.

use super::ask::Ask;
use super::error::ErrorAnswer;
use super::route::Answer;
use super::state::Api;
use super::static_file::StaticFile;

static INDEX: StaticFile =
    StaticFile::plain("index.html", "text/html; charset=utf-8", include_bytes!("assets/index.html"));
static FILES: [StaticFile; 3] = [
    StaticFile::plain("initializer.js", "text/javascript; charset=utf-8", include_bytes!("assets/initializer.js")),
    StaticFile::packed("swagger-ui.css", "text/css; charset=utf-8", include_bytes!("assets/swagger-ui.css.gz")),
    StaticFile::packed(
        "swagger-ui-bundle.js",
        "text/javascript; charset=utf-8",
        include_bytes!("assets/swagger-ui-bundle.js.gz"),
    ),
];
/// The page sets styles on elements; scripts come from files only, and nothing from elsewhere.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; \
    connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// The page.
pub(super) async fn index(_api: Api, ask: Ask) -> Answer {
    INDEX.serve(ask.headers(), POLICY)
}

/// A file of the page.
pub(super) async fn file(_api: Api, ask: Ask) -> Answer {
    let file = FILES.iter().chain([&INDEX]).find(|file| ask.text("file") == Some(file.name));
    file.ok_or_else(|| ErrorAnswer::not_found("Swagger UI has no file of this name"))?.serve(ask.headers(), POLICY)
}

#[cfg(test)]
mod tests {
    use http::HeaderMap;

    use super::*;

    #[test]
    fn every_packed_file_unpacks() {
        for file in &FILES {
            assert!(file.serve(&HeaderMap::new(), POLICY).is_ok(), "{}", file.name);
        }
        assert!(FILES.iter().map(StaticFile::sent_bytes).sum::<usize>() < 600_000, "the binary stays small");
    }
}
