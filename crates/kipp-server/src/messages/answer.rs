//! A chat's answer in Anthropic's shape: blocks of thinking, text and tool use, and the events that build them.

use std::sync::Arc;

use kipp::chat::parse_json;
use kipp::engine::{Delta, Event, FinishReason, Split};
use serde_json::{Value, json};

use crate::app::App;
use crate::chat::{Prepared, append};
use crate::completions::finish_name;
use crate::error::ApiError;
use crate::sse::Shape;
use crate::usage::Usage;

/// What the block that is being written holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Block {
    Thinking,
    Text,
    ToolUse,
}

/// The answer of one request.
pub(super) struct Message {
    app: Arc<App>,
    id: String,
    split: Split,
    stops: Arc<Vec<String>>,
    usage: Usage,
    /// Blocks that a stream has ended.
    ended: usize,
    open: Option<Block>,
    /// Gathered, where nothing is streamed.
    blocks: Vec<Value>,
    stop_reason: Option<&'static str>,
}

impl Message {
    pub(super) fn new(app: Arc<App>, prepared: Prepared) -> Message {
        Message {
            id: app.new_id("msg_"),
            stops: Arc::clone(&prepared.split.stops),
            split: Split::new(prepared.split, &app.info.tokenizer),
            usage: Usage { prompt_tokens: prepared.request.prompt.len(), ..Usage::default() },
            app,
            ended: 0,
            open: None,
            blocks: Vec::new(),
            stop_reason: None,
        }
    }

    /// What an event adds; its reason, where it ends the answer.
    fn deltas(&mut self, event: Event) -> Result<Vec<Delta>, ApiError> {
        let mut deltas = Vec::new();
        match event {
            Event::Started { cached_tokens, .. } => self.usage.cached_tokens = cached_tokens,
            Event::Prompt { .. } => {}
            Event::Tokens { tokens, .. } => {
                self.usage.completion_tokens += tokens.len();
                for token in tokens {
                    let pushed = self.split.push(token.id, &mut deltas);
                    pushed.map_err(|error| ApiError::internal(error.to_string()))?;
                }
            }
            Event::Finished { reason, .. } => {
                self.split.finish(&mut deltas);
                finish_name(reason)?;
                self.stop_reason = Some(match reason {
                    FinishReason::Stop if self.split.calls > 0 => "tool_use",
                    FinishReason::Stop if self.split.is_stopped() => "stop_sequence",
                    FinishReason::Stop => "end_turn",
                    _ => "max_tokens",
                });
            }
            Event::Failed(failure) => return Err(failure.into()),
        }
        Ok(deltas)
    }

    fn message(&self, content: Vec<Value>) -> Value {
        json!({
            "id": self.id,
            "type": "message",
            "role": "assistant",
            "model": self.app.model(),
            "content": content,
            "stop_reason": self.stop_reason,
            "stop_sequence": self.stop_sequence(),
            "usage": self.usage(),
        })
    }

    /// Tokens that were adopted are told apart from those that were evaluated, as Anthropic's interface does.
    fn usage(&self) -> Value {
        json!({
            "input_tokens": self.usage.prompt_tokens - self.usage.cached_tokens,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": self.usage.cached_tokens,
            "output_tokens": self.usage.completion_tokens,
        })
    }

    /// Which text ended the answer, where there is only one that it can have been.
    fn stop_sequence(&self) -> Option<&String> {
        let only = self.stops.first().filter(|_| self.stops.len() == 1);
        only.filter(|_| self.stop_reason == Some("stop_sequence"))
    }

    /// Ends the block that is being written.
    fn end_block(&mut self, events: &mut Vec<Value>) {
        if self.open.take().is_some() {
            events.push(json!({"type": "content_block_stop", "index": self.ended}));
            self.ended += 1;
        }
    }

    /// Begins a block, after ending the one before it.
    fn begin_block(&mut self, block: Block, content: &Value, events: &mut Vec<Value>) {
        self.end_block(events);
        self.open = Some(block);
        events.push(json!({"type": "content_block_start", "index": self.ended, "content_block": content}));
    }

    /// Goes on with a block of text, after beginning it if it is not the one that is being written.
    fn write(&mut self, block: Block, delta: &Value, events: &mut Vec<Value>) {
        if self.open != Some(block) {
            let begun = match block {
                Block::Thinking => json!({"type": "thinking", "thinking": "", "signature": ""}),
                _ => json!({"type": "text", "text": ""}),
            };
            self.begin_block(block, &begun, events);
        }
        events.push(json!({"type": "content_block_delta", "index": self.ended, "delta": delta}));
    }

    fn write_delta(&mut self, delta: Delta, events: &mut Vec<Value>) {
        match delta {
            Delta::Thinking(text) => {
                self.write(Block::Thinking, &json!({"type": "thinking_delta", "thinking": text}), events);
            }
            Delta::Content(text) => {
                self.write(Block::Text, &json!({"type": "text_delta", "text": text}), events);
            }
            Delta::Call(name) => {
                let id = self.app.new_id("toolu_");
                let block = json!({"type": "tool_use", "id": id, "name": name, "input": {}});
                self.begin_block(Block::ToolUse, &block, events);
            }
            Delta::Arguments(text) => {
                let delta = json!({"type": "input_json_delta", "partial_json": text});
                events.push(json!({"type": "content_block_delta", "index": self.ended, "delta": delta}));
            }
            Delta::CallEnd { .. } => self.end_block(events),
        }
    }

    /// Keeps a call until it has ended: its input as the text that the model wrote.
    fn keep_call(&mut self, name: &str) {
        let id = self.app.new_id("toolu_");
        self.blocks.push(json!({"type": "tool_use", "id": id, "name": name, "input": ""}));
    }

    /// The input of a call must be an object here; what is none becomes the text that it is.
    fn end_call(&mut self) {
        let Some(block) = self.blocks.last_mut() else { return };
        let arguments = block["input"].as_str().unwrap_or_default();
        match parse_json(arguments) {
            Ok(input @ Value::Object(_)) => block["input"] = input,
            _ => {
                let text = format!("{}({arguments})", block["name"].as_str().unwrap_or_default());
                *block = json!({"type": "text", "text": text});
            }
        }
    }
}

impl Shape for Message {
    fn chunks(&mut self, _: usize, event: Event) -> Result<Vec<Value>, ApiError> {
        let begins = matches!(event, Event::Started { .. });
        let deltas = self.deltas(event)?;
        let mut events = Vec::new();
        if begins {
            events.push(json!({"type": "message_start", "message": self.message(Vec::new())}));
        }
        for delta in deltas {
            self.write_delta(delta, &mut events);
        }
        Ok(events)
    }

    fn last_chunks(&mut self) -> Vec<Value> {
        let mut events = Vec::new();
        self.end_block(&mut events);
        let delta = json!({"stop_reason": self.stop_reason, "stop_sequence": self.stop_sequence()});
        events.push(json!({"type": "message_delta", "delta": delta, "usage": self.usage()}));
        events.push(json!({"type": "message_stop"}));
        events
    }

    fn keep(&mut self, _: usize, event: Event) -> Result<(), ApiError> {
        for delta in self.deltas(event)? {
            let (kind, text) = match delta {
                Delta::Thinking(text) => ("thinking", text),
                Delta::Content(text) => ("text", text),
                Delta::Call(name) => {
                    self.keep_call(&name);
                    continue;
                }
                Delta::Arguments(text) => {
                    append(self.blocks.last_mut(), "/input", &text);
                    continue;
                }
                Delta::CallEnd { .. } => {
                    self.end_call();
                    continue;
                }
            };
            match self.blocks.last_mut() {
                Some(block) if block["type"] == kind => append(Some(block), &format!("/{kind}"), &text),
                _ => {
                    let mut block = json!({"type": kind, kind: text});
                    if kind == "thinking" {
                        block["signature"] = "".into();
                    }
                    self.blocks.push(block);
                }
            }
        }
        Ok(())
    }

    fn whole(mut self) -> Value {
        let blocks = std::mem::take(&mut self.blocks);
        if self.stop_reason == Some("tool_use") && blocks.iter().all(|block| block["type"] != "tool_use") {
            self.stop_reason = Some("end_turn");
        }
        self.message(blocks)
    }

    fn failed_chunks(&mut self, error: &ApiError) -> Vec<Value> {
        vec![error.anthropic_body()]
    }

    fn named_events(&self) -> bool {
        true
    }
}
