//! Public bug reports whose tests at this level need something of their own: H07, H08, H16, H18, H19. The others stand
//! where their subject is: H06 and H17 in `answers` and `cpu`, H24 in `fairness`, H25 and H26 in `prefixes`, H29 in
//! `speculation`.

use kipp::TokenId;
use kipp::engine::{Engine, EngineOptions, FinishReason, Request, RequestError, RequestFailure, Thinking};
use kipp::kv::BLOCK_TOKENS;
use kipp::sampling::constraint::{ConstraintCompiler, Grammar, Start};
use kipp::sampling::{SampleError, SamplingError, SamplingFields, SamplingParams};

use super::fake::{Fake, FakeClock, Fault};
use super::naive::{self, END, VOCAB, logits, solo, tokenizer};
use super::speculation::{ALL, scripted};
use super::told::Told;
use super::wide::Wide;
use super::{engine, run, submit};
use crate::constraint::compiled;

fn talker(first: TokenId, max_tokens: usize) -> Request {
    Request { ignore_eos: true, ..Request::new(vec![first, 2], max_tokens) }
}

fn sampling(change: impl FnOnce(&mut SamplingFields)) -> SamplingParams {
    let mut fields = SamplingFields { temperature: 0.0, ..SamplingFields::default() };
    change(&mut fields);
    SamplingParams::parse(fields).unwrap()
}

/// Where thinking ends is told by tokens, so no way to cut the text or the prompt moves it.
#[test]
fn h07_no_border_of_tokens_or_steps_moves_the_end_of_thinking() {
    let letters = |tokens: &[TokenId]| tokenizer().decode(tokens, true).unwrap();
    for (begun, budget_tokens) in [(true, Some(4)), (true, None), (false, Some(3))] {
        for first in 0..12 {
            let plain = Request {
                thinking: Some(Thinking { open: 11, close: 12, begun, budget_tokens }),
                // Letters that thinking is full of, and that count only after it.
                stops: vec![letters(&[12]), letters(&[3])],
                prompt: (0..40).map(|i| (first + i * 3) % 40).collect(),
                ..talker(first, 40)
            };
            let expected = solo(&plain, 0, 4 * BLOCK_TOKENS);
            for (drafts, step_tokens) in ALL.into_iter().zip([1, 3, 33, 40, 500]) {
                for drafted in [false, true] {
                    let mut request = plain.clone();
                    if drafted {
                        scripted(&mut request, drafts, 4 * BLOCK_TOKENS);
                    }
                    let mut engine = engine(4, |options, _| options.step_tokens = step_tokens);
                    let (_, told) = submit(&mut engine, request);
                    run(&mut engine);
                    let answer = told.answer();
                    assert_eq!((&answer.tokens, &answer.text), (&expected.tokens, &expected.text));
                    assert_eq!(answer.finish, expected.finish);
                }
            }
        }
    }
}

/// An engine on the fake model with a wide head.
fn wide(raised: Vec<(TokenId, f32)>) -> Engine {
    let clock = FakeClock::default();
    let mut options = EngineOptions::new(8 * BLOCK_TOKENS);
    options.tokenizer = Some(tokenizer());
    options.end_tokens = vec![END];
    let model = Wide::new(Fake::new(8, clock.clone()), raised);
    Engine::open(Box::new(model), Box::new(clock), options).unwrap()
}

#[test]
fn h08_padding_is_neither_chosen_nor_told_and_added_tokens_are_text() {
    let (tokenizer, tokens) = (tokenizer(), tokenizer().len() as TokenId);
    let first_padding = [(tokens, 90.0), (super::wide::ROWS as TokenId - 1, 99.0)];
    let compiler = ConstraintCompiler::new(&tokenizer, &[END]).unwrap();
    let grammar = Grammar::Regex("[A-D]{9}".to_owned());
    let constraint = compiled(&compiler, &grammar).starting(Start::Now);
    let mut engine = wide(first_padding.to_vec());
    let greedy = Request { logprobs: Some(20), ..talker(1, 12) };
    let drawn = Request { sampling: sampling(|fields| fields.temperature = 1.3), ..talker(2, 12) };
    let bound = Request { constraint: Some(constraint), ..talker(3, 12) };
    let told = [greedy, drawn, bound].map(|request| submit(&mut engine, request).1);
    run(&mut engine);
    let [greedy, drawn, bound] = told.map(|told| told.answer());
    assert_eq!(greedy.tokens, solo(&talker(1, 12), 0, 8 * BLOCK_TOKENS).tokens);
    assert!(greedy.scores.iter().flat_map(|score| &score.top).all(|entry| entry.id < tokens));
    assert!(drawn.tokens.len() == 12 && drawn.tokens.iter().all(|id| *id < tokens));
    assert_eq!((bound.text.len(), bound.finish), (9, Some(FinishReason::Stop)));

    // Marks are added tokens, but text; control tokens have none.
    for (text, shown) in [("</think>", "</think>"), ("<tool_call>", "<tool_call>"), ("<|im_end|>", "")] {
        let id = tokenizer.token_id(text).unwrap();
        let mut engine = wide(vec![(id, 80.0)]);
        let (_, told) = submit(&mut engine, talker(1, 3));
        run(&mut engine);
        assert_eq!((told.answer().tokens, told.answer().text), (vec![id; 3], shown.repeat(3)));
    }
}

#[test]
fn h16_ids_out_of_the_vocabulary_are_refused_by_name_and_disturb_nobody() {
    let mut engine = engine(8, |_, _| {});
    let (_, streams) = submit(&mut engine, talker(5, 60));
    let past = VOCAB as TokenId;
    let token = |field, token| RequestError::Token { field, token, last: VOCAB - 1 };
    let biased = |id, bias| sampling(|fields| fields.logit_bias = vec![(id, bias)]);
    let marks = |open, close| Some(Thinking { open, close, begun: false, budget_tokens: None });
    let refused = [
        (Request { prompt: vec![1, past], ..talker(1, 1) }, token("prompt", past)),
        (Request { prompt: vec![TokenId::MAX], ..talker(1, 1) }, token("prompt", TokenId::MAX)),
        (Request { prompt: Vec::new(), ..talker(1, 1) }, RequestError::EmptyPrompt),
        (Request { stop_tokens: vec![past], ..talker(1, 1) }, token("stop_token_ids", past)),
        (Request { thinking: marks(1, past), ..talker(1, 1) }, token("thinking", past)),
        (
            Request { sampling: biased(past, 1.0), ..talker(1, 1) },
            RequestError::Sampling(SamplingError::BiasId { id: past, last: VOCAB - 1 }),
        ),
    ];
    for (request, error) in refused {
        let told = Told::default();
        assert_eq!(engine.submit(request, Box::new(told.clone())), Err(error));
        assert_eq!(told.len(), 0, "nothing of it was begun");
        engine.step();
    }
    // The most likely token banned, another one forced, and a bias on nothing.
    let plain = solo(&talker(1, 8), 0, 8 * BLOCK_TOKENS).tokens;
    let answer = |bias: Vec<(TokenId, f64)>, engine: &mut Engine| {
        let sampling = sampling(|fields| fields.logit_bias = bias);
        let (_, told) = submit(engine, Request { sampling, ..talker(1, 8) });
        while told.account(1).choices[0].finish.is_none() {
            engine.step();
        }
        told.answer().tokens
    };
    assert!(!answer(vec![(plain[0], -100.0)], &mut engine).contains(&plain[0]));
    assert_eq!(answer(vec![(9, 100.0)], &mut engine), [9; 8]);
    assert_eq!(answer(Vec::new(), &mut engine), plain);
    run(&mut engine);
    assert_eq!(streams.answer().tokens, solo(&talker(5, 60), 0, 8 * BLOCK_TOKENS).tokens);
}

#[test]
fn h18_a_row_that_is_not_finite_ends_its_request_and_no_other_of_its_step() {
    for speculates in [false, true] {
        let mut engine = engine(8, |_, fake| fake.fault = Some((4, Fault::FirstNotFinite)));
        let mut first = talker(1, 20);
        if speculates {
            scripted(&mut first, super::speculation::Drafts::Wrong, 8 * BLOCK_TOKENS);
        }
        let (_, broken) = submit(&mut engine, first);
        let others: Vec<Told> = (2..5).map(|n| submit(&mut engine, talker(n, 20)).1).collect();
        run(&mut engine);
        let account = broken.account(1);
        assert!(
            matches!(account.failure, Some(RequestFailure::Sample(SampleError::NotFinite { id: 3, .. }))),
            "{:?}",
            account.failure
        );
        assert_eq!(account.choices[0].tokens, solo(&talker(1, 20), 0, 8 * BLOCK_TOKENS).tokens[..3]);
        for (n, told) in (2..5).zip(others) {
            assert_eq!(told.answer().tokens, solo(&talker(n, 20), 0, 8 * BLOCK_TOKENS).tokens);
        }
        assert!(engine.is_healthy());
    }
}

/// `min_tokens` bans end tokens, and with them hid that their logits were broken: scores were no numbers.
#[test]
fn h18_a_broken_logit_of_an_end_token_that_is_banned_ends_its_request() {
    let mut engine = engine(8, |_, fake| fake.fault = Some((4, Fault::NotFinite)));
    let request = Request { stop_tokens: vec![3], min_tokens: 9, logprobs: Some(0), ..talker(1, 20) };
    let (_, told) = submit(&mut engine, request);
    run(&mut engine);
    let failure = told.account(1).failure;
    assert!(
        matches!(failure, Some(RequestFailure::Sample(SampleError::NotFinite { id: 3, .. }))),
        "{failure:?}"
    );
}

#[test]
fn h18_no_temperature_is_divided_by_where_it_is_too_small() {
    let mut engine = engine(16, |_, _| {});
    let with = |temperature| sampling(|fields| fields.temperature = temperature);
    let told = [0.0, -0.0, 1e-39, 1e-5]
        .map(|temperature| submit(&mut engine, Request { sampling: with(temperature), ..talker(1, 20) }).1);
    let hot = submit(&mut engine, Request { sampling: with(1e30), ..talker(1, 40) }).1;
    run(&mut engine);
    let greedy = solo(&talker(1, 20), 0, 16 * BLOCK_TOKENS).tokens;
    assert!(told.into_iter().all(|told| told.answer().tokens == greedy));
    let mut drawn = hot.answer().tokens;
    drawn.sort_unstable();
    drawn.dedup();
    assert!(drawn.len() > 15, "a draw from all ids alike: {drawn:?}");
}

/// The greedy answer under penalties, in plain arithmetic: repetition once an id of prompt and answer, frequency by count
/// and presence once, over the answer alone.
fn penalized(request: &Request, repetition: f64, frequency: f64, presence: f64) -> Vec<TokenId> {
    let mut state = request.prompt.iter().fold(naive::START, |state, id| naive::after(state, *id));
    let mut answer: Vec<TokenId> = Vec::new();
    while answer.len() < request.max_tokens {
        let penalty = |(id, logit): (usize, f32)| {
            let id = id as TokenId;
            let count = answer.iter().filter(|other| **other == id).count();
            let seen = count > 0 || request.prompt.contains(&id);
            let mut logit = f64::from(logit);
            if seen {
                logit = if logit > 0.0 { logit / repetition } else { logit * repetition };
            }
            logit - frequency * count as f64 - if count > 0 { presence } else { 0.0 }
        };
        let logits: Vec<f64> = logits(state).into_iter().enumerate().map(penalty).collect();
        let best = (1..VOCAB).fold(0, |best, id| if logits[id] > logits[best] { id } else { best });
        state = naive::after(state, best as TokenId);
        answer.push(best as TokenId);
    }
    answer
}

#[test]
fn h19_penalties_go_once_and_by_count_alone_and_in_company() {
    // The prompt has one id 80 times.
    let prompt = [&[1; 80][..], &[5, 6]].concat();
    let cases = [
        (1.1, 0.0, 0.0),
        (1.5, 0.0, 0.0),
        (1.0, 0.5, 0.0),
        (1.0, 0.0, 1.5),
        (1.0, 2.0, 0.0),
        (1.2, 0.4, 0.3),
    ];
    let mut changed = 0;
    for (repetition, frequency, presence) in cases {
        let penalties = sampling(|fields| {
            (fields.repetition_penalty, fields.frequency_penalty, fields.presence_penalty) =
                (repetition, frequency, presence);
        });
        let request = Request { prompt: prompt.clone(), sampling: penalties, ..talker(1, 40) };
        let expected = penalized(&request, repetition, frequency, presence);
        changed += usize::from(expected != penalized(&request, 1.0, 0.0, 0.0));
        for company in [0, 3] {
            let mut engine = engine(32, |options, _| options.step_tokens = 40);
            for n in 0..company {
                submit(&mut engine, Request { prompt: vec![n; 150], ..talker(n, 50) });
            }
            let (_, told) = submit(&mut engine, request.clone());
            run(&mut engine);
            assert_eq!(told.answer().tokens, expected, "{repetition} {frequency} {presence}, {company}");
        }
    }
    assert!(changed >= 4, "penalties that change nothing show nothing");
}
