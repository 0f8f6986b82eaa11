//! The soak: the engine through its handle on kipp-tiny, for as long as it is told. Requests of every kind come at random
//! into a pool that is too small for them; some are cancelled, of some the reader leaves. What is answered is what each is
//! answered alone, memory does not grow, and in the end the pool is empty.

use std::fmt;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::{Duration, Instant};

use kipp::TokenId;
use kipp::backend::cpu::{CpuBackend, CpuOptions};
use kipp::engine::{
    ChannelSink, Engine, EngineHandle, EngineOptions, EngineStats, Event, FinishReason, Request, RequestId,
    Speculation, SystemClock, Thinking,
};
use kipp::kv::KvScheme;
use kipp::model::{Model, ModelOptions};
use kipp::sampling::constraint::{ConstraintCompiler, Grammar, Start};
use kipp::sampling::{SamplingFields, SamplingParams};
use kipp::speculate::NgramDrafter;
use kipp::tokenizer::Tokenizer;

use super::cpu::{artifact, tokenizer};
use super::random::Random;
use crate::constraint::compiled;

/// How long to run, in seconds, where it is not [`SECONDS`].
const SECONDS_VARIABLE: &str = "KIPP_SOAK_SECONDS";
const SECONDS: u64 = 20;

/// What memory is compared with at the latest: by then every kind of request has come a hundred times.
const WARM: Duration = Duration::from_secs(60);

/// How much more memory there may be in the end.
const GROWTH: f64 = 0.02;

/// And beside that, where memory is compared with less than [`WARM`]: what an allocator still takes until every thread
/// has met every kind of request. Two hundredths of this small process are a mere megabyte.
const WARMING_KIB: f64 = 4096.0;

/// Requests at once at most.
const FLIGHTS: usize = 12;

/// One answer in so many is compared with that of the request alone.
const CHECKED: usize = 4;

const CONTEXT: usize = 192;

/// Blocks of the engine under test: two sequences of the whole context, and a bit.
const BLOCKS: usize = 14;

/// Whoever waits this long has found something that hangs.
const PATIENCE: Duration = Duration::from_secs(120);

fn start(blocks: usize, step_tokens: usize) -> EngineHandle {
    let artifact = artifact();
    let backend = CpuBackend::new(CpuOptions { threads: Some(2), ..CpuOptions::default() }).unwrap();
    let room = ModelOptions { kv: KvScheme::Bf16, kv_blocks: blocks, max_rows: step_tokens };
    let model = Model::load(&artifact, artifact.spec().clone(), backend, room, &mut |_, _| {}).unwrap();
    let mut options = EngineOptions::new(CONTEXT);
    options.step_tokens = step_tokens;
    options.end_tokens = artifact.stop_tokens().to_vec();
    options.tokenizer = Some(tokenizer());
    let engine = Engine::open(Box::new(model), Box::new(SystemClock::default()), options).unwrap();
    EngineHandle::start(engine).unwrap()
}

/// Makes requests.
struct Mix {
    random: Random,
    tokenizer: Tokenizer,
    compiler: ConstraintCompiler,
}

impl Mix {
    fn prompt(&mut self) -> Vec<TokenId> {
        const STORIES: [&str; 3] = [
            "Once upon a time, there was a little girl named Lily. She liked to play in the park with her dog. ",
            "One day, a big bird sat on a tree. It saw a small cat. ",
            "Tom had a red ball. ",
        ];
        let random = &mut self.random;
        let story = STORIES[random.below(3)].repeat(random.from(1, 5));
        let mut prompt = self.tokenizer.encode_with_control(&story);
        prompt.truncate(random.from(1, 150));
        prompt.extend((0..random.below(6)).map(|_| random.from(300, 3000) as TokenId));
        prompt
    }

    fn sampling(&mut self) -> SamplingParams {
        if self.random.once_in(3) {
            return SamplingParams::greedy();
        }
        let fields = SamplingFields {
            temperature: [0.6, 0.9, 1.3][self.random.below(3)],
            top_p: [1.0, 0.9][self.random.below(2)],
            repetition_penalty: [1.0, 1.2][self.random.below(2)],
            frequency_penalty: [0.0, 0.3][self.random.below(2)],
            ..SamplingFields::default()
        };
        SamplingParams::parse(fields).unwrap()
    }

    fn request(&mut self) -> Request {
        let (prompt, sampling) = (self.prompt(), self.sampling());
        let random = &mut self.random;
        let mut request = Request { sampling, ..Request::new(prompt, random.from(1, 70)) };
        request.seed = random.below(1000) as u64;
        request.choices = if random.once_in(4) { random.from(2, 4) as u32 } else { 1 };
        request.ignore_eos = random.once_in(2);
        request.logprobs = random.once_in(5).then_some(2);
        request.prompt_logprobs = random.once_in(8).then_some(1);
        if random.once_in(4) {
            request.stops = vec![".".to_owned(), " the l".to_owned()];
        }
        if random.once_in(6) {
            let mark = |text| self.tokenizer.token_id(text).unwrap();
            let (open, close, begun) = (mark("<think>"), mark("</think>"), random.once_in(2));
            request.thinking = Some(Thinking { open, close, begun, budget_tokens: Some(random.below(20)) });
        } else if random.once_in(4) {
            let grammars = [
                Grammar::JsonSchema(
                    r#"{"type":"array","items":{"enum":["cat","dog",7]},"maxItems":9}"#.to_owned(),
                ),
                Grammar::Regex("[A-D]{3}(:[0-9]{2,4})*".to_owned()),
                Grammar::Lark("start: (\"the \" | WORD \" \"){1,9} \".\"\nWORD: /[a-z]{1,5}/".to_owned()),
            ];
            let constraint = compiled(&self.compiler, &grammars[random.below(3)]);
            request.constraint = Some(constraint.starting(Start::Now));
        }
        if random.once_in(3) {
            let new: kipp::engine::NewDrafter = Arc::new(|_| Box::new(NgramDrafter::new()));
            request.speculation = Some(match random.once_in(2) {
                true => Speculation::Always(new),
                false => Speculation::WherePaying(new, 8),
            });
        }
        request
    }
}

/// One choice as it was told.
#[derive(Clone, Debug, Default, PartialEq)]
struct Answer {
    tokens: Vec<TokenId>,
    text: String,
    finish: Option<FinishReason>,
}

/// A request under way.
struct Flight {
    id: RequestId,
    request: Request,
    events: Receiver<Event>,
    answers: Vec<Answer>,
    ended: bool,
}

impl Flight {
    fn begin(handle: &EngineHandle, request: Request) -> Flight {
        let (sink, events) = ChannelSink::new();
        let id = handle.submit(request.clone(), Box::new(sink)).unwrap();
        let answers = vec![Answer::default(); request.choices as usize];
        Flight { id, request, events, answers, ended: false }
    }

    fn take(&mut self, event: Event) {
        match event {
            Event::Tokens { choice, tokens } => {
                let answer = &mut self.answers[choice as usize];
                answer.tokens.extend(tokens.iter().map(|token| token.id));
                answer.text.extend(tokens.into_iter().map(|token| token.text));
            }
            Event::Finished { choice, reason, text, .. } => {
                let answer = &mut self.answers[choice as usize];
                answer.text += &text;
                assert_eq!(answer.finish.replace(reason), None, "ended twice");
                self.ended = self.answers.iter().all(|answer| answer.finish.is_some());
            }
            Event::Failed(failure) => panic!("{failure}"),
            Event::Started { .. } | Event::Prompt { .. } => {}
        }
    }

    /// Takes what there is.
    fn look(&mut self) {
        loop {
            match self.events.try_recv() {
                Ok(event) => self.take(event),
                Err(TryRecvError::Empty) => return,
                Err(TryRecvError::Disconnected) => {
                    assert!(self.ended, "its events ended before it did");
                    return;
                }
            }
        }
    }

    fn wait(mut self) -> Flight {
        while !self.ended {
            let event = self.events.recv_timeout(PATIENCE).unwrap();
            self.take(event);
        }
        self
    }
}

struct Soak {
    mix: Mix,
    busy: EngineHandle,
    /// Answers one request at a time.
    alone: EngineHandle,
    flights: Vec<Flight>,
    requests: usize,
    checked: usize,
}

impl Soak {
    fn new() -> Soak {
        let tokenizer = tokenizer();
        let compiler = ConstraintCompiler::new(&tokenizer, artifact().stop_tokens()).unwrap();
        Soak {
            mix: Mix { random: Random::new(1), tokenizer, compiler },
            busy: start(BLOCKS, 64),
            alone: start(40, 48),
            flights: Vec::new(),
            requests: 0,
            checked: 0,
        }
    }

    fn churn(&mut self, until: Instant) {
        while Instant::now() < until {
            if self.flights.len() < FLIGHTS && self.mix.random.once_in(2) {
                let request = self.mix.request();
                self.flights.push(Flight::begin(&self.busy, request));
                self.requests += 1;
            }
            let random = &mut self.mix.random;
            if !self.flights.is_empty() && random.once_in(40) {
                self.busy.cancel(self.flights[random.below(self.flights.len())].id);
            }
            if !self.flights.is_empty() && random.once_in(80) {
                // Whoever reads its events is gone.
                self.flights.swap_remove(random.below(self.flights.len()));
            }
            let pause = Duration::from_micros(random.below(8000) as u64);
            self.collect();
            std::thread::sleep(pause);
        }
    }

    fn collect(&mut self) {
        self.flights.iter_mut().for_each(Flight::look);
        for flight in self.flights.extract_if(.., |flight| flight.ended).collect::<Vec<_>>() {
            if self.mix.random.once_in(CHECKED) {
                self.check(&flight);
            }
        }
    }

    /// The answers are those of the request alone; what one that was cut had said is how they begin.
    fn check(&mut self, flight: &Flight) {
        self.checked += 1;
        // By a salt of its own it finds nothing of what came before.
        let cache_salt = self.checked.to_le_bytes().to_vec();
        let plain = Request { cache_salt, speculation: None, ..flight.request.clone() };
        let alone = Flight::begin(&self.alone, plain).wait();
        for (busy, alone) in flight.answers.iter().zip(&alone.answers) {
            if busy.finish == Some(FinishReason::Cancelled) {
                assert!(alone.tokens.starts_with(&busy.tokens), "{busy:?}\n{alone:?}");
            } else {
                assert_eq!(busy, alone);
            }
        }
    }

    /// Waits until nothing runs any more and the pool is empty.
    fn drain(&mut self) -> EngineStats {
        let began = Instant::now();
        loop {
            self.collect();
            let stats = self.busy.stats();
            let kv = stats.kv;
            if self.flights.is_empty() && stats.running_requests + stats.waiting_requests == 0 {
                assert_eq!((kv.used, kv.cached + kv.free), (0, kv.total), "the pool is not empty");
                return stats;
            }
            assert!(began.elapsed() < PATIENCE, "{stats:?}");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Memory of this process in KiB, by its name in the system's account.
fn memory_kib(name: &str) -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    line.trim().trim_end_matches("kB").trim().parse().ok()
}

/// A size in KiB as a person reads it; the word for none where the system keeps no account.
struct Mib(Option<u64>);

impl fmt::Display for Mib {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(kib) => write!(f, "{:.1} MiB", kib as f64 / 1024.0),
            None => f.write_str("unknown"),
        }
    }
}

/// `cargo xtask ci` and `cargo xtask full` run it, and show its line.
#[test]
#[ignore = "takes as long as it is told"]
fn soak() {
    let seconds = std::env::var(SECONDS_VARIABLE).map_or(SECONDS, |seconds| seconds.parse().unwrap());
    let whole = Duration::from_secs(seconds);
    let warm = WARM.min(whole / 4);
    let mut soak = Soak::new();
    let began = Instant::now();
    soak.churn(began + warm);
    soak.drain();
    let before = memory_kib("VmRSS");
    soak.churn(began + whole);
    let stats = soak.drain();
    let (after, most) = (memory_kib("VmRSS"), memory_kib("VmHWM"));
    println!(
        "soak: {seconds} s, {} requests ({} finished, {} cancelled), {} tokens, {} preemptions, {} of {} drafted tokens \
         accepted, {} prefixes found, {} answers checked alone; resident {} after {} s, {} at the end, {} at most",
        soak.requests,
        stats.finished_requests,
        stats.cancelled_requests,
        stats.generated_tokens,
        stats.preemptions,
        stats.accepted_tokens,
        stats.drafted_tokens,
        stats.prefix_hits,
        soak.checked,
        Mib(before),
        warm.as_secs(),
        Mib(after),
        Mib(most),
    );
    assert_eq!(stats.failed_requests, 0);
    let kinds = [stats.preemptions, stats.accepted_tokens, stats.prefix_hits, stats.cancelled_requests];
    assert!(kinds.iter().all(|count| *count > 0), "something never happened: {stats:?}");
    if let (Some(before), Some(after)) = (before, after) {
        let warming = if warm < WARM { WARMING_KIB } else { 0.0 };
        assert!(
            after as f64 <= before as f64 * (1.0 + GROWTH) + warming,
            "memory grew from {before} to {after} KiB"
        );
    }
    assert!(soak.busy.close().is_some_and(|engine| engine.is_healthy()));
}
