//! What Prometheus reads: counts and times of the engine and of the answers.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use kipp::engine::{EngineStats, RequestStats, STEP_SECONDS};

use crate::exposition::{Buckets, Exposition};
use crate::vllm_metrics;

/// Upper bounds of the buckets, in seconds: from a token of a small model to a long prompt of a large one.
const BOUNDS: [f64; 16] =
    [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0];

/// The numbers that only the server knows.
#[derive(Default)]
pub(crate) struct Metrics(Mutex<Counts>);

#[derive(Default)]
pub(crate) struct Counts {
    /// By endpoint and status.
    requests: BTreeMap<(String, u16), u64>,
    pub(crate) queue: Histogram,
    pub(crate) time_to_first_token: Histogram,
    pub(crate) inter_token: Histogram,
    pub(crate) request: Histogram,
}

#[derive(Default)]
pub(crate) struct Histogram {
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

    pub(crate) fn buckets(&self) -> Buckets<'_> {
        Buckets { bounds: &BOUNDS, counts: &self.counts, total: self.total, sum: self.sum }
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

    /// All of it, with what the engine says. `vllm_model`: also by the names that vLLM has for it, for this model.
    pub(crate) fn text(&self, engine: &EngineStats, vllm_model: Option<&str>) -> String {
        let mut page = Exposition::default();
        self.change(|counts| {
            page.head("counter", "kipp_requests_total", "Requests answered");
            for ((endpoint, status), count) in &counts.requests {
                let labels = [("endpoint", endpoint.as_str()), ("status", &status.to_string())];
                page.line("kipp_requests_total", &labels, count);
            }
            for (name, help, histogram) in [
                ("kipp_queue_seconds", "Time in the queue", &counts.queue),
                (
                    "kipp_time_to_first_token_seconds",
                    "From the submission to the first token",
                    &counts.time_to_first_token,
                ),
                ("kipp_inter_token_seconds", "Between tokens of an answer", &counts.inter_token),
                ("kipp_request_seconds", "From the submission to the end", &counts.request),
            ] {
                page.histogram(name, help, &histogram.buckets());
            }
            if let Some(model) = vllm_model {
                vllm_metrics::write(&mut page, model, engine, counts);
                page.label(&[]);
            }
        });
        write_engine(&mut page, engine);
        page.finish()
    }
}

fn write_engine(page: &mut Exposition, engine: &EngineStats) {
    let times = engine.step_times;
    let steps = Buckets {
        bounds: &STEP_SECONDS,
        counts: &times.counts,
        total: engine.steps,
        sum: times.total.as_secs_f64(),
    };
    page.histogram("kipp_step_seconds", "Steps of the engine", &steps);
    page.one("gauge", "kipp_requests_running", "Requests that run", engine.running_requests);
    page.one("gauge", "kipp_requests_waiting", "Requests that wait", engine.waiting_requests);
    let help = "Blocks of keys and values; used, cached and free are all of them";
    page.head("gauge", "kipp_kv_blocks", help);
    let kv = engine.kv;
    for (state, blocks) in [("total", kv.total), ("used", kv.used), ("cached", kv.cached), ("free", kv.free)]
    {
        page.line("kipp_kv_blocks", &[("state", state)], blocks);
    }
    for (name, help, value) in [
        ("kipp_prompt_tokens_total", "Tokens of prompts, adopted ones too", engine.prompt_tokens),
        ("kipp_generation_tokens_total", "Tokens of answers", engine.generated_tokens),
        ("kipp_prefix_queries_total", "Looks for a known prefix", engine.prefix_queries),
        ("kipp_prefix_hits_total", "Looks that found one", engine.prefix_hits),
        ("kipp_prefix_tokens_reused_total", "Tokens not evaluated again", engine.prefix_tokens_reused),
        ("kipp_kv_evictions_total", "Cached blocks handed out for something else", kv.evictions),
        ("kipp_preemptions_total", "Sequences that gave up their blocks", engine.preemptions),
        ("kipp_speculation_drafted_tokens_total", "Tokens proposed", engine.drafted_tokens),
        ("kipp_speculation_accepted_tokens_total", "Proposed tokens taken", engine.accepted_tokens),
    ] {
        page.one("counter", name, help, value);
    }
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
        let text = metrics.text(&EngineStats::default(), None);
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
        assert!(!text.contains("vllm"));
    }
}
