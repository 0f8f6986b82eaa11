//! On the processor with kipp-tiny: tokens and logits of every sequence in a busy engine are those of its solo run, bit
//! for bit.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use kipp::artifact::Artifact;
use kipp::backend::cpu::{CpuBackend, CpuOptions};
use kipp::backend::{BackendError, BackendInfo};
use kipp::batch::{Answer, Batch, Outputs};
use kipp::engine::{Engine, EngineOptions, Request, Speculation, SystemClock};
use kipp::kv::{BLOCK_TOKENS, BlockId, KvScheme};
use kipp::model::{Forward, Model, ModelOptions};
use kipp::sampling::{SamplingFields, SamplingParams};
use kipp::tokenizer::Tokenizer;
use kipp::{ModelSpec, TokenId};

use super::random::Random;
use super::speculation::{Drafts, Scripted};
use super::{run, submit};

/// Rows of logits by the history that they follow, as bits.
type Rows = Arc<Mutex<HashMap<Vec<TokenId>, Vec<u32>>>>;

/// A model that notes every row of logits with its history, which it learns from the tokens it is given.
struct Noting {
    model: Box<dyn Forward>,
    /// What each position of each block holds.
    blocks: Vec<[TokenId; BLOCK_TOKENS]>,
    /// Histories of the rows that ask in the step under way.
    asking: Vec<(usize, Vec<TokenId>)>,
    rows: Rows,
    differ: Arc<Mutex<usize>>,
}

impl Noting {
    fn note(&mut self, batch: &Batch) {
        for (from, to) in &batch.copy {
            self.blocks[*to as usize] = self.blocks[*from as usize];
        }
        for segment in &batch.segments {
            for ((block, slot), token) in segment.slots().zip(&batch.tokens[segment.rows.clone()]) {
                self.blocks[block as usize][slot] = *token;
            }
        }
        self.asking.clear();
        for segment in &batch.segments {
            let held = |p: usize| self.blocks[segment.table[p / BLOCK_TOKENS] as usize][p % BLOCK_TOKENS];
            for (row, _) in batch.asking().filter(|(row, _)| segment.rows.contains(row)) {
                let position = segment.start + row - segment.rows.start;
                self.asking.push((row, (0..=position).map(held).collect()));
            }
        }
    }
}

impl Forward for Noting {
    fn spec(&self) -> &ModelSpec {
        self.model.spec()
    }
    fn describe(&self) -> BackendInfo {
        self.model.describe()
    }
    fn kv_scheme(&self) -> KvScheme {
        self.model.kv_scheme()
    }
    fn kv_blocks(&self) -> usize {
        self.model.kv_blocks()
    }
    fn max_rows(&self) -> usize {
        self.model.max_rows()
    }
    fn submit(&mut self, batch: &Batch) -> Result<(), BackendError> {
        self.note(batch);
        self.model.submit(batch)
    }
    fn wait(&mut self, outputs: &mut Outputs) -> Result<(), BackendError> {
        self.model.wait(outputs)?;
        let mut rows = self.rows.lock().unwrap();
        for ((row, history), (answered, answer)) in self.asking.drain(..).zip(&outputs.answers) {
            assert_eq!(row, *answered);
            let Answer::Logits(logits) = answer else { continue };
            let bits: Vec<u32> = logits.iter().map(|logit| logit.to_bits()).collect();
            let known = rows.entry(history).or_insert_with(|| bits.clone());
            *self.differ.lock().unwrap() += known.iter().zip(&bits).filter(|(a, b)| a != b).count();
        }
        Ok(())
    }
    fn read_block(&self, block: BlockId) -> Vec<f32> {
        self.model.read_block(block)
    }
    fn write_block(&mut self, block: BlockId, values: &[f32]) {
        self.model.write_block(block, values);
    }
}

pub(super) fn artifact() -> Artifact {
    Artifact::open(crate::paths::repository("models/kipp-tiny")).unwrap()
}

/// An engine on the processor that notes its rows.
struct Setup {
    threads: usize,
    blocks: usize,
    step_tokens: usize,
    kv: KvScheme,
}

fn noting_engine(setup: &Setup, rows: &Rows, differ: &Arc<Mutex<usize>>) -> Engine {
    let artifact = artifact();
    let backend =
        CpuBackend::new(CpuOptions { threads: Some(setup.threads), ..CpuOptions::default() }).unwrap();
    let options = ModelOptions { kv: setup.kv, kv_blocks: setup.blocks, max_rows: setup.step_tokens };
    let model = Model::load(&artifact, artifact.spec().clone(), backend, options, &mut |_, _| {}).unwrap();
    let blocks = vec![[0; BLOCK_TOKENS]; setup.blocks];
    let (rows, differ) = (Arc::clone(rows), Arc::clone(differ));
    let noting = Noting { model: Box::new(model), blocks, asking: Vec::new(), rows, differ };
    let mut options = EngineOptions::new(CONTEXT);
    options.step_tokens = setup.step_tokens;
    options.end_tokens = artifact.stop_tokens().to_vec();
    options.tokenizer = Some(tokenizer());
    Engine::open(Box::new(noting), Box::new(SystemClock::default()), options).unwrap()
}

pub(super) fn tokenizer() -> Tokenizer {
    let json = include_bytes!("../../../../../models/kipp-tiny/tokenizer.json");
    Tokenizer::from_json(json).unwrap().with_rows(4096).unwrap()
}

/// Positions of a sequence in these tests.
const CONTEXT: usize = 160;

/// Stories that share beginnings, of several blocks, some with choices, some drawn and some greedy.
fn requests() -> Vec<Request> {
    let tokenizer = tokenizer();
    let story =
        "Once upon a time, there was a little girl named Lily. She liked to play in the park with her dog. ";
    let draws = |seed| {
        let fields = SamplingFields {
            temperature: 0.8,
            top_p: 0.95,
            repetition_penalty: 1.1,
            frequency_penalty: 0.2,
            ..SamplingFields::default()
        };
        (SamplingParams::parse(fields).unwrap(), seed)
    };
    let greedy = (SamplingParams::greedy(), 0);
    let cases = [
        (story.repeat(3), 24, 1, greedy.clone()),
        (story.repeat(3) + "One day", 24, 1, draws(42)),
        ("One day, a bird".to_owned(), 70, 3, draws(7)),
        (story.repeat(2), 40, 2, draws(3)),
        ("The cat".to_owned(), 90, 1, greedy.clone()),
        (story.repeat(3), 30, 1, greedy),
    ];
    let request = |(text, max_tokens, choices, (sampling, seed)): (String, usize, u32, _)| Request {
        sampling,
        seed,
        choices,
        ignore_eos: choices > 1,
        logprobs: Some(2),
        ..Request::new(tokenizer.encode_with_control(&text), max_tokens)
    };
    cases.into_iter().map(request).collect()
}

type Answers = Vec<Vec<super::told::Answer>>;

/// What each request is answered alone in a fresh engine, one token of a prompt a step.
fn alone(rows: &Rows, differ: &Arc<Mutex<usize>>, kv: KvScheme) -> Answers {
    let answer = |request: Request| {
        let choices = request.choices;
        let setup = Setup { threads: 1, blocks: 40, step_tokens: 5, kv };
        let mut engine = noting_engine(&setup, rows, differ);
        let (_, told) = submit(&mut engine, request);
        run(&mut engine);
        told.account(choices).choices
    };
    requests().into_iter().map(answer).collect()
}

/// All requests in one engine, in an order and at times that the seed gives.
fn together(random: &mut Random, engine: &mut Engine, solo: &Answers) -> Answers {
    let mut told: Vec<Option<super::told::Told>> = vec![None; solo.len()];
    let mut order: Vec<usize> = (0..solo.len()).collect();
    for i in (1..order.len()).rev() {
        order.swap(i, random.below(i + 1));
    }
    for index in order {
        let mut request = requests().swap_remove(index);
        if random.once_in(2) {
            let drafts = [Drafts::Right, Drafts::Alternating, Drafts::Wrong][random.below(3)];
            let texts: Vec<Vec<TokenId>> =
                solo[index].iter().map(|answer| [&request.prompt[..], &answer.tokens].concat()).collect();
            request.speculation = Some(Speculation::Always(Arc::new(move |choice| {
                let truth = texts[choice as usize].clone();
                Box::new(Scripted { drafts, truth, told: Arc::default() })
            })));
        }
        told[index] = Some(submit(engine, request).1);
        for _ in 0..random.below(6) {
            engine.step();
        }
    }
    run(engine);
    told.into_iter().zip(solo).map(|(told, solo)| told.unwrap().account(solo.len() as u32).choices).collect()
}

fn check(kv: KvScheme, rounds: u64) {
    let (rows, differ): (Rows, Arc<Mutex<usize>>) = Default::default();
    let solo = alone(&rows, &differ, kv);
    let noted = rows.lock().unwrap().len();
    let (mut preemptions, mut hits, mut accepted) = (0, 0, 0);
    for seed in 0..rounds {
        let random = &mut Random::new(seed);
        let setup = Setup {
            threads: 1 + random.below(2),
            blocks: [5, 9, 60][seed as usize % 3],
            step_tokens: [64, 9, 200, 33][random.below(4)],
            kv,
        };
        let mut engine = noting_engine(&setup, &rows, &differ);
        // Twice, so that the second finds what the first left.
        for _ in 0..2 {
            for (index, (busy, solo)) in together(random, &mut engine, &solo).iter().zip(&solo).enumerate() {
                for (busy, solo) in busy.iter().zip(solo) {
                    assert_eq!(busy.tokens, solo.tokens, "request {index}, seed {seed}");
                    assert_eq!((&busy.text, busy.finish), (&solo.text, solo.finish));
                    assert_eq!(busy.scores, solo.scores, "request {index}, seed {seed}");
                }
            }
        }
        let stats = engine.stats();
        preemptions += stats.preemptions;
        hits += stats.prefix_hits;
        accepted += stats.accepted_tokens;
    }
    assert_eq!(*differ.lock().unwrap(), 0, "logits that differ in a bit");
    assert!(
        noted > 300 && preemptions > 0 && hits > 0 && accepted > 0,
        "{noted} {preemptions} {hits} {accepted}"
    );
}

#[test]
fn a_busy_engine_answers_bit_for_bit_as_alone() {
    check(KvScheme::Bf16, 4);
}

#[test]
fn a_busy_engine_with_q8_0_kv_answers_bit_for_bit_as_alone() {
    check(KvScheme::Q8_0, 2);
}

/// Draws are by seed, choice and position: the same answers again from requests that come in another order.
#[test]
fn h17_draws_do_not_depend_on_company() {
    let (rows, differ): (Rows, Arc<Mutex<usize>>) = Default::default();
    let setup = Setup { threads: 2, blocks: 60, step_tokens: 64, kv: KvScheme::Bf16 };
    let mut engine = noting_engine(&setup, &rows, &differ);
    let mut texts = Vec::new();
    for company in 0..3 {
        let seeded = requests().swap_remove(2);
        requests().into_iter().skip(3).take(company).for_each(|request| drop(submit(&mut engine, request)));
        let (_, told) = submit(&mut engine, seeded);
        run(&mut engine);
        let choices = told.account(3).choices;
        assert!(choices[0].tokens != choices[1].tokens && choices[1].tokens != choices[2].tokens);
        texts.push(choices.into_iter().map(|answer| answer.tokens).collect::<Vec<_>>());
    }
    assert!(texts.windows(2).all(|two| two[0] == two[1]));
}
