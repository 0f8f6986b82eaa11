//! What Prometheus reads: counts and times of the engine and of the answers, in its text format.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use kipp::engine::{EngineStats, RequestStats, STEP_SECONDS};

/// Upper bounds of the buckets, in seconds: from a token of a small model to a long prompt of a large one.
const BOUNDS: [f64; 16] =
    [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0];

/// The numbers that only the server knows.
#[derive(Default)]
pub(crate) struct Metrics(Mutex<Counts>);

#[derive(Default)]
struct Counts {
    /// By endpoint and status.
    requests: BTreeMap<(String, u16), u64>,
    queue: Histogram,
    time_to_first_token: Histogram,
    inter_token: Histogram,
    request: Histogram,
}

#[derive(Default)]
struct Histogram {
    /// Observations up to each bound; not cumulative.
    counts: [u64; BOUNDS.len()],
    total: u64,
    sum: f64,
}

impl Histogram {
    fn observe(&mut self, time: Duration) {
        let seconds = time.as_secs_f64();
        if let Some(count) =
            BOUNDS.iter().position(|bound| seconds <= *bound).and_then(|at| self.counts.get_mut(at))
        {
            *count += 1;
        }
        self.total += 1;
        self.sum += seconds;
    }

    fn write(&self, out: &mut String, name: &str, help: &str) {
        head(out, name, "histogram", help);
        let buckets = BOUNDS.iter().copied().zip(self.counts);
        histogram(out, name, buckets, self.total, self.sum);
    }
}

impl Metrics {
    fn change(&self, change: impl FnOnce(&mut Counts)) {
        // Counts cannot be left half changed.
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// A request was answered.
    pub(crate) fn answered(&self, endpoint: &str, status: u16) {
        self.change(|counts| *counts.requests.entry((endpoint.to_owned(), status)).or_insert(0) += 1);
    }

    /// A request has its first token, so long after it was submitted.
    pub(crate) fn first_token(&self, after: Duration) {
        self.change(|counts| counts.time_to_first_token.observe(after));
    }

    /// A choice went on, so long after its last token.
    pub(crate) fn next_token(&self, after: Duration) {
        self.change(|counts| counts.inter_token.observe(after));
    }

    /// A choice ended.
    pub(crate) fn finished(&self, stats: &RequestStats) {
        self.change(|counts| {
            counts.queue.observe(stats.queue);
            counts.request.observe(stats.queue + stats.prefill + stats.decode);
        });
    }

    /// All of it, with what the engine says.
    pub(crate) fn text(&self, engine: &EngineStats) -> String {
        let mut out = String::new();
        self.change(|counts| {
            head(&mut out, "kipp_requests_total", "counter", "Requests answered");
            for ((endpoint, status), count) in &counts.requests {
                let name = format!("kipp_requests_total{{endpoint=\"{endpoint}\",status=\"{status}\"}}");
                line(&mut out, &name, count);
            }
            counts.queue.write(&mut out, "kipp_queue_seconds", "Time in the queue");
            let help = "From the submission to the first token";
            counts.time_to_first_token.write(&mut out, "kipp_time_to_first_token_seconds", help);
            counts.inter_token.write(&mut out, "kipp_inter_token_seconds", "Between tokens of an answer");
            counts.request.write(&mut out, "kipp_request_seconds", "From the submission to the end");
        });
        engine_text(&mut out, engine);
        out
    }
}

fn engine_text(out: &mut String, engine: &EngineStats) {
    let name = "kipp_step_seconds";
    head(out, name, "histogram", "Steps of the engine");
    let times = engine.step_times;
    let buckets = STEP_SECONDS.iter().copied().zip(times.counts);
    histogram(out, name, buckets, engine.steps, times.total.as_secs_f64());
    let gauges = [
        ("kipp_requests_running", "Requests that run", engine.running_requests),
        ("kipp_requests_waiting", "Requests that wait", engine.waiting_requests),
    ];
    for (name, help, value) in gauges {
        head(out, name, "gauge", help);
        line(out, name, value);
    }
    head(out, "kipp_kv_blocks", "gauge", "Blocks of keys and values; used, cached and free are all of them");
    let kv = engine.kv;
    for (state, blocks) in [("total", kv.total), ("used", kv.used), ("cached", kv.cached), ("free", kv.free)]
    {
        line(out, &format!("kipp_kv_blocks{{state=\"{state}\"}}"), blocks);
    }
    let counters = [
        ("kipp_prompt_tokens_total", "Tokens of prompts, adopted ones too", engine.prompt_tokens),
        ("kipp_generation_tokens_total", "Tokens of answers", engine.generated_tokens),
        ("kipp_prefix_queries_total", "Looks for a known prefix", engine.prefix_queries),
        ("kipp_prefix_hits_total", "Looks that found one", engine.prefix_hits),
        ("kipp_prefix_tokens_reused_total", "Tokens not evaluated again", engine.prefix_tokens_reused),
        ("kipp_kv_evictions_total", "Cached blocks handed out for something else", kv.evictions),
        ("kipp_preemptions_total", "Sequences that gave up their blocks", engine.preemptions),
        ("kipp_speculation_drafted_tokens_total", "Tokens proposed", engine.drafted_tokens),
        ("kipp_speculation_accepted_tokens_total", "Proposed tokens taken", engine.accepted_tokens),
    ];
    for (name, help, value) in counters {
        head(out, name, "counter", help);
        line(out, name, value);
    }
}

/// Lines of a histogram: what is above each bound before and up to each bound, all, and their sum.
fn histogram(out: &mut String, name: &str, buckets: impl Iterator<Item = (f64, u64)>, total: u64, sum: f64) {
    let mut below = 0;
    for (bound, count) in buckets {
        below += count;
        line(out, &format!("{name}_bucket{{le=\"{bound}\"}}"), below);
    }
    line(out, &format!("{name}_bucket{{le=\"+Inf\"}}"), total);
    line(out, &format!("{name}_sum"), sum);
    line(out, &format!("{name}_count"), total);
}

fn head(out: &mut String, name: &str, kind: &str, help: &str) {
    // Writing to a text cannot fail.
    let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}");
}

fn line(out: &mut String, name: &str, value: impl std::fmt::Display) {
    let _ = writeln!(out, "{name} {value}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_cumulative_and_the_last_one_holds_all() {
        let metrics = Metrics::default();
        for ms in [1, 2, 2, 400_000] {
            metrics.first_token(Duration::from_millis(ms));
        }
        let text = metrics.text(&EngineStats::default());
        for expected in [
            "_bucket{le=\"0.001\"} 1\n",
            "_bucket{le=\"0.0025\"} 3\n",
            "_bucket{le=\"300\"} 3\n",
            "_bucket{le=\"+Inf\"} 4\n",
            "_count 4\n",
            "_sum 400.005\n",
        ] {
            assert!(
                text.contains(&format!("kipp_time_to_first_token_seconds{expected}")),
                "{expected}: {text}"
            );
        }
    }
}
