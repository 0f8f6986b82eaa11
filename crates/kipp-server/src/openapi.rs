//! The interface as a document for machines. It is written by hand, because it says more than types can: ranges, policies,
//! what is refused.

use axum::body::Body;
use axum::http::HeaderValue;
use axum::http::header::CONTENT_TYPE;
use axum::response::Response;

const DOCUMENT: &str = include_str!("openapi.json");

/// The document.
pub(crate) async fn document() -> Response {
    let mut response = Response::new(Body::from(DOCUMENT));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}
