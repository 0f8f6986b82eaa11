//! What the templates of models and fine-tunes do, in small: the bounds on hostile ones must not show.

use super::with_template;
use serde_json::{Value, json};

fn talk() -> Value {
    json!({
        "messages": [
            {"role": "system", "content": "S"},
            {"role": "user", "content": " q1 "},
            {"role": "assistant", "content": "<think>\nt\n</think>\n\na1", "tool_calls": [
                {"id": "c", "type": "function", "function": {"name": "f", "arguments": {"x": "v", "n": [1, 2]}}}]},
            {"role": "tool", "content": "r"},
            {"role": "user", "content": "q2"}
        ],
        "tools": [{"type": "function", "function": {"name": "f", "parameters": {"properties": {
            "b": {"type": "string"}, "a": {"type": "integer"}}, "required": ["b"]}}}]
    })
}

fn text(source: &str) -> String {
    match with_template(source, talk()) {
        Ok(rendered) => rendered.text,
        Err(error) => panic!("{source}: {error}"),
    }
}

#[test]
fn lists_of_messages_are_cut_joined_and_filtered() {
    let cases = [
        ("{% set messages = messages[1:] %}{{ messages | length }}{{ messages[0].role }}", "4user"),
        ("{% for m in messages[::-1] %}{{ m.role[0] }}{{ loop.index0 }}{% endfor %}", "u0t1a2u3s4"),
        ("{{ messages[-1]['content'] }}{{ messages[:2][-1].role }}", "q2user"),
        ("{% set all = messages + [{'role': 'x'}] %}{{ all[-1].role }}{{ all | length }}", "x6"),
        ("{{ messages | selectattr('role', 'equalto', 'user') | list | length }}", "2"),
        (
            "{{ messages | rejectattr('role', 'in', ['user', 'tool']) | map(attribute='role') | join(',') }}",
            "system,assistant",
        ),
        (
            "{% set ns = namespace(l=[]) %}{% for m in messages %}{% set ns.l = ns.l + [m.content | trim] %}{% endfor %}{{ ns.l[1:2] | join }}",
            "q1",
        ),
        (
            "{% for m in messages if m.role == 'user' %}{{ loop.length }}{{ m.content }}{% else %}no{% endfor %}",
            "2 q1 2q2",
        ),
        (
            "{% for m in messages %}{{ loop.cycle('a', 'b') }}{% if loop.last %}.{% endif %}{% endfor %}",
            "ababa.",
        ),
        ("{% set first, second = messages[0].role, messages[1].role %}{{ second }}", "user"),
        (
            "{{ (messages | first).role }}{{ (messages | last).role }}{{ messages | reverse | map(attribute='role') | first }}",
            "systemuseruser",
        ),
        (
            "{% if messages and messages[0] is mapping and messages is sequence and tools is iterable %}y{% endif %}",
            "y",
        ),
        ("{{ [1, 2] + [3] }}{{ (1, 2) }}{{ range(3) | list }}", "[1, 2, 3](1, 2)[0, 1, 2]"),
        (
            "{{ messages | map('length') | list }}{{ ['b', 'a'] | sort }}{{ ['a', 'a'] | unique | list }}",
            "[2, 2, 3, 2, 2]['a', 'b']['a']",
        ),
    ];
    for (source, expected) in cases {
        assert_eq!(text(source), expected, "{source}");
    }
}

#[test]
fn namespaces_collect_text_and_flags() {
    let cases = [
        (
            "{% set ns = namespace(x='') %}{% for m in messages %}{% set ns.x = ns.x + m.role[0] %}{% endfor %}{{ ns.x }}",
            "suatu",
        ),
        (
            "{% set ns = namespace(is_first=true, system=none) %}{% for m in messages %}{% if ns.is_first and m.role == 'system' %}{% set ns.system = m %}{% set ns.is_first = false %}{% endif %}{% endfor %}{{ ns.system.content }}",
            "S",
        ),
        (
            "{% macro show(m, ns) %}{{ ns.p }}{{ m.role }}{% endmacro %}{% set ns = namespace(p='>') %}{{ show(messages[0], ns) }}{{ show(m=messages[1], ns=ns) }}",
            ">system>user",
        ),
        (
            "{% macro wrap(tag) %}<{{ tag }}>{{ caller() }}</{{ tag }}>{% endmacro %}{% call wrap('a') %}x{% endcall %}",
            "<a>x</a>",
        ),
        (
            "{% macro tree(v) %}{% if v is mapping %}{% for k, w in v | items %}{{ k }}:{{ tree(w) }};{% endfor %}{% else %}{{ v }}{% endif %}{% endmacro %}{{ tree({'a': {'b': 1}, 'c': 2}) }}",
            "a:b:1;;c:2;",
        ),
        (
            "{% set d = dict(a=1) %}{{ d.a }}{{ {'k': messages[0]}['k'].role }}{{ d.get('z', 'no') }}",
            "1systemno",
        ),
        ("{% set t %}{% for m in messages %}{{ m.role[0] }}{% endfor %}{% endset %}{{ t | upper }}", "SUATU"),
    ];
    for (source, expected) in cases {
        assert_eq!(text(source), expected, "{source}");
    }
}

#[test]
fn texts_and_tools_are_taken_apart() {
    let cases = [
        ("{{ messages[2].content.split('</think>')[-1].lstrip('\\n') }}", "a1"),
        (
            "{{ messages[2]['content'].split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') }}",
            "t",
        ),
        (
            "{{ '</think>' in messages[2].content }}{{ 'tool_calls' in messages[2] }}{{ 'x' not in messages[0] }}",
            "TrueTrueTrue",
        ),
        (
            "{% for name, p in tools[0].function.parameters.properties.items() %}{{ name }}={{ p.type }} {% endfor %}",
            "b=string a=integer ",
        ),
        (
            "{% for name, p in tools[0].function.parameters.properties | dictsort %}{{ name }}{% endfor %}",
            "ab",
        ),
        (
            "{% for name in tools[0].function.parameters.properties.keys() | list %}{{ name }}{% endfor %}",
            "ba",
        ),
        (
            "{% set call = messages[2].tool_calls[0] %}{% if call.function is defined %}{% set call = call.function %}{% endif %}{{ call.arguments | tojson }}{{ call.arguments is string }}",
            "{\"x\": \"v\", \"n\": [1, 2]}False",
        ),
        (
            "{% for k, v in messages[2].tool_calls[0].function.arguments | items %}<parameter={{ k }}>{{ v | tojson if v is mapping or (v is sequence and v is not string) else v | string }}</parameter>{% endfor %}",
            "<parameter=x>v</parameter><parameter=n>[1, 2]</parameter>",
        ),
        (
            "{{ messages[1].content | trim | capitalize }}{{ messages[1].content.strip()[::-1] }}{{ messages[0].content.lower() * 3 }}",
            "Q11qsss",
        ),
        (
            "{{ nothing | default('d') }}{{ nothing is not defined }}{{ (nothing or 'e') ~ 1 ~ none }}",
            "dTruee1None",
        ),
        (
            "{{ ['a', 'b'] | join(', ') }}{{ 'a,b'.split(',') | last }}{{ 'x'.startswith(('x', 'y')) }}",
            "a, bbTrue",
        ),
        (
            "{{ 1 < 2 < 3 }}{{ 7 // 2 }}{{ 7 % 2 }}{{ 2 ** 3 }}{{ (loop is defined) }}{{ 3.5 | int }}",
            "True318False3",
        ),
        ("{{- raise_exception('x') if messages | length > 9 }}ok", "ok"),
    ];
    for (source, expected) in cases {
        assert_eq!(text(source), expected, "{source}");
    }
}
