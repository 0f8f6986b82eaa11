//! A live comparison with the reference over generated texts, and of the character tables with it.

use std::sync::LazyLock;

use kipp::tokenizer::Tokenizer;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use super::{QWEN3, QWEN3_JSON, TINY, TINY_JSON};

static REFERENCE: LazyLock<tokenizers::Tokenizer> =
    LazyLock::new(|| tokenizers::Tokenizer::from_bytes(&*QWEN3_JSON).unwrap());
static TINY_REFERENCE: LazyLock<tokenizers::Tokenizer> =
    LazyLock::new(|| tokenizers::Tokenizer::from_bytes(&*TINY_JSON).unwrap());

/// Fragments that meet each other in unlucky ways: words, contractions, blanks, line ends, marks, markers whole and cut.
const FRAGMENTS: [&str; 48] = [
    "the",
    "Hello",
    "don",
    "'t",
    "'S",
    "'ll",
    "'re",
    "'\u{17f}",
    "'",
    "a",
    "s",
    "return",
    "0",
    "12345",
    "\u{b2}",
    "\u{bd}",
    " ",
    "  ",
    "\t",
    "\n",
    "\r\n",
    "\n\n",
    "\u{3000}",
    "\u{a0}",
    "\u{85}",
    "\u{200b}",
    "\u{2028}",
    "{",
    "->",
    "//",
    "==",
    "e\u{301}",
    "\u{301}",
    "\u{327}",
    "\u{323}",
    "\u{1112}",
    "\u{1161}",
    "\u{11ab}",
    "\u{958}",
    "\u{f900}",
    "<|im_start|>",
    "<|im_end|>",
    "<think>",
    "</think>",
    "<|im_",
    "end|>",
    "<",
    "\u{1f468}\u{200d}\u{1f469}",
];

/// Blocks from which single characters come: scripts, signs, emoji, marks, controls, and ideographs of every plane.
const BLOCKS: [(u32, u32); 24] = [
    (0x00, 0x7f),
    (0x80, 0xff),
    (0x100, 0x24f),
    (0x300, 0x36f),
    (0x370, 0x3ff),
    (0x400, 0x52f),
    (0x590, 0x5ff),
    (0x600, 0x6ff),
    (0x900, 0x97f),
    (0xb80, 0xbff),
    (0xe00, 0xe7f),
    (0x1100, 0x11ff),
    (0x1e00, 0x1eff),
    (0x1f00, 0x1fff),
    (0x2000, 0x206f),
    (0x20d0, 0x218f),
    (0x3040, 0x30ff),
    (0x4e00, 0x9fff),
    (0xac00, 0xd7a3),
    (0xf900, 0xfaff),
    (0xfe00, 0xfe0f),
    (0x1d15e, 0x1d1ad),
    (0x1f300, 0x1f9ff),
    (0x20000, 0x323af),
];

fn fragment() -> impl Strategy<Value = String> {
    let letter = proptest::sample::select(&BLOCKS[..]).prop_flat_map(|(first, last)| first..=last);
    prop_oneof![
        5 => proptest::sample::select(&FRAGMENTS[..]).prop_map(str::to_owned),
        5 => letter.prop_filter_map("a surrogate", char::from_u32).prop_map(String::from),
        2 => any::<char>().prop_map(String::from),
        2 => "[a-zA-Z]{1,12}",
        1 => (proptest::sample::select(&[" ", "a", "\n", "=", "\u{301}", "\u{4e00}", "ab", " \n"][..]), 1..90usize)
            .prop_map(|(unit, count)| unit.repeat(count)),
        1 => "[a-zA-Z0-9+/]{40,120}",
        1 => "[a-z]{40,120}",
    ]
}

fn text() -> impl Strategy<Value = String> {
    proptest::collection::vec(fragment(), 0..24).prop_map(|fragments| fragments.concat())
}

/// As many cases as find a fault in a table, a rule or a merge at once, and few enough for every test run.
fn compare(cases: u32, ours: &Tokenizer, reference: &tokenizers::Tokenizer) {
    let mut runner = TestRunner::new(Config { cases, failure_persistence: None, ..Config::default() });
    let result = runner.run(&text(), |text| {
        let expected = reference.encode_fast(text.as_str(), false).unwrap();
        let ids = ours.encode_with_control(&text);
        prop_assert_eq!(&ids[..], expected.get_ids());
        let decoded = ours.decode(&ids, false).unwrap();
        prop_assert_eq!(&decoded, &reference.decode(&ids, false).unwrap());
        prop_assert_eq!(ours.decode(&ids, true).unwrap(), reference.decode(&ids, true).unwrap());
        // Pushed one at a time, the deltas are the whole.
        let (mut decoder, mut joined) = (ours.stream_decoder(false), String::new());
        for id in ids {
            joined += decoder.push(id).unwrap();
        }
        joined += decoder.finish();
        prop_assert_eq!(joined, decoded);
        Ok(())
    });
    result.unwrap();
}

#[test]
fn generated_texts_have_the_reference_ids() {
    compare(4000, &QWEN3, &REFERENCE);
}

#[test]
fn generated_texts_have_the_reference_ids_in_the_small_vocabulary() {
    compare(1500, &TINY, &TINY_REFERENCE);
}

#[test]
fn every_character_has_the_reference_ids_among_letters_marks_and_blanks() {
    // One text for a block of characters, each in places that show its class and how it normalizes; of the ideographs and
    // syllables, which are thousands alike, one in five.
    let alike = |c: &char| matches!(c, '\u{3400}'..='\u{d7a3}' | '\u{17000}'..) && u32::from(*c) % 5 != 0;
    let all = ('\0'..='\u{33500}').chain('\u{e0000}'..='\u{e01ff}').filter(|c| !alike(c));
    for block in all.collect::<Vec<_>>().chunks(32) {
        let text: String = block.iter().map(|c| format!("a{c}b {c}1{c}\n\u{345}{c}\u{334}\n")).collect();
        let expected = REFERENCE.encode_fast(text.as_str(), false).unwrap();
        if QWEN3.encode_with_control(&text) != expected.get_ids() {
            let of = |text: &str| {
                (QWEN3.encode(text), REFERENCE.encode_fast(text, false).unwrap().get_ids().to_vec())
            };
            for c in block {
                let (ours, theirs) = of(&format!("a{c}b {c}1{c}\n\u{345}{c}\u{334}\n"));
                assert_eq!(ours, theirs, "U+{:04X}", u32::from(*c));
            }
            panic!("{:?} differs only as a whole", block.first());
        }
    }
}

#[test]
fn broken_characters_decode_as_the_reference_decodes_them() {
    let mut runner = TestRunner::new(Config { cases: 500, failure_persistence: None, ..Config::default() });
    let ids = proptest::collection::vec(prop_oneof![0..256u32, 0..151_669u32], 0..30);
    let result = runner.run(&ids, |ids| {
        for skip in [false, true] {
            prop_assert_eq!(QWEN3.decode(&ids, skip).unwrap(), REFERENCE.decode(&ids, skip).unwrap());
        }
        Ok(())
    });
    result.unwrap();
}
