//! The engine over the turns of a conversation: one request at a time, all of them on the same blocks of keys and values.
//! An answer that was stopped leaves them in order.

use std::ops::ControlFlow;

use anyhow::Context;
use kipp::TokenId;
use kipp::engine::{self, Engine, EngineHandle, EngineOptions, Event, Request, SystemClock};
use kipp::model::{Forward, Interrupt};

use crate::generate::{Completion, Sink, generate};
use crate::interrupt;
use crate::speculation::Drafters;

/// What the engine is doing between answers.
enum Engaged {
    Idle(Box<Engine>),
    /// It evaluates what the next prompt will begin with.
    Preparing(EngineHandle),
    /// It did not survive.
    Gone,
}

/// What evaluates the turns.
pub(super) struct Evaluator {
    engine: Engaged,
    /// To open it again on the same blocks.
    options: EngineOptions,
    interrupt: Interrupt,
    drafters: Option<Drafters>,
    /// What was evaluated last: a prompt and its answer.
    held: Vec<TokenId>,
    /// The beginning that was asked for since.
    prepared: Vec<TokenId>,
}

/// For requests that nobody waits for.
struct Unheard;

impl engine::Sink for Unheard {
    fn deliver(&mut self, _: Event) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }
}

impl Evaluator {
    pub(super) fn open(
        mut forward: Box<dyn Forward>,
        options: EngineOptions,
        drafters: Option<Drafters>,
    ) -> anyhow::Result<Evaluator> {
        let interrupt = Interrupt::default();
        forward.set_interrupt(interrupt.clone());
        let engine = Engine::open(forward, Box::new(SystemClock::default()), options.clone())?;
        let (engine, held, prepared) = (Engaged::Idle(Box::new(engine)), Vec::new(), Vec::new());
        Ok(Evaluator { engine, options, interrupt, drafters, held, prepared })
    }

    /// The prompt and the answer that were evaluated last; their whole blocks need no evaluation again.
    pub(super) fn held(&self) -> &[TokenId] {
        &self.held
    }

    /// Completes a request of one choice. Ctrl-C ends it, and what there is of it is its completion.
    pub(super) fn complete(&mut self, request: Request, sink: Sink<'_>) -> anyhow::Result<Completion> {
        let engine = self.take_engine()?;
        let prompt = request.prompt.clone();
        let speculation = self.drafters.as_ref().map(Drafters::where_paying);
        let graceful = interrupt::graceful();
        let (completion, engine) =
            generate(engine, &self.interrupt, Request { speculation, ..request }, sink)?;
        // The interrupt stays raised once it was, so that the model would evaluate nothing any more.
        let engine = if interrupt::requested() { self.renewed(engine)? } else { engine };
        interrupt::forget();
        drop(graceful);
        self.engine = Engaged::Idle(Box::new(engine));
        self.drafters.iter().for_each(Drafters::tell_failure);
        self.held = [&prompt, &completion.tokens[..]].concat();
        self.prepared.clear();
        Ok(completion)
    }

    /// Begins to evaluate a prompt's beginning, while nobody waits for anything.
    pub(super) fn prepare(&mut self, prompt: Vec<TokenId>) -> anyhow::Result<()> {
        if prompt == self.prepared {
            return Ok(());
        }
        let engine = self.take_engine()?;
        let handle = EngineHandle::start(engine).context("a thread for the engine")?;
        handle.submit(Request::new(prompt.clone(), 0), Box::new(Unheard))?;
        self.prepared = prompt;
        self.engine = Engaged::Preparing(handle);
        Ok(())
    }

    /// The engine, after the step that it may be in.
    fn take_engine(&mut self) -> anyhow::Result<Engine> {
        let engine = match std::mem::replace(&mut self.engine, Engaged::Gone) {
            Engaged::Idle(engine) => Some(*engine),
            Engaged::Preparing(handle) => handle.close(),
            Engaged::Gone => None,
        };
        engine.context("the engine's thread did not survive")
    }

    /// The engine with an interrupt that was not raised, on the blocks of the old one.
    fn renewed(&mut self, engine: Engine) -> anyhow::Result<Engine> {
        let (mut forward, pool) = engine.into_parts();
        self.interrupt = Interrupt::default();
        forward.set_interrupt(self.interrupt.clone());
        let options = EngineOptions { pool: Some(pool), ..self.options.clone() };
        Ok(Engine::open(forward, Box::new(SystemClock::default()), options)?)
    }
}

impl Drop for Evaluator {
    /// Nobody waits for a step whose outcome is not wanted any more.
    fn drop(&mut self) {
        self.interrupt.raise();
    }
}
