//! Templates that mean harm: each must end in a typed error, soon, and in little memory. They run in child
//! processes with limits, so that one that overflows the stack fails a test instead of ending all of them.

use std::process::Command;

use super::{hi, with_template};
use kipp::chat::ChatError;

const SOURCE: &str = "KIPP_TEST_HOSTILE_TEMPLATE";

/// Not a test by itself: the child process of the others.
#[test]
#[ignore = "the child of other tests"]
fn child() {
    let Ok(source) = std::env::var(SOURCE) else { return };
    let result = with_template(&source, hi());
    assert!(result.is_err(), "rendered");
    assert!(!format!("{result:?}").contains("panicked"), "{result:?}");
}

/// One second of processor time and 512 MiB of address space each.
fn assert_refused(sources: &[String]) {
    let program = std::env::current_exe().unwrap();
    for source in sources {
        let script = "ulimit -t 1 && ulimit -v 524288 && exec \"$0\" --exact chat::hostile::child --ignored";
        let run =
            Command::new("sh").arg("-c").arg(script).arg(&program).env(SOURCE, source).output().unwrap();
        let said = String::from_utf8_lossy(&run.stdout);
        assert!(run.status.success() && said.contains("1 passed"), "{source}\n{run:?}");
    }
}

/// A value that holds 2^60 texts, or itself, in the ways that Jinja has.
fn bombs() -> Vec<String> {
    let grow = |start: &str, step: &str| {
        format!(
            "{{% set ns = namespace(l={start}) %}}{{% for i in range(60) %}}{{% set ns.l = {step} %}}{{% endfor %}}{{% set x = ns.l %}}"
        )
    };
    let unrolled: String = (0..60).map(|n| format!("{{% set v{} = [v{n}, v{n}] %}}", n + 1)).collect();
    vec![
        grow("['aaaaaaaa']", "[ns.l, ns.l]"),
        grow("('a', 'b')", "(ns.l, ns.l)"),
        grow("{'a': 1}", "{'a': ns.l, 'b': ns.l}"),
        grow("['a']", "ns.l + ns.l"),
        grow("['a']", "ns.l * 2"),
        grow("['a']", "dict(a=ns.l, b=ns.l)"),
        grow("['a']", "[ns.l, ns.l] | list"),
        grow("['a']", "[ns.l] + [ns.l]"),
        grow("['a']", "[ns.l, ns.l][::-1]"),
        grow("['a']", "[ns.l] | batch(2, ns.l) | list"),
        grow("['a']", "[ns.l, ns.l] | map('default', 1) | list"),
        grow("['a']", "{'a': ns.l, 'b': ns.l}.values()"),
        grow("['a']", "loop.cycle([ns.l, ns.l])"),
        grow("['a']", "[ns.l]"),
        format!("{{% set v0 = ['a'] %}}{unrolled}{{% set x = v60 %}}"),
        "{% set ns = namespace() %}{% set ns.a = ns %}{% set x = ns %}".to_owned(),
        "{% set ns = namespace() %}{% set ns.a = [ns] %}{% set x = ns %}".to_owned(),
        "{% set ns = namespace() %}{% set ns.a = {'a': ns} %}{% set x = ns.a %}".to_owned(),
        "{% set ns = namespace() %}{% set ns.a = dict(a=ns) %}{% set x = ns.a %}".to_owned(),
        "{% set ns = namespace() %}{% set ns.a = namespace(a=ns) %}{% set x = ns.a %}".to_owned(),
        "{% set ns = namespace() %}{% for i in [1] %}{% set ns.a = loop.cycle(a=ns) %}{% endfor %}{% set x = ns.a %}"
            .to_owned(),
    ]
}

/// What may be done with `x`.
const USES: [&str; 36] = [
    "{{ x }}",
    "{{ x ~ '' }}",
    "{{ '' ~ x }}",
    "{{ x | join('') }}",
    "{{ [x] | join }}",
    "{{ ''.join([x, x]) }}",
    "{{ x | string }}",
    "{{ x | tojson }}",
    "{{ x | pprint }}",
    "{{ '%s' | format(x) }}",
    "{{ '{}'.format(x) }}",
    "{{ x | upper }}",
    "{{ x | trim }}",
    "{{ x | replace('a', 'b') }}",
    "{{ 'a' | replace(x, 'b') }}",
    "{{ x | escape }}",
    "{{ x | sort }}{{ [x, [x]] | sort }}",
    "{{ [x, [x], x] | unique }}",
    "{{ [[x, 1], [x, 2]] | max }}",
    "{{ {x: 1} }}",
    "{{ {'a': 1}[x] }}{{ {[x]: 1} }}",
    "{{ {'a': 1}.get(x) }}{{ {[x]: 1} }}",
    "{{ [x, 1] == [[x], 1] }}{{ x ~ '' }}",
    "{{ [x, 1] < [[x], 1] }}{{ x ~ '' }}",
    "{{ 1 < [x, 1] < [[x], 1] }}{{ x ~ '' }}",
    "{{ x in [[x], [[x]]] }}{{ x ~ '' }}",
    "{{ x in 'abc' }}{{ x ~ '' }}",
    "{{ [x] is eq [[x]] }}{{ x ~ '' }}",
    "{{ x is in [[x]] }}{{ x ~ '' }}",
    "{{ [[x], [[x]]].count(x) }}{{ x ~ '' }}",
    "{{ [x] | map('upper') | list }}{{ x ~ '' }}",
    "{{ [x] | select('eq', [x]) | list }}{{ x ~ '' }}",
    "{% for i in [1, 2] %}{{ loop.changed([x, i]) }}{% endfor %}{{ x ~ '' }}",
    "{% set t %}{{ x }}{% endset %}",
    "{% macro m(y) %}{{ y ~ '' }}{% endmacro %}{{ m(x) }}",
    "{{ raise_exception(x) }}{{ x ~ '' }}",
];

/// Each of `count` tests takes its share, so that they run at once.
fn part(n: usize, count: usize) {
    let bombs = bombs();
    // Every use of a doubled list and of a namespace in itself, and three uses of the others.
    let all = bombs.iter().enumerate().flat_map(|(b, bomb)| {
        let uses: &[&str] = if [0, 15].contains(&b) { &USES } else { &USES[..3] };
        uses.iter().map(move |step| format!("{bomb}{step}"))
    });
    // A list in a list sixty times over may be printed: it is harmless.
    let harmless =
        |source: &str| source.contains("set ns.l = [ns.l] %}") || source.contains("loop.cycle([ns.l, ns.l]");
    let all: Vec<String> = all.filter(|source| !harmless(source)).collect();
    assert_refused(&all.into_iter().skip(n).step_by(count).collect::<Vec<_>>());
}

#[test]
fn bombs_end_in_an_error_0() {
    part(0, 2);
}

#[test]
fn bombs_end_in_an_error_1() {
    part(1, 2);
}

/// Loops, recursion and texts.
#[test]
fn loops_recursion_and_growing_texts_end_in_an_error() {
    let grow = |step: &str| {
        format!(
            "{{% set ns = namespace(a='aaaaaaaa') %}}{{% for i in range(64) %}}{{% set ns.a = {step} %}}{{% endfor %}}"
        )
    };
    let often = |before: &str, step: &str| {
        format!(
            "{before}{{% for i in range(9999) %}}{{% for j in range(9999) %}}{step}{{% endfor %}}{{% endfor %}}"
        )
    };
    let text = "{% set t = 'é' * 999999 %}{% set u = t ~ '' %}";
    let nest = often("{% set ns = namespace(a=[]) %}", "{% set ns.a = [ns.a] %}");
    let list =
        "{% set ns = namespace(a=[1]) %}{% for i in range(12) %}{% set ns.a = ns.a + ns.a %}{% endfor %}";
    assert_refused(&[
        often("", ""),
        often("", "raw text"),
        often("", "{% set ns = namespace() %}{% set ns.a = namespace %}"),
        "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}".to_owned(),
        "{% macro f(x) %}{{ f(x) }}{{ f(x) }}{% endmacro %}{{ f([1]) }}".to_owned(),
        "{% macro f(x) %}{{ caller(f) }}{% endmacro %}{% macro g(x) %}{% call f(x) %}{{ g(x) }}{% endcall %}{% endmacro %}{{ g(1) }}".to_owned(),
        "{% for x in [[1]] recursive %}{{ loop([x, x]) }}{% endfor %}".to_owned(),
        "{% for x in [[1]] %}{{ loop([x, x]) }}{% endfor %}".to_owned(),
        "{% for x in [1] %}{{ loop.cycle() }}{% endfor %}".to_owned(),
        "{% include 'a' %}".to_owned(),
        "{% extends 'a' %}".to_owned(),
        "{% import 'a' as a %}".to_owned(),
        "{% block a %}{{ self.a() }}{% endblock %}".to_owned(),
        "{% autoescape true %}{{ 1 }}{% endautoescape %}".to_owned(),
        "{{ dict(**{'a': 1}) }}".to_owned(),
        "{{ raise_exception(*['a']) }}".to_owned(),
        "{{ debug() }}".to_owned(),
        grow("ns.a ~ ns.a"),
        grow("ns.a + ns.a"),
        grow("ns.a * 2"),
        grow("ns.a.replace('a', 'aa')"),
        grow("ns.a | replace('a', ns.a)"),
        grow("ns.a.join([ns.a, ns.a, ns.a])"),
        grow("'%s%s' | format(ns.a, ns.a)"),
        "{{ 'a' * 99999999 }}".to_owned(),
        "{{ '%999999999d' | format(1) }}".to_owned(),
        "{{ '{:999999999}'.format(1) }}".to_owned(),
        "{{ 'a' | indent(999999999) }}{{ ('a\n' * 999) | indent(999999) }}".to_owned(),
        "{{ [1] | batch(999999999, 1) }}{{ [1] | slice(999999999) }}".to_owned(),
        "{{ ([1] * 99999999) ~ '' }}".to_owned(),
        "{{ 5 in [1] * 99999999 }}".to_owned(),
        "{% set x = [1] * 99999999 ~ '' %}{{ 1 is in [1] * 99999999 ~ '' }}".to_owned(),
        "{% if [1] * 99999999 == [1] * 99999998 %}{% endif %}{{ not [1] * 9999999 ~ '' }}".to_owned(),
        nest.clone(),
        format!("{nest}{{{{ ns.a ~ '' }}}}"),
        often(text, "{{ t == u }}"),
        often(text, "{{ t[-1] }}"),
        often(text, "{{ t[-1:] | length }}"),
        often(text, "{{ 'x' in t }}"),
        often(text, "{{ t.strip(u) | length }}"),
        often(text, "{{ t | trim(u) | length }}"),
        often(text, "{{ t is eq u }}"),
        often(text, "{{ t | first }}"),
        often(text, "{{ {'a': 1}[t] }}"),
        often(text, "{{ [t, u] | sort | length }}"),
        often(text, "{% for c in t %}{% break %}{% endfor %}"),
        often(list, "{% for c in ns.a %}{% break %}{% endfor %}"),
        often(list, "{{ ns.a[4000:] | first }}"),
        often(list, "{{ ns.a == ns.a + [1] }}"),
        often(list, "{{ 7 in ns.a }}"),
        often(list, "{{ [ns.a, ns.a] | map('join') | first }}"),
    ]);
}

/// Sources whose length alone would make the parser recurse. Too long for an environment variable, and only
/// the parser sees them.
#[test]
fn deep_sources_are_refused() {
    let long = |piece: &str| format!("{{{{ x{} }}}}", piece.repeat(500_000 / piece.len()));
    let unbounded = [
        long("+1"),
        long(".a"),
        long("|upper"),
        long("[0]"),
        long(" if 1 else x"),
        long("()"),
        format!("{{% if 1 %}}{}{{% endif %}}", "{% elif 1 %}".repeat(50_000)),
    ];
    for source in unbounded {
        let result = with_template(&source, hi());
        assert!(matches!(result, Err(ChatError::Unbounded { .. })), "{result:?}");
    }
    let attributes = format!("{{% set ns = namespace() %}}{}", "{% set ns.a = 1 %}".repeat(1025));
    assert!(matches!(with_template(&attributes, hi()), Err(ChatError::Unbounded { .. })));
    let nested = [
        format!("{{{{ {}1{} }}}}", "(".repeat(400), ")".repeat(400)),
        format!("{}{}", "{% if true %}".repeat(20_000), "{% endif %}".repeat(20_000)),
        format!("{}{}", "{% for i in [1] %}".repeat(20_000), "{% endfor %}".repeat(20_000)),
    ];
    for source in nested {
        let result = with_template(&source, hi());
        assert!(matches!(result, Err(ChatError::Syntax { .. })), "{result:?}");
    }
}

#[test]
fn refusals_name_the_construct_and_its_line() {
    let cases = [
        ("\n{% for x in [] recursive %}{% endfor %}", 2, "a recursive loop"),
        ("\n\n{% autoescape true %}{% endautoescape %}", 3, "`autoescape`"),
        ("{{ dict(**x) }}", 1, "`*` or `**` before an argument"),
        ("{{ [1] * 3 }}", 1, "`*` and a list in one tag"),
        ("{% for x in [1] %}{{ loop.cycle() }}{% endfor %}", 1, "`cycle` without values"),
    ];
    for (source, line, construct) in cases {
        assert_eq!(with_template(source, hi()), Err(ChatError::Unbounded { line, construct }), "{source}");
    }
    let failed = with_template("\n{{ messages | groupby('role') }}", hi());
    assert!(
        matches!(&failed, Err(ChatError::Failed { line: 2, problem }) if problem.contains("groupby")),
        "{failed:?}"
    );
}
