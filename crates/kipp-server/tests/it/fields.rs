//! Fields that are wrong, too large, unknown or absent: the client's fault, by name, and nobody else's trouble.

use kipp_server::LogLine;
use serde_json::{Value, json};

use crate::client;
use crate::served::{served, served_with};

const PATH: &str = "/v1/completions";
const CHAT: &str = "/v1/chat/completions";

fn with(key: &str, value: Value) -> Value {
    let mut body = json!({"prompt": "Once", "max_tokens": 1});
    body[key] = value;
    body
}

fn chat_with(key: &str, value: Value) -> Value {
    let mut body = json!({"messages": [{"role": "user", "content": "hi"}], "max_tokens": 1});
    body[key] = value;
    body
}

#[test]
fn h16_ids_outside_of_the_vocabulary_are_refused_while_others_go_on() {
    let server = served();
    let long = json!({"prompt": "Once upon a time", "max_tokens": 200, "temperature": 0, "ignore_eos": true, "stream": true});
    let alone = server.post(PATH, &long).text().lines().count();
    let mut other = client::send(server.port, "POST", PATH, &[], Some(long.to_string().as_bytes()));
    for key in ["4096", "-1", "9999999999", "abc", ""] {
        assert_eq!(server.refused(PATH, &with("logit_bias", json!({key: 1}))), "logit_bias");
    }
    for value in [json!(101), json!(null), json!("x")] {
        assert_eq!(server.refused(PATH, &with("logit_bias", json!({"5": value}))), "logit_bias");
    }
    for prompt in [json!([4096]), json!([-1]), json!([[-1]]), json!([5_279_552_648_203_111_001_u64])] {
        assert_eq!(server.refused(PATH, &with("prompt", prompt)), "prompt");
    }
    assert_eq!(server.refused(PATH, &with("stop_token_ids", json!([4096]))), "stop_token_ids");
    assert_eq!(client::read(&mut other).unwrap().text().lines().count(), alone);
    // A bias bans the most likely token, or forces another.
    let greedy = json!({"prompt": "Once upon a", "max_tokens": 1, "temperature": 0});
    let first = server.ok(PATH, &greedy)["choices"][0]["text"].clone();
    let id = server.ok("/tokenize", &json!({"prompt": first}))["tokens"][0].to_string();
    let biased = |bias: Value| {
        let mut body = greedy.clone();
        body["logit_bias"] = bias;
        server.ok(PATH, &body)["choices"][0]["text"].clone()
    };
    assert_ne!(biased(json!({ id: -100 })), first);
    assert_eq!(biased(json!({"1234": 100})), server.ok("/detokenize", &json!({"tokens": [1234]}))["prompt"]);
    assert_eq!(biased(json!({})), first);
}

#[test]
fn h18_numbers_out_of_range_are_refused_by_name() {
    let server = served();
    for (key, values) in [
        ("temperature", vec![json!(-1), json!("0.5"), json!([])]),
        ("top_p", vec![json!(-0.1), json!(1.1)]),
        ("min_p", vec![json!(2)]),
        ("top_k", vec![json!(-2), json!(1.5)]),
        ("repetition_penalty", vec![json!(0), json!(1001)]),
        ("presence_penalty", vec![json!(3)]),
        ("frequency_penalty", vec![json!(-3)]),
    ] {
        for value in values {
            assert_eq!(server.refused(PATH, &with(key, value)), key);
        }
        server.ok(PATH, &with(key, json!(null)));
    }
    let infinite = br#"{"prompt": "a", "temperature": 1e999}"#;
    assert_eq!(client::request(server.port, "POST", PATH, &[], Some(infinite)).status, 400);
    for temperature in [json!(0), json!(1e-39), json!(1e30)] {
        server.ok(PATH, &with("temperature", temperature));
    }
}

#[test]
fn h19_a_penalty_changes_a_greedy_answer() {
    let server = served();
    let answer = |penalty: f64| {
        let body = json!({"prompt": "dog dog dog dog", "max_tokens": 40, "temperature": 0, "ignore_eos": true, "frequency_penalty": penalty});
        server.ok(PATH, &body)["choices"][0]["text"].clone()
    };
    assert_ne!(answer(0.0), answer(2.0));
    assert_eq!(answer(2.0), answer(2.0));
}

#[test]
fn h20_content_in_all_its_forms() {
    let server = served();
    let tokens = |messages: Value| {
        let body = json!({"messages": messages});
        server.ok("/tokenize", &body)["tokens"].clone()
    };
    let call = json!([{"id": "1", "type": "function", "function": {"name": "f", "arguments": "{\"x\": 1}"}}]);
    let turn = |content: Option<Value>| {
        let mut turn = json!({"role": "assistant", "tool_calls": call});
        if let Some(content) = content {
            turn["content"] = content;
        }
        tokens(
            json!([{"role": "user", "content": "hi"}, turn, {"role": "tool", "tool_call_id": "1", "content": "r"}]),
        )
    };
    let empty = turn(Some(json!("")));
    assert_eq!((turn(None), turn(Some(json!(null)))), (empty.clone(), empty));
    let user = |content: Value| json!([{"role": "user", "content": content}]);
    let parts = json!([{"type": "text", "text": "foo"}, {"type": "text", "text": "bar"}]);
    assert_eq!(tokens(user(parts)), tokens(user(json!("foobar"))));
    for (messages, param) in [
        (user(json!([])), "messages[0].content"),
        (user(json!(42)), "messages[0].content"),
        (user(json!([{"type": "image_url", "image_url": {"url": "x"}}])), "messages[0].content[0].type"),
        (json!([{"role": "robot", "content": "x"}]), "messages[0].role"),
        (json!([]), "messages"),
        (json!(null), "messages"),
    ] {
        assert_eq!(server.refused(CHAT, &chat_with("messages", messages)), param);
    }
    for (key, value) in [
        ("stop", json!(null)),
        ("stop", json!("x")),
        ("stop", json!(["x"])),
        ("stop", json!([])),
        ("tools", json!(null)),
        ("tools", json!([])),
        ("max_tokens", json!(null)),
        ("no_such_field", json!({"a": 1})),
    ] {
        let answer = server.post(CHAT, &{
            let mut body = chat_with(key, value);
            body["max_completion_tokens"] = json!(2);
            body
        });
        assert_eq!(answer.status, 200, "{key}: {}", answer.text());
        assert!(answer.json()["usage"]["completion_tokens"].as_u64().unwrap() <= 2);
    }
    let none = server.ok(CHAT, &chat_with("max_tokens", json!(0)));
    assert_eq!(
        (&none["choices"][0]["finish_reason"], &none["choices"][0]["message"]["content"]),
        (&json!("length"), &json!(""))
    );
}

#[test]
fn h22_exact_bytes() {
    let server = served();
    let post = |body: &[u8]| client::request(server.port, "POST", CHAT, &[], Some(body));
    let around = |content: &[u8]| {
        [&br#"{"max_tokens": 1, "messages": [{"role": "user", "content": ""#[..], content, br#""}]}"#]
            .concat()
    };
    for content in [&br"x \ud83d"[..], br"\ude00 y", br"\ud83d\ud83d", b"\xff", b"\xc0\x80"] {
        let answer = post(&around(content));
        assert_eq!(answer.status, 400);
        assert!(answer.json()["error"]["message"].is_string());
    }
    for body in [
        &b""[..],
        b"{\"messages\": []} x",
        b"[]",
        b"{\"\\ud83d\": 1}",
        b"{\"stop\": \"\\ud83d\"}",
        b"{\"messages\": [], \"messages\": []}",
    ] {
        assert_eq!(post(body).status, 400);
    }
    assert_eq!(post(&around(br"\ud83d\ude00")).status, 200);
    assert_eq!(post(&around(br"\u0000")).status, 200);
    let tokens = |content: &str| {
        let body = format!(r#"{{"messages": [{{"role": "user", "content": "{content}"}}]}}"#);
        client::request(server.port, "POST", "/tokenize", &[], Some(body.as_bytes())).json()["tokens"].clone()
    };
    assert_eq!(tokens(r"\ud83d\ude00"), tokens("\u{1F600}"));
}

#[test]
fn h23_huge_numbers_and_lists_are_refused_in_a_moment() {
    let server = served();
    let started = std::time::Instant::now();
    for (key, value) in [
        ("n", json!(5_000_000)),
        ("n", json!(0)),
        ("best_of", json!(2)),
        ("logprobs", json!(21)),
        ("stop", json!(vec!["x"; 100_000])),
        ("stop", json!("x".repeat(1_000_000))),
        ("stop", json!(["a", ""])),
        ("prompt", json!(vec!["x"; 10_000])),
        ("max_tokens", json!(1e30)),
        ("max_tokens", json!(-1)),
    ] {
        assert_eq!(server.refused(PATH, &with(key, value)), key);
    }
    assert_eq!(server.refused(CHAT, &chat_with("top_logprobs", json!(1_000_000_000))), "top_logprobs");
    assert_eq!(server.refused(CHAT, &chat_with("top_logprobs", json!(-1))), "top_logprobs");
    let nested = format!(r#"{{"prompt": "a", "x": {}{}}}"#, "[".repeat(100_000), "]".repeat(100_000));
    assert_eq!(client::request(server.port, "POST", PATH, &[], Some(nested.as_bytes())).status, 400);
    assert_eq!(server.get("/health").status, 200);
    assert!(started.elapsed().as_secs() < 20, "{:?}", started.elapsed());
    let large = json!({"prompt": "a", "max_tokens": 9_223_372_036_854_775_808_u64, "temperature": 0});
    server.ok(PATH, &large);
    let long = json!({"prompt": "a b ".repeat(3000)});
    let answer = server.post(PATH, &long);
    assert_eq!((answer.status, &answer.json()["error"]["code"]), (400, &json!("context_length_exceeded")));
    let answer =
        server.post(CHAT, &chat_with("messages", json!([{"role": "user", "content": "a b ".repeat(3000)}])));
    assert_eq!(answer.json()["error"]["code"], "context_length_exceeded");
    assert_eq!(answer.json()["error"]["param"], "messages");
}

#[test]
fn unknown_fields_are_told_once_or_refused() {
    let server = served();
    for _ in 0..3 {
        server.ok(PATH, &with("frobnicate", json!(1)));
    }
    let lines = server.log.lock().unwrap();
    let told = lines.iter().filter(|line| matches!(line, LogLine::Note(text) if text.contains("frobnicate")));
    assert_eq!(told.count(), 1);
    drop(lines);
    let strict = served_with(|settings| settings.info.strict_fields = true);
    assert_eq!(strict.refused(PATH, &with("frobnicate", json!(1))), "frobnicate");
    assert_eq!(strict.refused(CHAT, &chat_with("frobnicate", json!(1))), "frobnicate");
    strict.ok(CHAT, &chat_with("user", json!("u")));
    let tool = json!([{"type": "function", "function": {"name": "f", "strict": true, "frobnicate": 1}}]);
    for (key, value, param) in [
        ("stream_options", json!({"frobnicate": 1}), "stream_options.frobnicate"),
        ("response_format", json!({"type": "json_object", "frobnicate": 1}), "response_format.frobnicate"),
        ("tools", tool, "tools[0].function.frobnicate"),
    ] {
        assert_eq!(strict.refused(CHAT, &chat_with(key, value.clone())), param);
        server.ok(CHAT, &chat_with(key, value));
    }
}
