//! Which path leads where, and what happens to every request on its way: an id, a key, a line in the log, a count.

use std::sync::Arc;

use axum::Router;
use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderName, HeaderValue, Method, StatusCode};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use kipp::engine::EngineHandle;
use tower_http::cors::CorsLayer;

use crate::access_log::Line;
use crate::app::{App, ServerInfo};
use crate::error::ApiError;
use crate::{auth, chat, completions, messages, models, openapi, page, responses, state, tokens};

/// The header that carries a request's id, from the client or ours.
const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// Where errors have Anthropic's shape.
const ANTHROPIC: &str = "/v1/messages";

/// Characters of a client's own request id.
const MAX_ID: usize = 128;

/// The interface over an engine. Drains and limits on connections come with [`crate::Server`].
pub fn router(engine: EngineHandle, info: ServerInfo) -> Router {
    of_app(&Arc::new(App::new(engine, info)))
}

pub(crate) fn of_app(app: &Arc<App>) -> Router {
    let mut router = Router::new()
        .route("/", get(page::document))
        .route("/health", get(state::health))
        .route("/version", get(state::version))
        .route("/metrics", get(state::metrics))
        .route("/openapi.json", get(openapi::document))
        .route("/tokenize", post(tokens::tokenize))
        .route("/detokenize", post(tokens::detokenize))
        .route("/tokenizer_info", get(tokens::tokenizer_info))
        .route("/v1/models", get(models::list))
        .route("/v1/models/{*id}", get(models::one))
        .route("/v1/loads", get(state::loads))
        .route("/v1/completions", post(completions::complete))
        .route("/v1/chat/completions", post(chat::complete))
        .route("/v1/responses", post(responses::create))
        .route("/v1/messages", post(messages::create))
        .route("/v1/messages/count_tokens", post(messages::count_tokens))
        .fallback(no_such_path)
        .method_not_allowed_fallback(no_such_method)
        .layer(from_fn_with_state(Arc::clone(app), auth::check));
    if let Some(cors) = cors(&app.info.cors_origins) {
        router = router.layer(cors);
    }
    router.layer(from_fn_with_state(Arc::clone(app), observe)).with_state(Arc::clone(app))
}

fn cors(origins: &[String]) -> Option<CorsLayer> {
    let origins: Vec<HeaderValue> = origins.iter().filter_map(|origin| origin.parse().ok()).collect();
    if origins.is_empty() {
        return None;
    }
    // The headers that clients in browsers send beside the key are many and harmless.
    let headers = tower_http::cors::AllowHeaders::mirror_request();
    let layer = CorsLayer::new().allow_origin(origins).allow_methods([Method::GET, Method::POST]);
    Some(layer.allow_headers(headers).expose_headers([REQUEST_ID]))
}

async fn no_such_path(request: Request) -> ApiError {
    let path: String = request.uri().path().chars().take(200).collect();
    ApiError::new(StatusCode::NOT_FOUND, "unknown_path", format!("there is no {} {path}", request.method()))
}

async fn no_such_method(request: Request) -> ApiError {
    let message = format!("this path does not take {}", request.method());
    ApiError::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", message)
}

/// Gives every request its id, and tells how it was answered.
async fn observe(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    let given = request.headers().get(REQUEST_ID).and_then(|id| id.to_str().ok());
    let usable = |id: &&str| !id.is_empty() && id.len() <= MAX_ID && id.bytes().all(|b| b.is_ascii_graphic());
    let id = given.filter(usable).map_or_else(|| app.new_id("req-"), str::to_owned);
    let endpoint = request.extensions().get::<MatchedPath>().map_or("other", MatchedPath::as_str).to_owned();
    let line = Line::new(Arc::clone(&app), id.clone(), request.method().to_string(), endpoint);
    let is_anthropic = request.uri().path().starts_with(ANTHROPIC);
    let mut response = next.run(request).await.into_response();
    if let Some(error) = response.extensions_mut().remove::<ApiError>().filter(|_| is_anthropic) {
        response = error.into_anthropic();
    }
    if let Ok(value) = HeaderValue::from_str(&id) {
        response.headers_mut().insert(REQUEST_ID, value);
    }
    app.metrics.answered(line.endpoint(), response.status().as_u16());
    line.with(response)
}
