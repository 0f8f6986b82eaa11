//! The engine on its own thread: events arrive, cancellation and slow readers end requests, and after a panic everybody is
//! told.

use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::Duration;

use kipp::TokenId;
use kipp::engine::{
    ChannelSink, Engine, EngineError, EngineHandle, EngineOptions, Event, FinishReason, NewDrafter, Request,
    RequestError, RequestFailure, Speculation, UNDELIVERED_EVENTS,
};
use kipp::kv::KvPool;

use super::engine;
use super::fake::{Fake, FakeClock, Fault};
use super::naive::solo;

/// Long enough for a loaded machine; a test that needs it has found something that hangs.
const PATIENCE: Duration = Duration::from_secs(60);

fn talker(first: TokenId, max_tokens: usize) -> Request {
    Request { ignore_eos: true, ..Request::new(vec![first, 2], max_tokens) }
}

fn submit(handle: &EngineHandle, request: Request) -> (kipp::engine::RequestId, Receiver<Event>) {
    let (sink, events) = ChannelSink::new();
    (handle.submit(request, Box::new(sink)).unwrap(), events)
}

/// The tokens and the last event of the only choice.
fn collect(events: &Receiver<Event>) -> (Vec<TokenId>, Event) {
    let mut all = Vec::new();
    loop {
        match events.recv_timeout(PATIENCE).unwrap() {
            Event::Tokens { tokens, .. } => all.extend(tokens.into_iter().map(|token| token.id)),
            event @ (Event::Finished { .. } | Event::Failed(_)) => return (all, event),
            Event::Started { .. } | Event::Prompt { .. } => {}
        }
    }
}

#[test]
fn requests_from_many_threads_are_answered() {
    let handle = EngineHandle::start(engine(16, |_, _| {})).unwrap();
    std::thread::scope(|scope| {
        for n in 0..6 {
            let handle = &handle;
            scope.spawn(move || {
                let (_, events) = submit(handle, talker(n, 30));
                assert_eq!(collect(&events).0, solo(&talker(n, 30), 0, 512).tokens);
            });
        }
    });
    let refused = handle.submit(Request::new(vec![40_000], 1), Box::new(ChannelSink::new().0));
    assert!(matches!(refused, Err(RequestError::Token { token: 40_000, .. })));
    assert!(handle.is_healthy());
}

#[test]
fn a_cancelled_request_is_told_so() {
    let handle = EngineHandle::start(engine(64, |_, _| {})).unwrap();
    // Fewer than may lie undelivered: where this thread is held up, nothing else must end it.
    let (id, events) = submit(&handle, talker(1, 1000));
    let first = events.recv_timeout(PATIENCE).unwrap();
    assert!(matches!(first, Event::Started { .. }));
    handle.cancel(id);
    let (tokens, last) = collect(&events);
    match last {
        Event::Finished { reason: FinishReason::Cancelled, stats, .. } => {
            assert_eq!(stats.completion_tokens, tokens.len());
        }
        // On a machine that held this thread up for long, the answer may be complete.
        Event::Finished { reason: FinishReason::Length, .. } => {}
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_reader_that_falls_behind_is_cancelled() {
    let handle = EngineHandle::start(engine(128, |_, _| {})).unwrap();
    let (_, events) = submit(&handle, talker(1, UNDELIVERED_EVENTS * 3));
    let started = std::time::Instant::now();
    while handle.stats().cancelled_requests == 0 {
        std::thread::sleep(Duration::from_millis(2));
        assert!(started.elapsed() < PATIENCE);
    }
    assert_eq!(events.iter().count(), UNDELIVERED_EVENTS, "what lay there can still be read");
    assert_eq!(handle.stats().kv.used, 0);
}

#[test]
fn after_a_panic_everybody_is_told_and_nobody_is_taken() {
    let handle = EngineHandle::start(engine(16, |_, fake| fake.fault = Some((4, Fault::Panic)))).unwrap();
    let all: Vec<_> = (0..3).map(|n| submit(&handle, talker(n, 500))).collect();
    let told = all
        .iter()
        .filter(|(_, events)| matches!(collect(events).1, Event::Failed(RequestFailure::Panicked(_))));
    assert_eq!(told.count(), 3);
    let started = std::time::Instant::now();
    while handle.is_healthy() {
        std::thread::sleep(Duration::from_millis(1));
        assert!(started.elapsed() < PATIENCE);
    }
    let refused = handle.submit(talker(1, 1), Box::new(ChannelSink::new().0));
    assert_eq!(refused, Err(RequestError::Unhealthy));
    handle.cancel(all[0].0);
}

#[test]
fn a_panic_before_the_first_step_is_told_to_everybody_too() {
    let handle = EngineHandle::start(engine(16, |_, _| {})).unwrap();
    let breaks: NewDrafter = Arc::new(|_| panic!("no drafter"));
    let speculation = Some(Speculation::Always(breaks));
    let mut all = Vec::new();
    for n in 0..6 {
        let (sink, events) = ChannelSink::new();
        let speculation = if n == 1 { speculation.clone() } else { None };
        match handle.submit(Request { speculation, ..talker(n, 400) }, Box::new(sink)) {
            Ok(_) => all.push(events),
            Err(error) => assert_eq!(error, RequestError::Unhealthy),
        }
    }
    assert!(all.len() >= 2);
    for (n, events) in all.iter().enumerate() {
        match collect(events).1 {
            Event::Failed(RequestFailure::Panicked(_)) => {}
            // On a machine that held this thread up for long, the first may be complete before the second comes.
            Event::Finished { reason: FinishReason::Length, .. } if n == 0 => {}
            other => panic!("{n}: {other:?}"),
        }
    }
}

#[test]
fn dropping_the_handle_ends_what_runs() {
    let handle = EngineHandle::start(engine(64, |_, _| {})).unwrap();
    let (_, events) = submit(&handle, talker(1, 1000));
    drop(handle);
    let last = collect(&events).1;
    let closed = matches!(last, Event::Failed(RequestFailure::Closed));
    assert!(closed || matches!(last, Event::Finished { .. }), "{last:?}");
}

#[test]
fn an_engine_is_handed_on_with_what_its_blocks_hold() {
    let handle = EngineHandle::start(engine(16, |_, _| {})).unwrap();
    let prompt: Vec<TokenId> = (0..80).map(|i| i % 40).collect();
    let (_, events) = submit(&handle, Request::new(prompt.clone(), 4));
    let first = collect(&events).0;
    let (forward, pool) = handle.close().unwrap().into_parts();
    let mut options = EngineOptions::new(512);
    options.end_tokens = vec![super::naive::END];
    options.pool = Some(KvPool::new(3));
    let other = Engine::open(
        Box::new(Fake::new(16, FakeClock::default())),
        Box::new(FakeClock::default()),
        options.clone(),
    );
    assert_eq!(other.err(), Some(EngineError::OtherPool { pool: 3, store: 16 }));
    options.pool = Some(pool);
    let mut engine = Engine::open(forward, Box::new(FakeClock::default()), options).unwrap();
    let (_, told) = super::submit(&mut engine, Request::new(prompt, 4));
    super::run(&mut engine);
    assert_eq!((told.answer().tokens, told.answer().stats.cached_tokens), (first, 64));
}

#[test]
fn the_queue_has_an_end_here_too() {
    let handle = EngineHandle::start(engine(64, |options, _| options.max_waiting = 0)).unwrap();
    let refused = handle.submit(talker(1, 1), Box::new(ChannelSink::new().0));
    assert_eq!(refused, Err(RequestError::QueueFull { waiting: 0 }));
}
