//! Whatever the grammar, it is compiled or refused in time.

use std::time::{Duration, Instant};

use kipp::TokenId;
use kipp::sampling::constraint::{Constraint, ConstraintCompiler, ConstraintError, Grammar};

use super::{QWEN, QWEN_ENDS, QWEN_ROWS, Random, TINY, allows};

/// Grammars that are no grammars, or meant to use up time, memory or stack.
pub(super) fn hostile() -> Vec<(&'static str, Grammar)> {
    let text = |text: String| Grammar::JsonSchema(text);
    let nest = |open: &str, close: &str, n: usize| format!("{}{{}}{}", open.repeat(n), close.repeat(n));
    let names =
        |n: usize, value: &str| (0..n).map(|i| format!("\"k{i}\":{value}")).collect::<Vec<_>>().join(",");
    let consts = |n: usize| (0..n).map(|i| format!("{{\"const\":\"v{i}\"}}")).collect::<Vec<_>>().join(",");
    let doubling = (0..100)
        .map(|i| {
            format!(
                "\"d{i}\":{{\"allOf\":[{{\"$ref\":\"#/$defs/d{0}\"}},{{\"$ref\":\"#/$defs/d{0}\"}}]}}",
                i + 1
            )
        })
        .collect::<Vec<_>>()
        .join(",");
    let branching = (0..40)
        .map(|i| {
            let next = format!("{{\"$ref\":\"#/$defs/d{}\"}}", i + 1);
            format!("\"d{i}\":{{\"type\":\"object\",\"properties\":{{\"a\":{next},\"b\":{next}}},\"anyOf\":[{next},{next}]}}")
        })
        .collect::<Vec<_>>()
        .join(",");
    vec![
        ("not JSON", text("{\"type\":".to_owned())),
        ("a number", text("5".to_owned())),
        ("an unknown type", text("{\"type\":\"strange\"}".to_owned())),
        ("properties no object", text("{\"properties\":[1]}".to_owned())),
        ("nothing matches", text("{\"type\":\"string\",\"enum\":[1]}".to_owned())),
        ("deep", text(nest("{\"items\":", "}", 60))),
        ("deeper", text(nest("{\"items\":", "}", 20_000))),
        ("deep arrays", text("[".repeat(200_000))),
        ("many alternatives", text(format!("{{\"anyOf\":[{}]}}", consts(10_000)))),
        ("many exclusive alternatives", text(format!("{{\"oneOf\":[{}]}}", consts(10_000)))),
        ("a product", text(format!("{{\"allOf\":[{{\"anyOf\":[{0}]}},{{\"anyOf\":[{0}]}},{{\"anyOf\":[{0}]}}]}}", consts(900)))),
        ("many properties", text(format!("{{\"properties\":{{{}}}}}", names(12_000, "{\"type\":\"number\"}")))),
        ("many patterns", text(format!("{{\"patternProperties\":{{{}}}}}", names(3000, "{}")))),
        ("doubling references", text(format!("{{\"$defs\":{{{doubling},\"d100\":{{\"type\":\"object\"}}}},\"$ref\":\"#/$defs/d0\"}}"))),
        ("branching references", text(format!("{{\"$defs\":{{{branching},\"d40\":{{\"type\":\"object\"}}}},\"$ref\":\"#/$defs/d0\"}}"))),
        ("a reference to itself", text("{\"$ref\":\"#\"}".to_owned())),
        ("itself and more", text("{\"allOf\":[{\"$ref\":\"#\"},{\"type\":\"object\"}]}".to_owned())),
        ("nowhere", text("{\"$ref\":\"#/$defs/none\"}".to_owned())),
        ("outside", text("{\"$ref\":\"https://example.com/schema.json\"}".to_owned())),
        ("a file", text("{\"items\":{\"$ref\":\"file:///etc/passwd\"}}".to_owned())),
        ("long strings", text("{\"type\":\"string\",\"minLength\":1000000000,\"maxLength\":2000000000}".to_owned())),
        ("many items", text("{\"type\":\"array\",\"items\":{\"type\":\"string\"},\"minItems\":1000000000}".to_owned())),
        ("items within items", text("{\"items\":{\"items\":{\"items\":{\"maxItems\":1000},\"maxItems\":1000},\"maxItems\":1000},\"maxItems\":100000}".to_owned())),
        ("negative length", text("{\"type\":\"string\",\"minLength\":-1}".to_owned())),
        ("huge bounds", text("{\"type\":\"number\",\"minimum\":-1e308,\"maximum\":1e308,\"multipleOf\":1e-300}".to_owned())),
        ("huge integers", text("{\"type\":\"integer\",\"minimum\":-170141183460469231731687303715884105728}".to_owned())),
        ("common multiples", text("{\"allOf\":[{\"multipleOf\":4294967291},{\"multipleOf\":4294967279},{\"multipleOf\":1e15}]}".to_owned())),
        ("a bomb", text("{\"type\":\"string\",\"pattern\":\"((a{1,1000}){1,1000}){1,1000}\"}".to_owned())),
        ("another bomb", text("{\"type\":\"string\",\"pattern\":\"(a|b)*a(a|b){400}\"}".to_owned())),
        ("a wrong pattern", text("{\"type\":\"string\",\"pattern\":\"(((\"}".to_owned())),
        ("too long", text(format!("{{\"title\":\"{}\"}}", "x".repeat(300_000)))),
        ("a regular expression bomb", Grammar::Regex("(.*a.*){1000}{1000}".to_owned())),
        ("many stars", Grammar::Regex(format!("a{}", "*".repeat(50_000)))),
        ("many groups", Grammar::Regex("(".repeat(50_000))),
        ("look around", Grammar::Regex("(?=a)b\\1".to_owned())),
        ("many words", Grammar::Regex((0..20_000).map(|i| format!("w{i}")).collect::<Vec<_>>().join("|"))),
        ("states", Grammar::Regex(".*1.{2000}".to_owned())),
        ("empty", Grammar::Lark(String::new())),
        ("not Lark", Grammar::Lark("start: (((".to_owned())),
        ("left recursion", Grammar::Lark("start: start | start start | \"\"".to_owned())),
        ("no such rule", Grammar::Lark("start: other".to_owned())),
        ("rule stars", Grammar::Lark(format!("start: \"a\"{}", "?".repeat(100_000)))),
        ("ambiguous", Grammar::Lark("start: a*\na: b | b b\nb: c | c c\nc: \"x\" | \"xx\" | \"xxx\"\n".to_owned())),
        ("repetition", Grammar::Lark("start: ((\"a\" | \"b\"){0,100000}){0,100000}".to_owned())),
        ("import", Grammar::Lark("start: %json {\"$ref\":\"http://example.com\"}".to_owned())),
    ]
}

#[test]
fn hostile_grammars_end_in_time() {
    let (_, compiler) = &*QWEN;
    for (name, grammar) in hostile() {
        // A machine that stalls is given another try: it is the grammar's time that counts.
        let mut tries = 0;
        loop {
            let started = Instant::now();
            let compiled = compiler.compile(&grammar);
            let took = started.elapsed();
            tries += 1;
            if took < Duration::from_secs(2) || tries == 3 {
                println!("{name}: {took:?} {:?}", compiled.as_ref().err().map(ToString::to_string));
                assert!(took < Duration::from_secs(2), "{name}: {took:?}");
                break follow(name, compiled);
            }
        }
    }
}

/// A grammar that was not refused is followed for some tokens, in bounded time, to an error of its own at worst.
fn follow(name: &str, compiled: Result<Constraint, ConstraintError>) {
    let Ok(mut constraint) = compiled else { return };
    let mut random = Random(1);
    for _ in 0..20 {
        let started = Instant::now();
        let Ok(allowed) = constraint.allowed() else { return };
        let choices: Vec<TokenId> = (0..QWEN_ROWS as u32).filter(|id| allows(allowed, *id)).collect();
        assert!(started.elapsed() < Duration::from_secs(2), "{name}: a mask took {:?}", started.elapsed());
        let id = choices[random.next() as usize % choices.len()];
        if QWEN_ENDS.contains(&id) || constraint.accept(id).is_err() {
            return;
        }
    }
}

#[test]
fn what_is_refused_says_why() {
    let (_, compiler) = &*QWEN;
    let refuse = |schema: &str| match compiler.compile(&Grammar::JsonSchema(schema.to_owned())) {
        Ok(_) => panic!("{schema} was compiled"),
        Err(error) => error,
    };
    assert!(matches!(refuse("{\"type\":"), ConstraintError::NotJson { .. }));
    assert!(matches!(refuse(&"[".repeat(100)), ConstraintError::TooDeep { depth: 100, .. }));
    assert!(matches!(refuse(&" ".repeat(300_000)), ConstraintError::TooLong { bytes: 300_000, .. }));
    assert!(matches!(refuse(r##"{"$ref":"other.json#/a"}"##), ConstraintError::ForeignReference { .. }));
    let strange = refuse(r#"{"type":"strange\u0007"}"#).to_string();
    assert!(strange.contains("strange") && !strange.contains(|c: char| c.is_control()), "{strange}");
    let unsupported =
        refuse(r#"{"type":"object","if":{"required":["a"]},"then":{"required":["b"]}}"#).to_string();
    assert!(unsupported.contains("if"), "{unsupported}");
    let (tokenizer, ..) = &*TINY;
    for ends in [&[][..], &[u32::MAX]] {
        assert!(matches!(ConstraintCompiler::new(tokenizer, ends), Err(ConstraintError::NoEndToken { .. })));
    }
}
