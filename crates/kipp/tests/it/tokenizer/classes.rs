//! Makes the character tables of `src/tokenizer/classes.rs` from the behaviour of the reference.
//!
//! The tables follow what the `tokenizers` crate does, character by character, and not a Unicode version: its regex
//! engine and its normalizer stand on two different ones. To make the file anew:
//! `cargo test -p kipp --test it print_the_class_tables -- --ignored --nocapture`.

use std::collections::BTreeSet;

use tokenizers::normalizers::unicode::NFC;
use tokenizers::pre_tokenizers::split::{Split, SplitPattern};
use tokenizers::tokenizer::{
    NormalizedString, Normalizer, OffsetReferential, OffsetType, PreTokenizedString, PreTokenizer,
    SplitDelimiterBehavior,
};
use unicode_normalization::UnicodeNormalization;
use unicode_normalization::char::canonical_combining_class;
use unicode_normalization::{IsNormalized, is_nfc_quick};

/// The characters that one regex class of the reference takes.
fn class(pattern: &str) -> BTreeSet<u32> {
    let split =
        Split::new(SplitPattern::Regex(pattern.into()), SplitDelimiterBehavior::Removed, true).unwrap();
    let mut found = BTreeSet::new();
    for block in ('\0'..=char::MAX).collect::<Vec<_>>().chunks(2048) {
        let mut text = PreTokenizedString::from(block.iter().collect::<String>());
        split.pre_tokenize(&mut text).unwrap();
        for (piece, _, _) in text.get_splits(OffsetReferential::Original, OffsetType::Byte) {
            found.extend(piece.chars().map(u32::from));
        }
    }
    found
}

/// NFC as the reference does it.
fn reference_nfc(text: &str) -> String {
    let mut normalized = NormalizedString::from(text);
    NFC.normalize(&mut normalized).unwrap();
    normalized.get().to_owned()
}

/// Whether the reference moves the character among combining marks: a class of 0 never moves.
fn reference_reorders(c: char) -> bool {
    [format!("\u{345}{c}"), format!("{c}\u{334}")].iter().any(|text| reference_nfc(text) != *text)
}

/// Characters that the normalization crate knows and the reference, on an older Unicode, leaves alone.
fn unknown() -> BTreeSet<u32> {
    let mut found = BTreeSet::new();
    for c in '\0'..=char::MAX {
        let text = String::from(c);
        let parts: String = text.nfd().collect();
        if canonical_combining_class(c) != 0 && !reference_reorders(c)
            || reference_nfc(&text) != text.nfc().collect::<String>()
        {
            found.insert(u32::from(c));
        }
        if parts != text && reference_nfc(&parts) != parts.nfc().collect::<String>() {
            found.insert(u32::from(c));
            // A new composite may end in an old mark, which the reference knows well.
            found.extend(parts.chars().filter(|&part| canonical_combining_class(part) == 0).map(u32::from));
        }
    }
    found
}

/// Characters that normalization may change, move, or join to the one before.
fn active() -> BTreeSet<u32> {
    let moves =
        |c: &char| canonical_combining_class(*c) != 0 || is_nfc_quick([*c].into_iter()) != IsNormalized::Yes;
    let mut found: BTreeSet<u32> = ('\0'..=char::MAX).filter(moves).map(u32::from).collect();
    for c in unknown() {
        found.remove(&c);
    }
    found
}

fn ranges(set: &BTreeSet<u32>) -> Vec<(u32, u32)> {
    let mut ranges: Vec<(u32, u32)> = Vec::new();
    for &c in set {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == c => *last = c,
            _ => ranges.push((c, c)),
        }
    }
    ranges
}

#[test]
#[ignore = "prints a source file"]
fn print_the_class_tables() {
    let tables = [
        ("LETTERS", "`\\p{L}`.", class("\\p{L}")),
        ("NUMBERS", "`\\p{N}`.", class("\\p{N}")),
        ("BLANKS", "`\\s`.", class("\\s")),
        ("ACTIVE", "Characters that NFC may change, move, or join to the one before.", active()),
        (
            "UNKNOWN",
            "Characters newer than the reference's normalizer: it leaves them as they are.",
            unknown(),
        ),
    ];
    for (name, meaning, set) in tables {
        println!("\n/// {meaning}\n#[rustfmt::skip]\npub(super) const {name}: &[(u32, u32)] = &[");
        let mut line = String::from("   ");
        for (first, last) in ranges(&set) {
            let item = format!(" (0x{first:x}, 0x{last:x}),");
            if line.len() + item.len() > 118 {
                println!("{line}");
                line = String::from("   ");
            }
            line += &item;
        }
        println!("{line}\n];");
    }
}
