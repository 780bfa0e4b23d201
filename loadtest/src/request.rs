//! What all requests have in common: their head, and words that are never the same.

use super::settings::{RequestDialect, Settings};

/// Spells a number as a pronounceable word: no digits, so that no detector takes it for a phone or card number.
pub(super) fn write_word(word: &mut [u8], number: u64) {
    for (index, pair) in word.chunks_mut(2).enumerate() {
        let part = (number >> (6 * index)) as usize;
        if let [consonant, vowel] = pair {
            *consonant = b"bcdfghjklmnpqrst"[part & 15];
            *vowel = b"aeio"[(part >> 4) & 3];
        }
    }
}

fn path(settings: &Settings) -> &'static str {
    match settings.dialect {
        RequestDialect::Chat => "/v1/chat/completions",
        RequestDialect::Messages => "/v1/messages",
        RequestDialect::Responses => "/v1/responses",
        RequestDialect::Gemini if settings.stream => "/v1beta/models/fake-small:streamGenerateContent?alt=sse",
        RequestDialect::Gemini => "/v1beta/models/fake-small:generateContent",
        RequestDialect::Local => "/api/chat",
    }
}

/// What stands in the value of an extra field where the number of the request goes.
pub(super) const NUMBER: &str = "{n}";

/// The head of a request whose body has `length` bytes. `number` tells prepared requests, or sessions, apart.
pub(super) fn head(settings: &Settings, length: usize, number: u64) -> String {
    head_to(settings, path(settings), settings.dialect, length, number)
}

/// The same for another path and dialect than those of the settings.
pub(super) fn head_to(settings: &Settings, path: &str, dialect: RequestDialect, length: usize, number: u64) -> String {
    let mut head = format!(
        "POST {}{path} HTTP/1.1\r\nHost: {}\r\nUser-Agent: weir-loadtest/{}\r\nAccept: application/json\r\nContent-Type: application/json\r\n",
        settings.path_prefix,
        settings.authority,
        env!("CARGO_PKG_VERSION"),
    );
    match dialect {
        RequestDialect::Chat | RequestDialect::Responses => {
            head.push_str("Authorization: Bearer fake-key-for-load-tests\r\n");
        }
        RequestDialect::Messages => {
            head.push_str("x-api-key: fake-key-for-load-tests\r\nanthropic-version: 2023-06-01\r\n");
        }
        RequestDialect::Gemini => head.push_str("x-goog-api-key: fake-key-for-load-tests\r\n"),
        RequestDialect::Local => {}
    }
    for (name, value) in &settings.headers {
        let value = value.replace(NUMBER, &format!("{number:012x}"));
        head.extend([name.as_str(), ": ", &value, "\r\n"]);
    }
    if !settings.keep_alive {
        head.push_str("Connection: close\r\n");
    }
    head.push_str(&format!("Content-Length: {length}\r\n\r\n"));
    head
}
