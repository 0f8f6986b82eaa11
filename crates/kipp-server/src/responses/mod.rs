//! `/v1/responses`: OpenAI's newer interface over the same chats, without a store. Requests are turned into chats and read
//! by the same code; what is of its own is the form of the conversation, the answer's items, and the events that build them.

mod answer;
mod input;
mod output;
mod request;

use std::sync::Arc;

use axum::extract::{Request as HttpRequest, State};
use axum::response::Response;

use crate::app::App;
use crate::body;
use crate::chat::Prepared;
use crate::error::ApiError;
use crate::fields::parse_body;
use crate::running::Running;
use crate::sse;

/// Where a chat's fields stand in a request of this form.
const NAMES: &[(&str, &str)] = &[
    ("response_format.json_schema", "text.format"),
    ("response_format", "text.format"),
    ("max_tokens", "max_output_tokens"),
    ("messages", "input"),
];

/// The endpoint.
pub(crate) async fn create(State(app): State<Arc<App>>, request: HttpRequest) -> Result<Response, ApiError> {
    let bytes = body::read(&app, request).await?;
    let preparing = Arc::clone(&app);
    let (prepared, asked) = body::off_thread(bytes.len(), move || {
        let asked = request::Asked::parse(&preparing, &parse_body(&bytes)?)?;
        let prepared = Prepared::parse(&preparing, &asked.chat).map_err(|error| error.renamed(NAMES))?;
        Ok((prepared, asked))
    })
    .await?;
    let streams = prepared.stream.is_some();
    let running = Running::start(&app, vec![prepared.request.clone()], "input")?;
    Ok(sse::answer(running, answer::Answer::new(app, prepared, asked), streams).await)
}
