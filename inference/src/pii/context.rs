//! Words that say what the number after them is.
//!
//! One short walk over the bytes before a token yields one bit per meaning, so that many numbers in a row stay cheap.

use crate::bits;

/// How far back a context word may stand, in bytes.
pub(super) const REACH_BYTES: usize = 48;
const _: () = assert!(REACH_BYTES <= bits::BLOCK);

/// How far back a word stands that still speaks of any number, in bytes.
const NEAR_BYTES: usize = 28;
/// Topics that many kinds of numbers fit and that therefore count only when they are near.
const NEAR_TOPICS: u16 = 1 << Topic::Phone as u16 | 1 << Topic::Version as u16;

/// What the words before a number speak of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Topic {
    Ssn,
    Nhs,
    Sin,
    Tfn,
    Cpf,
    Aadhaar,
    Passport,
    Birth,
    Phone,
    Version,
    Host,
    Pesel,
    Bsn,
    Tckn,
    Wallet,
}

/// Words by topic, sorted by their first letter; lower case, each the beginning of a word of the text.
const WORDS: [(&str, Topic); 86] = [
    ("aadhaar", Topic::Aadhaar),
    ("aadhar", Topic::Aadhaar),
    ("addr", Topic::Host),
    ("birth", Topic::Birth),
    ("born", Topic::Birth),
    ("build", Topic::Version),
    ("bsn", Topic::Bsn),
    ("burgerservice", Topic::Bsn),
    ("billetera", Topic::Wallet),
    ("call", Topic::Phone),
    ("cell", Topic::Phone),
    ("celular", Topic::Phone),
    ("contact", Topic::Phone),
    ("cpf", Topic::Cpf),
    ("carteira", Topic::Wallet),
    ("coin", Topic::Wallet),
    ("crypto", Topic::Wallet),
    ("d.o.b", Topic::Birth),
    ("dob", Topic::Birth),
    ("dns", Topic::Host),
    ("donat", Topic::Wallet),
    ("erc20", Topic::Wallet),
    ("erc-20", Topic::Wallet),
    ("eth", Topic::Wallet),
    ("ether", Topic::Wallet),
    ("fax", Topic::Phone),
    ("firmware", Topic::Version),
    ("geboren", Topic::Birth),
    ("geburt", Topic::Birth),
    ("gateway", Topic::Host),
    ("handy", Topic::Phone),
    ("host", Topic::Host),
    ("ip", Topic::Host),
    ("ipv4", Topic::Host),
    ("kernel", Topic::Version),
    ("kimlik", Topic::Tckn),
    ("mobil", Topic::Phone),
    ("metamask", Topic::Wallet),
    ("movil", Topic::Phone),
    ("nachgeboren", Topic::Birth),
    ("nacido", Topic::Birth),
    ("nacimiento", Topic::Birth),
    ("nascimento", Topic::Birth),
    ("nato il", Topic::Birth),
    ("ne le", Topic::Birth),
    ("nee le", Topic::Birth),
    ("nhs", Topic::Nhs),
    ("number is", Topic::Phone),
    ("number's", Topic::Phone),
    ("numero de telefono", Topic::Phone),
    ("paspoort", Topic::Passport),
    ("pasaporte", Topic::Passport),
    ("passap", Topic::Passport),
    ("passeport", Topic::Passport),
    ("passport", Topic::Passport),
    ("ping", Topic::Host),
    ("phone", Topic::Phone),
    ("portable", Topic::Phone),
    ("pesel", Topic::Pesel),
    ("reach me", Topic::Phone),
    ("reisepass", Topic::Passport),
    ("release", Topic::Version),
    ("ring me", Topic::Phone),
    ("security number", Topic::Ssn),
    ("server", Topic::Host),
    ("sin", Topic::Sin),
    ("sms", Topic::Phone),
    ("social insurance", Topic::Sin),
    ("social security", Topic::Ssn),
    ("ssn", Topic::Ssn),
    ("tax file", Topic::Tfn),
    ("tel", Topic::Phone),
    ("telefon", Topic::Phone),
    ("text me", Topic::Phone),
    ("tfn", Topic::Tfn),
    ("tckn", Topic::Tckn),
    ("tc kimlik", Topic::Tckn),
    ("t.c. kimlik", Topic::Tckn),
    ("uidai", Topic::Aadhaar),
    ("usdc", Topic::Wallet),
    ("usdt", Topic::Wallet),
    ("ver.", Topic::Version),
    ("version", Topic::Version),
    ("wallet", Topic::Wallet),
    ("whatsapp", Topic::Phone),
    ("wireless", Topic::Phone),
];

/// Words of scripts without spaces, found anywhere in reach.
const FOREIGN_WORDS: [(&str, Topic); 7] = [
    ("护照", Topic::Passport),
    ("パスポート", Topic::Passport),
    ("电话", Topic::Phone),
    ("手机", Topic::Phone),
    ("電話", Topic::Phone),
    ("тел", Topic::Phone),
    ("出生", Topic::Birth),
];

/// First and one past the last entry of [`WORDS`] per first letter.
const BY_LETTER: [(u8, u8); 26] = {
    let mut table = [(0, 0); 26];
    let mut at = 0;
    while at < WORDS.len() {
        let letter = (WORDS[at].0.as_bytes()[0] - b'a') as usize;
        if table[letter].1 == 0 {
            table[letter].0 = at as u8;
        }
        table[letter].1 = at as u8 + 1;
        at += 1;
    }
    table
};

/// The second bytes of the words with each first letter, a bit for the lower five bits of each.
const SECOND: [u32; 26] = {
    let mut table = [0; 26];
    let mut at = 0;
    while at < WORDS.len() {
        let word = WORDS[at].0.as_bytes();
        table[(word[0] - b'a') as usize] |= 1 << (word[1] & 31);
        at += 1;
    }
    table
};

/// The topics named shortly before a place in the text.
#[derive(Debug, Clone, Copy)]
pub(super) struct Context(u16);

impl Context {
    /// Reads the words before `at`.
    pub(super) fn before(text: &[u8], at: usize) -> Self {
        let window = text.get(at.saturating_sub(REACH_BYTES)..at).unwrap_or_default();
        let letters = bits::block(window, 0, |byte| (byte | 0x20).wrapping_sub(b'a') < 26);
        let mut topics = 0;
        for index in bits::ones(letters & !(letters << 1)) {
            let far = window.len() - index > NEAR_BYTES;
            let here = topics_at(window.get(index..).unwrap_or_default());
            topics |= if far { here & !NEAR_TOPICS } else { here };
        }
        let foreign = !window.is_ascii();
        if foreign {
            for (word, topic) in FOREIGN_WORDS {
                if window.windows(word.len()).any(|here| here == word.as_bytes()) {
                    topics |= 1 << topic as u16;
                }
            }
        }
        Self(topics)
    }

    /// Whether the words speak of `topic`.
    pub(super) const fn names(self, topic: Topic) -> bool {
        self.0 & (1 << topic as u16) != 0
    }
}

/// The topics of the words that `rest` begins with; its first byte is a letter.
fn topics_at(rest: &[u8]) -> u16 {
    let [first, second, ..] = rest else { return 0 };
    let letter = usize::from(first.to_ascii_lowercase() - b'a');
    if SECOND[letter] >> (second & 31) & 1 == 0 {
        return 0;
    }
    let (from, to) = BY_LETTER[letter];
    let words = WORDS.get(usize::from(from)..usize::from(to)).unwrap_or_default();
    words.iter().fold(0, |topics, (word, topic)| {
        let here = rest.get(..word.len()).is_some_and(|here| here.eq_ignore_ascii_case(word.as_bytes()));
        // "sin" and "tel" are words of their own or nothing; longer ones may go on ("telephone", "mobiles").
        let whole = word.len() > 3 || !rest.get(word.len()).is_some_and(u8::is_ascii_alphabetic);
        if here && whole { topics | 1 << *topic as u16 } else { topics }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_sorted_by_first_letter() {
        assert!(WORDS.is_sorted_by_key(|(word, _)| word.as_bytes()[0]));
    }

    #[test]
    fn names_what_stands_before_and_nothing_else() {
        let text = b"My Passport no. is C1, the using 12";
        assert!(Context::before(text, 19).names(Topic::Passport));
        assert!(!Context::before(text, 19).names(Topic::Phone));
        assert!(!Context::before(b"cousin 123456789", 7).names(Topic::Sin));
        assert!(!Context::before(b"single 123456789", 7).names(Topic::Sin));
        assert!(Context::before("我的电话 1".as_bytes(), 13).names(Topic::Phone));
    }
}
