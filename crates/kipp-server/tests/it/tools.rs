//! Tool calls: enforced by grammar, named, parallel, and refused where they make no sense.

use serde_json::{Value, json};

use crate::chats::gathered;
use crate::served::served;

const PATH: &str = "/v1/chat/completions";

fn tool(name: &str, property: &str) -> Value {
    json!({"type": "function", "function": {"name": name, "description": "d", "parameters": {
        "type": "object",
        "properties": {property: {"$ref": "#/$defs/value"}},
        "required": [property],
        "additionalProperties": false,
        "$defs": {"value": {"enum": ["one", "two"]}},
    }}})
}

fn body(choice: Value) -> Value {
    json!({
        "messages": [{"role": "user", "content": "What is the weather?"}],
        "tools": [tool("get_weather", "city"), tool("get_\"time\"", "zone")],
        "tool_choice": choice,
        "max_tokens": 300,
        "thinking_budget": 20,
        "temperature": 1,
        "seed": 3,
    })
}

#[test]
fn a_required_call_is_one_of_the_tools() {
    let server = served();
    for parallel in [false, true] {
        let mut body = body(json!("required"));
        body["parallel_tool_calls"] = json!(parallel);
        let answer = server.ok(PATH, &body);
        let choice = &answer["choices"][0];
        assert_eq!(choice["finish_reason"], "tool_calls", "{answer}");
        let calls = choice["message"]["tool_calls"].as_array().unwrap();
        assert!(if parallel { !calls.is_empty() } else { calls.len() == 1 });
        for call in calls {
            assert!(call["id"].as_str().unwrap().starts_with("call_") && call["type"] == "function");
            let arguments: Value =
                serde_json::from_str(call["function"]["arguments"].as_str().unwrap()).unwrap();
            let property = match call["function"]["name"].as_str().unwrap() {
                "get_weather" => "city",
                "get_\"time\"" => "zone",
                other => panic!("{other}"),
            };
            assert!(["one", "two"].contains(&arguments[property].as_str().unwrap()));
        }
        let (message, finish) = gathered(&server, body);
        assert_eq!(finish, "tool_calls");
        let functions: Vec<&Value> = calls.iter().map(|call| &call["function"]).collect();
        assert_eq!(message["tool_calls"].as_array().unwrap().iter().collect::<Vec<_>>(), functions);
    }
}

#[test]
fn a_named_call_is_that_one_and_goes_back_as_history() {
    let server = served();
    let name = "get_\"time\"";
    let answer = server.ok(PATH, &body(json!({"type": "function", "function": {"name": name}})));
    let message = answer["choices"][0]["message"].clone();
    assert_eq!(
        (&message["tool_calls"][0]["function"]["name"], &message["content"]),
        (&json!(name), &json!(null))
    );
    // Who names a function wants one call of it.
    assert_eq!(message["tool_calls"].as_array().unwrap().len(), 1);
    let result = json!({"role": "tool", "tool_call_id": message["tool_calls"][0]["id"], "content": "12:00"});
    let mut next = body(json!("auto"));
    next["messages"].as_array_mut().unwrap().extend([message, result]);
    next["max_tokens"] = json!(5);
    server.ok(PATH, &next);
}

#[test]
fn calls_that_make_no_sense_are_refused_by_their_field() {
    let server = served();
    for (choice, param) in [
        (json!("sometimes"), "tool_choice"),
        (json!({"type": "function", "function": {"name": "other"}}), "tool_choice"),
        (json!(3), "tool_choice"),
    ] {
        assert_eq!(server.refused(PATH, &body(choice)), param);
    }
    let mut without = body(json!("required"));
    without["tools"] = json!([]);
    assert_eq!(server.refused(PATH, &without), "tool_choice");
    for (tool, param) in [
        (json!({"type": "retrieval"}), "tools[0].type"),
        (json!({"type": "function"}), "tools[0].function"),
        (json!({"type": "function", "function": {"name": ""}}), "tools[0].function.name"),
        (
            json!({"type": "function", "function": {"name": "f", "parameters": 3}}),
            "tools[0].function.parameters",
        ),
        (json!({"type": "function", "function": {"name": "f", "parameters": {"type": "nothing"}}}), "tools"),
    ] {
        let mut wrong = body(json!("required"));
        wrong["tools"] = json!([tool]);
        assert_eq!(server.refused(PATH, &wrong), param);
    }
    let mut both = body(json!("required"));
    both["response_format"] = json!({"type": "json_object"});
    assert_eq!(server.refused(PATH, &both), "response_format");
    // Not shown to the model, and not looked for.
    let mut none = body(json!("none"));
    none["max_tokens"] = json!(5);
    let with_tools = server.ok(PATH, &{
        let mut auto = none.clone();
        auto["tool_choice"] = json!("auto");
        auto
    });
    let without = server.ok(PATH, &none);
    assert!(without["usage"]["prompt_tokens"].as_u64() < with_tools["usage"]["prompt_tokens"].as_u64());
}
