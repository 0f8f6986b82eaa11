//! Keys: whoever has none gets nothing but the server's health. Compared in constant time, so that answers do not tell how
//! much of a key was right.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::header::AUTHORIZATION;
use axum::http::{HeaderMap, Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use subtle::ConstantTimeEq;

use crate::app::App;
use crate::error::ApiError;

/// Paths that need no key: the page is a file that asks for one.
const OPEN: &[&str] = &["/health", "/"];

/// Lets a request through, or not.
pub(crate) async fn check(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    let open = app.info.keys.is_empty()
        || OPEN.contains(&request.uri().path())
        // A browser's preflight carries no key.
        || request.method() == Method::OPTIONS;
    if open || key(request.headers()).is_some_and(|key| is_known(&app.info.keys, key)) {
        return next.run(request).await;
    }
    let message = match key(request.headers()) {
        None => "a key is needed, as `Authorization: Bearer KEY` or `x-api-key: KEY`",
        Some(_) => "the key is none of this server's",
    };
    ApiError::new(StatusCode::UNAUTHORIZED, "invalid_api_key", message).into_response()
}

fn key(headers: &HeaderMap) -> Option<&[u8]> {
    let bearer = headers.get(AUTHORIZATION).map(|value| value.as_bytes());
    let bearer = bearer.and_then(|value| match value.split_at_checked(7) {
        Some((scheme, key)) if scheme.eq_ignore_ascii_case(b"bearer ") => Some(key),
        _ => None,
    });
    bearer.or_else(|| headers.get("x-api-key").map(|value| value.as_bytes()))
}

/// Compares with all keys, whichever it is.
fn is_known(keys: &[String], key: &[u8]) -> bool {
    let equal = keys.iter().map(|known| known.as_bytes().ct_eq(key));
    bool::from(equal.fold(subtle::Choice::from(0), |any, equal| any | equal))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_come_in_two_headers() {
        let mut headers = HeaderMap::new();
        assert_eq!(key(&headers), None);
        headers.insert("x-api-key", "a".parse().unwrap());
        assert_eq!(key(&headers), Some(&b"a"[..]));
        headers.insert(AUTHORIZATION, "bearer b".parse().unwrap());
        assert_eq!(key(&headers), Some(&b"b"[..]));
        let keys = ["a".to_owned(), "bb".to_owned()];
        assert!(is_known(&keys, b"bb") && !is_known(&keys, b"b") && !is_known(&keys, b""));
    }
}
