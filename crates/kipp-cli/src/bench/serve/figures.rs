//! What a load comes to: times with their mean and percentiles, rates, errors by kind, and the goodput under an objective.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::super::statistics::percentile;
use super::answer::Observation;

/// Percentiles that are told, with their names.
const PERCENTILES: [(&str, f64); 3] = [("p50", 0.5), ("p90", 0.9), ("p99", 0.99)];

/// All requests of a load.
#[derive(Debug, Default)]
pub(super) struct Measured {
    pub(super) observations: Vec<Observation>,
    /// That this process took meanwhile, where the system tells.
    pub(super) client_cpu: Option<Duration>,
}

/// What a person wants of a request; one that is slower is no good to them.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Objective {
    /// Time to the first token, at most.
    pub(super) ttft_ms: Option<f64>,
    /// Mean time between its tokens, at most.
    pub(super) itl_ms: Option<f64>,
}

impl Objective {
    /// Whether a request that had no fault was good.
    fn is_met(&self, request: &Observation) -> bool {
        let within = |time: Option<Duration>, limit: Option<f64>| match (time, limit) {
            (Some(time), Some(limit)) => ms(time) <= limit,
            // Where nothing was wanted, or there is nothing between tokens.
            _ => true,
        };
        within(request.ttft(), self.ttft_ms) && within(request.tpot(), self.itl_ms)
    }

    fn is_some(&self) -> bool {
        self.ttft_ms.is_some() || self.itl_ms.is_some()
    }
}

/// Figures by name. Times and rates are those of requests without a fault; what has no value is absent.
pub(super) fn figures(measured: &Measured, objective: &Objective) -> BTreeMap<String, f64> {
    let (faulty, good): (Vec<&Observation>, Vec<&Observation>) =
        measured.observations.iter().partition(|request| request.answer.fault.is_some());
    let mut figures = BTreeMap::new();
    let mut set = |name: &str, value: f64| {
        if value.is_finite() {
            figures.insert(name.to_owned(), value);
        }
    };
    set("requests", measured.observations.len() as f64);
    set("errors", faulty.len() as f64);
    for request in &faulty {
        let kind = request.answer.fault.as_ref().map(|fault| fault.kind()).unwrap_or_default();
        let same = |other: &&&Observation| other.answer.fault.as_ref().is_some_and(|it| it.kind() == kind);
        set(&format!("errors_{kind}"), faulty.iter().filter(same).count() as f64);
    }
    let of = |time: fn(&Observation) -> Option<Duration>| -> Vec<f64> {
        good.iter().filter_map(|request| time(request)).map(ms).collect()
    };
    let gaps: Vec<f64> = good.iter().flat_map(|request| request.gaps()).map(ms).collect();
    let times = [
        ("ttft", of(Observation::ttft)),
        ("tpot", of(Observation::tpot)),
        ("itl", gaps),
        ("e2e", of(|request| Some(request.end_to_end()))),
    ];
    for (name, times) in &times {
        set(&format!("{name}_mean_ms"), times.iter().sum::<f64>() / times.len() as f64);
        for (percent, part) in PERCENTILES {
            set(&format!("{name}_{percent}_ms"), percentile(times, part));
        }
    }
    let tokens: usize = good.iter().map(|request| request.tokens()).sum();
    let counts = || good.iter().filter_map(|request| request.answer.counts);
    let mean = |sum: usize| sum as f64 / counts().count() as f64;
    set("output_tokens", tokens as f64);
    set("prompt_tokens_mean", mean(counts().map(|counts| counts.prompt_tokens).sum()));
    set("cached_tokens_mean", mean(counts().map(|counts| counts.cached_tokens).sum()));
    let lag = |request: &Observation| ms(request.sent.saturating_duration_since(request.due));
    set("client_lag_max_ms", measured.observations.iter().map(lag).fold(f64::NAN, f64::max));
    if let Some(cpu) = measured.client_cpu {
        set("client_cpu_ms", ms(cpu));
    }
    let Some(span) = span(&measured.observations) else { return figures };
    let seconds = span.as_secs_f64();
    set("span_ms", ms(span));
    set("req_s", good.len() as f64 / seconds);
    set("tok_s", tokens as f64 / seconds);
    // As if the server had stood still while this process had the processor: on a machine that they share, it did.
    let net = measured.client_cpu.map(|cpu| seconds - cpu.as_secs_f64()).filter(|net| *net > 0.0);
    set("net_tok_s", net.map_or(f64::NAN, |net| tokens as f64 / net));
    if objective.is_some() {
        let met = good.iter().filter(|request| objective.is_met(request)).count() as f64;
        set("goodput_req_s", met / seconds);
        set("good_share", met / measured.observations.len() as f64);
    }
    figures
}

/// From the first request to the end of the last answer.
fn span(observations: &[Observation]) -> Option<Duration> {
    let first: Instant = observations.iter().map(|request| request.due).min()?;
    let last = observations.iter().map(|request| request.ended).max()?;
    Some(last.saturating_duration_since(first)).filter(|span| !span.is_zero())
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

#[cfg(test)]
mod tests {
    use super::super::answer::{Answer, Counts, Fault, Piece};
    use super::super::chance::Chance;
    use super::*;

    /// A request with its arrival, first token and last token in seconds of a clock that nobody waits for.
    fn request(start: Instant, times: [f64; 3], tokens: usize) -> Observation {
        let [due, first, last] = times.map(|seconds| start + Duration::from_secs_f64(seconds));
        let piece = |at| Piece { choice: 0, at };
        let counts = Counts { prompt_tokens: 10, cached_tokens: 2, completion_tokens: tokens };
        let answer = Answer { pieces: vec![piece(first), piece(last)], counts: Some(counts), fault: None };
        Observation { due, sent: due, ended: last, choices: 1, answer }
    }

    #[test]
    fn percentiles_are_those_of_a_queue_whose_times_are_known() {
        // One server, exponential arrivals and services, first come first served: the time in the system is exponential
        // with the difference of both rates.
        let (arrivals, services, count) = (3.0, 5.0, 300_000);
        let (mut coming, mut serving) = (Chance::new(11, &[0]), Chance::new(11, &[1]));
        let start = Instant::now();
        let (mut arrival, mut free) = (0.0f64, 0.0f64);
        let mut observations = Vec::with_capacity(count);
        for _ in 0..count {
            arrival += coming.waiting_seconds(arrivals);
            let begins = arrival.max(free);
            free = begins + serving.waiting_seconds(services);
            observations.push(request(start, [arrival, begins, free], 11));
        }
        let objective = Objective { ttft_ms: None, itl_ms: Some(20.0) };
        let measured = Measured { observations, client_cpu: None };
        let found = figures(&measured, &objective);
        let near = |name: &str, expected: f64, part: f64| {
            assert!((found[name] / expected - 1.0).abs() < part, "{name}: {} for {expected}", found[name]);
        };
        let free_rate = services - arrivals;
        near("e2e_mean_ms", 1e3 / free_rate, 0.03);
        near("e2e_p50_ms", 1e3 * 2f64.ln() / free_rate, 0.03);
        near("e2e_p90_ms", 1e3 * 10f64.ln() / free_rate, 0.04);
        near("e2e_p99_ms", 1e3 * 100f64.ln() / free_rate, 0.08);
        // Waiting: above zero for as many as find the server busy, exponential for those.
        near("ttft_mean_ms", 1e3 * arrivals / services / free_rate, 0.04);
        near("ttft_p90_ms", 1e3 * (10.0 * arrivals / services).ln() / free_rate, 0.05);
        // Ten tokens after the first in an exponential time.
        near("tpot_p50_ms", 1e2 * 2f64.ln() / services, 0.02);
        near("itl_p50_ms", 1e3 * 2f64.ln() / services, 0.02);
        near("req_s", arrivals, 0.02);
        near("tok_s", 11.0 * arrivals, 0.02);
        // Good are those that are served within ten times 20 ms.
        near("good_share", 1.0 - (-services * 0.2).exp(), 0.02);
        near("goodput_req_s", arrivals * (1.0 - (-services * 0.2).exp()), 0.03);
    }

    #[test]
    fn faults_are_counted_by_kind_and_their_times_are_not() {
        let start = Instant::now();
        let mut observations = vec![request(start, [0.0, 1.0, 2.0], 5), request(start, [0.0, 1.0, 4.0], 5)];
        for status in [429, 429, 500] {
            let mut request = request(start, [0.0, 9.0, 9.0], 5);
            request.answer.fault = Some(Fault::Status { status, message: String::new() });
            observations.push(request);
        }
        let measured = Measured { observations, client_cpu: Some(Duration::from_secs(1)) };
        let found = figures(&measured, &Objective { ttft_ms: Some(1000.0), itl_ms: Some(500.0) });
        let of = |name: &str| found[name];
        assert_eq!((of("requests"), of("errors"), of("errors_429"), of("errors_500")), (5.0, 3.0, 2.0, 1.0));
        assert_eq!((of("ttft_p99_ms"), of("e2e_p99_ms"), of("tpot_p50_ms")), (1000.0, 4000.0, 250.0));
        // Ten tokens in nine seconds, one of which the client took.
        assert_eq!((of("tok_s"), of("net_tok_s")), (10.0 / 9.0, 10.0 / 8.0));
        assert_eq!((of("good_share"), of("cached_tokens_mean")), (0.2, 2.0));
        assert!(!figures(&Measured::default(), &Objective::default()).contains_key("tok_s"));
    }
}
