//! Clients that send too much or too slowly.

use std::io::{Read, Write};
use std::time::{Duration, Instant};

use serde_json::json;

use crate::client;
use crate::served::{served, served_with};

#[test]
fn h23_bodies_beyond_the_limit_are_refused_before_they_come() {
    let server = served_with(|settings| settings.info.max_body_bytes = 1000);
    let started = Instant::now();
    let mut stream = client::connect(server.port);
    stream
        .write_all(b"POST /v1/completions HTTP/1.1\r\nHost: h\r\nContent-Length: 1000000000\r\n\r\n{")
        .unwrap();
    let mut answer = [0; 12];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"HTTP/1.1 413");
    assert!(started.elapsed() < Duration::from_secs(2));
    // Without a length, while it comes.
    let mut stream = client::connect(server.port);
    stream
        .write_all(b"POST /v1/completions HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n800\r\n")
        .unwrap();
    stream.write_all(&[b' '; 0x800]).unwrap();
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"HTTP/1.1 413");
}

#[test]
fn h23_lengths_that_lie_are_refused() {
    let server = served();
    for head in [
        "Transfer-Encoding: chunked\r\n\r\n8000000000000000\r\n",
        "Transfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\n",
        "Content-Length: 5\r\nContent-Length: 6\r\n\r\n",
        "Content-Length: -1\r\n\r\n",
    ] {
        let mut stream = client::connect(server.port);
        stream.write_all(format!("POST /v1/completions HTTP/1.1\r\nHost: h\r\n{head}").as_bytes()).unwrap();
        // The end, as far as this client is concerned.
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        assert!(
            answer.is_empty() || answer.starts_with(b"HTTP/1.1 4"),
            "{}",
            String::from_utf8_lossy(&answer)
        );
    }
    let mut stream = client::connect(server.port);
    stream.write_all(b"GET /health HTTP/1.1\r\nX: ").unwrap();
    let _ = stream.write_all(&vec![b'x'; 200_000]);
    let mut answer = [0; 12];
    if stream.read_exact(&mut answer).is_ok() {
        assert_eq!(&answer, b"HTTP/1.1 431");
    }
    assert_eq!(server.get("/health").status, 200);
}

#[test]
fn h23_slow_heads_bodies_and_idle_connections_are_let_go() {
    let server = served_with(|settings| {
        settings.patience.header = Duration::from_millis(500);
        settings.patience.idle = Duration::from_millis(500);
        settings.info.body_seconds = 1;
    });
    let mut idle = client::connect(server.port);
    let mut slow_head = client::connect(server.port);
    slow_head.write_all(b"GET /health HTT").unwrap();
    let mut slow_body = client::connect(server.port);
    slow_body.write_all(b"POST /tokenize HTTP/1.1\r\nHost: h\r\nContent-Length: 100\r\n\r\n{").unwrap();
    let started = Instant::now();
    assert_eq!(idle.read(&mut [0; 10]).unwrap_or(0), 0, "closed");
    // One byte at a time does not help.
    let mut dripped = 0;
    while slow_head.write_all(b"x").is_ok() && dripped < 100 {
        dripped += 1;
        std::thread::sleep(Duration::from_millis(100));
    }
    assert!(dripped < 100, "let go");
    let mut answer = [0; 12];
    slow_body.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"HTTP/1.1 408");
    assert!(started.elapsed() < Duration::from_secs(20));
}

#[test]
fn many_idle_connections_keep_nobody_out() {
    let server = served();
    let idle: Vec<_> = (0..300).map(|_| client::connect(server.port)).collect();
    assert_eq!(server.get("/health").status, 200);
    server.ok("/tokenize", &json!({"prompt": "a"}));
    drop(idle);
}

#[test]
fn texts_that_only_take_memory_are_refused() {
    let server = served();
    let text = "a".repeat((1 << 20) + 1);
    for path in ["/tokenize", "/v1/completions"] {
        let answer = server.post(path, &json!({"prompt": text}));
        let error = answer.json()["error"].clone();
        assert_eq!((answer.status, &error["code"]), (400, &json!("context_length_exceeded")), "{path}");
        assert_eq!(error["param"], "prompt");
    }
    let words = "a b ".repeat(1 << 16);
    assert!(server.ok("/tokenize", &json!({"prompt": words}))["count"].as_u64().unwrap() > 1 << 16);
}

#[test]
fn a_list_that_the_queue_cannot_hold_is_refused_for_good() {
    let server = served_with(|settings| settings.engine.max_waiting = 2);
    let body = |prompts: usize| json!({"prompt": vec!["Once"; prompts], "max_tokens": 1});
    assert_eq!(server.refused("/v1/completions", &body(3)), "prompt");
    server.ok("/v1/completions", &body(2));
}

/// What no limit foresaw is found while the grammar is followed, and is the request's fault.
#[test]
fn a_grammar_that_cannot_be_followed_is_no_fault_of_the_server() {
    let server = served();
    let schema = json!({"type": "json_schema", "json_schema": {"name": "x", "schema": {"$ref": "#"}}});
    let answer = server.post(
        "/v1/chat/completions",
        &json!({"messages": [{"role": "user", "content": "x"}], "max_tokens": 4, "response_format": schema,
            "chat_template_kwargs": {"enable_thinking": false}}),
    );
    assert_eq!(answer.status, 400, "{}", answer.text());
    let message =
        json!({"messages": [{"role": "assistant", "content": "x"}], "continue_final_message": true});
    assert_eq!(server.refused("/v1/chat/completions", &message), "continue_final_message");
}
