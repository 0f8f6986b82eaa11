//! Single requests: lengths, ends, stops, thinking, choices, scores.

use kipp::engine::{FinishReason, Request, RequestError, Thinking};
use kipp::sampling::{SamplingFields, SamplingParams};

use super::naive::{END, prompt_scores, solo};
use super::told::Answer;
use super::{engine, run, submit};

fn answered(request: &Request) -> Answer {
    let mut engine = engine(4, |_, _| {});
    let (_, told) = submit(&mut engine, request.clone());
    run(&mut engine);
    told.answer()
}

/// A greedy request whose answer goes on for a while.
fn long() -> Request {
    Request { ignore_eos: true, ..Request::new(vec![1, 2, 3], 30) }
}

#[test]
fn the_prompt_is_evaluated_once_and_then_a_token_a_step() {
    let mut engine = engine(4, |_, fake| fake.keeps_batches = true);
    let (_, told) = submit(&mut engine, long());
    assert_eq!(run(&mut engine), 30, "the last token needs no evaluation");
    assert_eq!(told.answer().tokens.len(), 30);
    let stats = told.answer().stats;
    assert_eq!((stats.prompt_tokens, stats.evaluated_tokens, stats.cached_tokens), (3, 3, 0));
}

#[test]
fn lengths_are_kept() {
    assert_eq!(answered(&Request { max_tokens: 1, ..long() }).tokens.len(), 1);
    let none = answered(&Request { max_tokens: 0, ..long() });
    assert_eq!((none.tokens.len(), none.finish), (0, Some(FinishReason::Length)));
    // 128 positions: 125 tokens follow a prompt of 3.
    let full = answered(&Request { max_tokens: usize::MAX, ..long() });
    assert_eq!((full.tokens.len(), full.finish), (125, Some(FinishReason::Length)));
}

#[test]
fn a_prompt_that_does_not_fit_is_refused_and_nothing_is_begun() {
    let mut engine = engine(1, |_, _| {});
    for (prompt_tokens, max_tokens, fits) in [(31, 5, true), (32, 1, false), (32, 0, true), (33, 0, false)] {
        let request = Request::new(vec![1; prompt_tokens], max_tokens);
        let sink = Box::new(super::told::Told::default());
        match engine.submit(request, sink) {
            Ok(_) => assert!(fits),
            Err(error) => {
                assert!(!fits);
                assert_eq!(error, RequestError::PromptTooLong { prompt_tokens, context_tokens: 32 });
            }
        }
    }
    assert_eq!(engine.stats().waiting_requests, 2);
    run(&mut engine);
}

#[test]
fn h06_a_stop_string_over_tokens_is_in_no_event() {
    let whole = solo(&long(), 0, 128);
    for (from, to) in [(0, 3), (4, 9), (10, 11), (27, 30)] {
        let stop = &whole.text[from..to];
        let at = whole.text.find(stop).unwrap();
        let answer = answered(&Request { stops: vec![stop.to_owned()], ..long() });
        assert_eq!((answer.text.as_str(), answer.finish), (&whole.text[..at], Some(FinishReason::Stop)));
        assert_eq!(answer.tokens.len(), at + stop.len(), "nothing is generated after it");
    }
    // What is held back while a stop string may still come goes out at the end.
    let begins_one = format!("{}no", &whole.text[28..]);
    let answer = answered(&Request { stops: vec![begins_one], ..long() });
    assert_eq!((answer.text, answer.finish), (whole.text, Some(FinishReason::Length)));
}

#[test]
fn end_tokens_end_unless_they_are_ignored_or_too_early() {
    // Prompts whose answer ends by itself, early.
    let mut ends = 0;
    for first in 0..30 {
        let request = Request::new(vec![first], 60);
        let expected = solo(&request, 0, 128);
        if expected.finish != Some(FinishReason::Stop) {
            continue;
        }
        ends += 1;
        let answer = answered(&request);
        assert_eq!((&answer.tokens, answer.finish), (&expected.tokens, Some(FinishReason::Stop)));
        assert!(!answer.tokens.contains(&END), "the end token is no part of the answer");
        let ignored = answered(&Request { ignore_eos: true, ..request.clone() });
        assert_eq!(ignored.tokens[expected.tokens.len()], END);
        let n = expected.tokens.len();
        let later = answered(&Request { min_tokens: n + 1, ..request.clone() });
        assert!(later.tokens.len() > n && !later.tokens.contains(&END));
        let stops = answered(&Request { ignore_eos: true, stop_tokens: vec![END], ..request });
        assert_eq!(stops.tokens, expected.tokens);
    }
    assert!(ends >= 5);
}

#[test]
fn thinking_has_a_budget_and_no_stop_strings() {
    let rules = |begun, budget_tokens| Some(Thinking { open: 11, close: 12, begun, budget_tokens });
    let whole = solo(&long(), 0, 128);
    let letter = whole.text[1..2].to_owned();
    // The prompt has begun to think, and the budget ends it; stop strings count after that only.
    let request = Request { thinking: rules(true, Some(6)), stops: vec![letter], ..long() };
    let answer = answered(&request);
    let close = answer.tokens.iter().position(|id| *id == 12).unwrap();
    assert!(close <= 6);
    assert_eq!(answer.tokens[..close], whole.tokens[..close]);
    assert_eq!(answer.text, solo(&request, 0, 128).text);
    assert!(answer.text.len() > 2, "the stop string inside the thinking ended nothing");
    // The model does not begin to think: all is content.
    let content = answered(&Request { thinking: rules(false, Some(0)), ..long() });
    assert_eq!(content.tokens, whole.tokens);
    // No budget at all: thinking is closed at once.
    assert_eq!(answered(&Request { thinking: rules(true, Some(0)), ..long() }).tokens[0], 12);
}

#[test]
fn h17_choices_differ_and_repeat_in_any_company() {
    let fields = SamplingFields { temperature: 0.8, ..SamplingFields::default() };
    let seeded = |seed, choices| Request {
        sampling: SamplingParams::parse(fields.clone()).unwrap(),
        seed,
        choices,
        ..long()
    };
    let texts = |with: &[Request], late: &[Request]| {
        let mut engine = engine(16, |_, _| {});
        let (_, told) = submit(&mut engine, seeded(42, 4));
        with.iter().for_each(|request| drop(submit(&mut engine, request.clone())));
        for _ in 0..3 {
            engine.step();
        }
        late.iter().for_each(|request| drop(submit(&mut engine, request.clone())));
        run(&mut engine);
        told.account(4).choices.into_iter().map(|answer| answer.tokens).collect::<Vec<_>>()
    };
    let alone = texts(&[], &[]);
    assert!((0..4).all(|a| (0..a).all(|b| alone[a] != alone[b])), "choices differ");
    assert_eq!(alone, (0..4).map(|choice| solo(&seeded(42, 4), choice, 512).tokens).collect::<Vec<_>>());
    assert_eq!(texts(&[seeded(7, 1)], &[]), alone);
    assert_eq!(texts(&[long(), seeded(42, 4)], &[long(), seeded(0, 2), seeded(u64::MAX, 3)]), alone);
}

#[test]
fn choices_share_the_prompt() {
    let mut engine = engine(16, |_, fake| fake.keeps_batches = true);
    let prompt: Vec<u32> = (0..70).map(|i| i % 40).collect();
    let (_, told) = submit(&mut engine, Request { choices: 5, ignore_eos: true, ..Request::new(prompt, 8) });
    let report = engine.step();
    assert_eq!(report.prefill_rows, 70, "the prompt is evaluated once");
    let report = engine.step();
    assert_eq!((report.decode_rows, report.prefill_rows), (5, 0));
    // Two shared blocks, and a tail for each.
    assert_eq!(engine.stats().kv.used, 2 + 5);
    run(&mut engine);
    let greedy = told.account(5).choices;
    assert!(greedy.windows(2).all(|two| two[0].tokens == two[1].tokens));
}

#[test]
fn the_prompt_is_scored_also_when_it_is_cached() {
    let prompt: Vec<u32> = (0..100).map(|i| (i * 3) % 40).collect();
    for top in [0, 3] {
        let request = Request { prompt_logprobs: Some(top), ..Request::new(prompt.clone(), 2) };
        let mut engine = engine(8, |options, _| options.step_tokens = 13);
        for _ in 0..2 {
            let (_, told) = submit(&mut engine, request.clone());
            run(&mut engine);
            assert_eq!(told.account(1).prompt, prompt_scores(&request));
        }
    }
}
