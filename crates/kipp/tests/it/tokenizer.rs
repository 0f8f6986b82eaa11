//! The tokenizer against its reference: golden ids, facts by bug number, and a live comparison with the `tokenizers` crate.

mod classes;
mod facts;
mod files;
mod live;

use std::path::PathBuf;
use std::sync::LazyLock;

use kipp::TokenId;
use kipp::tokenizer::Tokenizer;

/// A file of this repository.
fn read(path: &str) -> Vec<u8> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..").join(path);
    std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

static QWEN3_JSON: LazyLock<Vec<u8>> = LazyLock::new(|| read("testdata/qwen3-tokenizer/tokenizer.json"));
static TINY_JSON: LazyLock<Vec<u8>> = LazyLock::new(|| read("models/kipp-tiny/tokenizer.json"));

/// Qwen3's tokenizer with the 151,936 rows of its models.
static QWEN3: LazyLock<Tokenizer> =
    LazyLock::new(|| Tokenizer::from_json(&QWEN3_JSON).unwrap().with_rows(151_936).unwrap());
static TINY: LazyLock<Tokenizer> =
    LazyLock::new(|| Tokenizer::from_json(&TINY_JSON).unwrap().with_rows(4096).unwrap());

/// One golden case: a text, its NFC form, and its ids with control tokens parsed.
#[derive(serde::Deserialize)]
struct Case {
    text: String,
    nfc: String,
    ids: Vec<TokenId>,
}

fn golden_cases() -> Vec<Case> {
    serde_json::from_slice(&read("testdata/qwen3-tokenizer/tokenizer-cases.json")).unwrap()
}

#[test]
fn golden_cases_have_the_reference_ids() {
    let cases = golden_cases();
    assert_eq!(cases.len(), 171);
    for Case { text, nfc, ids } in cases {
        assert_eq!(QWEN3.encode_with_control(&text), ids, "{text:?}");
        assert_eq!(QWEN3.decode(&ids, false).unwrap(), nfc, "{text:?}");
    }
}
