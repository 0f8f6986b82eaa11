//! The engine: the same answers as alone, whatever the schedule, the pool, the drafts and the company.

mod answers;
mod bug_reports;
mod constraints;
mod cpu;
mod failures;
mod fairness;
mod fake;
mod handle;
mod interrupted;
mod naive;
mod prefixes;
mod random;
mod schedules;
mod slow_masks;
mod soak;
mod speculation;
mod told;
mod wide;
mod worker_panics;

use kipp::engine::{Engine, EngineOptions, Request, RequestId};
use kipp::kv::BLOCK_TOKENS;

use fake::{Fake, FakeClock};
use naive::tokenizer;
use told::Told;

/// An engine on a fake model of so many blocks, whose context is all of them.
fn engine(blocks: usize, change: impl FnOnce(&mut EngineOptions, &mut Fake)) -> Engine {
    let clock = FakeClock::default();
    let mut fake = Fake::new(blocks, clock.clone());
    let mut options = EngineOptions::new(blocks * BLOCK_TOKENS);
    options.tokenizer = Some(tokenizer());
    options.end_tokens = vec![naive::END];
    change(&mut options, &mut fake);
    Engine::open(Box::new(fake), Box::new(clock), options).unwrap()
}

/// Puts a request into the queue and keeps what it is told.
fn submit(engine: &mut Engine, request: Request) -> (RequestId, Told) {
    let told = Told::default();
    let id = engine.submit(request, Box::new(told.clone())).unwrap();
    (id, told)
}

/// Steps until nothing is left to do.
fn run(engine: &mut Engine) -> usize {
    let mut steps = 0;
    while engine.has_work() {
        engine.step();
        steps += 1;
        assert!(steps < 100_000, "the engine never ends");
    }
    let kv = engine.stats().kv;
    assert_eq!((kv.used, kv.used + kv.cached + kv.free), (0, kv.total), "no block is lost");
    steps
}
