//! Files of many calls, one JSON object a line: which objects of the provider their calls name. Such a file is uploaded now and run
//! later, with the key that it was uploaded with, so that what its calls may use is asked when it comes.

use std::time::Instant;

use weir_config::vocab::Dialect;

use super::gather::Gather;
use super::request::RequestView;
use super::walk;
use crate::json::{Event, Walker};

/// Notes the objects that the calls of a file name. What is no such file names none.
pub(super) fn references(view: &mut RequestView, dialect: Dialect, file: &[u8], until: Option<Instant>) {
    for line in file.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii) {
        if line.first() != Some(&b'{') {
            continue;
        }
        let mut one = Gather::new(0, 0);
        // As far as it can be read, as a server would that forgives its end.
        let is_late = walk::json(&mut one, dialect, call(line), until).is_err_and(|fault| fault.is_late());
        for (family, id) in std::mem::take(&mut one.view.references) {
            view.refers_to(family, id);
        }
        view.too_many_references |= one.view.too_many_references || is_late;
        if view.too_many_references {
            return;
        }
    }
}

/// The body of the call in a line: OpenAI's `body`, Anthropic's `params`, Gemini's `request`; else all of it.
fn call(line: &[u8]) -> &[u8] {
    let found = || {
        let mut walker = Walker::new(line).ok()?;
        walker.next_event().ok()?;
        while let Some(Event::Key(key)) = walker.next_event().ok()? {
            let is_body = matches!(&*key.decode(), "body" | "params" | "request");
            let value = walker.next_raw().ok()??;
            if is_body && value.starts_with('{') {
                return Some(value.as_bytes());
            }
        }
        None
    };
    found().unwrap_or(line)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exchange::Family;

    fn named(file: &str) -> Vec<(Family, String)> {
        let mut view = Gather::new(0, 0).view;
        references(&mut view, Dialect::ChatCompletions, file.as_bytes(), None);
        assert!(!view.too_many_references);
        view.references
    }

    #[test]
    fn each_line_names_what_its_call_would() {
        let file = concat!(
            "{\"custom_id\":\"1\",\"url\":\"/v1/responses\",\"body\":{\"previous_response_id\":\"resp-1\",\"conversation\":{\"id\":\"conv-1\"}}}\r\n",
            "\n",
            "{\"custom_id\":\"2\",\"params\":{\"messages\":[{\"role\":\"user\",\"content\":[{\"source\":{\"type\":\"file\",\"file_id\":\"f-1\"}}]}]}}\n",
            "{\"key\":\"3\",\"request\":{\"cachedContent\":\"cachedContents/c-1\",\"contents\":[{\"parts\":[{\"fileData\":{\"fileUri\":\"https://x.test/v1beta/files/f-2\"}}]}]}}\n",
            "{\"custom_id\":\"4\",\"body\":{\"messages\":[{\"role\":\"assistant\",\"content\":[{\"file_id\":\"f-9\"}]}]}}\n",
            "a line {\"file_id\":\"f-9\"}\n",
            "{\"file_id\":\"f-3\"",
        );
        let expected = [
            (Family::Responses, "resp-1"),
            (Family::Responses, "conv-1"),
            (Family::Files, "f-1"),
            (Family::CachedContents, "c-1"),
            (Family::Files, "f-2"),
            (Family::Files, "f-3"),
        ];
        assert_eq!(named(file), expected.map(|(family, id)| (family, id.to_owned())));
    }
}
