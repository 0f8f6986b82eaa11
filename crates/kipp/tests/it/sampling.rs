//! The sampler as a caller sees it: what it never does, what it draws, and what it will draw for ever.

use kipp::TokenId;
use kipp::sampling::{AllowedTokens, SampleError, Sampler, SamplingFields, SamplingParams};

const NEG_INF: f32 = f32::NEG_INFINITY;

fn sampler(fields: SamplingFields, seed: u64) -> Sampler {
    Sampler::new(SamplingParams::parse(fields).unwrap(), seed, 0, &[])
}

fn with_temperature(temperature: f64) -> SamplingFields {
    SamplingFields { temperature, ..Default::default() }
}

/// Draws `n` ids from fresh copies of `logits`, one position after the other.
fn draws(sampler: &mut Sampler, logits: &[f32], n: usize) -> Vec<TokenId> {
    let mut row = Vec::new();
    let mut next = || {
        row.clear();
        row.extend_from_slice(logits);
        let id = sampler.sample(&mut row).unwrap().id;
        sampler.accept(id);
        id
    };
    (0..n).map(|_| next()).collect()
}

#[test]
fn h18_zero_and_tiny_temperatures_take_the_most_likely_id() {
    for temperature in [0.0, -0.0, 1e-39, 1e-5, f64::MIN_POSITIVE, 5e-324] {
        let ids = draws(&mut sampler(with_temperature(temperature), 3), &[0.0, 100.0, 90.0, NEG_INF], 200);
        assert!(ids.iter().all(|&id| id == 1), "temperature {temperature}");
    }
}

#[test]
fn h18_greedy_takes_the_lowest_id_on_a_tie() {
    for at in [0usize, 1, 15, 16, 31, 40, 98] {
        let mut logits = vec![-1.0f32; 100];
        logits[at] = 2.5;
        logits[at + 1] = 2.5;
        let id = sampler(with_temperature(0.0), 0).sample(&mut logits).unwrap().id;
        assert_eq!(id as usize, at);
    }
    assert_eq!(sampler(with_temperature(0.0), 0).sample(&mut [-0.0, 0.0]).unwrap().id, 0);
}

#[test]
fn h18_a_huge_temperature_draws_uniformly() {
    let ids = draws(&mut sampler(with_temperature(1e30), 5), &[0.0, 100.0, 90.0, NEG_INF], 30_000);
    for id in 0..3 {
        let n = ids.iter().filter(|&&drawn| drawn == id).count();
        assert!((9_500..10_500).contains(&n), "id {id}: {n}");
    }
    assert!(!ids.contains(&3));
}

#[test]
fn h18_extreme_filters_still_draw() {
    let logits = [0.0, 100.0, 90.0, NEG_INF];
    let filters = [
        (0, 1.0, 0.0),
        (1, 1.0, 0.0),
        (1_000_000_000, 1.0, 0.0),
        (0, 0.0, 0.0),
        (0, 1e-9, 0.0),
        (0, 1.0, 1.0),
    ];
    for (top_k, top_p, min_p) in filters {
        for temperature in [0.0, 1e-39, 0.7, 1e30] {
            let fields = SamplingFields { top_k, top_p, min_p, ..with_temperature(temperature) };
            assert!(draws(&mut sampler(fields, 9), &logits, 50).iter().all(|&id| id < 3));
        }
    }
    let equal = draws(&mut sampler(with_temperature(1.0), 1), &[7.0; 5], 100);
    assert!((0..5).all(|id| equal.contains(&id)));
}

#[test]
fn h18_broken_rows_are_errors_and_the_sampler_goes_on() {
    let rows: [(&[f32], TokenId); 4] = [
        (&[f32::NAN, 1.0, 2.0], 0),
        (&[0.0, 1.0, f32::NAN], 2),
        (&[0.0, f32::NAN, NEG_INF], 1),
        (&[0.0, f32::INFINITY, 1.0], 1),
    ];
    for temperature in [0.0, 1.0, 1e30] {
        let mut sampler = sampler(with_temperature(temperature), 2);
        for (row, at) in rows {
            match sampler.sample(&mut row.to_vec()) {
                Err(SampleError::NotFinite { id, .. }) => assert_eq!(id, at),
                other => panic!("{row:?}: {other:?}"),
            }
        }
        assert_eq!(sampler.sample(&mut [NEG_INF; 9]), Err(SampleError::NoCandidate { n_tokens: 9 }));
        assert_eq!(sampler.sample(&mut []), Err(SampleError::NoCandidate { n_tokens: 0 }));
        assert_eq!(sampler.sample(&mut [NEG_INF, 0.5]).unwrap().id, 1);
    }
}

#[test]
fn h08_padding_rows_are_never_chosen() {
    for temperature in [0.0, 1.0, 1e30] {
        let params = SamplingParams::parse(with_temperature(temperature)).unwrap();
        let mut sampler = Sampler::new(params, 1, 0, &[1, 2]).with_valid_tokens(151_669);
        for _ in 0..20 {
            let mut logits = vec![0.0f32; 151_936];
            logits[151_700] = 90.0;
            logits[151_800] = f32::NAN;
            let id = sampler.sample(&mut logits).unwrap().id;
            assert!(id < 151_669);
            sampler.accept(id);
        }
    }
}

#[test]
fn h16_bias_bans_and_forces() {
    let pick = |logit_bias| {
        let fields = SamplingFields { logit_bias, ..with_temperature(0.0) };
        sampler(fields, 0).sample(&mut [1.0, 5.0, 3.0]).unwrap().id
    };
    assert_eq!(pick(vec![]), 1);
    assert_eq!(pick(vec![(1, -100.0)]), 2);
    assert_eq!(pick(vec![(0, 100.0)]), 0);
    assert_eq!(pick(vec![(4_000_000_000, 100.0)]), 1, "an id past the row is no candidate");
}

#[test]
fn h17_a_draw_depends_on_seed_choice_and_position_alone() {
    let logits: Vec<f32> = (0..1000).map(|i| (i % 17) as f32 * 0.3).collect();
    let run = |seed, choice| {
        let params = SamplingParams::parse(with_temperature(0.8)).unwrap();
        draws(&mut Sampler::new(params, seed, choice, &[4, 5]), &logits, 32)
    };
    for seed in [0, 42, u64::MAX, 1 << 63, (-1i64) as u64] {
        let four: Vec<_> = (0..4).map(|choice| run(seed, choice)).collect();
        assert_eq!(four, (0..4).map(|choice| run(seed, choice)).collect::<Vec<_>>());
        assert!((0..4).all(|a| (0..a).all(|b| four[a] != four[b])));
    }
    // Sampling twice at one position, as speculation does, draws the same; history moves only on accept.
    let mut sampler = sampler(with_temperature(0.8), 42);
    let first = sampler.sample(&mut logits.clone()).unwrap();
    assert_eq!(sampler.sample(&mut logits.clone()).unwrap(), first);
    // An answer resumed as a prompt goes on with the same draws.
    let whole = run(42, 0);
    let prompt: Vec<TokenId> = [4, 5].into_iter().chain(whole[..10].iter().copied()).collect();
    let params = SamplingParams::parse(with_temperature(0.8)).unwrap();
    assert_eq!(draws(&mut Sampler::new(params, 42, 0, &prompt), &logits, 22), whole[10..]);
}

#[test]
fn a_constraint_comes_after_bias_and_before_the_cuts() {
    let fields = SamplingFields { top_k: 1, logit_bias: vec![(3, 100.0)], ..with_temperature(1.0) };
    let mut sampler = sampler(fields, 0);
    let mut logits = vec![0.0f32; 70];
    logits[40] = 5.0;
    logits[69] = 9.0;
    // Ids 40 and 69 are allowed; 69 lies in the last, half used word.
    let words = [0, 1 << 8, 1 << 5];
    let sampled = sampler.sample_allowed(&mut logits.clone(), Some(AllowedTokens(&words))).unwrap();
    assert_eq!((sampled.id, sampled.n_candidates), (69, 1));
    let short = sampler.sample_allowed(&mut logits.clone(), Some(AllowedTokens(&words[..2]))).unwrap();
    assert_eq!(short.id, 40);
    let none = sampler.sample_allowed(&mut logits, Some(AllowedTokens(&[])));
    assert_eq!(none, Err(SampleError::NoCandidate { n_tokens: 70 }));
}

/// Pearson's chi-square of 100,000 draws against the exact distribution, for plain and for cut distributions.
#[test]
fn draws_follow_the_distribution() {
    let logits: Vec<f32> = (0..40).map(|i| ((i * 7 % 40) as f32) * 0.1).collect();
    let cases = [
        (with_temperature(1.0), 40),
        (with_temperature(0.5), 40),
        (SamplingFields { top_k: 10, ..with_temperature(1.3) }, 10),
        (SamplingFields { min_p: 0.2, ..with_temperature(1.0) }, 17),
        (SamplingFields { top_p: 0.7, ..with_temperature(1.0) }, 12),
    ];
    for (seed, (fields, n_kept)) in cases.into_iter().enumerate() {
        let n = 100_000;
        let ids = draws(&mut sampler(fields.clone(), seed as u64), &logits, n);
        let mut order: Vec<usize> = (0..40).collect();
        order.sort_by(|a, b| logits[*b].total_cmp(&logits[*a]));
        let kept = &order[..n_kept];
        let weight = |id: &usize| (f64::from(logits[*id]) / fields.temperature).exp();
        let total: f64 = kept.iter().map(weight).sum();
        let count = |id: usize| ids.iter().filter(|&&drawn| drawn as usize == id).count() as f64;
        let square = |id: &usize| {
            let expected = n as f64 * weight(id) / total;
            (count(*id) - expected).powi(2) / expected
        };
        let chi_square: f64 = kept.iter().map(square).sum();
        let inside: f64 = kept.iter().map(|id| count(*id)).sum();
        assert_eq!(inside, n as f64, "{fields:?}: only kept ids are drawn");
        // 39 degrees of freedom pass 72.1 once in a thousand; fewer degrees pass it less often.
        assert!(chi_square < 72.1, "{fields:?}: {chi_square}");
    }
}

/// Frozen: these ids are what users with a seed were given. They may never change.
#[test]
fn golden_draws() {
    let logits: Vec<f32> =
        (0..3000u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 22) as f32 / 200.0).collect();
    let cut = SamplingFields { top_k: 50, top_p: 0.9, min_p: 0.01, ..with_temperature(0.9) };
    let nucleus = SamplingFields { top_p: 0.95, ..with_temperature(0.7) };
    assert_eq!(draws(&mut sampler(with_temperature(1.0), 42), &logits, 8), GOLDEN_PLAIN);
    assert_eq!(draws(&mut sampler(cut, 42), &logits, 8), GOLDEN_CUT);
    assert_eq!(draws(&mut sampler(nucleus, u64::MAX), &logits, 8), GOLDEN_NUCLEUS);
}

const GOLDEN_PLAIN: [TokenId; 8] = [1406, 983, 1975, 2014, 2517, 885, 2231, 1226];
const GOLDEN_CUT: [TokenId; 8] = [1419, 953, 1974, 2029, 2550, 898, 2262, 1186];
const GOLDEN_NUCLEUS: [TokenId; 8] = [254, 888, 1304, 2045, 2351, 2524, 825, 2265];
