//! NFC as the reference does it, paying only for the characters that it can change.
//!
//! A character that is not *active* (combining class 0, quick check "yes") never joins the text before it, so it opens a
//! stretch that normalizes alone. Only the stretches that hold an active character are handed to the normalizer; text
//! without any is returned as it is.

use std::borrow::Cow;

use unicode_normalization::UnicodeNormalization;

use super::classes::{Classes, char_at};

/// The NFC form of `text`, in linear time.
pub(super) fn nfc(text: &str) -> Cow<'_, str> {
    if text.is_ascii() {
        return Cow::Borrowed(text);
    }
    let (classes, bytes) = (Classes::get(), text.as_bytes());
    let mut out = String::new();
    let (mut at, mut copied, mut before) = (0, 0, 0);
    while at < bytes.len() {
        let (c, width) = char_at(bytes, at);
        if !classes.is_nfc_active(c) {
            // What is newer than the reference's tables takes no mark to itself.
            before = if classes.is_nfc_unknown(c) { at + width } else { at };
            at += width;
            continue;
        }
        let end = active_end(classes, bytes, at);
        out.push_str(&text[copied..before]);
        out.extend(text[before..end].nfc());
        (at, copied, before) = (end, end, end);
    }
    if copied == 0 {
        return Cow::Borrowed(text);
    }
    out.push_str(&text[copied..]);
    Cow::Owned(out)
}

/// Where the run of active characters that starts at `at` ends.
fn active_end(classes: Classes, bytes: &[u8], mut at: usize) -> usize {
    while at < bytes.len() {
        let (c, width) = char_at(bytes, at);
        if !classes.is_nfc_active(c) {
            break;
        }
        at += width;
    }
    at
}

#[cfg(test)]
mod tests {
    use super::nfc;

    #[test]
    fn marks_join_move_and_lengthen() {
        for (text, expected) in [
            ("", ""),
            ("plain", "plain"),
            ("caf\u{e9}", "caf\u{e9}"),
            ("cafe\u{301}", "caf\u{e9}"),
            ("\u{301}", "\u{301}"),
            ("\u{212b}x", "\u{c5}x"),
            ("\u{958}", "\u{915}\u{93c}"),
            ("xa\u{307}\u{323}y", "x\u{1ea1}\u{307}y"),
            ("\u{1112}\u{1161}\u{11ab}", "\u{d55c}"),
            ("e\u{301}e\u{301}", "\u{e9}\u{e9}"),
        ] {
            assert_eq!(nfc(text), expected, "{text:?}");
        }
    }
}
