//! The byte-level alphabet: how tokenizer files spell bytes as printable characters.
//!
//! The 188 printable bytes of Latin-1 stand for themselves; the other 68, in ascending order, are U+0100 to U+0143.

use super::error::{TokenizerError, shown};

/// Characters the alphabet reaches up to.
const SIZE: usize = 0x144;
/// No byte: the character is outside the alphabet.
const NONE: u16 = u16::MAX;

/// The byte of each character.
const BYTES: [u16; SIZE] = {
    let mut bytes = [NONE; SIZE];
    let (mut byte, mut next) = (0u16, 0x100);
    while byte < 256 {
        let printable = matches!(byte, 0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff);
        let character = if printable { byte as usize } else { next };
        if !printable {
            next += 1;
        }
        bytes[character] = byte;
        byte += 1;
    }
    bytes
};

/// Appends the bytes that `token` spells.
///
/// # Errors
/// [`TokenizerError::NotByteLevel`] with the first character outside the alphabet; `out` then holds what came before.
pub(super) fn read(token: &str, out: &mut Vec<u8>) -> Result<(), TokenizerError> {
    for c in token.chars() {
        match BYTES.get(c as usize).map(|&byte| u8::try_from(byte)) {
            Some(Ok(byte)) => out.push(byte),
            _ => return Err(TokenizerError::NotByteLevel { token: shown(token), character: u32::from(c) }),
        }
    }
    Ok(())
}

/// The character of each byte.
const CHARACTERS: [char; 256] = {
    let mut characters = ['\0'; 256];
    let mut character = 0;
    while character < SIZE {
        if BYTES[character] != NONE
            && let Some(c) = char::from_u32(character as u32)
        {
            characters[BYTES[character] as usize] = c;
        }
        character += 1;
    }
    characters
};

/// How `bytes` are spelled; the inverse of [`read`].
pub(super) fn write(bytes: &[u8]) -> String {
    bytes.iter().map(|&byte| CHARACTERS[usize::from(byte)]).collect()
}

#[cfg(test)]
mod tests {
    use super::{read, write};

    #[test]
    fn every_byte_has_one_character() {
        let mut out = Vec::new();
        let alphabet: String =
            ('\0'..'\u{144}').filter(|c| read(&c.to_string(), &mut Vec::new()).is_ok()).collect();
        read(&alphabet, &mut out).unwrap();
        assert_eq!(write(&out), alphabet);
        out.sort_unstable();
        assert_eq!(out, (0..=255).collect::<Vec<u8>>());
    }

    #[test]
    fn blanks_and_line_ends() {
        let mut out = Vec::new();
        read("\u{120}a\u{10a}\u{c3}\u{a9}", &mut out).unwrap();
        assert_eq!(out, " a\n\u{e9}".as_bytes());
        assert!(read("a b", &mut out).is_err());
        assert!(read("\u{144}", &mut out).is_err());
    }
}
