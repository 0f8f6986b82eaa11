//! `/tokenize`, `/detokenize` and `/tokenizer_info`: what the model would read, and back.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::response::Response;
use kipp::chat::{ChatFormat, Conversation};
use serde_json::{Map, Value, json};

use crate::app::App;
use crate::error::ApiError;
use crate::fields::{Fields, parse_body};
use crate::sse::json;
use crate::terms::ids;
use crate::{body, chat};

/// The tokens and the template that clients need who take `/tokenize` for their tokenizer, as lm-eval does.
pub(crate) async fn tokenizer_info(State(app): State<Arc<App>>) -> Response {
    let tokenizer = &app.info.tokenizer;
    let end = app.info.end_tokens.first().map(|id| String::from_utf8_lossy(tokenizer.token_bytes(*id)));
    json(&json!({
        "eos_token": end,
        "bos_token": null,
        "pad_token": null,
        "chat_template": app.info.chat.as_ref().map(ChatFormat::source),
    }))
}

/// A raw prompt, or messages through the template.
pub(crate) async fn tokenize(State(app): State<Arc<App>>, request: Request) -> Result<Response, ApiError> {
    let bytes = body::read(&app, request).await?;
    let tokens = body::off_thread(bytes.len(), move || tokens_of(&app, &parse_body(&bytes)?)).await?;
    Ok(json(&tokens))
}

fn tokens_of(app: &App, map: &Map<String, Value>) -> Result<Value, ApiError> {
    let fields = Fields::of(map);
    app.check_model(&fields)?;
    let prompt = fields.text("prompt")?;
    let tokens = if fields.value("messages").is_some() {
        if prompt.is_some() {
            return Err(ApiError::field("prompt", "cannot be had together with `messages`"));
        }
        if fields.value("chat_template").is_some() {
            return Err(ApiError::field("chat_template", "is not taken: the model's own is used"));
        }
        fields.ignore(&["tools", "chat_template_kwargs", "enable_thinking", "add_generation_prompt"]);
        let mut conversation = Conversation::from_fields(map)?;
        let thinking = chat::enable_thinking(&fields, "reasoning_effort")?;
        conversation.enable_thinking = conversation.enable_thinking.or(thinking);
        chat::format(app)?.prompt(&conversation)?.ids
    } else {
        let Some(prompt) = prompt else {
            return Err(ApiError::field("prompt", "or `messages` must be there"));
        };
        app.encode(prompt)?
    };
    app.check_unknown(fields.unknown())?;
    let (count, max_model_len) = (tokens.len(), app.info.context_tokens);
    Ok(json!({"tokens": tokens, "count": count, "max_model_len": max_model_len}))
}

/// Text, control tokens included.
pub(crate) async fn detokenize(State(app): State<Arc<App>>, request: Request) -> Result<Response, ApiError> {
    let bytes = body::read(&app, request).await?;
    let prompt = body::off_thread(bytes.len(), move || {
        let map = parse_body(&bytes)?;
        let fields = Fields::of(&map);
        app.check_model(&fields)?;
        let Some(tokens) = ids(&fields, "tokens")? else {
            return Err(ApiError::field("tokens", "must be a list of token ids, found none"));
        };
        app.check_unknown(fields.unknown())?;
        Ok(app.info.tokenizer.decode(&tokens, false)?)
    });
    Ok(json(&json!({"prompt": prompt.await?})))
}
