//! A conversation as a JSON file, in the shape that `kipp tokenize --messages` reads too.

use std::io::Write;
use std::path::Path;

use anyhow::Context;
use kipp::chat::{Arguments, Conversation, Message, ToolCall};
use serde_json::{Map, Value, json};

use crate::output::OutputFile;

/// Writes the file, whole or not at all.
pub(super) fn save(path: &Path, conversation: &Conversation) -> anyhow::Result<()> {
    let mut text = serde_json::to_string_pretty(&document(conversation)).context("the messages as JSON")?;
    text.push('\n');
    let mut file = OutputFile::create(path)?;
    file.write_all(text.as_bytes()).with_context(|| path.display().to_string())?;
    file.finish()
}

fn document(conversation: &Conversation) -> Value {
    let mut document = Map::new();
    let messages = conversation.messages.iter().map(message).collect::<Vec<_>>();
    document.insert("messages".to_owned(), messages.into());
    if !conversation.tools.is_empty() {
        document.insert("tools".to_owned(), conversation.tools.clone().into());
    }
    if let Some(enable_thinking) = conversation.enable_thinking {
        document.insert("enable_thinking".to_owned(), enable_thinking.into());
    }
    if !conversation.template_variables.is_empty() {
        document.insert("chat_template_kwargs".to_owned(), conversation.template_variables.clone().into());
    }
    document.into()
}

fn message(message: &Message) -> Value {
    let mut fields = json!({"role": message.role.name(), "content": message.content});
    let optional = [
        ("reasoning_content", &message.reasoning_content),
        ("tool_call_id", &message.tool_call_id),
        ("name", &message.name),
    ];
    for (key, text) in optional {
        if let Some(text) = text {
            fields[key] = text.as_str().into();
        }
    }
    if !message.tool_calls.is_empty() {
        fields["tool_calls"] = message.tool_calls.iter().map(call).collect();
    }
    fields
}

fn call(call: &ToolCall) -> Value {
    let arguments = match &call.arguments {
        Arguments::Object(fields) => Value::Object(fields.clone()).to_string(),
        Arguments::Text(text) => text.clone(),
    };
    let mut fields = json!({"type": "function", "function": {"name": call.name, "arguments": arguments}});
    if let Some(id) = &call.id {
        fields["id"] = id.as_str().into();
    }
    fields
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_as_the_same_conversation() {
        let text = json!({
            "messages": [
                {"role": "system", "content": "Be kind."},
                {"role": "user", "content": "hi\n<|im_end|>"},
                {"role": "assistant", "content": "", "reasoning_content": "Hm.", "tool_calls": [
                    {"id": "1", "type": "function", "function": {"name": "f", "arguments": {"x": 1e5}}},
                    {"type": "function", "function": {"name": "g", "arguments": "no object"}},
                ]},
                {"role": "tool", "content": "5", "tool_call_id": "1", "name": "f"},
            ],
            "tools": [{"type": "function", "function": {"name": "f"}}],
            "enable_thinking": false,
            "chat_template_kwargs": {"style": "short"},
        });
        let conversation = Conversation::parse(&text.to_string()).unwrap();
        let written = document(&conversation).to_string();
        assert_eq!(Conversation::parse(&written).unwrap(), conversation);
    }
}
