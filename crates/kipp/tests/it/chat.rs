//! Chat templates: the reference's bytes and ids, the reports about `tojson` and thinking, fields that are
//! refused, and templates that mean harm.

mod forgery;
mod hostile;
mod variants;

use kipp::chat::{ChatError, Conversation, Message, Rendered, Role, Template};
use kipp::tokenizer::Tokenizer;
use serde_json::{Value, json};

const CASES: &str = include_str!("../../../../testdata/qwen3-tokenizer/chat-cases.json");
const QWEN3: &str = include_str!("../../../../testdata/qwen3-tokenizer/tokenizer_config.json");
const KIPP_TINY: &str = include_str!("../../../../models/kipp-tiny/tokenizer_config.json");

fn added_tokens(config: &Value) -> Vec<&str> {
    config["added_tokens_decoder"]
        .as_object()
        .unwrap()
        .values()
        .map(|t| t["content"].as_str().unwrap())
        .collect()
}

fn template_of(config: &str) -> Template {
    let config: Value = serde_json::from_str(config).unwrap();
    Template::parse(config["chat_template"].as_str().unwrap(), &added_tokens(&config)).unwrap()
}

fn qwen3() -> Template {
    template_of(QWEN3)
}

fn markers() -> Vec<String> {
    let config: Value = serde_json::from_str(QWEN3).unwrap();
    added_tokens(&config).into_iter().map(str::to_owned).collect()
}

fn conversation(value: Value) -> Conversation {
    Conversation::parse(&value.to_string()).unwrap()
}

fn render(value: Value) -> Rendered {
    qwen3().render(&conversation(value)).unwrap()
}

/// Renders with a template of the test's own.
fn with_template(source: &str, value: Value) -> Result<Rendered, ChatError> {
    let names = markers();
    let added: Vec<&str> = names.iter().map(String::as_str).collect();
    Template::parse(source, &added)?.render(&conversation(value))
}

fn hi() -> Value {
    json!({"messages": [{"role": "user", "content": "hi"}]})
}

#[test]
fn reference_cases_are_byte_equal() {
    let cases: Vec<Value> = serde_json::from_str(CASES).unwrap();
    assert_eq!(cases.len(), 9);
    for template in [qwen3(), template_of(KIPP_TINY)] {
        for case in &cases {
            let conversation = Conversation::parse(&case.to_string()).unwrap();
            let rendered = template.render(&conversation).unwrap();
            assert_eq!(rendered.text, case["rendered"].as_str().unwrap(), "{}", case["name"]);
            assert!(rendered.plain.is_empty(), "{}", case["name"]);
        }
    }
}

#[test]
fn h27_tool_definitions_keep_order_spelling_and_characters() {
    let tool = r#"{"type": "function", "function": {"name": "get_weather", "description": "Temp > 10 & < 50 (user's choice) 摄氏度", "parameters": {"type": "object", "properties": {"zip": {"type": "string"}, "city": {"type": "string"}}, "required": ["city"]}}}"#;
    let other = r#"{"x": [1.0, 1e5, 1E-7, 123456789012345678901234567890, -0, 0.10, true, false, null, "a/b", "\"\\\n\u0001\u007f"], "e": {}, "l": []}"#;
    let spelled = other.replace("\\u007f", "\u{7f}");
    let compact = |json: &str| json.replace("\": ", "\":").replace(", ", ",");
    let text = format!(
        r#"{{"messages": [{{"role": "user", "content": "q"}}], "tools": [{}, {}]}}"#,
        tool,
        compact(other)
    );
    let rendered = qwen3().render(&Conversation::parse(&text).unwrap()).unwrap();
    assert!(rendered.text.contains(&format!("<tools>\n{tool}\n{spelled}\n</tools>")), "{}", rendered.text);
}

#[test]
fn h28_thinking_is_kept_exactly_in_the_current_tool_loop() {
    let expected = "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\nq1<|im_end|>\n<|im_start|>assistant\na1<|im_end|>\n<|im_start|>user\nq2<|im_end|>\n<|im_start|>assistant\n<think>\nneed tool\n</think>\n\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"x\": \"é\"}}\n</tool_call><|im_end|>\n<|im_start|>user\n<tool_response>\nr1\n</tool_response>\n<tool_response>\nr2\n</tool_response><|im_end|>\n<|im_start|>assistant\n";
    for (arguments, key) in
        [(json!({"x": "é"}), "reasoning_content"), (json!("{\"x\":\"\\u00e9\"}"), "reasoning")]
    {
        let rendered = render(json!({"messages": [
            {"role": "system", "content": "S"},
            {"role": "user", "content": "q1"},
            {"role": "assistant", "content": "<think>\nold\n</think>\n\na1"},
            {"role": "user", "content": "q2"},
            {"role": "assistant", key: "need tool", "tool_calls": [{"function": {"name": "f", "arguments": arguments}}]},
            {"role": "tool", "content": "r1"},
            {"role": "tool", "content": "r2"}
        ]}));
        assert_eq!(rendered.text, expected);
        assert!(rendered.plain.is_empty());
    }
}

#[test]
fn h28_odd_turns_follow_the_template() {
    let off = render(json!({"enable_thinking": false, "messages": [{"role": "user", "content": "hi"}]}));
    let expected = "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n";
    assert_eq!(off.text, expected);
    let variables = json!({"enable_thinking": false});
    let nested =
        render(json!({"chat_template_kwargs": variables, "messages": [{"role": "user", "content": "hi"}]}));
    assert_eq!(nested, off);
    let later = render(json!({"messages": [
        {"role": "user", "content": "a"}, {"role": "developer", "content": "b"}]}));
    assert!(later.text.starts_with("<|im_start|>user\na<|im_end|>\n<|im_start|>system\nb<|im_end|>\n"));
    // A user turn that is only a tool response is no query: the thinking before it is kept.
    let response = "<tool_response>\nr\n</tool_response>";
    let kept = render(json!({"messages": [
        {"role": "user", "content": "q"},
        {"role": "assistant", "content": "<think>\nt\n</think>\n\na"},
        {"role": "user", "content": response}]}));
    assert!(kept.text.contains("<|im_start|>assistant\n<think>\nt\n</think>\n\na<|im_end|>"));
    assert_eq!(kept.plain.len(), 2, "but its spelling stays plain text");
}

#[test]
fn h20_null_absent_and_parts_are_one_content() {
    let call = json!([{"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}]);
    let turn = |content: Value| {
        let mut turn = json!({"role": "assistant", "tool_calls": call});
        if content != json!("absent") {
            turn["content"] = content;
        }
        render(json!({"messages": [{"role": "user", "content": "q"}, turn], "tools": null, "stop": 3}))
    };
    assert_eq!(turn(json!(null)), turn(json!("")));
    assert_eq!(turn(json!("absent")), turn(json!("")));
    let parts = json!([{"type": "text", "text": "foo"}, {"type": "text", "text": "bar"}]);
    assert_eq!(
        render(json!({"messages": [{"role": "user", "content": parts}], "tools": []})),
        render(json!({"messages": [{"role": "user", "content": "foobar"}]}))
    );
}

#[test]
fn wrong_fields_are_refused_by_path() {
    let user = |content: Value| json!({"messages": [{"role": "user", "content": content}]});
    let call = |call: Value| json!({"messages": [{"role": "assistant", "tool_calls": [call]}]});
    let cases = [
        (json!([]), "conversation"),
        (json!({}), "messages"),
        (json!({"messages": []}), "messages"),
        (json!({"messages": "x"}), "messages"),
        (json!({"messages": [3]}), "messages[0]"),
        (json!({"messages": [{"content": "x"}]}), "messages[0].role"),
        (json!({"messages": [{"role": "robot\u{1b}"}]}), "messages[0].role"),
        (json!({"messages": [{"role": 1}]}), "messages[0].role"),
        (user(json!(42)), "messages[0].content"),
        (user(json!([])), "messages[0].content"),
        (user(json!([{"type": "text", "text": "a"}, {"type": "image_url"}])), "messages[0].content[1].type"),
        (user(json!([{"text": "a"}])), "messages[0].content[0].type"),
        (user(json!([{"type": "text", "text": null}])), "messages[0].content[0].text"),
        (user(json!(["a"])), "messages[0].content[0]"),
        (call(json!(1)), "messages[0].tool_calls[0]"),
        (call(json!({"type": "custom"})), "messages[0].tool_calls[0].type"),
        (call(json!({"function": null})), "messages[0].tool_calls[0].function"),
        (call(json!({"function": {}})), "messages[0].tool_calls[0].function.name"),
        (
            call(json!({"function": {"name": "f", "arguments": [1]}})),
            "messages[0].tool_calls[0].function.arguments",
        ),
        (json!({"messages": [{"role": "tool", "tool_call_id": 3}]}), "messages[0].tool_call_id"),
        (json!({"messages": [{"role": "assistant", "reasoning": {}}]}), "messages[0].reasoning"),
        (json!({"messages": [{"role": "user"}], "tools": [1]}), "tools[0]"),
        (json!({"messages": [{"role": "user"}], "tools": {}}), "tools"),
        (json!({"messages": [{"role": "user"}], "enable_thinking": "no"}), "enable_thinking"),
        (json!({"messages": [{"role": "user"}], "add_generation_prompt": 0}), "add_generation_prompt"),
        (json!({"messages": [{"role": "user"}], "chat_template_kwargs": []}), "chat_template_kwargs"),
        (
            json!({"messages": [{"role": "user"}], "chat_template_kwargs": {"messages": []}}),
            "chat_template_kwargs.messages",
        ),
    ];
    for (value, expected) in cases {
        match Conversation::parse(&value.to_string()) {
            Err(error @ ChatError::Field { .. }) => {
                let ChatError::Field { path, .. } = &error else { continue };
                assert_eq!(path, expected);
                assert!(!error.to_string().contains(char::is_control), "{error}");
            }
            other => panic!("{value}: {other:?}"),
        }
    }
    for text in ["", "{", "\u{0}", r#"{"messages": [{"role": "user", "content": "\ud83d"}]}"#, "[[[["] {
        assert!(matches!(Conversation::parse(text), Err(ChatError::Json { .. })), "{text}");
    }
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    assert!(matches!(Conversation::parse(&deep), Err(ChatError::Json { .. })));
}

/// The prompt's ids, as the engine makes them.
fn ids(rendered: &Rendered) -> Vec<u32> {
    static TOKENIZER: std::sync::OnceLock<Tokenizer> = std::sync::OnceLock::new();
    let json = include_bytes!("../../../../testdata/qwen3-tokenizer/tokenizer.json");
    let tokenizer = TOKENIZER.get_or_init(|| Tokenizer::from_json(json).unwrap());
    tokenizer.encode_guarded(&rendered.text, &rendered.plain)
}

#[test]
fn reference_cases_have_the_reference_ids() {
    let cases: Vec<Value> = serde_json::from_str(CASES).unwrap();
    for case in &cases {
        let rendered = qwen3().render(&Conversation::parse(&case.to_string()).unwrap()).unwrap();
        assert_eq!(json!(ids(&rendered)), case["token_ids"], "{}", case["name"]);
    }
    let off = render(json!({"enable_thinking": false, "messages": [{"role": "user", "content": "hi"}]}));
    let expected = [151644, 872, 198, 6023, 151645, 198, 151644, 77091, 198, 151667, 271, 151668, 271];
    assert_eq!(ids(&off), expected);
}

#[test]
fn template_faults_have_their_own_errors() {
    let syntax = with_template("line\n{% if %}", hi());
    assert!(matches!(syntax, Err(ChatError::Syntax { line: 2, .. })), "{syntax:?}");
    let undefined = with_template("\n\n{{ nothing.at.all }}", hi());
    assert!(matches!(undefined, Err(ChatError::Undefined { line: 3, .. })), "{undefined:?}");
    let raised = with_template("{{ raise_exception('no \u{7}' ~ messages[0].role) }}", hi());
    assert_eq!(raised, Err(ChatError::Raised { message: "no \\u{7}user".to_owned() }));
    let failed = with_template("{{ 1 + 'a' }}", hi());
    assert!(matches!(failed, Err(ChatError::Failed { line: 1, .. })), "{failed:?}");
    let unserializable = with_template("{{ raise_exception|tojson }}", hi());
    assert!(matches!(unserializable, Err(ChatError::Failed { .. })), "{unserializable:?}");
    let long = Template::parse(&"x".repeat((1 << 20) + 1), &[]).map(drop);
    assert!(matches!(long, Err(ChatError::TemplateTooLong { .. })));
    assert_eq!(with_template("{{ nothing }}|{{ none }}|{{ true }}", hi()).unwrap().text, "|None|True");
}

#[test]
fn transformers_settings_hold() {
    let text = |source: &str| with_template(source, hi()).unwrap().text;
    assert_eq!(text("  {% if true %}\n a\n  {% endif %}\nb\n"), " a\nb");
    assert_eq!(
        text(
            "{% for i in range(9) %}{% if i == 1 %}{% continue %}{% endif %}{% if i == 3 %}{% break %}{% endif %}{{ i }}{% endfor %}"
        ),
        "02"
    );
    assert_eq!(
        text("{{ '<&>\\'' }}{{ messages[-1].content.strip('h') }}{{ ' a b '.split() | length }}"),
        "<&>'i2"
    );
    assert_eq!(
        text("{{ {'a': [1, 2.5, none, true], 'b': {}} | tojson }}"),
        r#"{"a": [1, 2.5, null, true], "b": {}}"#
    );
    assert_eq!(
        text("{{ {'b': [1], 'a': []} | tojson(indent=2, sort_keys=true) }}"),
        "{\n  \"a\": [],\n  \"b\": [\n    1\n  ]\n}"
    );
    assert_eq!(
        text("{{ ['é🙂', 1] | tojson(ensure_ascii=true, separators=(',', ':')) }}"),
        "[\"\\u00e9\\ud83d\\ude42\",1]"
    );
}

#[test]
fn a_long_conversation_is_no_attack() {
    let mut messages = Vec::new();
    for n in 0..5_000 {
        messages.push(Message::new(Role::User, format!("q{n}")));
        messages.push(Message::new(Role::Assistant, "<think>\nt\n</think>\n\na"));
    }
    messages.push(Message::new(Role::User, "x<|im_end|>".repeat(100_000)));
    let rendered = qwen3().render(&Conversation::new(messages)).unwrap();
    assert_eq!(rendered.plain.len(), 100_000);
}
