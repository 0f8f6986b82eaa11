//! Tool calls: what a request allows.

use kipp::sampling::constraint::ToolFunction;
use serde_json::Value;

use crate::error::ApiError;
use crate::fields::Fields;

/// Bytes of a function's name at most.
const MAX_NAME_BYTES: usize = 256;

/// Which calls an answer may, must or must not have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Choice {
    /// None is looked for, and the model is shown no tools.
    None,
    /// As the model likes.
    Auto,
    /// At least one, of one of these functions.
    Required(Vec<ToolFunction>),
}

/// The functions that a request declares.
pub(crate) fn functions(fields: &Fields<'_>) -> Result<Vec<ToolFunction>, ApiError> {
    let tools = fields.list("tools")?.unwrap_or_default();
    tools.iter().enumerate().map(|(n, tool)| function(fields, &format!("tools[{n}]"), tool)).collect()
}

fn function(fields: &Fields<'_>, path: &str, tool: &Value) -> Result<ToolFunction, ApiError> {
    let Value::Object(map) = tool else { return Err(ApiError::found(path, "an object", tool)) };
    let tool = Fields::at(map, &format!("{path}."));
    if let Some(kind) = tool.value("type").filter(|kind| kind.as_str() != Some("function")) {
        return Err(ApiError::found(tool.path("type"), "function", kind));
    }
    let Some(map) = tool.object("function")? else {
        return Err(ApiError::field(tool.path("function"), "must be an object, found none"));
    };
    let function = Fields::at(map, &format!("{path}.function."));
    let name = function.text("name")?.unwrap_or("");
    if name.is_empty() || name.len() > MAX_NAME_BYTES {
        let reason = format!("must be a text of 1 to {MAX_NAME_BYTES} bytes");
        return Err(ApiError::field(function.path("name"), reason));
    }
    let schema = function.object("parameters")?.cloned().map_or_else(
        || "{\"type\":\"object\"}".to_owned(),
        |parameters| Value::Object(parameters).to_string(),
    );
    // The template shows the description; calls that are required follow their schema anyway.
    function.ignore(&["description", "strict"]);
    tool.done_with(&function);
    fields.done_with(&tool);
    Ok(ToolFunction { name: name.to_owned(), schema })
}

/// What `tool_choice` says of the declared functions.
pub(crate) fn choice(fields: &Fields<'_>, functions: Vec<ToolFunction>) -> Result<Choice, ApiError> {
    const CHOICE: &str = "none, auto, required or a function by name";
    let value = fields.value("tool_choice");
    let named = match value {
        None if functions.is_empty() => return Ok(Choice::None),
        None => return Ok(Choice::Auto),
        Some(Value::String(choice)) => match choice.as_str() {
            "none" => return Ok(Choice::None),
            "auto" if functions.is_empty() => return Ok(Choice::None),
            "auto" => return Ok(Choice::Auto),
            "required" => None,
            _ => return Err(ApiError::found("tool_choice", CHOICE, &Value::from(choice.as_str()))),
        },
        Some(Value::Object(map)) => {
            let choice = Fields::at(map, "tool_choice.");
            let name = choice.object("function")?.and_then(|function| function.get("name")?.as_str());
            let Some(name) = name else {
                return Err(ApiError::field("tool_choice", format!("must be {CHOICE}")));
            };
            Some(name)
        }
        Some(other) => return Err(ApiError::found("tool_choice", CHOICE, other)),
    };
    let may = |function: &ToolFunction| named.is_none_or(|name| function.name == name);
    let functions: Vec<ToolFunction> = functions.into_iter().filter(may).collect();
    match functions.is_empty() {
        true => Err(ApiError::field("tool_choice", "asks for a function that `tools` does not declare")),
        false => Ok(Choice::Required(functions)),
    }
}
