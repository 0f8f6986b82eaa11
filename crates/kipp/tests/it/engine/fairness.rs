//! H24 and the shape of steps: everybody who decodes gets on in every step, a long prompt is cut so that steps stay
//! short, a short one need not wait for it, and the queue has an end.

use kipp::engine::{Engine, EngineError, EngineOptions, Request, RequestError, StepReport};

use super::fake::{Fake, FakeClock, Times};
use super::told::Told;
use super::{engine, run, submit};

fn talker(first: u32, max_tokens: usize) -> Request {
    Request { ignore_eos: true, ..Request::new(vec![first, 2], max_tokens) }
}

fn reader(prompt_tokens: usize) -> Request {
    Request::new((0..prompt_tokens as u32).map(|i| (i * 13 + prompt_tokens as u32) % 40).collect(), 1)
}

/// Steps while `talkers` decode and a prompt of 6,000 tokens comes.
fn beside_a_long_prompt(times: Times) -> Vec<StepReport> {
    let mut engine = engine(300, |_, fake| fake.times = times);
    let talkers: Vec<Told> = (0..3).map(|n| submit(&mut engine, talker(n, 4000)).1).collect();
    for _ in 0..10 {
        engine.step();
    }
    let (_, long) = submit(&mut engine, reader(6000));
    let mut steps = Vec::new();
    while long.answer().finish.is_none() {
        let before: Vec<usize> = talkers.iter().map(Told::len).collect();
        steps.push(engine.step());
        let after: Vec<usize> = talkers.iter().map(Told::len).collect();
        assert!(before.iter().zip(after).all(|(before, after)| after == before + 1), "every one gets on");
        assert!(steps.len() < 1000);
    }
    steps
}

#[test]
fn h24_a_long_prompt_is_cut_to_keep_steps_short() {
    // Decoding takes 20 ms, a token of a prompt 1 ms: 130 tokens fit, 4 blocks.
    let steps = beside_a_long_prompt(Times { step_us: 17_000, row_us: 1000 });
    let over = steps.iter().filter(|step| step.duration.as_millis() > 150);
    assert_eq!(over.count(), 0);
    assert_eq!(steps[10..40].iter().filter(|step| step.prefill_rows == 128).count(), 30);
    // Decoding is slow itself: a block joins each step.
    let steps = beside_a_long_prompt(Times { step_us: 110_000, row_us: 1000 });
    assert!(steps[..180].iter().all(|step| step.prefill_rows == 32));
    // Nothing takes any time: the budget is the limit.
    let steps = beside_a_long_prompt(Times::default());
    assert!(steps.iter().any(|step| step.rows() == 512));
}

#[test]
fn h24_a_short_prompt_does_not_wait_for_a_long_one() {
    let mut engine = engine(300, |_, _| {});
    let (_, long) = submit(&mut engine, reader(6000));
    engine.step();
    let (_, short) = submit(&mut engine, reader(20));
    engine.step();
    engine.step();
    assert!(short.answer().finish.is_some() && long.answer().finish.is_none());
    // A steady arrival of short ones does not starve the long one.
    let mut steps = 0;
    while long.answer().finish.is_none() {
        submit(&mut engine, reader(21 + steps % 50));
        engine.step();
        steps += 1;
    }
    assert!(steps < 30, "{steps}");
    run(&mut engine);
}

#[test]
fn the_first_come_is_the_first_served() {
    let mut engine = engine(8, |options, _| options.max_sequences = 1);
    let told: Vec<Told> = (0..4).map(|n| submit(&mut engine, talker(n, 5)).1).collect();
    for n in 0..4 {
        while told[n].account(1).choices[0].finish.is_none() {
            engine.step();
        }
        assert!(told[n + 1..].iter().all(|later| later.account(1).choices[0].finish.is_none()));
    }
}

#[test]
fn the_queue_has_an_end() {
    let mut engine = engine(8, |options, _| options.max_waiting = 2);
    let first = submit(&mut engine, Request { choices: 4, ..talker(1, 3) });
    submit(&mut engine, talker(2, 3));
    let refused = engine.submit(talker(3, 3), Box::new(Told::default()));
    assert_eq!(refused, Err(RequestError::QueueFull { waiting: 2 }), "a request with choices is one");
    engine.step();
    submit(&mut engine, talker(3, 3));
    run(&mut engine);
    assert_eq!(first.1.account(4).choices.len(), 4);
    let stats = engine.stats();
    assert_eq!((stats.finished_requests, stats.generated_tokens), (3, 18));
}

#[test]
fn a_pool_that_cannot_hold_the_context_is_refused() {
    let open = |context_tokens| {
        let clock = FakeClock::default();
        let fake = Fake::new(2, clock.clone());
        Engine::open(Box::new(fake), Box::new(clock), EngineOptions::new(context_tokens)).err()
    };
    assert_eq!(open(64), None);
    assert_eq!(open(65), Some(EngineError::TooFewBlocks { blocks: 2, needed: 3, context_tokens: 65 }));
    assert_eq!(open(0), Some(EngineError::Zero("context_tokens")));
}

#[test]
fn times_are_those_of_the_clock() {
    let mut engine = engine(8, |options, fake| {
        options.step_tokens = 10;
        fake.times = Times { step_us: 1000, row_us: 100 };
    });
    let (_, first) = submit(&mut engine, Request { ignore_eos: true, ..Request::new(vec![1; 20], 3) });
    run(&mut engine);
    let stats = first.answer().stats;
    // Two steps of ten rows, then two of one.
    assert_eq!(
        (stats.queue.as_micros(), stats.prefill.as_micros(), stats.decode.as_micros()),
        (0, 4000, 2200)
    );
}
