//! What goes wrong ends what it concerns, by name, and nobody waits for ever.

use kipp::engine::{FinishReason, Request, RequestError, RequestFailure};
use kipp::sampling::SampleError;

use super::fake::Fault;
use super::naive::solo;
use super::told::Told;
use super::{engine, run, submit};

fn talker(first: u32, max_tokens: usize) -> Request {
    Request { ignore_eos: true, ..Request::new(vec![first, 2], max_tokens) }
}

#[test]
fn a_device_error_ends_the_requests_of_its_step_only() {
    for fault in [Fault::Error, Fault::ErrorInWait] {
        let mut engine = engine(8, |options, fake| {
            options.max_sequences = 2;
            fake.fault = Some((3, fault));
        });
        let told: Vec<Told> = (0..4).map(|n| submit(&mut engine, talker(n, 10)).1).collect();
        run(&mut engine);
        for (n, told) in told.iter().enumerate() {
            let account = told.account(1);
            if n < 2 {
                assert!(matches!(account.failure, Some(RequestFailure::Backend(_))), "{:?}", account.failure);
                assert_eq!(account.choices[0].tokens.len(), 2);
            } else {
                assert_eq!(account.choices[0].tokens, solo(&talker(n as u32, 10), 0, 256).tokens);
            }
        }
        assert!(engine.is_healthy());
        assert_eq!((engine.stats().failed_requests, engine.stats().finished_requests), (2, 2));
    }
}

#[test]
fn h18_logits_that_are_not_finite_end_their_request() {
    let mut engine = engine(8, |_, fake| fake.fault = Some((1, Fault::NotFinite)));
    let (_, broken) = submit(&mut engine, talker(1, 10));
    engine.step();
    let (_, sound) = submit(&mut engine, talker(1, 10));
    run(&mut engine);
    let failure = broken.account(1).failure;
    assert!(
        matches!(failure, Some(RequestFailure::Sample(SampleError::NotFinite { id: 3, .. }))),
        "{failure:?}"
    );
    assert_eq!(sound.answer().tokens, solo(&talker(1, 10), 0, 256).tokens);
}

#[test]
fn a_panic_ends_all_requests_and_the_engine_takes_no_more() {
    let mut engine = engine(8, |options, fake| {
        options.max_sequences = 2;
        fake.fault = Some((3, Fault::Panic));
    });
    let told: Vec<Told> = (0..4).map(|n| submit(&mut engine, talker(n, 10)).1).collect();
    run(&mut engine);
    for told in told {
        let failure = told.account(1).failure;
        assert_eq!(failure, Some(RequestFailure::Panicked("a kernel is broken".to_owned())));
    }
    assert!(!engine.is_healthy());
    assert_eq!(engine.submit(talker(1, 1), Box::new(Told::default())), Err(RequestError::Unhealthy));
    assert_eq!(engine.step().rows(), 0);
}

#[test]
fn a_request_that_is_cancelled_says_so_for_each_choice_and_frees_its_blocks() {
    let mut engine = engine(8, |options, _| options.step_tokens = 40);
    let (id, told) = submit(&mut engine, Request { choices: 3, ..talker(1, 100) });
    let (waiting, never) = submit(&mut engine, Request { choices: 2, ..talker(3, 9) });
    engine.cancel(waiting);
    let never = never.account(2);
    assert_eq!(never.cached_tokens, None);
    assert!(never.choices.iter().all(|answer| answer.finish == Some(FinishReason::Cancelled)));
    for _ in 0..5 {
        engine.step();
    }
    engine.cancel(id);
    assert_eq!(engine.stats().kv.used, 0);
    let choices = told.account(3).choices;
    let expected = solo(&talker(1, 100), 0, 256).tokens;
    for answer in choices {
        assert_eq!((answer.finish, &answer.tokens[..]), (Some(FinishReason::Cancelled), &expected[..5]));
    }
    // Twice, and one that never was.
    engine.cancel(id);
    engine.cancel(kipp::engine::RequestId(77));
    assert!(!engine.has_work());
    assert_eq!(engine.stats().cancelled_requests, 2);
}

#[test]
fn a_sink_that_wants_no_more_ends_its_request_and_disturbs_nobody() {
    let mut engine = engine(8, |_, _| {});
    let mut leaver = Told::default();
    leaver.patience = Some(4);
    engine.submit(talker(1, 100), Box::new(leaver.clone())).unwrap();
    let (_, stayer) = submit(&mut engine, talker(2, 12));
    run(&mut engine);
    assert_eq!(leaver.len(), 4, "nothing is delivered to one that left");
    assert_eq!(stayer.answer().tokens, solo(&talker(2, 12), 0, 256).tokens);
    assert_eq!(engine.stats().cancelled_requests, 1);
}
