//! Text from a hostile file, made safe to print: control bytes and direction marks escaped, length bounded.

use std::fmt;
use std::path::Path;

/// Characters of foreign text that an error shows.
const LIMIT: usize = 120;

/// A name or value out of a file, as an error message shows it.
#[derive(Clone, PartialEq, Eq)]
pub struct Escaped(String);

impl Escaped {
    /// Escapes bytes that should be text; what is not UTF-8 becomes `\xNN`.
    pub fn bytes(bytes: &[u8]) -> Escaped {
        let mut out = String::new();
        // A character has at most four bytes, so this holds all that will be shown.
        let bounded = &bytes[..bytes.len().min(4 * LIMIT + 4)];
        for chunk in bounded.utf8_chunks() {
            push(&mut out, chunk.valid());
            for byte in chunk.invalid() {
                out.push_str(&format!("\\x{byte:02x}"));
            }
        }
        Escaped(shorten(out, bytes.len() > bounded.len()))
    }

    /// Escapes text.
    pub fn text(text: &str) -> Escaped {
        Escaped::bytes(text.as_bytes())
    }

    /// Escapes a path; a path is shown whole.
    pub fn path(path: &Path) -> Escaped {
        let mut out = String::new();
        push(&mut out, &path.to_string_lossy());
        Escaped(out)
    }
}

/// Text that an error shows may be written as a plain string.
impl PartialEq<str> for Escaped {
    fn eq(&self, other: &str) -> bool {
        self.0 == other
    }
}

impl From<&str> for Escaped {
    fn from(text: &str) -> Escaped {
        Escaped::text(text)
    }
}

fn push(out: &mut String, text: &str) {
    for c in text.chars() {
        if c.is_control() || is_invisible(c) {
            out.extend(c.escape_default());
        } else {
            out.push(c);
        }
    }
}

/// Marks that reorder or hide text around them on a terminal.
fn is_invisible(c: char) -> bool {
    matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

fn shorten(mut text: String, cut: bool) -> String {
    if let Some((end, _)) = text.char_indices().nth(LIMIT) {
        text.truncate(end);
        text.push('…');
    } else if cut {
        text.push('…');
    }
    text
}

impl fmt::Display for Escaped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Escaped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_a_terminal_would_obey_survives() {
        assert_eq!(Escaped::bytes(b"a\x1b[31m\n\0\xff\xc3").to_string(), "a\\u{1b}[31m\\n\\u{0}\\xff\\xc3");
        assert_eq!(Escaped::text("x\u{202e}y\u{85}").to_string(), "x\\u{202e}y\\u{85}");
        assert_eq!(Escaped::text("blk.0.é").to_string(), "blk.0.é");
    }

    #[test]
    fn long_text_is_cut() {
        assert_eq!(Escaped::bytes(&vec![b'a'; 1 << 20]).to_string().chars().count(), LIMIT + 1);
        assert_eq!(Escaped::bytes(&vec![0; 1 << 20]).to_string().chars().count(), LIMIT + 1);
    }
}
