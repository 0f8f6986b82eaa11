//! A panic in one of the threads that compute: everybody is told, the engine takes no more, and nobody hangs.

use std::sync::mpsc::{Receiver, sync_channel};
use std::time::{Duration, Instant};

use kipp::engine::{
    ChannelSink, Engine, EngineHandle, EngineOptions, Event, Request, RequestError, RequestFailure,
    SystemClock,
};
use kipp::gates::Variant;
use kipp::kv::KvScheme;

use crate::faults::{self, Fault};

/// Long enough for a loaded machine; a test that needs it has found something that hangs.
const PATIENCE: Duration = Duration::from_secs(60);

const THREADS: usize = 3;

/// Engines at most until a thread of the pool, and not the one that calls it, takes the broken part.
const TRIES: usize = 60;

fn start() -> EngineHandle {
    let variant = Variant {
        activations: None,
        kv: KvScheme::Bf16,
        threads: Some(THREADS),
        max_rows: 64,
        kv_blocks: 16,
    };
    let forward = faults::load(Fault::NoSuchBlock, variant);
    let engine = Engine::open(forward, Box::new(SystemClock::default()), EngineOptions::new(128)).unwrap();
    EngineHandle::start(engine).unwrap()
}

fn talk(handle: &EngineHandle, first: u32) -> Receiver<Event> {
    let (sink, events) = ChannelSink::new();
    let request = Request { ignore_eos: true, ..Request::new(vec![first; 5], 120) };
    handle.submit(request, Box::new(sink)).unwrap();
    events
}

/// What a request ends with; the engine may take it only after the panic.
fn failure(events: &Receiver<Event>) -> String {
    loop {
        match events.recv_timeout(PATIENCE).unwrap() {
            Event::Failed(RequestFailure::Panicked(said)) => return said,
            Event::Started { .. } | Event::Tokens { .. } => {}
            other => panic!("{other:?}"),
        }
    }
}

/// Two sequences decode when a third comes, whose attention panics. Returns what the requests were told.
fn third_sequence_panics() -> String {
    let handle = start();
    let mut all = vec![talk(&handle, 1), talk(&handle, 2)];
    for events in &all {
        // Its first token: from here on it decodes.
        while !matches!(events.recv_timeout(PATIENCE).unwrap(), Event::Tokens { .. }) {}
    }
    all.push(talk(&handle, 3));
    let said: Vec<String> = all.iter().map(failure).collect();
    assert!(said.windows(2).all(|two| two[0] == two[1]), "{said:?}");
    let began = Instant::now();
    while handle.is_healthy() {
        std::thread::sleep(Duration::from_millis(1));
        assert!(began.elapsed() < PATIENCE);
    }
    let refused = handle.submit(Request::new(vec![1], 1), Box::new(ChannelSink::new().0));
    assert_eq!(refused, Err(RequestError::Unhealthy));
    assert_eq!((handle.stats().failed_requests, handle.stats().kv.used), (3, 0));
    // Its threads are still there and are ended.
    let engine = handle.close().unwrap();
    assert!(!engine.is_healthy());
    drop(engine);
    said.into_iter().next().unwrap()
}

#[test]
fn a_panic_in_a_worker_thread_ends_all_requests_and_nobody_hangs() {
    let (told, answer) = sync_channel(1);
    std::thread::spawn(move || {
        let of_worker =
            (0..TRIES).map(|_| third_sequence_panics()).find(|said| said == "a worker thread panicked");
        told.send(of_worker.is_some()).unwrap();
    });
    assert!(answer.recv_timeout(PATIENCE * 2).unwrap(), "no part of {TRIES} engines was taken by a worker");
}
