//! The items of an answer as they grow, and the events that tell of it: each item is announced, its text comes in deltas,
//! and each is told whole when it ends. Events are numbered.

use serde_json::{Map, Value, json};

/// What an item holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Reasoning,
    /// Thinking that stands where a summary of it was asked for.
    Summary,
    Message,
    Call {
        /// What the result of the call refers to.
        call_id: String,
        name: String,
    },
}

/// The names of a kind's text in events.
struct Names {
    /// Its part of the item and the field that counts parts; the arguments of a call are no part.
    part: Option<(&'static str, &'static str)>,
    /// Events that begin and end the part.
    part_events: &'static str,
    /// Events of the text.
    text_events: &'static str,
}

impl Kind {
    fn names(&self) -> Names {
        let (part, part_events, text_events) = match self {
            Kind::Message => {
                (Some(("output_text", "content_index")), "response.content_part", "response.output_text")
            }
            Kind::Reasoning => (
                Some(("reasoning_text", "content_index")),
                "response.content_part",
                "response.reasoning_text",
            ),
            Kind::Summary => (
                Some(("summary_text", "summary_index")),
                "response.reasoning_summary_part",
                "response.reasoning_summary_text",
            ),
            Kind::Call { .. } => (None, "", "response.function_call_arguments"),
        };
        Names { part, part_events, text_events }
    }

    /// What ids of such items begin with.
    fn id_prefix(&self) -> &'static str {
        match self {
            Kind::Reasoning | Kind::Summary => "rs_",
            Kind::Message => "msg_",
            Kind::Call { .. } => "fc_",
        }
    }
}

/// An item that is being written.
struct Item {
    kind: Kind,
    id: String,
    text: String,
    logprobs: Vec<Value>,
}

impl Item {
    /// Its part, where it has one.
    fn part(&self) -> Option<Value> {
        let (kind, _) = self.kind.names().part?;
        Some(match self.kind {
            Kind::Message => {
                json!({"type": kind, "text": self.text, "annotations": [], "logprobs": self.logprobs})
            }
            _ => json!({"type": kind, "text": self.text}),
        })
    }

    /// The item; it has its part from when that has begun.
    fn value(&self, status: &str, parts: Vec<Value>) -> Value {
        let id = &self.id;
        match &self.kind {
            Kind::Reasoning => {
                json!({"id": id, "type": "reasoning", "summary": [], "content": parts, "encrypted_content": null, "status": status})
            }
            Kind::Summary => {
                json!({"id": id, "type": "reasoning", "summary": parts, "encrypted_content": null, "status": status})
            }
            Kind::Message => {
                json!({"id": id, "type": "message", "role": "assistant", "content": parts, "status": status})
            }
            Kind::Call { call_id, name } => {
                json!({"id": id, "type": "function_call", "call_id": call_id, "name": name, "arguments": self.text, "status": status})
            }
        }
    }
}

/// The items so far.
#[derive(Default)]
pub(super) struct Output {
    ended: Vec<Value>,
    open: Option<Item>,
    /// Events so far, those that went out included.
    n_events: usize,
    events: Vec<Value>,
}

impl Output {
    /// Items that have ended.
    pub(super) fn items(&self) -> &[Value] {
        &self.ended
    }

    /// Whether there is nothing but thinking.
    pub(super) fn is_silent(&self) -> bool {
        let is_thinking = |item: &Value| item["type"] == "reasoning";
        let is_open = |item: &Item| matches!(item.kind, Kind::Message | Kind::Call { .. });
        self.ended.iter().all(is_thinking) && !self.open.as_ref().is_some_and(is_open)
    }

    /// Events that nobody has had.
    pub(super) fn take_events(&mut self) -> Vec<Value> {
        std::mem::take(&mut self.events)
    }

    /// Tells something of the response as a whole.
    pub(super) fn tell(&mut self, kind: &str, body: Value) {
        let mut event = Map::new();
        event.insert("type".to_owned(), kind.into());
        event.insert("sequence_number".to_owned(), self.n_events.into());
        if let Value::Object(body) = body {
            event.extend(body);
        }
        self.n_events += 1;
        self.events.push(event.into());
    }

    /// Begins an item, after ending the one before it.
    pub(super) fn begin(&mut self, kind: Kind, new_id: impl Fn(&str) -> String) {
        self.end("completed");
        let item = Item { id: new_id(kind.id_prefix()), kind, text: String::new(), logprobs: Vec::new() };
        let value = item.value("in_progress", Vec::new());
        self.tell("response.output_item.added", json!({"output_index": self.ended.len(), "item": value}));
        let names = item.kind.names();
        if let Some(part) = item.part() {
            self.tell_of(&item, &format!("{}.added", names.part_events), json!({"part": part}));
        }
        self.open = Some(item);
    }

    /// Goes on with an item of text, after beginning it if it is not the one that is being written.
    pub(super) fn write(
        &mut self,
        kind: Kind,
        text: &str,
        logprobs: Vec<Value>,
        new_id: impl Fn(&str) -> String,
    ) {
        if self.open.as_ref().is_none_or(|item| item.kind != kind) {
            self.begin(kind, new_id);
        }
        self.go_on(text, logprobs);
    }

    /// Goes on with the item that is being written.
    pub(super) fn go_on(&mut self, text: &str, logprobs: Vec<Value>) {
        let Some(mut item) = self.open.take() else { return };
        item.text += text;
        let mut delta = json!({"delta": text});
        if item.kind == Kind::Message {
            delta["logprobs"] = logprobs.clone().into();
        }
        item.logprobs.extend(logprobs);
        self.tell_of(&item, &format!("{}.delta", item.kind.names().text_events), delta);
        self.open = Some(item);
    }

    /// Ends the item that is being written, if there is one.
    pub(super) fn end(&mut self, status: &str) {
        let Some(item) = self.open.take() else { return };
        let names = item.kind.names();
        let text_done = format!("{}.done", names.text_events);
        match &item.kind {
            Kind::Message => {
                let done = json!({"text": item.text, "logprobs": item.logprobs});
                self.tell_of(&item, &text_done, done);
            }
            Kind::Reasoning | Kind::Summary => {
                self.tell_of(&item, &text_done, json!({"text": item.text}));
            }
            Kind::Call { name, .. } => {
                let done = json!({"name": name, "arguments": item.text});
                self.tell_of(&item, &text_done, done);
            }
        }
        let part = item.part();
        if let Some(part) = &part {
            self.tell_of(&item, &format!("{}.done", names.part_events), json!({"part": part}));
        }
        let value = item.value(status, part.into_iter().collect());
        self.tell("response.output_item.done", json!({"output_index": self.ended.len(), "item": value}));
        self.ended.push(value);
    }

    /// Tells something of an item.
    fn tell_of(&mut self, item: &Item, kind: &str, body: Value) {
        let mut place = json!({"item_id": item.id, "output_index": self.ended.len()});
        if let Some((_, index)) = item.kind.names().part {
            place[index] = 0.into();
        }
        if let (Value::Object(place), Value::Object(body)) = (&mut place, body) {
            place.extend(body);
        }
        self.tell(kind, place);
    }
}
