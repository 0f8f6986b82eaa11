//! Structured output: whatever the logits, an answer matches its grammar.

mod cost;
mod hostile;

use std::sync::LazyLock;
use std::time::Duration;

use kipp::TokenId;
use kipp::sampling::constraint::{
    Constraint, ConstraintCompiler, ConstraintError, Grammar, MaskJob, MaskWorker, Start,
};
use kipp::sampling::{AllowedTokens, Sampler, SamplingFields, SamplingParams};
use kipp::tokenizer::Tokenizer;
use serde_json::{Value, json};

use super::paths::repository;

/// The width of Qwen3's head: 267 rows more than its tokenizer has tokens.
const QWEN_ROWS: usize = 151_936;
const QWEN_ENDS: [TokenId; 2] = [151_645, 151_643];
/// Whoever waits this long has found something that hangs.
const PATIENCE: Duration = Duration::from_secs(60);
const THINK: TokenId = 151_667;
const THINK_END: TokenId = 151_668;

fn tokenizer(path: &str) -> Tokenizer {
    Tokenizer::from_json(&std::fs::read(repository(path)).unwrap()).unwrap()
}

static TINY: LazyLock<(Tokenizer, Vec<TokenId>, ConstraintCompiler)> = LazyLock::new(|| {
    let tokenizer = tokenizer("models/kipp-tiny/tokenizer.json");
    let ends = vec![tokenizer.token_id("<|im_end|>").unwrap(), tokenizer.token_id("<|endoftext|>").unwrap()];
    let compiler = ConstraintCompiler::new(&tokenizer, &ends).unwrap();
    (tokenizer, ends, compiler)
});

pub(crate) static QWEN: LazyLock<(Tokenizer, ConstraintCompiler)> = LazyLock::new(|| {
    let tokenizer = tokenizer("testdata/qwen3-tokenizer/tokenizer.json").with_rows(QWEN_ROWS).unwrap();
    let compiler = ConstraintCompiler::new(&tokenizer, &QWEN_ENDS).unwrap();
    (tokenizer, compiler)
});

/// Compiles a grammar that is well meant: again where the machine was held up for as long as a grammar may take.
pub(crate) fn compiled(compiler: &ConstraintCompiler, grammar: &Grammar) -> Constraint {
    let tries = (0..9).map(|_| compiler.compile(grammar));
    let mut done = tries.filter(|made| !matches!(made, Err(ConstraintError::TooSlow { .. })));
    done.next().unwrap().unwrap()
}

fn schema(schema: &Value) -> Grammar {
    Grammar::JsonSchema(schema.to_string())
}

fn allows(allowed: AllowedTokens<'_>, id: TokenId) -> bool {
    allowed.0.get(id as usize / 32).is_some_and(|word| word >> (id % 32) & 1 == 1)
}

fn words(allowed: AllowedTokens<'_>) -> Vec<u32> {
    allowed.0.to_vec()
}

/// Random numbers, the same every time.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u32 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as u32
    }

    fn logits(&mut self, n: usize) -> Vec<f32> {
        (0..n).map(|_| (self.next() % 4096) as f32 / 256.0).collect()
    }
}

/// Samples an answer from random logits until an end token comes; at most `limit` tokens.
fn answer(
    mut constraint: Constraint,
    ends: &[TokenId],
    rows: usize,
    seed: u64,
    limit: usize,
) -> Vec<TokenId> {
    let params = SamplingParams::parse(SamplingFields { temperature: 1.0, ..Default::default() }).unwrap();
    let mut sampler = Sampler::new(params, seed, 0, &[]);
    let mut random = Random(seed);
    let mut ids = Vec::new();
    while ids.len() < limit {
        let complete = constraint.is_complete();
        let mut logits = random.logits(rows);
        let allowed = constraint.allowed().unwrap();
        assert!(ends.iter().all(|id| allows(allowed, *id) == complete), "an end token exactly when complete");
        let id = sampler.sample_allowed(&mut logits, Some(allowed)).unwrap().id;
        constraint.accept(id).unwrap();
        sampler.accept(id);
        if ends.contains(&id) {
            assert!(complete);
            return ids;
        }
        ids.push(id);
    }
    panic!("no end after {limit} tokens");
}

/// Whether no blank stands outside strings.
fn is_compact(text: &str) -> bool {
    let (mut inside, mut escaped) = (false, false);
    text.chars().all(|c| {
        match c {
            _ if escaped => escaped = false,
            '\\' if inside => escaped = true,
            '"' => inside = !inside,
            c if !inside && c.is_whitespace() => return false,
            _ => {}
        }
        true
    })
}

type Check = fn(&Value) -> bool;

fn schemas() -> Vec<(Value, Check)> {
    fn person(value: &Value) -> bool {
        let object = value.as_object().unwrap();
        let known = ["name", "age", "tags", "ok"];
        object.keys().all(|key| known.contains(&key.as_str()))
            && value["name"].as_str().is_some_and(|name| name.chars().count() <= 12)
            && value["age"].as_u64().is_some_and(|age| age <= 130)
            && value.get("ok").is_none_or(Value::is_boolean)
            && value.get("tags").is_none_or(|tags| {
                let tags = tags.as_array().unwrap();
                tags.len() <= 4 && tags.iter().all(|tag| ["a", "b b", "ç"].contains(&tag.as_str().unwrap()))
            })
    }
    fn code(value: &Value) -> bool {
        let code = value.as_str().unwrap().as_bytes();
        code.len() == 6
            && code[..2].iter().all(u8::is_ascii_uppercase)
            && code[2] == b'-'
            && code[3..].iter().all(u8::is_ascii_digit)
    }
    fn either(value: &Value) -> bool {
        match value["kind"].as_str().unwrap() {
            "point" => value["x"].as_f64().is_some_and(|x| (-5.0..=5.0).contains(&x)),
            "none" => value["reason"].is_null(),
            _ => false,
        }
    }
    fn tree(value: &Value) -> bool {
        let leaf = |value: &Value| value.as_i64().is_some_and(|n| (0..10).contains(&n));
        let pair = |value: &Value, inner: &dyn Fn(&Value) -> bool| {
            value.as_array().is_some_and(|two| two.len() == 2 && two.iter().all(inner))
        };
        leaf(value) || pair(value, &|value| leaf(value) || pair(value, &leaf))
    }
    vec![
        (
            json!({"type": "object", "properties": {
                "name": {"type": "string", "maxLength": 12},
                "age": {"type": "integer", "minimum": 0, "maximum": 130},
                "tags": {"type": "array", "maxItems": 4, "items": {"enum": ["a", "b b", "ç"]}},
                "ok": {"type": "boolean"}},
                "required": ["name", "age"], "additionalProperties": false}),
            person,
        ),
        (json!({"type": "string", "pattern": "^[A-Z]{2}-[0-9]{3}$"}), code),
        (
            json!({"anyOf": [
                {"type": "object", "properties": {"kind": {"const": "point"}, "x": {"type": "number", "minimum": -5, "maximum": 5}},
                 "required": ["kind", "x"], "additionalProperties": false},
                {"type": "object", "properties": {"kind": {"const": "none"}, "reason": {"type": "null"}},
                 "required": ["kind", "reason"], "additionalProperties": false}]}),
            either,
        ),
        (
            json!({"$defs": {
                "leaf": {"type": "integer", "minimum": 0, "maximum": 9},
                "pair": {"anyOf": [{"$ref": "#/$defs/leaf"}, {"type": "array", "items": {"$ref": "#/$defs/leaf"}, "minItems": 2, "maxItems": 2}]}},
                "anyOf": [{"$ref": "#/$defs/leaf"}, {"type": "array", "items": {"$ref": "#/$defs/pair"}, "minItems": 2, "maxItems": 2}]}),
            tree,
        ),
    ]
}

#[test]
fn a_thousand_random_answers_match_their_schemas() {
    let (tokenizer, ends, compiler) = &*TINY;
    for (schema_value, check) in schemas() {
        let constraint = compiler.compile(&schema(&schema_value)).unwrap();
        for seed in 0..250 {
            let ids = answer(constraint.clone(), ends, tokenizer.rows(), seed, 2000);
            let text = tokenizer.decode(&ids, false).unwrap();
            let value: Value = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{text}: {error}"));
            assert!(check(&value), "{schema_value}: {text}");
            assert!(is_compact(&text), "{text}");
        }
    }
}

#[test]
fn h08_padding_rows_and_control_tokens_are_never_chosen() {
    let (tokenizer, compiler) = &*QWEN;
    for (schema_value, check) in schemas() {
        let constraint = compiler.compile(&schema(&schema_value)).unwrap();
        for seed in 0..5 {
            let ids = answer(constraint.clone(), &QWEN_ENDS, QWEN_ROWS, seed, 2000);
            assert!(ids.iter().all(|id| (*id as usize) < tokenizer.len() && *id < QWEN_ENDS[1]), "{ids:?}");
            let text = tokenizer.decode(&ids, true).unwrap();
            assert!(check(&serde_json::from_str(&text).unwrap()), "{text}");
        }
    }
    // A string may hold any text, but no added token, not even those that are text.
    let mut any = compiler.compile(&schema(&json!({"type": "string"}))).unwrap();
    any.accept(tokenizer.encode("\"")[0]).unwrap();
    let allowed = any.allowed().unwrap();
    assert!((151_643..QWEN_ROWS as u32).all(|id| !allows(allowed, id)));
    assert!(allows(allowed, tokenizer.encode(" hello")[0]));
    for id in [151_657, 151_669, 151_935, 200_000, u32::MAX] {
        assert!(matches!(any.accept(id), Err(ConstraintError::NotAllowed { .. })), "{id}");
    }
}

#[test]
fn regular_expressions_and_lark_grammars() {
    let (tokenizer, ends, compiler) = &*TINY;
    let lark = "start: greeting \" \" name\ngreeting: \"hello\" | \"good day\"\nname: /[A-Z][a-z]{1,6}/\n";
    let cases = [
        (Grammar::Regex("[a-f]{3}(-[0-9]{2}){1,3}".to_owned()), "^[a-f]{3}(-[0-9]{2}){1,3}$"),
        (Grammar::Lark(lark.to_owned()), "^(hello|good day) [A-Z][a-z]{1,6}$"),
    ];
    for (grammar, shown) in cases {
        let constraint = compiler.compile(&grammar).unwrap();
        for seed in 0..50 {
            let ids = answer(constraint.clone(), ends, tokenizer.rows(), seed, 200);
            let text = tokenizer.decode(&ids, false).unwrap();
            let again = compiler.compile(&Grammar::Regex(shown[1..shown.len() - 1].to_owned())).unwrap();
            assert!(fits(again, &text, tokenizer), "{text:?} against {shown}");
        }
    }
}

/// Whether a constraint takes a text byte by byte token, and may end after it.
fn fits(mut constraint: Constraint, text: &str, tokenizer: &Tokenizer) -> bool {
    let ids: Vec<TokenId> = text.chars().flat_map(|c| tokenizer.encode(&c.to_string())).collect();
    ids.into_iter().all(|id| constraint.accept(id).is_ok()) && constraint.is_complete()
}

#[test]
fn any_json_is_compact_and_names_come_in_whole_tokens() {
    let (tokenizer, compiler) = &*QWEN;
    for any in ["{}", "true", r#"{"x-guidance": {"whitespace_flexible": true}}"#] {
        let constraint = compiler.compile(&Grammar::JsonSchema(any.to_owned())).unwrap();
        assert!(fits(constraint.clone(), r#"{"a":[1,2.5e3,null],"b":" c"}"#, tokenizer));
        assert!(!fits(constraint.clone(), r#"{"a": 1}"#, tokenizer), "{any}");
        assert!(!fits(constraint, " 1", tokenizer));
    }
    let object = json!({"type": "object", "properties": {"temperature": {"type": "integer"}},
        "required": ["temperature"], "additionalProperties": false});
    let mut constraint = compiler.compile(&schema(&object)).unwrap();
    let forced = tokenizer.encode("{\"temperature\":");
    assert!(forced.len() <= 4, "{forced:?}");
    let masks = constraint.masks(&forced).unwrap();
    assert_eq!(masks.rows(), forced.len() + 1);
    for (row, id) in forced.iter().enumerate() {
        assert!(allows(masks.allowed(row).unwrap(), *id));
        constraint.accept(*id).unwrap();
    }
    assert!(masks.allowed(forced.len() + 1).is_none());
    // A name that the tokenizer would write in another way is forced in tokens that spell it exactly.
    let name = "e\u{301}";
    let object = json!({"type": "object", "properties": {name: {"const": 1}}, "required": [name], "additionalProperties": false});
    let mut constraint = compiler.compile(&schema(&object)).unwrap();
    let mut ids = Vec::new();
    while !constraint.is_complete() {
        let allowed = constraint.allowed().unwrap();
        let id = (0..QWEN_ROWS as u32).find(|id| allows(allowed, *id)).unwrap();
        constraint.accept(id).unwrap();
        ids.push(id);
    }
    assert_eq!(tokenizer.decode(&ids, false).unwrap(), format!("{{\"{name}\":1}}"));
}

#[test]
fn looking_ahead_leaves_no_trace() {
    let (tokenizer, ends, compiler) = &*TINY;
    let worker = MaskWorker::new();
    for (number, (schema_value, _)) in schemas().into_iter().enumerate() {
        let fresh = compiler.compile(&schema(&schema_value)).unwrap();
        for seed in 0..10 {
            let ids = answer(fresh.clone(), ends, tokenizer.rows(), seed, 2000);
            // The masks along the answer, computed step by step.
            let mut plain = fresh.clone();
            let mut masks = Vec::new();
            for id in &ids {
                masks.push(words(plain.allowed().unwrap()));
                plain.accept(*id).unwrap();
            }
            masks.push(words(plain.allowed().unwrap()));
            // Again with drafts, right and wrong ones, of which not all is taken.
            let mut random = Random(seed + 100 * number as u64);
            let mut constraint = fresh.clone();
            let mut at = 0;
            while at < ids.len() {
                let right = (random.next() as usize % 6).min(ids.len() - at);
                let mut draft = ids[at..at + right].to_vec();
                draft.extend((0..random.next() % 3).map(|_| random.next() % tokenizer.len() as u32));
                let found;
                (constraint, found) =
                    worker.start(constraint, Vec::new(), draft).wait(PATIENCE).unwrap().unwrap();
                assert!(found.rows() > right);
                for row in 0..=right {
                    assert_eq!(found.allowed(row).unwrap().0, masks[at + row]);
                }
                let taken = (1 + random.next() as usize % (right + 1)).min(ids.len() - at);
                for id in &ids[at..at + taken] {
                    constraint.accept(*id).unwrap();
                }
                at += taken;
                assert_eq!(words(constraint.allowed().unwrap()), masks[at]);
            }
            assert!(constraint.is_complete());
            constraint.accept(ends[0]).unwrap();
            assert!(constraint.is_complete());
        }
    }
}

#[test]
fn slow_first_masks_take_a_bounded_number_of_threads_and_leave_one_to_others() {
    let (tokenizer, compiler) = &*QWEN;
    let slow = Grammar::Lark("start: (((/[a-z]/){0,1000}){0,1000}){0,1000}".to_owned());
    let slow = compiled(compiler, &slow).starting(Start::Now);
    let mut quick = compiled(compiler, &Grammar::Regex("[a-z]{30}".to_owned())).starting(Start::Now);
    quick.accept(tokenizer.encode("a")[0]).unwrap();
    let most = std::thread::available_parallelism().map_or(1, usize::from).max(2);
    let worker = MaskWorker::new();
    let mut jobs: Vec<_> =
        (0..2 * most).map(|_| worker.start(slow.clone(), Vec::new(), Vec::new())).collect();
    for _ in 0..3 * most {
        worker.stand_in();
        // Those that had begun and have still not ended are being computed at the same time.
        let begun: Vec<bool> = jobs.iter().map(MaskJob::has_begun).collect();
        let mut running = 0;
        for (job, begun) in jobs.iter_mut().zip(begun) {
            running += usize::from(begun && job.wait(Duration::ZERO).is_none());
        }
        assert!(running <= most);
        std::thread::sleep(Duration::from_millis(2));
    }
    let mut job = worker.start(quick, Vec::new(), Vec::new());
    worker.stand_in();
    assert!(job.wait(PATIENCE).unwrap().is_ok());
}

#[test]
fn the_grammar_begins_after_the_thinking_part() {
    let (tokenizer, compiler) = &*QWEN;
    let grammar = schema(&json!({"const": 7}));
    let seven = tokenizer.encode("7")[0];
    let hello = tokenizer.encode(" hello")[0];
    let blank = tokenizer.encode("\n\n")[0];
    let chat = |text: &str| tokenizer.encode_with_control(text);
    let start = |text: &str| compiler.start_after(&chat(text));
    assert_eq!(start("<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"), Start::MayThink);
    assert_eq!(start("<|im_end|>\n<|im_start|>assistant\n<think>\n"), Start::Thinking);
    assert_eq!(start("<|im_start|>assistant\n<think>\n\n</think>\n\n"), Start::Now);
    assert_eq!(start("<think>a</think>b<|im_end|>\n<|im_start|>assistant\n"), Start::MayThink);

    let mut constraint = compiler.compile(&grammar).unwrap().starting(Start::Thinking);
    for id in [hello, seven, blank, hello] {
        let allowed = constraint.allowed().unwrap();
        assert!(allows(allowed, id) && allows(allowed, THINK_END));
        assert!(QWEN_ENDS.iter().all(|end| !allows(allowed, *end)), "an answer without content");
        assert!((151_669..QWEN_ROWS as u32).all(|id| !allows(allowed, id)));
        constraint.accept(id).unwrap();
    }
    assert!(matches!(constraint.accept(QWEN_ENDS[0]), Err(ConstraintError::NotAllowed { .. })));
    let mut without_gap = constraint.clone();
    constraint.accept(THINK_END).unwrap();
    let allowed = constraint.allowed().unwrap();
    assert!(allows(allowed, seven) && allows(allowed, blank) && !allows(allowed, hello));
    constraint.accept(blank).unwrap();
    assert!(!allows(constraint.allowed().unwrap(), blank), "one blank line");
    constraint.accept(seven).unwrap();
    assert!(constraint.is_complete());
    let only_ends = words(constraint.allowed().unwrap());
    assert_eq!(only_ends.iter().map(|word| word.count_ones()).sum::<u32>(), 2);
    assert!(!without_gap.is_complete());
    for id in [hello, THINK_END, seven] {
        without_gap.accept(id).unwrap();
    }
    assert!(without_gap.is_complete());

    let mut constraint = compiler.compile(&grammar).unwrap().starting(Start::MayThink);
    let allowed = constraint.allowed().unwrap();
    assert!(allows(allowed, THINK) && allows(allowed, seven) && !allows(allowed, hello));
    let masks = constraint.masks(&[THINK, hello, THINK_END, seven, QWEN_ENDS[0], hello]).unwrap();
    assert_eq!(masks.rows(), 5, "none after an end");
    constraint.accept(seven).unwrap();
    assert!(constraint.is_complete());
}
