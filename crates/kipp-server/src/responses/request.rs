//! A request of the responses interface as a chat, and what its answer repeats of it.

use serde_json::{Map, Value, json};

use super::input;
use crate::app::App;
use crate::chat::enable_thinking;
use crate::error::ApiError;
use crate::fields::Fields;

/// Fields that both interfaces have under the same name.
const SAME: &[&str] = &[
    "model",
    "stream",
    "stream_options",
    "temperature",
    "top_p",
    "parallel_tool_calls",
    "top_k",
    "min_p",
    "repetition_penalty",
    "repetition_last_n",
    "presence_penalty",
    "frequency_penalty",
    "logit_bias",
    "seed",
    "stop",
    "stop_token_ids",
    "min_tokens",
    "ignore_eos",
    "cache_salt",
    "chat_template_kwargs",
    "enable_thinking",
    "thinking_budget",
];

/// Fields that mean nothing here: tools that OpenAI runs, its caches, its accounts.
const MEANINGLESS: &[&str] = &[
    "max_tool_calls",
    "safety_identifier",
    "prompt_cache_key",
    "prompt_cache_retention",
    "prompt_cache_options",
    "service_tier",
    "client_metadata",
    "context_management",
    "moderation",
];

/// What the thinking is asked to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Thinking {
    /// The text itself.
    Text,
    /// A summary. None is written here, so the thinking itself stands where clients look for one.
    Summary,
}

/// A request.
pub(super) struct Asked {
    /// The chat that asks the same.
    pub(super) chat: Map<String, Value>,
    /// What the answer says of its request.
    pub(super) repeated: Map<String, Value>,
    pub(super) thinking: Thinking,
}

impl Asked {
    pub(super) fn parse(app: &App, map: &Map<String, Value>) -> Result<Asked, ApiError> {
        let fields = Fields::of(map);
        refuse_state(&fields)?;
        let mut chat = Map::new();
        for key in SAME {
            if let Some(value) = fields.value(key) {
                chat.insert((*key).to_owned(), value.clone());
            }
        }
        if let Some(tokens) = fields.count("max_output_tokens")? {
            chat.insert("max_tokens".to_owned(), tokens.into());
        }
        chat.insert("messages".to_owned(), input::messages(&fields)?.into());
        let tools = tools(app, &fields)?;
        let tool_choice = tool_choice(&fields, &tools)?;
        chat.insert("tools".to_owned(), tool_choice.tools.iter().map(|tool| in_chat(tool)).collect());
        chat.insert("tool_choice".to_owned(), tool_choice.in_chat);
        let text = text(&fields, &mut chat)?;
        let (reasoning, thinking) = reasoning(&fields, &mut chat)?;
        let top_logprobs = logprobs(&fields, &mut chat)?;
        fields.ignore(MEANINGLESS);
        let number = |key, default: f64| Ok::<_, ApiError>(fields.number(key)?.unwrap_or(default));
        let repeated = json!({
            "instructions": fields.text("instructions")?,
            "max_output_tokens": fields.value("max_output_tokens"),
            "metadata": metadata(&fields)?,
            "parallel_tool_calls": fields.boolean("parallel_tool_calls")?.unwrap_or(true),
            "temperature": number("temperature", app.info.sampling.temperature)?,
            "top_p": number("top_p", app.info.sampling.top_p)?,
            "tools": tools,
            "tool_choice": fields.value("tool_choice").cloned().unwrap_or("auto".into()),
            "text": text,
            "reasoning": reasoning,
            "top_logprobs": top_logprobs,
            "truncation": truncation(&fields)?,
            "user": fields.text("user")?,
            "store": false,
            "background": false,
            "previous_response_id": null,
            "service_tier": "default",
        });
        app.check_unknown(fields.unknown())?;
        let Value::Object(repeated) = repeated else { return Err(ApiError::internal("no object")) };
        Ok(Asked { chat, repeated, thinking })
    }
}

/// Nothing is kept between requests.
fn refuse_state(fields: &Fields<'_>) -> Result<(), ApiError> {
    const STATELESS: &str = "is not supported: nothing is kept between requests, so send the whole input";
    for key in ["store", "background"] {
        if fields.boolean(key)? == Some(true) {
            return Err(ApiError::field(key, STATELESS));
        }
    }
    for key in ["previous_response_id", "conversation", "prompt"] {
        if fields.value(key).is_some() {
            return Err(ApiError::field(key, STATELESS));
        }
    }
    Ok(())
}

/// The functions among the tools. Others are OpenAI's own to run: they are left out, of the answer's `tools` too.
fn tools(app: &App, fields: &Fields<'_>) -> Result<Vec<Value>, ApiError> {
    let mut functions = Vec::new();
    for (n, tool) in fields.list("tools")?.unwrap_or_default().iter().enumerate() {
        let path = format!("tools[{n}]");
        let Value::Object(map) = tool else { return Err(ApiError::found(path, "an object", tool)) };
        let tool = Fields::at(map, &format!("{path}."));
        match tool.text("type")? {
            Some("function") => {}
            Some(kind) if !app.info.strict_fields => {
                app.tell_once(&format!("tools of type {kind} are ignored: only functions can be called"));
                continue;
            }
            other => {
                let found = other.map_or(Value::Null, Value::from);
                return Err(ApiError::found(tool.path("type"), "function", &found));
            }
        }
        let Some(name) = tool.text("name")? else {
            return Err(ApiError::field(tool.path("name"), "must be a text, found none"));
        };
        functions.push(json!({
            "type": "function",
            "name": name,
            "description": tool.text("description")?,
            "parameters": tool.object("parameters")?,
            "strict": tool.boolean("strict")?,
        }));
        fields.done_with(&tool);
    }
    Ok(functions)
}

/// A function as a chat declares it, without what was not said.
fn in_chat(tool: &Value) -> Value {
    let mut function = json!({"name": tool["name"]});
    for key in ["description", "parameters"] {
        if !tool[key].is_null() {
            function[key] = tool[key].clone();
        }
    }
    json!({"type": "function", "function": function})
}

/// Which functions may be called, and whether one must.
struct ToolChoice<'a> {
    tools: Vec<&'a Value>,
    in_chat: Value,
}

fn tool_choice<'a>(fields: &Fields<'_>, tools: &'a [Value]) -> Result<ToolChoice<'a>, ApiError> {
    const CHOICE: &str = "none, auto, required, a function by name or allowed_tools";
    let all = || tools.iter().collect::<Vec<_>>();
    let map = match fields.value("tool_choice") {
        None => return Ok(ToolChoice { tools: all(), in_chat: Value::Null }),
        Some(Value::Object(map)) => map,
        Some(choice) => return Ok(ToolChoice { tools: all(), in_chat: choice.clone() }),
    };
    let choice = Fields::at(map, "tool_choice.");
    match choice.text("type")? {
        Some("function") => {
            let function = json!({"name": choice.text("name")?});
            Ok(ToolChoice { tools: all(), in_chat: json!({"type": "function", "function": function}) })
        }
        Some("allowed_tools") => {
            let allowed = choice.list("tools")?.unwrap_or_default();
            let is_allowed = |tool: &&Value| allowed.iter().any(|allowed| allowed["name"] == tool["name"]);
            let mode = choice.text("mode")?.unwrap_or("auto");
            if !["auto", "required"].contains(&mode) {
                return Err(ApiError::found("tool_choice.mode", "auto or required", &mode.into()));
            }
            Ok(ToolChoice { tools: tools.iter().filter(is_allowed).collect(), in_chat: mode.into() })
        }
        other => {
            let found = other.map_or(Value::Null, Value::from);
            Err(ApiError::found("tool_choice.type", CHOICE, &found))
        }
    }
}

/// `text.format`; how the answer repeats it.
fn text(fields: &Fields<'_>, chat: &mut Map<String, Value>) -> Result<Value, ApiError> {
    let plain = json!({"format": {"type": "text"}});
    let Some(map) = fields.object("text")? else { return Ok(plain) };
    let text = Fields::at(map, "text.");
    let mut repeated = match text.object("format")? {
        None => plain,
        Some(map) => {
            let format = Fields::at(map, "text.format.");
            let kind = format.text("type")?;
            let mut in_chat = json!({"type": kind});
            if kind == Some("json_schema") {
                let Some(schema) = format.value("schema") else {
                    return Err(ApiError::field("text.format.schema", "must be a schema, found none"));
                };
                in_chat["json_schema"] = json!({"name": format.text("name")?, "schema": schema});
            }
            format.ignore(&["description", "strict"]);
            text.done_with(&format);
            chat.insert("response_format".to_owned(), in_chat);
            json!({"format": map})
        }
    };
    if let Some(verbosity) = text.text("verbosity")? {
        repeated["verbosity"] = verbosity.into();
    }
    fields.done_with(&text);
    Ok(repeated)
}

/// `reasoning`: whether there is thinking, and how it is told.
fn reasoning(fields: &Fields<'_>, chat: &mut Map<String, Value>) -> Result<(Value, Thinking), ApiError> {
    let nothing = Map::new();
    let map = fields.object("reasoning")?.unwrap_or(&nothing);
    let reasoning = Fields::at(map, "reasoning.");
    let effort = reasoning.text("effort")?;
    if let Some(effort) = effort {
        let named = Map::from_iter([("effort".to_owned(), Value::from(effort))]);
        enable_thinking(&Fields::at(&named, "reasoning."), "effort")?;
        chat.insert("reasoning_effort".to_owned(), effort.into());
    }
    let summary = match reasoning.text("summary")? {
        // Its older name.
        None => reasoning.text("generate_summary")?,
        summary => summary,
    };
    let thinking = match summary {
        None | Some("none") => Thinking::Text,
        Some("auto" | "concise" | "detailed") => Thinking::Summary,
        Some(other) => {
            let expected = "none, auto, concise or detailed";
            return Err(ApiError::found("reasoning.summary", expected, &other.into()));
        }
    };
    reasoning.ignore(&["generate_summary"]);
    fields.done_with(&reasoning);
    Ok((json!({"effort": effort, "summary": summary}), thinking))
}

/// Log-probabilities are asked for by `include`, and so are things that only OpenAI's own tools have.
fn logprobs(fields: &Fields<'_>, chat: &mut Map<String, Value>) -> Result<usize, ApiError> {
    let top = crate::terms::alternatives(fields, "top_logprobs")?;
    let include = fields.list("include")?.unwrap_or_default();
    if let Some(other) = include.iter().find(|name| !name.is_string()) {
        return Err(ApiError::found("include", "a list of texts", other));
    }
    if include.iter().any(|name| name == "message.output_text.logprobs") || top.is_some_and(|top| top > 0) {
        chat.insert("logprobs".to_owned(), true.into());
        chat.insert("top_logprobs".to_owned(), top.unwrap_or(0).into());
    }
    Ok(top.unwrap_or(0))
}

/// Whatever is allowed to be cut, nothing is.
fn truncation(fields: &Fields<'_>) -> Result<&'static str, ApiError> {
    match fields.text("truncation")? {
        None | Some("auto" | "disabled") => Ok("disabled"),
        Some(other) => Err(ApiError::found("truncation", "auto or disabled", &other.into())),
    }
}

/// Kept for the answer and nothing else.
fn metadata(fields: &Fields<'_>) -> Result<Map<String, Value>, ApiError> {
    let metadata = fields.object("metadata")?.cloned().unwrap_or_default();
    match metadata.values().find(|value| !value.is_string()) {
        Some(other) => Err(ApiError::found("metadata", "an object of texts", other)),
        None => Ok(metadata),
    }
}
