//! One draw from a row of Qwen3's vocabulary, by the cuts that are asked for, and log-probabilities of the row.
#![allow(clippy::unwrap_used, missing_docs, reason = "a bench")]

use divan::Bencher;
use kipp::sampling::random::uniform;
use kipp::sampling::{Sampler, SamplingFields, SamplingParams, log_sum_exp, top_logprobs};

fn main() {
    divan::main();
}

/// A bell with a tail of likely ids, as a model's logits look.
fn logits() -> Vec<f32> {
    let bell = |i: u64| (0..6).map(|n| uniform(7, n, i) - 0.5).sum::<f64>() * 4.0;
    let likely = |i: u64| if i.is_multiple_of(1013) { 6.0 * uniform(8, 0, i) } else { 0.0 };
    (0..151_936).map(|i| (bell(i) + likely(i)) as f32).collect()
}

/// Named cuts: temperature, top-k, top-p, min-p.
const CASES: [(&str, f64, i64, f64, f64); 6] = [
    ("greedy", 0.0, 0, 1.0, 0.0),
    ("plain", 1.0, 0, 1.0, 0.0),
    ("top_k_20_top_p", 0.6, 20, 0.95, 0.0),
    ("top_p", 0.7, 0, 0.95, 0.0),
    ("min_p", 1.0, 0, 1.0, 0.05),
    ("all", 0.7, 20, 0.95, 0.05),
];

#[divan::bench(args = CASES.map(|case| case.0))]
fn draw(bencher: Bencher<'_, '_>, name: &str) {
    let (_, temperature, top_k, top_p, min_p) = CASES.into_iter().find(|case| case.0 == name).unwrap();
    let fields = SamplingFields { temperature, top_k, top_p, min_p, ..SamplingFields::default() };
    let mut sampler = Sampler::new(SamplingParams::parse(fields).unwrap(), 1, 0, &[]);
    let mut logits = logits();
    bencher.bench_local(|| {
        let id = sampler.sample(&mut logits).unwrap().id;
        sampler.accept(id);
        id
    });
}

#[divan::bench]
fn log_sum_exp_of_a_row(bencher: Bencher<'_, '_>) {
    let logits = logits();
    bencher.bench_local(|| log_sum_exp(&logits));
}

#[divan::bench]
fn top_20_log_probabilities(bencher: Bencher<'_, '_>) {
    let logits = logits();
    bencher.bench_local(|| top_logprobs(&logits, 20));
}
