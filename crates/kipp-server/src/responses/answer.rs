//! The answer of one request in the form of a response: its items, and how it ended. What is streamed and what is gathered
//! is built by the same steps.

use std::sync::Arc;

use kipp::engine::{Delta, Event, FinishReason, Split};
use serde_json::{Map, Value, json};

use super::output::{Kind, Output};
use super::request::{Asked, Thinking};
use crate::app::App;
use crate::chat::Prepared;
use crate::completions::finish_name;
use crate::error::ApiError;
use crate::logprobs::content_entry;
use crate::sse::Shape;
use crate::usage::{Timings, Usage};

/// The answer of one request.
pub(super) struct Answer {
    app: Arc<App>,
    id: String,
    created: u64,
    repeated: Map<String, Value>,
    thinking: Thinking,
    split: Split,
    output: Output,
    /// Of content tokens, those that no item has.
    logprobs: Vec<Value>,
    usage: Usage,
    timings: Timings,
    end: Option<FinishReason>,
}

impl Answer {
    pub(super) fn new(app: Arc<App>, prepared: Prepared, asked: Asked) -> Answer {
        Answer {
            id: app.new_id("resp_"),
            created: app.now(),
            repeated: asked.repeated,
            thinking: asked.thinking,
            split: Split::new(prepared.split, &app.info.tokenizer),
            output: Output::default(),
            logprobs: Vec::new(),
            usage: Usage {
                prompt_tokens: prepared.request.prompt.len(),
                reasoning_tokens: Some(0),
                ..Usage::default()
            },
            timings: Timings::default(),
            end: None,
            app,
        }
    }

    /// What an event adds; the events that tell of it stand in `output`.
    fn take(&mut self, event: Event) -> Result<(), ApiError> {
        let mut deltas = Vec::new();
        match event {
            Event::Started { cached_tokens, .. } => {
                self.usage.cached_tokens = cached_tokens;
                let response = self.response("in_progress");
                self.output.tell("response.in_progress", json!({"response": response}));
            }
            Event::Prompt { .. } => {}
            Event::Tokens { tokens, .. } => {
                self.usage.completion_tokens += tokens.len();
                for token in tokens {
                    let thinking = self.split.is_thinking();
                    let pushed = self.split.push(token.id, &mut deltas);
                    let is_content = pushed.map_err(|error| ApiError::internal(error.to_string()))?;
                    if thinking || self.split.is_thinking() {
                        self.usage.reasoning_tokens = self.usage.reasoning_tokens.map(|count| count + 1);
                    }
                    if let Some(score) = token.score.filter(|_| is_content) {
                        self.logprobs.push(content_entry(&self.app.info.tokenizer, &score));
                    }
                }
            }
            Event::Finished { reason, stats, .. } => {
                finish_name(reason)?;
                self.timings.add(stats);
                self.split.finish(&mut deltas);
                self.end = Some(reason);
            }
            Event::Failed(failure) => return Err(failure.into()),
        }
        for delta in deltas {
            self.write(delta);
        }
        if self.end.is_some() {
            self.end_output();
        }
        Ok(())
    }

    fn write(&mut self, delta: Delta) {
        let app = Arc::clone(&self.app);
        let new_id = |prefix: &str| app.new_id(prefix);
        match delta {
            Delta::Thinking(text) => {
                let kind = match self.thinking {
                    Thinking::Text => Kind::Reasoning,
                    Thinking::Summary => Kind::Summary,
                };
                self.output.write(kind, &text, Vec::new(), new_id);
            }
            Delta::Content(text) => {
                let logprobs = std::mem::take(&mut self.logprobs);
                self.output.write(Kind::Message, &text, logprobs, new_id);
            }
            Delta::Call(name) => {
                self.output.begin(Kind::Call { call_id: new_id("call_"), name }, new_id);
            }
            Delta::Arguments(text) => self.output.go_on(&text, Vec::new()),
            Delta::CallEnd { complete } => self.output.end(if complete { "completed" } else { "incomplete" }),
        }
    }

    /// Ends what is being written. An answer without a word has an empty message, since clients look for one.
    fn end_output(&mut self) {
        let app = Arc::clone(&self.app);
        if self.output.is_silent() && self.end == Some(FinishReason::Stop) {
            self.output.begin(Kind::Message, |prefix| app.new_id(prefix));
        }
        self.output.end(self.status());
    }

    /// How the answer ended.
    fn status(&self) -> &'static str {
        match self.end {
            None => "in_progress",
            Some(FinishReason::Length) => "incomplete",
            Some(_) => "completed",
        }
    }

    fn response(&self, status: &str) -> Value {
        let incomplete = (status == "incomplete").then(|| json!({"reason": "max_output_tokens"}));
        let mut response = Map::new();
        let ended = status != "in_progress";
        for (key, value) in [
            ("id", json!(self.id)),
            ("object", json!("response")),
            ("created_at", json!(self.created)),
            ("completed_at", (status == "completed").then(|| self.app.now()).into()),
            ("status", json!(status)),
            ("error", Value::Null),
            ("incomplete_details", incomplete.into()),
            ("model", json!(self.app.model())),
            ("output", json!(self.output.items())),
        ] {
            response.insert(key.to_owned(), value);
        }
        response.extend(self.repeated.clone());
        response.insert("usage".to_owned(), if ended { self.usage() } else { Value::Null });
        if ended {
            response.insert("timings".to_owned(), self.timings.json());
        }
        response.into()
    }

    fn usage(&self) -> Value {
        let Usage { prompt_tokens, cached_tokens, completion_tokens, reasoning_tokens } = self.usage;
        json!({
            "input_tokens": prompt_tokens,
            "input_tokens_details": {"cached_tokens": cached_tokens},
            "output_tokens": completion_tokens,
            "output_tokens_details": {"reasoning_tokens": reasoning_tokens},
            "total_tokens": prompt_tokens + completion_tokens,
        })
    }
}

impl Shape for Answer {
    fn first_chunks(&mut self) -> Vec<Value> {
        let response = self.response("in_progress");
        self.output.tell("response.created", json!({"response": response}));
        self.output.take_events()
    }

    fn chunks(&mut self, _: usize, event: Event) -> Result<Vec<Value>, ApiError> {
        self.take(event)?;
        Ok(self.output.take_events())
    }

    fn last_chunks(&mut self) -> Vec<Value> {
        let status = self.status();
        let response = self.response(status);
        self.output.tell(&format!("response.{status}"), json!({"response": response}));
        self.output.take_events()
    }

    /// The error as an event of its own, in the two forms that clients look for, and as the end of the response.
    fn failed_chunks(&mut self, error: &ApiError) -> Vec<Value> {
        let body = error.body()["error"].take();
        let mut event = json!({"error": body});
        for key in ["code", "message", "param"] {
            event[key] = body[key].clone();
        }
        self.output.tell("error", event);
        let mut response = self.response("failed");
        response["error"] = json!({"code": "server_error", "message": body["message"]});
        self.output.tell("response.failed", json!({"response": response}));
        self.output.take_events()
    }

    fn keep(&mut self, _: usize, event: Event) -> Result<(), ApiError> {
        self.take(event)?;
        self.output.take_events();
        Ok(())
    }

    fn whole(self) -> Value {
        self.response(self.status())
    }

    fn named_events(&self) -> bool {
        true
    }
}
