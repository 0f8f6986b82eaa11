//! H29: drafts change how soon an answer is there, and nothing else.

use std::sync::{Arc, Mutex};

use kipp::TokenId;
use kipp::engine::{FinishReason, Request, Speculation};
use kipp::sampling::{SamplingFields, SamplingParams};
use kipp::speculate::Drafter;

use super::fake::Times;
use super::naive::{END, VOCAB, solo};
use super::{engine, run, submit};

/// What a scripted drafter proposes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Drafts {
    /// What the model will say.
    Right,
    /// Never what the model will say.
    Wrong,
    /// Right and wrong tokens in turn.
    Alternating,
    /// Right, with the end token and more after it.
    PastTheEnd,
    /// No token of the vocabulary after the first two.
    OutOfVocabulary,
}

/// Knows the whole history that is to come.
pub(super) struct Scripted {
    pub(super) drafts: Drafts,
    pub(super) truth: Vec<TokenId>,
    /// Drafted and accepted tokens, as it was told.
    pub(super) told: Arc<Mutex<(usize, usize)>>,
}

impl Drafter for Scripted {
    fn draft(&mut self, history: &[TokenId], max_tokens: usize, draft: &mut Vec<TokenId>) {
        draft.clear();
        assert_eq!(history, &self.truth[..history.len()], "a drafter sees accepted tokens only");
        let to_come = self.truth.iter().copied().skip(history.len());
        let wrong = |id: TokenId| (id + 1) % VOCAB as TokenId;
        match self.drafts {
            Drafts::Right => draft.extend(to_come),
            Drafts::Wrong => draft.extend(to_come.map(wrong)),
            Drafts::Alternating => {
                draft.extend(to_come.enumerate().map(|(i, id)| if i % 2 == 0 { id } else { wrong(id) }));
            }
            Drafts::PastTheEnd => draft.extend(to_come.chain([END, 3, 4])),
            Drafts::OutOfVocabulary => draft.extend(to_come.take(2).chain([VOCAB as TokenId, TokenId::MAX])),
        }
        // One in three is longer than what was asked for.
        if !history.len().is_multiple_of(3) {
            draft.truncate(max_tokens);
        }
    }

    fn accepted(&mut self, drafted: usize, accepted: usize) {
        assert!(accepted <= drafted && drafted > 0);
        let mut told = self.told.lock().unwrap();
        *told = (told.0 + drafted, told.1 + accepted);
    }
}

/// Gives a request scripted drafters; `told` adds up for all its choices.
pub(super) fn scripted(
    request: &mut Request,
    drafts: Drafts,
    context_tokens: usize,
) -> Arc<Mutex<(usize, usize)>> {
    let told: Arc<Mutex<(usize, usize)>> = Arc::default();
    let plain = request.clone();
    let shared = Arc::clone(&told);
    request.speculation = Some(Speculation::Always(Arc::new(move |choice| {
        let answer = solo(&plain, choice, context_tokens);
        let truth = [&plain.prompt[..], &answer.tokens].concat();
        Box::new(Scripted { drafts, truth, told: Arc::clone(&shared) })
    })));
    told
}

pub(super) const ALL: [Drafts; 5] =
    [Drafts::Right, Drafts::Wrong, Drafts::Alternating, Drafts::PastTheEnd, Drafts::OutOfVocabulary];

fn drawing(seed: u64) -> Request {
    let fields = SamplingFields { temperature: 0.9, top_k: 12, ..SamplingFields::default() };
    Request { sampling: SamplingParams::parse(fields).unwrap(), seed, ..Request::new(vec![1, 2, 3], 40) }
}

#[test]
fn h29_drafts_change_no_answer() {
    for drafts in ALL {
        for seed in 0..40 {
            let mut request =
                if seed % 4 == 0 { Request::new(vec![seed as TokenId, 2], 50) } else { drawing(seed) };
            request.logprobs = Some(2);
            // Some of them are longer than what is left of the context.
            request.max_tokens = [1, 2, 30, 500][seed as usize % 4];
            request.ignore_eos = seed % 5 == 0;
            let context_tokens = 2 * 32;
            let expected = solo(&request, 0, context_tokens);
            let noted = scripted(&mut request, drafts, context_tokens);
            let mut engine = engine(2, |_, _| {});
            let (_, told) = submit(&mut engine, request);
            run(&mut engine);
            let answer = told.answer();
            assert_eq!(answer.tokens, expected.tokens, "{drafts:?}, seed {seed}");
            assert_eq!((&answer.text, answer.finish), (&expected.text, expected.finish));
            assert_eq!(answer.scores, expected.scores);
            let (drafted, accepted) = *noted.lock().unwrap();
            assert_eq!((answer.stats.drafted_tokens, answer.stats.accepted_tokens), (drafted, accepted));
            assert!(accepted <= answer.tokens.len().saturating_sub(1));
            if drafts == Drafts::Wrong {
                assert_eq!(accepted, 0);
            }
        }
    }
}

#[test]
fn h29_right_drafts_save_steps() {
    let steps = |drafts: Option<Drafts>| {
        let mut request = Request { ignore_eos: true, ..Request::new(vec![5], 60) };
        if let Some(drafts) = drafts {
            scripted(&mut request, drafts, 64);
        }
        let mut engine = engine(2, |_, _| {});
        submit(&mut engine, request);
        run(&mut engine)
    };
    assert_eq!(steps(None), 60);
    assert_eq!(steps(Some(Drafts::Right)), 2, "the prompt, and all the rest at once");
    assert_eq!(steps(Some(Drafts::Wrong)), 60);
}

#[test]
fn h29_a_stop_inside_an_accepted_draft_ends_there() {
    for seed in 0..30 {
        let plain = Request { ignore_eos: true, ..drawing(seed) };
        let whole = solo(&plain, 0, 64);
        // A stop string that the 3rd to 5th token complete, and one of a single token.
        for stop in [&whole.text[2..5], &whole.text[3..4]] {
            let mut request = Request { stops: vec![stop.to_owned()], ..plain.clone() };
            let expected = solo(&request, 0, 64);
            let truth = [&request.prompt[..], &whole.tokens].concat();
            request.speculation = Some(Speculation::Always(Arc::new(move |_| {
                Box::new(Scripted { drafts: Drafts::Right, truth: truth.clone(), told: Arc::default() })
            })));
            let mut engine = engine(2, |_, _| {});
            let (_, told) = submit(&mut engine, request);
            run(&mut engine);
            let answer = told.answer();
            assert_eq!((&answer.tokens, &answer.text), (&expected.tokens, &expected.text));
            assert_eq!(answer.finish, Some(FinishReason::Stop));
            assert!(!answer.text.contains(stop));
        }
    }
}

#[test]
fn h29_speculation_that_must_pay_changes_no_answer() {
    let plain = |seed| Request { ignore_eos: true, ..drawing(seed) };
    for (drafts, step_us, row_us) in
        [(Drafts::Right, 10_000, 100), (Drafts::Wrong, 100, 10_000), (Drafts::Alternating, 0, 0)]
    {
        let mut engine = engine(16, |_, fake| fake.times = Times { step_us, row_us });
        let all: Vec<_> = (0..5)
            .map(|seed| {
                let mut request = plain(seed);
                scripted(&mut request, drafts, 512);
                let Some(Speculation::Always(new)) = request.speculation else { panic!("scripted") };
                request.speculation = Some(Speculation::WherePaying(new, 8));
                submit(&mut engine, request).1
            })
            .collect();
        let steps = run(&mut engine);
        for (seed, told) in all.iter().enumerate() {
            assert_eq!(told.answer().tokens, solo(&plain(seed as u64), 0, 512).tokens);
        }
        let stats = engine.stats();
        match drafts {
            Drafts::Right => assert!(steps < 20 && stats.accepted_tokens > 100, "{steps} {stats:?}"),
            Drafts::Wrong => assert!(stats.drafted_tokens < 60, "{stats:?}"),
            _ => {}
        }
    }
}
