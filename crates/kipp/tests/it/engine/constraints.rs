//! Answers under a grammar: they match it, whatever the drafts, the company and the pool, and end tokens end them.

use kipp::engine::{FinishReason, Request, Thinking};
use kipp::sampling::constraint::{Constraint, ConstraintCompiler, Grammar, Start};
use kipp::sampling::{SamplingFields, SamplingParams};

use super::fake::Times;
use super::naive::{END, tokenizer};
use super::told::Answer;
use super::{engine, run, submit};
use crate::constraint::compiled;

/// Ids of the fake model spell one character each, from '!' on.
fn constraint(regex: &str) -> Constraint {
    let compiler = ConstraintCompiler::new(&tokenizer(), &[END]).unwrap();
    compiled(&compiler, &Grammar::Regex(regex.to_owned())).starting(Start::Now)
}

fn request(regex: &str, seed: u64) -> Request {
    let fields = SamplingFields { temperature: 1.2, ..SamplingFields::default() };
    Request {
        sampling: SamplingParams::parse(fields).unwrap(),
        seed,
        // A constraint ends with an end token, even so.
        ignore_eos: true,
        constraint: Some(constraint(regex)),
        ..Request::new(vec![1, 2, seed as u32 % 40], 60)
    }
}

/// Answers of all requests, together in one engine of so many blocks.
fn answers(requests: &[Request], blocks: usize) -> Vec<Vec<Answer>> {
    let mut engine = engine(blocks, |options, fake| {
        options.context_tokens = 96;
        fake.times = Times { step_us: 10, row_us: 10 };
    });
    let told: Vec<_> = requests.iter().map(|request| submit(&mut engine, request.clone()).1).collect();
    run(&mut engine);
    requests.iter().zip(told).map(|(request, told)| told.account(request.choices).choices).collect()
}

#[test]
fn answers_match_their_grammar_in_any_company() {
    let requests: Vec<Request> = (0..6)
        .map(|seed| Request { choices: 1 + seed as u32 % 3, ..request("[A-D]{3}(:[0-9]{2,4})*", seed) })
        .collect();
    let busy = answers(&requests, 5);
    for (request, busy) in requests.iter().zip(&busy) {
        let alone = answers(std::slice::from_ref(request), 12);
        for (busy, alone) in busy.iter().zip(&alone[0]) {
            assert_eq!((&busy.tokens, &busy.text, busy.finish), (&alone.tokens, &alone.text, alone.finish));
            let mut parts = busy.text.split(':');
            let head = parts.next().unwrap();
            assert!(head.len() == 3 && head.bytes().all(|c| (b'A'..=b'D').contains(&c)), "{}", busy.text);
            let whole = busy.finish == Some(FinishReason::Stop);
            let digits = |part: &str| part.bytes().all(|c| c.is_ascii_digit()) && part.len() <= 4;
            assert!(parts.all(|part| digits(part) && (part.len() >= 2 || !whole)), "{}", busy.text);
        }
    }
}

#[test]
fn a_grammar_that_is_complete_leaves_only_the_end() {
    // Not even `min_tokens` makes it longer.
    let short = Request { min_tokens: 9, ..request("[A-C]{4}", 3) };
    let answer = &answers(&[short], 4)[0][0];
    assert_eq!((answer.text.len(), answer.finish), (4, Some(FinishReason::Stop)));
    // But where the grammar goes on, an end has to wait.
    let long = Request { min_tokens: 9, ..request("[A-C]+", 3) };
    let answer = &answers(&[long], 4)[0][0];
    assert!(answer.text.len() >= 9 && answer.text.bytes().all(|c| (b'A'..=b'C').contains(&c)));
}

#[test]
fn drafts_are_masked_like_anything_else() {
    use super::speculation::{Drafts, Scripted};
    use kipp::engine::Speculation;
    use std::sync::Arc;
    for drafts in [Drafts::Right, Drafts::Wrong, Drafts::Alternating, Drafts::PastTheEnd] {
        for seed in 0..6 {
            let plain = request("([A-D]{2}:)+", seed);
            let alone = answers(std::slice::from_ref(&plain), 4).swap_remove(0).swap_remove(0);
            let truth = [&plain.prompt[..], &alone.tokens].concat();
            let new = move |_| -> Box<dyn kipp::speculate::Drafter> {
                Box::new(Scripted { drafts, truth: truth.clone(), told: Arc::default() })
            };
            let drafted = Request { speculation: Some(Speculation::Always(Arc::new(new))), ..plain };
            let drafted = answers(&[drafted], 4).swap_remove(0).swap_remove(0);
            assert_eq!((drafted.tokens, drafted.finish), (alone.tokens, alone.finish), "{drafts:?}");
        }
    }
}

/// kipp-tiny's own marks are past the fake model's ids, so here thinking and grammar are told apart by the engine alone.
#[test]
fn a_constraint_and_a_budget_of_thinking_do_not_meet_by_accident() {
    let thinking = Some(Thinking { open: 30, close: 31, begun: false, budget_tokens: Some(2) });
    let answer = &answers(&[Request { thinking, ..request("[A-C]{4}", 5) }], 4)[0][0];
    assert_eq!((answer.text.len(), answer.finish), (4, Some(FinishReason::Stop)));
}
