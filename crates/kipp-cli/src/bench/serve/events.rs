//! Server-sent events as OpenAI's completions and chats have them: text of choices, counts, errors, an end.

use std::time::Instant;

use serde::Deserialize;
use serde_json::Value;

use super::answer::{Answer, Counts, Fault, Piece};
use super::body::Body;
use super::http::shown;

/// What is looked at of an event; other fields are skipped, which costs the least.
#[derive(Debug, Deserialize)]
struct Chunk {
    #[serde(default)]
    choices: Vec<Choice>,
    #[serde(default)]
    usage: Option<Usage>,
    #[serde(default)]
    error: Option<Value>,
}

#[derive(Debug, Deserialize)]
struct Choice {
    #[serde(default)]
    index: u32,
    #[serde(default)]
    text: Option<String>,
    #[serde(default)]
    delta: Option<Delta>,
    #[serde(default)]
    finish_reason: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Delta {
    #[serde(default)]
    content: Option<String>,
    #[serde(default)]
    reasoning_content: Option<String>,
    #[serde(default)]
    reasoning: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Usage {
    #[serde(default)]
    prompt_tokens: usize,
    #[serde(default)]
    completion_tokens: usize,
    #[serde(default)]
    prompt_tokens_details: Option<Details>,
}

#[derive(Debug, Deserialize)]
struct Details {
    #[serde(default)]
    cached_tokens: Option<usize>,
}

impl Choice {
    fn has_text(&self) -> bool {
        let said = |text: &Option<String>| text.as_ref().is_some_and(|text| !text.is_empty());
        let in_delta =
            |delta: &Delta| said(&delta.content) || said(&delta.reasoning_content) || said(&delta.reasoning);
        said(&self.text) || self.delta.as_ref().is_some_and(in_delta)
    }
}

/// Reads a stream to its end.
pub(super) fn read(body: &mut Body<'_>) -> Answer {
    let mut stream = Stream::default();
    let mut line = Vec::new();
    loop {
        match body.line(&mut line) {
            Ok(true) => {}
            Ok(false) => break,
            Err(error) => {
                stream.answer.fault = Some(error.into());
                return stream.answer;
            }
        }
        // The moment at which it was there, not that at which it was understood.
        let at = Instant::now();
        if let Err(fault) = stream.take(&line, at) {
            stream.answer.fault = Some(fault);
            return stream.answer;
        }
    }
    stream.end()
}

#[derive(Default)]
struct Stream {
    answer: Answer,
    /// A choice said why it ended, or the stream that it is done.
    is_finished: bool,
}

impl Stream {
    fn take(&mut self, line: &[u8], at: Instant) -> Result<(), Fault> {
        let Some(data) = line.strip_prefix(b"data:") else {
            // Names of events, comments, and empty lines between events.
            let is_other = line.is_empty() || line.starts_with(b":") || line.contains(&b':');
            return if is_other && !line.starts_with(b"{") { Ok(()) } else { Err(not_events(line)) };
        };
        let data = data.trim_ascii();
        if data == b"[DONE]" {
            self.is_finished = true;
            return Ok(());
        }
        let chunk: Chunk = serde_json::from_slice(data).map_err(|_| not_events(data))?;
        if let Some(error) = chunk.error.filter(|error| !error.is_null()) {
            return Err(Fault::InStream(shown(&message(&error))));
        }
        for choice in chunk.choices {
            self.is_finished |= choice.finish_reason.is_some();
            if choice.has_text() {
                self.answer.pieces.push(Piece { choice: choice.index, at });
            }
        }
        if let Some(usage) = chunk.usage {
            let details = usage.prompt_tokens_details;
            self.answer.counts = Some(Counts {
                prompt_tokens: usage.prompt_tokens,
                cached_tokens: details.and_then(|details| details.cached_tokens).unwrap_or(0),
                completion_tokens: usage.completion_tokens,
            });
        }
        Ok(())
    }

    fn end(mut self) -> Answer {
        if !self.is_finished {
            self.answer.fault = Some(Fault::Unfinished);
        } else if self.answer.pieces.is_empty() {
            self.answer.fault = Some(Fault::Empty);
        }
        self.answer
    }
}

fn not_events(line: &[u8]) -> Fault {
    Fault::NotEvents(shown(&String::from_utf8_lossy(line)))
}

/// The message of an error in OpenAI's shape, or whatever it is.
pub(super) fn message(error: &Value) -> String {
    match error.get("message").and_then(Value::as_str) {
        Some(message) => message.to_owned(),
        None => error.as_str().map_or_else(|| error.to_string(), str::to_owned),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(lines: &[&str]) -> Answer {
        let mut stream = Stream::default();
        for line in lines {
            if let Err(fault) = stream.take(line.as_bytes(), Instant::now()) {
                stream.answer.fault = Some(fault);
                return stream.answer;
            }
        }
        stream.end()
    }

    #[test]
    fn text_counts_and_ends_are_found_in_both_shapes() {
        let answer = of(&[
            ": hello",
            r#"data: {"choices":[{"index":1,"text":"a","finish_reason":null}],"usage":null}"#,
            "",
            r#"data: {"choices":[{"index":0,"text":"","finish_reason":"length"}]}"#,
            r#"data: {"choices":[],"usage":{"prompt_tokens":5,"completion_tokens":7,"prompt_tokens_details":{"cached_tokens":4}}}"#,
            "data: [DONE]",
        ]);
        assert!(answer.fault.is_none() && answer.pieces.len() == 1 && answer.pieces[0].choice == 1);
        let counts = Counts { prompt_tokens: 5, cached_tokens: 4, completion_tokens: 7 };
        assert_eq!(answer.counts, Some(counts));
        let chat = of(&[
            r#"data: {"choices":[{"index":0,"delta":{"role":"assistant","content":null}}]}"#,
            r#"data:{"choices":[{"index":0,"delta":{"reasoning_content":"x"}}]}"#,
            r#"data: {"choices":[{"index":0,"delta":{"content":"y"}}],"timings":{"n":1.5}}"#,
            r#"data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}"#,
        ]);
        assert!(chat.fault.is_none() && chat.pieces.len() == 2 && chat.counts.is_none());
    }

    #[test]
    fn what_is_wrong_with_a_stream_is_told() {
        let text = r#"data: {"choices":[{"index":0,"text":"a"}]}"#;
        let fault = |lines: &[&str]| of(lines).fault.map(|fault| fault.to_string()).unwrap_or_default();
        assert!(fault(&[text]).contains("ended before"));
        assert!(fault(&[]).contains("ended before"));
        assert!(fault(&["data: [DONE]"]).contains("no text"));
        assert!(fault(&[text, r#"data: {"error":{"message":"full"}}"#]).ends_with("an error: full"));
        assert!(fault(&["<html>"]).contains("<html>"));
        assert!(fault(&[r#"{"object":"text_completion"}"#]).contains("no stream"));
        assert!(fault(&["data: {\"choices\":3}"]).contains("no stream"));
    }
}
