//! A tool call as a model writes it, between its marks.

use serde_json::Value;

use crate::chat::parse_json;

/// A call of a function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Call {
    /// The function.
    pub(super) name: String,
    /// A JSON object, as text.
    pub(super) arguments: String,
}

/// The text between the marks of a call: `None` where it is none.
pub(super) fn parse_call(text: &str) -> Option<Call> {
    let Ok(Value::Object(call)) = parse_json(text.trim()) else { return None };
    let name = call.get("name")?.as_str().filter(|name| !name.is_empty())?.to_owned();
    let arguments = match call.get("arguments") {
        None => "{}".to_owned(),
        Some(arguments @ Value::Object(_)) => arguments.to_string(),
        // Some models write the object as its text.
        Some(Value::String(text)) if matches!(parse_json(text), Ok(Value::Object(_))) => text.clone(),
        Some(_) => return None,
    };
    Some(Call { name, arguments })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_keep_their_arguments_and_others_are_none() {
        let call = parse_call("\n{\"name\": \"f\", \"arguments\": {\"z\": 1e5, \"a\": \"é\"}}\n").unwrap();
        assert_eq!((call.name.as_str(), call.arguments.as_str()), ("f", "{\"z\":1e5,\"a\":\"é\"}"));
        assert_eq!(parse_call("{\"name\": \"f\"}").unwrap().arguments, "{}");
        assert_eq!(parse_call(r#"{"name": "f", "arguments": "{\"a\":1}"}"#).unwrap().arguments, "{\"a\":1}");
        for text in ["", "{", "f(1)", "[]", "{\"name\": \"\"}", "{\"name\": \"f\", \"arguments\": 3}"] {
            assert_eq!(parse_call(text), None, "{text}");
        }
    }
}
