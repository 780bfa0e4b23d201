//! What the scenarios read: the same in every run, and prose in which nothing is to be found.

pub(crate) const REQUEST_HEAD: &[u8] = b"POST /v1/chat/completions HTTP/1.1\r\n\
    Host: api.example.com\r\n\
    Accept-Encoding: gzip, deflate\r\n\
    Connection: keep-alive\r\n\
    Accept: application/json\r\n\
    Content-Type: application/json\r\n\
    User-Agent: Client/Python 1.61.0\r\n\
    X-Client-Lang: python\r\n\
    X-Client-Runtime-Version: 3.12.4\r\n\
    Authorization: Bearer sk-0123456789abcdef0123456789abcdef0123456789abcdef\r\n\
    Content-Length: 1024\r\n\
    \r\n";

pub(crate) const RESPONSE_HEAD: &[u8] = b"HTTP/1.1 200 OK\r\n\
    Date: Fri, 20 Nov 2026 12:00:00 GMT\r\n\
    Content-Type: application/json\r\n\
    Content-Length: 1057\r\n\
    Connection: keep-alive\r\n\
    X-Request-Id: req_0123456789abcdef0123456789abcdef\r\n\
    X-Ratelimit-Limit-Requests: 10000\r\n\
    X-Ratelimit-Remaining-Requests: 9999\r\n\
    Processing-Ms: 412\r\n\
    Server: provider\r\n\
    \r\n";

/// Sentences; `@` stands for a word.
const SENTENCES: [&str; 10] = [
    "Could you explain why the @ reports a @ result when the @ is idle? ",
    "The customer says their @ arrived late, but the @ shows it left on time. ",
    "Please compare the @ with the @ and tell me which one is more @. ",
    "After the upgrade the @ started to look @, and nobody touched the @. ",
    "Is it normal that the @ takes longer than the @ on Monday mornings? ",
    "What would you check first if the @ and the @ disagree about the @? ",
    "List three risks of running the @ without the @ and the @. ",
    "There is a @ difference between the @ we planned and the @ we have. ",
    "The budget for the @ is fine, but the @ needs another @ look. ",
    "Thanks, that was @; now do the same for the @ and leave the @ alone. ",
];

const WORDS: [&str; 32] = [
    "billing report",
    "search index",
    "delivery schedule",
    "release checklist",
    "warehouse scanner",
    "training plan",
    "message queue",
    "backup job",
    "price list",
    "event calendar",
    "sensor feed",
    "migration script",
    "design review",
    "energy meter",
    "photo archive",
    "network map",
    "road survey",
    "bus timetable",
    "parts inventory",
    "reading list",
    "slow",
    "reliable",
    "surprising",
    "expensive",
    "readable",
    "quiet",
    "fragile",
    "simple",
    "outdated",
    "precise",
    "useful",
    "stable",
];

/// `bytes` of prose; another text for every seed.
pub(crate) fn prose(bytes: usize, seed: u64) -> String {
    let mut state = seed.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut below = |count: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 20) as usize % count
    };
    let mut text = String::with_capacity(bytes + 128);
    while text.len() < bytes {
        for letter in SENTENCES[below(SENTENCES.len())].chars() {
            match letter {
                '@' => text.push_str(WORDS[below(WORDS.len())]),
                other => text.push(other),
            }
        }
    }
    // ASCII throughout, so every length is a boundary.
    text.truncate(bytes);
    text
}

/// A chat request of `length` bytes: instructions, two turns, and the newest message.
pub(crate) fn chat_request(length: usize) -> Vec<u8> {
    let with = |text: &str| {
        format!(
            "{{\"model\":\"gpt-4o-mini\",\"messages\":[{{\"role\":\"system\",\"content\":\"You are a patient teacher.\\nNever \
             guess.\"}},{{\"role\":\"user\",\"content\":\"How do the tides work?\"}},{{\"role\":\"assistant\",\"content\":\
             \"The moon pulls on the near side more than on the centre.\"}},{{\"role\":\"user\",\"content\":[{{\"type\":\
             \"text\",\"text\":\"{text}\"}}]}}],\"temperature\":0.7,\"max_tokens\":256,\"stream\":false,\"user\":\"u-1234\"}}"
        )
    };
    with(&prose(length.saturating_sub(with("").len()), 1)).into_bytes()
}

/// A whole chat answer of about 1 KB.
pub(crate) fn chat_answer() -> Vec<u8> {
    format!(
        "{{\"id\":\"chatcmpl-AbCdEf0123456789\",\"object\":\"chat.completion\",\"created\":1700000000,\"model\":\
         \"gpt-4o-mini-2024-07-18\",\"choices\":[{{\"index\":0,\"message\":{{\"role\":\"assistant\",\"content\":\"{}\",\
         \"refusal\":null,\"annotations\":[]}},\"logprobs\":null,\"finish_reason\":\"stop\"}}],\"usage\":{{\"prompt_tokens\":\
         139,\"completion_tokens\":92,\"total_tokens\":231,\"prompt_tokens_details\":{{\"cached_tokens\":0}},\
         \"completion_tokens_details\":{{\"reasoning_tokens\":0}}}},\"service_tier\":\"default\",\"system_fingerprint\":\
         \"fp_0123456789\"}}",
        prose(560, 2)
    )
    .into_bytes()
}

/// One frame of a stream.
pub(crate) fn frame(number: u64) -> Vec<u8> {
    framed(&format!("{{\"content\":\" {}\"}}", prose(6, number)), "null")
}

/// The frame that ends a stream, and the mark after it.
pub(crate) fn last_frame() -> Vec<u8> {
    [framed("{}", "\"stop\""), b"data: [DONE]\n\n".to_vec()].concat()
}

fn framed(delta: &str, reason: &str) -> Vec<u8> {
    format!(
        "data: {{\"id\":\"chatcmpl-AbCdEf0123456789\",\"object\":\"chat.completion.chunk\",\"created\":1700000000,\"model\":\
         \"gpt-4o-mini\",\"choices\":[{{\"index\":0,\"delta\":{delta},\"logprobs\":null,\"finish_reason\":{reason}}}]}}\n\n"
    )
    .into_bytes()
}
