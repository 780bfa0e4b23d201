//! Credentials under names that no list holds, in files of tools and inside of codes; national numbers with check digits; and beside
//! each what looks like it and is none.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::sync::Arc;

use base64::Engine as _;
use weir_inference::{Analyser, Call, Part, PartKind, PlanSettings};

/// SplitMix64, so that a failure comes again.
struct Random(u64);

impl Random {
    fn of(&mut self, alphabet: &str, count: usize) -> String {
        let letters = alphabet.as_bytes();
        let mut next = || {
            self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            ((mixed ^ mixed >> 27) % letters.len() as u64) as usize
        };
        (0..count).map(|_| char::from(letters[next()])).collect()
    }

    fn word(&mut self, count: usize) -> String {
        self.of("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789", count)
    }

    fn hex(&mut self, count: usize) -> String {
        self.of("0123456789abcdef", count)
    }

    fn digits(&mut self, count: usize) -> String {
        self.of("0123456789", count)
    }
}

/// Types found in a text: of findings about credentials, and of personal data.
fn looker() -> impl FnMut(&str) -> (Vec<String>, Vec<String>) {
    let analyser = Analyser::builtin().unwrap().without_memory();
    let plan = Arc::new(analyser.plan(&PlanSettings::default()));
    let mut scratch = analyser.scratch();
    move |text| {
        let mut hits = Vec::new();
        let part = Part { text, kind: PartKind::User };
        analyser.analyse(&mut scratch, &[part], &Call::of(&plan), &mut hits);
        let of = |key: &str| hits.iter().filter_map(|hit| hit.finding.metadata.get(key).cloned()).collect();
        (of("secret_type"), of("pii_type"))
    }
}

fn credentials(random: &mut Random) -> Vec<String> {
    let code = |text: String| base64::engine::general_purpose::STANDARD.encode(text);
    let pem = format!("-----BEGIN RSA PRIVATE KEY-----\n{}\n-----END RSA PRIVATE KEY-----\n", random.word(600));
    let key = format!("OPENAI_API_KEY=sk-proj-{}T3BlbkFJ{}", random.word(74), random.word(74));
    vec![
        format!("JWT_SECRET={}", random.word(44)),
        format!("SESSION_SECRET={}", random.word(32)),
        format!("ENCRYPTION_KEY={}", random.word(44)),
        format!("SIGNING_KEY={}", random.word(44)),
        format!("APP_SECRET={}", random.word(32)),
        format!("OPENAI_KEY={}", random.word(44)),
        format!("AZURE_OPENAI_KEY={}", random.word(32)),
        format!("REFRESH_TOKEN={}", random.word(44)),
        format!("CI_TOKEN={}", random.word(36)),
        format!("X-Auth-Token: {}", random.word(44)),
        format!("token: \"{}\"", random.word(44)),
        format!("TWILIO_AUTH_TOKEN={}", random.hex(32)),
        format!("api_key: {}", random.hex(32)),
        format!(
            "PuTTY-User-Key-File-3: ssh-ed25519\nEncryption: none\nComment: x\nPublic-Lines: 2\n{}\nPrivate-Lines: 1\n{}",
            random.word(60),
            random.word(44)
        ),
        format!("{}JQQJ99{}", random.word(52), random.word(26)),
        format!("client-key-data: {}", code(pem)),
        format!("data:\n  env: {}", code(key)),
        format!("[Interface]\nPrivateKey = {}=", random.word(43)),
        format!("xoxc-{}-{}-{}-{}", random.digits(12), random.digits(12), random.digits(13), random.hex(64)),
        format!("//registry.npmjs.org/:_authToken={}", random.word(36)),
        format!("curl -u admin:{}7 https://api.example.org/v1", random.word(16)),
        format!("machine git.example.org login bob password {}7", random.word(20)),
        format!("ntn_{}{}", random.digits(11), random.word(35)),
        format!("hf_{}", random.word(34)),
    ]
}

#[test]
fn credentials_of_further_kinds_are_found() {
    let (mut look, mut random) = (looker(), Random(0x2026_1128));
    let (mut all, mut missed) = (0, Vec::new());
    for _ in 0..20 {
        for text in credentials(&mut random) {
            all += 1;
            if look(&text).0.is_empty() {
                missed.push(text);
            }
        }
    }
    // A value may be less random than a rule asks.
    assert!(missed.len() * 50 <= all, "{} of {all}: {missed:#?}", missed.len());
}

#[test]
fn what_looks_like_such_a_credential_and_is_none_is_silent() {
    let mut look = looker();
    for text in [
        "JWT_SECRET=your_jwt_secret_goes_here_please",
        "SESSION_SECRET=${SESSION_SECRET}",
        "SIGNING_KEY=<your signing key>",
        "encryption_key: str = Field(default=None)",
        "const cache_key = `user:${id}:settings:v2:profile`;",
        "token = tokenizer.convert_ids_to_tokens(input_ids[0])",
        "token: the_name_of_the_next_token_in_the_stream",
        "access_token = response.json()[\"access_token\"]",
        "refresh_token=request.cookies.get('refresh_token')",
        "etag: a1e970b7b0799800b9d585353f69e7dc",
        "commit a1e970b7b0799800b9d585353f69e7dc12345678",
        "PrivateKey = <paste your key here>",
        "client-certificate-data: LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCk1JSUM",
        "curl -u user:$PASSWORD https://api.example.org/v1",
        "sort -u file:name | uniq -c",
        "machine learning login page with a password field",
        "//registry.npmjs.org/:_authToken=${NPM_TOKEN}",
        "postgres://user:password@localhost:5432/db",
        "mongodb://username:password@host/db",
        "amqp://guest:guest@localhost:5672/",
        "hf_hub_download_from_the_main_branch",
        "secret_santa_list_of_the_team",
    ] {
        assert_eq!(look(text).0, <[&str; 0]>::default(), "{text}");
    }
}

#[test]
fn numbers_of_articles_are_no_cards() {
    let (mut look, mut random) = (looker(), Random(8));
    for _ in 0..200 {
        let number = format!("400{}", random.digits(9));
        let sum: u32 = number
            .bytes()
            .enumerate()
            .map(|(at, digit)| u32::from(digit - b'0') * if at % 2 == 1 { 3 } else { 1 })
            .sum();
        let text = format!("EAN {number}{}, 3 pcs", (10 - sum % 10) % 10);
        assert_eq!(look(&text).1, <[&str; 0]>::default(), "{text}");
    }
}

#[test]
fn national_numbers_are_found_by_their_check_digits_and_others_are_not() {
    let mut look = looker();
    for (name, text, other) in [
        ("it_fiscal_code", "codice fiscale RSSMRA85T10A562S", "codice RSSMRA85T10A562T"),
        ("pl_pesel", "PESEL 44051401359", "PESEL 44051401358"),
        ("kr_rrn", "주민등록번호 900101-1234568", "900101-1234567"),
        ("nl_bsn", "BSN 111222333", "BSN 111222334"),
        ("tr_identity", "TC kimlik no 10000000146", "TC kimlik no 10000000147"),
        ("cn_resident_id", "身份证 11010519491231002X", "11010519491231002A"),
        ("mac_address", "on 3c:22:fb:4a:91:07 now", "at 12:30:45:10:20:30:40 and 00:11:22:33:44:55"),
    ] {
        assert!(look(text).1.iter().any(|found| found == name), "{name}: {:?}", look(text));
        assert!(!look(other).1.iter().any(|found| found == name), "{name}: {:?}", look(other));
    }
    for text in ["order 44051401359", "10000000146 rows", "id 111222333", "build 900101 1234568", "sha 3c22fb4a9107"] {
        assert_eq!(look(text).1, <[&str; 0]>::default(), "{text}");
    }
}

#[test]
fn wallets_and_postal_addresses_are_found_and_what_looks_like_them_is_silent() {
    let (mut look, mut random) = (looker(), Random(43));
    for (name, text) in [
        ("crypto_wallet", "pay 1A1zP1eP5QGefi2DMPTfTL5SLmv7DivfNa today"),
        ("crypto_wallet", "to=3J98t1WpEZ73CNmQviecrnyiWrnqRhWNLy&n=1"),
        ("crypto_wallet", "bitcoin:bc1qw508d6qejxtdg4y5r3zarvary0c5xw7kv8f3t4?amount=1"),
        ("crypto_wallet", "bc1p0xlxvlhemja6c4dqv22uapctqupfhlxm9h8z3k2e72q4k9hcz7vqzk5jj0"),
        ("crypto_wallet", "send it to 0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed"),
        ("crypto_wallet", "my ETH wallet: 0x5aaeb6053f3e94c9b9a09f33669435e7ef1beaed"),
        ("postal_address", "Ship it to 742 Evergreen Terrace, Springfield, OR 97477, please"),
        ("postal_address", "Meine Adresse: Hauptstraße 12, 10115 Berlin"),
    ] {
        assert!(look(text).1.iter().any(|found| found == name), "{text}: {:?}", look(text));
    }
    // Hashes, identifiers, versions and code, a thousand of each.
    for _ in 0..1000 {
        for text in [
            format!("commit {}", random.hex(40)),
            format!("sha1 0x{}", random.hex(40)),
            format!("sha256:{}", random.hex(64)),
            format!("id {}-{}-4{}-a{}-{}", random.hex(8), random.hex(4), random.hex(3), random.hex(3), random.hex(12)),
            format!("etag \"1{}\"", random.word(33)),
            format!("token 3{}", random.word(33)),
            format!("data bc1q{}", random.of("qpzry9x8gf2tvdw0s3jn54khce6mua7l", 38)),
            format!("const HASH: &str = \"0x{}\";", random.of("0123456789abcdefABCDEF", 40)),
            format!("version {}.{}.{}+{}", random.digits(1), random.digits(2), random.digits(3), random.hex(26)),
        ] {
            let found = look(&text).1;
            assert!(!found.iter().any(|kind| kind == "crypto_wallet" || kind == "postal_address"), "{text}: {found:?}");
        }
    }
}
