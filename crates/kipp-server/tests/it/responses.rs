//! Responses: items whole and as events, tools, structured output, what goes back as input, and what is refused.

use serde_json::{Map, Value, json};

use crate::client;
use crate::served::{CONTEXT_TOKENS, Served, served, served_with};

const PATH: &str = "/v1/responses";
const STORY: &str = "Tell me a story about a dog.";

fn body() -> Value {
    json!({"input": STORY, "max_output_tokens": 60, "temperature": 0})
}

fn with(key: &str, value: Value) -> Value {
    let mut body = body();
    body[key] = value;
    body
}

fn look() -> Value {
    json!({"type": "function", "name": "look", "description": "d", "strict": true, "parameters": {
        "type": "object",
        "properties": {"at": {"enum": ["the sky", "the sea"]}, "n": {"type": "integer", "minimum": 10, "maximum": 99}},
        "required": ["at", "n"],
        "additionalProperties": false,
    }})
}

/// The events of a stream, each numbered and named by its type.
fn events(text: &str) -> Vec<Value> {
    let mut events = Vec::new();
    for event in text.split("\n\n").filter(|event| !event.is_empty()) {
        let (name, data) = event.split_once('\n').unwrap();
        let data: Value = serde_json::from_str(data.strip_prefix("data: ").unwrap()).unwrap();
        assert_eq!(name.strip_prefix("event: "), data["type"].as_str());
        assert_eq!(data["sequence_number"], events.len());
        events.push(data);
    }
    events
}

/// The response that a stream's events build, which is the one that its last event tells.
fn streamed(server: &Served, mut body: Value) -> Value {
    body["stream"] = json!(true);
    let events = events(&server.post(PATH, &body).text());
    let kind = |n: usize| events[n]["type"].as_str().unwrap();
    assert_eq!((kind(0), kind(1)), ("response.created", "response.in_progress"));
    assert_eq!(
        (&events[1]["response"]["status"], &events[1]["response"]["output"]),
        (&json!("in_progress"), &json!([]))
    );
    let mut items: Vec<Value> = Vec::new();
    for event in &events[2..events.len() - 1] {
        build(&mut items, event);
    }
    let last = events.last().unwrap();
    let response = last["response"].clone();
    assert_eq!(last["type"], format!("response.{}", response["status"].as_str().unwrap()));
    assert_eq!(response["output"], json!(items));
    assert_eq!((&response["id"], &response["model"]), (&events[0]["response"]["id"], &json!("kipp-tiny")));
    response
}

/// Adds what an event tells, and compares with what it says is there.
fn build(items: &mut Vec<Value>, event: &Value) {
    let at = event["output_index"].as_u64().unwrap() as usize;
    let kind = event["type"].as_str().unwrap();
    if kind == "response.output_item.added" {
        assert_eq!((at, &event["item"]["status"]), (items.len(), &json!("in_progress")));
        items.push(event["item"].clone());
        return;
    }
    assert_eq!(at, items.len() - 1, "one item at a time");
    let item = items.last_mut().unwrap();
    assert!(event["item_id"].is_null() || event["item_id"] == item["id"], "{event}");
    let list = if kind.contains("summary") { "summary" } else { "content" };
    if event.get("content_index").or(event.get("summary_index")).is_some_and(|index| index != 0) {
        panic!("one part an item: {event}");
    }
    match kind.rsplit_once('.').unwrap() {
        ("response.output_item", "done") => {
            let mut built = item.clone();
            built["status"] = event["item"]["status"].clone();
            assert_eq!(built, event["item"]);
            *item = built;
        }
        (part, "added") if part.ends_with("_part") => {
            assert_eq!(item[list], json!([]));
            item[list] = json!([event["part"]]);
        }
        (part, "done") if part.ends_with("_part") => assert_eq!(item[list][0], event["part"]),
        (name, step) => {
            let place = match name {
                "response.function_call_arguments" => "/arguments".to_owned(),
                _ => format!("/{list}/0/text"),
            };
            let Some(Value::String(text)) = item.pointer_mut(&place) else { panic!("{event}") };
            match step {
                "delta" => text.push_str(event["delta"].as_str().unwrap()),
                _ => {
                    let told = event.get("text").or(event.get("arguments"));
                    assert_eq!(told.unwrap().as_str(), Some(text.as_str()));
                }
            }
            let more = event["logprobs"].as_array().cloned().unwrap_or_default();
            if let Some(Value::Array(logprobs)) =
                item.pointer_mut("/content/0/logprobs").filter(|_| step == "delta")
            {
                logprobs.extend(more);
            }
        }
    }
}

/// What two answers to the same request share: all but ids and times.
fn lasting(response: &Value) -> Value {
    fn strip(value: &mut Value) {
        match value {
            Value::Object(map) => {
                for key in ["id", "call_id", "created_at", "completed_at", "timings", "input_tokens_details"]
                {
                    map.remove(key);
                }
                map.values_mut().for_each(strip);
            }
            Value::Array(items) => items.iter_mut().for_each(strip),
            _ => {}
        }
    }
    let mut response = response.clone();
    strip(&mut response);
    response
}

fn types(response: &Value) -> Vec<&str> {
    response["output"].as_array().unwrap().iter().map(|item| item["type"].as_str().unwrap()).collect()
}

#[test]
fn items_whole_and_as_events() {
    let server = served();
    for (reasoning, expected) in [
        (json!(null), vec!["reasoning", "message"]),
        (json!({"effort": "low", "summary": "auto"}), vec!["reasoning", "message"]),
        (json!({"effort": "none"}), vec!["message"]),
    ] {
        let body = with("reasoning", reasoning.clone());
        let whole = server.ok(PATH, &body);
        assert_eq!(types(&whole), expected);
        assert_eq!(lasting(&streamed(&server, body)), lasting(&whole));
        let message = whole["output"].as_array().unwrap().last().unwrap();
        assert!(message["id"].as_str().unwrap().starts_with("msg_") && message["role"] == "assistant");
        let text = &message["content"][0];
        assert_eq!((&text["type"], &text["annotations"]), (&json!("output_text"), &json!([])));
        let chat = server.ok(
            "/v1/chat/completions",
            &json!({
                "messages": [{"role": "user", "content": STORY}], "max_tokens": 60, "temperature": 0,
                "reasoning_effort": reasoning["effort"],
            }),
        );
        assert_eq!(chat["choices"][0]["message"]["content"], text["text"]);
        let thinking = &whole["output"][0];
        let thinking =
            if reasoning["summary"].is_null() { &thinking["content"] } else { &thinking["summary"] };
        if expected.len() == 2 {
            assert_eq!(chat["choices"][0]["message"]["reasoning_content"], thinking[0]["text"]);
        }
        let usage = &whole["usage"];
        assert_eq!(usage["input_tokens"], chat["usage"]["prompt_tokens"]);
        assert_eq!(usage["output_tokens"], chat["usage"]["completion_tokens"]);
        assert_eq!(usage["output_tokens_details"], chat["usage"]["completion_tokens_details"]);
        assert!(usage["input_tokens_details"]["cached_tokens"].is_u64());
    }
}

#[test]
fn the_answer_says_what_was_asked_and_that_nothing_is_stored() {
    let server = served();
    let mut asked = body();
    asked.as_object_mut().unwrap().extend(Map::from_iter([
        ("instructions".to_owned(), json!("Be brief.")),
        ("metadata".to_owned(), json!({"k": "v"})),
        ("tools".to_owned(), json!([look(), {"type": "web_search"}])),
        ("tool_choice".to_owned(), json!("none")),
        ("include".to_owned(), json!(["reasoning.encrypted_content"])),
        ("prompt_cache_key".to_owned(), json!("x")),
        ("store".to_owned(), json!(false)),
        ("stop".to_owned(), json!([" "])),
    ]));
    let answer = server.ok(PATH, &asked);
    for (key, value) in [
        ("object", json!("response")),
        ("status", json!("completed")),
        ("store", json!(false)),
        ("background", json!(false)),
        ("previous_response_id", json!(null)),
        ("instructions", json!("Be brief.")),
        ("max_output_tokens", json!(60)),
        ("metadata", json!({"k": "v"})),
        ("temperature", json!(0)),
        ("top_p", json!(1.0)),
        ("tools", json!([look()])),
        ("tool_choice", json!("none")),
        ("parallel_tool_calls", json!(true)),
        ("text", json!({"format": {"type": "text"}})),
        ("truncation", json!("disabled")),
        ("error", json!(null)),
        ("incomplete_details", json!(null)),
    ] {
        let found = &answer[key];
        assert!(
            *found == value || found.as_f64().is_some_and(|n| value.as_f64() == Some(n)),
            "{key}: {found}"
        );
    }
    let notes = server.log.lock().unwrap();
    assert!(notes.iter().any(|line| format!("{line:?}").contains("web_search")), "what is left out is told");
}

#[test]
fn an_answer_that_is_cut_is_incomplete() {
    let server = served();
    for (tokens, text) in [(3, "thinking"), (40, "text")] {
        let body = with("max_output_tokens", json!(tokens));
        let whole = server.ok(PATH, &body);
        if whole["status"] == "completed" && text == "text" {
            continue;
        }
        assert_eq!(
            (&whole["status"], &whole["incomplete_details"]),
            (&json!("incomplete"), &json!({"reason": "max_output_tokens"}))
        );
        assert_eq!(whole["output"].as_array().unwrap().last().unwrap()["status"], "incomplete");
        assert_eq!(lasting(&streamed(&server, body)), lasting(&whole));
    }
    let nothing = server.ok(PATH, &with("max_output_tokens", json!(0)));
    assert_eq!((&nothing["output"], &nothing["status"]), (&json!([]), &json!("incomplete")));
}

#[test]
fn a_call_streams_its_arguments_and_its_result_goes_back() {
    let server = served();
    let mut asked = with("tools", json!([look()]));
    asked["max_output_tokens"] = json!(300);
    asked["thinking_budget"] = json!(10);
    for choice in [
        json!("required"),
        json!({"type": "function", "name": "look"}),
        json!({"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "look"}]}),
    ] {
        asked["tool_choice"] = choice;
        asked["parallel_tool_calls"] = json!(false);
        let whole = server.ok(PATH, &asked);
        assert_eq!(types(&whole).last(), Some(&"function_call"), "{whole}");
        assert_eq!(lasting(&streamed(&server, asked.clone())), lasting(&whole));
        let call = whole["output"].as_array().unwrap().last().unwrap().clone();
        let arguments: Value = serde_json::from_str(call["arguments"].as_str().unwrap()).unwrap();
        assert!(arguments["at"].is_string() && arguments["n"].is_u64());
        assert!(call["call_id"].as_str().unwrap().starts_with("call_"));

        asked["stream"] = json!(true);
        let text = server.post(PATH, &asked).text();
        asked["stream"] = json!(false);
        let deltas = events(&text)
            .iter()
            .filter(|event| event["type"] == "response.function_call_arguments.delta")
            .count();
        assert!(deltas > 3, "{deltas} deltas for {arguments}");

        let mut next = asked.clone();
        let mut input = vec![json!({"role": "user", "content": STORY})];
        input.extend(whole["output"].as_array().unwrap().iter().cloned());
        input.push(json!({"type": "function_call_output", "call_id": call["call_id"], "output": "blue"}));
        next["input"] = input.into();
        next["tool_choice"] = json!("auto");
        next["max_output_tokens"] = json!(5);
        server.ok(PATH, &next);
    }
}

#[test]
fn a_schema_is_followed() {
    let server = served();
    let schema = json!({"type": "object", "properties": {"dog": {"type": "boolean"}}, "required": ["dog"], "additionalProperties": false});
    let mut asked = with(
        "text",
        json!({"format": {"type": "json_schema", "name": "s", "schema": schema, "strict": true}, "verbosity": "low"}),
    );
    asked["reasoning"] = json!({"effort": "none"});
    let answer = server.ok(PATH, &asked);
    let text = answer["output"][0]["content"][0]["text"].as_str().unwrap();
    assert!(serde_json::from_str::<Value>(text).unwrap()["dog"].is_boolean(), "{text}");
    assert_eq!(answer["text"]["format"]["name"], "s");
    asked["text"] = json!({"format": {"type": "json_object"}});
    asked["max_output_tokens"] = json!(CONTEXT_TOKENS / 4);
    server.ok(PATH, &asked);
}

#[test]
fn logprobs_are_those_of_the_text() {
    let server = served();
    let mut asked = with("include", json!(["message.output_text.logprobs"]));
    asked["top_logprobs"] = json!(2);
    let whole = server.ok(PATH, &asked);
    let part = &whole["output"].as_array().unwrap().last().unwrap()["content"][0];
    let entries = part["logprobs"].as_array().unwrap();
    let text: String = entries.iter().map(|entry| entry["token"].as_str().unwrap()).collect();
    assert_eq!(text.trim_start_matches('\n'), part["text"].as_str().unwrap());
    assert!(entries.iter().all(|entry| entry["top_logprobs"].as_array().unwrap().len() == 2));
    assert_eq!(lasting(&streamed(&server, asked)), lasting(&whole));
}

#[test]
fn what_cannot_be_is_refused_by_its_name() {
    let server = served();
    for (key, value, param) in [
        ("store", json!(true), "store"),
        ("background", json!(true), "background"),
        ("previous_response_id", json!("resp_1"), "previous_response_id"),
        ("conversation", json!("conv_1"), "conversation"),
        ("prompt", json!({"id": "p"}), "prompt"),
        ("input", json!(null), "input"),
        (
            "input",
            json!([{"role": "user", "content": [{"type": "input_image"}]}]),
            "input[0].content[0].type",
        ),
        ("input", json!([{"type": "item_reference", "id": "x"}]), "input[0].type"),
        ("instructions", json!(3), "instructions"),
        ("max_output_tokens", json!(-1), "max_output_tokens"),
        ("temperature", json!(-1), "temperature"),
        ("top_p", json!(2), "top_p"),
        ("reasoning", json!({"effort": "extreme"}), "reasoning.effort"),
        ("reasoning", json!({"summary": "long"}), "reasoning.summary"),
        ("text", json!({"format": {"type": "xml"}}), "text.format.type"),
        ("text", json!({"format": {"type": "json_schema", "name": "s"}}), "text.format.schema"),
        (
            "text",
            json!({"format": {"type": "json_schema", "name": "s", "schema": {"type": "nothing"}}}),
            "text.format",
        ),
        ("tools", json!([3]), "tools[0]"),
        ("tools", json!([{"type": "function"}]), "tools[0].name"),
        ("tools", json!([{"type": "function", "name": ""}]), "tools[0].name"),
        ("tools", json!([{"type": "function", "name": "f", "parameters": 3}]), "tools[0].parameters"),
        ("tool_choice", json!("required"), "tool_choice"),
        ("tool_choice", json!({"type": "web_search"}), "tool_choice.type"),
        ("top_logprobs", json!(21), "top_logprobs"),
        ("include", json!([3]), "include"),
        ("metadata", json!({"k": 1}), "metadata"),
        ("truncation", json!("perhaps"), "truncation"),
        ("stream", json!("yes"), "stream"),
    ] {
        assert_eq!(server.refused(PATH, &with(key, value)), param);
    }
    let long = server.post(PATH, &with("input", json!("a b ".repeat(3000))));
    let error = &long.json()["error"];
    assert_eq!(
        (long.status, &error["code"], &error["param"]),
        (400, &json!("context_length_exceeded"), &json!("input"))
    );
    let strict = served_with(|settings| settings.info.strict_fields = true);
    assert_eq!(strict.refused(PATH, &with("frobnicate", json!(1))), "frobnicate");
    assert_eq!(strict.refused(PATH, &with("tools", json!([{"type": "web_search"}]))), "tools[0].type");
    strict.ok(PATH, &with("safety_identifier", json!("u")));
}

#[test]
fn a_stream_that_fails_says_so_last() {
    let server = served_with(|settings| settings.patience.drain = std::time::Duration::ZERO);
    let mut asked = with("stream", json!(true));
    asked["max_output_tokens"] = json!(1500);
    asked["ignore_eos"] = json!(true);
    let mut stream = client::send(server.port, "POST", PATH, &[], Some(asked.to_string().as_bytes()));
    let started = std::time::Instant::now();
    while server.metric("kipp_generation_tokens_total") < 3.0 {
        assert!(started.elapsed().as_secs() < 20);
    }
    server.drain();
    let events = events(&client::read(&mut stream).unwrap().text());
    let [.., error, failed] = &events[..] else { panic!("{events:?}") };
    assert_eq!((&error["type"], &error["code"]), (&json!("error"), &json!("draining")));
    assert_eq!(
        (&failed["type"], &failed["response"]["status"]),
        (&json!("response.failed"), &json!("failed"))
    );
    assert!(failed["response"]["error"]["message"].is_string());
}
