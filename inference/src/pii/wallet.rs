//! Addresses of wallets: Bitcoin and relatives by their check sums, Ethereum by that of its capitals or a word before it.

use sha2::{Digest, Sha256};

use super::context::{Context, Topic};
use super::{Pii, PiiType, Token};

/// Fewest characters of one: Bitcoin's oldest form.
pub(super) const WALLET_BYTES_MIN: usize = 26;
/// Most characters of one in base 58.
const BASE58_BYTES_MAX: usize = 35;
/// Most characters of one in bech32 (BIP 173).
const BECH32_BYTES_MAX: usize = 90;
/// Digits of an address of Ethereum behind `0x`.
const ETHEREUM_DIGITS: usize = 40;
/// Different digits that an address has at least: those of nobody (`0x000…`, `0x…dEaD`) and of examples have fewer.
const DIFFERENT_DIGITS_MIN: u32 = 8;

/// An address that is all of a token.
#[inline]
pub(super) fn read(token: Token<'_>) -> Option<Pii> {
    let bytes = token.bytes();
    if bytes.len() < WALLET_BYTES_MIN {
        return None;
    }
    let is_one = match bytes {
        [b'0', b'x', digits @ ..] => is_ethereum(digits, token),
        _ => is_bech32(bytes) || is_base58(bytes),
    };
    is_one.then_some(Pii { kind: PiiType::CryptoWallet, start: token.start, end: token.end })
}

/// EIP-55: a letter is a capital where the hash of the digits says so. Without capitals a word has to say what it is.
fn is_ethereum(digits: &[u8], token: Token<'_>) -> bool {
    if digits.len() != ETHEREUM_DIGITS || !digits.iter().all(u8::is_ascii_hexdigit) {
        return false;
    }
    let mut plain = [0u8; ETHEREUM_DIGITS];
    plain.copy_from_slice(digits);
    plain.make_ascii_lowercase();
    let different = plain.iter().fold(0u32, |seen, digit| seen | 1 << (digit & 31)).count_ones();
    if different < DIFFERENT_DIGITS_MIN {
        return false;
    }
    let has = |of: fn(&u8) -> bool| digits.iter().any(of);
    if !(has(u8::is_ascii_uppercase) && has(u8::is_ascii_lowercase)) {
        return Context::before(token.text, token.start).names(Topic::Wallet);
    }
    let hash = keccak256(&plain);
    digits.iter().enumerate().filter(|(_, digit)| digit.is_ascii_alphabetic()).all(|(at, digit)| {
        let byte = hash.get(at / 2).copied().unwrap_or(0);
        let nibble = if at % 2 == 0 { byte >> 4 } else { byte & 15 };
        digit.is_ascii_uppercase() == (nibble >= 8)
    })
}

/// Base58Check: a version of Bitcoin, Litecoin, Dogecoin, Dash or Tron, twenty bytes, and four of their hash.
fn is_base58(text: &[u8]) -> bool {
    const ALPHABET: &[u8; 58] = b"123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz";
    const VALUES: [u8; 128] = {
        let mut values = [u8::MAX; 128];
        let mut at = 0;
        while at < ALPHABET.len() {
            values[ALPHABET[at] as usize] = at as u8;
            at += 1;
        }
        values
    };
    if text.len() > BASE58_BYTES_MAX
        || !matches!(text, [b'1' | b'3' | b'L' | b'M' | b'D' | b'X' | b'T' | b'm' | b'n' | b'2', ..])
    {
        return false;
    }
    let mut bytes = [0u8; 25];
    for letter in text {
        let value = VALUES.get(usize::from(*letter)).copied().unwrap_or(u8::MAX);
        if value == u8::MAX {
            return false;
        }
        let mut carry = u32::from(value);
        for byte in bytes.iter_mut().rev() {
            carry += u32::from(*byte) * 58;
            *byte = carry as u8;
            carry >>= 8;
        }
        if carry > 0 {
            return false;
        }
    }
    let [version, ..] = bytes;
    let ones = text.iter().take_while(|letter| **letter == b'1').count();
    let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
    let known = matches!(version, 0 | 5 | 0x30 | 0x32 | 0x1e | 0x16 | 0x4c | 0x41 | 0x6f | 0xc4);
    let (body, check) = bytes.split_at(21);
    known && ones == zeros && Sha256::digest(Sha256::digest(body)).starts_with(check)
}

/// Bech32 and bech32m (BIP 173 and 350): a network, `1`, a version, a program, six characters of check sum.
fn is_bech32(text: &[u8]) -> bool {
    const ALPHABET: &[u8; 32] = b"qpzry9x8gf2tvdw0s3jn54khce6mua7l";
    const GENERATORS: [u32; 5] = [0x3b6a_57b2, 0x2650_8e6d, 0x1ea1_19fa, 0x3d42_33dd, 0x2a14_62b3];
    let is_mixed = text.iter().any(u8::is_ascii_uppercase) && text.iter().any(u8::is_ascii_lowercase);
    if text.len() > BECH32_BYTES_MAX || is_mixed {
        return false;
    }
    let network = ["bc1", "tb1", "bcrt1", "ltc1"]
        .into_iter()
        .find(|network| text.get(..network.len()).is_some_and(|here| here.eq_ignore_ascii_case(network.as_bytes())));
    let Some(network) = network.map(|network| network.len() - 1) else { return false };
    let (name, data) = (text.get(..network).unwrap_or_default(), text.get(network + 1..).unwrap_or_default());
    let mut sum = 1u32;
    let mut add = |value: u32| {
        let top = sum >> 25;
        sum = (sum & 0x01ff_ffff) << 5 ^ value;
        for (bit, generator) in GENERATORS.iter().enumerate() {
            sum ^= if top >> bit & 1 == 1 { *generator } else { 0 };
        }
    };
    name.iter().for_each(|letter| add(u32::from(letter.to_ascii_lowercase()) >> 5));
    add(0);
    name.iter().for_each(|letter| add(u32::from(letter.to_ascii_lowercase()) & 31));
    let mut version = None;
    for letter in data {
        let Some(value) = ALPHABET.iter().position(|known| *known == letter.to_ascii_lowercase()) else { return false };
        version = version.or(Some(value));
        add(value as u32);
    }
    match version {
        Some(0) => sum == 1,
        Some(1..=16) => sum == 0x2bc8_30a3,
        _ => false,
    }
}

/// Keccak-256 of what fits into one block, as Ethereum uses it: the padding is that from before SHA-3.
fn keccak256(text: &[u8; ETHEREUM_DIGITS]) -> [u8; 32] {
    const RATE: usize = 136;
    let mut block = [0u8; RATE];
    for (slot, byte) in block.iter_mut().zip(text) {
        *slot = *byte;
    }
    block[ETHEREUM_DIGITS] = 1;
    block[RATE - 1] |= 0x80;
    let mut state = [0u64; 25];
    for (lane, bytes) in state.iter_mut().zip(block.chunks_exact(8)) {
        *lane = bytes.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte));
    }
    permute(&mut state);
    let mut out = [0u8; 32];
    for (slot, byte) in out.iter_mut().zip(state.iter().flat_map(|lane| lane.to_le_bytes())) {
        *slot = byte;
    }
    out
}

/// Keccak-f[1600].
fn permute(state: &mut [u64; 25]) {
    /// Where each lane goes, one after the other, and how far it turns.
    const STEPS: [(usize, u32); 24] = [
        (10, 1),
        (7, 3),
        (11, 6),
        (17, 10),
        (18, 15),
        (3, 21),
        (5, 28),
        (16, 36),
        (8, 45),
        (21, 55),
        (24, 2),
        (4, 14),
        (15, 27),
        (23, 41),
        (19, 56),
        (13, 8),
        (12, 25),
        (2, 43),
        (20, 62),
        (14, 18),
        (22, 39),
        (9, 61),
        (6, 20),
        (1, 44),
    ];
    const ROUNDS: [u64; 24] = [
        0x0000_0000_0000_0001,
        0x0000_0000_0000_8082,
        0x8000_0000_0000_808a,
        0x8000_0000_8000_8000,
        0x0000_0000_0000_808b,
        0x0000_0000_8000_0001,
        0x8000_0000_8000_8081,
        0x8000_0000_0000_8009,
        0x0000_0000_0000_008a,
        0x0000_0000_0000_0088,
        0x0000_0000_8000_8009,
        0x0000_0000_8000_000a,
        0x0000_0000_8000_808b,
        0x8000_0000_0000_008b,
        0x8000_0000_0000_8089,
        0x8000_0000_0000_8003,
        0x8000_0000_0000_8002,
        0x8000_0000_0000_0080,
        0x0000_0000_0000_800a,
        0x8000_0000_8000_000a,
        0x8000_0000_8000_8081,
        0x8000_0000_0000_8080,
        0x0000_0000_8000_0001,
        0x8000_0000_8000_8008,
    ];
    for round in ROUNDS {
        let column = |state: &[u64; 25], x: usize| (0..5).fold(0, |sum, y| sum ^ state[x + 5 * y]);
        let columns: [u64; 5] = std::array::from_fn(|x| column(state, x));
        for (at, lane) in state.iter_mut().enumerate() {
            *lane ^= columns[(at + 4) % 5] ^ columns[(at + 1) % 5].rotate_left(1);
        }
        let mut moved = state[1];
        for (to, by) in STEPS {
            let next = state[to];
            state[to] = moved.rotate_left(by);
            moved = next;
        }
        for row in state.chunks_exact_mut(5) {
            let old: [u64; 5] = std::array::from_fn(|x| row[x]);
            for (x, lane) in row.iter_mut().enumerate() {
                *lane = old[x] ^ (!old[(x + 1) % 5] & old[(x + 2) % 5]);
            }
        }
        state[0] ^= round;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An address as a text of its own, behind these words.
    fn is_found(words: &str, address: &str) -> bool {
        let text = format!("{words}{address}");
        let token = Token { text: text.as_bytes(), start: words.len(), end: text.len(), floor: 0 };
        read(token).is_some_and(|pii| pii.start == words.len() && pii.end == text.len())
    }

    #[test]
    fn published_addresses_are_found_and_one_letter_off_is_not() {
        for address in [
            "1A1zP1eP5QGefi2DMPTfTL5SLmv7DivfNa",
            "3J98t1WpEZ73CNmQviecrnyiWrnqRhWNLy",
            "bc1qw508d6qejxtdg4y5r3zarvary0c5xw7kv8f3t4",
            "BC1QW508D6QEJXTDG4Y5R3ZARVARY0C5XW7KV8F3T4",
            "bc1p0xlxvlhemja6c4dqv22uapctqupfhlxm9h8z3k2e72q4k9hcz7vqzk5jj0",
            "tb1qrp33g0q5c5txsp9arysrx4k6zdkfs4nce4xj0gdcccefvpysxf3q0sl5k7",
            "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed",
            "0xfB6916095ca1df60bB79Ce92cE3Ea74c37c5d359",
            "0xdbF03B407c01E7cD3CBea99509d93f8DDDC8C6FB",
        ] {
            assert!(is_found("", address), "{address}");
            let last = address.len() - 1;
            let other = if address.ends_with('2') { '3' } else { '2' };
            let changed = format!("{}{other}", &address[..last]);
            assert!(!is_found("", &changed), "{changed}");
        }
    }

    #[test]
    fn without_capitals_a_word_says_what_it_is() {
        let address = "0x5aaeb6053f3e94c9b9a09f33669435e7ef1beaed";
        assert!(is_found("my wallet is ", address) && is_found("ETH: ", address));
        assert!(!is_found("sha1 ", address) && !is_found("", address));
        assert!(!is_found("wallet ", "0x0000000000000000000000000000000000000001"));
        assert!(!is_found("wallet ", "0x000000000000000000000000000000000000dEaD"));
        assert!(!is_found("wallet ", "0xEeeeeEeeeEeEeeEeEeEeeEEEeeeeEeeeeeeeEEeE"));
    }
}
