//! What a machine can do at most, with the lane operations that kernels have: loops that stay in registers, and the bare
//! read. Figures are given as shares of these limits; timing them is the caller's business.

use std::hint::black_box;

use crate::activations::{Coding, Words};
use crate::isa::{Isa, LANES};

/// An operation whose rate bounds a kind of product.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PeakLoop {
    /// Fused multiply-adds of f32: products with f32 activations, bf16 ones where there are no dot products of them, and
    /// attention.
    F32Fma,
    /// Dot products of four bytes: products with s8 activations, and the scores of attention over q8_0 keys.
    U8Dot,
    /// Dot products of two bf16: products of bf16 weights with bf16 activations.
    Bf16Dot,
}

impl PeakLoop {
    /// Every loop.
    pub const ALL: &'static [PeakLoop] = &[PeakLoop::F32Fma, PeakLoop::U8Dot, PeakLoop::Bf16Dot];

    /// What products are made of whose input has this coding: where a class has no dot products of bf16, those with bf16
    /// activations are multiply-adds of f32.
    pub fn of(coding: Coding) -> PeakLoop {
        match coding.words {
            Words::F32 | Words::Bf16 => PeakLoop::F32Fma,
            Words::Bf16Pairs => PeakLoop::Bf16Dot,
            Words::S8 => PeakLoop::U8Dot,
        }
    }

    /// As reports spell it.
    pub fn name(self) -> &'static str {
        match self {
            PeakLoop::F32Fma => "f32_fma",
            PeakLoop::U8Dot => "u8_dot",
            PeakLoop::Bf16Dot => "bf16_dot",
        }
    }

    /// Multiplications and additions of one call of the operation, on all lanes.
    fn operations(self) -> usize {
        match self {
            PeakLoop::F32Fma => 2 * LANES,
            PeakLoop::U8Dot => 2 * 4 * LANES,
            PeakLoop::Bf16Dot => 2 * 2 * LANES,
        }
    }
}

/// Independent sums that `Kernels::peak_loop` can keep: few hide no latency, many do not fit in the registers of every
/// instruction set. Which is fastest, the caller finds out.
pub const CHAINS: &[usize] = &[4, 6, 12, 16];

/// Weight vectors that the loops turn over, from the first cache as in a kernel. With a single one the compiler takes
/// what depends on it alone out of the loop, and a part of the operation is not measured.
const WEIGHTS: usize = 16;

/// Runs `rounds` rounds of [`WEIGHTS`] operations on each of `chains` sums (one of [`CHAINS`], or none at all) and returns
/// the multiplications and additions done.
pub(crate) fn peak_loop<I: Isa>(isa: I, which: PeakLoop, chains: usize, rounds: usize) -> u64 {
    match chains {
        4 => chained::<I, 4>(isa, which, rounds),
        6 => chained::<I, 6>(isa, which, rounds),
        12 => chained::<I, 12>(isa, which, rounds),
        16 => chained::<I, 16>(isa, which, rounds),
        _ => return 0,
    }
    (which.operations() * WEIGHTS * chains) as u64 * rounds as u64
}

fn chained<I: Isa, const N: usize>(isa: I, which: PeakLoop, rounds: usize) {
    match which {
        PeakLoop::F32Fma => isa.vectorize(
            #[inline(always)]
            || f32_fma::<I, N>(isa, rounds),
        ),
        PeakLoop::U8Dot => isa.vectorize(
            #[inline(always)]
            || u8_dot::<I, N>(isa, rounds),
        ),
        PeakLoop::Bf16Dot => isa.vectorize(
            #[inline(always)]
            || bf16_dot::<I, N>(isa, rounds),
        ),
    }
}

/// Sums that tend to 1, so that none becomes subnormal.
#[inline(always)]
fn f32_fma<I: Isa, const N: usize>(isa: I, rounds: usize) {
    let half = isa.splat(black_box(0.5));
    let mut sums = [isa.splat(black_box(3.0)); N];
    for _ in 0..rounds * WEIGHTS {
        for t in 0..N {
            sums[t] = isa.fma(sums[t], half, half);
        }
    }
    let mut total = sums[0];
    for t in 1..N {
        total = isa.add(total, sums[t]);
    }
    black_box(isa.reduce_add(total));
}

/// The four products of a word cancel each other, so that no sum grows out of its exact range.
#[inline(always)]
fn u8_dot<I: Isa, const N: usize>(isa: I, rounds: usize) {
    let weights = black_box(weights(|i| [170, 170, 85, 85].map(|code: u8| code ^ i as u8)));
    let mut x = [isa.splat_word(0); N];
    for (t, x) in x.iter_mut().enumerate() {
        let value = black_box(101 - t as i8);
        *x = isa.splat_word(i32::from_le_bytes([value, -value, -value, value].map(i8::cast_unsigned)));
    }
    let start = isa.splat_word(0);
    let mut sums = [isa.u8_start(start); N];
    for _ in 0..rounds {
        for codes in &weights {
            let codes = isa.load_words(codes);
            for t in 0..N {
                sums[t] = isa.u8_dot(sums[t], codes, x[t]);
            }
        }
    }
    let mut total = isa.splat_word(0);
    for sum in sums {
        total = isa.add_words(total, isa.u8_finish(sum, start));
    }
    black_box(isa.reduce_add(isa.to_f32(total)));
}

/// The products of a word cancel each other, so that no sum grows.
#[inline(always)]
fn bf16_dot<I: Isa, const N: usize>(isa: I, rounds: usize) {
    // Two bf16 of about 1 that differ from vector to vector.
    let weights = black_box(weights(|i| [i as u8, 0x3f, i as u8, 0x3f]));
    let mut x = [isa.splat_word(0); N];
    for (t, x) in x.iter_mut().enumerate() {
        let value = black_box(0x3f80 + t as u16);
        let ([low, high], [minus_low, minus_high]) = (value.to_le_bytes(), (value | 0x8000).to_le_bytes());
        *x = isa.splat_word(i32::from_le_bytes([low, high, minus_low, minus_high]));
    }
    let mut sums = [isa.splat(0.0); N];
    for _ in 0..rounds {
        for weights in &weights {
            let weights = isa.load_words(weights);
            for t in 0..N {
                sums[t] = isa.bf16_dot(sums[t], weights, x[t]);
            }
        }
    }
    let mut total = sums[0];
    for t in 1..N {
        total = isa.add(total, sums[t]);
    }
    black_box(isa.reduce_add(total));
}

/// Vectors of sixteen words, each word the same in a vector.
#[inline(always)]
fn weights(word: impl Fn(usize) -> [u8; 4]) -> [[u8; 64]; WEIGHTS] {
    let mut weights = [[0; 64]; WEIGHTS];
    for (i, weights) in weights.iter_mut().enumerate() {
        for bytes in weights.as_chunks_mut().0 {
            *bytes = word(i);
        }
    }
    weights
}

/// Cache lines in flight at once; sums as many, so that none waits for another.
const LINES: usize = 8;

/// Reads every whole line of 64 bytes, ascending, and returns a sum of them all.
pub(crate) fn read<I: Isa>(isa: I, bytes: &[u8]) -> f32 {
    isa.vectorize(
        #[inline(always)]
        || {
            let mut sums = [isa.splat_word(0); LINES];
            let (groups, rest) = bytes.as_chunks::<64>().0.as_chunks::<LINES>();
            for lines in groups {
                for (sum, line) in sums.iter_mut().zip(lines) {
                    *sum = isa.add_words(*sum, isa.load_words(line));
                }
            }
            for (sum, line) in sums.iter_mut().zip(rest) {
                *sum = isa.add_words(*sum, isa.load_words(line));
            }
            let mut total = isa.splat_word(0);
            for sum in sums {
                total = isa.add_words(total, sum);
            }
            isa.reduce_add(isa.to_f32(total))
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::activations::Activations;
    use crate::kernels::{KernelClass, select};
    use crate::schemes::Scheme;

    #[test]
    fn operations_are_counted_and_every_class_runs_every_loop() {
        for class in KernelClass::available() {
            let kernels = select(class).unwrap();
            let of = |activations| PeakLoop::of(kernels.coding(Scheme::Bf16, activations));
            let pairs = class == KernelClass::Avx512Bf16;
            assert_eq!(of(Activations::Bf16), if pairs { PeakLoop::Bf16Dot } else { PeakLoop::F32Fma });
            assert_eq!(of(Activations::F32), PeakLoop::F32Fma);
            for &chains in CHAINS {
                assert_eq!(kernels.peak_loop(PeakLoop::F32Fma, chains, 5), 5 * 16 * 32 * chains as u64);
                // Far more rounds than a running sum is exact for, were the products not to cancel.
                assert_eq!(kernels.peak_loop(PeakLoop::U8Dot, chains, 200), 200 * 16 * 128 * chains as u64);
                assert_eq!(kernels.peak_loop(PeakLoop::Bf16Dot, chains, 3), 3 * 16 * 64 * chains as u64);
            }
            assert_eq!(kernels.peak_loop(PeakLoop::U8Dot, 5, 100), 0);
        }
    }

    #[test]
    fn every_whole_line_is_read_once() {
        let mut bytes = vec![0; 64 * 21 + 7];
        for (line, bytes) in bytes.chunks_exact_mut(64).enumerate() {
            bytes[line * 4 % 64..][..4].copy_from_slice(&(line as i32).to_le_bytes());
        }
        for class in KernelClass::available() {
            let kernels = select(class).unwrap();
            assert_eq!(kernels.read(&bytes), (0..21).sum::<i32>() as f32);
            assert_eq!(kernels.read(&bytes[..63]), 0.0);
        }
    }
}
