//! How a request's body is taken: no larger and no slower than allowed, and read by a thread that may take its time.

use std::error::Error;
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::Request;
use axum::http::StatusCode;
use axum::http::header::CONTENT_LENGTH;
use http_body_util::LengthLimitError;
use tokio::sync::Semaphore;
use tokio::time::timeout;

use crate::app::App;
use crate::error::ApiError;

/// The body.
pub(crate) async fn read(app: &App, request: Request) -> Result<Bytes, ApiError> {
    let limit = app.info.max_body_bytes;
    let announced =
        request.headers().get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
    // Refused before any of it is read.
    if announced.is_some_and(|bytes: u64| bytes > limit as u64) {
        return Err(too_large(limit));
    }
    let patience = Duration::from_secs(app.info.body_seconds);
    match timeout(patience, axum::body::to_bytes(request.into_body(), limit)).await {
        Ok(Ok(bytes)) => Ok(bytes),
        Ok(Err(error)) if is_limit(&error) => Err(too_large(limit)),
        Ok(Err(error)) => Err(ApiError::invalid(format!("the body broke off: {error}"))),
        Err(_) => {
            let message = format!("the body did not arrive within {} s", patience.as_secs());
            Err(ApiError::new(StatusCode::REQUEST_TIMEOUT, "body_timeout", message))
        }
    }
}

fn too_large(limit: usize) -> ApiError {
    let message = format!("the body is larger than {limit} bytes");
    ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, "body_too_large", message)
}

fn is_limit(error: &axum::Error) -> bool {
    error.source().is_some_and(|cause| cause.is::<LengthLimitError>())
}

/// Bodies that are parsed at once. Tokenizing a text takes a hundred times its bytes.
const READERS: u32 = 8;

/// Bytes of a body that is parsed alone.
const LARGE_BYTES: usize = 1 << 20;

static READING: Semaphore = Semaphore::const_new(READERS as usize);

/// Runs what may take some milliseconds (parsing, tokenizing, compiling a grammar) where no socket waits for it, `bytes`
/// being those of the body.
pub(crate) async fn off_thread<T: Send + 'static>(
    bytes: usize,
    work: impl FnOnce() -> Result<T, ApiError> + Send + 'static,
) -> Result<T, ApiError> {
    let readers = if bytes > LARGE_BYTES { READERS } else { 1 };
    // Never closed, so there is always a turn.
    let _turn = READING.acquire_many(readers).await;
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|error| Err(ApiError::internal(format!("a request could not be read: {error}"))))
}
