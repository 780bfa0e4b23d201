//! The round trip of every field is tested through both engines; here is what only this module can see.

use proptest::prelude::*;
use smallvec::smallvec;

use super::*;

const PROSE: &str =
    "Please compare the two proposals, list the risks of each, and recommend one of them to the board. ";

fn span(prompt: Option<String>) -> SpanRecord {
    SpanRecord { prompt, ..sample_span() }
}

fn columns(span: &SpanRecord) -> Columns {
    Columns {
        trace_id: span.trace_id,
        span_id: span.span_id,
        tenant_id: span.tenant_id,
        start_time: span.start_time,
        provider: span.provider.to_string(),
        model: span.model.clone(),
        operation: span.operation_name.to_string(),
        score: span.security_score,
        session: span.session_id.clone(),
        client: span.client.clone(),
    }
}

/// The body of a span whose texts all lie in it.
fn encoded(encoder: &mut Encoder, span: &SpanRecord, model_within: bool) -> Vec<u8> {
    use weir_config::vocab::part::PartSide::{Request, Response};
    let (request, response) = (divide(span, Request), divide(span, Response));
    let laid = Laid {
        request: smallvec![Entry::Pieces { pieces: &request.pieces, last: -1 }],
        response: smallvec![Entry::Pieces { pieces: &response.pieces, last: -1 }],
        order: [&request.order, &response.order],
        ..Laid::default()
    };
    encoder.encode(span, model_within, &laid).unwrap().to_vec()
}

/// Puts a span together whose texts all lie in its body.
fn decoded(columns: Columns, body: &[u8]) -> Result<SpanRecord, Damaged> {
    use weir_config::vocab::part::PartSide::{Request, Response};
    let (mut span, layout) = decode(columns, body)?;
    let side = |side, entries: Vec<Lying>| {
        let mut joining = Joining::of(side);
        for entry in entries {
            let Lying::Pieces(pieces) = entry else { return Err(Damaged) };
            pieces.into_iter().try_for_each(|piece| joining.add(piece))?;
        }
        Ok(joining.end())
    };
    if layout.is_there {
        let (prompt, mut parts) = side(Request, layout.request)?;
        let (response, further) = side(Response, layout.response)?;
        parts.extend(further);
        (span.prompt, span.response, span.parts) = (prompt, response, parts);
    }
    Ok(span)
}

/// Encodes, checks the way back, and gives format and length.
fn round_trip(prompt: String) -> (u8, usize) {
    let span = span(Some(prompt));
    let mut encoder = Encoder::default();
    let body = encoded(&mut encoder, &span, false);
    assert_eq!(decoded(columns(&span), &body), Ok(span));
    (body[0], body.len())
}

#[test]
fn a_prompt_takes_the_fixed_code_for_its_length() {
    for (times, fixed, bits) in [(8, SHORT_CODE, 5), (40, TEXT_CODE, 4)] {
        let (format, len) = round_trip(PROSE.repeat(times));
        assert_eq!(format, fixed);
        assert!(len < PROSE.len() * times * bits / 8, "{len} bytes");
    }
}

#[test]
fn long_text_takes_zstd() {
    let (format, len) = round_trip(PROSE.repeat(200));
    assert_eq!(format, ZSTD);
    assert!(len < 1_000, "{len} bytes");
}

#[test]
fn a_detector_that_was_renamed_is_read_by_its_name_of_today() {
    use weir_config::vocab::{Finding, Severity};
    let finding = |detector| Finding::new("prompt_injection", Severity::Medium, 0.8, detector, "an order");
    let mut span = span(None);
    span.detectors = vec!["rules".into(), "ml".into()];
    span.security_findings = vec![finding("ml"), finding("rules")];
    let body = encoded(&mut Encoder::default(), &span, true);
    let read = decoded(columns(&span), &body).unwrap();
    assert_eq!(read.detectors, ["rules", "classifier"]);
    let detectors: Vec<&str> = read.security_findings.iter().map(|finding| &*finding.detector).collect();
    assert_eq!(detectors, ["classifier", "rules"]);
}

#[test]
fn text_the_fixed_code_does_not_fit_takes_zstd_too() {
    assert_eq!(round_trip("これは長い文章です。".repeat(100)).0, ZSTD);
}

#[test]
fn a_few_odd_letters_stay_as_they_are() {
    assert_eq!(round_trip("\u{1}\u{2}".to_owned()).0, RAW);
}

#[test]
fn a_model_that_its_column_does_not_say_stands_in_the_body() {
    let span = SpanRecord { model: Some("one of many".to_owned()), ..span(Some(PROSE.to_owned())) };
    let mut encoder = Encoder::default();
    let body = encoded(&mut encoder, &span, true);
    let others = Columns { model: Some("(other)".to_owned()), ..columns(&span) };
    assert_eq!(decoded(others, &body), Ok(span));
}

#[test]
fn floats_keep_every_bit() {
    for value in [
        0.0,
        -0.0,
        0.000_087_3,
        0.000_12,
        29.9,
        -0.000_3,
        0.001,
        123.456,
        1e-9,
        9e12,
        9.1e12,
        f64::MAX,
        f64::MIN_POSITIVE,
        f64::INFINITY,
        -5.5,
    ] {
        let mut packer = Packer::default();
        packer.float(value);
        let back = Unpacker::new(&packer.head, b"").unwrap().float().unwrap();
        assert_eq!(back.to_bits(), value.to_bits(), "{value}");
    }
}

proptest! {
    #[test]
    fn a_damaged_body_is_an_error_or_a_record_but_no_panic(
        at in 0usize..700, to in any::<u8>(), cut in 0usize..700, words in 0usize..12,
    ) {
        let span = span(Some(PROSE.repeat(words)));
        let mut encoder = Encoder::default();
        let mut body = encoded(&mut encoder, &span, false);
        let at = at % body.len();
        body[at] = to;
        body.truncate(cut.max(1));
        // Either outcome is fine; what is tested is that there is one.
        drop(decoded(columns(&span), &body));
    }

    #[test]
    fn random_bodies_never_panic(body in proptest::collection::vec(any::<u8>(), 0..200)) {
        drop(decoded(columns(&span(None)), &body));
    }
}
