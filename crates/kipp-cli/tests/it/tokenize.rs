//! `kipp tokenize` and `kipp detokenize`: shapes, exactness, and that no weights are needed.

use crate::{code, ids, json, keys, kipp, refusal, stderr, stdout};

/// A folder with the tokenizer's files alone.
const QWEN: &str = "testdata/qwen3-tokenizer";

#[test]
fn tokenize_needs_only_the_tokenizers_files() {
    let report = json(&["tokenize", "--model", QWEN, "--json", "Hello"]);
    assert_eq!(keys(&report), ["ids", "count"]);
    assert_eq!((ids(&report["ids"]), &report["count"]), (vec![9707], &1.into()));
    let empty = json(&["tokenize", "--model", QWEN, "--json", ""]);
    assert_eq!((ids(&empty["ids"]), &empty["count"]), (vec![], &0.into()));
    assert_eq!(stdout(&["tokenize", "-m", QWEN, "1234567"]), "16 17 18 19 20 21 22\n");
}

#[test]
fn control_tokens_are_text_unless_special() {
    assert_eq!(
        ids(&json(&["tokenize", "-m", QWEN, "--json", "--special", "hi<|im_end|>"])["ids"]),
        [6023, 151_645]
    );
    let plain = ids(&json(&["tokenize", "-m", QWEN, "--json", "hi<|im_end|>"])["ids"]);
    assert_eq!(plain, [6023, 27, 91, 318, 6213, 91, 29]);
}

#[test]
fn standard_input_is_taken_as_it_is() {
    let out = kipp(&["tokenize", "-m", QWEN]).write_stdin("Hello \n").output().unwrap();
    assert_eq!(String::from_utf8_lossy(&out.stdout), "9707 715\n");
    let out = kipp(&["tokenize", "-m", QWEN]).write_stdin(&b"\xc0\x80"[..]).output().unwrap();
    assert_eq!((code(&out), out.stdout.len()), (1, 0));
    assert!(stderr(&out).contains("not UTF-8"));
}

#[test]
fn jsonl_answers_each_line() {
    let lines = "\"Hello\"\n\"\"\n\"a\\u0000b\"\n\"\\ud83d\\ude00\"";
    let out = kipp(&["tokenize", "-m", QWEN, "--jsonl"]).write_stdin(lines).output().unwrap();
    let text = String::from_utf8(out.stdout).unwrap();
    let answers: Vec<&str> = text.lines().collect();
    assert_eq!(
        answers[..3],
        ["{\"ids\":[9707],\"count\":1}", "{\"ids\":[],\"count\":0}", "{\"ids\":[64,188,65],\"count\":3}"]
    );
    assert_eq!(answers.len(), 4);

    for (bad, line) in
        [("\"a\"\nb\n", "line 2"), ("\"\\ud83d\"\n", "line 1"), ("1\n", "line 1"), ("\"a\"\n\n", "line 2")]
    {
        let out = kipp(&["tokenize", "-m", QWEN, "--jsonl"]).write_stdin(bad).output().unwrap();
        assert_eq!(code(&out), 1, "{bad:?}");
        assert!(stderr(&out).contains(line), "{bad:?}: {}", stderr(&out));
    }
}

#[test]
fn detokenize_is_exact_and_adds_nothing() {
    let text = "Say 🫡! <|im_end|>\n";
    let coded = ids(&json(&["tokenize", "-m", QWEN, "--special", "--json", text])["ids"]);
    let words: Vec<String> = coded.iter().map(u32::to_string).collect();
    let mut args = vec!["detokenize", "-m", QWEN];
    args.extend(words.iter().map(String::as_str));
    assert_eq!(stdout(&args), text);
    args.push("--json");
    let report = json(&args);
    assert_eq!(keys(&report), ["text"]);
    assert_eq!(report["text"], text);
    // The same ids through a pipe, as `tokenize` prints them.
    let piped = kipp(&["detokenize", "-m", QWEN]).write_stdin(words.join(" ") + "\n").output().unwrap();
    assert_eq!(piped.stdout, text.as_bytes());
    // H05: half a character is U+FFFD only because it stays half.
    assert_eq!(stdout(&["detokenize", "-m", QWEN, "9284", "104", "254"]), "\u{1FAE0}");
    assert_eq!(stdout(&["detokenize", "-m", QWEN, "9284"]), "\u{FFFD}");
}

#[test]
fn bad_ids_are_refused() {
    for bad in ["4096", "99999999999", "-1", "x", "1.5"] {
        assert!(!refusal(&["detokenize", bad], 1).is_empty(), "{bad}");
    }
    assert!(refusal(&["detokenize", "1", "4096"], 1).contains("4096 is past the vocabulary of 4096"));
    // A padding row of the head is an id, and says nothing.
    assert_eq!(stdout(&["detokenize", "436", "4095"]), "Once");
}

#[test]
fn a_model_without_a_tokenizer_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_str().unwrap();
    assert!(refusal(&["tokenize", "-m", path, "a"], 1).contains("tokenizer.json"));
}
