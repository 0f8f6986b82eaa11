//! Random schedules against the naive model: arrivals, lengths, cancels, tiny pools, preemptions, choices, drafts, stops,
//! faults of the device. Every answer must be the one that the request gets alone, no block may be lost, and every counter
//! must be right.

use std::sync::{Arc, LazyLock, Mutex};

use kipp::TokenId;
use kipp::engine::{Engine, FinishReason, Request, RequestFailure, RequestId, Thinking};
use kipp::kv::BLOCK_TOKENS;
use kipp::sampling::constraint::{Constraint, ConstraintCompiler, Grammar, Start};
use kipp::sampling::{SamplingFields, SamplingParams};

use super::engine;
use super::fake::{Fault, Times};
use super::naive::{END, VOCAB, prompt_scores, solo, tokenizer};
use super::random::Random;
use super::speculation::{Drafts, scripted};
use super::told::Told;
use crate::constraint::compiled;

/// Grammars whose every way goes on with ids of the fake model.
static CONSTRAINTS: LazyLock<Vec<Constraint>> = LazyLock::new(|| {
    let compiler = ConstraintCompiler::new(&tokenizer(), &[END]).unwrap();
    let compile = |regex: &str| compiled(&compiler, &Grammar::Regex(regex.to_owned()));
    let grammars = ["[A-D]{3}(:[0-9]{2,4})*", "([A-D]{2}:)+", "[!-H]{5,40}", "[AB]{0,6}"];
    grammars.map(|regex| compile(regex).starting(Start::Now)).into()
});

/// A request of a schedule, and what happens to it.
struct Planned {
    request: Request,
    arrives: usize,
    cancelled: Option<usize>,
    /// Events after which nobody listens.
    patience: Option<usize>,
    id: Option<RequestId>,
    told: Told,
    noted: Arc<Mutex<(usize, usize)>>,
}

impl Planned {
    /// Whether it may end before its time.
    fn may_be_cut(&self) -> bool {
        self.cancelled.is_some() || self.patience.is_some()
    }
}

/// What all requests of a schedule have to fit.
struct Frame {
    blocks: usize,
    context_tokens: usize,
    fault: Option<(usize, Fault)>,
}

fn prompt(random: &mut Random, longest: usize, earlier: &[Planned], context_tokens: usize) -> Vec<TokenId> {
    let length = random.from(1, longest);
    // Prefixes of a few texts, so that requests share them; then a tail of its own.
    let shared = random.below(length + 1);
    let text = random.below(2) as TokenId;
    let mut prompt: Vec<TokenId> =
        (0..shared as TokenId).map(|i| (i * 7 + text * 3) % VOCAB as TokenId).collect();
    while prompt.len() < length {
        prompt.push(random.below(VOCAB) as TokenId);
    }
    // A later turn: an earlier prompt, its answer, and more.
    if random.once_in(4)
        && let Some(before) = earlier.last()
    {
        let answer = solo(&before.request, 0, context_tokens).tokens;
        let turn = [&before.request.prompt[..], &answer, &prompt[..prompt.len().min(3)]].concat();
        if turn.len() <= longest {
            return turn;
        }
    }
    prompt
}

fn sampling(random: &mut Random) -> SamplingParams {
    if random.once_in(2) {
        return SamplingParams::greedy();
    }
    let fields = SamplingFields {
        temperature: [0.5, 1.0, 1.7][random.below(3)],
        top_k: [0, 5][random.below(2)],
        top_p: [1.0, 0.8][random.below(2)],
        repetition_penalty: [1.0, 1.3][random.below(2)],
        presence_penalty: [0.0, 0.7][random.below(2)],
        logit_bias: if random.once_in(4) { vec![(5, 2.0), (6, -100.0)] } else { Vec::new() },
        ..SamplingFields::default()
    };
    SamplingParams::parse(fields).unwrap()
}

fn request(random: &mut Random, frame: &Frame, earlier: &[Planned]) -> Request {
    let longest = frame.context_tokens - 1;
    let longest = if random.once_in(3) { longest } else { longest.min(40) };
    let prompt = prompt(random, longest, earlier, frame.context_tokens);
    let max_tokens = if random.once_in(9) { 0 } else { random.from(1, 45) };
    let mut request = Request::new(prompt, max_tokens);
    request.sampling = sampling(random);
    request.seed = random.below(3) as u64;
    request.choices = if random.once_in(3) { random.from(2, 4) as u32 } else { 1 };
    request.min_tokens = if random.once_in(4) { random.below(12) } else { 0 };
    request.ignore_eos = random.once_in(3);
    request.stop_tokens = if random.once_in(5) { vec![random.below(VOCAB) as TokenId] } else { Vec::new() };
    // Ids of the fake model spell one character each, from '!' on.
    let letter = |random: &mut Random| char::from(b'!' + random.below(VOCAB) as u8);
    let stops = if random.once_in(3) { random.from(1, 3) } else { 0 };
    request.stops = (0..stops).map(|_| (0..random.from(1, 2)).map(|_| letter(random)).collect()).collect();
    request.logprobs = if random.once_in(4) { Some(random.below(4)) } else { None };
    request.prompt_logprobs = if random.once_in(6) { Some(random.below(3)) } else { None };
    request.cache_salt = if random.once_in(5) { b"other".to_vec() } else { Vec::new() };
    if random.once_in(6) {
        let budget_tokens = if random.once_in(2) { Some(random.below(9)) } else { None };
        request.thinking = Some(Thinking { open: 11, close: 12, begun: random.once_in(2), budget_tokens });
    } else if random.once_in(12) {
        request.constraint = Some(CONSTRAINTS[random.below(CONSTRAINTS.len())].clone());
    }
    request
}

fn plan(random: &mut Random) -> (Frame, Vec<Planned>) {
    let blocks = random.from(1, 9);
    let context_tokens = random.from(2.max(blocks * BLOCK_TOKENS / 3), blocks * BLOCK_TOKENS);
    let faults = [Fault::Error, Fault::ErrorInWait, Fault::NotFinite];
    let fault = if random.once_in(8) { Some((random.from(1, 30), faults[random.below(3)])) } else { None };
    let frame = Frame { blocks, context_tokens, fault };
    let mut planned: Vec<Planned> = Vec::new();
    let burst = random.once_in(3);
    for _ in 0..random.from(1, 9) {
        let mut request = request(random, &frame, &planned);
        let drafts =
            [Drafts::Right, Drafts::Wrong, Drafts::Alternating, Drafts::PastTheEnd, Drafts::OutOfVocabulary];
        let noted = match random.below(10) {
            kind @ 0..5 => scripted(&mut request, drafts[kind], frame.context_tokens),
            _ => Arc::default(),
        };
        let arrives = if burst { 0 } else { random.below(25) };
        planned.push(Planned {
            request,
            arrives,
            cancelled: if random.once_in(7) { Some(arrives + random.below(30)) } else { None },
            patience: if random.once_in(12) { Some(random.from(1, 12)) } else { None },
            id: None,
            told: Told::default(),
            noted,
        });
    }
    planned.sort_by_key(|planned| planned.arrives);
    (frame, planned)
}

/// Runs one schedule to its end.
fn schedule(seed: u64) {
    let random = &mut Random::new(seed);
    let (frame, mut planned) = plan(random);
    let step_tokens = [1, 2, 7, 33, 64, 300][random.below(6)];
    let max_sequences = random.from(1, 9);
    let times =
        Times { step_us: [0, 900, 120_000][random.below(3)], row_us: [0, 700, 3000][random.below(3)] };
    let mut engine = engine(frame.blocks, |options, fake| {
        options.context_tokens = frame.context_tokens;
        options.step_tokens = step_tokens;
        options.max_sequences = max_sequences;
        fake.fault = frame.fault;
        fake.times = times;
        // A limit below the one that was asked for.
        fake.max_rows = [4096, 50][random.below(2)];
    });
    // On a machine that is held up, what a constraint allows may come late.
    let may_sit_out = planned.iter().any(|one| one.request.constraint.is_some());
    let mut step = 0;
    while step < 30 || engine.has_work() || planned.iter().any(|one| one.arrives >= step) {
        for one in planned.iter_mut().filter(|one| one.arrives == step) {
            one.told.patience = one.patience;
            one.id = Some(engine.submit(one.request.clone(), Box::new(one.told.clone())).unwrap());
        }
        for one in planned.iter().filter(|one| one.cancelled == Some(step)) {
            one.id.into_iter().for_each(|id| engine.cancel(id));
        }
        let had_work = engine.has_work();
        let report = engine.step();
        assert!(report.rows() <= step_tokens, "a step over its budget");
        assert!(
            report.rows() > 0 || !had_work || !engine.has_work() || may_sit_out,
            "schedule {seed}, step {step} does nothing: {:?}",
            engine.stats()
        );
        let kv = engine.stats().kv;
        assert_eq!(kv.used + kv.cached + kv.free, kv.total);
        step += 1;
        assert!(step < 20_000, "the schedule never ends");
    }
    check(&engine, &frame, &planned);
}

fn check(engine: &Engine, frame: &Frame, planned: &[Planned]) {
    let stats = engine.stats();
    assert_eq!(
        (stats.kv.used, stats.running_requests, stats.waiting_requests),
        (0, 0, 0),
        "the pool is empty"
    );
    let (mut generated, mut started, mut cached) = (0, 0, 0);
    let mut noted = (0, 0);
    let mut failed = 0;
    for one in planned {
        let account = one.told.account(one.request.choices);
        if let Some(failure) = &account.failure {
            let by_fault = matches!(
                failure,
                RequestFailure::Backend(_) | RequestFailure::Sample(_) | RequestFailure::Score { .. }
            );
            assert!(by_fault && frame.fault.is_some(), "{failure}");
            failed += 1;
        }
        let whole = account.failure.is_none() && !one.may_be_cut();
        if let Some(found) = account.cached_tokens {
            started += one.request.prompt.len() as u64;
            cached += found as u64;
            assert!(found.is_multiple_of(BLOCK_TOKENS) && found < one.request.prompt.len());
        }
        if whole || account.prompt.is_some() {
            assert_eq!(account.prompt, prompt_scores(&one.request));
        }
        for (choice, answer) in account.choices.iter().enumerate() {
            generated += answer.tokens.len() as u64;
            let expected = solo(&one.request, choice as u32, frame.context_tokens);
            if whole || matches!(answer.finish, Some(FinishReason::Stop | FinishReason::Length)) {
                assert_eq!(answer.tokens, expected.tokens, "choice {choice}");
                assert_eq!((&answer.text, answer.finish), (&expected.text, expected.finish));
                assert_eq!(answer.scores, expected.scores);
                let prefill = answer.stats.evaluated_tokens + answer.stats.cached_tokens;
                assert_eq!((prefill, answer.stats.prompt_tokens), (one.request.prompt.len(), prefill));
            } else {
                assert!(expected.tokens.starts_with(&answer.tokens), "what was told before the end is right");
                assert!(account.failure.is_some() || one.may_be_cut());
                assert!(
                    expected.text.starts_with(&answer.text) || answer.finish == Some(FinishReason::Cancelled)
                );
            }
        }
        let told = *one.noted.lock().unwrap();
        noted = (noted.0 + told.0 as u64, noted.1 + told.1 as u64);
    }
    assert_eq!(stats.prompt_tokens, started);
    assert!(stats.prefix_tokens_reused >= cached);
    assert_eq!((stats.drafted_tokens, stats.accepted_tokens), noted);
    // One that nobody listens to any more fails unheard, and its last step's tokens are counted but not told.
    let heard = planned.iter().all(|one| one.patience.is_none());
    assert!(stats.failed_requests == failed || (stats.failed_requests > failed && !heard));
    let ended = stats.finished_requests + stats.cancelled_requests + stats.failed_requests;
    assert_eq!(ended, planned.len() as u64);
    assert!(
        stats.generated_tokens == generated || (stats.generated_tokens > generated && (!heard || failed > 0))
    );
}

/// Runs schedules on all processors; a failure names its seed.
fn schedules(seeds: std::ops::Range<u64>) {
    let next = std::sync::atomic::AtomicU64::new(seeds.start);
    let failed = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, |n| n.get().min(8)) {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                    if seed >= seeds.end || !failed.lock().unwrap().is_empty() {
                        return;
                    }
                    if std::panic::catch_unwind(|| schedule(seed)).is_err() {
                        failed.lock().unwrap().push(seed);
                    }
                }
            });
        }
    });
    let failed = failed.into_inner().unwrap();
    assert!(failed.is_empty(), "schedules that failed: {failed:?}");
}

#[test]
fn random_schedules_answer_as_alone() {
    schedules(0..5_000);
}

#[test]
#[ignore = "the long form: some minutes"]
fn many_random_schedules_answer_as_alone() {
    schedules(0..100_000);
}

/// A schedule that is made to preempt: the counter must show that it did, so that the property is not vacuous.
#[test]
fn preempted_answers_are_the_same() {
    let mut engine = engine(4, |options, _| options.context_tokens = 128);
    let requests: Vec<Request> =
        (0..4).map(|i| Request { ignore_eos: true, ..Request::new(vec![i, i + 1, END], 90) }).collect();
    let told: Vec<Told> =
        requests.iter().map(|request| super::submit(&mut engine, request.clone()).1).collect();
    super::run(&mut engine);
    for (request, told) in requests.iter().zip(&told) {
        let expected = solo(request, 0, 128);
        assert_eq!((told.answer().tokens, told.answer().finish), (expected.tokens, expected.finish));
    }
    assert!(engine.stats().preemptions >= 2, "{}", engine.stats().preemptions);
}
