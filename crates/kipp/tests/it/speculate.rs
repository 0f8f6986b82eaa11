//! Speculation through real models: a draft model whose cache is rolled back again and again, and answers that are the
//! same with drafts and without.

use kipp::TokenId;
use kipp::artifact::Artifact;
use kipp::backend::cpu::{CpuBackend, CpuOptions};
use kipp::batch::{Answer, Ask};
use kipp::kv::{KvPool, KvScheme};
use kipp::model::{Forward, Model, ModelOptions};
use kipp::sampling::{Sampler, SamplingFields, SamplingParams};
use kipp::session::Session;
use kipp::speculate::{
    DraftModel, DraftModelError, Drafter, MAX_DRAFT_TOKENS, NgramDrafter, Speculator, TokenCosts,
};
use kipp::tokenizer::Tokenizer;

use super::paths::repository;

const COSTS: TokenCosts = TokenCosts { row: 0.07, draft: 0.02, catch_up: 0.002 };

fn tiny() -> (Artifact, Tokenizer) {
    let artifact = Artifact::open(repository("models/kipp-tiny/kipp-tiny.gguf")).unwrap();
    let tokenizer = Tokenizer::from_source(&artifact.tokenizer_source().unwrap()).unwrap();
    (artifact, tokenizer)
}

fn cpu(artifact: &Artifact, options: ModelOptions) -> Box<dyn Forward> {
    let backend = CpuBackend::new(CpuOptions { threads: Some(1), ..CpuOptions::default() }).unwrap();
    Box::new(Model::load(artifact, artifact.spec().clone(), backend, options, &mut |_, _| {}).unwrap())
}

fn options(context_tokens: usize, step_tokens: usize) -> ModelOptions {
    ModelOptions::for_one_sequence(KvScheme::F32, context_tokens, step_tokens)
}

/// A tokenizer of all bytes, as byte-level vocabularies spell them, and of as many other tokens as it takes.
fn byte_tokenizer(tokens: usize, last: &str, kinds: &[kipp::tokenizer::TokenKind]) -> Tokenizer {
    let spelt = |byte: &u8| matches!(byte, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff);
    let others = (256u32..).filter_map(char::from_u32);
    let mut texts: Vec<String> = (0..=255u8).filter(spelt).map(|byte| char::from(byte).to_string()).collect();
    texts.extend(others.take(256 - texts.len()).map(String::from));
    texts.extend((256..tokens - 1).map(|i| format!("t{i}")));
    texts.push(last.to_owned());
    Tokenizer::from_vocabulary(&texts, kinds, &[], "qwen2").unwrap()
}

/// What a model alone would say after `history`.
fn greedy(model: &mut dyn Forward, history: &[TokenId], n: usize) -> Vec<TokenId> {
    let pool = KvPool::new(model.kv_blocks());
    let mut session = Session::new(model, &pool);
    let mut next = history.to_vec();
    let mut said = Vec::new();
    while said.len() < n {
        let last = next.len() - 1;
        match session.evaluate(&next, |i| if i == last { Ask::Argmax } else { Ask::Nothing }).unwrap().pop() {
            Some(Answer::Argmax(token)) => said.push(token),
            other => panic!("{other:?}"),
        }
        next = vec![*said.last().unwrap()];
    }
    said
}

#[test]
fn a_draft_model_says_what_it_would_say_alone_however_often_it_is_rolled_back() {
    let (artifact, tokenizer) = tiny();
    let draft_model = DraftModel::new(cpu(&artifact, options(160, 7)), 90, &tokenizer, &tokenizer).unwrap();
    let mut alone = cpu(&artifact, options(160, 64));
    let total = draft_model.pool().stats().free;
    let mut histories: Vec<Vec<TokenId>> = vec![vec![3, 1, 4], (0..40).map(|i| i * 7 % 39).collect()];
    let mut drafters: Vec<_> = histories.iter().map(|_| draft_model.drafter()).collect();
    let mut draft = Vec::new();
    for turn in 0..12usize {
        // Two sequences in turn, each with its own blocks of the same store.
        for (history, drafter) in histories.iter_mut().zip(&mut drafters) {
            let wanted = 1 + turn % 5;
            drafter.draft(history, wanted, &mut draft);
            assert_eq!(draft, greedy(&mut *alone, history, wanted), "turn {turn}");
            // Some of it is right, then comes another token; once a history shrinks, as none ever should.
            let right = turn % (wanted + 1);
            drafter.accepted(wanted, right.min(draft.len()));
            history.extend_from_slice(&draft[..right.min(draft.len())]);
            history.push((turn as TokenId * 11 + 5) % 39);
            if turn == 7 {
                history.truncate(2);
            }
        }
    }
    assert_eq!(draft_model.failure(), None);
    drop(drafters);
    assert_eq!(draft_model.pool().stats().free, total, "all blocks came back");
}

#[test]
fn drafts_end_at_the_context_and_without_room() {
    let (artifact, tokenizer) = tiny();
    let draft_model = DraftModel::new(cpu(&artifact, options(64, 16)), 40, &tokenizer, &tokenizer).unwrap();
    let mut drafter = draft_model.drafter();
    let mut draft = Vec::new();
    let history: Vec<TokenId> = (0..64).map(|i| i % 30).collect();
    for (len, room) in [(36, 5), (39, 2), (40, 1), (41, 0), (64, 0), (0, 0)] {
        drafter.draft(&history[..len], 16, &mut draft);
        // A padding row has the largest logit at times, and ends a draft early.
        assert!(draft.len() <= room, "{len}: {draft:?}");
        assert!(draft.iter().all(|token| (*token as usize) < tokenizer.len()));
    }
    // An id that the draft model has no row for, as a raw prompt may hold.
    drafter.draft(&[1, 2, 5000], 4, &mut draft);
    assert!(draft.is_empty());
    // Two blocks in all: one sequence holds both, the other goes without until they are free.
    drafter.draft(&history[..35], 4, &mut draft);
    let mut second = draft_model.drafter();
    second.draft(&history[..3], 4, &mut draft);
    assert!(draft.is_empty());
    drop(drafter);
    second.draft(&history[..3], 4, &mut draft);
    assert_eq!(draft_model.failure(), None);
    assert_eq!(draft_model.pool().stats().free, 1);
}

#[test]
fn h29_a_draft_model_with_another_tokenizer_is_refused() {
    use kipp::tokenizer::TokenKind::{Control, Normal, UserDefined};
    let artifact = tiny().0;
    let new = |draft: &Tokenizer, target: &Tokenizer| {
        DraftModel::new(cpu(&artifact, options(64, 16)), 64, draft, target).err()
    };
    let (a, shorter) = (byte_tokenizer(300, "~~", &[]), byte_tokenizer(299, "~~", &[]));
    let error = new(&shorter, &a).unwrap();
    assert_eq!(error, DraftModelError::TokenCount { draft: 299, target: 300 });
    let error = new(&byte_tokenizer(300, "}}", &[]), &a).unwrap();
    assert!(matches!(error, DraftModelError::Token { id: 299, .. }), "{error}");
    assert!(error.to_string().contains("token 299") && error.to_string().contains("share one tokenizer"));
    let kinds = |last| [vec![Normal; 299], vec![last]].concat();
    let error =
        new(&byte_tokenizer(300, "~~", &kinds(Control)), &byte_tokenizer(300, "~~", &kinds(UserDefined)));
    assert!(matches!(error, Some(DraftModelError::Kind { id: 299, .. })));
    let rows = artifact.spec().vocab_size;
    let larger = byte_tokenizer(rows + 1, "~~", &[]);
    assert_eq!(new(&larger, &larger), Some(DraftModelError::TooFewRows { rows, tokens: rows + 1 }));
}

#[test]
fn a_draft_model_whose_pool_cannot_hold_one_sequence_is_refused() {
    let (artifact, tokenizer) = tiny();
    let new = |kv_blocks, context_tokens| {
        let model = cpu(&artifact, ModelOptions { kv_blocks, ..options(64, 16) });
        DraftModel::new(model, context_tokens, &tokenizer, &tokenizer).err()
    };
    let (blocks, needed, context_tokens) = (2, 3, 65);
    let too_few = DraftModelError::TooFewBlocks { blocks, needed, context_tokens };
    assert_eq!(new(blocks, context_tokens), Some(too_few));
    assert_eq!((new(3, 65), new(0, 0)), (None, None));
    // More than its own positions it never needs.
    assert_eq!(new(64, 1 << 20), None);
}

/// Decodes with drafts: the tokens, the steps, and the drafted and accepted tokens.
fn speculated(
    model: &mut dyn Forward,
    prompt: &[TokenId],
    n: usize,
    mut sampler: Sampler,
    mut speculator: Speculator,
) -> (Vec<TokenId>, usize, (usize, usize)) {
    let pool = KvPool::new(model.kv_blocks());
    let mut session = Session::new(model, &pool);
    if prompt.len() > 1 {
        session.evaluate(&prompt[..prompt.len() - 1], |_| Ask::Nothing).unwrap();
    }
    let mut history = prompt.to_vec();
    let mut steps = 0;
    while history.len() < prompt.len() + n {
        let room = prompt.len() + n - history.len() - 1;
        let draft = speculator.draft(&history, room, COSTS).to_vec();
        let rows = [&history[history.len() - 1..], &draft].concat();
        let answers = session.evaluate(&rows, |_| Ask::Logits).unwrap();
        steps += 1;
        let mut accepted = 0;
        for (row, answer) in answers.into_iter().enumerate() {
            let Answer::Logits(mut logits) = answer else { panic!("logits were asked for") };
            let token = sampler.sample(&mut logits).unwrap().id;
            sampler.accept(token);
            history.push(token);
            if draft.get(row) != Some(&token) {
                break;
            }
            accepted += 1;
        }
        speculator.settle(draft.len(), accepted);
        session.truncate(history.len() - 1);
    }
    (history[prompt.len()..].to_vec(), steps, speculator.counts())
}

#[test]
fn h29_answers_are_the_same_with_drafts_greedy_and_sampled() {
    let (artifact, tokenizer) = tiny();
    let mut model = cpu(&artifact, options(512, 64));
    let prompt = tokenizer.encode("Once upon a time there was a little dog. The dog had a red ball.");
    let n = 120;
    for temperature in [0.0, 0.9] {
        let fields = SamplingFields { temperature, ..Default::default() };
        let sampler = || Sampler::new(SamplingParams::parse(fields.clone()).unwrap(), 7, 0, &prompt);
        let with = |model: &mut dyn Forward, drafter: Box<dyn Drafter>, max_tokens| {
            speculated(model, &prompt, n, sampler(), Speculator::new(drafter, max_tokens))
        };
        let (plain, steps, _) = with(&mut *model, Box::new(NgramDrafter::new()), 0);
        assert_eq!((plain.len(), steps), (n, n));
        let (looked_up, ..) = with(&mut *model, Box::new(NgramDrafter::new()), MAX_DRAFT_TOKENS);
        assert_eq!(looked_up, plain, "temperature {temperature}");
        // The model drafts for itself: every greedy draft is right.
        let draft_model =
            DraftModel::new(cpu(&artifact, options(512, 64)), 512, &tokenizer, &tokenizer).unwrap();
        let (drafted, steps, (tokens, accepted)) =
            with(&mut *model, Box::new(draft_model.drafter()), MAX_DRAFT_TOKENS);
        assert_eq!(drafted, plain, "temperature {temperature}");
        assert!(accepted > 0 && steps < n);
        if temperature == 0.0 {
            assert_eq!(tokens, accepted);
            assert!(steps < n / 5, "{steps} steps");
        }
    }
}
