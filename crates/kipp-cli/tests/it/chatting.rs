//! `kipp chat`: line by line as scripts use it, and in a terminal, which `script` of util-linux provides.

use std::path::Path;

use serde_json::Value;

use crate::{code, keys, kipp, stderr};

/// What a chat says to these lines.
fn chat(args: &[&str], lines: &str) -> std::process::Output {
    kipp(&["chat", "--threads", "1"]).args(args).write_stdin(lines).output().unwrap()
}

/// The document of each answer.
fn answers(args: &[&str], lines: &str) -> Vec<Value> {
    let out = chat(&[&["--json"], args].concat(), lines);
    assert_eq!(code(&out), 0, "{}", stderr(&out));
    let text = String::from_utf8(out.stdout).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn count(answer: &Value, key: &str) -> usize {
    answer[key].as_u64().unwrap() as usize
}

/// Tokens of a turn that neither the prompt before nor its answer had.
fn new_tokens(before: &Value, turn: &Value) -> usize {
    count(turn, "prompt_tokens") - count(before, "prompt_tokens") - count(before, "completion_tokens")
}

const TALK: &str =
    "Tell me a story about a red ball.\nWhat did the girl say then?\nAnd what happened in the end?\n";

/// A template that shows earlier answers as they were given, as those of the Instruct-2507 models do.
const KEEPING: &str = "{%- for message in messages %}{{- '<|im_start|>' + message.role + '\\n' }}\
    {%- if message.role == 'assistant' %}{{- '<think>\\n\\n</think>\\n\\n' }}{%- endif %}\
    {{- message.content + '<|im_end|>\\n' }}{%- endfor %}\
    {{- '<|im_start|>assistant\\n<think>\\n\\n</think>\\n\\n' }}";

/// kipp-tiny with another template.
fn with_template(template: &str) -> tempfile::TempDir {
    let (folder, tiny) = (tempfile::tempdir().unwrap(), crate::root().join("models/kipp-tiny"));
    for name in ["config.json", "generation_config.json", "model.safetensors", "tokenizer.json"] {
        std::fs::copy(tiny.join(name), folder.path().join(name)).unwrap();
    }
    let text = std::fs::read_to_string(tiny.join("tokenizer_config.json")).unwrap();
    let mut config: Value = serde_json::from_str(&text).unwrap();
    config["chat_template"] = template.into();
    std::fs::write(folder.path().join("tokenizer_config.json"), config.to_string()).unwrap();
    folder
}

#[test]
fn only_the_new_text_of_a_turn_is_evaluated() {
    let folder = with_template(KEEPING);
    let model = folder.path().to_str().unwrap();
    // Draws from the model's distribution: answers are spelled in tokens that the tokenizer would not choose.
    for seed in ["1", "2", "3"] {
        let answers = answers(&["-m", model, "--seed", seed, "--temperature", "1.2", "-n", "80"], TALK);
        assert_eq!(answers.len(), 3);
        assert_eq!(count(&answers[0], "evaluated_tokens"), count(&answers[0], "prompt_tokens"));
        for pair in answers.windows(2) {
            let (new, evaluated) = (new_tokens(&pair[0], &pair[1]), count(&pair[1], "evaluated_tokens"));
            let whole = count(&pair[1], "prompt_tokens");
            assert!(evaluated <= new + 32, "seed {seed}: {evaluated} of {whole} tokens for {new} new ones");
            assert_eq!(pair[1]["timings"]["cached_tokens"], whole - evaluated);
        }
    }
}

/// Qwen3's template drops the thinking before an earlier answer, the empty one of `--no-think` too, so that the answer after
/// it stands elsewhere: it is evaluated a second time, and nothing before it.
#[test]
fn an_answer_whose_thinking_is_dropped_is_evaluated_again_and_nothing_before_it() {
    for args in [&["--seed", "1", "-n", "80", "--no-think"][..], &["--seed", "1", "-n", "300"]] {
        let answers = answers(args, TALK);
        for pair in answers.windows(2) {
            assert_eq!(pair[0]["thinking"].is_null(), args.contains(&"--no-think"), "{}", pair[0]);
            let before = count(&pair[0], "prompt_tokens");
            let (evaluated, whole) = (count(&pair[1], "evaluated_tokens"), count(&pair[1], "prompt_tokens"));
            // `assistant\n<think>\n\n</think>\n\n` may end the prompt before.
            assert!(evaluated <= whole - before + 8 + 32, "{evaluated} of {whole} tokens after {before}");
        }
    }
}

#[test]
fn what_is_kept_changes_no_answer() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("talk.json");
    let file = file.to_str().unwrap();
    let greedy = ["--temperature", "0", "-n", "40", "--no-think"];
    let lines: Vec<&str> = TALK.lines().collect();
    let told = answers(&greedy, &format!("{}\n{}\n/save {file}\n{}\n", lines[0], lines[1], lines[2]));
    let anew = answers(&greedy, &format!("/load {file}\n{}\n", lines[2]));
    assert_eq!(told[2]["content"], anew[0]["content"]);
    assert_eq!(told[2]["prompt_tokens"], anew[0]["evaluated_tokens"], "another process has nothing cached");
    assert!(count(&told[2], "evaluated_tokens") < count(&anew[0], "evaluated_tokens"));
}

#[test]
fn the_json_document_has_exactly_these_keys() {
    let answers =
        answers(&["--temperature", "0", "-n", "8"], "/think off\nHi\n\n   \n/show\n/think on\nHi\n");
    assert_eq!(answers.len(), 2, "blank lines and commands are no messages");
    let expected = [
        "content",
        "thinking",
        "prompt_tokens",
        "evaluated_tokens",
        "completion_tokens",
        "finish_reason",
        "timings",
    ];
    assert_eq!(keys(&answers[0]), expected);
    assert!(answers[0]["thinking"].is_null() && answers[1]["content"] == "");
    assert!(answers[0]["content"] != "" && answers[1]["thinking"] != "");
    assert_eq!(answers[0]["finish_reason"], "length");
    let load = |answer: &Value| answer["timings"]["load_ms"].as_f64().unwrap();
    assert!(load(&answers[0]) > 0.0 && load(&answers[1]) == 0.0);
}

#[test]
fn answers_alone_go_to_standard_output_and_the_system_message_counts() {
    let greedy = ["--temperature", "0", "-n", "12", "--no-think"];
    let out = chat(&greedy, TALK);
    let text = String::from_utf8(out.stdout.clone()).unwrap();
    let contents: Vec<String> =
        answers(&greedy, TALK).iter().map(|answer| answer["content"].as_str().unwrap().to_owned()).collect();
    let expected: String =
        contents.iter().map(|content| format!("{}\n", content.trim_end_matches('\n'))).collect();
    assert_eq!(text, expected);
    assert!(!stderr(&out).contains("> "), "no prompt: {}", stderr(&out));
    let prompt_tokens = |args: &[&str], lines: &str| {
        let args = [&["-n", "1", "--temperature", "0"], args].concat();
        count(&answers(&args, lines)[0], "prompt_tokens")
    };
    let plain = prompt_tokens(&[], "Hi\n");
    assert!(prompt_tokens(&["--system", "Be kind."], "Hi\n") > plain);
    assert_eq!(
        prompt_tokens(&[], "/system Be kind.\nHi\n"),
        prompt_tokens(&["--system", "Be kind."], "Hi\n")
    );
    assert_eq!(prompt_tokens(&["--system", "Be kind."], "/system -\nHi\n"), plain);
    assert_eq!(prompt_tokens(&[], "/think off\nHi\n"), prompt_tokens(&["--no-think"], "Hi\n"));
}

#[test]
fn undo_clear_and_retry_are_as_if_it_had_not_been() {
    let prompts = |lines: &str| -> Vec<usize> {
        let answers = answers(&["-n", "6", "--temperature", "0"], lines);
        answers.iter().map(|answer| count(answer, "prompt_tokens")).collect()
    };
    let plain = prompts("Hi\nAnd then?\n");
    assert_eq!(prompts("Hi\nNo more of this.\n/undo\nAnd then?\n")[2], plain[1]);
    assert_eq!(prompts("Hi\n/clear\nHi\n"), [plain[0], plain[0]]);
    assert_eq!(prompts("Hi\n/retry\nAnd then?\n"), [plain[0], plain[0], plain[1]]);
    // Another draw for the same question.
    let drawn = answers(&["-n", "40", "--seed", "5", "--temperature", "1"], "Tell me a story.\n/retry\n");
    assert_ne!(drawn[0]["content"], drawn[1]["content"]);
    assert!(count(&drawn[1], "evaluated_tokens") <= 32);
}

#[test]
fn a_refused_line_is_told_and_not_sent() {
    let out = chat(
        &["--json", "-n", "4", "--temperature", "0"],
        "/nope\n/undo\n/set temperature -1\n/load nowhere.json\n /nope\n",
    );
    let notes = stderr(&out);
    assert_eq!(code(&out), 1, "{notes}");
    assert_eq!(out.stdout.iter().filter(|byte| **byte == b'\n').count(), 1, "only the last is a message");
    for told in
        ["line 1: there is no command /nope", "line 2: ", "line 3: temperature: ", "line 4: nowhere.json"]
    {
        assert!(notes.contains(told), "{told}: {notes}");
    }
    assert!(notes.contains("4 of 5 lines were refused"), "{notes}");
    let out = kipp(&["chat"]).write_stdin(&b"a\xff\n"[..]).output().unwrap();
    assert!(code(&out) == 1 && stderr(&out).contains("line 1: not UTF-8"), "{}", stderr(&out));
}

#[test]
fn a_full_context_ends_the_answer_and_drops_nothing() {
    let long = "Tell me a long story about a dog and a cat and a bird and a fish.";
    let args = ["--json", "--ctx", "96", "--ignore-eos", "--temperature", "0", "--no-think"];
    let out = chat(&args, &format!("{long}\nGo on.\n/undo\nGo on.\n"));
    let notes = stderr(&out);
    assert_eq!(code(&out), 1, "{notes}");
    let text = String::from_utf8(out.stdout).unwrap();
    let answers: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(answers.len(), 2, "{notes}");
    assert_eq!(answers[0]["finish_reason"], "length");
    assert_eq!(count(&answers[0], "prompt_tokens") + count(&answers[0], "completion_tokens"), 96);
    assert!(notes.contains("the context is full: 96 tokens") && notes.contains("/clear"), "{notes}");
    assert!(notes.contains("line 2: ") && notes.contains("it was not sent"), "{notes}");
    assert!(count(&answers[1], "prompt_tokens") < 32, "the turn before was taken back");
}

#[test]
fn drafts_and_stop_strings_are_those_of_run() {
    let greedy = ["--temperature", "0", "-n", "40", "--no-think"];
    let content = |args: &[&str]| {
        let answers = answers(&[&greedy, args].concat(), TALK);
        answers.iter().map(|answer| answer["content"].clone()).collect::<Vec<_>>()
    };
    let plain = content(&[]);
    assert_eq!(content(&["--spec", "ngram"]), plain);
    let first = plain[0].as_str().unwrap();
    let stop = first.split(' ').nth(3).unwrap();
    assert_eq!(content(&["--stop", stop])[0], first.split(stop).next().unwrap());
    let out = chat(&["--draft-model", "kipp-tiny"], "");
    assert!(code(&out) == 2 && stderr(&out).contains("--draft-model"), "{}", stderr(&out));
}

#[test]
fn a_saved_conversation_is_what_tokenize_reads() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("talk.json");
    let path = file.to_str().unwrap();
    let told = answers(&["-n", "6", "--system", "Be kind."], &format!("Hi\n/save {path}\n"));
    let saved: Value = serde_json::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
    let roles: Vec<&str> = saved["messages"]
        .as_array()
        .unwrap()
        .iter()
        .map(|message| message["role"].as_str().unwrap())
        .collect();
    assert_eq!(roles, ["system", "user", "assistant"]);
    assert_eq!(saved["messages"][2]["content"], told[0]["content"]);
    assert!(crate::stdout(&["tokenize", "--messages", path]).len() > 10);
    assert!(!Path::new(&format!("{path}.incomplete")).exists());
}

#[cfg(unix)]
#[test]
fn ctrl_c_ends_a_script_with_what_there_is() {
    use std::io::{Read, Write};
    use std::process::{Command, Stdio};

    let mut child = Command::new(assert_cmd::cargo::cargo_bin!("kipp"))
        .args(["chat", "--no-think", "--ignore-eos", "--backend", "oracle", "--temperature", "0"])
        .current_dir(crate::root())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.as_mut().unwrap().write_all(b"Tell me a story.\nGo on.\n").unwrap();
    let mut first = [0; 4];
    child.stdout.as_mut().unwrap().read_exact(&mut first).unwrap();
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    let out = child.wait_with_output().unwrap();
    assert_eq!(code(&out), 130, "{}", stderr(&out));
    assert_eq!(out.stdout.last(), Some(&b'\n'));
}

#[cfg(target_os = "linux")]
mod terminal {
    //! The same in a terminal: line editing, Ctrl-C, history.

    use std::io::{Read, Write};
    use std::path::PathBuf;
    use std::process::{Child, Command, Stdio};
    use std::sync::mpsc::{self, Receiver};
    use std::time::{Duration, Instant};

    /// A chat in a terminal of its own.
    struct Terminal {
        child: Child,
        output: Receiver<Vec<u8>>,
        /// What it showed since the last match.
        shown: String,
        state: tempfile::TempDir,
    }

    impl Terminal {
        fn start(args: &str, state: tempfile::TempDir) -> Terminal {
            let program = assert_cmd::cargo::cargo_bin!("kipp").display();
            let line = format!("exec {program} chat --threads 1 {args}");
            let mut child = Command::new("script")
                .args(["--quiet", "--return", "--command", &line, "/dev/null"])
                .env("XDG_STATE_HOME", state.path())
                .env("TERM", "xterm")
                .current_dir(crate::root())
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .stderr(Stdio::null())
                .spawn()
                .unwrap();
            let mut stdout = child.stdout.take().unwrap();
            let (sender, output) = mpsc::channel();
            std::thread::spawn(move || {
                let mut bytes = [0; 4096];
                while let Ok(n @ 1..) = stdout.read(&mut bytes) {
                    if sender.send(bytes[..n].to_vec()).is_err() {
                        break;
                    }
                }
            });
            let mut terminal = Terminal { child, output, shown: String::new(), state };
            terminal.wait_for("> ");
            terminal
        }

        fn send(&mut self, keys: &str) {
            let stdin = self.child.stdin.as_mut().unwrap();
            stdin.write_all(keys.as_bytes()).unwrap();
            stdin.flush().unwrap();
        }

        /// What it shows up to this text, for which it waits.
        fn wait_for(&mut self, text: &str) -> String {
            let deadline = Instant::now() + Duration::from_secs(120);
            loop {
                if let Some(at) = self.shown.find(text) {
                    let rest = self.shown.split_off(at + text.len());
                    return std::mem::replace(&mut self.shown, rest);
                }
                let left = deadline.saturating_duration_since(Instant::now());
                match self.output.recv_timeout(left) {
                    Ok(bytes) => self.shown += &String::from_utf8_lossy(&bytes),
                    Err(_) => panic!("{text:?} does not come: {:?}", self.shown),
                }
            }
        }

        /// Its exit code, when it has ended by itself, and where it kept its state.
        fn end(mut self) -> (i32, tempfile::TempDir) {
            (self.child.wait().unwrap().code().unwrap(), self.state)
        }

        fn saved(&mut self, name: &str) -> serde_json::Value {
            let path: PathBuf = self.state.path().join(name);
            self.send(&format!("/save {}\r", path.display()));
            self.wait_for("messages");
            self.wait_for("> ");
            serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
        }
    }

    const UP: &str = "\u{1b}[A";
    const LEFT: &str = "\u{1b}[D";
    const CTRL_C: &str = "\u{3}";
    const CTRL_D: &str = "\u{4}";

    #[test]
    fn lines_are_edited_and_remembered() {
        let mut terminal = Terminal::start("-n 4 --temperature 0", tempfile::tempdir().unwrap());
        // A correction in the middle, and a message over two lines.
        terminal.send(&format!("Hllo{LEFT}{LEFT}{LEFT}e\r"));
        terminal.wait_for("--max-tokens");
        terminal.wait_for("> ");
        terminal.send("One\\\rtwo\r");
        terminal.wait_for("--max-tokens");
        terminal.wait_for("> ");
        let saved = terminal.saved("a.json");
        let said = |at: usize| saved["messages"][at]["content"].as_str().unwrap().to_owned();
        assert_eq!((said(0), said(2)), ("Hello".to_owned(), "One\ntwo".to_owned()));
        terminal.send("/nope\r");
        terminal.wait_for("no command /nope");
        terminal.wait_for("> ");
        terminal.send(CTRL_D);
        let (code, state) = terminal.end();
        assert_eq!(code, 0);

        let history = state.path().join("kipp/chat-history");
        let text = std::fs::read_to_string(&history).unwrap();
        assert!(text.contains("Hello") && text.contains("One"), "{text}");
        let mode =
            std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(&history).unwrap().permissions());
        assert_eq!(mode & 0o077, 0, "for its owner alone");
        // Another chat knows it; the message of two lines takes two steps.
        let mut terminal = Terminal::start("-n 4 --temperature 0", state);
        terminal.send(&format!("{UP}{UP}{UP}{UP}{UP}\r"));
        terminal.wait_for("--max-tokens");
        terminal.wait_for("> ");
        assert_eq!(terminal.saved("b.json")["messages"][0]["content"], "Hello");
        terminal.send("/exit\r");
        assert_eq!(terminal.end().0, 0);
    }

    #[test]
    fn ctrl_c_stops_the_answer_and_a_second_one_ends_the_chat() {
        // The oracle is slow: the answer would go on for minutes.
        let args = "--no-think --ignore-eos --backend oracle --temperature 0";
        let mut terminal = Terminal::start(args, tempfile::tempdir().unwrap());
        terminal.send("Tell me a story about a dog.\r");
        terminal.wait_for("\n");
        std::thread::sleep(Duration::from_millis(200));
        let mut shown = terminal.wait_for(" ");
        terminal.send(CTRL_C);
        // The terminal echoes the key in the middle of the answer.
        shown += &terminal.wait_for("stopped; the conversation keeps this part").replace("^C", "");
        terminal.wait_for("> ");
        let saved = terminal.saved("a.json");
        let kept = saved["messages"][1]["content"].as_str().unwrap();
        assert!(!kept.is_empty() && shown.contains(kept.split('\n').next().unwrap()), "{kept:?}: {shown:?}");
        // It goes on after that.
        terminal.send("/set max_tokens 2\r");
        terminal.wait_for("/set max_tokens 2");
        terminal.wait_for("> ");
        terminal.send("Go on.\r");
        terminal.wait_for("--max-tokens");
        terminal.wait_for("> ");
        assert_eq!(terminal.saved("b.json")["messages"].as_array().unwrap().len(), 4);
        // With text on the line it takes the text away, then it asks, then it ends.
        terminal.send(&format!("not this{CTRL_C}"));
        terminal.wait_for("> ");
        terminal.send(CTRL_C);
        terminal.wait_for("Ctrl-C again");
        terminal.wait_for("> ");
        terminal.send(CTRL_C);
        assert_eq!(terminal.end().0, 130);
    }

    /// With thinking off the template changes the prompt from the last answer on; that is evaluated while the person types.
    #[test]
    fn an_answer_that_moved_is_evaluated_before_the_next_message_is_there() {
        let args = "--no-think --temperature 0 -n 100 --ignore-eos";
        let mut terminal = Terminal::start(args, tempfile::tempdir().unwrap());
        terminal.send("Tell me a story about a dog.\r");
        terminal.wait_for("--max-tokens");
        terminal.wait_for("> ");
        std::thread::sleep(Duration::from_secs(2));
        terminal.send("Go on.\r");
        terminal.wait_for("--max-tokens");
        terminal.wait_for("> ");
        terminal.send("/show\r");
        terminal.wait_for("prefill ");
        let evaluated: usize = terminal.wait_for(" tokens").trim_end_matches(" tokens").parse().unwrap();
        assert!(evaluated < 64, "{evaluated} tokens, though the answer alone has 100");
        terminal.wait_for("> ");
        terminal.send(CTRL_D);
        assert_eq!(terminal.end().0, 0);
    }
}
