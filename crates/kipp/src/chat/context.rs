//! A conversation as a template sees it: Transformers' names and shapes.

use minijinja::Value;

use super::json::{template_map, template_value};
use super::message::{Arguments, Conversation, Message, ToolCall};

/// The variables of one rendering. `assistant_text` is applied to the content and the reasoning of assistant
/// turns, the only message text in which some markers count.
pub(super) fn variables(
    conversation: &Conversation,
    special: impl Iterator<Item = (String, String)>,
    assistant_text: &dyn Fn(&str) -> String,
) -> Value {
    let messages = conversation.messages.iter().map(|message| message_value(message, assistant_text));
    let mut variables: Vec<(String, Value)> = special.map(|(name, text)| (name, Value::from(text))).collect();
    let given = &conversation.template_variables;
    variables.extend(given.iter().map(|(name, value)| (name.clone(), template_value(value))));
    let tools = match conversation.tools.as_slice() {
        [] => Value::from(()),
        tools => tools.iter().map(template_value).collect(),
    };
    variables.push(("messages".to_owned(), messages.collect()));
    variables.push(("tools".to_owned(), tools));
    variables.push(("add_generation_prompt".to_owned(), Value::from(conversation.add_generation_prompt)));
    if let Some(thinking) = conversation.enable_thinking {
        variables.push(("enable_thinking".to_owned(), Value::from(thinking)));
    }
    Value::from_pairs(variables)
}

fn message_value(message: &Message, assistant_text: &dyn Fn(&str) -> String) -> Value {
    let text = |text: &str| match message.role {
        super::Role::Assistant => Value::from(assistant_text(text)),
        _ => Value::from(text),
    };
    let mut fields = vec![("role", Value::from(message.role.name())), ("content", text(&message.content))];
    if let Some(reasoning) = &message.reasoning_content {
        fields.push(("reasoning_content", text(reasoning)));
    }
    if !message.tool_calls.is_empty() {
        fields.push(("tool_calls", message.tool_calls.iter().map(call_value).collect()));
    }
    if let Some(id) = &message.tool_call_id {
        fields.push(("tool_call_id", Value::from(id.as_str())));
    }
    if let Some(name) = &message.name {
        fields.push(("name", Value::from(name.as_str())));
    }
    Value::from_pairs(fields)
}

fn call_value(call: &ToolCall) -> Value {
    let arguments = match &call.arguments {
        Arguments::Object(fields) => template_map(fields),
        Arguments::Text(text) => Value::from(text.as_str()),
    };
    let function = Value::from_pairs([("name", Value::from(call.name.as_str())), ("arguments", arguments)]);
    let mut fields = vec![("type", Value::from("function")), ("function", function)];
    if let Some(id) = &call.id {
        fields.push(("id", Value::from(id.as_str())));
    }
    Value::from_pairs(fields)
}

/// Every text of a conversation, wherever it may stand.
pub(super) fn texts(conversation: &Conversation) -> Vec<&str> {
    let mut texts = Vec::new();
    for message in &conversation.messages {
        texts.push(message.content.as_str());
        let optional = [&message.reasoning_content, &message.tool_call_id, &message.name];
        texts.extend(optional.into_iter().flatten().map(String::as_str));
        for call in &message.tool_calls {
            texts.extend(call.id.as_deref());
            texts.push(&call.name);
            match &call.arguments {
                Arguments::Text(text) => texts.push(text),
                Arguments::Object(fields) => map_texts(fields, &mut texts),
            }
        }
    }
    conversation.tools.iter().for_each(|tool| json_texts(tool, &mut texts));
    map_texts(&conversation.template_variables, &mut texts);
    texts
}

fn map_texts<'a>(fields: &'a serde_json::Map<String, serde_json::Value>, texts: &mut Vec<&'a str>) {
    for (key, value) in fields {
        texts.push(key);
        json_texts(value, texts);
    }
}

fn json_texts<'a>(value: &'a serde_json::Value, texts: &mut Vec<&'a str>) {
    match value {
        serde_json::Value::String(text) => texts.push(text),
        serde_json::Value::Array(items) => items.iter().for_each(|item| json_texts(item, texts)),
        serde_json::Value::Object(fields) => map_texts(fields, texts),
        // A scalar is still a step for a template that walks over it.
        _ => texts.push(""),
    }
}
