//! Raw completions: all forms of prompts, both ways to answer, log-probabilities, seeds.

use serde_json::{Value, json};

use crate::served::{Served, served};

const PATH: &str = "/v1/completions";

fn text(answer: &Value) -> &str {
    answer["choices"][0]["text"].as_str().unwrap()
}

/// Text and finish reason of each choice, from a stream.
fn streamed(server: &Served, mut body: Value) -> (Vec<(String, String)>, Vec<Value>) {
    body["stream"] = json!(true);
    let events = server.post(PATH, &body).events();
    let mut choices = Vec::new();
    for choice in events.iter().flat_map(|event| event["choices"].as_array().unwrap()) {
        let index = choice["index"].as_u64().unwrap() as usize;
        choices.resize(choices.len().max(index + 1), (String::new(), String::new()));
        choices[index].0 += choice["text"].as_str().unwrap();
        if let Some(reason) = choice["finish_reason"].as_str() {
            assert_eq!(choices[index].1, "", "a choice ends once");
            choices[index].1 = reason.to_owned();
        }
    }
    (choices, events)
}

#[test]
fn a_prompt_as_text_and_as_ids_and_in_lists() {
    let server = served();
    let ids = server.ok("/tokenize", &json!({"prompt": "Once upon a time"}))["tokens"].clone();
    let body = |prompt: Value| json!({"prompt": prompt, "max_tokens": 8, "temperature": 0});
    let one = server.ok(PATH, &body(json!("Once upon a time")));
    assert_eq!(text(&server.ok(PATH, &body(ids.clone()))), text(&one));
    assert_eq!(one["object"], "text_completion");
    assert_eq!(one["usage"]["completion_tokens"], 8);
    assert_eq!(one["choices"][0]["finish_reason"], "length");
    for prompt in [json!(["Once upon a time", "The dog"]), json!([ids, [436, 450]])] {
        let both = server.ok(PATH, &body(prompt));
        assert_eq!(both["choices"].as_array().unwrap().len(), 2);
        assert_eq!((text(&both), &both["choices"][1]["index"]), (text(&one), &json!(1)));
    }
    let default =
        server.ok(PATH, &json!({"prompt": "Once upon a time", "temperature": 0, "ignore_eos": true}));
    assert_eq!(default["usage"]["completion_tokens"], 16);
    for prompt in
        [json!([]), json!(""), json!(["a", ""]), json!([1.5]), json!([-1]), json!(["a", 1]), json!(null)]
    {
        assert_eq!(server.refused(PATH, &body(prompt)), "prompt");
    }
}

#[test]
fn a_stream_has_the_same_text_and_the_counts_at_its_end() {
    let server = served();
    let body = json!({"prompt": "Once upon a time", "max_tokens": 24, "temperature": 0.8, "seed": 7, "n": 3});
    let whole = server.ok(PATH, &body);
    let mut with_usage = body.clone();
    with_usage["stream_options"] = json!({"include_usage": true});
    let (choices, events) = streamed(&server, with_usage);
    for (index, (text, reason)) in choices.iter().enumerate() {
        let choice = &whole["choices"][index];
        assert_eq!(
            (text.as_str(), reason.as_str()),
            (choice["text"].as_str().unwrap(), choice["finish_reason"].as_str().unwrap())
        );
    }
    let (last, before) = events.split_last().unwrap();
    assert_eq!(last["choices"], json!([]));
    for key in ["prompt_tokens", "completion_tokens", "total_tokens"] {
        assert_eq!(last["usage"][key], whole["usage"][key], "{key}");
    }
    assert_eq!(last["timings"]["completion_tokens"], whole["usage"]["completion_tokens"]);
    assert!(before.iter().all(|event| event["usage"].is_null()));
    let mut continuous = body;
    continuous["stream_options"] = json!({"continuous_usage_stats": true});
    let (_, events) = streamed(&server, continuous);
    assert!(events.iter().all(|event| event["usage"]["completion_tokens"].is_u64()));
}

#[test]
fn h17_a_seed_means_the_same_in_any_company() {
    let server = served();
    let body = |seed: Value| json!({"prompt": "Once upon a time", "max_tokens": 32, "temperature": 0.8, "seed": seed});
    let alone = text(&server.ok(PATH, &body(json!(42)))).to_owned();
    std::thread::scope(|scope| {
        let company: Vec<_> = [json!(null), json!(7), json!(null), json!(42)]
            .into_iter()
            .map(|seed| scope.spawn(|| text(&server.ok(PATH, &body(seed))).to_owned()))
            .collect();
        let together = text(&server.ok(PATH, &body(json!(42)))).to_owned();
        let mut others: Vec<String> = company.into_iter().map(|other| other.join().unwrap()).collect();
        assert_eq!((together, others.pop().unwrap()), (alone.clone(), alone.clone()));
        assert_ne!(others[0], others[2], "without a seed each is another");
    });
    assert_eq!(streamed(&server, body(json!(42))).0[0].0, alone);
    let mut four = body(json!(42));
    four["n"] = json!(4);
    let choices = server.ok(PATH, &four)["choices"].clone();
    assert_eq!(server.ok(PATH, &four)["choices"], choices);
    assert_ne!(choices[0]["text"], choices[1]["text"]);
    for seed in [json!(0), json!(-1), json!(9_223_372_036_854_775_808_u64)] {
        server.ok(PATH, &body(seed));
    }
    assert_eq!(server.refused(PATH, &body(json!(1.5))), "seed");
}

#[test]
fn echo_scores_the_prompt_as_evaluation_harnesses_ask() {
    let server = served();
    let ids: Vec<u64> = vec![436, 450, 258, 410];
    let body = json!({"prompt": ids, "echo": true, "logprobs": 2, "max_tokens": 1, "temperature": 0});
    let answer = server.ok(PATH, &body);
    let logprobs = &answer["choices"][0]["logprobs"];
    let lists: Vec<&Vec<Value>> = ["tokens", "token_logprobs", "top_logprobs", "text_offset"]
        .iter()
        .map(|key| logprobs[key].as_array().unwrap())
        .collect();
    assert!(lists.iter().all(|list| list.len() == 5), "{logprobs}");
    assert!(lists[1][0].is_null() && lists[1][1..].iter().all(|p| p.as_f64().unwrap() < 0.0));
    assert!(lists[2][4].as_object().unwrap().len() >= 2);
    let text = text(&answer);
    for (token, offset) in lists[0].iter().zip(lists[3]) {
        let at: String = text.chars().skip(offset.as_u64().unwrap() as usize).collect();
        assert!(at.starts_with(token.as_str().unwrap()), "{token} at {offset} of {text:?}");
    }
    // Scoring alone; the same numbers, and the prompt as text.
    let alone = server.ok(PATH, &json!({"prompt": ids, "echo": true, "logprobs": 2, "max_tokens": 0}));
    let scored = &alone["choices"][0]["logprobs"]["token_logprobs"].as_array().unwrap()[..];
    assert_eq!(scored, &lists[1][..4]);
    assert_eq!(
        (&alone["choices"][0]["finish_reason"], &alone["usage"]["completion_tokens"]),
        (&json!("length"), &json!(0))
    );
    let (choices, _) = streamed(&server, body);
    assert_eq!(choices[0].0, text);
}

#[test]
fn h06_a_stop_string_never_reaches_the_client() {
    let server = served();
    let body = json!({"prompt": "Once upon a time", "max_tokens": 40, "temperature": 0, "ignore_eos": true});
    let free = text(&server.ok(PATH, &body)).to_owned();
    // A text out of the middle of the answer, over token borders.
    let middle: String = free.chars().skip(20).take(9).collect();
    for stop in [json!(middle), json!([middle, "never to be seen"])] {
        let mut stopped = body.clone();
        stopped["stop"] = stop;
        let answer = server.ok(PATH, &stopped);
        assert_eq!(text(&answer), &free[..free.find(&middle).unwrap()]);
        assert_eq!(answer["choices"][0]["finish_reason"], "stop");
        let (choices, _) = streamed(&server, stopped);
        assert_eq!(choices[0], (text(&answer).to_owned(), "stop".to_owned()));
    }
}

#[test]
fn known_prefixes_are_counted_and_salts_keep_them_apart() {
    let server = served();
    let prompt: Vec<u32> = (0..100).map(|n| 300 + n % 50).collect();
    let body = |salt: &str| json!({"prompt": prompt, "max_tokens": 1, "cache_salt": salt});
    let cached = |answer: &Value| answer["usage"]["prompt_tokens_details"]["cached_tokens"].clone();
    assert_eq!(cached(&server.ok(PATH, &body("a"))), 0);
    assert_eq!(cached(&server.ok(PATH, &body("a"))), 96, "whole blocks");
    assert_eq!(cached(&server.ok(PATH, &body("b"))), 0);
}

#[test]
fn h08_added_tokens_have_their_text_and_padded_ids_harm_nobody() {
    let server = served();
    let id = |text: &str| server.ok("/tokenize", &json!({"prompt": text}))["tokens"][0].clone();
    let text = |ids: Value| server.ok("/detokenize", &json!({"tokens": ids}))["prompt"].clone();
    let (newline, think, end) = (id("\n"), id("<think>"), id("</think>"));
    let (call, turn) = (id("<tool_call>"), id("<|im_end|>"));
    assert_eq!(text(json!([think, newline, newline, end, newline])), "<think>\n\n</think>\n");
    // The last rows of the head are no tokens.
    assert_eq!((text(json!([4026])), text(json!([4095, call]))), (json!(""), json!("<tool_call>")));

    let forced = |token: &Value| {
        let bias = json!({token.to_string(): 100});
        let body = json!({"prompt": "Once", "max_tokens": 3, "temperature": 0, "ignore_eos": true, "logit_bias": bias});
        server.ok(PATH, &body)["choices"][0]["text"].clone()
    };
    assert_eq!(forced(&end), "</think></think></think>");
    assert_eq!(forced(&call), "<tool_call><tool_call><tool_call>");
    assert_eq!(forced(&turn), "", "a control token has no text");
    // They exist for nobody: a bias on one is refused, and even a draw among all tokens meets none.
    let padded = json!({"prompt": "Once", "logit_bias": {"4095": 100}});
    assert_eq!(server.refused(PATH, &padded), "logit_bias");
    let drawn = json!({"prompt": "Once", "max_tokens": 200, "temperature": 1e30, "ignore_eos": true, "logprobs": 20, "seed": 5});
    let choice = server.ok(PATH, &drawn)["choices"][0].clone();
    assert_eq!(
        (&choice["finish_reason"], choice["logprobs"]["tokens"].as_array().unwrap().len()),
        (&json!("length"), 200)
    );
    for top in choice["logprobs"]["top_logprobs"].as_array().unwrap() {
        assert!(top.as_object().unwrap().keys().all(|name| !name.is_empty()), "{top}");
    }
    // A grammar's masks are as wide as the head, too.
    let schema = json!({"type": "object", "properties": {"a": {"enum": ["x"]}}, "required": ["a"], "additionalProperties": false});
    let body = json!({"messages": [{"role": "user", "content": "hi"}], "max_tokens": 40, "enable_thinking": false,
        "temperature": 1e30, "response_format": {"type": "json_schema", "json_schema": {"name": "s", "schema": schema}}});
    assert_eq!(server.ok("/v1/chat/completions", &body)["choices"][0]["message"]["content"], "{\"a\":\"x\"}");
}
