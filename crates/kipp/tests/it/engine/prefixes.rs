//! H25 and H26: prefixes that are known, and those that are only about to be.

use kipp::TokenId;
use kipp::engine::{Engine, FinishReason, Request};
use kipp::kv::BLOCK_TOKENS;

use super::naive::solo;
use super::told::Answer;
use super::{engine, run, submit};

fn request(prompt: &[TokenId]) -> Request {
    Request { logprobs: Some(3), ..Request::new(prompt.to_vec(), 16) }
}

fn text(length: usize, first: TokenId) -> Vec<TokenId> {
    (0..length as TokenId).map(|i| (first + i * 11) % 40).collect()
}

/// Sends a prompt; the answer must be the cold one, and as much must have been cached.
fn send(engine: &mut Engine, prompt: &[TokenId], cached_tokens: usize) -> Answer {
    let (_, told) = submit(engine, request(prompt));
    run(engine);
    let answer = told.answer();
    let expected = solo(&request(prompt), 0, 16 * BLOCK_TOKENS);
    assert_eq!((&answer.tokens, &answer.scores), (&expected.tokens, &expected.scores));
    assert_eq!(answer.stats.cached_tokens, cached_tokens, "a prompt of {}", prompt.len());
    assert_eq!(answer.stats.evaluated_tokens, prompt.len() - cached_tokens);
    answer
}

#[test]
fn h25_a_prompt_that_is_all_cached_still_evaluates_one_token() {
    for length in [1, 31, 32, 33, 64, 65] {
        let mut engine = engine(16, |_, _| {});
        let prompt = text(length, 5);
        let answer = send(&mut engine, &prompt, 0);
        let whole_blocks = |tokens: usize| (tokens - 1) / BLOCK_TOKENS * BLOCK_TOKENS;
        for _ in 0..3 {
            send(&mut engine, &prompt, whole_blocks(length));
        }
        // With its own answer, whose last token was evaluated only if the end token was chosen after it.
        let turn = [&prompt[..], &answer.tokens].concat();
        let known = turn.len() - usize::from(answer.finish == Some(FinishReason::Length));
        send(&mut engine, &turn, (known / BLOCK_TOKENS * BLOCK_TOKENS).min(whole_blocks(turn.len())));
        let changed = |at: usize| {
            let mut prompt = prompt.clone();
            prompt[at] = (prompt[at] + 1) % 40;
            prompt
        };
        if length > 1 {
            send(&mut engine, &prompt[..length - 1], whole_blocks(length - 1));
            send(&mut engine, &changed(length - 1), whole_blocks(length));
            send(&mut engine, &changed(0), 0);
        }
    }
}

#[test]
fn salts_keep_prefixes_apart() {
    let mut engine = engine(16, |_, _| {});
    let cached = |engine: &mut Engine, salt: &[u8]| {
        let request = Request { cache_salt: salt.to_vec(), ..request(&text(70, 1)) };
        let (_, told) = submit(engine, request);
        run(engine);
        told.answer().stats.cached_tokens
    };
    assert_eq!(
        [&b"a"[..], b"b", b"a", b"", b"b", b""].map(|salt| cached(&mut engine, salt)),
        [0, 0, 64, 0, 64, 64]
    );
}

/// Eight requests at once, of four common blocks and a tail each.
fn burst() -> Vec<Request> {
    let tail = |n: TokenId| [text(4 * BLOCK_TOKENS, 9), text(20, n)].concat();
    (0..8).map(|n| request(&tail(n))).collect()
}

#[test]
fn h26_a_block_is_found_only_after_it_was_written() {
    let expected: Vec<_> = burst().iter().map(|request| solo(request, 0, 12 * BLOCK_TOKENS).tokens).collect();
    for step_tokens in [10, 64, 2000] {
        for blocks in [12, 20, 64] {
            for cancelled in [None, Some(1), Some(3)] {
                let mut engine = engine(blocks, |options, _| {
                    options.context_tokens = 12 * BLOCK_TOKENS;
                    options.step_tokens = step_tokens;
                });
                // One that the engine refuses comes between.
                let sink = Box::new(super::told::Told::default());
                let requests: Vec<_> =
                    burst().into_iter().map(|request| submit(&mut engine, request)).collect();
                assert!(engine.submit(Request::new(vec![500], 1), sink).is_err());
                if let Some(steps) = cancelled {
                    for _ in 0..steps {
                        engine.step();
                    }
                    // The first, in its prefill or right after it: it publishes what it computed and nothing else.
                    engine.cancel(requests[0].0);
                }
                run(&mut engine);
                for (n, (_, told)) in requests.iter().enumerate().skip(usize::from(cancelled.is_some())) {
                    assert_eq!(told.answer().tokens, expected[n], "{step_tokens} {blocks} {cancelled:?}");
                }
            }
        }
    }
}

#[test]
fn h26_a_common_prefix_is_evaluated_once_also_when_all_come_at_once() {
    let mut engine = engine(64, |_, _| {});
    let requests: Vec<_> = burst().into_iter().map(|request| submit(&mut engine, request)).collect();
    run(&mut engine);
    let cached: Vec<usize> = requests.iter().map(|(_, told)| told.answer().stats.cached_tokens).collect();
    assert_eq!(cached, [0, 128, 128, 128, 128, 128, 128, 128]);
    let stats = engine.stats();
    assert_eq!((stats.prefix_queries, stats.prefix_hits, stats.prefix_tokens_reused), (8, 7, 7 * 128));
}

#[test]
fn old_prefixes_make_room_and_are_computed_again() {
    let mut engine = engine(4, |_, _| {});
    for round in 0..3 {
        for first in [1, 2, 3] {
            let (_, told) = submit(&mut engine, request(&text(80, first)));
            run(&mut engine);
            let expected = solo(&request(&text(80, first)), 0, 128);
            assert_eq!(told.answer().tokens, expected.tokens, "round {round}");
        }
    }
    assert!(engine.stats().kv.evictions > 0);
}
