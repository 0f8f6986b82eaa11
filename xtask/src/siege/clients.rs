//! The clients: most want an answer and compare it, some leave, some read slowly, some send what is no request.

use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use super::questions::Question;
use super::random::Random;
use super::wire::{self, Answer, Wire};

/// Faults that are told.
const MOST_FAULTS: usize = 8;

/// Requests that must be refused: method, path, body, status.
const INVALID: &[(&str, &str, Option<&str>, u16)] = &[
    ("POST", "/v1/completions", Some("{"), 400),
    ("POST", "/v1/completions", Some("[]"), 400),
    ("POST", "/v1/completions", Some("{\"prompt\": 3}"), 400),
    ("POST", "/v1/completions", Some("{\"prompt\": \"x\", \"temperature\": -1}"), 400),
    ("POST", "/v1/completions", Some("{\"prompt\": \"x\", \"n\": 1000}"), 400),
    ("POST", "/v1/completions", Some("{\"prompt\": \"x\", \"prompt\": \"y\"}"), 400),
    ("POST", "/v1/completions", Some("{\"prompt\": [99999999]}"), 400),
    ("POST", "/v1/completions", Some("{\"prompt\": \"x\", \"model\": \"no such model\"}"), 404),
    ("POST", "/v1/chat/completions", Some("{\"messages\": \"x\"}"), 400),
    ("POST", "/v1/chat/completions", Some("{\"messages\": [{\"role\": \"king\", \"content\": \"x\"}]}"), 400),
    ("POST", "/v1/messages", Some("{\"messages\": []}"), 400),
    ("GET", "/v1/completions", None, 405),
    ("GET", "/nothing/here", None, 404),
];

/// What a client that leaves has asked for.
const LONG: &str =
    "{\"prompt\": \"Once upon a time\", \"max_tokens\": 400, \"ignore_eos\": true, \"n\": 4, \"stream\": ";

/// What all clients share.
pub(super) struct Field<'a> {
    pub(super) port: u16,
    pub(super) questions: &'a [Question],
    over: AtomicBool,
    faults: Mutex<Vec<String>>,
}

/// What a client has done.
#[derive(Default)]
pub(super) struct Tally {
    pub(super) answers: u64,
    pub(super) slow: u64,
    pub(super) left: u64,
    pub(super) refused: u64,
    pub(super) busy: u64,
    /// Milliseconds between pieces of streams, as readers that do not dawdle saw them.
    pub(super) gaps_ms: Vec<f64>,
}

impl<'a> Field<'a> {
    pub(super) fn new(port: u16, questions: &'a [Question]) -> Self {
        Self { port, questions, over: AtomicBool::new(false), faults: Mutex::default() }
    }

    /// So many clients at once; they end what they do when `work`, which runs beside them, is done.
    pub(super) fn besiege<T>(&self, clients: usize, work: impl FnOnce() -> T) -> (Tally, T) {
        thread::scope(|scope| {
            let all: Vec<_> = (0..clients).map(|client| scope.spawn(move || self.client(client))).collect();
            let done = work();
            self.over.store(true, Ordering::Relaxed);
            let mut tally = Tally::default();
            for one in all {
                match one.join() {
                    Ok(one) => tally.add(one),
                    Err(_) => self.fault("a client of ours panicked".to_owned()),
                }
            }
            (tally, done)
        })
    }

    /// What was wrong, the first few of it.
    pub(super) fn faults(&self) -> Vec<String> {
        self.faults.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn fault(&self, fault: String) {
        let mut faults = self.faults.lock().unwrap_or_else(PoisonError::into_inner);
        if faults.len() < MOST_FAULTS {
            faults.push(fault);
        }
    }

    pub(super) fn has_fault(&self) -> bool {
        !self.faults().is_empty()
    }

    fn client(&self, client: usize) -> Tally {
        let mut random = Random::new(client as u64 + 1);
        let mut tally = Tally::default();
        while !self.over.load(Ordering::Relaxed) && !self.has_fault() {
            let done = match random.below(20) {
                0..=9 => self.ask(&mut random, &mut tally),
                10..=12 => self.ask_slowly(&mut random, &mut tally),
                13..=15 => self.leave(&mut random, &mut tally),
                16..=18 => self.mistake(&mut random, &mut tally),
                _ => self.babble(&mut random, &mut tally),
            };
            if let Err(fault) = done {
                self.fault(format!("client {client}: {fault:#}"));
            }
        }
        tally
    }

    fn question(&self, random: &mut Random) -> Option<&'a Question> {
        self.questions.get(random.below(self.questions.len()))
    }

    /// One to three questions over one connection.
    fn ask(&self, random: &mut Random, tally: &mut Tally) -> Result<()> {
        let mut wire = Wire::open(self.port)?;
        for _ in 0..=random.below(3) {
            let Some(question) = self.question(random) else { break };
            let streams = random.below(3) > 0;
            wire.send("POST", question.path, Some(&question.body(streams)))?;
            let answer = wire.answer(|| ())?;
            if tally.was_busy(&answer) {
                thread::sleep(Duration::from_millis(200));
                continue;
            }
            question.check(&answer, streams)?;
            tally.answers += 1;
            if streams && question.has_one_choice() {
                tally.gaps_ms.extend(gaps_ms(&answer.lines_at));
            }
        }
        Ok(())
    }

    /// A reader that takes its time, evenly or all at once.
    fn ask_slowly(&self, random: &mut Random, tally: &mut Tally) -> Result<()> {
        let Some(question) = self.question(random) else { return Ok(()) };
        let mut wire = Wire::open(self.port)?;
        wire.send("POST", question.path, Some(&question.body(true)))?;
        let (each, mut once) = match random.below(2) {
            0 => (Duration::from_millis(random.below(30) as u64), Duration::ZERO),
            _ => (Duration::ZERO, Duration::from_millis(random.below(2000) as u64)),
        };
        let answer = wire.answer(|| thread::sleep(each + std::mem::take(&mut once)))?;
        if !tally.was_busy(&answer) {
            question.check(&answer, true)?;
            tally.slow += 1;
        }
        Ok(())
    }

    /// Goes away: in the queue, in the middle of a stream, or after it has read nothing for a while.
    fn leave(&self, random: &mut Random, tally: &mut Tally) -> Result<()> {
        let mut wire = Wire::open(self.port)?;
        let streams = random.below(4) > 0;
        wire.send("POST", "/v1/completions", Some(&format!("{LONG}{streams}}}")))?;
        match random.below(3) {
            0 if streams => {
                wire.read_some(1 + random.below(20_000));
            }
            1 => thread::sleep(Duration::from_millis(random.below(1500) as u64)),
            _ => {}
        }
        tally.left += 1;
        Ok(())
    }

    /// Something that must be refused, and how.
    fn mistake(&self, random: &mut Random, tally: &mut Tally) -> Result<()> {
        let Some((method, path, body, expected)) = INVALID.get(random.below(INVALID.len())) else {
            return Ok(());
        };
        let answer = wire::request(self.port, method, path, *body)?;
        ensure!(
            answer.status == *expected && answer.body.contains("\"error\""),
            "{method} {path} {body:?} was answered {} {}, not {expected}",
            answer.status,
            answer.body
        );
        tally.refused += 1;
        Ok(())
    }

    /// What is no request at all, or only half of one.
    fn babble(&self, random: &mut Random, tally: &mut Tally) -> Result<()> {
        const SAYINGS: &[&[u8]] = &[
            b"",
            b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
            b"POST /v1/completions HTTP/1.1\r\nHost: h\r\nContent-Length: 50\r\n\r\n{\"prompt\"",
            b"POST /v1/completions HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n7\r\n{\"promp",
            b"GET /health HTTP/1.1\r\nHost",
            b"\r\n\r\n\r\n",
        ];
        let mut wire = Wire::open(self.port)?;
        // A server may well have closed it already.
        let _ =
            wire.socket().write_all(SAYINGS.get(random.below(SAYINGS.len())).copied().unwrap_or_default());
        thread::sleep(Duration::from_millis(random.below(100) as u64));
        tally.refused += 1;
        Ok(())
    }
}

impl Tally {
    fn add(&mut self, other: Self) {
        self.answers += other.answers;
        self.slow += other.slow;
        self.left += other.left;
        self.refused += other.refused;
        self.busy += other.busy;
        self.gaps_ms.extend(other.gaps_ms);
    }

    /// A full queue is an honest answer.
    fn was_busy(&mut self, answer: &Answer) -> bool {
        let is_busy = answer.status == 429;
        self.busy += u64::from(is_busy);
        is_busy
    }
}

/// Between pieces that came at different moments.
fn gaps_ms(at: &[Instant]) -> Vec<f64> {
    let gaps = at.windows(2).filter_map(|pair| match pair {
        [a, b] if a != b => Some((*b - *a).as_secs_f64() * 1e3),
        _ => None,
    });
    gaps.collect()
}
