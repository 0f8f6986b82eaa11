//! A conversation as clients send it, in its one inner form. Lenient in fields (unknown ones are ignored, null
//! is absent), strict in types and roles: whatever is refused is refused by its path. Not the place of HTTP
//! shapes or of defaults of an endpoint.

use serde_json::{Map, Value};

use super::error::ChatError;
use super::spelling::parse_json;

/// Messages and what else a template is given.
#[derive(Clone, Debug, PartialEq)]
pub struct Conversation {
    /// At least one message.
    pub messages: Vec<Message>,
    /// Tool definitions, as the client spells them.
    pub tools: Vec<Value>,
    /// Left to the template when `None`.
    pub enable_thinking: Option<bool>,
    /// Whether the prompt ends where the assistant's answer begins.
    pub add_generation_prompt: bool,
    /// Further variables for the template (`chat_template_kwargs`).
    pub template_variables: Map<String, Value>,
}

/// Who speaks. `developer` is read as `system`: Qwen's templates know only that name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Instructions.
    System,
    /// The person.
    User,
    /// The model.
    Assistant,
    /// The result of a tool.
    Tool,
}

/// One message.
#[derive(Clone, Debug, PartialEq)]
pub struct Message {
    /// Who speaks.
    pub role: Role,
    /// The text; empty when it was null or absent, text parts joined.
    pub content: String,
    /// The thinking of an assistant turn, when the client sends it apart.
    pub reasoning_content: Option<String>,
    /// The calls of an assistant turn.
    pub tool_calls: Vec<ToolCall>,
    /// Which call a tool's result answers.
    pub tool_call_id: Option<String>,
    /// The speaker's name.
    pub name: Option<String>,
}

/// One call of a function.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolCall {
    /// The client's id of the call.
    pub id: Option<String>,
    /// The function.
    pub name: String,
    /// What it is called with.
    pub arguments: Arguments,
}

/// Arguments of a call.
#[derive(Clone, Debug, PartialEq)]
pub enum Arguments {
    /// A JSON object, given as one or as its text.
    Object(Map<String, Value>),
    /// Text that is no JSON object: an assistant may have written anything.
    Text(String),
}

impl Role {
    /// The role's name in templates.
    pub fn name(self) -> &'static str {
        match self {
            Self::System => "system",
            Self::User => "user",
            Self::Assistant => "assistant",
            Self::Tool => "tool",
        }
    }
}

impl Message {
    /// A message of text alone.
    pub fn new(role: Role, content: impl Into<String>) -> Self {
        let content = content.into();
        Self {
            role,
            content,
            reasoning_content: None,
            tool_calls: Vec::new(),
            tool_call_id: None,
            name: None,
        }
    }
}

impl Conversation {
    /// A conversation of messages alone, ending where the answer begins.
    pub fn new(messages: Vec<Message>) -> Self {
        Self {
            messages,
            tools: Vec::new(),
            enable_thinking: None,
            add_generation_prompt: true,
            template_variables: Map::new(),
        }
    }

    /// Reads `{"messages", "tools", "enable_thinking", "add_generation_prompt", "chat_template_kwargs"}`.
    ///
    /// # Errors
    /// Text that is not JSON, or the path of the first field that is wrong.
    pub fn parse(text: &str) -> Result<Self, ChatError> {
        let value = parse_json(text).map_err(|error| ChatError::Json { problem: error.to_string() })?;
        match &value {
            Value::Object(fields) => Self::from_fields(fields),
            other => Err(wrong("conversation", "an object", other)),
        }
    }

    /// Reads the same fields out of a larger object, such as a request; others are left alone. Parse it with
    /// [`parse_json`], so that numbers keep their spelling.
    ///
    /// # Errors
    /// The path of the first field that is wrong.
    pub fn from_fields(fields: &Map<String, Value>) -> Result<Self, ChatError> {
        let messages = array(fields, "", "messages")?;
        let messages = match messages {
            Some([]) | None => {
                return Err(ChatError::field("messages", "a list of at least one message", "none"));
            }
            Some(messages) => messages
                .iter()
                .enumerate()
                .map(|(n, message)| parse_message(&format!("messages[{n}]"), message))
                .collect::<Result<_, _>>()?,
        };
        let tools = array(fields, "", "tools")?.unwrap_or_default();
        if let Some((n, other)) = tools.iter().enumerate().find(|(_, tool)| !tool.is_object()) {
            return Err(wrong(format!("tools[{n}]"), "an object", other));
        }
        let mut template_variables = match present(fields, "chat_template_kwargs") {
            None => Map::new(),
            Some(Value::Object(variables)) => variables.clone(),
            Some(other) => return Err(wrong("chat_template_kwargs", "an object", other)),
        };
        for reserved in ["messages", "tools", "chat_template"] {
            if template_variables.contains_key(reserved) {
                let path = format!("chat_template_kwargs.{reserved}");
                return Err(ChatError::field(
                    path,
                    "absent: it is not for the template's variables",
                    reserved,
                ));
            }
        }
        let mut switch = |key: &str| -> Result<Option<bool>, ChatError> {
            let inner = boolean(&template_variables, "chat_template_kwargs.", key)?;
            template_variables.shift_remove(key);
            Ok(boolean(fields, "", key)?.or(inner))
        };
        let enable_thinking = switch("enable_thinking")?;
        let add_generation_prompt = switch("add_generation_prompt")?.unwrap_or(true);
        Ok(Self {
            messages,
            tools: tools.to_vec(),
            enable_thinking,
            add_generation_prompt,
            template_variables,
        })
    }
}

fn parse_message(path: &str, message: &Value) -> Result<Message, ChatError> {
    const ROLES: &str = "system, developer, user, assistant or tool";
    let Value::Object(fields) = message else { return Err(wrong(path, "an object", message)) };
    let role = match fields.get("role") {
        Some(Value::String(name)) => match name.as_str() {
            "system" | "developer" => Role::System,
            "user" => Role::User,
            "assistant" => Role::Assistant,
            "tool" => Role::Tool,
            _ => return Err(wrong(format!("{path}.role"), ROLES, &fields["role"])),
        },
        Some(other) => return Err(wrong(format!("{path}.role"), ROLES, other)),
        None => return Err(ChatError::field(format!("{path}.role"), ROLES, "none")),
    };
    let reasoning_content = match string(fields, path, "reasoning_content")? {
        Some(reasoning) => Some(reasoning),
        None => string(fields, path, "reasoning")?,
    };
    let calls = array(fields, &format!("{path}."), "tool_calls")?.unwrap_or_default();
    let call = |(n, call)| parse_call(&format!("{path}.tool_calls[{n}]"), call);
    Ok(Message {
        role,
        content: parse_content(path, fields)?,
        reasoning_content,
        tool_calls: calls.iter().enumerate().map(call).collect::<Result<_, _>>()?,
        tool_call_id: string(fields, path, "tool_call_id")?,
        name: string(fields, path, "name")?,
    })
}

fn parse_content(path: &str, fields: &Map<String, Value>) -> Result<String, ChatError> {
    const CONTENT: &str = "text, or a list of at least one text part";
    let path = format!("{path}.content");
    let parts = match present(fields, "content") {
        None => return Ok(String::new()),
        Some(Value::String(text)) => return Ok(text.clone()),
        Some(Value::Array(parts)) if !parts.is_empty() => parts,
        Some(other) => return Err(wrong(path, CONTENT, other)),
    };
    let mut text = String::new();
    for (n, part) in parts.iter().enumerate() {
        let Value::Object(part) = part else { return Err(wrong(format!("{path}[{n}]"), "an object", part)) };
        match part.get("type") {
            Some(Value::String(kind)) if kind == "text" => {}
            Some(other) => return Err(wrong(format!("{path}[{n}].type"), "text", other)),
            None => return Err(ChatError::field(format!("{path}[{n}].type"), "text", "none")),
        }
        match part.get("text") {
            Some(Value::String(piece)) => text.push_str(piece),
            other => return Err(wrong(format!("{path}[{n}].text"), "text", other.unwrap_or(&Value::Null))),
        }
    }
    Ok(text)
}

fn parse_call(path: &str, call: &Value) -> Result<ToolCall, ChatError> {
    let Value::Object(fields) = call else { return Err(wrong(path, "an object", call)) };
    if let Some(kind) = string(fields, path, "type")?.filter(|kind| kind != "function") {
        return Err(ChatError::field(format!("{path}.type"), "function", &kind));
    }
    let path_of_function = format!("{path}.function");
    let function = match present(fields, "function") {
        Some(Value::Object(function)) => function,
        other => return Err(wrong(path_of_function, "an object", other.unwrap_or(&Value::Null))),
    };
    let Some(name) = string(function, &path_of_function, "name")? else {
        return Err(ChatError::field(format!("{path_of_function}.name"), "text", "none"));
    };
    let arguments = match present(function, "arguments") {
        None => Arguments::Object(Map::new()),
        Some(Value::Object(arguments)) => Arguments::Object(arguments.clone()),
        // The same call must give the same prompt, whichever of the two forms a client sends back.
        Some(Value::String(text)) => match parse_json(text) {
            Ok(Value::Object(arguments)) => Arguments::Object(arguments),
            _ => Arguments::Text(text.clone()),
        },
        Some(other) => {
            return Err(wrong(format!("{path_of_function}.arguments"), "an object or its JSON text", other));
        }
    };
    Ok(ToolCall { id: string(fields, path, "id")?, name, arguments })
}

/// The field, unless it is null or absent.
fn present<'a>(fields: &'a Map<String, Value>, key: &str) -> Option<&'a Value> {
    fields.get(key).filter(|value| !value.is_null())
}

fn string(fields: &Map<String, Value>, path: &str, key: &str) -> Result<Option<String>, ChatError> {
    match present(fields, key) {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.clone())),
        Some(other) => Err(wrong(format!("{path}.{key}"), "text", other)),
    }
}

fn boolean(fields: &Map<String, Value>, prefix: &str, key: &str) -> Result<Option<bool>, ChatError> {
    match present(fields, key) {
        None => Ok(None),
        Some(Value::Bool(value)) => Ok(Some(*value)),
        Some(other) => Err(wrong(format!("{prefix}{key}"), "true or false", other)),
    }
}

fn array<'a>(
    fields: &'a Map<String, Value>,
    prefix: &str,
    key: &str,
) -> Result<Option<&'a [Value]>, ChatError> {
    match present(fields, key) {
        None => Ok(None),
        Some(Value::Array(items)) => Ok(Some(items)),
        Some(other) => Err(wrong(format!("{prefix}{key}"), "a list", other)),
    }
}

fn wrong(path: impl Into<String>, expected: &'static str, found: &Value) -> ChatError {
    let found = match found {
        Value::Array(items) => format!("a list of {}", items.len()),
        Value::Object(_) => "an object".to_owned(),
        scalar => scalar.to_string(),
    };
    ChatError::field(path, expected, &found)
}
