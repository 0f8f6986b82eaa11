//! What goes wrong, as HTTP says it: the one place where an error becomes a status and a body. Every error has OpenAI's
//! shape, `{"error": {"message", "type", "param", "code"}}`.

use axum::body::Body;
use axum::http::header::{CONTENT_TYPE, RETRY_AFTER};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use kipp::chat::ChatError;
use kipp::engine::{RequestError, RequestFailure};
use kipp::sampling::SamplingError;
use kipp::sampling::constraint::ConstraintError;
use kipp::tokenizer::TokenizerError;
use serde_json::{Value, json};

/// Seconds after which a client that met a full queue may try again.
const RETRY_SECONDS: u64 = 1;

/// Characters of a client's own text that an error quotes.
const QUOTED: usize = 100;

/// An error on its way to a client.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ApiError {
    pub(crate) status: StatusCode,
    message: String,
    /// The field's path, such as `messages[0].role`.
    param: Option<String>,
    code: Option<&'static str>,
}

impl ApiError {
    pub(crate) fn new(status: StatusCode, code: &'static str, message: impl Into<String>) -> ApiError {
        ApiError { status, message: message.into(), param: None, code: Some(code) }
    }

    /// A request that is wrong as a whole.
    pub(crate) fn invalid(message: impl Into<String>) -> ApiError {
        ApiError { status: StatusCode::BAD_REQUEST, message: message.into(), param: None, code: None }
    }

    /// A field that is wrong.
    pub(crate) fn field(path: impl Into<String>, reason: impl std::fmt::Display) -> ApiError {
        let path = path.into();
        ApiError { message: format!("`{path}` {reason}"), param: Some(path), ..ApiError::invalid("") }
    }

    /// A field of the wrong type or out of its range.
    pub(crate) fn found(path: impl Into<String>, expected: &str, found: &Value) -> ApiError {
        ApiError::field(path, format!("must be {expected}, found {}", quoted(found)))
    }

    pub(crate) fn draining() -> ApiError {
        ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "draining", "the server is shutting down")
    }

    pub(crate) fn unknown_model(name: &str, served: &str) -> ApiError {
        let name = quoted(&Value::from(name));
        let message = format!("the model {name} does not exist; this server has {served:?}");
        ApiError::new(StatusCode::NOT_FOUND, "model_not_found", message).about("model")
    }

    /// A text too long to be looked at.
    pub(crate) fn text_too_long(bytes: usize, limit: usize) -> ApiError {
        let message = format!("`prompt` has {bytes} bytes, at most {limit} are read");
        ApiError::new(StatusCode::BAD_REQUEST, "context_length_exceeded", message).about("prompt")
    }

    /// Something of ours failed.
    pub(crate) fn internal(message: impl Into<String>) -> ApiError {
        ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "internal_error", message)
    }

    /// The same of a request whose fields go by other names: pairs of ours and theirs, of which the first that fits counts.
    pub(crate) fn renamed(mut self, names: &[(&str, &str)]) -> ApiError {
        let param = self.param.as_deref().unwrap_or_default();
        let fits =
            |(ours, _): &&(&str, &str)| param.strip_prefix(ours).is_some_and(|rest| !rest.starts_with('_'));
        if let Some((ours, theirs)) = names.iter().find(fits) {
            self.param = Some(param.replacen(ours, theirs, 1));
            self.message = self.message.replacen(ours, theirs, 1);
        }
        // Functions are declared flat there.
        if let Some(param) = &mut self.param {
            self.message = self.message.replace(".function.", ".");
            *param = param.replace(".function.", ".");
        }
        self
    }

    fn about(self, param: impl Into<String>) -> ApiError {
        ApiError { param: Some(param.into()), ..self }
    }

    /// The body, also that of an event in a stream that had begun.
    pub(crate) fn body(&self) -> Value {
        let kind = match self.status {
            StatusCode::UNAUTHORIZED => "authentication_error",
            StatusCode::TOO_MANY_REQUESTS => "rate_limit_error",
            status if status.is_server_error() => "server_error",
            _ => "invalid_request_error",
        };
        json!({"error": {"message": self.message, "type": kind, "param": self.param, "code": self.code}})
    }

    /// The same in Anthropic's shape.
    pub(crate) fn anthropic_body(&self) -> Value {
        let kind = match self.status {
            StatusCode::UNAUTHORIZED => "authentication_error",
            StatusCode::NOT_FOUND => "not_found_error",
            StatusCode::PAYLOAD_TOO_LARGE => "request_too_large",
            StatusCode::TOO_MANY_REQUESTS => "rate_limit_error",
            StatusCode::SERVICE_UNAVAILABLE => "overloaded_error",
            status if status.is_server_error() => "api_error",
            _ => "invalid_request_error",
        };
        json!({"type": "error", "error": {"type": kind, "message": self.message}})
    }

    pub(crate) fn into_anthropic(self) -> Response {
        let body = self.anthropic_body();
        self.response(&body)
    }

    fn response(self, body: &Value) -> Response {
        let mut response = Response::new(Body::from(body.to_string()));
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if matches!(self.status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE) {
            headers.insert(RETRY_AFTER, HeaderValue::from(RETRY_SECONDS));
        }
        // For whoever must say it in another shape.
        response.extensions_mut().insert(self);
        response
    }

    /// What the engine refuses; `prompt_field` is where its prompt came from.
    pub(crate) fn of_request(error: RequestError, prompt_field: &str) -> ApiError {
        let message = error.to_string();
        let invalid = ApiError::invalid(message.clone());
        match error {
            RequestError::EmptyPrompt => invalid.about(prompt_field),
            RequestError::PromptTooLong { .. } => {
                let code = "context_length_exceeded";
                ApiError::new(StatusCode::BAD_REQUEST, code, message).about(prompt_field)
            }
            RequestError::Token { field, .. } | RequestError::OutOfRange { field, .. } => {
                invalid.about(field)
            }
            RequestError::EmptyStop | RequestError::NoTokenizer => invalid.about("stop"),
            RequestError::Sampling(error) => error.into(),
            RequestError::QueueFull { .. } => {
                ApiError::new(StatusCode::TOO_MANY_REQUESTS, "queue_full", message)
            }
            RequestError::Unhealthy | RequestError::Closed => {
                ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "engine_unavailable", message)
            }
        }
    }

    /// What a grammar's error means where `param` asked for it.
    pub(crate) fn of_constraint(error: &ConstraintError, param: &str) -> ApiError {
        let status = match error {
            ConstraintError::Busy { .. } | ConstraintError::NoThread { .. } => {
                return ApiError::new(StatusCode::TOO_MANY_REQUESTS, "grammars_busy", error.to_string());
            }
            _ => ApiError::invalid(error.to_string()),
        };
        status.about(param)
    }
}

impl From<SamplingError> for ApiError {
    fn from(error: SamplingError) -> ApiError {
        let field = match &error {
            SamplingError::OutOfRange { field, .. } => field,
            SamplingError::Bias { .. } | SamplingError::BiasId { .. } => "logit_bias",
        };
        ApiError::invalid(error.to_string()).about(field)
    }
}

impl From<ChatError> for ApiError {
    fn from(error: ChatError) -> ApiError {
        let param = match &error {
            ChatError::Field { path, .. } => path.clone(),
            _ => "messages".to_owned(),
        };
        ApiError::invalid(error.to_string()).about(param)
    }
}

impl From<TokenizerError> for ApiError {
    fn from(error: TokenizerError) -> ApiError {
        ApiError::invalid(error.to_string()).about("tokens")
    }
}

impl From<RequestFailure> for ApiError {
    fn from(failure: RequestFailure) -> ApiError {
        match failure {
            RequestFailure::Closed => ApiError::draining(),
            // Which grammars are too much is known only while they are followed.
            RequestFailure::Constraint(
                error @ (ConstraintError::TooComplex { .. } | ConstraintError::MaskTooSlow { .. }),
            ) => ApiError::new(StatusCode::BAD_REQUEST, "grammar_too_complex", error.to_string()),
            failure => ApiError::internal(failure.to_string()),
        }
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let body = self.body();
        self.response(&body)
    }
}

/// A value as an error quotes it: short, and without control characters.
fn quoted(found: &Value) -> String {
    let text = match found {
        Value::Array(items) => return format!("a list of {}", items.len()),
        Value::Object(_) => return "an object".to_owned(),
        Value::Null => return "none".to_owned(),
        scalar => scalar.to_string(),
    };
    let mut shown: String = text.chars().take(QUOTED).filter(|c| !c.is_control()).collect();
    if text.chars().nth(QUOTED).is_some() {
        shown.push('…');
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_body_has_openais_shape() {
        let error = ApiError::found("messages[0].role", "a role", &json!(3)).body();
        assert_eq!(
            error,
            json!({"error": {
                "message": "`messages[0].role` must be a role, found 3",
                "type": "invalid_request_error", "param": "messages[0].role", "code": null,
            }})
        );
    }

    #[test]
    fn a_full_queue_says_when_to_come_back() {
        let error = ApiError::of_request(RequestError::QueueFull { waiting: 3 }, "prompt").into_response();
        assert_eq!((error.status().as_u16(), &error.headers()[RETRY_AFTER]), (429, &HeaderValue::from(1)));
    }

    #[test]
    fn long_texts_are_quoted_in_part() {
        let error = ApiError::found("stop", "short", &json!("x\u{1b}".repeat(5000)));
        assert!(error.message.len() < 300 && error.message.ends_with('…'), "{}", error.message);
    }
}
