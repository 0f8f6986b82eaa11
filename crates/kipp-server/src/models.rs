//! `/v1/models`: the one model, under each of its names.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::response::Response;
use serde_json::{Value, json};

use crate::app::App;
use crate::error::ApiError;
use crate::sse::json;

/// All names.
pub(crate) async fn list(State(app): State<Arc<App>>) -> Response {
    let data: Vec<Value> = app.info.names.iter().map(|name| entry(&app, name)).collect();
    json(&json!({"object": "list", "data": data}))
}

/// One name; it may have slashes.
pub(crate) async fn one(State(app): State<Arc<App>>, Path(id): Path<String>) -> Result<Response, ApiError> {
    app.check_name(&id)?;
    Ok(json(&entry(&app, &id)))
}

fn entry(app: &App, name: &str) -> Value {
    json!({
        "id": name,
        "object": "model",
        "created": app.info.created,
        "owned_by": "kipp",
        "root": app.model(),
        "max_model_len": app.info.context_tokens,
    })
}
