//! A chat without a terminal: each line of standard input is a message or a command, and answers alone go to standard
//! output, each ended by a line break, or as one JSON document a line. A line that is refused is told, the rest is gone
//! on with, and the exit code tells in the end.

use std::io::{BufRead, IsTerminal};
use std::time::Duration;

use anyhow::{Context, bail};
use kipp::engine::Delta;
use serde::Serialize;

use super::Chat;
use super::execute::Step;
use super::turn::{Answered, Turn};
use super::view::{Style, View};
use crate::generate::FinishReason;
use crate::outcome::Outcome;
use crate::report;
use crate::timings::Timings;

/// The JSON document of an answer.
#[derive(Serialize)]
struct AnswerReport<'a> {
    content: &'a str,
    thinking: Option<&'a str>,
    prompt_tokens: usize,
    evaluated_tokens: usize,
    completion_tokens: usize,
    finish_reason: FinishReason,
    timings: Timings,
}

/// Answers all of standard input.
pub(super) fn answer_all(mut chat: Chat, as_json: bool) -> anyhow::Result<Outcome> {
    let mut input = std::io::stdin().lock();
    if input.is_terminal() {
        report::note("reading messages from standard input, one a line; Ctrl-D ends it");
    }
    let style = if as_json { Style::Nothing } else { Style::of_output() };
    let (mut number, mut refused) = (0usize, 0usize);
    // The first answer's report has it; the others had no load.
    let mut load_time = chat.load_time;
    while let Some(line) = next_line(&mut input, number + 1)? {
        number += 1;
        let mut view = View::new(std::io::stdout(), style);
        let step = chat.take(&line, &mut |delta: &Delta| view.show(delta))?;
        match step {
            Step::Turn(Turn::Answered) => {
                view.end()?;
                let Some(answered) = &chat.last else { continue };
                if as_json {
                    tell(answered, std::mem::take(&mut load_time))?;
                }
                if let Some(note) = answered.note() {
                    report::note(&note);
                }
                if answered.completion.finish_reason == FinishReason::Interrupted {
                    return Ok(Outcome::Interrupted);
                }
            }
            Step::Turn(Turn::Unanswered) => return Ok(Outcome::Interrupted),
            Step::Turn(Turn::Refused(reason)) | Step::Refused(reason) => {
                refused += 1;
                report::note(&format!("line {number}: {reason}"));
            }
            Step::Done => {}
            Step::Exit => break,
        }
    }
    if refused > 0 {
        bail!("{refused} of {number} lines were refused");
    }
    Ok(Outcome::Done)
}

fn tell(answered: &Answered, load_time: Duration) -> anyhow::Result<()> {
    let completion = &answered.completion;
    report::json(&AnswerReport {
        content: &answered.content,
        thinking: Some(answered.thinking.as_str()).filter(|thinking| !thinking.is_empty()),
        prompt_tokens: answered.prompt_tokens,
        evaluated_tokens: completion.measured.prefill_tokens,
        completion_tokens: completion.tokens.len(),
        finish_reason: completion.finish_reason,
        timings: Timings::new(load_time, completion.measured),
    })
}

/// The next line without its end; `None` at the end of the input.
fn next_line(input: &mut impl BufRead, number: usize) -> anyhow::Result<Option<String>> {
    let mut bytes = Vec::new();
    if input.read_until(b'\n', &mut bytes).context("standard input")? == 0 {
        return Ok(None);
    }
    let line = bytes.strip_suffix(b"\n").unwrap_or(&bytes);
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let text = std::str::from_utf8(line).map_err(|error| {
        anyhow::anyhow!(
            "standard input, line {number}: not UTF-8: the byte at {} is invalid",
            error.valid_up_to()
        )
    })?;
    Ok(Some(text.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_end_where_they_end() {
        let mut input = &b"a\\\r\n\n b \xc3\xa9"[..];
        let mut next = || next_line(&mut input, 1).unwrap();
        assert_eq!(next().as_deref(), Some("a\\"));
        assert_eq!(next().as_deref(), Some(""));
        assert_eq!(next().as_deref(), Some(" b é"));
        assert_eq!(next(), None);
        let error = next_line(&mut &b"a\xff"[..], 3).unwrap_err().to_string();
        assert_eq!(error, "standard input, line 3: not UTF-8: the byte at 1 is invalid");
    }
}
