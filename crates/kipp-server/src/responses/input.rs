//! The input of a response, a text or a list of items, as messages. What a model does in one turn comes as several items
//! (thinking, text, calls) and goes back into one message, as its template wants it.

use serde_json::{Map, Value, json};

use crate::error::ApiError;
use crate::fields::Fields;

/// A turn of the model, as far as its items have come.
#[derive(Default)]
struct Turn {
    thinking: String,
    text: Option<String>,
    calls: Vec<Value>,
}

/// The conversation so far.
#[derive(Default)]
struct Messages {
    messages: Vec<Value>,
    turn: Option<Turn>,
}

/// `instructions` and `input` as messages.
pub(super) fn messages(fields: &Fields<'_>) -> Result<Vec<Value>, ApiError> {
    let mut messages = Messages::default();
    if let Some(instructions) = fields.text("instructions")? {
        messages.push(json!({"role": "system", "content": instructions}));
    }
    match fields.value("input") {
        Some(Value::String(text)) => messages.push(json!({"role": "user", "content": text})),
        Some(Value::Array(items)) if !items.is_empty() => {
            for (n, item) in items.iter().enumerate() {
                let path = format!("input[{n}]");
                let Value::Object(map) = item else { return Err(ApiError::found(path, "an object", item)) };
                messages.add(&Fields::at(map, &format!("{path}.")))?;
            }
        }
        other => {
            let found = other.unwrap_or(&Value::Null);
            return Err(ApiError::found("input", "a text or a list of at least one item", found));
        }
    }
    messages.end_turn();
    Ok(messages.messages)
}

impl Messages {
    fn add(&mut self, item: &Fields<'_>) -> Result<(), ApiError> {
        match item.text("type")? {
            None | Some("message") => self.add_message(item),
            Some("reasoning") => {
                let mut thinking = parts(item, "content", &["reasoning_text", "text"])?.unwrap_or_default();
                if thinking.is_empty() {
                    thinking = parts(item, "summary", &["summary_text"])?.unwrap_or_default();
                }
                self.turn_with(|turn| turn.text.is_none() && turn.calls.is_empty()).thinking += &thinking;
                Ok(())
            }
            Some("function_call") => {
                let function =
                    json!({"name": needed(item, "name")?, "arguments": needed(item, "arguments")?});
                let id = needed(item, "call_id")?;
                let call = json!({"id": id, "type": "function", "function": function});
                self.turn_with(|_| true).calls.push(call);
                Ok(())
            }
            Some("function_call_output") => {
                let id = needed(item, "call_id")?;
                let Some(output) = parts(item, "output", &["input_text", "output_text"])? else {
                    return Err(ApiError::field(item.path("output"), "must be there"));
                };
                self.push(json!({"role": "tool", "tool_call_id": id, "content": output}));
                Ok(())
            }
            Some(other) => {
                let expected = "message, reasoning, function_call or function_call_output";
                Err(ApiError::found(item.path("type"), expected, &other.into()))
            }
        }
    }

    fn add_message(&mut self, item: &Fields<'_>) -> Result<(), ApiError> {
        let role = item.text("role")?;
        let content = parts(item, "content", &["input_text", "output_text", "text", "refusal"])?;
        match role {
            Some("assistant") => {
                let turn = self.turn_with(|turn| turn.text.is_none() && turn.calls.is_empty());
                turn.text = Some(content.unwrap_or_default());
            }
            Some("system" | "developer" | "user") => {
                let Some(content) = content else {
                    return Err(ApiError::field(item.path("content"), "must be there"));
                };
                self.push(json!({"role": role, "content": content}));
            }
            other => {
                let found = other.map_or(Value::Null, Value::from);
                let expected = "system, developer, user or assistant";
                return Err(ApiError::found(item.path("role"), expected, &found));
            }
        }
        Ok(())
    }

    /// The turn of the model that goes on, or a new one where the last does not fit.
    fn turn_with(&mut self, fits: impl Fn(&Turn) -> bool) -> &mut Turn {
        if !self.turn.as_ref().is_some_and(fits) {
            self.end_turn();
        }
        self.turn.get_or_insert_default()
    }

    fn end_turn(&mut self) {
        let Some(Turn { thinking, text, calls }) = self.turn.take() else { return };
        let mut message = Map::new();
        message.insert("role".to_owned(), "assistant".into());
        message.insert("content".to_owned(), text.unwrap_or_default().into());
        if !thinking.is_empty() {
            message.insert("reasoning_content".to_owned(), thinking.into());
        }
        if !calls.is_empty() {
            message.insert("tool_calls".to_owned(), calls.into());
        }
        self.messages.push(message.into());
    }

    /// A message of somebody else.
    fn push(&mut self, message: Value) {
        self.end_turn();
        self.messages.push(message);
    }
}

fn needed<'a>(item: &Fields<'a>, key: &'static str) -> Result<&'a str, ApiError> {
    item.text(key)?.ok_or_else(|| ApiError::field(item.path(key), "must be a text, found none"))
}

/// A text, or text parts of these types joined.
fn parts(item: &Fields<'_>, key: &'static str, kinds: &[&str]) -> Result<Option<String>, ApiError> {
    let path = item.path(key);
    let parts = match item.value(key) {
        None => return Ok(None),
        Some(Value::String(text)) => return Ok(Some(text.clone())),
        Some(Value::Array(parts)) => parts,
        Some(other) => return Err(ApiError::found(path, "a text or a list of text parts", other)),
    };
    let mut text = String::new();
    for (n, part) in parts.iter().enumerate() {
        let path = format!("{path}[{n}]");
        let Value::Object(map) = part else { return Err(ApiError::found(path, "an object", part)) };
        let part = Fields::at(map, &format!("{path}."));
        let kind = part.text("type")?;
        if !kind.is_some_and(|kind| kinds.contains(&kind)) {
            let found = kind.map_or(Value::Null, Value::from);
            return Err(ApiError::found(part.path("type"), &kinds.join(" or "), &found));
        }
        let key = if kind == Some("refusal") { "refusal" } else { "text" };
        text += needed(&part, key)?;
    }
    Ok(Some(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(request: Value) -> Result<Vec<Value>, ApiError> {
        let Value::Object(map) = request else { unreachable!() };
        messages(&Fields::of(&map))
    }

    #[test]
    fn items_of_one_turn_are_one_message() {
        let input = json!([
            {"role": "developer", "content": "d"},
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "a"}, {"type": "input_text", "text": "b"}]},
            {"type": "reasoning", "id": "rs", "summary": [], "content": [{"type": "reasoning_text", "text": "t"}]},
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "x", "annotations": []}]},
            {"type": "function_call", "call_id": "1", "name": "f", "arguments": "{}"},
            {"type": "function_call", "call_id": "2", "name": "g", "arguments": "{\"n\":1}"},
            {"type": "function_call_output", "call_id": "1", "output": "one"},
            {"type": "function_call_output", "call_id": "2", "output": [{"type": "input_text", "text": "two"}]},
            {"type": "reasoning", "summary": [{"type": "summary_text", "text": "s"}]},
            {"role": "assistant", "content": "y"},
            {"role": "assistant", "content": "z"},
        ]);
        let call = |id, name, arguments| json!({"id": id, "type": "function", "function": {"name": name, "arguments": arguments}});
        let expected = json!([
            {"role": "system", "content": "i"},
            {"role": "developer", "content": "d"},
            {"role": "user", "content": "ab"},
            {"role": "assistant", "content": "x", "reasoning_content": "t", "tool_calls": [call("1", "f", "{}"), call("2", "g", "{\"n\":1}")]},
            {"role": "tool", "tool_call_id": "1", "content": "one"},
            {"role": "tool", "tool_call_id": "2", "content": "two"},
            {"role": "assistant", "content": "y", "reasoning_content": "s"},
            {"role": "assistant", "content": "z"},
        ]);
        assert_eq!(read(json!({"instructions": "i", "input": input})).map(Value::from), Ok(expected));
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (input, path) in [
            (json!(null), "`input`"),
            (json!([]), "`input`"),
            (json!([3]), "`input[0]`"),
            (json!([{"role": "tool", "content": "x"}]), "`input[0].role`"),
            (json!([{"role": "user"}]), "`input[0].content`"),
            (json!([{"role": "user", "content": [{"type": "input_image"}]}]), "`input[0].content[0].type`"),
            (json!([{"type": "item_reference", "id": "x"}]), "`input[0].type`"),
            (json!([{"type": "function_call", "name": "f", "arguments": "{}"}]), "`input[0].call_id`"),
            (json!([{"type": "function_call_output", "call_id": "1"}]), "`input[0].output`"),
        ] {
            let error = read(json!({"input": input})).unwrap_err().body();
            assert!(error["error"]["message"].as_str().unwrap().starts_with(path), "{error}");
        }
    }
}
