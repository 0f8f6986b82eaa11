//! Every instruction set that this machine has gives, operation by operation, the bits of the scalar one.

#![allow(clippy::unwrap_used, reason = "the whole file is tests")]

#[cfg(target_arch = "aarch64")]
use kipp_kernels::isa::neon::Neon;
use kipp_kernels::isa::{Isa, LANES, scalar::Scalar};
#[cfg(target_arch = "x86_64")]
use kipp_kernels::isa::{avx2::Avx2, avx512::Avx512};

/// Bits of each operation's result over a few hundred odd operands.
fn results<I: Isa>(isa: I) -> Vec<Vec<u32>> {
    isa.vectorize(|| results_inside(isa))
}

#[inline(always)]
fn results_inside<I: Isa>(isa: I) -> Vec<Vec<u32>> {
    let mut all = Vec::new();
    let mut state = 1u64;
    let mut random = move || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 32) as u32
    };
    for round in 0..64 {
        let mut bytes = [[0u8; 64]; 3];
        for bytes in &mut bytes {
            for word in bytes.as_chunks_mut::<4>().0 {
                // Floats of moderate size in even rounds, any bits in odd ones.
                let bits = random();
                *word =
                    (if round % 2 == 0 { (bits & 0x83ff_ffff) | 0x3c00_0000 } else { bits }).to_le_bytes();
            }
        }
        let [a, b, c] = bytes.map(|bytes| isa.load_le(&bytes));
        let [i, j, _] = bytes.map(|bytes| isa.load_words(&bytes));
        let no_minus_128 = {
            let mut x = bytes[1];
            x.iter_mut().filter(|b| **b == 0x80).for_each(|b| *b = 0x7f);
            isa.load_words(&x)
        };
        let floats = [
            isa.add(a, b),
            isa.sub(a, b),
            isa.mul(a, b),
            isa.div(a, b),
            isa.fma(a, b, c),
            isa.min(a, b),
            isa.max(a, b),
            isa.to_f32(i),
            isa.load_f16(bytes[0].first_chunk().unwrap()),
            isa.f16_pair(i).0,
            isa.f16_pair(i).1,
            isa.splat(f32::from_bits(7)),
        ];
        let nibbles = isa.and(i, isa.splat_word(0x0f0f_0f0f));
        // Minus 128 times the sum of the eight times four bytes that follow.
        let bytes_of_x = isa.u6_dot(isa.splat_word(0), isa.splat_word(0x0101_0101), no_minus_128);
        let start = isa.mul_words(bytes_of_x, isa.splat_word(-128 * 8));
        let (mut u8_sum, mut u6_sum, mut u4_sum) = (isa.u8_start(start), j, isa.u4_start(j));
        for _ in 0..8 {
            u8_sum = isa.u8_dot(u8_sum, i, no_minus_128);
            u6_sum = isa.u6_dot(u6_sum, isa.and(i, isa.splat_word(0x3f3f_3f3f)), no_minus_128);
            u4_sum = isa.u4_dot(u4_sum, nibbles, no_minus_128);
        }
        // The largest products of either sign.
        let extreme = |codes: i32| {
            let start = isa.splat_word(-128 * 127 * 4);
            let sum = isa.u8_dot(isa.u8_start(start), isa.splat_word(codes), isa.splat_word(0x7f7f_7f7f));
            isa.u8_finish(sum, start)
        };
        let words = [
            isa.or(i, j),
            isa.shl(i, 16),
            isa.shr(i, 3),
            isa.sar(i, 3),
            isa.add_words(i, j),
            isa.sub_words(i, j),
            isa.mul_words(i, j),
            isa.as_words(a),
            isa.max_words(i, j),
            isa.splat_word(isa.reduce_max_words(i)),
            isa.load_i8(&isa.low_bytes(i)),
            isa.load_i8(bytes[2].first_chunk().unwrap()),
            isa.u8_finish(u8_sum, start),
            u6_sum,
            isa.u4_finish(u4_sum, j),
            extreme(-1),
            extreme(0),
            isa.look_up(&std::array::from_fn(|i| (i * i) as u8), nibbles),
        ];
        for v in floats.into_iter().chain(words.map(|w| isa.as_f32(w))) {
            let mut out = [0.0; LANES];
            isa.store(&mut out, v);
            // Which NaN comes out of an operation on NaNs is not promised.
            all.push(out.map(|v| if v.is_nan() { u32::MAX } else { v.to_bits() }).to_vec());
            for len in [0, 1, 7, 8, 9, 15, 16] {
                let mut part = vec![1.0; len];
                isa.store_partial(&mut part, v);
                assert_eq!(
                    part.iter().map(|v| v.to_bits()).collect::<Vec<_>>(),
                    out.map(f32::to_bits)[..len]
                );
                isa.store(&mut out, isa.load_partial(&part));
                assert!(out[len..].iter().all(|v| v.to_bits() == 0));
                isa.store(&mut out, v);
            }
        }
        all.push(vec![isa.reduce_add(isa.to_f32(i)).to_bits(), isa.reduce_max(isa.to_f32(i)).to_bits()]);
    }
    all
}

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
fn check<I: Isa>(isa: Option<I>, wanted: &[Vec<u32>], what: &str) {
    if let Some(isa) = isa {
        assert!(results(isa) == wanted, "{what}");
    }
}

#[test]
fn every_instruction_set_equals_the_scalar_one() {
    let wanted = results(Scalar);
    assert!(wanted.len() > 1000);
    #[cfg(target_arch = "x86_64")]
    {
        check(Avx2::<false>::detect(), &wanted, "AVX2");
        check(Avx2::<true>::detect(), &wanted, "AVX-VNNI");
        check(Avx512::<false, false>::detect(), &wanted, "AVX-512");
        check(Avx512::<true, false>::detect(), &wanted, "AVX-512 VNNI");
        check(Avx512::<true, true>::detect(), &wanted, "AVX-512 BF16");
    }
    #[cfg(target_arch = "aarch64")]
    {
        check(Neon::<false>::detect(), &wanted, "NEON");
        check(Neon::<true>::detect(), &wanted, "NEON with I8MM");
    }
}
