//! The grammar of tool calls as Qwen's templates ask for them: `<tool_call>`, a JSON object of a name and arguments, and
//! `</tool_call>`, the marks being tokens of the vocabulary.

use std::fmt::Write as _;

use serde_json::Value;

/// A function that may be called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolFunction {
    /// Its name.
    pub name: String,
    /// A JSON schema of its arguments, as JSON text.
    pub schema: String,
}

/// One call or, with `parallel`, several, of these functions, as a Lark grammar. `schemas` are those of the functions,
/// checked.
pub(super) fn lark(functions: &[ToolFunction], schemas: &[Value], parallel: bool) -> String {
    let more = if parallel { " (\"\\n\" call)*" } else { "" };
    let rules: Vec<String> = (0..functions.len()).map(|n| format!("f{n}")).collect();
    let rules = rules.join(" | ");
    let mut lark =
        format!("start: call{more}\ncall: <tool_call> \"\\n\" body \"\\n\" </tool_call>\nbody: {rules}\n");
    for (n, (function, schema)) in functions.iter().zip(schemas).enumerate() {
        let name = Value::from(function.name.as_str());
        let head = Value::from(format!("{{\"name\": {name}, \"arguments\": "));
        // Writing to a text cannot fail.
        let _ = writeln!(lark, "f{n}: {head} a{n} \"}}\"\na{n}: %json {schema}");
    }
    lark
}
