//! How the server is: for probes, routers and Prometheus.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderValue, StatusCode};
use axum::response::Response;
use serde_json::json;

use crate::app::{App, Phase};
use crate::sse::json;

/// 200 while requests are taken, else 503.
pub(crate) async fn health(State(app): State<Arc<App>>) -> Response {
    let status = match app.phase() {
        Phase::Draining | Phase::Ending => "draining",
        Phase::Serving if !app.engine.is_healthy() => "failed",
        Phase::Serving => "ready",
    };
    let mut response = json(&json!({"status": status}));
    if status != "ready" {
        *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
    }
    response
}

/// Which program this is.
pub(crate) async fn version(State(app): State<Arc<App>>) -> Response {
    json(&json!({"version": app.info.version}))
}

/// Prometheus' text format.
pub(crate) async fn metrics(State(app): State<Arc<App>>) -> Response {
    let vllm_model = app.info.vllm_metrics.then(|| app.model());
    let mut response = Response::new(Body::from(app.metrics.text(&app.engine.stats(), vllm_model)));
    let format = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    response.headers_mut().insert(CONTENT_TYPE, format);
    response
}

/// What a router weighs replicas by.
pub(crate) async fn loads(State(app): State<Arc<App>>) -> Response {
    let stats = app.engine.stats();
    let kv = stats.kv;
    let block_tokens = kipp::kv::BLOCK_TOKENS;
    let busy = kv.used as f64 / kv.total.max(1) as f64;
    let queries = stats.prefix_queries.max(1) as f64;
    json(&json!({
        "dp_rank_count": 1,
        "loads": [{
            "dp_rank": 0,
            "num_running_reqs": stats.running_requests,
            "num_waiting_reqs": stats.waiting_requests,
            "num_total_reqs": stats.running_requests + stats.waiting_requests,
            "num_used_tokens": kv.used * block_tokens,
            "max_total_num_tokens": kv.total * block_tokens,
            "token_usage": busy,
            "cache_hit_rate": stats.prefix_hits as f64 / queries,
        }],
        "running": stats.running_requests,
        "waiting": stats.waiting_requests,
        "kv_blocks": {"total": kv.total, "used": kv.used, "cached": kv.cached, "free": kv.free},
        "draining": app.phase() != Phase::Serving,
    }))
}
