//! A step that somebody gave up: its requests are cancelled, and nothing of it can be found afterwards.

use kipp::artifact::Artifact;
use kipp::backend::cpu::{CpuBackend, CpuOptions};
use kipp::engine::{Engine, EngineOptions, FinishReason, Request, SystemClock};
use kipp::kv::{KvPool, KvScheme};
use kipp::model::{Forward, Interrupt, Model, ModelOptions};

use super::{run, submit};

const CONTEXT: usize = 160;
/// Two blocks a step.
const STEP: usize = 64;

fn model() -> Box<dyn Forward> {
    let artifact = Artifact::open(crate::paths::repository("models/kipp-tiny")).unwrap();
    let backend = CpuBackend::new(CpuOptions { threads: Some(2), ..CpuOptions::default() }).unwrap();
    let options = ModelOptions::for_one_sequence(KvScheme::Bf16, CONTEXT, STEP);
    let model = Model::load(&artifact, artifact.spec().clone(), backend, options, &mut |_, _| {});
    Box::new(model.unwrap())
}

fn engine(model: Box<dyn Forward>, pool: Option<KvPool>) -> Engine {
    let options = EngineOptions { step_tokens: STEP, pool, ..EngineOptions::new(CONTEXT) };
    Engine::open(model, Box::new(SystemClock::default()), options).unwrap()
}

fn request() -> Request {
    Request::new((1..=130).collect(), 6)
}

fn answer(model: Box<dyn Forward>, pool: Option<KvPool>) -> Vec<u32> {
    let mut engine = engine(model, pool);
    let (_, told) = submit(&mut engine, request());
    run(&mut engine);
    told.answer().tokens
}

#[test]
fn what_an_interrupted_step_wrote_is_nowhere_and_its_request_is_cancelled() {
    let (mut model, interrupt) = (model(), Interrupt::default());
    model.set_interrupt(interrupt.clone());
    let mut engine = engine(model, None);
    let (_, told) = submit(&mut engine, request());
    engine.step();
    interrupt.raise();
    run(&mut engine);
    assert_eq!(told.answer().finish, Some(FinishReason::Cancelled));
    assert_eq!(engine.stats().kv.cached, STEP / 32, "the blocks of the first step and no others");
    assert_eq!((engine.stats().cancelled_requests, engine.stats().failed_requests), (1, 0));
    assert!(engine.is_healthy());

    // The same model goes on with what the first step left.
    let (mut interrupted, pool) = engine.into_parts();
    interrupted.set_interrupt(Interrupt::default());
    assert_eq!(answer(interrupted, Some(pool)), answer(self::model(), None));
}
