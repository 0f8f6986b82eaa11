//! What a hostile grammar may cost: its time is limited, stopping it takes effect soon, and its memory has a bound.

use std::time::{Duration, Instant};

use kipp::sampling::constraint::{ConstraintError, Grammar, MaskWorker};

use super::hostile::hostile;
use super::{PATIENCE, QWEN};

/// As long as an answer waits for a mask.
const LIMIT: Duration = Duration::from_secs(2);

/// What one grammar may take while it is compiled and followed. The worst of these takes 110 MiB.
const MOST_KIB: u64 = 256 << 10;

/// Grammars that take their time or memory only when they are followed, or are as large as may be.
fn costly() -> Vec<(&'static str, Grammar)> {
    let alternatives = |n: usize| (0..n).map(|i| format!("w{i}x")).collect::<Vec<_>>().join("|");
    let literals = |n: usize| (0..n).map(|i| format!("\"w{i}x\"")).collect::<Vec<_>>().join(" | ");
    let nested = |n: usize| format!("{}a{}", "(".repeat(n), "){0,9}".repeat(n));
    let values = (0..12_000).map(|i| format!("\"value {i}\"")).collect::<Vec<_>>().join(",");
    let schema = |text: String| Grammar::JsonSchema(text);
    vec![
        ("a megabyte of schema", schema(format!("{{\"enum\":[{}]}}", vec!["\"x\""; 250_000].join(",")))),
        ("a large enumeration", schema(format!("{{\"enum\":[{values}]}}"))),
        (
            "arrays of a large enumeration",
            schema(format!("{{\"type\":\"array\",\"items\":{{\"enum\":[{values}]}}}}")),
        ),
        ("a large alternation", Grammar::Regex(alternatives(30_000))),
        ("a large alternation, repeated", Grammar::Regex(format!("({})*", alternatives(30_000)))),
        ("a large alternation of literals", Grammar::Lark(format!("start: ({})*", literals(20_000)))),
        ("nested repetition", Grammar::Regex(nested(60))),
        ("bounded dots", Grammar::Regex("(.{0,5000}a){0,50}".to_owned())),
        ("a counter", Grammar::Regex("(a|b)*a(a|b){400}".to_owned())),
        ("many counters", Grammar::Regex("(.*a.{30}|.*b.{31}|.*c.{32})".to_owned())),
        ("ambiguity", Grammar::Lark("start: x\nx: x x | /[a-z ]*/ | \"\"\n".to_owned())),
        ("rules that repeat", Grammar::Lark("start: ((\"a\" | \"b\"){0,100000}){0,100000}".to_owned())),
        (
            "rules that repeat deeper",
            Grammar::Lark("start: (((/[a-z]/){0,1000}){0,1000}){0,1000}".to_owned()),
        ),
    ]
}

fn kib(name: &str) -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    line.trim().trim_end_matches("kB").trim().parse().ok()
}

/// Compiles a grammar and follows it for some tokens, each mask within the limit; what came of it.
fn follow(worker: &MaskWorker, grammar: &Grammar) -> String {
    let (_, compiler) = &*QWEN;
    let mut constraint = match compiler.compile(grammar) {
        Ok(constraint) => constraint,
        Err(error) => return format!("refused: {error}"),
    };
    let mut longest = Duration::ZERO;
    let mut taken = Vec::new();
    for _ in 0..12 {
        let began = Instant::now();
        let mut job = worker.start(constraint, std::mem::take(&mut taken), Vec::new());
        let masks = match job.wait(LIMIT) {
            Some(Ok((back, masks))) => {
                constraint = back;
                masks
            }
            Some(Err(ConstraintError::TooComplex { reason })) => return format!("too complex: {reason}"),
            Some(Err(error)) => panic!("{error}"),
            None => {
                // Stopping it frees the thread for the next one.
                drop(job);
                let began = Instant::now();
                let small = compiler.compile(&Grammar::Regex("a".to_owned())).unwrap();
                let next = worker.start(small, Vec::new(), Vec::new()).wait(PATIENCE);
                assert!(next.is_some_and(|next| next.is_ok()));
                return format!("stopped after {longest:?} at most before, in {:?}", began.elapsed());
            }
        };
        longest = longest.max(began.elapsed());
        let allowed = masks.allowed(0).unwrap().0;
        // The last of the tokens that go on: never the end, if there is another way.
        match (0..32 * allowed.len() as u32).rev().find(|id| allowed[*id as usize / 32] >> (id % 32) & 1 == 1)
        {
            Some(id) if !super::QWEN_ENDS.contains(&id) => taken.push(id),
            _ => return format!("complete, masks took {longest:?} at most"),
        }
    }
    format!("followed, masks took {longest:?} at most")
}

/// Run by the test below in a process of its own, where nothing else takes memory.
#[test]
#[ignore = "measures the memory of its process"]
fn costs_of_hostile_grammars() {
    let worker = MaskWorker::new();
    follow(&worker, &Grammar::Regex("a".to_owned()));
    let base = kib("VmRSS");
    let mut most = 0;
    for (name, grammar) in hostile().into_iter().chain(costly()) {
        // The peak from here on; where the system does not take this, the peak is that of all so far.
        let _ = std::fs::write("/proc/self/clear_refs", "5");
        let before = kib("VmRSS");
        let began = Instant::now();
        let came = follow(&worker, &grammar);
        let took = began.elapsed();
        let grew = kib("VmHWM").zip(before).map_or(0, |(peak, before)| peak.saturating_sub(before));
        println!("cost: {name}: {took:?}, {grew} KiB: {came}");
        assert!(grew <= MOST_KIB, "{name} took {grew} KiB");
        most = most.max(grew);
    }
    println!("cost: {most} KiB at most, from {base:?} to {:?} KiB", kib("VmRSS"));
}

#[test]
fn hostile_grammars_take_bounded_time_and_memory() {
    let mut child = std::process::Command::new(std::env::current_exe().unwrap());
    child.args(["--ignored", "--exact", "constraint::cost::costs_of_hostile_grammars", "--nocapture"]);
    let output = child.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    print!("{said}");
    assert!(output.status.success(), "{said}\n{}", String::from_utf8_lossy(&output.stderr));
    assert!(said.contains("KiB at most"), "it did not run: {said}");
}
