//! The machine that splits answers, on the ids of kipp-tiny's tokenizer and on every way to cut an answer into tokens.

use serde_json::Value;

use super::*;
use crate::artifact::{TokenizerFiles, TokenizerSource};

fn tokenizer() -> Tokenizer {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../models/kipp-tiny");
    let files = TokenizerFiles::open(folder).unwrap();
    let TokenizerSource::Json(bytes) = files.source().unwrap() else { unreachable!() };
    Tokenizer::from_json(&bytes).unwrap()
}

/// Thinking, content and calls of an answer of these ids.
fn split_ids(ids: &[TokenId], opening: Opening, stops: &[&str]) -> (String, String, Vec<Call>) {
    let tokenizer = tokenizer();
    let stops = Arc::new(stops.iter().map(|stop| (*stop).to_owned()).collect());
    let terms = SplitTerms { marks: Marks::of(&tokenizer), opening, calls: true, stops };
    let mut split = Split::new(terms, &tokenizer);
    let mut deltas = Vec::new();
    for id in ids {
        split.push(*id, &mut deltas).unwrap();
    }
    split.finish(&mut deltas);
    let (mut thinking, mut content, mut calls) = (String::new(), String::new(), Vec::new());
    for delta in deltas {
        match delta {
            Delta::Thinking(text) => thinking += &text,
            Delta::Content(text) => content += &text,
            Delta::Call(name) => calls.push(Call { name, arguments: String::new() }),
            Delta::Arguments(text) => calls.last_mut().unwrap().arguments += &text,
            Delta::CallEnd { .. } => {}
        }
    }
    (thinking, content, calls)
}

/// The same of a text, as few tokens as there are, and as a token for each byte: every cut gives one result.
fn split(text: &str, opening: Opening) -> (String, String, Vec<Call>) {
    let tokenizer = tokenizer();
    let whole = split_ids(&tokenizer.encode_with_control(text), opening, &[]);
    let mut letters = Vec::new();
    for id in tokenizer.encode_with_control(text) {
        let text = tokenizer.decode(&[id], false).unwrap();
        match tokenizer.token_id(&text) {
            Some(mark) => letters.push(mark),
            None => {
                letters.extend(tokenizer.token_bytes(id).iter().map(|byte| byte_token(&tokenizer, *byte)));
            }
        }
    }
    assert_eq!(split_ids(&letters, opening, &[]), whole, "{text:?}");
    whole
}

fn byte_token(tokenizer: &Tokenizer, byte: u8) -> TokenId {
    (0..tokenizer.len() as TokenId).find(|id| tokenizer.token_bytes(*id) == [byte]).unwrap()
}

#[test]
fn h07_thinking_and_content_are_told_apart_however_the_answer_is_cut() {
    for (opening, text, thinking, content) in [
        (Opening::Undecided, "<think>A</think>B", "A", "B"),
        (Opening::Undecided, "<think>\nA\n\nb\n</think>\n\nB\n\nC", "A\n\nb", "B\n\nC"),
        (Opening::Undecided, "<think>A</think>m<think>B</think>C", "AB", "mC"),
        (Opening::Undecided, "<think>never closed", "never closed", ""),
        (Opening::Begun, "A</think>B", "A", "B"),
        (Opening::Closed, "if a < b\n", "", "if a < b\n"),
        (Opening::Undecided, "no marks é\u{1FAE0}", "", "no marks é\u{1FAE0}"),
    ] {
        assert_eq!(split(text, opening), (thinking.to_owned(), content.to_owned(), Vec::new()), "{text:?}");
    }
}

#[test]
fn a_mark_that_is_only_spelled_is_text() {
    let ids = tokenizer().encode("<think>x</think><tool_call>");
    let (thinking, content, calls) = split_ids(&ids, Opening::Undecided, &[]);
    assert_eq!((thinking.as_str(), content.as_str(), calls.len()), ("", "<think>x</think><tool_call>", 0));
}

#[test]
fn parallel_calls_come_in_order_and_what_is_no_call_is_content() {
    let call = |name: &str| {
        format!("<tool_call>\n{{\"name\": \"{name}\", \"arguments\": {{\"x\": 1}}}}\n</tool_call>")
    };
    let (_, content, calls) = split(&format!("Well.\n{}\n{}", call("f"), call("g")), Opening::Closed);
    assert_eq!(content, "Well.");
    assert_eq!(calls.iter().map(|call| call.name.as_str()).collect::<Vec<_>>(), ["f", "g"]);
    assert_eq!(serde_json::from_str::<Value>(&calls[0].arguments).unwrap(), serde_json::json!({"x": 1}));

    let broken = "a <tool_call>\n{\"name\": f}\n</tool_call> b";
    assert_eq!(split(broken, Opening::Closed), (String::new(), broken.to_owned(), Vec::new()));
    // One that was cut is lost neither; one that lacks only its mark is a call.
    let cut = "<tool_call>\n{\"name\": \"f\", \"argu";
    assert_eq!(split(cut, Opening::Closed).1, cut);
    let open = call("f").replace("\n</tool_call>", "");
    assert_eq!(split(&open, Opening::Closed).2.len(), 1);
    let cut = "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"x\": [1,";
    let (_, content, calls) = split(cut, Opening::Closed);
    assert_eq!((content.as_str(), calls[0].arguments.as_str()), ("", "{\"x\": [1,"));
}

#[test]
fn h05_characters_over_tokens_are_never_halved() {
    let tokenizer = tokenizer();
    let marks = Marks::of(&tokenizer);
    let terms = SplitTerms { marks, opening: Opening::Closed, calls: false, stops: Arc::default() };
    let mut split = Split::new(terms, &tokenizer);
    let mut deltas = Vec::new();
    for byte in "\u{1FAE1}".bytes() {
        assert_eq!(deltas, []);
        split.push(byte_token(&tokenizer, byte), &mut deltas).unwrap();
    }
    assert_eq!(deltas, [Delta::Content("\u{1FAE1}".to_owned())]);
}

#[test]
fn h06_a_stop_string_is_held_back_in_content() {
    let ids = tokenizer().encode("The quick brown fox");
    let stopped = split_ids(&ids, Opening::Closed, &["own fox"]);
    assert_eq!(stopped.1, "The quick br");
    let ids = tokenizer().encode("The quick brown cat");
    assert_eq!(split_ids(&ids, Opening::Closed, &["own fox"]).1, "The quick brown cat");
}

#[test]
fn the_prompts_tail_says_where_an_answer_begins() {
    let tokenizer = tokenizer();
    let marks = Marks::of(&tokenizer);
    let ends = [tokenizer.token_id("<|im_end|>").unwrap()];
    let opening = |text: &str| marks.opening(&tokenizer.encode_with_control(text), &ends);
    let turn = "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n";
    assert_eq!(opening(turn), Opening::Undecided, "hybrid and Instruct-2507");
    assert_eq!(opening(&format!("{turn}<think>\n\n</think>\n\n")), Opening::Closed, "thinking turned off");
    assert_eq!(opening(&format!("{turn}<think>\n")), Opening::Begun, "Thinking-2507");
    assert_eq!(opening(&format!("<think>\nold\n</think>\n\na{turn}")), Opening::Undecided);
}

#[test]
fn arguments_come_out_while_they_are_written() {
    let tokenizer = tokenizer();
    let marks = Marks::of(&tokenizer);
    let terms = SplitTerms { marks, opening: Opening::Closed, calls: true, stops: Arc::default() };
    let mut split = Split::new(terms, &tokenizer);
    let mut deltas = Vec::new();
    let text = "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"dog\": \"big\", \"n\": 12}}\n</tool_call>";
    let mut told = Vec::new();
    for id in tokenizer.encode_with_control(text) {
        split.push(id, &mut deltas).unwrap();
        told.append(&mut deltas);
    }
    assert_eq!(told.first(), Some(&Delta::Call("f".to_owned())));
    assert_eq!(told.last(), Some(&Delta::CallEnd { complete: true }));
    let pieces: Vec<&str> = told
        .iter()
        .filter_map(|delta| match delta {
            Delta::Arguments(text) => Some(text.as_str()),
            _ => None,
        })
        .collect();
    assert!(pieces.len() > 4, "{pieces:?}");
    assert_eq!(pieces.concat(), "{\"dog\": \"big\", \"n\": 12}");
}
