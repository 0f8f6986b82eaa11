//! The end of a server: what runs may end, nothing new is taken, and what takes too long is told.

use std::time::Duration;

use serde_json::json;

use crate::client;
use crate::served::served_with;

const PATH: &str = "/v1/completions";

fn body(max_tokens: usize, stream: bool) -> Vec<u8> {
    json!({"prompt": "Once upon a time", "max_tokens": max_tokens, "ignore_eos": true, "stream": stream})
        .to_string()
        .into_bytes()
}

#[test]
fn running_answers_end_and_new_ones_are_refused() {
    let server = served_with(|_| {});
    let mut running = client::send(server.port, "POST", PATH, &[], Some(&body(600, true)));
    while server.metric("kipp_requests_running") < 1.0 {
        std::thread::sleep(Duration::from_millis(5));
    }
    server.drain();
    while server.get("/health").status == 200 {
        std::thread::sleep(Duration::from_millis(5));
    }
    let refused = client::request(server.port, "POST", PATH, &[], Some(&body(1, false)));
    assert_eq!((refused.status, &refused.json()["error"]["code"]), (503, &json!("draining")));
    assert!(client::read(&mut running).unwrap().events().len() > 10, "it ends as if nothing had happened");
    while !server.is_over() {
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn what_takes_too_long_ends_with_an_error_and_no_done() {
    let server = served_with(|settings| settings.patience.drain = Duration::from_millis(50));
    let mut stream = client::send(server.port, "POST", PATH, &[], Some(&body(1900, true)));
    let mut whole = client::send(server.port, "POST", PATH, &[], Some(&body(1900, false)));
    while server.metric("kipp_requests_running") < 2.0 {
        std::thread::sleep(Duration::from_millis(5));
    }
    server.drain();
    let text = client::read(&mut stream).unwrap().text();
    let last = text.trim_end().rsplit("data: ").next().unwrap();
    let error: serde_json::Value = serde_json::from_str(last).unwrap();
    assert_eq!(error["error"]["code"], "draining");
    assert!(!text.contains("[DONE]"));
    assert_eq!(client::read(&mut whole).unwrap().status, 503);
}
