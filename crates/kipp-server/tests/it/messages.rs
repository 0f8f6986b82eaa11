//! Anthropic's form of the same chats: blocks, events, errors.

use serde_json::{Value, json};

use crate::served::{served, served_with};

const PATH: &str = "/v1/messages";

fn body() -> Value {
    json!({"messages": [{"role": "user", "content": "Tell me a story about a dog."}], "max_tokens": 60, "temperature": 0})
}

/// The named events of a stream.
fn events(text: &str) -> Vec<Value> {
    let mut events = Vec::new();
    for event in text.split("\n\n").filter(|event| !event.is_empty()) {
        let (name, data) = event.split_once('\n').unwrap();
        let data: Value = serde_json::from_str(data.strip_prefix("data: ").unwrap()).unwrap();
        assert_eq!(name.strip_prefix("event: "), data["type"].as_str());
        events.push(data);
    }
    events
}

#[test]
fn blocks_whole_and_as_events() {
    let server = served();
    for thinking in [json!(null), json!({"type": "enabled", "budget_tokens": 1024})] {
        let mut body = body();
        body["thinking"] = thinking.clone();
        let whole = server.ok(PATH, &body);
        let kinds: Vec<&str> = whole["content"]
            .as_array()
            .unwrap()
            .iter()
            .map(|block| block["type"].as_str().unwrap())
            .collect();
        assert_eq!(kinds, if thinking.is_null() { vec!["text"] } else { vec!["thinking", "text"] });
        assert_eq!((&whole["type"], &whole["role"]), (&json!("message"), &json!("assistant")));

        body["stream"] = json!(true);
        let events = events(&server.post(PATH, &body).text());
        assert_eq!(events.first().unwrap()["type"], "message_start");
        assert_eq!(events.last().unwrap()["type"], "message_stop");
        let mut blocks: Vec<Value> = Vec::new();
        for event in &events {
            match event["type"].as_str().unwrap() {
                "content_block_start" => {
                    assert_eq!(event["index"], blocks.len());
                    blocks.push(event["content_block"].clone());
                }
                "content_block_delta" => {
                    let (block, delta) = (blocks.last_mut().unwrap(), &event["delta"]);
                    let key = if delta["type"] == "text_delta" { "text" } else { "thinking" };
                    block[key] =
                        json!(block[key].as_str().unwrap().to_owned() + delta[key].as_str().unwrap());
                }
                "message_delta" => {
                    assert_eq!(event["delta"]["stop_reason"], whole["stop_reason"]);
                    assert_eq!(event["usage"]["output_tokens"], whole["usage"]["output_tokens"]);
                }
                _ => {}
            }
        }
        assert_eq!(json!(blocks), whole["content"]);
    }
}

#[test]
fn tools_are_used_and_their_results_go_back() {
    let server = served();
    let mut asked = body();
    asked["tools"] = json!([{"name": "look", "description": "d", "input_schema": {"type": "object", "properties": {"at": {"enum": ["sky"]}}, "required": ["at"], "additionalProperties": false}}]);
    asked["tool_choice"] = json!({"type": "tool", "name": "look", "disable_parallel_tool_use": true});
    let answer = server.ok(PATH, &asked);
    assert_eq!(answer["stop_reason"], "tool_use", "{answer}");
    let used = &answer["content"][0];
    assert_eq!((&used["name"], &used["input"]), (&json!("look"), &json!({"at": "sky"})));
    let result = json!([{"type": "tool_result", "tool_use_id": used["id"], "content": [{"type": "text", "text": "blue"}]}, {"type": "text", "text": "Go on."}]);
    let messages = asked["messages"].as_array_mut().unwrap();
    messages.push(json!({"role": "assistant", "content": answer["content"]}));
    messages.push(json!({"role": "user", "content": result}));
    asked["tool_choice"] = json!({"type": "auto"});
    asked["system"] = json!([{"type": "text", "text": "Be brief."}]);
    let tokens = server.ok("/v1/messages/count_tokens", &asked)["input_tokens"].clone();
    let answer = server.ok(PATH, &asked);
    let usage = &answer["usage"];
    let cached = usage["cache_read_input_tokens"].as_u64().unwrap();
    assert_eq!(json!(usage["input_tokens"].as_u64().unwrap() + cached), tokens);
}

#[test]
fn stops_lengths_and_errors_in_anthropics_words() {
    let server = served();
    let mut stopped = body();
    stopped["stop_sequences"] = json!([" "]);
    let answer = server.ok(PATH, &stopped);
    assert_eq!((&answer["stop_reason"], &answer["stop_sequence"]), (&json!("stop_sequence"), &json!(" ")));
    let mut short = body();
    short["max_tokens"] = json!(1);
    assert_eq!(server.ok(PATH, &short)["stop_reason"], "max_tokens");
    for (key, value) in [
        ("max_tokens", json!(null)),
        ("messages", json!([])),
        ("messages", json!([{"role": "tool", "content": "x"}])),
        ("messages", json!([{"role": "user", "content": [{"type": "image", "source": {}}]}])),
        ("thinking", json!({"type": "perhaps"})),
        ("tool_choice", json!({"type": "perhaps"})),
    ] {
        let mut wrong = body();
        wrong[key] = value;
        let answer = server.post(PATH, &wrong);
        let error = answer.json();
        assert_eq!((answer.status, &error["type"]), (400, &json!("error")), "{key}: {error}");
        assert_eq!(error["error"]["type"], "invalid_request_error");
    }
    let locked = served_with(|settings| settings.info.keys = vec!["sk".to_owned()]);
    let answer = locked.post(PATH, &body());
    assert_eq!((answer.status, &answer.json()["error"]["type"]), (401, &json!("authentication_error")));
}

#[test]
fn an_answer_matches_the_schema_that_is_asked_for() {
    let server = served();
    let asks = |format: Value| {
        let mut body = body();
        body["output_config"] = json!({"effort": "low", "format": format});
        body
    };
    let schema = json!({"type": "object", "properties": {"a": {"enum": ["x", "y"]}}, "required": ["a"],
        "additionalProperties": false});
    let whole = server.ok(PATH, &asks(json!({"type": "json_schema", "schema": schema})));
    let answer: Value = serde_json::from_str(whole["content"][0]["text"].as_str().unwrap()).unwrap();
    assert!(["x", "y"].contains(&answer["a"].as_str().unwrap()), "{whole}");
    for format in [json!({"type": "json_schema"}), json!({"type": "xml"}), json!({})] {
        assert_eq!(server.post(PATH, &asks(format)).status, 400);
    }
    // Nothing is asked for.
    assert_eq!(server.post(PATH, &asks(json!(null))).status, 200);
}
