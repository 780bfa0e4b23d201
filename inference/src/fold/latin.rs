//! Tables of letters that stand for ASCII ones: accents, letter-like symbols, look-alikes of other scripts.
//!
//! Derived from Unicode 15 decompositions and from the letters people actually use to imitate Latin. Pure lookup.

/// U+00C0 to U+024F without their accents; `?` where no ASCII letter is meant.
const LATIN: &[u8] = b"\
    AAAAAAACEEEEIIIIDNOOOOO?OUUUUYTsaaaaaaaceeeeiiiidnooooo?ouuuuytyAaAaAaCcCcCcCcDdDdEeEeEeEeEeGgGgGgGg\
    HhHhIiIiIiIiIiIiJjKkkLlLlLlLlLlNnNnNn?NnOoOoOoOoRrRrRrSsSsSsSsTtTtTtUuUuUuUuUuUuWwYyYZzZzZzsb???????\
    ??????????f??????kl?????Oo?????????????Uu???????????????????DDdLLlNNnAaIiOoUuUuUuUuUu?AaAa????GgKkOo\
    Oo??jDDdGg??NnAa????AaAaEeEeIiIiOoOoRrRrUuUuSsTt??Hh??????AaEeOoOoOoOoYy????????????????????????????\
";

/// U+1E00 to U+1EFF (Vietnamese and others) without their accents.
const LATIN_ADDITIONAL: &[u8] = b"\
    AaBbBbBbCcDdDdDdDdDdEeEeEeEeEeFfGgHhHhHhHhHhIiIiKkKkKkLlLlLlLlMmMmMmNnNnNnNnOoOoOoOoPpPpRrRrRrRrSsSs\
    SsSsSsTtTtTtTtUuUuUuUuUuVvVvWwWwWwWwWwXxXxYyZzZzZzhtwyas????AaAaAaAaAaAaAaAaAaAaAaAaEeEeEeEeEeEeEeEe\
    IiIiOoOoOoOoOoOoOoOoOoOoOoOoUuUuUuUuUuUuUuYyYyYyYy??????\
";

/// The ASCII letter under an accent.
pub(super) fn accented(cp: u32) -> Option<u8> {
    let byte = match cp {
        0xC0..=0x24F => LATIN.get(cp as usize - 0xC0),
        0x1E00..=0x1EFF => LATIN_ADDITIONAL.get(cp as usize - 0x1E00),
        _ => None,
    };
    byte.copied().filter(|byte| *byte != b'?')
}

/// The letter of a Braille cell, of which each dot is a bit.
pub(super) fn braille(cp: u32) -> Option<u8> {
    /// The cells of `a` to `z`.
    const CELLS: [u8; 26] = [
        0x01, 0x03, 0x09, 0x19, 0x11, 0x0B, 0x1B, 0x13, 0x0A, 0x1A, 0x05, 0x07, 0x0D, 0x1D, 0x15, 0x0F, 0x1F, 0x17,
        0x0E, 0x1E, 0x25, 0x27, 0x3A, 0x2D, 0x3D, 0x35,
    ];
    let cell = u8::try_from(cp.checked_sub(0x2800)?).ok()?;
    CELLS.iter().zip(b'a'..).find(|(known, _)| **known == cell).map(|(_, letter)| letter)
}

/// The letter that an old rune is read as.
pub(super) fn rune(c: char) -> Option<u8> {
    const RUNES: &str = "ᚨᛒᚲᛞᛖᚠᚷᚺᛁᛇᚲᛚᛗᚾᛟᛈᚲᚱᛊᛏᚢᚹᚹᛉᛃᛉ";
    RUNES.chars().zip(b'a'..).find(|(known, _)| *known == c).map(|(_, letter)| letter)
}

/// Symbols that are letters in disguise whatever surrounds them: small capitals, superscripts, letter-like and turned.
pub(super) fn lettered(c: char) -> Option<u8> {
    const PAIRS: &[(char, u8)] = &[
        ('ɐ', b'a'),
        ('ɑ', b'a'),
        ('ɔ', b'c'),
        ('ɟ', b'f'),
        ('ɡ', b'g'),
        ('ɢ', b'g'),
        ('ɥ', b'h'),
        ('ɩ', b'i'),
        ('ɪ', b'i'),
        ('ɯ', b'm'),
        ('ɴ', b'n'),
        ('ɹ', b'r'),
        ('ɾ', b'j'),
        ('ʀ', b'r'),
        ('ʅ', b'l'),
        ('ʇ', b't'),
        ('ʌ', b'v'),
        ('ʍ', b'w'),
        ('ʎ', b'y'),
        ('ʏ', b'y'),
        ('ʙ', b'b'),
        ('ʜ', b'h'),
        ('ʞ', b'k'),
        ('ʟ', b'l'),
        ('ʰ', b'h'),
        ('ʲ', b'j'),
        ('ʳ', b'r'),
        ('ʷ', b'w'),
        ('ʸ', b'y'),
        ('ˡ', b'l'),
        ('ˢ', b's'),
        ('ˣ', b'x'),
        ('ᴀ', b'a'),
        ('ᴄ', b'c'),
        ('ᴅ', b'd'),
        ('ᴇ', b'e'),
        ('ᴉ', b'i'),
        ('ᴊ', b'j'),
        ('ᴋ', b'k'),
        ('ᴍ', b'm'),
        ('ᴏ', b'o'),
        ('ᴘ', b'p'),
        ('ᴛ', b't'),
        ('ᴜ', b'u'),
        ('ᴠ', b'v'),
        ('ᴡ', b'w'),
        ('ᴢ', b'z'),
        ('ᴬ', b'A'),
        ('ᴮ', b'B'),
        ('ᴰ', b'D'),
        ('ᴱ', b'E'),
        ('ᴳ', b'G'),
        ('ᴴ', b'H'),
        ('ᴵ', b'I'),
        ('ᴶ', b'J'),
        ('ᴷ', b'K'),
        ('ᴸ', b'L'),
        ('ᴹ', b'M'),
        ('ᴺ', b'N'),
        ('ᴼ', b'O'),
        ('ᴾ', b'P'),
        ('ᴿ', b'R'),
        ('ᵀ', b'T'),
        ('ᵁ', b'U'),
        ('ᵂ', b'W'),
        ('ᵃ', b'a'),
        ('ᵇ', b'b'),
        ('ᵈ', b'd'),
        ('ᵉ', b'e'),
        ('ᵍ', b'g'),
        ('ᵏ', b'k'),
        ('ᵐ', b'm'),
        ('ᵒ', b'o'),
        ('ᵖ', b'p'),
        ('ᵗ', b't'),
        ('ᵘ', b'u'),
        ('ᵛ', b'v'),
        ('ᵢ', b'i'),
        ('ᵣ', b'r'),
        ('ᵤ', b'u'),
        ('ᵥ', b'v'),
        ('ᶜ', b'c'),
        ('ᶠ', b'f'),
        ('ᶦ', b'i'),
        ('ᶫ', b'l'),
        ('ᶰ', b'n'),
        ('ᶸ', b'u'),
        ('ᶻ', b'z'),
        ('⁰', b'0'),
        ('ⁱ', b'i'),
        ('⁴', b'4'),
        ('⁵', b'5'),
        ('⁶', b'6'),
        ('⁷', b'7'),
        ('⁸', b'8'),
        ('⁹', b'9'),
        ('ⁿ', b'n'),
        ('₀', b'0'),
        ('₁', b'1'),
        ('₂', b'2'),
        ('₃', b'3'),
        ('₄', b'4'),
        ('₅', b'5'),
        ('₆', b'6'),
        ('₇', b'7'),
        ('₈', b'8'),
        ('₉', b'9'),
        ('ₐ', b'a'),
        ('ₑ', b'e'),
        ('ₒ', b'o'),
        ('ₓ', b'x'),
        ('ₕ', b'h'),
        ('ₖ', b'k'),
        ('ₗ', b'l'),
        ('ₘ', b'm'),
        ('ₙ', b'n'),
        ('ₚ', b'p'),
        ('ₛ', b's'),
        ('ₜ', b't'),
        ('ℂ', b'C'),
        ('ℊ', b'g'),
        ('ℋ', b'H'),
        ('ℌ', b'H'),
        ('ℍ', b'H'),
        ('ℎ', b'h'),
        ('ℐ', b'I'),
        ('ℑ', b'I'),
        ('ℒ', b'L'),
        ('ℓ', b'l'),
        ('ℕ', b'N'),
        ('ℙ', b'P'),
        ('ℚ', b'Q'),
        ('ℛ', b'R'),
        ('ℜ', b'R'),
        ('ℝ', b'R'),
        ('ℤ', b'Z'),
        ('ℨ', b'Z'),
        ('K', b'K'),
        ('ℬ', b'B'),
        ('ℭ', b'C'),
        ('ℯ', b'e'),
        ('ℰ', b'E'),
        ('ℱ', b'F'),
        ('ℳ', b'M'),
        ('ℴ', b'o'),
        ('ℹ', b'i'),
        ('ⅅ', b'D'),
        ('ⅆ', b'd'),
        ('ⅇ', b'e'),
        ('ⅈ', b'i'),
        ('ⅉ', b'j'),
        ('ꜰ', b'f'),
        ('ꜱ', b's'),
        ('𐞥', b'q'),
    ];
    if !matches!(c as u32, 0x250..=0x2FF | 0x1D00..=0x1DBF | 0x2070..=0x209F | 0x2100..=0x214F | 0xA730..=0xA731 | 0x10780..=0x107BA)
    {
        return None;
    }
    find(PAIRS, c)
}

/// Letters of other scripts that look Latin.
pub(super) fn lookalike(c: char) -> Option<u8> {
    const PAIRS: &[(char, u8)] = &[
        ('Α', b'A'),
        ('Β', b'B'),
        ('Ε', b'E'),
        ('Ζ', b'Z'),
        ('Η', b'H'),
        ('Ι', b'I'),
        ('Κ', b'K'),
        ('Μ', b'M'),
        ('Ν', b'N'),
        ('Ο', b'O'),
        ('Ρ', b'P'),
        ('Τ', b'T'),
        ('Υ', b'Y'),
        ('Χ', b'X'),
        ('α', b'a'),
        ('γ', b'y'),
        ('ε', b'e'),
        ('ι', b'i'),
        ('κ', b'k'),
        ('ν', b'v'),
        ('ο', b'o'),
        ('ρ', b'p'),
        ('τ', b't'),
        ('υ', b'u'),
        ('χ', b'x'),
        ('ω', b'w'),
        ('ϲ', b'c'),
        ('ϳ', b'j'),
        ('Ѕ', b'S'),
        ('І', b'I'),
        ('Ј', b'J'),
        ('А', b'A'),
        ('В', b'B'),
        ('Е', b'E'),
        ('К', b'K'),
        ('М', b'M'),
        ('Н', b'H'),
        ('О', b'O'),
        ('Р', b'P'),
        ('С', b'C'),
        ('Т', b'T'),
        ('У', b'Y'),
        ('Х', b'X'),
        ('а', b'a'),
        ('г', b'r'),
        ('е', b'e'),
        ('о', b'o'),
        ('п', b'n'),
        ('р', b'p'),
        ('с', b'c'),
        ('у', b'y'),
        ('х', b'x'),
        ('ѕ', b's'),
        ('і', b'i'),
        ('ј', b'j'),
        ('ѡ', b'w'),
        ('ѵ', b'v'),
        ('һ', b'h'),
        ('ӏ', b'l'),
        ('Ԁ', b'D'),
        ('ԁ', b'd'),
        ('Ԍ', b'G'),
        ('ԍ', b'g'),
        ('Ԛ', b'Q'),
        ('ԛ', b'q'),
        ('Ԝ', b'W'),
        ('ԝ', b'w'),
        ('Ա', b'U'),
        ('Ս', b'U'),
        ('Տ', b'S'),
        ('զ', b'q'),
        ('հ', b'h'),
        ('ո', b'n'),
        ('ս', b'u'),
        ('ց', b'g'),
        ('ք', b'p'),
        ('օ', b'o'),
        ('Ꭰ', b'D'),
        ('Ꭱ', b'R'),
        ('Ꭲ', b'T'),
        ('Ꭺ', b'A'),
        ('Ꭻ', b'J'),
        ('Ꭼ', b'E'),
        ('Ꮇ', b'M'),
        ('Ꮋ', b'H'),
        ('Ꮓ', b'Z'),
        ('Ꮤ', b'W'),
        ('Ꮩ', b'V'),
        ('Ꮪ', b'S'),
        ('Ꮮ', b'L'),
        ('Ꮯ', b'C'),
        ('Ꮲ', b'P'),
        ('Ꮶ', b'K'),
        ('Ᏼ', b'B'),
    ];
    if !matches!(c as u32, 0x370..=0x58F | 0x13A0..=0x13FF) {
        return None;
    }
    find(PAIRS, c)
}

fn find(pairs: &[(char, u8)], c: char) -> Option<u8> {
    let at = pairs.binary_search_by_key(&c, |pair| pair.0).ok()?;
    pairs.get(at).map(|pair| pair.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_table_entry_can_be_found() {
        assert_eq!(lettered('ᴀ'), Some(b'a'));
        assert_eq!(lettered('ℓ'), Some(b'l'));
        assert_eq!(lettered('ʎ'), Some(b'y'));
        assert_eq!(lookalike('а'), Some(b'a'));
        assert_eq!(lookalike('Ο'), Some(b'O'));
        assert_eq!(lookalike('ж'), None);
        assert_eq!(accented(u32::from('ệ')), Some(b'e'));
        assert_eq!(accented(0xD7), None);
    }
}
