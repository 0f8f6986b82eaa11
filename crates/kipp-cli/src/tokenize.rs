//! `kipp tokenize`: text, lines of JSON strings, or a chat, to token ids. Needs only the tokenizer's files.

use std::io::{BufRead, Write};
use std::path::PathBuf;

use anyhow::Context;
use clap::{ArgAction, Args};
use kipp::TokenId;
use kipp::tokenizer::Tokenizer;
use serde::Serialize;

use crate::args::{JsonArg, ModelArg};
use crate::outcome::Outcome;
use crate::{input, open, prompt, report};

/// Flags of `kipp tokenize`.
#[derive(Args, Debug)]
pub(crate) struct TokenizeArgs {
    /// The text; standard input where absent
    text: Option<String>,
    #[command(flatten)]
    model: ModelArg,
    #[command(flatten)]
    json: JsonArg,
    /// Read control tokens in the text as such; without it they are text like any other
    #[arg(long, env = "KIPP_SPECIAL", value_parser = crate::args::value::switch, action = ArgAction::SetTrue)]
    special: bool,
    /// Read one JSON string a line from standard input, and answer each with one line of JSON
    #[arg(long, env = "KIPP_JSONL", value_parser = crate::args::value::switch, action = ArgAction::SetTrue, conflicts_with = "text")]
    jsonl: bool,
    /// Render a chat: a JSON file with messages, tools, enable_thinking, add_generation_prompt; answers with JSON
    #[arg(long, value_name = "FILE", env = "KIPP_MESSAGES", conflicts_with_all = ["text", "jsonl"])]
    messages: Option<PathBuf>,
}

#[derive(Serialize)]
struct TokenizeReport {
    ids: Vec<TokenId>,
    count: usize,
}

#[derive(Serialize)]
struct ChatReport {
    rendered: String,
    ids: Vec<TokenId>,
}

/// Prints the ids.
pub(crate) fn run(args: TokenizeArgs) -> anyhow::Result<Outcome> {
    let files = open::tokenizer_files(&args.model.model)?;
    let tokenizer = open::tokenizer(&files)?;
    if let Some(path) = &args.messages {
        let conversation = prompt::conversation_file(path)?;
        let prompt =
            prompt::render(&files, &tokenizer, &conversation).with_context(|| path.display().to_string())?;
        report::json(&ChatReport { rendered: prompt.text, ids: prompt.ids })?;
    } else if args.jsonl {
        answer_lines(&tokenizer, args.special)?;
    } else {
        let ids = encode(&tokenizer, &input::text_or_stdin(args.text, "the text")?, args.special);
        if args.json.json {
            report::json(&TokenizeReport { count: ids.len(), ids })?;
        } else {
            let ids: Vec<String> = ids.iter().map(TokenId::to_string).collect();
            report::text(&format!("{}\n", ids.join(" ")))?;
        }
    }
    Ok(Outcome::Done)
}

fn encode(tokenizer: &Tokenizer, text: &str, special: bool) -> Vec<TokenId> {
    if special { tokenizer.encode_with_control(text) } else { tokenizer.encode(text) }
}

/// Each line is answered before the next one is read, so that a program can talk to this one.
fn answer_lines(tokenizer: &Tokenizer, special: bool) -> anyhow::Result<()> {
    let (mut input, mut out) = (std::io::stdin().lock(), std::io::stdout().lock());
    let mut line = Vec::new();
    for number in 1.. {
        line.clear();
        if input.read_until(b'\n', &mut line).context("standard input")? == 0 {
            break;
        }
        let text: String = serde_json::from_slice(&line)
            .with_context(|| format!("standard input, line {number}: not a JSON string"))?;
        let ids = encode(tokenizer, &text, special);
        let mut answer = serde_json::to_vec(&TokenizeReport { count: ids.len(), ids })?;
        answer.push(b'\n');
        out.write_all(&answer).and_then(|()| out.flush()).map_err(report::OutputError)?;
    }
    Ok(())
}
