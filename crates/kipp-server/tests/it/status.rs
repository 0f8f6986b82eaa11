//! Health, models, tokens, metrics and paths that are not there.

use serde_json::json;

use crate::client;
use crate::served::{CONTEXT_TOKENS, served, served_with};

#[test]
fn what_a_router_asks_of_a_replica() {
    let server = served();
    assert_eq!(
        (server.get("/health").status, server.get("/version").json()),
        (200, json!({"version": "0.0.0"}))
    );
    let models = server.get("/v1/models").json();
    let model = &models["data"][0];
    assert_eq!((&model["id"], &model["owned_by"]), (&json!("kipp-tiny"), &json!("kipp")));
    assert_eq!(model["max_model_len"], CONTEXT_TOKENS);
    assert_eq!(server.get("/v1/models/kipp-tiny").json(), *model);
    let missing = server.get("/v1/models/a/b");
    assert_eq!((missing.status, &missing.json()["error"]["code"]), (404, &json!("model_not_found")));
    let loads = server.get("/v1/loads").json();
    assert_eq!((&loads["running"], &loads["draining"]), (&json!(0), &json!(false)));
}

#[test]
fn errors_have_openais_shape_everywhere() {
    let server = served();
    for (method, path, status) in
        [("GET", "/nowhere", 404), ("GET", "/v1/completions", 405), ("POST", "/v1/embeddings", 404)]
    {
        let answer = client::request(server.port, method, path, &[], Some(b"{}"));
        assert_eq!(answer.status, status, "{method} {path}");
        let error = &answer.json()["error"];
        assert!(error["message"].is_string() && error["type"].is_string() && error["code"].is_string());
    }
}

#[test]
fn models_go_by_their_names_or_by_any() {
    let server = served();
    let body = |model| json!({"model": model, "prompt": "a", "max_tokens": 1});
    let answer = server.post("/v1/completions", &body(json!("gpt-4")));
    assert_eq!((answer.status, &answer.json()["error"]["code"]), (404, &json!("model_not_found")));
    assert_eq!(answer.json()["error"]["param"], "model");
    for model in [json!(null), json!("kipp-tiny")] {
        assert_eq!(server.ok("/v1/completions", &body(model))["model"], "kipp-tiny");
    }
    let any = served_with(|settings| settings.info.any_model = true);
    assert_eq!(any.ok("/v1/completions", &body(json!("gpt-4")))["model"], "kipp-tiny");
}

#[test]
fn tokens_of_prompts_and_of_messages() {
    let server = served();
    let tokens = server.ok("/tokenize", &json!({"prompt": "<|im_end|>Once"}));
    assert_eq!((&tokens["tokens"][0], &tokens["max_model_len"]), (&json!(4002), &json!(CONTEXT_TOKENS)));
    assert_eq!(tokens["count"], tokens["tokens"].as_array().unwrap().len());
    let back = server.ok("/detokenize", &json!({"tokens": tokens["tokens"]}));
    assert_eq!(back, json!({"prompt": "<|im_end|>Once"}));
    let chat = |extra: serde_json::Value| {
        let mut body = json!({"messages": [{"role": "user", "content": "hi"}]});
        body.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        let tokens = server.ok("/tokenize", &body);
        server.ok("/detokenize", &json!({"tokens": tokens["tokens"]}))["prompt"].as_str().unwrap().to_owned()
    };
    let turn = "<|im_start|>user\nhi<|im_end|>\n";
    assert_eq!(chat(json!({"add_generation_prompt": false})), turn);
    let closed = format!("{turn}<|im_start|>assistant\n<think>\n\n</think>\n\n");
    assert_eq!(chat(json!({"chat_template_kwargs": {"enable_thinking": false}})), closed);
    assert_eq!(chat(json!({"reasoning_effort": "none"})), closed);
    assert_eq!(server.refused("/detokenize", &json!({"tokens": [5000]})), "tokens");
    assert_eq!(server.refused("/detokenize", &json!({"tokens": [-1]})), "tokens");
    assert_eq!(server.refused("/tokenize", &json!({})), "prompt");
    assert_eq!(server.refused("/tokenize", &json!({"messages": [], "chat_template": "x"})), "chat_template");
}

#[test]
fn a_client_without_a_tokenizer_is_told_of_ours() {
    let server = served();
    let info = server.get("/tokenizer_info").json();
    assert_eq!((&info["eos_token"], &info["bos_token"]), (&json!("<|im_end|>"), &json!(null)));
    assert!(info["chat_template"].as_str().is_some_and(|template| template.contains("<|im_start|>")));
}

#[test]
fn metrics_count_what_happened() {
    let server = served();
    let body = json!({"prompt": "Once upon a time", "max_tokens": 40, "temperature": 0});
    let usage = server.ok("/v1/completions", &body)["usage"].clone();
    server.post("/v1/completions", &json!({"prompt": []}));
    server.wait_until_quiet(std::time::Duration::from_secs(5));
    let count = |status| {
        let name = format!("kipp_requests_total{{endpoint=\"/v1/completions\",status=\"{status}\"}}");
        server.metric(&name)
    };
    assert_eq!((count(200), count(400)), (1.0, 1.0));
    assert_eq!(server.metric("kipp_generation_tokens_total"), usage["completion_tokens"].as_f64().unwrap());
    assert_eq!(server.metric("kipp_prompt_tokens_total"), usage["prompt_tokens"].as_f64().unwrap());
    assert_eq!(server.metric("kipp_time_to_first_token_seconds_count"), 1.0);
    assert_eq!(server.metric("kipp_request_seconds_count"), 1.0);
    let blocks = |state: &str| server.metric(&format!("kipp_kv_blocks{{state=\"{state}\"}}"));
    assert_eq!(blocks("used") + blocks("cached") + blocks("free"), blocks("total"));
}

#[test]
fn metrics_go_by_vllms_names_where_asked() {
    assert!(!served().get("/metrics").text().contains("vllm:"));
    let server = served_with(|settings| {
        settings.info.vllm_metrics = true;
        settings.info.names = vec!["a\"b".to_owned()];
    });
    server.ok("/v1/completions", &json!({"prompt": "Once upon a time", "max_tokens": 4, "ignore_eos": true}));
    server.wait_until_quiet(std::time::Duration::from_secs(5));
    let metric = |name: &str| server.metric(&format!("vllm:{name}{{model_name=\"a\\\"b\",engine=\"0\"}}"));
    assert_eq!((metric("num_requests_running"), metric("num_requests_waiting")), (0.0, 0.0));
    assert_eq!((metric("kv_cache_usage_perc"), metric("gpu_cache_usage_perc")), (0.0, 0.0));
    assert_eq!((metric("generation_tokens_total"), metric("time_to_first_token_seconds_count")), (4.0, 1.0));
    assert_eq!(metric("prompt_tokens_total"), metric("prefix_cache_queries_total"));
    assert!(server.get("/metrics").text().contains("engine=\"0\",block_size=\"32\",num_gpu_blocks=\""));
    assert_eq!(server.metric("kipp_generation_tokens_total"), 4.0);
}

#[test]
fn the_document_names_every_path() {
    let server = served();
    let document = server.get("/openapi.json").json();
    let paths: Vec<&str> = document["paths"].as_object().unwrap().keys().map(String::as_str).collect();
    for (path, methods) in document["paths"].as_object().unwrap() {
        let path = path.replace("{id}", "kipp-tiny");
        for method in methods.as_object().unwrap().keys() {
            let answer = client::request(server.port, &method.to_uppercase(), &path, &[], Some(b"{}"));
            assert!(![404, 405].contains(&answer.status), "{method} {path}");
        }
    }
    for path in [
        "/health",
        "/v1/chat/completions",
        "/v1/responses",
        "/v1/completions",
        "/tokenize",
        "/v1/models/{id}",
        "/metrics",
    ] {
        assert!(paths.contains(&path), "{path}");
    }
}
