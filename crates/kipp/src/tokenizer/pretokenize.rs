//! Qwen's splitting rule: where the next piece of a text ends.
//!
//! The rule is this pattern, tried from the left at each place, the first alternative that fits wins:
//!
//! ```text
//! (?i:'s|'t|'re|'ve|'m|'ll|'d)        a contraction, whatever its case
//! [^\r\n\p{L}\p{N}]?\p{L}+            letters, with one sign or blank in front
//! \p{N}                               one number character
//!  ?[^\s\p{L}\p{N}]+[\r\n]*           signs, with one space in front and line ends behind
//! \s*[\r\n]+                          blanks up to the last line end of their run
//! \s+(?!\S)                           blanks, but the last one goes to the word that follows
//! \s+                                 a blank
//! ```
//!
//! Written by hand it never looks back, so that its time is linear whatever the text.

use super::classes::{BLANK, Classes, LETTER, NUMBER, OTHER, char_at};

/// Cuts a text into pieces; together they are the whole text.
pub(super) struct Pieces<'t> {
    text: &'t [u8],
    at: usize,
    classes: Classes,
}

impl<'t> Pieces<'t> {
    /// `text` is in NFC already.
    pub(super) fn new(text: &'t str) -> Pieces<'t> {
        Pieces { text: text.as_bytes(), at: 0, classes: Classes::get() }
    }
}

impl<'t> Iterator for Pieces<'t> {
    type Item = &'t [u8];

    fn next(&mut self) -> Option<&'t [u8]> {
        if self.at == self.text.len() {
            return None;
        }
        let start = self.at;
        self.at = self.piece_end(start);
        self.text.get(start..self.at)
    }
}

fn is_line_end(byte: u8) -> bool {
    byte == b'\n' || byte == b'\r'
}

impl Pieces<'_> {
    fn piece_end(&self, start: usize) -> usize {
        let (kind, width) = self.char_kind(start);
        let (lead, second) = (self.text[start], start + width);
        match kind {
            LETTER => return self.run_end(LETTER, second),
            NUMBER => return second,
            _ => {}
        }
        if lead == b'\''
            && let Some(end) = self.contraction_end(second)
        {
            return end;
        }
        let next = if second < self.text.len() { self.char_kind(second) } else { (BLANK, 0) };
        if next.0 == LETTER && !is_line_end(lead) {
            return self.run_end(LETTER, second + next.1);
        }
        if kind == OTHER {
            return self.line_ends(self.run_end(OTHER, second));
        }
        if lead == b' ' && next.0 == OTHER {
            return self.line_ends(self.run_end(OTHER, second + next.1));
        }
        self.blanks_end(start)
    }

    /// The class and width of the character at `at`, which is inside the text.
    fn char_kind(&self, at: usize) -> (u8, usize) {
        let byte = self.text[at];
        if byte < 0x80 {
            return (Classes::ascii(byte), 1);
        }
        let (c, width) = char_at(self.text, at);
        (self.classes.kind(c), width)
    }

    /// Where the run of one class that goes on at `at` ends.
    fn run_end(&self, kind: u8, mut at: usize) -> usize {
        while at < self.text.len() {
            let (found, width) = self.char_kind(at);
            if found != kind {
                break;
            }
            at += width;
        }
        at
    }

    fn line_ends(&self, mut at: usize) -> usize {
        while self.text.get(at).copied().is_some_and(is_line_end) {
            at += 1;
        }
        at
    }

    /// The end of a contraction whose apostrophe ends at `at`. Ignoring case, `s` is also U+017F.
    fn contraction_end(&self, at: usize) -> Option<usize> {
        let byte = |n: usize| self.text.get(at + n).map(u8::to_ascii_lowercase);
        match (byte(0)?, byte(1)) {
            (b's' | b't' | b'm' | b'd', _) => Some(at + 1),
            (b'r' | b'v', Some(b'e')) | (b'l', Some(b'l')) => Some(at + 2),
            (0xc5, Some(0xbf)) => Some(at + 2),
            _ => None,
        }
    }

    /// Where a piece ends that starts with a blank which no word or sign takes.
    fn blanks_end(&self, start: usize) -> usize {
        let (mut at, mut last, mut line_end) = (start, start, None);
        while at < self.text.len() {
            let (kind, width) = self.char_kind(at);
            if kind != BLANK {
                break;
            }
            last = at;
            at += width;
            if is_line_end(self.text[last]) {
                line_end = Some(at);
            }
        }
        match line_end {
            Some(end) => end,
            None if at == self.text.len() || last == start => at,
            None => last,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Pieces;

    fn cut(text: &str) -> Vec<&str> {
        Pieces::new(text).map(|piece| std::str::from_utf8(piece).unwrap()).collect()
    }

    #[test]
    fn each_alternative() {
        for (text, pieces) in [
            ("", &[][..]),
            ("it's IT'S we'LL", &["it", "'s", " IT", "'S", " we", "'LL"]),
            ("a'\u{17f}x 'x '", &["a", "'\u{17f}", "x", " '", "x", " '"]),
            ("'r 'RE 'vex", &["'r", " '", "RE", " '", "vex"]),
            ("a12\u{b2}", &["a", "1", "2", "\u{b2}"]),
            ("$x  -> \r\n\ny", &["$x", " ", " ->", " \r\n\n", "y"]),
            ("a->\r\n b", &["a", "->\r\n", " b"]),
            ("\ta \n \n  b", &["\ta", " \n \n", " ", " b"]),
            ("a   1", &["a", "  ", " ", "1"]),
            ("a\n1 ", &["a", "\n", "1", " "]),
            ("x  ", &["x", "  "]),
            ("\u{3000}\u{e9}t\u{301}", &["\u{3000}\u{e9}t", "\u{301}"]),
        ] {
            assert_eq!(cut(text), pieces, "{text:?}");
        }
    }
}
