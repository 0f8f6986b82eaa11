//! A request in Anthropic's form as one in OpenAI's.

use serde_json::{Map, Value, json};

use crate::app::App;
use crate::error::ApiError;
use crate::fields::Fields;

/// Fields that both interfaces have under the same name.
const SAME: &[&str] = &["model", "stream", "temperature", "top_p", "top_k", "max_tokens"];

/// Fields that Anthropic's clients send to everybody; here they mean nothing.
const IGNORED: &[&str] = &[
    "metadata",
    "service_tier",
    "container",
    "context_management",
    "mcp_servers",
    "cache_control",
    "diagnostics",
    "inference_geo",
    "speed",
];

/// The request that asks the same. `needs_length`: an answer must have a bound, as Anthropic's interface demands.
pub(super) fn as_chat(
    app: &App,
    map: &Map<String, Value>,
    needs_length: bool,
) -> Result<Map<String, Value>, ApiError> {
    let fields = Fields::of(map);
    let mut chat = Map::new();
    for key in SAME {
        if let Some(value) = fields.value(key) {
            chat.insert((*key).to_owned(), value.clone());
        }
    }
    if needs_length && !chat.contains_key("max_tokens") {
        return Err(ApiError::field("max_tokens", "must be there"));
    }
    if let Some(stops) = fields.list("stop_sequences")? {
        chat.insert("stop".to_owned(), stops.into());
    }
    chat.insert("messages".to_owned(), messages(&fields)?.into());
    if let Some(tools) = fields.list("tools")? {
        let tools = tools.iter().enumerate().map(|(n, tool)| tool_of(&format!("tools[{n}]"), tool));
        chat.insert("tools".to_owned(), tools.collect::<Result<Vec<_>, _>>()?.into());
    }
    tool_choice(&fields, &mut chat)?;
    thinking(&fields, &mut chat)?;
    output_format(&fields, &mut chat)?;
    fields.ignore(IGNORED);
    app.check_unknown(fields.unknown())?;
    Ok(chat)
}

fn messages(fields: &Fields<'_>) -> Result<Vec<Value>, ApiError> {
    let mut messages = Vec::new();
    if let Some(system) = fields.value("system") {
        messages.push(json!({"role": "system", "content": text_of("system", system)?}));
    }
    for (n, message) in fields.list("messages")?.unwrap_or_default().iter().enumerate() {
        let path = format!("messages[{n}]");
        let Value::Object(map) = message else { return Err(ApiError::found(path, "an object", message)) };
        let message = Fields::at(map, &format!("{path}."));
        let content = message.value("content").unwrap_or(&Value::Null);
        match message.value("role").and_then(Value::as_str) {
            Some("user") => user(&message.path("content"), content, &mut messages)?,
            Some("assistant") => messages.push(assistant(&message.path("content"), content)?),
            Some("system") => {
                let text = text_of(&message.path("content"), content)?;
                messages.push(json!({"role": "system", "content": text}));
            }
            _ => {
                let found = message.value("role").unwrap_or(&Value::Null);
                return Err(ApiError::found(message.path("role"), "user or assistant", found));
            }
        }
    }
    Ok(messages)
}

/// A text, or a list of text parts joined.
fn text_of(path: &str, value: &Value) -> Result<String, ApiError> {
    match value {
        Value::String(text) => Ok(text.clone()),
        Value::Array(parts) => {
            let mut text = String::new();
            for (n, part) in parts.iter().enumerate() {
                match (part["type"].as_str(), part["text"].as_str()) {
                    (Some("text"), Some(piece)) => text += piece,
                    _ => return Err(ApiError::field(format!("{path}[{n}]"), "must be a text part")),
                }
            }
            Ok(text)
        }
        other => Err(ApiError::found(path, "a text or a list of text parts", other)),
    }
}

/// What a person says, and results of tools, each a message of its own.
fn user(path: &str, content: &Value, messages: &mut Vec<Value>) -> Result<(), ApiError> {
    let Value::Array(blocks) = content else {
        messages.push(json!({"role": "user", "content": text_of(path, content)?}));
        return Ok(());
    };
    let mut text = String::new();
    for (n, block) in blocks.iter().enumerate() {
        let path = format!("{path}[{n}]");
        match block["type"].as_str() {
            Some("tool_result") => {
                if !text.is_empty() {
                    messages.push(json!({"role": "user", "content": std::mem::take(&mut text)}));
                }
                let result = match &block["content"] {
                    Value::Null => String::new(),
                    content => text_of(&format!("{path}.content"), content)?,
                };
                messages
                    .push(json!({"role": "tool", "tool_call_id": block["tool_use_id"], "content": result}));
            }
            _ => text += &text_of(&path, &Value::Array(vec![block.clone()]))?,
        }
    }
    if !text.is_empty() || blocks.is_empty() {
        messages.push(json!({"role": "user", "content": text}));
    }
    Ok(())
}

fn assistant(path: &str, content: &Value) -> Result<Value, ApiError> {
    let Value::Array(blocks) = content else {
        return Ok(json!({"role": "assistant", "content": text_of(path, content)?}));
    };
    let (mut text, mut thinking, mut calls) = (String::new(), String::new(), Vec::new());
    for (n, block) in blocks.iter().enumerate() {
        match block["type"].as_str() {
            Some("thinking") => thinking += block["thinking"].as_str().unwrap_or(""),
            Some("redacted_thinking") => {}
            Some("tool_use") => {
                let function = json!({"name": block["name"], "arguments": block["input"]});
                calls.push(json!({"id": block["id"], "type": "function", "function": function}));
            }
            _ => text += &text_of(&format!("{path}[{n}]"), &Value::Array(vec![block.clone()]))?,
        }
    }
    let mut message = json!({"role": "assistant", "content": text, "tool_calls": calls});
    if !thinking.is_empty() {
        message["reasoning_content"] = thinking.into();
    }
    Ok(message)
}

fn tool_of(path: &str, tool: &Value) -> Result<Value, ApiError> {
    let Value::Object(map) = tool else { return Err(ApiError::found(path, "an object", tool)) };
    let fields = Fields::at(map, &format!("{path}."));
    if let Some(kind) = fields.text("type")?.filter(|kind| *kind != "custom") {
        return Err(ApiError::found(fields.path("type"), "custom", &Value::from(kind)));
    }
    let mut function = json!({"name": fields.text("name")?});
    for (theirs, ours) in [("description", "description"), ("input_schema", "parameters")] {
        if let Some(value) = fields.value(theirs) {
            function[ours] = value.clone();
        }
    }
    Ok(json!({"type": "function", "function": function}))
}

fn tool_choice(fields: &Fields<'_>, chat: &mut Map<String, Value>) -> Result<(), ApiError> {
    let Some(map) = fields.object("tool_choice")? else { return Ok(()) };
    let choice = Fields::at(map, "tool_choice.");
    let ours = match choice.text("type")? {
        Some("auto") => json!("auto"),
        Some("any") => json!("required"),
        Some("none") => json!("none"),
        Some("tool") => json!({"type": "function", "function": {"name": choice.text("name")?}}),
        other => {
            let found = other.map_or(Value::Null, Value::from);
            return Err(ApiError::found("tool_choice.type", "auto, any, tool or none", &found));
        }
    };
    chat.insert("tool_choice".to_owned(), ours);
    if choice.boolean("disable_parallel_tool_use")? == Some(true) {
        chat.insert("parallel_tool_calls".to_owned(), false.into());
    }
    Ok(())
}

/// A schema that the answer must match. How much effort it may take is the model's own matter.
fn output_format(fields: &Fields<'_>, chat: &mut Map<String, Value>) -> Result<(), ApiError> {
    let Some(map) = fields.object("output_config")? else { return Ok(()) };
    let config = Fields::at(map, "output_config.");
    let Some(map) = config.object("format")? else { return Ok(()) };
    let format = Fields::at(map, "output_config.format.");
    match (format.text("type")?, format.value("schema")) {
        (Some("json_schema"), Some(schema)) => {
            let format = json!({"type": "json_schema", "json_schema": {"schema": schema}});
            chat.insert("response_format".to_owned(), format);
            Ok(())
        }
        (Some("json_schema"), None) => {
            Err(ApiError::field(format.path("schema"), "must be a schema, found none"))
        }
        (kind, _) => {
            let found = kind.map_or(Value::Null, Value::from);
            Err(ApiError::found(format.path("type"), "json_schema", &found))
        }
    }
}

/// Thinking is off unless it is asked for, as in Anthropic's interface.
fn thinking(fields: &Fields<'_>, chat: &mut Map<String, Value>) -> Result<(), ApiError> {
    let mut enabled = false;
    if let Some(map) = fields.object("thinking")? {
        let thinking = Fields::at(map, "thinking.");
        enabled = match thinking.text("type")? {
            Some("enabled" | "adaptive" | "between_tools") => true,
            Some("disabled") => false,
            other => {
                let found = other.map_or(Value::Null, Value::from);
                return Err(ApiError::found(
                    "thinking.type",
                    "enabled, adaptive, between_tools or disabled",
                    &found,
                ));
            }
        };
        if let Some(budget) = thinking.count("budget_tokens")? {
            chat.insert("thinking_budget".to_owned(), budget.into());
        }
    }
    chat.insert("enable_thinking".to_owned(), enabled.into());
    Ok(())
}
