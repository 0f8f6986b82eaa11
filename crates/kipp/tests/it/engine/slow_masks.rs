//! A constraint that takes long to say what may come next holds up its own request and no other; cancelling it and closing
//! the engine wait for nothing.

use std::sync::LazyLock;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use kipp::engine::{ChannelSink, EngineHandle, Event, FinishReason, Request, RequestFailure, RequestId};
use kipp::kv::BLOCK_TOKENS;
use kipp::sampling::constraint::{Constraint, ConstraintCompiler, ConstraintError, Grammar, Start};
use kipp::sampling::{SamplingFields, SamplingParams};

use super::naive::{END, solo};
use super::speculation::{ALL, scripted};
use super::told::Told;
use super::{engine, run, submit};
use crate::constraint::{QWEN, compiled};

/// Whoever waits this long has found something that hangs.
const PATIENCE: Duration = Duration::from_secs(60);

/// What an answer may wait for a mask.
const LIMIT: Duration = Duration::from_secs(2);

/// Ids of the fake model spell the same characters in Qwen's vocabulary, whose size makes masks take long.
static COMPILER: LazyLock<ConstraintCompiler> =
    LazyLock::new(|| ConstraintCompiler::new(&QWEN.0, &[END]).unwrap());

fn constraint(grammar: Grammar) -> Constraint {
    compiled(&COMPILER, &grammar).starting(Start::Now)
}

/// Its first mask takes seconds: more than an answer may wait, unless a fast machine meets the parser's own limit first.
fn endless() -> Request {
    let grammar = Grammar::Lark("start: (((/[a-z]/){0,1000}){0,1000}){0,1000}".to_owned());
    Request { constraint: Some(constraint(grammar)), ..Request::new(vec![1, 2], 10) }
}

fn talker(first: u32, max_tokens: usize) -> Request {
    Request { ignore_eos: true, ..Request::new(vec![first, 3], max_tokens) }
}

fn bound(seed: u64) -> Request {
    let fields = SamplingFields { temperature: 1.2, ..SamplingFields::default() };
    Request {
        sampling: SamplingParams::parse(fields).unwrap(),
        seed,
        choices: 1 + seed as u32 % 3,
        constraint: Some(constraint(Grammar::Regex("[A-D]{3}(:[0-9]{2,4})*".to_owned()))),
        // A whole block and one token more than that are ends of prompts that are evaluated again.
        prompt: (0..[3, 32, 33, 64][seed as usize % 4]).map(|i| (i * 7 + seed as u32) % 40).collect(),
        ..Request::new(Vec::new(), 30)
    }
}

#[test]
fn a_mask_that_takes_too_long_ends_its_request_and_holds_up_no_other() {
    let mut engine = engine(16, |_, _| {});
    let (_, slow) = submit(&mut engine, endless());
    let began = Instant::now();
    let (mut served, mut longest) = (0, Duration::ZERO);
    while slow.account(1).failure.is_none() {
        assert!(began.elapsed() < PATIENCE && slow.account(1).choices[0].finish.is_none());
        let sent = Instant::now();
        let request = if served % 4 == 3 { bound(served) } else { talker(served as u32 % 40, 12) };
        let (_, told) = submit(&mut engine, request.clone());
        let ended = || told.account(request.choices).choices.iter().all(|answer| answer.finish.is_some());
        while !ended() {
            engine.step();
            assert!(sent.elapsed() < PATIENCE);
        }
        longest = longest.max(sent.elapsed());
        for (choice, answer) in told.account(request.choices).choices.iter().enumerate() {
            assert_eq!(answer.tokens, solo(&request, choice as u32, 16 * BLOCK_TOKENS).tokens);
        }
        served += 1;
    }
    let took = began.elapsed();
    match slow.account(1).failure {
        Some(RequestFailure::Constraint(ConstraintError::MaskTooSlow { limit_ms: 2000 })) => {
            assert!(took >= LIMIT, "{took:?}");
        }
        Some(RequestFailure::Constraint(ConstraintError::TooComplex { .. })) => {}
        other => panic!("{other:?}"),
    }
    println!("{served} others were served meanwhile, the slowest in {longest:?}; it ended after {took:?}");
    assert!(served >= 2 && longest < LIMIT, "{served} {longest:?}");
    run(&mut engine);
    assert!(engine.is_healthy());
    assert_eq!(engine.stats().failed_requests, 1);
}

#[test]
fn answers_that_had_to_wait_for_their_masks_are_the_same() {
    let mut engine = engine(24, |options, _| options.context_tokens = 8 * BLOCK_TOKENS);
    let mut slow = Vec::new();
    let mut waits = 0;
    for round in 0..3 {
        // The older one keeps the thread from the masks of the others, and so does the younger one a step later.
        slow.push(submit(&mut engine, endless()).0);
        let requests: Vec<Request> = (0..4).map(|n| bound(4 * round + n)).collect();
        let told: Vec<Told> = requests
            .iter()
            .zip(ALL)
            .map(|(request, drafts)| {
                let mut request = request.clone();
                scripted(&mut request, drafts, 8 * BLOCK_TOKENS);
                submit(&mut engine, request).1
            })
            .collect();
        for step in 0..4 {
            if step == 2 {
                slow.push(submit(&mut engine, endless()).0);
            }
            let before: usize = told.iter().map(Told::len).sum();
            engine.step();
            waits += usize::from(told.iter().map(Told::len).sum::<usize>() == before);
        }
        slow.drain(..).for_each(|id| engine.cancel(id));
        run(&mut engine);
        for (request, told) in requests.iter().zip(told) {
            for (choice, answer) in told.account(request.choices).choices.iter().enumerate() {
                let expected = solo(request, choice as u32, 8 * BLOCK_TOKENS);
                assert_eq!((&answer.tokens, &answer.text), (&expected.tokens, &expected.text));
                assert_eq!(answer.finish, expected.finish);
            }
        }
    }
    assert!(waits > 0, "nobody had to wait");
}

fn send(handle: &EngineHandle, request: Request) -> (RequestId, Receiver<Event>) {
    let (sink, events) = ChannelSink::new();
    (handle.submit(request, Box::new(sink)).unwrap(), events)
}

/// The last event of a request with one choice.
fn last(events: &Receiver<Event>) -> Event {
    loop {
        let event = events.recv_timeout(PATIENCE).unwrap();
        if matches!(event, Event::Finished { .. } | Event::Failed(_)) {
            return event;
        }
    }
}

#[test]
fn cancelling_does_not_wait_for_the_mask() {
    let handle = EngineHandle::start(engine(16, |_, _| {})).unwrap();
    for _ in 0..3 {
        let (id, events) = send(&handle, endless());
        assert!(matches!(events.recv_timeout(PATIENCE).unwrap(), Event::Started { .. }));
        let began = Instant::now();
        handle.cancel(id);
        assert!(matches!(last(&events), Event::Finished { reason: FinishReason::Cancelled, .. }));
        assert!(began.elapsed() < LIMIT / 2, "{:?}", began.elapsed());
        // Nothing is left that would hold up the next one.
        let (_, events) = send(&handle, bound(0));
        assert!(matches!(
            last(&events),
            Event::Finished { reason: FinishReason::Stop | FinishReason::Length, .. }
        ));
        assert!(began.elapsed() < LIMIT, "{:?}", began.elapsed());
    }
}

#[test]
fn closing_does_not_wait_for_the_mask() {
    let handle = EngineHandle::start(engine(16, |_, _| {})).unwrap();
    let (_, events) = send(&handle, endless());
    assert!(matches!(events.recv_timeout(PATIENCE).unwrap(), Event::Started { .. }));
    let began = Instant::now();
    drop(handle.close().unwrap());
    assert!(began.elapsed() < LIMIT / 2, "{:?}", began.elapsed());
    assert_eq!(last(&events), Event::Failed(RequestFailure::Closed));
}
