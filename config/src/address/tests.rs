//! What is read as an address, what is refused and why, and which upstreams are loops.

use proptest::prelude::*;

use super::*;

#[test]
fn reads_every_form_of_listen_address() {
    let cases = [
        ("0.0.0.0:8080", "0.0.0.0:8080"),
        ("127.0.0.1:0", "127.0.0.1:0"),
        ("localhost:8080", "127.0.0.1:8080"),
        ("LocalHost:1", "127.0.0.1:1"),
        ("[::]:8080", "[::]:8080"),
        ("[::1]:65535", "[::1]:65535"),
        (":8080", "0.0.0.0:8080"),
    ];
    for (text, expected) in cases {
        assert_eq!(listen_addr(text).map(|addr| addr.to_string()).as_deref(), Ok(expected), "{text}");
    }
}

#[test]
fn says_what_is_wrong_with_a_listen_address() {
    let cases = [
        ("8080", "it names no port"),
        ("", "it names no port"),
        ("localhost:", "its port is not a number up to 65535"),
        ("localhost:65536", "its port is not a number up to 65535"),
        ("localhost:+80", "its port is not a number up to 65535"),
        ("::1:8080", "an IPv6 address needs brackets"),
        ("[::g]:8080", "the text in brackets is not an IPv6 address"),
        ("example.com:80", "its host is not an IP address"),
        ("127.1:80", "its host is not an IP address"),
    ];
    for (text, expected) in cases {
        assert_eq!(listen_addr(text), Err(expected), "{text}");
    }
}

#[test]
fn takes_an_upstream_apart() {
    let parts = |text: &str| {
        let upstream = upstream(text).unwrap();
        (upstream.scheme, upstream.host, upstream.port, upstream.authority, upstream.path_prefix)
    };
    let expected = |scheme, host: &str, port, authority: &str, path: &str| {
        (scheme, host.to_owned(), port, authority.to_owned(), path.to_owned())
    };
    assert_eq!(
        parts("https://API.example.com"),
        expected(Scheme::Https, "api.example.com", 443, "api.example.com", "")
    );
    assert_eq!(parts("http://10.0.0.1:80/"), expected(Scheme::Http, "10.0.0.1", 80, "10.0.0.1", ""));
    assert_eq!(parts("HTTPS://host:8443/a/b//"), expected(Scheme::Https, "host", 8443, "host:8443", "/a/b"));
    assert_eq!(parts("http://[0:0::1]:11434/v1"), expected(Scheme::Http, "::1", 11434, "[::1]:11434", "/v1"));
    assert_eq!(parts("https://my_host.:443/v1"), expected(Scheme::Https, "my_host.", 443, "my_host.", "/v1"));
}

#[test]
fn says_what_is_wrong_with_an_upstream() {
    let cases = [
        ("api.openai.com", "it has no http:// or https:// in front"),
        ("ftp://host", "its scheme is neither http nor https"),
        ("http://", "it names no host"),
        ("http:///v1", "it names no host"),
        ("http://:80", "it names no host"),
        ("http://user:pw@host", "it has user information; clients bring the provider's credential"),
        ("http://host?key=1", "it has a query"),
        ("http://host/#top", "it has a fragment"),
        ("http://ho st", "it contains a character that a URL has to percent-encode"),
        ("http://host/\r\nX: y", "it contains a character that a URL has to percent-encode"),
        ("http://bücher.example", "it contains a character that a URL has to percent-encode"),
        ("http://host:0", "its port is not a number up to 65535"),
        ("http://host:", "its port is not a number up to 65535"),
        ("http://host:1:2", "its port is not a number up to 65535"),
        ("http://[::1", "the bracket of its IPv6 address is not closed"),
        ("http://[::1]x", "something other than a port follows its IPv6 address"),
        ("http://[fe80::1%25eth0]", "the text in brackets is not an IPv6 address"),
        ("http://a..b", "its host has an empty or overlong part"),
        ("http://a%41", "its host is not a name of letters, digits, `-`, `_` and `.`"),
        ("http://127.1", "its host looks like an IPv4 address and is none"),
        ("http://0x7f.0x1", "its host looks like an IPv4 address and is none"),
        ("http://host/a/../b", "its path has a `.` or `..` segment"),
        ("http://host/a/%2E%2e", "its path has a `.` or `..` segment"),
    ];
    for (text, expected) in cases {
        assert_eq!(upstream(text), Err(expected), "{text}");
    }
}

#[test]
fn knows_its_own_listener() {
    let cases = [
        ("http://127.0.0.1:8080", "0.0.0.0:8080", true),
        ("http://127.9.9.9:8080", "0.0.0.0:8080", true),
        ("http://0.0.0.0:8080", "0.0.0.0:8080", true),
        ("http://localhost:8080/v1", "127.0.0.1:8080", true),
        ("http://localhost.:8080", "[::1]:8080", true),
        ("https://localhost:8080", "0.0.0.0:8080", true),
        ("http://[::1]:8080", "[::]:8080", true),
        ("http://127.0.0.1:8080", "[::]:8080", true),
        ("http://[::ffff:127.0.0.1]:8080", "127.0.0.1:8080", true),
        ("http://192.0.2.7:8080", "192.0.2.7:8080", true),
        ("http://127.0.0.1", "0.0.0.0:80", true),
        ("http://0.0.0.0:8080", "127.0.0.1:8080", true),
        ("http://[::1]:8080", "0.0.0.0:8080", false),
        ("http://127.0.0.2:8080", "127.0.0.1:8080", false),
        ("http://127.0.0.1:8081", "0.0.0.0:8080", false),
        ("http://localhost:8080", "192.0.2.7:8080", false),
        ("http://192.0.2.7:8080", "0.0.0.0:8080", false),
        ("http://example.com:8080", "0.0.0.0:8080", false),
        ("http://127.0.0.1:8080", "127.0.0.1:0", false),
    ];
    for (url, listen, expected) in cases {
        let upstream = upstream(url).unwrap();
        assert_eq!(is_own_listener(&upstream, listen_addr(listen).unwrap()), expected, "{url} behind {listen}");
    }
}

proptest! {
    #[test]
    fn an_accepted_upstream_reads_the_same_when_written_out(text in "(?i)https?://[a-z0-9.:\\[\\]-]{0,24}(/[a-z0-9./%]{0,12})?") {
        if let Ok(first) = upstream(&text) {
            let scheme = if first.scheme == Scheme::Https { "https" } else { "http" };
            let again = upstream(&format!("{scheme}://{}{}", first.authority, first.path_prefix));
            prop_assert_eq!(again, Ok(first));
        }
    }

    #[test]
    fn no_text_makes_reading_panic(text in any::<String>()) {
        let _first = upstream(&text);
        let _second = listen_addr(&text);
    }
}
