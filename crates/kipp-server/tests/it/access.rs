//! Keys, origins and request ids.

use kipp_server::LogLine;
use serde_json::json;

use crate::client;
use crate::served::{served, served_with};

#[test]
fn nothing_but_health_without_a_key() {
    let server = served_with(|settings| settings.info.keys = vec!["sk-one".to_owned(), "sk-two".to_owned()]);
    assert_eq!(server.get("/health").status, 200);
    for path in ["/v1/models", "/metrics", "/version", "/openapi.json", "/nowhere"] {
        let answer = server.get(path);
        assert_eq!(
            (answer.status, &answer.json()["error"]["code"]),
            (401, &json!("invalid_api_key")),
            "{path}"
        );
    }
    for (header, value, status) in [
        ("Authorization", "Bearer sk-two", 200),
        ("x-api-key", "sk-one", 200),
        ("Authorization", "Bearer sk-on", 401),
        ("Authorization", "Basic sk-one", 401),
        ("x-api-key", "", 401),
    ] {
        let answer = client::request(server.port, "GET", "/v1/models", &[(header, value)], None);
        assert_eq!(answer.status, status, "{header}: {value}");
    }
}

#[test]
fn origins_are_allowed_by_name_only() {
    let server =
        served_with(|settings| settings.info.cors_origins = vec!["http://localhost:3000".to_owned()]);
    let allowed = |origin| {
        let headers = [("Origin", origin), ("Access-Control-Request-Method", "POST")];
        let answer = client::request(server.port, "OPTIONS", "/v1/completions", &headers, None);
        answer.header("access-control-allow-origin").map(str::to_owned)
    };
    assert_eq!(allowed("http://localhost:3000").as_deref(), Some("http://localhost:3000"));
    assert_eq!(allowed("http://evil.example"), None);
    let plain = served();
    let answer = client::request(plain.port, "GET", "/health", &[("Origin", "http://localhost:3000")], None);
    assert_eq!(answer.header("access-control-allow-origin"), None);
}

#[test]
fn a_request_keeps_its_id_and_is_logged() {
    let server = served();
    let answer = client::request(server.port, "GET", "/health", &[("X-Request-Id", "mine-1")], None);
    assert_eq!(answer.header("x-request-id"), Some("mine-1"));
    let answer = client::request(server.port, "GET", "/health", &[("X-Request-Id", &"x".repeat(500))], None);
    assert!(answer.header("x-request-id").unwrap().starts_with("req-"));
    let lines = server.log.lock().unwrap();
    assert!(lines.iter().any(|line| matches!(
        line,
        LogLine::Request { id, endpoint, status: 200, .. } if id == "mine-1" && endpoint == "/health"
    )));
}
