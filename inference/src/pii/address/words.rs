//! The words of which addresses are made; compared without case, as the folded text has them (`ß` is `s`, `é` is `e`).

fn is_in(list: &[&str], word: &[u8]) -> bool {
    list.iter().any(|known| word.eq_ignore_ascii_case(known.as_bytes()))
}

#[rustfmt::skip]
pub(super) fn is_english_street(word: &[u8]) -> bool {
    is_in(&[
        "alley", "aly", "ave", "avenue", "blvd", "boulevard", "broadway", "cir", "circle", "close", "court", "cove", "crescent",
        "ct", "dr", "drive", "expressway", "expy", "freeway", "gardens", "gate", "green", "grove", "heights", "highway", "hill",
        "hwy", "lane", "ln", "loop", "mews", "parade", "park", "parkway", "pike", "pkwy", "pl", "place", "plaza", "plz", "quay",
        "rd", "rise", "road", "route", "row", "sq", "square", "st", "street", "ter", "terrace", "trail", "trl", "turnpike",
        "vale", "view", "walk", "way", "wharf", "yard",
    ], word)
}

#[rustfmt::skip]
pub(super) fn is_french_street(word: &[u8]) -> bool {
    is_in(&[
        "allee", "allees", "av", "ave", "avenue", "bd", "bld", "blvd", "boulevard", "chaussee", "chemin", "cite", "cour", "cours",
        "esplanade", "faubourg", "fbg", "hameau", "imp", "impasse", "lotissement", "passage", "pl", "place", "promenade", "quai",
        "residence", "rond-point", "route", "rte", "rue", "ruelle", "sentier", "square", "traverse", "venelle", "villa", "voie",
    ], word)
}

pub(super) fn is_french_link(word: &[u8]) -> bool {
    is_in(&["de", "du", "des", "la", "le", "les", "aux", "au"], word)
        || word.starts_with(b"d'")
        || word.starts_with(b"l'")
}

const GERMAN_STREETS: [&str; 17] = [
    "strasse",
    "strase",
    "str",
    "weg",
    "platz",
    "allee",
    "gasse",
    "damm",
    "ring",
    "ufer",
    "chaussee",
    "stieg",
    "steig",
    "graben",
    "markt",
    "promenade",
    "pfad",
];

/// `Strasse`, `Platz` as a word of its own.
pub(super) fn is_german_street(word: &[u8]) -> bool {
    is_in(&GERMAN_STREETS, word)
}

/// `Hauptstrasse`, `Karl-Marx-Allee`.
pub(super) fn ends_as_german_street(word: &[u8]) -> bool {
    GERMAN_STREETS.iter().chain(&["wall", "hof", "tor", "brucke"]).any(|known| {
        let head = word.len().checked_sub(known.len()).filter(|head| *head >= 3);
        head.and_then(|head| word.get(head..)).is_some_and(|tail| tail.eq_ignore_ascii_case(known.as_bytes()))
    })
}

pub(super) fn is_german_link(word: &[u8]) -> bool {
    is_in(&["des", "der", "am", "an", "zum", "zur"], word)
}

/// Italian and Spanish ones; those that are words of other languages, too, count with a capital only.
#[rustfmt::skip]
pub(super) fn is_southern_street(word: &[u8], is_capital: bool) -> bool {
    is_in(&[
        "calle", "c/", "avenida", "avda", "carrer", "avinguda", "passeig", "glorieta", "travesia", "carretera", "ctra",
        "piazzale", "lungomare", "lungotevere", "vicolo",
    ], word) || is_capital && is_in(&[
        "via", "viale", "v.le", "piazza", "p.za", "p.zza", "corso", "c.so", "largo", "strada", "contrada", "salita", "localita",
        "plaza", "pza", "paseo", "pso", "p\u{ba}", "camino", "ronda", "rua", "av", "avd", "gran",
    ], word)
}

#[rustfmt::skip]
pub(super) fn is_southern_link(word: &[u8]) -> bool {
    is_in(&[
        "de", "del", "la", "las", "los", "el", "di", "della", "delle", "dei", "degli", "dello", "da", "do", "dos", "das", "e", "y",
        "i", "in", "n", "no", "n\u{ba}", "n\u{b0}", "num", "numero", "nr", "des", "der", "im", "ks", "gen", "sw", "prof", "plk", "marsz",
    ], word) || word.starts_with(b"d'") || word.starts_with(b"dell'") || word.starts_with(b"l'")
}

pub(super) fn is_number_sign(word: &[u8]) -> bool {
    is_in(&["n", "no", "n\u{ba}", "num", "numero", "nr", "civico"], word)
}

pub(super) fn is_polish_street(word: &[u8]) -> bool {
    is_in(&["ul", "ulica", "al", "aleja", "aleje", "pl", "plac", "os", "osiedle", "rondo", "bulwar"], word)
}

/// Words in the names of streets and towns.
pub(super) fn is_link(word: &[u8]) -> bool {
    is_in(&["of", "the", "and", "de", "la", "du", "upon", "on", "in", "under", "le", "by", "next", "near"], word)
}

/// Parts of a house.
pub(super) fn is_unit(word: &[u8]) -> bool {
    is_in(
        &["flat", "apartment", "apt", "unit", "suite", "ste", "room", "rm", "floor", "fl", "building", "bldg", "no"],
        word,
    )
}

/// Places of which a second word is a part: `Bad Homburg`, `San Sebastián`, `Le Havre`.
#[rustfmt::skip]
pub(super) fn goes_on(word: &[u8]) -> bool {
    is_in(&[
        "bad", "sankt", "st", "saint", "sainte", "san", "santa", "santo", "sant", "la", "le", "les", "las", "los", "el", "reggio",
        "castel", "monte", "villa", "nowy", "nowa", "nowe", "stary", "stara", "gorzow", "ostrow", "zielona", "jelenia", "biala",
        "bielsko", "palma", "aix", "neu", "alt", "markt",
    ], word)
}

/// What stands inside of the name of a place.
pub(super) fn is_of_place(word: &[u8]) -> bool {
    is_in(
        &[
            "am", "an", "der", "im", "in", "bei", "ob", "vor", "sur", "sous", "en", "de", "del", "di", "nad", "la",
            "les",
        ],
        word,
    )
}

/// What a number of five digits counts and no place is.
#[rustfmt::skip]
pub(super) fn is_quantity(word: &[u8]) -> bool {
    is_in(&[
        "eur", "euro", "euros", "usd", "dollar", "dollars", "gbp", "mark", "zloty", "pln", "tokens", "token", "bytes", "kb", "mb",
        "requests", "users", "items", "rows", "lines", "kunden", "personen", "menschen", "einwohner", "besucher", "iterationen",
        "zeilen", "kilometer", "km", "meter", "watt", "volt", "stunden", "jahre", "seiten", "personnes", "habitants", "utenti",
        "personas", "habitantes", "usuarios", "osob", "ms", "hz",
    ], word)
}

const STATES: &[u8] =
    b"ALAKAZARCACOCTDEFLGAHIIDILINIAKSKYLAMEMDMAMIMNMSMOMTNENVNHNJNMNYNCNDOHOKORPARISCSDTNTXUTVTVAWAWVWIWYDCPR";

/// States whose letters are words, too.
const WORDS_TOO: [&[u8]; 8] = [b"ID", b"OK", b"IN", b"OR", b"ME", b"HI", b"MS", b"AL"];

#[rustfmt::skip]
const STATE_NAMES: [&str; 50] = [
    "Alabama", "Alaska", "Arizona", "Arkansas", "California", "Colorado", "Connecticut", "Delaware", "Florida", "Georgia", "Hawaii",
    "Idaho", "Illinois", "Indiana", "Iowa", "Kansas", "Kentucky", "Louisiana", "Maine", "Maryland", "Massachusetts", "Michigan",
    "Minnesota", "Mississippi", "Missouri", "Montana", "Nebraska", "Nevada", "New Hampshire", "New Jersey", "New Mexico", "New York",
    "North Carolina", "North Dakota", "Ohio", "Oklahoma", "Oregon", "Pennsylvania", "Rhode Island", "South Carolina",
    "South Dakota", "Tennessee", "Texas", "Utah", "Vermont", "Virginia", "Washington", "West Virginia", "Wisconsin", "Wyoming",
];

/// Where the state begins with which a text ends, and whether its letters may be a word.
pub(super) fn state_at_end(text: &[u8]) -> Option<(usize, bool)> {
    let (head, letters) = text.split_last_chunk::<2>()?;
    if letters.iter().all(u8::is_ascii_uppercase) {
        let is_state = STATES.chunks_exact(2).any(|state| state == letters);
        return is_state.then(|| (head.len(), WORDS_TOO.contains(&letters.as_slice())));
    }
    let state = STATE_NAMES.iter().filter(|name| text.ends_with(name.as_bytes())).map(|name| name.len()).max()?;
    Some((text.len() - state, true))
}

/// Addresses that stand in licences, which go with code everywhere.
pub(super) fn is_published(address: &[u8]) -> bool {
    [&b"51 Franklin St"[..], b"59 Temple P", b"675 Mass Ave"].iter().any(|known| address.starts_with(known))
}
