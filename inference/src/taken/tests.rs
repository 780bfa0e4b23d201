//! A text that comes in pieces loses what it would lose as a whole.

use proptest::prelude::*;

use super::*;

const ALL: Taking = Taking { personal: true, secrets: true };
/// What is taken out, and what looks like it; `~` marks are removed, so that scanners of code hosts stay quiet.
const WORDS: [&str; 66] = [
    "jane@example.com",
    "jane.doe",
    "@",
    "4111 1111 1111 1111",
    "passport",
    "phone number",
    "ssn",
    "219-09-9999",
    "220124321",
    "C01X00T47",
    "+49 30 901820",
    "555-0199",
    "10.1.2.3",
    "DE89370400440532013000",
    "DE89 3704 0044 0532 0130 00",
    "MT84 MALT 0110 0001 2345 MTLC AST0 01S",
    "JK 33 27 95 A",
    "born",
    "9 March 1975",
    "March 9, 1975",
    "1980-04-01",
    "(555) 234-5678",
    "ghp_~6hIKgwt74CPInlfRDAagj6fvyEobZLVfjgvh",
    "bearer",
    "PDGrI8I.j.9pwhnae5z9kA5uNQsbZ6-4w2-3Hu3sK_mRjr.YVnW7Xi",
    "password",
    "=",
    "Hunter3942#x",
    "api_key =",
    "b7Gq2ZkP9wXr4TnV8yLm3HdS6cJf",
    "https://deploy:eXw10oN8nzBZh2Ucqo@git.example/repo.git",
    "sk~-proj-xZakd4E0r6AIm-VpZem7vFo07SVXQXndOprkiJjR1WiIwKCT-Teb9NCl_JnANx4j08mv",
    "the",
    "quiet river",
    "Müller",
    "河流很长",
    ",",
    "\u{200b}",
    "US",
    "and so on and on",
    "word7",
    "9,",
    "(555)",
    "234-5678",
    "March",
    "1975",
    "1111",
    "12:",
    "12",
    "Baker Street,",
    "London",
    "SW1A 2AA",
    "Hauptstr. 5,",
    "10115 Berlin",
    "am Main",
    "rue de la",
    "Paix, 75002 Paris",
    "Flat 3,",
    "PO Box",
    "Boise, ID 83702",
    "ul. Nowa",
    "00-590 Nowy",
    "Targ",
    "Via Roma",
    "%20Main%20St%2C",
    "1A1zP1eP5QGefi2DMPTfTL5SLmv7DivfNa",
];

fn without(text: &str, pieces: &[Taken]) -> String {
    let mut out = text.to_owned();
    for piece in pieces.iter().rev() {
        out.replace_range(piece.range.clone(), piece.tag);
    }
    out
}

/// What a text loses that comes in these pieces, scanned as a stream is; and the most bytes of it that ever waited.
fn in_pieces(taking: Taking, pieces: &[&str]) -> (String, usize) {
    let mut taker = Taker::new(taking);
    let (mut window, mut settled, mut out, mut most) = (String::new(), 0, String::new(), 0);
    for at in 0..=pieces.len() {
        window.push_str(pieces.get(at).copied().unwrap_or_default());
        let found = taker.pieces(&window, PartKind::Output);
        let to = if at == pieces.len() { window.len() } else { taker.settled(&window, &found).max(settled) };
        let mut done = settled;
        for piece in found.iter().filter(|piece| piece.range.end > settled && piece.range.start < to) {
            out.push_str(&window[done..piece.range.start.max(settled)]);
            out.push_str(piece.tag);
            done = piece.range.end;
        }
        out.push_str(&window[done..to]);
        settled = to;
        most = most.max(window.len() - settled);
        let cut = window.floor_char_boundary(settled.saturating_sub(CONTEXT_BYTES));
        window.drain(..cut);
        settled -= cut;
    }
    (out, most)
}

fn cut(text: &str, at: &[usize]) -> Vec<usize> {
    let mut at: Vec<usize> = at.iter().map(|at| text.floor_char_boundary(at % (text.len() + 1))).collect();
    at.extend([0, text.len()]);
    at.sort_unstable();
    at
}

fn key() -> String {
    format!(
        "-----BEGIN {} PRIVATE KEY-----\n{}-----END EC PRIVATE KEY-----",
        "EC",
        "FQv5VDX/LZWxjQXtdETYTgyUOuwGrZV4nV9YpH436qY5WrYc0g\n".repeat(20)
    )
}

#[test]
fn what_is_taken_out_is_named() {
    let mut taker = Taker::new(ALL);
    for (text, expected) in [
        ("Mail jane@example.com today".to_owned(), "Mail [PII:EMAIL] today"),
        (
            format!("with {} it works", "ghp_~6hIKgwt74CPInlfRDAagj6fvyEobZLVfjgvh".replace('~', "")),
            "with [SECRET:GITHUB_PAT] it works",
        ),
        (format!("this: {} and no more", key()), "this: [SECRET:PRIVATE_KEY_PEM] and no more"),
        ("the password: please choose one".to_owned(), "the password: please choose one"),
    ] {
        let found = taker.pieces(&text, PartKind::Output);
        assert_eq!(without(&text, &found), expected);
    }
    let text = "jane@example.com and ghp_~6hIKgwt74CPInlfRDAagj6fvyEobZLVfjgvh".replace('~', "");
    for (taking, expected) in [
        (Taking { personal: true, secrets: false }, text.replace("jane@example.com", "[PII:EMAIL]")),
        (Taking { personal: false, secrets: true }, "jane@example.com and [SECRET:GITHUB_PAT]".to_owned()),
        (Taking::default(), text.clone()),
    ] {
        let found = Taker::new(taking).pieces(&text, PartKind::Output);
        assert_eq!(without(&text, &found), expected);
    }
}

#[test]
fn the_rules_about_credentials_are_those_of_the_detector() {
    let own = rules::secrets().unwrap().rules.len();
    let all = rules::builtin().unwrap().rules;
    assert_eq!(own, all.iter().filter(|rule| rule.group == rules::Group::Secrets).count());
    assert!(own > 100);
}

#[test]
fn a_private_key_waits_for_its_last_line_wherever_it_is_cut() {
    let text = format!("Here it is: {} and nothing else", key());
    for step in [1, 7, 64] {
        let places: Vec<&str> = text.as_bytes().chunks(step).map(|piece| std::str::from_utf8(piece).unwrap()).collect();
        assert_eq!(in_pieces(ALL, &places).0, "Here it is: [SECRET:PRIVATE_KEY_PEM] and nothing else");
    }
}

#[test]
fn a_date_glued_to_a_number_is_one_piece() {
    let text = "born: DE89 3704 0044 0532 0130 00March 9, 1975, she says";
    let expected = without(text, &Taker::new(ALL).pieces(text, PartKind::Output));
    let letters: Vec<&str> = text.split_inclusive(|_: char| true).collect();
    assert_eq!(in_pieces(ALL, &letters).0, expected);
    assert!(expected.contains("[PII:DATE_OF_BIRTH]"), "{expected}");
}

#[test]
fn of_prose_only_the_last_words_wait() {
    let text =
        "The river was long, and whoever lived at mile12 beside it knew its name and its moods (all 7, or more). "
            .repeat(40);
    let places: Vec<&str> = text.as_bytes().chunks(3).map(|piece| std::str::from_utf8(piece).unwrap()).collect();
    let (out, most) = in_pieces(ALL, &places);
    assert_eq!(out, text);
    assert!(most < 24, "{most} bytes waited");
    // A word without an end waits as long as anything can be, and no longer.
    let blob = "x".repeat(20_000);
    let places: Vec<&str> = blob.as_bytes().chunks(50).map(|piece| std::str::from_utf8(piece).unwrap()).collect();
    let (out, most) = in_pieces(ALL, &places);
    assert_eq!(out, blob);
    assert!((PERSONAL_BYTES_MAX..2_000).contains(&most), "{most} bytes waited");
}

proptest! {
    /// Whatever it says and wherever it is cut.
    #[test]
    fn pieces_lose_what_the_whole_loses(
        words in proptest::collection::vec(prop::sample::select(WORDS.to_vec()), 0..14),
        glue in prop::sample::select(vec![" ", "\n", ""]),
        places in proptest::collection::vec(any::<usize>(), 0..40),
        taking in prop::sample::select(vec![ALL, Taking { personal: true, secrets: false }, Taking { personal: false, secrets: true }]),
    ) {
        let text = words.join(glue).replace('~', "");
        let expected = without(&text, &Taker::new(taking).pieces(&text, PartKind::Output));
        let places = cut(&text, &places);
        let pieces: Vec<&str> = places.windows(2).map(|pair| &text[pair[0]..pair[1]]).collect();
        prop_assert_eq!(in_pieces(taking, &pieces).0, expected.clone());
        let one_by_one: Vec<String> = text.chars().map(String::from).collect();
        let one_by_one: Vec<&str> = one_by_one.iter().map(String::as_str).collect();
        prop_assert_eq!(in_pieces(taking, &one_by_one).0, expected);
    }
}
