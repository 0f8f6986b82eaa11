//! `/v1/messages`: Anthropic's interface over the same chats. Requests are turned into OpenAI's form and read by the same
//! code; only the answer's shape is of its own.

mod answer;
mod request;

use std::sync::Arc;

use axum::extract::{Request as HttpRequest, State};
use axum::response::Response;
use serde_json::json;

use crate::app::App;
use crate::body;
use crate::chat::Prepared;
use crate::error::ApiError;
use crate::fields::parse_body;
use crate::running::Running;
use crate::sse;

/// The endpoint.
pub(crate) async fn create(State(app): State<Arc<App>>, request: HttpRequest) -> Result<Response, ApiError> {
    let bytes = body::read(&app, request).await?;
    let preparing = Arc::clone(&app);
    let prepared = body::off_thread(bytes.len(), move || {
        let map = request::as_chat(&preparing, &parse_body(&bytes)?, true)?;
        Prepared::parse(&preparing, &map)
    })
    .await?;
    let streams = prepared.stream.is_some();
    let running = Running::start(&app, vec![prepared.request.clone()], "messages")?;
    Ok(sse::answer(running, answer::Message::new(app, prepared), streams).await)
}

/// How long a prompt is, without an answer to it.
pub(crate) async fn count_tokens(
    State(app): State<Arc<App>>,
    request: HttpRequest,
) -> Result<Response, ApiError> {
    let bytes = body::read(&app, request).await?;
    let tokens = body::off_thread(bytes.len(), move || {
        let map = request::as_chat(&app, &parse_body(&bytes)?, false)?;
        Ok(Prepared::parse(&app, &map)?.request.prompt.len())
    });
    Ok(sse::json(&json!({"input_tokens": tokens.await?})))
}
