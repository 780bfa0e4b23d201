//! Personal data: a hand-written linear scanner triggered by digits and `@`, with checksums and context words.
//!
//! Invariants: no byte is looked at more than a constant number of times; a number counts only when its shape, its
//! checksum (where one exists) and, for shapes that say little, a word beside it agree. Sees folded bytes.

mod address;
mod checks;
mod contact;
mod context;
mod document;
mod number;
mod triggers;
mod wallet;

use weir_config::vocab::Severity;

pub(crate) use address::may_go_on;
use triggers::Triggers;

/// What kind of personal data a match is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PiiType {
    Email,
    PhoneNumber,
    IntlPhone,
    Ssn,
    CreditCard,
    Iban,
    UkNin,
    NhsNumber,
    CanadianSin,
    AustralianTfn,
    IpAddress,
    BrCpf,
    FrNir,
    EsDni,
    InAadhaar,
    Passport,
    DateOfBirth,
    ItFiscalCode,
    PlPesel,
    KrRrn,
    NlBsn,
    TrIdentity,
    CnResidentId,
    MacAddress,
    PostalAddress,
    CryptoWallet,
}

impl PiiType {
    /// The value of `metadata.pii_type`.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Email => "email",
            Self::PhoneNumber => "phone_number",
            Self::IntlPhone => "intl_phone",
            Self::Ssn => "ssn",
            Self::CreditCard => "credit_card",
            Self::Iban => "iban",
            Self::UkNin => "uk_nin",
            Self::NhsNumber => "nhs_number",
            Self::CanadianSin => "canadian_sin",
            Self::AustralianTfn => "australian_tfn",
            Self::IpAddress => "ip_address",
            Self::BrCpf => "br_cpf",
            Self::FrNir => "fr_nir",
            Self::EsDni => "es_dni",
            Self::InAadhaar => "in_aadhaar",
            Self::Passport => "passport",
            Self::DateOfBirth => "date_of_birth",
            Self::ItFiscalCode => "it_fiscal_code",
            Self::PlPesel => "pl_pesel",
            Self::KrRrn => "kr_rrn",
            Self::NlBsn => "nl_bsn",
            Self::TrIdentity => "tr_identity",
            Self::CnResidentId => "cn_resident_id",
            Self::MacAddress => "mac_address",
            Self::PostalAddress => "postal_address",
            Self::CryptoWallet => "crypto_wallet",
        }
    }

    /// What stands in its place.
    pub(crate) const fn tag(self) -> &'static str {
        match self {
            Self::Email => "[PII:EMAIL]",
            Self::PhoneNumber => "[PII:PHONE_NUMBER]",
            Self::IntlPhone => "[PII:INTL_PHONE]",
            Self::Ssn => "[PII:SSN]",
            Self::CreditCard => "[PII:CREDIT_CARD]",
            Self::Iban => "[PII:IBAN]",
            Self::UkNin => "[PII:UK_NIN]",
            Self::NhsNumber => "[PII:NHS_NUMBER]",
            Self::CanadianSin => "[PII:CANADIAN_SIN]",
            Self::AustralianTfn => "[PII:AUSTRALIAN_TFN]",
            Self::IpAddress => "[PII:IP_ADDRESS]",
            Self::BrCpf => "[PII:BR_CPF]",
            Self::FrNir => "[PII:FR_NIR]",
            Self::EsDni => "[PII:ES_DNI]",
            Self::InAadhaar => "[PII:IN_AADHAAR]",
            Self::Passport => "[PII:PASSPORT]",
            Self::DateOfBirth => "[PII:DATE_OF_BIRTH]",
            Self::ItFiscalCode => "[PII:IT_FISCAL_CODE]",
            Self::PlPesel => "[PII:PL_PESEL]",
            Self::KrRrn => "[PII:KR_RRN]",
            Self::NlBsn => "[PII:NL_BSN]",
            Self::TrIdentity => "[PII:TR_IDENTITY]",
            Self::CnResidentId => "[PII:CN_RESIDENT_ID]",
            Self::MacAddress => "[PII:MAC_ADDRESS]",
            Self::PostalAddress => "[PII:POSTAL_ADDRESS]",
            Self::CryptoWallet => "[PII:CRYPTO_WALLET]",
        }
    }

    /// One sentence for a person.
    pub(crate) const fn about(self) -> &'static str {
        match self {
            Self::Email => "An e-mail address",
            Self::PhoneNumber => "A phone number in national form",
            Self::IntlPhone => "A phone number in international form",
            Self::Ssn => "A United States social security number",
            Self::CreditCard => "A payment card number with a valid check digit",
            Self::Iban => "A bank account number (IBAN) with valid check digits",
            Self::UkNin => "A United Kingdom national insurance number",
            Self::NhsNumber => "A United Kingdom NHS number with a valid check digit",
            Self::CanadianSin => "A Canadian social insurance number with a valid check digit",
            Self::AustralianTfn => "An Australian tax file number with a valid check sum",
            Self::IpAddress => "An IP address",
            Self::BrCpf => "A Brazilian CPF number with valid check digits",
            Self::FrNir => "A French social security number with a valid key",
            Self::EsDni => "A Spanish identity number with a valid check letter",
            Self::InAadhaar => "An Indian Aadhaar number with a valid check digit",
            Self::Passport => "A passport number",
            Self::DateOfBirth => "A date of birth",
            Self::ItFiscalCode => "An Italian fiscal code with a valid check letter",
            Self::PlPesel => "A Polish PESEL number with a valid check digit",
            Self::KrRrn => "A Korean resident registration number with a valid check digit",
            Self::NlBsn => "A Dutch citizen service number with a valid check sum",
            Self::TrIdentity => "A Turkish identity number with valid check digits",
            Self::CnResidentId => "A Chinese resident identity number with a valid check digit",
            Self::MacAddress => "The hardware address of a device",
            Self::PostalAddress => "A postal address: street, number, postal code and place",
            Self::CryptoWallet => "The address of a wallet for a cryptocurrency",
        }
    }

    /// Whether it says where to reach somebody or some machine, or where to pay.
    pub(crate) const fn is_contact(self) -> bool {
        matches!(
            self,
            Self::Email
                | Self::PhoneNumber
                | Self::IntlPhone
                | Self::IpAddress
                | Self::PostalAddress
                | Self::CryptoWallet
        )
    }

    /// How bad it is to see one: contact data is a weak signal, numbers that open accounts or prove identity are not.
    pub(crate) const fn severity(self) -> Severity {
        match self {
            Self::Email
            | Self::PhoneNumber
            | Self::IntlPhone
            | Self::IpAddress
            | Self::DateOfBirth
            | Self::MacAddress
            | Self::PostalAddress
            | Self::CryptoWallet => Severity::Low,
            _ => Severity::Medium,
        }
    }

    /// How sure a match of this type is.
    pub(crate) const fn confidence(self) -> f64 {
        match self {
            Self::Email
            | Self::CreditCard
            | Self::Iban
            | Self::FrNir
            | Self::BrCpf
            | Self::ItFiscalCode
            | Self::CnResidentId
            | Self::CryptoWallet => 0.95,
            Self::IntlPhone | Self::Ssn | Self::UkNin | Self::InAadhaar | Self::NhsNumber => 0.9,
            Self::IpAddress | Self::PostalAddress | Self::EsDni | Self::CanadianSin | Self::AustralianTfn => 0.85,
            Self::PlPesel | Self::KrRrn | Self::NlBsn | Self::TrIdentity => 0.9,
            Self::PhoneNumber | Self::Passport | Self::DateOfBirth | Self::MacAddress => 0.8,
        }
    }
}

/// One piece of personal data; offsets into the folded text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Pii {
    pub(crate) kind: PiiType,
    pub(crate) start: usize,
    pub(crate) end: usize,
}

/// Longest token that can be personal data, but for wallets; longer ones are keys, hashes or encoded blobs and are skipped whole.
const TOKEN_MAX: usize = 40;

/// Numbers that follow each other, with nothing but a sign or two between.
#[derive(Debug, Default)]
struct Row {
    start: usize,
    end: usize,
}

impl Row {
    /// Adds a number, which begins a row of its own where anything else stands before it.
    fn add(&mut self, text: &[u8], start: usize, end: usize) {
        let between = text.get(self.end..start);
        if self.end == 0 || !between.is_some_and(|between| between.len() <= 2 && between.iter().all(is_in_row)) {
            self.start = start;
        }
        self.end = end;
    }

    /// Goes on to the end of what was found, if that begins in it and holds nothing else either. What begins behind it is not looked at:
    /// between the two may lie all of a text.
    fn extend(&mut self, text: &[u8], found: Pii) {
        let more = text.get(self.end..found.end).filter(|_| found.start <= self.end);
        if more.is_some_and(|more| more.iter().all(is_in_row)) {
            self.end = self.end.max(found.end);
        }
    }
}

/// Digits, and what may stand between those of one number.
const fn is_in_row(byte: &u8) -> bool {
    matches!(byte, b'0'..=b'9' | b' ' | b'(' | b')' | b'-' | b'.' | b'/')
}

/// The scanner: hands out one match after the other, left to right.
#[derive(Debug)]
pub(crate) struct Scanner<'a> {
    text: &'a [u8],
    at: usize,
    triggers: Triggers,
    /// End of what was already consumed; nothing reaches back beyond it.
    floor: usize,
    row: Row,
}

impl<'a> Scanner<'a> {
    pub(crate) const fn new(text: &'a [u8]) -> Self {
        Self { text, at: 0, triggers: Triggers::new(), floor: 0, row: Row { start: 0, end: 0 } }
    }

    /// How far the scanner has come, in bytes.
    pub(crate) const fn position(&self) -> usize {
        self.at
    }

    /// The next match, or `None` once `limit` is reached (call again with a higher limit) or the text ends.
    pub(crate) fn next_before(&mut self, limit: usize) -> Option<Pii> {
        let limit = limit.min(self.text.len());
        while self.at < limit {
            let at = self.triggers.next(self.text, (self.at, limit));
            if at >= limit {
                self.at = at;
                return None;
            }
            let found = if self.text.get(at) == Some(&b'@') {
                self.at = at + 1;
                contact::email(self.text, self.floor, at)
            } else {
                self.around_digit(at)
            };
            if let Some(pii) = found {
                self.at = self.at.max(pii.end);
                self.floor = pii.end;
                self.row.extend(self.text, pii);
                return Some(pii);
            }
        }
        None
    }

    fn around_digit(&mut self, at: usize) -> Option<Pii> {
        let text = self.text;
        let reach = at.saturating_sub(TOKEN_MAX).max(self.floor);
        let before = text.get(reach..at).unwrap_or_default();
        let start = at - before.iter().rev().take_while(|byte| byte.is_ascii_alphanumeric()).count();
        let (digits, rest) = split_while(text.get(at..).unwrap_or_default(), u8::is_ascii_digit);
        let (others, _) = split_while(rest, u8::is_ascii_alphanumeric);
        let end = at + digits.len() + others.len();
        self.at = end;
        let token = Token { text, start, end, floor: self.floor };
        if end - start > TOKEN_MAX {
            return wallet::read(token);
        }
        if let Some(found) = address::around(token).or_else(|| wallet::read(token)) {
            return Some(found);
        }
        let is_number = others.is_empty() && text.get(start..at).unwrap_or_default().iter().all(u8::is_ascii_digit);
        let found = if is_number {
            self.row.add(text, start, end);
            let is_deep = start - self.row.start >= context::REACH_BYTES;
            contact::ip_v6(token).or_else(|| document::spaced_nino(token)).or_else(|| number::read(token, is_deep))
        } else {
            contact::ip_v6(token).or_else(|| document::read(token))
        };
        // A digit may begin an e-mail address: the `@` decides, and it has not been reached yet.
        found.filter(|pii| text.get(pii.end) != Some(&b'@'))
    }
}

/// The bytes before the first one that is not `wanted`, and the others.
fn split_while(bytes: &[u8], wanted: impl Fn(&u8) -> bool) -> (&[u8], &[u8]) {
    let end = bytes.iter().position(|byte| !wanted(byte)).unwrap_or(bytes.len());
    bytes.split_at_checked(end).unwrap_or_default()
}

/// A maximal run of letters and digits with at least one digit.
#[derive(Debug, Clone, Copy)]
struct Token<'a> {
    text: &'a [u8],
    start: usize,
    end: usize,
    floor: usize,
}

impl Token<'_> {
    fn bytes(&self) -> &[u8] {
        self.text.get(self.start..self.end).unwrap_or_default()
    }

    fn byte_before(&self) -> u8 {
        self.start.checked_sub(1).and_then(|at| self.text.get(at)).copied().unwrap_or(b' ')
    }

    /// Whether the token hangs on an identifier such as `a-12` or `x_12` or `v1.2`.
    fn is_glued_before(&self) -> bool {
        let far = self.start.checked_sub(2).and_then(|at| self.text.get(at)).copied().unwrap_or(b' ');
        match self.byte_before() {
            b'_' | b'#' | b'$' | b'\\' | b'%' | b'&' => true,
            b'-' | b'.' | b'/' | b':' | b'=' => {
                far.is_ascii_alphanumeric() && self.byte_before() != b'=' && self.byte_before() != b':'
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests;
