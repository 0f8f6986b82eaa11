//! Clients that leave, read nothing, or are many.

use std::io::Read;
use std::time::Duration;

use serde_json::{Value, json};

use crate::client;
use crate::served::{Served, served, served_with};

const PATH: &str = "/v1/completions";
/// Within which what a client leaves behind must be free; the machine may be busy with other tests.
const SOON: Duration = Duration::from_secs(5);

fn long(stream: bool) -> Value {
    json!({"prompt": "Once upon a time", "max_tokens": 1500, "ignore_eos": true, "stream": stream, "n": 2})
}

fn send(server: &Served, body: &Value) -> std::net::TcpStream {
    client::send(server.port, "POST", PATH, &[], Some(body.to_string().as_bytes()))
}

fn wait_for(server: &Served, name: &str, count: f64) {
    let started = std::time::Instant::now();
    while server.metric(name) < count {
        assert!(started.elapsed() < Duration::from_secs(20), "{name} never reached {count}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn h21_a_client_that_leaves_frees_its_blocks() {
    let server = served();
    for stream in [true, false] {
        let before = server.metric("kipp_generation_tokens_total");
        let mut left = send(&server, &long(stream));
        if stream {
            left.read_exact(&mut [0; 400]).unwrap();
        } else {
            wait_for(&server, "kipp_generation_tokens_total", before + 3.0);
        }
        drop(left);
        server.wait_until_quiet(SOON);
        assert!(server.metric("kipp_generation_tokens_total") < before + 2.0 * 1500.0);
    }
}

#[test]
fn h21_leaving_in_the_queue_or_at_any_time_harms_nobody() {
    let server = served_with(|settings| settings.engine.max_sequences = 1);
    let mine = json!({"prompt": "The dog", "max_tokens": 60, "temperature": 0, "ignore_eos": true});
    let alone = server.ok(PATH, &mine)["choices"].clone();
    let mut others = Vec::new();
    for n in 0..40 {
        others.push(send(&server, &long(n % 2 == 0)));
        if n % 3 == 0 {
            others.remove(0);
        }
    }
    let mut kept = send(&server, &mine);
    drop(others);
    assert_eq!(client::read(&mut kept).unwrap().json()["choices"], alone);
    server.wait_until_quiet(SOON);
}

#[test]
fn a_full_queue_says_when_to_come_back() {
    let server = served_with(|settings| {
        settings.engine.max_sequences = 1;
        settings.engine.max_waiting = 1;
    });
    let mut one = long(true);
    one["n"] = json!(1);
    let _running = send(&server, &one);
    wait_for(&server, "kipp_requests_running", 1.0);
    let _waiting = send(&server, &one);
    wait_for(&server, "kipp_requests_waiting", 1.0);
    let refused = server.post(PATH, &one);
    assert_eq!((refused.status, &refused.json()["error"]["code"]), (429, &json!("queue_full")));
    assert!(refused.header("retry-after").is_some());
    assert_eq!(server.get("/health").status, 200);
}

#[test]
fn h24_a_long_prompt_does_not_keep_a_short_one_waiting() {
    let server = served_with(|settings| settings.engine.step_tokens = 64);
    let long_prompt: Vec<u32> = (0..1800).map(|n| 300 + (n * 7) % 3000).collect();
    let long = json!({"prompt": long_prompt, "max_tokens": 100, "ignore_eos": true});
    let mut still = send(&server, &long);
    wait_for(&server, "kipp_requests_running", 1.0);
    let short = server.ok(PATH, &json!({"prompt": "The dog", "max_tokens": 2, "ignore_eos": true}));
    assert_eq!(short["usage"]["completion_tokens"], 2);
    still.set_nonblocking(true).unwrap();
    let unread = still.read(&mut [0; 1]).unwrap_err();
    assert_eq!(unread.kind(), std::io::ErrorKind::WouldBlock, "the long one is still on its way");
}
