//! `/v1/chat/completions`: messages in; thinking, content and tool calls out.

mod answer;
mod calls;
mod request;

use std::sync::Arc;

use axum::extract::{Request as HttpRequest, State};
use axum::response::Response;

pub(crate) use answer::append;
pub(crate) use request::{Prepared, enable_thinking, format};

use crate::app::App;
use crate::body;
use crate::error::ApiError;
use crate::fields::parse_body;
use crate::running::Running;
use crate::sse;

/// The endpoint.
pub(crate) async fn complete(
    State(app): State<Arc<App>>,
    request: HttpRequest,
) -> Result<Response, ApiError> {
    let bytes = body::read(&app, request).await?;
    let preparing = Arc::clone(&app);
    let prepared =
        body::off_thread(bytes.len(), move || Prepared::parse(&preparing, &parse_body(&bytes)?)).await?;
    let streams = prepared.stream.is_some();
    let running = Running::start(&app, vec![prepared.request.clone()], "messages")?;
    Ok(sse::answer(running, answer::Chat::new(app, prepared), streams).await)
}
