//! Trees, positions, and what is refused.

use proptest::prelude::*;

use super::*;

fn text(text: &str) -> Node {
    Node::Text(text.to_owned())
}

#[test]
fn reads_plain_values_in_the_order_of_the_document() {
    let read = parse("b: [1, -2, 0.5, ~, true, yes, '1', 0x10]\na: {1: x, true: y}\n").unwrap();
    let list = vec![
        Node::Int(1),
        Node::Int(-2),
        Node::Float(0.5),
        Node::Null,
        Node::Bool(true),
        text("yes"),
        text("1"),
        Node::Int(16),
    ];
    let map = vec![("1".to_owned(), text("x")), ("true".to_owned(), text("y"))];
    assert_eq!(read, Node::Map(vec![("b".to_owned(), Node::List(list)), ("a".to_owned(), Node::Map(map))]));
}

#[test]
fn a_document_without_content_is_an_empty_map() {
    for empty in ["", "\n\n", "# only words\n", "---\n", "~"] {
        assert_eq!(parse(empty), Ok(Node::Map(Vec::new())), "{empty:?}");
    }
}

#[test]
fn repeated_keys_are_kept_for_the_caller_to_refuse() {
    let read = parse("a: 1\na: 2\n").unwrap();
    assert_eq!(read.entries().map(<[_]>::len), Some(2));
}

#[test]
fn says_where_a_document_cannot_be_read() {
    let cases = [
        ("a: b: c", "mapping values are not allowed in this context", Some((1, 5))),
        ("a: !secret x", "a: tags such as `!name` are not supported", Some((1, 4))),
        ("? [a]\n: b", "a key has to be a plain text", Some((1, 1))),
    ];
    for (text, reason, position) in cases {
        assert_eq!(parse(text), Err(Unreadable { reason: reason.to_owned(), position }), "{text}");
    }
    let two = parse("a: 1\n---\nb: 2\n").unwrap_err();
    assert!(two.reason.contains("more than one document"), "{two:?}");
}

#[test]
fn finds_keys_and_values_in_block_and_flow_style() {
    let document = "first: 1\nsection:\n  # words\n  key: [a, {x: y}]\n  \"quoted\":   z\nfolded: >\n  text\n";
    assert_eq!(locate(document, &[0], true), Some((1, 1)));
    assert_eq!(locate(document, &[0], false), Some((1, 8)));
    assert_eq!(locate(document, &[1, 0], true), Some((4, 3)));
    assert_eq!(locate(document, &[1, 0, 1], false), Some((4, 12)));
    assert_eq!(locate(document, &[1, 0, 1, 0], true), Some((4, 13)));
    assert_eq!(locate(document, &[1, 0, 1, 0], false), Some((4, 16)));
    assert_eq!(locate(document, &[1, 1], true), Some((5, 3)));
    assert_eq!(locate(document, &[1, 1], false), Some((5, 15)));
    assert_eq!(locate(document, &[2], false), Some((6, 9)));
}

#[test]
fn finds_nothing_beyond_the_document() {
    assert_eq!(locate("a: 1", &[1], false), None);
    assert_eq!(locate("", &[0], true), None);
}

proptest! {
    #[test]
    fn reading_and_locating_never_panic(document in "[a-b:{}\\[\\]&*! \\n\"'|>,#?-]{0,60}", step in 0usize..4) {
        let _first = parse(&document);
        let _second = locate(&document, &[step, 0], true);
    }

    #[test]
    fn every_entry_of_a_flat_map_is_found_at_its_own_line(keys in 1usize..20, step in 0usize..20) {
        let document: String = (0..keys).map(|key| format!("k{key}: v\n")).collect();
        let expected = (step < keys).then_some((step + 1, 1));
        prop_assert_eq!(locate(&document, &[step], true), expected);
    }
}
