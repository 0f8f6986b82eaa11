//! The two kinds of load. Closed: so many clients, each of which asks anew once it is answered. Open: requests that arrive at
//! random, whether or not those before them are answered, as the world sends them.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Barrier, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::answer::{Answer, Ask, Client, Fault, Observation, Target};
use super::chance::Chance;
use super::cpu_time::cpu_time;
use super::figures::Measured;
use super::prompts::Prompts;

/// Requests of an open load that are under way at most: each has a thread.
const MAX_UNDER_WAY: usize = 1024;
/// Their threads do little.
const STACK_BYTES: usize = 512 << 10;
/// The place of arrivals among the streams of a seed; those of requests are counted from 0.
const ARRIVALS: u64 = u64::MAX - 1;

/// One load.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Case {
    /// So many clients, each with one request at a time.
    Closed { clients: usize },
    /// Requests a second that arrive on average.
    Open { rate: f64 },
    /// One client whose requests have so many choices.
    Choices { choices: u32 },
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Case::Closed { clients } => write!(f, "closed{clients}"),
            Case::Open { rate } => write!(f, "open{rate}"),
            Case::Choices { choices } => write!(f, "choices{choices}"),
        }
    }
}

/// What a load asks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    pub(super) prompts: Prompts,
    /// Tokens of each answer.
    pub(super) tokens: usize,
    /// Requests of each client of a closed load.
    pub(super) turns: usize,
    /// Requests of an open load.
    pub(super) requests: usize,
    /// The run, so that no server meets a prompt twice.
    pub(super) run: u64,
    /// The case of the run.
    pub(super) case: u64,
}

impl Plan {
    fn ask(&self, client: usize, turn: usize, choices: u32) -> Ask {
        let place = [self.run, self.case, client as u64, turn as u64];
        let (prompt, seed) = self.prompts.at(&place);
        Ask { prompt, seed, choices, tokens: self.tokens }
    }

    /// Puts the load on a target.
    pub(super) fn measure(&self, case: Case, target: &dyn Target) -> Measured {
        let before = cpu_time();
        let observations = match case {
            Case::Closed { clients } => self.closed(target, clients, 1),
            Case::Choices { choices } => self.closed(target, 1, choices),
            Case::Open { rate } => self.open(target, rate),
        };
        let taken = || cpu_time().zip(before).map(|(after, before)| after.saturating_sub(before));
        // What an engine in this process takes is no client's.
        let client_cpu = if target.is_here() { Some(Duration::ZERO) } else { taken() };
        Measured { observations, client_cpu }
    }

    fn closed(&self, target: &dyn Target, clients: usize, choices: u32) -> Vec<Observation> {
        let all_there = Barrier::new(clients);
        let of_client = |client: usize| {
            let mut asking = target.client();
            let asks: Vec<Ask> = (0..self.turns).map(|turn| self.ask(client, turn, choices)).collect();
            all_there.wait();
            asks.iter().map(|ask| observe(&mut *asking, ask, Instant::now())).collect::<Vec<_>>()
        };
        let of_client = &of_client;
        thread::scope(|scope| {
            let others: Vec<_> = (1..clients).map(|client| scope.spawn(move || of_client(client))).collect();
            let mut observations = of_client(0);
            for other in others {
                observations.extend(other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
            }
            observations
        })
    }

    fn open(&self, target: &dyn Target, rate: f64) -> Vec<Observation> {
        let mut arrivals = Chance::new(self.prompts.seed, &[self.run, self.case, ARRIVALS]);
        let observations = Mutex::new(Vec::with_capacity(self.requests));
        let keep = |seen| observations.lock().unwrap_or_else(PoisonError::into_inner).push(seen);
        let under_way = AtomicUsize::new(0);
        let (keep, under_way) = (&keep, &under_way);
        thread::scope(|scope| {
            let mut due = Instant::now();
            for request in 0..self.requests {
                due += Duration::from_secs_f64(arrivals.waiting_seconds(rate));
                let ask = self.ask(request, 0, 1);
                thread::sleep(due.saturating_duration_since(Instant::now()));
                let crowded = || {
                    let now = Instant::now();
                    let answer = Answer { fault: Some(Fault::Crowded), ..Answer::default() };
                    keep(Observation { due, sent: now, ended: now, choices: 1, answer });
                };
                if under_way.fetch_add(1, Ordering::Relaxed) >= MAX_UNDER_WAY {
                    under_way.fetch_sub(1, Ordering::Relaxed);
                    crowded();
                    continue;
                }
                let answer = move || {
                    keep(observe(&mut *target.client(), &ask, due));
                    under_way.fetch_sub(1, Ordering::Relaxed);
                };
                if thread::Builder::new().stack_size(STACK_BYTES).spawn_scoped(scope, answer).is_err() {
                    under_way.fetch_sub(1, Ordering::Relaxed);
                    crowded();
                }
            }
        });
        observations.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

fn observe(client: &mut dyn Client, ask: &Ask, due: Instant) -> Observation {
    let sent = Instant::now();
    let answer = client.ask(ask);
    Observation { due, sent, ended: Instant::now(), choices: ask.choices, answer }
}

#[cfg(test)]
mod tests {
    use super::super::answer::Piece;
    use super::super::figures::{Objective, figures};
    use super::*;

    /// Takes a while for each answer, one at a time, and knows what it was asked.
    #[derive(Default)]
    struct Slow {
        busy: Mutex<()>,
        asked: Mutex<Vec<(String, u64, u32)>>,
    }

    const SERVICE: Duration = Duration::from_millis(4);

    impl Target for Slow {
        fn client(&self) -> Box<dyn Client + '_> {
            Box::new(SlowClient(self))
        }
    }

    struct SlowClient<'a>(&'a Slow);

    impl Client for SlowClient<'_> {
        fn ask(&mut self, ask: &Ask) -> Answer {
            let _busy = self.0.busy.lock().unwrap();
            thread::sleep(SERVICE);
            self.0.asked.lock().unwrap().push((ask.prompt.clone(), ask.seed, ask.choices));
            let piece = |choice| Piece { choice, at: Instant::now() };
            Answer { pieces: (0..ask.choices).map(piece).collect(), ..Answer::default() }
        }
    }

    fn plan() -> Plan {
        let prompts = Prompts { seed: 3, words: 12, common_words: 0 };
        Plan { prompts, tokens: 1, turns: 5, requests: 40, run: 0, case: 1 }
    }

    #[test]
    fn clients_of_a_closed_load_wait_for_each_other_and_ask_distinct_things() {
        let target = Slow::default();
        let measured = plan().measure(Case::Closed { clients: 4 }, &target);
        let mut asked = target.asked.into_inner().unwrap();
        asked.sort();
        asked.dedup();
        assert_eq!((measured.observations.len(), asked.len()), (20, 20));
        let found = figures(&measured, &Objective::default());
        // Twenty services one after the other; whoever is last in turn waits for others.
        assert!(
            found["span_ms"] >= 80.0 && found["e2e_p99_ms"] >= 8.0 && found["errors"] == 0.0,
            "{found:?}"
        );
        let choices = plan().measure(Case::Choices { choices: 3 }, &Slow::default());
        assert!(choices.observations.iter().all(|seen| seen.choices == 3 && seen.answer.pieces.len() == 3));
    }

    #[test]
    fn requests_of_an_open_load_come_whether_or_not_others_are_answered() {
        let target = Slow::default();
        let rate = 1000.0;
        let measured = plan().measure(Case::Open { rate }, &target);
        assert_eq!(measured.observations.len(), 40);
        let found = figures(&measured, &Objective::default());
        // Forty arrive within some 40 ms, and the last of them waits for all others: 160 ms of work.
        assert!(found["e2e_p99_ms"] > 60.0, "{found:?}");
        let first = measured.observations.iter().map(|seen| seen.due).min().unwrap();
        let last = measured.observations.iter().map(|seen| seen.due).max().unwrap();
        let seconds = (last - first).as_secs_f64();
        assert!((0.4..2.5).contains(&(seconds * rate / 39.0)), "{seconds}");
    }

    #[test]
    fn cases_have_names() {
        let cases = [Case::Closed { clients: 4 }, Case::Open { rate: 2.5 }, Case::Choices { choices: 8 }];
        assert_eq!(cases.map(|case| case.to_string()), ["closed4", "open2.5", "choices8"]);
    }
}
