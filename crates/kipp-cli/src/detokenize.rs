//! `kipp detokenize`: token ids to text, exactly, control tokens included. Needs only the tokenizer's files.

use anyhow::Context;
use clap::Args;
use serde::Serialize;

use crate::args::{JsonArg, ModelArg};
use crate::outcome::Outcome;
use crate::{input, open, report};

/// Flags of `kipp detokenize`.
#[derive(Args, Debug)]
pub(crate) struct DetokenizeArgs {
    /// Token ids, or one JSON list of them; standard input where absent
    #[arg(value_name = "ID", allow_negative_numbers = true)]
    ids: Vec<String>,
    #[command(flatten)]
    model: ModelArg,
    #[command(flatten)]
    json: JsonArg,
}

#[derive(Serialize)]
struct DetokenizeReport {
    text: String,
}

/// Prints the text of the ids.
pub(crate) fn run(args: &DetokenizeArgs) -> anyhow::Result<Outcome> {
    let typed = (!args.ids.is_empty()).then(|| args.ids.join(" "));
    let ids = input::parse_ids(&input::text_or_stdin(typed, "token ids")?)?;
    let files = open::tokenizer_files(&args.model.model)?;
    let mut tokenizer = open::tokenizer(&files)?;
    // Where the model is there too, the padding rows of its head are ids that decode to nothing.
    if let Some(rows) = open::rows(&args.model.model) {
        tokenizer = tokenizer.with_rows(rows).with_context(|| args.model.model.clone())?;
    }
    input::check_ids(&ids, tokenizer.rows())?;
    let padding = ids.iter().filter(|id| **id as usize >= tokenizer.len()).count();
    if padding > 0 {
        report::note(&format!("note: {padding} of {} ids pad the vocabulary, and have no text", ids.len()));
    }
    let text = tokenizer.decode(&ids, false)?;
    if args.json.json {
        report::json(&DetokenizeReport { text })?;
    } else {
        report::text(&text)?;
    }
    Ok(Outcome::Done)
}
