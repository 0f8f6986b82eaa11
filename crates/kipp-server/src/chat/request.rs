//! From the body of a chat to a request of the engine: messages through the model's template, and grammars for what the
//! answer must match.

use std::sync::Arc;

use kipp::chat::{ChatFormat, Conversation};
use kipp::engine::{Marks, Opening, Request, SplitTerms, Thinking};
use kipp::sampling::constraint::{Grammar, Start};
use serde_json::{Map, Value};

use super::calls::{self, Choice};
use crate::app::App;
use crate::error::ApiError;
use crate::fields::Fields;
use crate::terms::{StreamTerms, Terms, alternatives};

/// A chat that may be run.
pub(crate) struct Prepared {
    pub(crate) request: Request,
    pub(crate) stream: Option<StreamTerms>,
    pub(crate) split: SplitTerms,
}

/// The model's chat format, where it has one.
pub(crate) fn format(app: &App) -> Result<&ChatFormat, ApiError> {
    app.info.chat.as_ref().ok_or_else(|| {
        let message = "the model has no chat template";
        ApiError::new(axum::http::StatusCode::BAD_REQUEST, "model_not_supported", message)
    })
}

impl Prepared {
    pub(crate) fn parse(app: &App, map: &Map<String, Value>) -> Result<Prepared, ApiError> {
        let format = format(app)?;
        let fields = Fields::of(map);
        let terms = Terms::parse(app, &fields)?;
        let logprobs = logprobs(&fields)?;
        let choice = calls::choice(&fields, calls::functions(&fields)?)?;
        let parallel = fields.boolean("parallel_tool_calls")?.unwrap_or(true);
        let conversation = conversation(&fields, map, &choice)?;
        let budget = fields.count("thinking_budget")?;
        let grammar = grammar(&fields, &choice, parallel)?;
        app.check_unknown(fields.unknown())?;

        let prompt = format.prompt(&conversation)?.ids;
        let marks = Marks::of(&app.info.tokenizer);
        let opening = marks.opening(&prompt, &app.info.end_tokens);
        let start = match opening {
            Opening::Begun => Start::Thinking,
            Opening::Closed => Start::Now,
            Opening::Undecided => Start::MayThink,
        };
        let begun = opening == Opening::Begun;
        let thinking = marks.think.zip(marks.think_end).filter(|_| opening != Opening::Closed);
        let thinking = thinking.map(|(open, close)| Thinking { open, close, begun, budget_tokens: budget });
        let mut request = Request { logprobs, thinking, ..terms.request(prompt, usize::MAX) };
        if let Some((grammar, param)) = grammar {
            let Some(compiler) = &app.info.constraints else {
                return Err(ApiError::field(param, "needs end tokens, and this model has none"));
            };
            let constraint =
                compiler.compile(&grammar).map_err(|error| ApiError::of_constraint(&error, param))?;
            request.constraint = Some(constraint.starting(start));
        }
        let stops = Arc::new(terms.stops);
        let split = SplitTerms { marks, opening, calls: choice != Choice::None, stops };
        Ok(Prepared { request, stream: terms.stream, split })
    }
}

/// `logprobs: true` and how many alternatives.
fn logprobs(fields: &Fields<'_>) -> Result<Option<usize>, ApiError> {
    let top = alternatives(fields, "top_logprobs")?;
    match (fields.boolean("logprobs")?.unwrap_or(false), top) {
        (true, top) => Ok(Some(top.unwrap_or(0))),
        (false, None | Some(0)) => Ok(None),
        (false, Some(_)) => Err(ApiError::field("top_logprobs", "needs `logprobs` to be true")),
    }
}

fn conversation(
    fields: &Fields<'_>,
    map: &Map<String, Value>,
    choice: &Choice,
) -> Result<Conversation, ApiError> {
    if fields.boolean("continue_final_message")? == Some(true) {
        return Err(ApiError::field(
            "continue_final_message",
            "is not taken: an answer is a message of its own",
        ));
    }
    if fields.value("chat_template").is_some() {
        return Err(ApiError::field("chat_template", "is not taken: the model's own is used"));
    }
    fields.ignore(&["messages", "chat_template_kwargs", "enable_thinking", "add_generation_prompt"]);
    let mut conversation = Conversation::from_fields(map)?;
    if *choice == Choice::None {
        conversation.tools.clear();
    }
    if conversation.enable_thinking.is_none() {
        conversation.enable_thinking = enable_thinking(fields, "reasoning_effort")?;
    }
    Ok(conversation)
}

/// What the effort of reasoning says about thinking at all; how long it may be is `thinking_budget`'s.
pub(crate) fn enable_thinking(fields: &Fields<'_>, key: &'static str) -> Result<Option<bool>, ApiError> {
    match fields.text(key)? {
        None => Ok(None),
        Some("none" | "minimal") => Ok(Some(false)),
        Some("low" | "medium" | "high" | "xhigh") => Ok(Some(true)),
        Some(other) => {
            let expected = "none, minimal, low, medium, high or xhigh";
            Err(ApiError::found(fields.path(key), expected, &Value::from(other)))
        }
    }
}

/// What the answer must match, and which field asked for it.
fn grammar(
    fields: &Fields<'_>,
    choice: &Choice,
    parallel: bool,
) -> Result<Option<(Grammar, &'static str)>, ApiError> {
    let format = response_format(fields)?;
    match (choice, format) {
        (Choice::Required(_), Some(_)) => {
            Err(ApiError::field("response_format", "cannot be had together with required tool calls"))
        }
        (Choice::Required(functions), None) => {
            // Who names a function wants one call of it.
            let parallel = parallel && !matches!(fields.value("tool_choice"), Some(Value::Object(_)));
            let functions = functions.clone();
            Ok(Some((Grammar::ToolCalls { functions, parallel }, "tools")))
        }
        (_, format) => Ok(format.map(|schema| (Grammar::JsonSchema(schema), "response_format"))),
    }
}

/// The schema that `response_format` asks for.
fn response_format(fields: &Fields<'_>) -> Result<Option<String>, ApiError> {
    const KIND: &str = "text, json_object or json_schema";
    let Some(map) = fields.object("response_format")? else { return Ok(None) };
    let format = Fields::at(map, "response_format.");
    let schema = match format.text("type")? {
        Some("text") => None,
        Some("json_object") => Some("{\"type\":\"object\"}".to_owned()),
        Some("json_schema") => Some(json_schema(&format)?),
        other => {
            let found = other.map_or(Value::Null, Value::from);
            return Err(ApiError::found("response_format.type", KIND, &found));
        }
    };
    format.ignore(&["json_schema"]);
    fields.done_with(&format);
    Ok(schema)
}

fn json_schema(format: &Fields<'_>) -> Result<String, ApiError> {
    let Some(map) = format.object("json_schema")? else {
        return Err(ApiError::field(format.path("json_schema"), "must be an object, found none"));
    };
    let inside = Fields::at(map, "response_format.json_schema.");
    // What it is called changes nothing, and it is always followed.
    inside.ignore(&["name", "description", "strict"]);
    let Some(schema) = inside.value("schema") else {
        return Err(ApiError::field(inside.path("schema"), "must be a schema, found none"));
    };
    format.done_with(&inside);
    Ok(schema.to_string())
}
