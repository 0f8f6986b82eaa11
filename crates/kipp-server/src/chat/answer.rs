//! A chat's answer in OpenAI's shapes, as chunks or whole. What is streamed and what is gathered comes out of the same
//! splits, so their texts are the same.

use std::sync::Arc;

use kipp::engine::{Delta, Event, FinishReason, Split};
use serde_json::{Map, Value, json};

use super::request::Prepared;
use crate::app::App;
use crate::completions::finish_name;
use crate::error::ApiError;
use crate::logprobs::content_entry;
use crate::sse::Shape;
use crate::terms::StreamTerms;
use crate::usage::{Timings, Usage};

/// One choice as it grows.
struct Choice {
    split: Split,
    /// Of content tokens, those that no chunk has had.
    logprobs: Vec<Value>,
    /// Gathered, where nothing is streamed.
    thinking: String,
    content: String,
    calls: Vec<Value>,
    finish: Option<&'static str>,
    /// The stream has told who speaks.
    begun: bool,
}

/// The answer of one request.
pub(super) struct Chat {
    app: Arc<App>,
    id: String,
    choices: Vec<Choice>,
    logprobs: bool,
    usage: Usage,
    timings: Timings,
    stream: StreamTerms,
}

/// What a choice goes on by.
struct Piece {
    index: usize,
    deltas: Vec<Delta>,
    finish: Option<&'static str>,
}

impl Chat {
    pub(super) fn new(app: Arc<App>, prepared: Prepared) -> Chat {
        let Prepared { request, stream, split } = prepared;
        let choice = |_| Choice {
            split: Split::new(split.clone(), &app.info.tokenizer),
            logprobs: Vec::new(),
            thinking: String::new(),
            content: String::new(),
            calls: Vec::new(),
            finish: None,
            begun: false,
        };
        Chat {
            choices: (0..request.choices).map(choice).collect(),
            id: app.new_id("chatcmpl-"),
            logprobs: request.logprobs.is_some(),
            usage: Usage {
                prompt_tokens: request.prompt.len(),
                reasoning_tokens: Some(0),
                ..Usage::default()
            },
            timings: Timings::default(),
            stream: stream.unwrap_or_default(),
            app,
        }
    }

    fn piece(&mut self, event: Event) -> Result<Option<Piece>, ApiError> {
        let mut deltas = Vec::new();
        match event {
            Event::Started { cached_tokens, .. } => {
                self.usage.cached_tokens = cached_tokens;
                Ok(None)
            }
            Event::Prompt { .. } => Ok(None),
            Event::Tokens { choice, tokens } => {
                self.usage.completion_tokens += tokens.len();
                let index = choice as usize;
                let Some(choice) = self.choices.get_mut(index) else { return Ok(None) };
                for token in tokens {
                    let thinking = choice.split.is_thinking();
                    let content = choice.split.push(token.id, &mut deltas).map_err(
                        // The engine has decoded it already.
                        |error| ApiError::internal(error.to_string()),
                    )?;
                    if let Some(count) = self
                        .usage
                        .reasoning_tokens
                        .as_mut()
                        .filter(|_| thinking || choice.split.is_thinking())
                    {
                        *count += 1;
                    }
                    if let Some(score) = token.score.filter(|_| content && self.logprobs) {
                        choice.logprobs.push(content_entry(&self.app.info.tokenizer, &score));
                    }
                }
                Ok(Some(Piece { index, deltas, finish: None }))
            }
            Event::Finished { choice, reason, stats, .. } => {
                self.timings.add(stats);
                let index = choice as usize;
                let Some(choice) = self.choices.get_mut(index) else { return Ok(None) };
                choice.split.finish(&mut deltas);
                let finish = match (reason, choice.split.calls) {
                    (FinishReason::Stop, 1..) => "tool_calls",
                    _ => finish_name(reason)?,
                };
                Ok(Some(Piece { index, deltas, finish: Some(finish) }))
            }
            Event::Failed(failure) => Err(failure.into()),
        }
    }

    fn document(&self, object: &str, choices: Vec<Value>) -> Value {
        json!({
            "id": self.id,
            "object": object,
            "created": self.app.now(),
            "model": self.app.model(),
            "choices": choices,
        })
    }

    fn chunk(&self, index: usize, delta: Value, logprobs: Value, finish: Option<&str>) -> Value {
        let choice = json!({"index": index, "delta": delta, "logprobs": logprobs, "finish_reason": finish});
        let mut chunk = self.document("chat.completion.chunk", vec![choice]);
        if self.stream.continuous_usage {
            chunk["usage"] = self.usage.json();
        } else if self.stream.usage {
            chunk["usage"] = Value::Null;
        }
        chunk
    }

    /// What no chunk has had of a choice's log-probabilities.
    fn new_logprobs(&mut self, index: usize) -> Value {
        match self.choices.get_mut(index) {
            Some(choice) if self.logprobs && !choice.logprobs.is_empty() => {
                json!({"content": std::mem::take(&mut choice.logprobs), "refusal": null})
            }
            _ => Value::Null,
        }
    }

    /// A call as it begins.
    fn call(&self, name: &str) -> Value {
        let function = json!({"name": name, "arguments": ""});
        json!({"id": self.app.new_id("call_"), "type": "function", "function": function})
    }
}

impl Shape for Chat {
    fn chunks(&mut self, _: usize, event: Event) -> Result<Vec<Value>, ApiError> {
        let Some(Piece { index, deltas, finish }) = self.piece(event)? else { return Ok(Vec::new()) };
        let mut chunks = Vec::new();
        if let Some(choice) = self.choices.get_mut(index).filter(|choice| !choice.begun) {
            choice.begun = true;
            chunks.push(self.chunk(index, json!({"role": "assistant", "content": ""}), Value::Null, None));
        }
        let begins = |delta: &&Delta| matches!(delta, Delta::Call(_));
        let split_calls = self.choices.get(index).map_or(0, |choice| choice.split.calls);
        let mut n_calls = split_calls - deltas.iter().filter(begins).count();
        for delta in deltas {
            let (delta, logprobs) = match delta {
                Delta::Thinking(text) => (json!({"reasoning_content": text}), Value::Null),
                Delta::Content(text) => (json!({"content": text}), self.new_logprobs(index)),
                Delta::Call(name) => {
                    let mut call = self.call(&name);
                    call["index"] = n_calls.into();
                    n_calls += 1;
                    (json!({"tool_calls": [call]}), Value::Null)
                }
                Delta::Arguments(text) => {
                    let last = n_calls.saturating_sub(1);
                    (json!({"tool_calls": [{"index": last, "function": {"arguments": text}}]}), Value::Null)
                }
                Delta::CallEnd { .. } => continue,
            };
            chunks.push(self.chunk(index, delta, logprobs, None));
        }
        if finish.is_some() {
            let logprobs = self.new_logprobs(index);
            chunks.push(self.chunk(index, json!({}), logprobs, finish));
        }
        Ok(chunks)
    }

    fn last_chunks(&mut self) -> Vec<Value> {
        if !self.stream.usage {
            return Vec::new();
        }
        let mut chunk = self.document("chat.completion.chunk", Vec::new());
        chunk["usage"] = self.usage.json();
        chunk["timings"] = self.timings.json();
        vec![chunk]
    }

    fn keep(&mut self, _: usize, event: Event) -> Result<(), ApiError> {
        let Some(Piece { index, deltas, finish }) = self.piece(event)? else { return Ok(()) };
        for delta in deltas {
            let call = match &delta {
                Delta::Call(name) => Some(self.call(name)),
                _ => None,
            };
            let Some(choice) = self.choices.get_mut(index) else { continue };
            match delta {
                Delta::Thinking(text) => choice.thinking += &text,
                Delta::Content(text) => choice.content += &text,
                Delta::Call(_) => choice.calls.extend(call),
                Delta::Arguments(text) => append(choice.calls.last_mut(), "/function/arguments", &text),
                Delta::CallEnd { .. } => {}
            }
        }
        if let Some(choice) = self.choices.get_mut(index) {
            choice.finish = choice.finish.or(finish);
        }
        Ok(())
    }

    fn whole(mut self) -> Value {
        let mut choices = Vec::new();
        for index in 0..self.choices.len() {
            let logprobs = self.new_logprobs(index);
            let choice = &mut self.choices[index];
            let mut message = Map::new();
            message.insert("role".to_owned(), "assistant".into());
            let content = std::mem::take(&mut choice.content);
            // Where there is nothing but calls, content is null, as clients expect.
            let content =
                if content.is_empty() && !choice.calls.is_empty() { Value::Null } else { content.into() };
            message.insert("content".to_owned(), content);
            if !choice.thinking.is_empty() {
                let thinking = std::mem::take(&mut choice.thinking);
                message.insert("reasoning_content".to_owned(), thinking.into());
            }
            if !choice.calls.is_empty() {
                message.insert("tool_calls".to_owned(), std::mem::take(&mut choice.calls).into());
            }
            let finish = choice.finish;
            choices.push(
                json!({"index": index, "message": message, "logprobs": logprobs, "finish_reason": finish}),
            );
        }
        let mut document = self.document("chat.completion", choices);
        document["usage"] = self.usage.json();
        document["timings"] = self.timings.json();
        document
    }
}

/// Adds to a text inside of a value.
pub(crate) fn append(value: Option<&mut Value>, pointer: &str, more: &str) {
    if let Some(Value::String(text)) = value.and_then(|value| value.pointer_mut(pointer)) {
        text.push_str(more);
    }
}
