//! Keys, origins and request ids.

use std::io::Read;
use std::time::{Duration, Instant};

use kipp_server::LogLine;
use serde_json::json;

use crate::client;
use crate::served::{Served, served, served_with};

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

/// The line of a request, which is written once its answer has been sent.
fn line_of(server: &Served, wanted: &str) -> LogLine {
    let started = Instant::now();
    loop {
        let lines = server.log.lock().unwrap();
        let line = lines.iter().find(|line| matches!(line, LogLine::Request { id, .. } if id == wanted));
        if let Some(line) = line {
            return line.clone();
        }
        drop(lines);
        assert!(started.elapsed() < Duration::from_secs(10), "no line of {wanted}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_request_keeps_its_id_and_is_logged() {
    let server = served();
    let answer = client::request(server.port, "GET", "/health", &[("X-Request-Id", "mine-1")], None);
    assert_eq!(answer.header("x-request-id"), Some("mine-1"));
    let answer = client::request(server.port, "GET", "/health", &[("X-Request-Id", &"x".repeat(500))], None);
    assert!(answer.header("x-request-id").unwrap().starts_with("req-"));
    let LogLine::Request { endpoint, status, tokens, complete, .. } = line_of(&server, "mine-1") else {
        panic!("no request")
    };
    assert_eq!((endpoint.as_str(), status, tokens, complete), ("/health", 200, None, true));
}

#[test]
fn the_line_of_an_answer_tells_its_tokens_and_its_whole_time() {
    let server = served();
    for stream in [true, false] {
        let id = format!("stream-{stream}");
        let body =
            json!({"prompt": "Once upon a time", "max_tokens": 60, "ignore_eos": true, "stream": stream});
        let started = Instant::now();
        let body = body.to_string();
        let path = "/v1/completions";
        client::request(server.port, "POST", path, &[("X-Request-Id", &id)], Some(body.as_bytes()));
        let took_ms = started.elapsed().as_secs_f64() * 1000.0;
        let LogLine::Request { status: 200, duration_ms, tokens: Some(tokens), complete: true, .. } =
            line_of(&server, &id)
        else {
            panic!("{:?}", line_of(&server, &id))
        };
        assert_eq!(tokens.completion, 60);
        assert!(tokens.prompt > 3 && tokens.cached < tokens.prompt);
        assert!(duration_ms <= took_ms + 100.0, "{duration_ms} {took_ms}");
        // The tokens themselves took time: a line at the head of a stream would tell next to none.
        let decode = server.metric("kipp_inter_token_seconds_sum") * 1000.0;
        assert!(duration_ms > if stream { decode / 2.0 } else { 0.0 }, "{duration_ms} {decode}");
    }
}

#[test]
fn the_line_of_a_client_that_left_says_so() {
    let server = served();
    for (stream, status) in [(true, 200), (false, 499)] {
        let id = format!("left-{stream}");
        let body =
            json!({"prompt": "Once", "max_tokens": 1500, "ignore_eos": true, "stream": stream, "n": 4});
        let body = body.to_string();
        let headers = [("X-Request-Id", id.as_str())];
        let mut left = client::send(server.port, "POST", "/v1/completions", &headers, Some(body.as_bytes()));
        if stream {
            left.read_exact(&mut [0; 400]).unwrap();
        } else {
            std::thread::sleep(Duration::from_millis(100));
        }
        drop(left);
        let LogLine::Request { status: found, complete, .. } = line_of(&server, &id) else { panic!() };
        assert_eq!((found, complete), (status, false));
    }
}
