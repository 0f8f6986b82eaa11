//! Tokenizer files: GGUF lists against `tokenizer.json`, both spellings of merges, and every way to be malformed.

use kipp::tokenizer::{TokenKind, Tokenizer, TokenizerError};
use serde_json::{Value, json};

use super::{QWEN3, QWEN3_JSON, TINY, TINY_JSON, golden_cases};

/// The lists that a GGUF file holds, built from a `tokenizer.json`, with padding up to `rows`.
fn gguf_lists(
    json: &[u8],
    rows: usize,
    special_by_spelling: bool,
) -> (Vec<String>, Vec<TokenKind>, Vec<String>) {
    let file: Value = serde_json::from_slice(json).unwrap();
    let mut tokens: Vec<String> = (0..rows).map(|id| format!("[PAD{id}]")).collect();
    let mut kinds = vec![TokenKind::Unused; rows];
    for (token, id) in file["model"]["vocab"].as_object().unwrap() {
        let id = id.as_u64().unwrap() as usize;
        (tokens[id], kinds[id]) = (token.clone(), TokenKind::Normal);
    }
    for added in file["added_tokens"].as_array().unwrap() {
        let (id, text) = (added["id"].as_u64().unwrap() as usize, added["content"].as_str().unwrap());
        let special = added["special"] == true || special_by_spelling && text.starts_with("<|");
        kinds[id] = if special { TokenKind::Control } else { TokenKind::UserDefined };
        tokens[id] = text.to_owned();
    }
    let side = |pair: &Value, n: usize| pair[n].as_str().unwrap().to_owned();
    let merges = file["model"]["merges"].as_array().unwrap();
    (tokens, kinds, merges.iter().map(|pair| side(pair, 0) + " " + &side(pair, 1)).collect())
}

#[test]
fn gguf_lists_give_the_tokenizer_of_the_json() {
    for special_by_spelling in [false, true] {
        let (tokens, kinds, merges) = gguf_lists(&QWEN3_JSON, 151_936, special_by_spelling);
        let gguf = Tokenizer::from_vocabulary(&tokens, &kinds, &merges, "qwen2").unwrap();
        for case in golden_cases() {
            assert_eq!(gguf.encode_with_control(&case.text), case.ids, "{:?}", case.text);
            assert_eq!(gguf.encode(&case.text), QWEN3.encode(&case.text));
        }
        assert_eq!(
            (gguf.len(), gguf.added_len(), gguf.rows()),
            (QWEN3.len(), QWEN3.added_len(), QWEN3.rows())
        );
        for id in 0..151_936 {
            assert_eq!(gguf.is_special(id), QWEN3.is_special(id), "{id}");
            assert_eq!(gguf.token_bytes(id), QWEN3.token_bytes(id), "{id}");
            assert_eq!(gguf.decode(&[id], true), QWEN3.decode(&[id], true), "{id}");
        }
        assert!(gguf.added_tokens().eq(QWEN3.added_tokens()));
    }
}

#[test]
fn a_tokenizer_is_written_as_the_lists_of_its_file() {
    for (json, rows) in [(&*QWEN3_JSON, 151_936), (&*TINY_JSON, 4096)] {
        let (tokens, kinds, merges) = gguf_lists(json, rows, false);
        let lists = Tokenizer::from_json(json).unwrap().with_rows(rows).unwrap().to_vocabulary();
        assert_eq!((&lists.tokens, &lists.kinds, &lists.merges), (&tokens, &kinds, &merges));
        let again =
            Tokenizer::from_vocabulary(&lists.tokens, &lists.kinds, &lists.merges, &lists.pre).unwrap();
        assert_eq!(again.to_vocabulary(), lists);
    }
}

/// The small tokenizer's file as a value, to be damaged.
fn tiny() -> Value {
    serde_json::from_slice(&TINY_JSON).unwrap()
}

fn refusal(file: &Value) -> TokenizerError {
    Tokenizer::from_json(&serde_json::to_vec(file).unwrap()).map(|_| ()).unwrap_err()
}

/// Damage to a file.
type Change = fn(&mut Value);

/// The refusal of the file after a change.
fn refused(change: impl FnOnce(&mut Value)) -> TokenizerError {
    let mut file = tiny();
    change(&mut file);
    refusal(&file)
}

#[test]
fn merges_may_be_strings_and_keys_in_any_order() {
    let mut file = tiny();
    let merges = file["model"]["merges"].as_array_mut().unwrap();
    for merge in merges {
        *merge = Value::from(format!("{} {}", merge[0].as_str().unwrap(), merge[1].as_str().unwrap()));
    }
    // Merges before the vocabulary, the vocabulary against the order of its ids.
    let mut vocab: Vec<_> = file["model"]["vocab"].as_object().unwrap().clone().into_iter().collect();
    vocab.reverse();
    file["model"]["vocab"] = Value::Object(vocab.into_iter().collect());
    let model = file["model"].as_object().unwrap().clone().into_iter().rev().collect();
    file["model"] = Value::Object(model);
    let read = Tokenizer::from_json(&serde_json::to_vec(&file).unwrap()).unwrap();
    for case in golden_cases() {
        assert_eq!(read.encode_with_control(&case.text), TINY.encode_with_control(&case.text));
    }
    assert!((0..4026).all(|id| read.token_bytes(id) == TINY.token_bytes(id)));
}

#[test]
fn parts_of_another_kind_are_refused_by_name() {
    let part_of = |change: Change| match refused(change) {
        TokenizerError::Unsupported { part, found, .. } => (part, found),
        other => panic!("{other}"),
    };
    let cases: [(Change, &str, &str); 14] = [
        (|file| file["normalizer"]["type"] = json!("NFKC"), "normalizer", "NFKC"),
        (|file| file["normalizer"] = Value::Null, "normalizer", "none"),
        (|file| file["decoder"] = json!({"type": "WordPiece"}), "decoder", "WordPiece"),
        (
            |file| file["post_processor"] = json!({"type": "TemplateProcessing"}),
            "post_processor",
            "TemplateProcessing",
        ),
        (|file| file["pre_tokenizer"] = json!({"type": "Whitespace"}), "pre_tokenizer", "Whitespace"),
        (
            |file| file["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = json!("\\w+"),
            "pre_tokenizer.pattern.Regex",
            "\\\\w+",
        ),
        (
            |file| file["pre_tokenizer"]["pretokenizers"][0]["behavior"] = json!("Removed"),
            "pre_tokenizer.behavior",
            "Removed",
        ),
        (
            |file| file["pre_tokenizer"]["pretokenizers"][1]["use_regex"] = json!(true),
            "pre_tokenizer.use_regex",
            "true",
        ),
        (
            |file| file["pre_tokenizer"]["pretokenizers"] = json!([{"type": "Digits"}]),
            "pre_tokenizer",
            "Digits",
        ),
        (|file| file["model"]["type"] = json!("Uni\u{1b}gram"), "model.type", "Uni\\u{1b}gram"),
        (|file| file["model"]["byte_fallback"] = json!(true), "model.byte_fallback", "true"),
        (|file| file["model"]["ignore_merges"] = json!(true), "model.ignore_merges", "true"),
        (|file| file["model"]["dropout"] = json!(0.1), "model.dropout", "0.1"),
        (
            |file| file["model"]["end_of_word_suffix"] = json!("</w>"),
            "model.end_of_word_suffix",
            "\\\"</w>\\\"",
        ),
    ];
    for (change, part, found) in cases {
        assert_eq!(part_of(change), (part, found.to_owned()));
    }
}

#[test]
fn malformed_files_are_refused_each_in_its_own_way() {
    use TokenizerError as Error;
    let cut = &TINY_JSON[..TINY_JSON.len() / 2];
    for bytes in [&b""[..], b"{", b"[]", b"null", b"{\"model\": 3}", b"\xff{}", cut] {
        let error = Tokenizer::from_json(bytes).map(|_| ()).unwrap_err();
        assert!(matches!(error, Error::Json(_)), "{error}");
    }
    type Expected = fn(&Error) -> bool;
    let cases: [(Change, Expected); 24] = [
        (|f| drop(f.as_object_mut().unwrap().remove("model")), |e| matches!(e, Error::Missing("model"))),
        (
            |f| drop(f["model"].as_object_mut().unwrap().remove("merges")),
            |e| matches!(e, Error::Missing("model.merges")),
        ),
        (
            |f| drop(f["model"].as_object_mut().unwrap().remove("vocab")),
            |e| matches!(e, Error::Missing("model.vocab")),
        ),
        (
            |f| f["model"]["vocab"] = json!({}),
            |e| matches!(e, Error::IdGap { .. } | Error::MissingByte { byte: 0 }),
        ),
        (|f| f["model"]["vocab"] = json!([1]), |e| matches!(e, Error::Json(_))),
        (|f| f["model"]["vocab"]["he"] = json!(-1), |e| matches!(e, Error::Json(_))),
        (|f| f["model"]["vocab"]["he"] = json!(1.5), |e| matches!(e, Error::Json(_))),
        (|f| f["model"]["vocab"]["he"] = json!(3), |e| matches!(e, Error::DuplicateId { id: 3, .. })),
        (|f| f["model"]["vocab"]["he"] = json!(4000), |e| matches!(e, Error::IdGap { id: 4000, .. })),
        (|f| f["model"]["vocab"]["he"] = json!(u64::MAX), |e| matches!(e, Error::IdGap { id: u64::MAX, .. })),
        (
            |f| f["model"]["vocab"]["a b"] = json!(4000),
            |e| matches!(e, Error::NotByteLevel { character: 32, .. }),
        ),
        (|f| f["model"]["vocab"]["\u{4e00}"] = json!(4000), |e| matches!(e, Error::NotByteLevel { .. })),
        (|f| f["model"]["merges"][7] = json!("he"), |e| matches!(e, Error::MalformedMerge { index: 7, .. })),
        (
            |f| f["model"]["merges"][7] = json!("a b c"),
            |e| matches!(e, Error::MalformedMerge { index: 7, .. }),
        ),
        (|f| f["model"]["merges"][7] = json!(["a"]), |e| matches!(e, Error::MalformedMerge { index: 7, .. })),
        (
            |f| f["model"]["merges"][7] = json!(["a", ""]),
            |e| matches!(e, Error::MalformedMerge { index: 7, .. }),
        ),
        (|f| f["model"]["merges"][7] = json!(3), |e| matches!(e, Error::Json(_))),
        (
            |f| f["model"]["merges"][7] = json!(["zqx", "a"]),
            |e| matches!(e, Error::UnknownMerge { index: 7, .. }),
        ),
        (
            |f| f["model"]["merges"][7] = json!(["z", "q"]),
            |e| matches!(e, Error::UnknownMerge { index: 7, .. }),
        ),
        (
            |f| f["model"]["merges"][7] = f["model"]["merges"][0].clone(),
            |e| matches!(e, Error::DuplicateMerge { index: 7 }),
        ),
        (
            |f| f["added_tokens"][3]["id"] = json!(9_000_000_000u64),
            |e| matches!(e, Error::IdGap { id: 9_000_000_000, .. }),
        ),
        (|f| f["added_tokens"][3]["id"] = json!(4000), |e| matches!(e, Error::DuplicateId { id: 4000, .. })),
        (
            |f| f["added_tokens"][3]["lstrip"] = json!(true),
            |e| matches!(e, Error::UnsupportedFlag { flag: "lstrip", .. }),
        ),
        (
            |f| f["added_tokens"][3]["content"] = json!("<|im_start|>"),
            |e| matches!(e, Error::AmbiguousAddedToken { .. }),
        ),
    ];
    for (place, (change, expected)) in cases.into_iter().enumerate() {
        let error = refused(change);
        assert!(expected(&error), "case {place}: {error}");
    }
    let empty = refused(|file| file["added_tokens"][3]["content"] = json!(""));
    assert!(matches!(empty, Error::EmptyToken { id: 4003 }), "{empty}");
    let long = refused(|file| file["added_tokens"][3]["content"] = json!("x".repeat(5000)));
    assert!(matches!(long, Error::TooLarge { found: 5000, .. }), "{long}");
}

#[test]
fn malformed_gguf_lists_are_refused() {
    use TokenizerError as Error;
    let (tokens, kinds, merges) = gguf_lists(&TINY_JSON, 4096, false);
    let build = |tokens: &[String], kinds: &[TokenKind], merges: &[String], pre: &str| {
        Tokenizer::from_vocabulary(tokens, kinds, merges, pre).map(|_| ()).unwrap_err()
    };
    let error = build(&tokens, &kinds, &merges, "gpt-2");
    assert!(matches!(error, Error::Unsupported { part: "tokenizer.ggml.pre", .. }), "{error}");
    assert_eq!(build(&tokens, &kinds[1..], &merges, "qwen2"), Error::KindCount { tokens: 4096, kinds: 4095 });
    assert_eq!(build(&[], &[], &[], "qwen2"), Error::MissingByte { byte: 0 });
    let mut twice = tokens.clone();
    twice[300] = twice[301].clone();
    assert!(matches!(
        build(&twice, &kinds, &merges, "qwen2"),
        Error::DuplicateToken { first: 300, second: 301, .. }
    ));
    let bare = vec!["x".to_owned()];
    assert!(matches!(build(&tokens, &kinds, &bare, "qwen2"), Error::MalformedMerge { index: 0, .. }));
    let unused_inside = {
        let mut kinds = kinds;
        kinds[4010] = TokenKind::Unused;
        Tokenizer::from_vocabulary(&tokens, &kinds, &merges, "qwen2").unwrap()
    };
    assert_eq!(unused_inside.decode(&[4010, 4090], false).unwrap(), "");
    for number in [1, 3, 4, 5] {
        assert_eq!(TokenKind::from_gguf(number.into()).map(TokenKind::to_gguf), Some(number));
    }
    for number in [0, 2, 6, -1, i64::MAX] {
        assert_eq!(TokenKind::from_gguf(number), None);
    }
}
