//! Addresses of seven countries in the forms in which people write them; and beside them what looks like one and is none.

use super::super::{PiiType, Scanner};
use super::may_go_on;

fn found(text: &str) -> Vec<&str> {
    let mut folded = crate::fold::Folded::default();
    folded.fold(text);
    let bytes = folded.bytes(text);
    let mut scanner = Scanner::new(bytes);
    let mut all = Vec::new();
    while let Some(pii) = scanner.next_before(bytes.len()) {
        if pii.kind == PiiType::PostalAddress {
            let (start, end) = folded.original(text, pii.start, pii.end);
            all.push(&text[start..end]);
        }
    }
    all
}

/// Each with `<` and `>` around what is found.
const ADDRESSES: [&str; 44] = [
    "Ship it to <1600 Amphitheatre Parkway, Mountain View, CA 94043>.",
    "I live at <742 Evergreen Terrace, Springfield, OR 97477-1234> now",
    "<350 Fifth Avenue, Apt 34B, New York, NY 10118>",
    "<123 N Main St, Suite 200, Boise, ID 83702>, thanks",
    "Jane Doe\n<4521 Oak Ridge Blvd.\nAustin, TX 78701>\nUSA",
    "at <88 W 42nd Street #5, New York, New York 10036> on Monday",
    "mail <P.O. Box 1234, Anchorage, AK 99501>",
    "<1345 Avenue of the Americas, New York, NY 10105>",
    "is <77 Massachusetts Ave, Cambridge MA 02139>",
    "<12 St James Place, Denver, Colorado 80202>",
    "<10 Downing Street, London SW1A 2AA>",
    "Send it to <Flat 3, 22b Baker Street, London, NW1 6XE>, please",
    "<45 High Street\nStratford-upon-Avon\nWarwickshire\nCV37 6AU>",
    "my home: <7 The Crescent, Taunton, Somerset TA1 4EB>",
    "<221 Park Lane, Leeds, LS1 2AB> is hers",
    "<12-14 King's Road, Brighton BN1 1NE>",
    "Er wohnt in der <Hauptstraße 12, 10115 Berlin>.",
    "<Berliner Allee 5b, 40212 Düsseldorf>",
    "Anna Müller\n<Kurt-Schumacher-Str. 14\n60311 Frankfurt am Main>",
    "<Lindenweg 3, D-50667 Köln>, Deutschland",
    "<Straße des 17. Juni 135, 10623 Berlin>",
    "an <Am Markt 7, 61348 Bad Homburg>",
    "<Königsallee 12-14 40212 Düsseldorf>",
    "Wohnort: <Sonnenstr. 8, 2. OG, 80331 München>",
    "J'habite <12 rue de la Paix, 75002 Paris>.",
    "<5 bis, avenue Victor-Hugo, 69006 Lyon>",
    "<18 boulevard Saint-Michel\n75005 Paris>",
    "<3 impasse des Lilas, 33000 Bordeaux>",
    "<27 Quai d'Orsay, F-75007 Paris>",
    "<8 place du Général de Gaulle, 59000 Lille>",
    "Abito in <Via Roma 12, 00184 Roma>.",
    "<Corso Vittorio Emanuele II, 45, 10123 Torino>",
    "<Piazza San Marco, 1 - 30124 Venezia>",
    "<Via 20 Settembre 5\n16121 Genova>",
    "<Viale della Libertà n. 33, 90143 Palermo>",
    "Vivo en <Calle de Alcalá 45, 28014 Madrid>.",
    "<C/ Mayor, 5, 3º B, 28013 Madrid>",
    "<Avenida Diagonal 211, 08018 Barcelona>",
    "<Paseo de la Castellana, 95, planta 10, 28046 Madrid>",
    "<Plaza de España 3, 20002 San Sebastián>",
    "Mieszkam przy <ul. Marszałkowska 10/5, 00-590 Warszawa>.",
    "<ul. 3 Maja 10 m. 5, 31-066 Kraków>",
    "<os. Złotego Wieku 12, 31-616 Kraków>",
    "<al. Jerozolimskie 65/79\n00-697 Warszawa>",
];

#[test]
fn finds_the_addresses_of_seven_countries() {
    let mut missed = Vec::new();
    for marked in ADDRESSES {
        let text = marked.replace(['<', '>'], "");
        let (_, rest) = marked.split_once('<').unwrap();
        let (expected, _) = rest.split_once('>').unwrap();
        let all = found(&text);
        if all != [expected] {
            missed.push((expected, all.iter().map(ToString::to_string).collect::<Vec<_>>()));
        }
    }
    assert!(missed.is_empty(), "{missed:#?}");
}

#[test]
fn leaves_alone_what_looks_like_one() {
    for text in [
        "Boston, MA 02110-1301 USA",
        "51 Franklin Street, Fifth Floor, Boston, MA 02110-1301 USA.",
        "59 Temple Place, Suite 330, Boston, MA 02111-1307 USA",
        "we sold 25000 Tickets in 12 cities",
        "Step 2 Open Drive, select File ID 12345",
        "Version 12, 10115 Berlin",
        "the way to CA 94043 is long",
        "from 10115 Berlin to 20095 Hamburg by train",
        "in Hauptstraße 12 gab es 15000 Besucher",
        "12 Main Street is closed. Boston, MA 02110 is not.",
        "rue de la Paix, 75002 Paris",
        "Via Roma, 00184 Roma",
        "the model SW1A 2AA of 10 units",
        "London SW1A 2AA",
        "case 5: Place { id: 12345, State: \"CA\" }",
        "let route = 10; // 3 route entries, 10000 Requests",
        "10000 Requests per 1 second, 20000 Users",
        "addr 0x10115 Block 12 Road",
        "fn main() { let x = 12; street(x, 10115); }",
        "Bahnhof Zoo, Gleis 3, um 12 Uhr, 10000 Euro",
        "00-590 and 12-345 Warm",
        "commit 44a7725f47bce3b9dbccb854050fb4c2334b7df6 CA 94043",
        "IBAN, 12 Park A1 2BC",
        "{\"zip\":\"94043\",\"state\":\"CA\"}",
    ] {
        assert_eq!(found(text), <[&str; 0]>::default(), "{text}");
    }
}

#[test]
fn an_address_that_is_cut_is_one_that_may_go_on() {
    for marked in ADDRESSES {
        let text = marked.replace(['<', '>'], "");
        let Some(expected) = found(&text).first().copied() else { continue };
        let start = text.find(expected).unwrap();
        let mut folded = crate::fold::Folded::default();
        for (at, _) in text.char_indices().filter(|(at, _)| (start..start + expected.len()).contains(at)) {
            let head = &text[..at];
            folded.fold(head);
            let bytes = folded.bytes(head);
            // What stands behind the last blank waits in any case.
            let waits = head.rfind(char::is_whitespace).map_or(0, |at| at + 1);
            let begins = may_go_on(bytes).map(|at| folded.original(head, at, at + 1).0);
            assert!(start >= waits || begins.is_some_and(|begins| begins <= start), "{head:?}: {begins:?}");
        }
    }
    assert_eq!(may_go_on(b"The 12 apples in 5 baskets. It is "), None);
}

#[test]
fn a_text_of_nothing_but_codes_is_read_once() {
    // Each code looks back over a bounded stretch: this ends at once, or never.
    for piece in ["10115 Berlin ", "12 Main St, CA 94043 ", "SW1A 2AA ", "00-590 Nowa ", "Via Roma ", "5 "] {
        let text = piece.repeat(200_000);
        assert!(found(&text).len() <= 200_000);
    }
}
