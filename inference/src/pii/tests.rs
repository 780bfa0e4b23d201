//! Personal data: every type by a valid example, a near miss, and its check digits.

use proptest::prelude::*;

use super::*;

fn found(text: &str) -> Vec<(PiiType, &str)> {
    let mut scanner = Scanner::new(text.as_bytes());
    let mut all = Vec::new();
    while let Some(pii) = scanner.next_before(text.len()) {
        all.push((pii.kind, text.get(pii.start..pii.end).unwrap()));
    }
    all
}

#[test]
fn finds_each_type_where_it_stands() {
    for (text, kind, value) in [
        ("mail anna.k+x@mail.example.org, please", PiiType::Email, "anna.k+x@mail.example.org"),
        ("call (214) 382-6102 today", PiiType::PhoneNumber, "(214) 382-6102"),
        ("ring 020 2738 6468", PiiType::PhoneNumber, "020 2738 6468"),
        ("0049 30 90182455, please", PiiType::PhoneNumber, "0049 30 90182455"),
        ("phone = 2143826102", PiiType::PhoneNumber, "2143826102"),
        ("phone 020 7000 0000", PiiType::PhoneNumber, "020 7000 0000"),
        ("or +31 6 5799 2059.", PiiType::IntlPhone, "+31 6 5799 2059"),
        ("SSN: 172-41-7859", PiiType::Ssn, "172-41-7859"),
        ("card 4111 1111 1111 1111 ok", PiiType::CreditCard, "4111 1111 1111 1111"),
        ("to GB82 WEST 1234 5698 7654 32 now", PiiType::Iban, "GB82 WEST 1234 5698 7654 32"),
        ("NI number JK 33 27 95 A", PiiType::UkNin, "JK 33 27 95 A"),
        ("NI AT255511D", PiiType::UkNin, "AT255511D"),
        ("NHS 943 476 5919", PiiType::NhsNumber, "943 476 5919"),
        ("social insurance number 046 454 286", PiiType::CanadianSin, "046 454 286"),
        ("my TFN is 123 456 782", PiiType::AustralianTfn, "123 456 782"),
        ("from 193.218.84.184 port", PiiType::IpAddress, "193.218.84.184"),
        ("the DNS server is 4.2.2.2", PiiType::IpAddress, "4.2.2.2"),
        ("at 10.0.12.5 inside", PiiType::IpAddress, "10.0.12.5"),
        ("from 13.28.24.213 port", PiiType::IpAddress, "13.28.24.213"),
        ("ring 00 33 1 42 68 53 00", PiiType::PhoneNumber, "00 33 1 42 68 53 00"),
        ("use 1.1.1.1 instead", PiiType::IpAddress, "1.1.1.1"),
        ("at 2001:db8:cc92::1ce5.", PiiType::IpAddress, "2001:db8:cc92::1ce5"),
        ("CPF 529.982.247-25", PiiType::BrCpf, "529.982.247-25"),
        ("num 255081416802538", PiiType::FrNir, "255081416802538"),
        ("DNI 12345678Z", PiiType::EsDni, "12345678Z"),
        ("Aadhaar 6939 7103 9433", PiiType::InAadhaar, "6939 7103 9433"),
        ("passport no. C0J426R78", PiiType::Passport, "C0J426R78"),
        ("born 9 March 1975 in", PiiType::DateOfBirth, "9 March 1975"),
        ("DOB: 1994-02-17", PiiType::DateOfBirth, "1994-02-17"),
        ("born on March 9, 1975.", PiiType::DateOfBirth, "March 9, 1975"),
    ] {
        assert_eq!(found(text), [(kind, value)], "{text}");
    }
}

#[test]
fn leaves_look_alikes_alone() {
    for text in [
        "Order number 4931026721971537 has shipped",
        "Our build 3.13.30.97 is out",
        "The room 517-93-2281A is free",
        "000-99-2398 is never valid",
        "UUID aa80d9e2-d16f-4d16-8b7a-feef866f638d",
        "commit 44a7725f47bce3b9dbccb854050fb4c2334b7df6",
        "IBAN GB82 WEST 1234 5698 7654 33 fails",
        "written on 2024-02-17 and 9 March 1975",
        "user@example and name[at]domain[dot]com",
        "foo@example.v1234567890123456789012345678901234567890123456789012345678901234v.com",
        "The population grew from 1,751,625 to 3,421,857",
        "https://user:pass123@host.example.org/x",
        "std::vec::Vec and 10:22:01",
        "GPS -44.650253, 30.693817",
        "pub const RING_CALL: u32 = 1074310945;",
        "r--p 00000000 08:01 60662705 /usr/lib",
        "epsilon = 0.0000000010 and 0.000244140625",
        "bits 00100001 00000000 and 05 00 00 00 00",
        "Boston, MA 02110-1301 USA",
        "x1:",
        "zz9::",
        "the extension 2.5.29.17 of a certificate",
        "the attribute 2.5.4.42 of a name",
        "0020 0308 0301 in a table of characters",
        "see section 6.2.5.1 below",
        "clone git@host.example.org:group/project.git",
        "neither a@-host.example.org nor a@host-.example.org",
        "the policy 2.23.133.1 of a certificate, the curve 1.3.132.1 and 1.3.101.110",
        "as chapter 13.28.24.13 says",
        "the characters 0031 0030 6708",
        "the row 00 55 44 77 66 88 99",
        "a line from 0 0 864.566929",
        "contact us about 1.6.1 (2022-12-09)",
    ] {
        assert_eq!(found(text), [], "{text}");
    }
}

#[test]
fn finds_neighbours_one_by_one() {
    let kinds: Vec<PiiType> =
        found("Anna,a@b.example.org,172-41-7859,4111111111111111").iter().map(|hit| hit.0).collect();
    assert_eq!(kinds, [PiiType::Email, PiiType::Ssn, PiiType::CreditCard]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn matches_lie_in_order_inside_the_text(text in "[0-9a-zA-F@.:,+()_ -]{0,200}") {
        let mut scanner = Scanner::new(text.as_bytes());
        let mut floor = 0;
        while let Some(pii) = scanner.next_before(text.len()) {
            prop_assert!(floor <= pii.start && pii.start < pii.end && pii.end <= text.len());
            floor = pii.end;
        }
    }

    #[test]
    fn a_valid_card_is_found_and_a_changed_digit_is_not(body in prop::collection::vec(0u8..10, 14), at in 0usize..15) {
        let mut digits = vec![4];
        digits.extend(body);
        let last = (0..10).find(|last| { let mut all = digits.clone(); all.push(*last); checks::luhn(&all) }).unwrap();
        digits.push(last);
        let write = |digits: &[u8]| digits.iter().map(u8::to_string).collect::<String>();
        let text = format!("card {} .", write(&digits));
        prop_assert_eq!(found(&text).first().map(|hit| hit.0), Some(PiiType::CreditCard));
        digits[at + 1] = (digits[at + 1] + 1) % 10;
        let text = format!("card {} .", write(&digits));
        prop_assert!(found(&text).iter().all(|hit| hit.0 != PiiType::CreditCard));
    }
}

/// What [`number::read`] says in the midst of a row is what it says where it reads all of it.
#[test]
fn a_number_in_a_row_is_read_as_one_by_itself() {
    let mut random = 7u64;
    let mut below = |bound: u64| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) % bound
    };
    for _ in 0..3000 {
        let mut text = "1 22 333 ".repeat(6);
        for _ in 0..8 {
            (0..1 + below(5)).for_each(|_| text.push(char::from(b'0' + below(10) as u8)));
            text.push_str([" ", " ", " ", " ", "-", ".", ") "][below(7) as usize]);
        }
        let row = text.as_bytes();
        let begins = |at: &usize| row[*at].is_ascii_digit() && !row[*at - 1].is_ascii_digit();
        for start in (context::REACH_BYTES..row.len()).filter(begins) {
            let end = start + row[start..].iter().take_while(|byte| byte.is_ascii_digit()).count();
            let token = Token { text: row, start, end, floor: 0 };
            assert_eq!(number::read(token, true), number::read(token, false), "{text} at {start}");
        }
    }
}

#[test]
fn numbers_are_found_in_the_midst_of_a_row() {
    let row = "104 97 115 116 ".repeat(8);
    for (number, kind) in [
        ("4111 1111 1111 1111", PiiType::CreditCard),
        ("172 41 7859", PiiType::Ssn),
        ("214 382 6102", PiiType::PhoneNumber),
        ("529 982 247 25", PiiType::BrCpf),
        ("2 55 08 14 168 025 38", PiiType::FrNir),
        ("020 2738 6468", PiiType::PhoneNumber),
    ] {
        let text = format!("{row}{number} {row}");
        assert!(found(&text).contains(&(kind, number)), "{number}: {:?}", found(&text));
    }
}
