//! Heads of common clients, field for field as they send them (captured from a listener or from their sources; host,
//! credentials and ids are made up), and the calls people make with them.

/// Name, and the field lines that do not depend on the call.
pub(crate) const CLIENTS: &[(&str, &str)] = &[
    ("curl 7.88", "Host: 127.0.0.1:8080\r\nUser-Agent: curl/7.88.1\r\nAccept: */*\r\nAuthorization: Bearer sk-a\r\n"),
    (
        "curl 8 --compressed",
        "Host: localhost:8080\r\nUser-Agent: curl/8.9.1\r\nAccept: */*\r\nAccept-Encoding: deflate, gzip, br, zstd\r\nAuthorization: Bearer sk-a\r\n",
    ),
    (
        "wget",
        "Host: localhost\r\nUser-Agent: Wget/1.21.3\r\nAccept: */*\r\nAccept-Encoding: identity\r\nConnection: Keep-Alive\r\n",
    ),
    (
        "openai-python",
        "Host: 127.0.0.1:8080\r\nAccept-Encoding: gzip, deflate\r\nConnection: keep-alive\r\nAccept: application/json\r\nUser-Agent: OpenAI/Python 3.52.0\r\nX-Stainless-Lang: python\r\nX-Stainless-Package-Version: 3.52.0\r\nX-Stainless-OS: Linux\r\nX-Stainless-Arch: x64\r\nX-Stainless-Runtime: CPython\r\nX-Stainless-Runtime-Version: 3.11.7\r\nAuthorization: Bearer sk-a\r\nX-Stainless-Async: false\r\nx-stainless-retry-count: 0\r\nx-stainless-read-timeout: 600\r\nIdempotency-Key: stainless-python-retry-1f\r\n",
    ),
    (
        "openai-node",
        "host: 127.0.0.1:8080\r\nconnection: keep-alive\r\naccept: application/json\r\nuser-agent: OpenAI/JS 6.1.0\r\nx-stainless-retry-count: 0\r\nx-stainless-timeout: 600\r\nx-stainless-lang: js\r\nx-stainless-package-version: 6.1.0\r\nx-stainless-os: MacOS\r\nx-stainless-arch: arm64\r\nx-stainless-runtime: node\r\nx-stainless-runtime-version: v22.4.0\r\nauthorization: Bearer sk-a\r\naccept-language: *\r\nsec-fetch-mode: cors\r\naccept-encoding: gzip, deflate\r\n",
    ),
    (
        "openai-go",
        "Host: 127.0.0.1:8080\r\nUser-Agent: OpenAI/Go 1.12.0\r\nAccept: application/json\r\nAuthorization: Bearer sk-a\r\nX-Stainless-Arch: x64\r\nX-Stainless-Lang: go\r\nX-Stainless-Os: Linux\r\nX-Stainless-Retry-Count: 0\r\nX-Stainless-Runtime: go\r\nAccept-Encoding: gzip\r\n",
    ),
    (
        "openai-java (okhttp)",
        "X-Stainless-Lang: java\r\nX-Stainless-Arch: x64\r\nX-Stainless-OS: Linux\r\nUser-Agent: OpenAIClientImpl/Java 4.0.1\r\nAuthorization: Bearer sk-a\r\nHost: 127.0.0.1:8080\r\nConnection: Keep-Alive\r\nAccept-Encoding: gzip\r\n",
    ),
    (
        "openai-dotnet",
        "Host: localhost:8080\r\nAccept: application/json\r\nUser-Agent: OpenAI/2.2.0 (.NET 9.0.0; Linux 6.18)\r\nAuthorization: Bearer sk-a\r\ntraceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01\r\n",
    ),
    (
        "anthropic-python",
        "Host: 127.0.0.1:8080\r\nAccept-Encoding: gzip, deflate\r\nConnection: keep-alive\r\nAccept: application/json\r\nUser-Agent: Anthropic/Python 2.11.0\r\nX-Stainless-Lang: python\r\nX-Api-Key: sk-ant-a\r\nX-Stainless-Async: async:asyncio\r\nanthropic-version: 2023-06-01\r\nanthropic-beta: prompt-caching-2024-07-31,files-api-2025-04-14\r\nx-stainless-read-timeout: 600\r\nX-Stainless-Timeout: NOT_GIVEN\r\n",
    ),
    (
        "anthropic-ts in a coding agent",
        "host: 127.0.0.1:8080\r\nconnection: keep-alive\r\naccept: application/json\r\nx-stainless-helper-method: stream\r\nuser-agent: coding-cli/2.0.0 (external, cli)\r\nanthropic-dangerous-direct-browser-access: true\r\nanthropic-version: 2023-06-01\r\nauthorization: Bearer sk-ant-oat01-a\r\nx-app: cli\r\nanthropic-beta: oauth-2025-04-20,interleaved-thinking-2025-05-14,fine-grained-tool-streaming-2025-05-14\r\naccept-language: *\r\nsec-fetch-mode: cors\r\naccept-encoding: br, gzip, deflate\r\n",
    ),
    (
        "ollama-python",
        "Host: 127.0.0.1:11434\r\nAccept-Encoding: gzip, deflate\r\nConnection: keep-alive\r\nAccept: application/json\r\nUser-Agent: ollama-python/0.6.3 (x86_64 linux) Python/3.11.7\r\n",
    ),
    (
        "ollama-go",
        "Host: 127.0.0.1:11434\r\nUser-Agent: ollama/0.12.0 (amd64 linux) Go/go1.24.1\r\nAccept: application/x-ndjson\r\nAccept-Encoding: gzip\r\n",
    ),
    (
        "requests",
        "Host: localhost:8080\r\nUser-Agent: python-requests/2.32.3\r\nAccept-Encoding: gzip, deflate, br, zstd\r\nAccept: */*\r\nConnection: keep-alive\r\nAuthorization: Bearer sk-a\r\n",
    ),
    (
        "urllib",
        "Accept-Encoding: identity\r\nHost: localhost:8080\r\nUser-Agent: Python-urllib/3.11\r\nConnection: close\r\n",
    ),
    (
        "aiohttp",
        "Host: localhost:8080\r\nAuthorization: Bearer sk-a\r\nAccept: */*\r\nAccept-Encoding: gzip, deflate\r\nUser-Agent: Python/3.11 aiohttp/3.10.5\r\n",
    ),
    (
        "reqwest",
        "accept: */*\r\nauthorization: Bearer sk-a\r\nuser-agent: app/1.0\r\naccept-encoding: gzip, br\r\nhost: 127.0.0.1:8080\r\n",
    ),
    ("hyper, nothing but a host", "host: 127.0.0.1:8080\r\n"),
    (
        "java.net.http",
        "Connection: Upgrade, HTTP2-Settings\r\nHost: localhost:8080\r\nHTTP2-Settings: AAEAAEAAAAIAAAABAAMAAABkAAQBAAAAAAUAAEAA\r\nUpgrade: h2c\r\nUser-Agent: Java-http-client/21.0.2\r\nAuthorization: Bearer sk-a\r\n",
    ),
    (
        "apache httpclient",
        "Accept-Encoding: gzip, x-gzip, deflate\r\nHost: localhost:8080\r\nConnection: keep-alive\r\nUser-Agent: Apache-HttpClient/5.3 (Java/21.0.2)\r\nAuthorization: Bearer sk-a\r\n",
    ),
    (
        "axios",
        "Accept: application/json, text/plain, */*\r\nAuthorization: Bearer sk-a\r\nUser-Agent: axios/1.7.7\r\nAccept-Encoding: gzip, compress, deflate, br\r\nHost: localhost:8080\r\nConnection: keep-alive\r\n",
    ),
    ("guzzle", "Host: localhost:8080\r\nUser-Agent: GuzzleHttp/7\r\nAuthorization: Bearer sk-a\r\n"),
    (
        "ruby net/http",
        "Accept-Encoding: gzip;q=1.0,deflate;q=0.6,identity;q=0.3\r\nAccept: */*\r\nUser-Agent: Ruby\r\nHost: localhost:8080\r\nAuthorization: Bearer sk-a\r\n",
    ),
    (
        "a browser",
        "Host: weir.internal.example\r\nConnection: keep-alive\r\nsec-ch-ua: \"Chromium\";v=\"130\", \"Not?A_Brand\";v=\"99\"\r\nsec-ch-ua-mobile: ?0\r\nsec-ch-ua-platform: \"Linux\"\r\nUpgrade-Insecure-Requests: 1\r\nUser-Agent: Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/130.0.0.0 Safari/537.36\r\nAccept: text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,*/*;q=0.8\r\nOrigin: http://weir.internal.example\r\nSec-Fetch-Site: same-origin\r\nReferer: http://weir.internal.example/docs?a=b#c\r\nAccept-Encoding: gzip, deflate, br, zstd\r\nAccept-Language: de-DE,de;q=0.9,en;q=0.8\r\nCookie: session=abc123; theme=dark; _ga=GA1.1.1.1\r\nDNT: 1\r\n",
    ),
    (
        "behind an ingress",
        "Host: weir.example\r\nX-Request-ID: 5f0c\r\nX-Real-IP: 10.0.0.7\r\nX-Forwarded-For: 203.0.113.9, 10.0.0.7\r\nX-Forwarded-Host: weir.example\r\nX-Forwarded-Port: 443\r\nX-Forwarded-Proto: https\r\nX-Forwarded-Scheme: https\r\nX-Scheme: https\r\nForwarded: for=203.0.113.9;proto=https\r\nVia: 1.1 ingress\r\ntracestate: vendor=1\r\nbaggage: userId=1,tier=gold\r\nUser-Agent: app\r\nAuthorization: Bearer sk-a\r\nTE: trailers\r\nPriority: u=1, i\r\n",
    ),
    (
        "odd but legal",
        "host:x\r\nuser-agent:\r\nX-Empty: \r\nx_under_score: 1\r\nX-Latin: caf\u{e9}\r\nX-Repeat: a\r\nX-Repeat: b\r\nCookie: a=\"b c\"\r\nX-Long: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\r\nKeep-Alive: timeout=5, max=100\r\n",
    ),
];

/// Method, target, content type and body.
pub(crate) const CALLS: &[(&str, &str, &str, &str)] = &[
    (
        "POST",
        "/v1/chat/completions",
        "application/json",
        r#"{"model":"gpt-4o","messages":[{"role":"user","content":"Which river is the longest?"}]}"#,
    ),
    (
        "POST",
        "/v1/chat/completions",
        "application/json; charset=utf-8",
        r#"{"model":"gpt-4o","stream":true,"messages":[{"role":"system","content":"kurz"},{"role":"user","content":"Größe?"}]}"#,
    ),
    (
        "POST",
        "/v1/messages?beta=true",
        "application/json",
        r#"{"model":"claude","max_tokens":10,"messages":[{"role":"user","content":"hi"}]}"#,
    ),
    ("POST", "/v1/messages/count_tokens", "application/json", r#"{"model":"claude","messages":[]}"#),
    ("POST", "/v1/embeddings", "application/json", r#"{"model":"e","input":["a","b"],"encoding_format":"base64"}"#),
    ("POST", "/v1/responses", "application/json", r#"{"model":"gpt-5","input":"hi","store":false}"#),
    (
        "POST",
        "/api/chat",
        "application/json",
        r#"{"model":"llama3","messages":[{"role":"user","content":"hi"}],"stream":true}"#,
    ),
    ("GET", "/v1/models", "", ""),
    ("GET", "/v1/models/ft:gpt-4o:org::8abc%2Fx?limit=20&after=obj_1", "", ""),
    ("HEAD", "/v1/models", "", ""),
    ("OPTIONS", "/v1/chat/completions", "", ""),
    ("DELETE", "/v1/files/file-abc", "", ""),
    ("DELETE", "/v1/assistants/asst_1", "application/json", "{}"),
    ("PUT", "/v1/things/1", "application/json", r#"{"a":[1,2,{"b":null}]}"#),
    ("PATCH", "/v1beta/models/gemini-1.5-pro:generateContent", "application/json-patch+json", "[]"),
    (
        "POST",
        "/openai/deployments/my-dep/chat/completions?api-version=2024-06-01",
        "application/json",
        r#"{"messages":[]}"#,
    ),
    (
        "POST",
        "/v1/audio/transcriptions",
        "multipart/form-data; boundary=----form7MA4YWxk",
        "------form7MA4YWxk\nContent-Disposition: form-data; name=\"file\"; filename=\"a b.mp3\"\nContent-Type: audio/mpeg\n\nID3\n------form7MA4YWxk--\n",
    ),
    ("POST", "/v1/uploads", "application/octet-stream", "GET / HTTP/1.1\nHost: x\n\n"),
    ("POST", "/v1/batches/batch_1/cancel", "", ""),
    ("POST", "/oauth/token", "application/x-www-form-urlencoded", "grant_type=client_credentials&scope=a%20b"),
];
