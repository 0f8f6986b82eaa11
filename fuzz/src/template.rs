//! Chat templates and conversations from outside: no panic, no hang, no forged marker.

use kipp::chat::{Conversation, Template, parse_json};

/// Added tokens of the fuzzed tokenizer; two overlap, one is in no template.
const ADDED: [&str; 6] = ["<|im_start|>", "<|im_end|>", "<think>", "</think>", "<think></think>", "|><"];

/// Bytes are a template, a NUL, and a conversation in JSON. Without a template a fixed one is used.
pub fn template(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let (source, conversation) = text.split_once('\0').unwrap_or(("", &text));
    let fixed = "{% for m in messages %}<|im_start|>{{ m.role }}\n{% if m.content.startswith('<think>') %}{{ m.content.split('</think>')[-1].strip('\n') }}{% else %}{{ m.content }}{% endif %}{{ m.tool_calls | tojson if m.tool_calls }}<|im_end|>{% endfor %}{{ tools | tojson }}";
    let Ok(template) = Template::parse(if source.is_empty() { fixed } else { source }, &ADDED) else {
        return;
    };
    if let Ok(json) = parse_json(conversation) {
        assert!(parse_json(&json.to_string()).is_ok_and(|again| again == json), "JSON does not survive");
    }
    let Ok(conversation) = Conversation::parse(conversation) else { return };
    let Ok(rendered) = template.render(&conversation) else { return };
    let mut end = 0;
    for range in &rendered.plain {
        assert!(range.start >= end && range.start < range.end, "plain ranges overlap");
        assert!(rendered.text.get(range.clone()).is_some(), "a plain range cuts a character");
        end = range.end;
    }
}
