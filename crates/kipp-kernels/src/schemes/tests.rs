//! What every scheme must do, and the stated results of odd groups.

use super::*;

fn round_trip(scheme: Scheme, values: &[f32]) -> Vec<f32> {
    let mut bytes = vec![0; scheme.row_bytes(values.len()).unwrap()];
    scheme.encode_row(values, &mut bytes).unwrap();
    assert_eq!(scheme.find_non_finite(&bytes), None, "{} wrote a non-finite weight", scheme.name());
    let mut decoded = vec![f32::NAN; values.len()];
    scheme.decode_row(&bytes, &mut decoded);
    decoded
}

const QUANTIZED: [Scheme; 3] = [Scheme::Q8_0, Scheme::Q4_0, Scheme::Q4_1];

/// Deterministic bytes (a 64-bit LCG) for groups with arbitrary content.
fn bytes(len: usize, seed: u64) -> Vec<u8> {
    let mut state = seed;
    (0..len)
        .map(|_| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 56) as u8
        })
        .collect()
}

#[test]
fn names_and_ids_lead_back_to_the_scheme() {
    for &scheme in Scheme::ALL {
        assert_eq!(Scheme::from_name(scheme.name()), Some(scheme));
        assert_eq!(Scheme::from_ggml_type(scheme.ggml_type()), Some(scheme));
        assert_eq!(scheme.row_bytes(scheme.group_len() * 3), Some(scheme.group_bytes() * 3));
        let overflows = scheme.group_bytes() > scheme.group_len();
        assert_eq!(scheme.row_bytes(usize::MAX / 512 * 512).is_none(), overflows, "{}", scheme.name());
    }
    assert_eq!(Scheme::from_name("Q8_0"), None);
    assert_eq!(Scheme::Q8_0.row_bytes(33), None);
}

#[test]
fn what_models_are_converted_to_can_be_encoded_and_has_a_file_type_of_its_own() {
    for &scheme in Scheme::ALL {
        let same = Scheme::ALL.iter().filter(|other| other.file_type() == scheme.file_type());
        assert_eq!(same.count(), 1, "{}", scheme.name());
        let values = vec![0.5; scheme.group_len()];
        let encoded = scheme.encode_row(&values, &mut vec![0; scheme.group_bytes()]);
        assert!(encoded.is_ok() || !scheme.converts(), "{}", scheme.name());
    }
}

struct CodesAgree(u64);

impl SchemeVisitor for CodesAgree {
    type Output = ();

    fn visit<S: WeightScheme>(self) {
        let bytes = bytes(size_of::<S::Group>() * 8, self.0);
        for group in groups::<S>(&bytes) {
            let mut decoded = vec![0.0; S::GROUP_LEN];
            S::decode(group, &mut decoded);
            if S::CODES_LEN == 0 {
                assert_eq!(S::codes(group, 0), None);
                continue;
            }
            for (part, decoded) in decoded.chunks(S::CODES_LEN).enumerate() {
                let Codes { scale, offset, codes } = S::codes(group, part).unwrap();
                for (w, code) in decoded.iter().zip(codes) {
                    let value = scale * f32::from(code) + offset;
                    assert!(value == *w || (value.is_nan() && w.is_nan()), "{}: {value} != {w}", S::NAME);
                }
            }
        }
    }
}

#[test]
fn codes_times_scale_plus_offset_is_the_weight() {
    for &scheme in Scheme::ALL {
        for seed in 0..32 {
            scheme.visit(CodesAgree(seed));
        }
    }
}

#[test]
fn dense_schemes_keep_what_they_can_hold() {
    let values = [1.0, -0.5, 0.0, -0.0, 1.5, -65504.0];
    for scheme in [Scheme::F32, Scheme::F16] {
        let bits = |v: &[f32]| v.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
        assert_eq!(bits(&round_trip(scheme, &values)), bits(&values));
    }
    assert_eq!(round_trip(Scheme::Bf16, &values[..5]), &values[..5]);
    assert!(round_trip(Scheme::Bf16, &[-0.0])[0].is_sign_negative());
    assert_eq!(round_trip(Scheme::F16, &[1e6, -1e6]), [65504.0, -65504.0]);
    assert!(round_trip(Scheme::Bf16, &[f32::MAX, f32::MIN]).iter().all(|v| v.is_finite()));
}

#[test]
fn quantized_weights_are_within_half_a_step() {
    let values: Vec<f32> = (0..96).map(|i| (i as f32 * 0.37).sin() * 3.0 - 0.4).collect();
    for (scheme, step) in [(Scheme::Q8_0, 3.4 / 127.0), (Scheme::Q4_0, 3.4 / 8.0), (Scheme::Q4_1, 6.0 / 15.0)]
    {
        let decoded = round_trip(scheme, &values);
        for (w, v) in decoded.iter().zip(&values) {
            // Q4_0 has no code for the positive end: there a whole step is lost.
            let bound = if scheme == Scheme::Q4_0 { step * 1.01 } else { step * 0.51 };
            assert!((w - v).abs() <= bound, "{}: {v} became {w}", scheme.name());
        }
    }
}

/// Groups of ggml's quantizer and arbitrary ones, with f16 scales of every sort: `testdata/make/schemes.py`.
#[test]
fn coded_schemes_decode_as_ggml_does() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/schemes");
    for &scheme in Scheme::ALL.iter().filter(|scheme| !scheme.is_dense()) {
        let read = |suffix| std::fs::read(folder.join(format!("{}.{suffix}", scheme.name()))).unwrap();
        let (groups, expected) = (read("groups"), read("f32"));
        let count = groups.len() / scheme.group_bytes();
        assert!(count >= 12 && count * scheme.group_len() * 4 == expected.len(), "{}", scheme.name());
        let mut decoded = vec![f32::NAN; count * scheme.group_len()];
        scheme.decode_row(&groups, &mut decoded);
        for (k, (found, expected)) in decoded.iter().zip(expected.as_chunks::<4>().0).enumerate() {
            let expected = f32::from_le_bytes(*expected);
            assert_eq!(found.to_bits(), expected.to_bits(), "{} {k}: {found}, {expected}", scheme.name());
        }
    }
}

#[test]
fn schemes_that_are_only_read_say_so() {
    for &scheme in Scheme::ALL {
        let refused = scheme.encode_row(&[0.0; 256], &mut vec![0; scheme.row_bytes(256).unwrap()]);
        assert!(matches!(refused, Ok(()) | Err(EncodeError::ReadOnly(_))));
        assert!(refused.is_ok() || !scheme.converts());
    }
    let refused = Scheme::Q6K.encode_row(&[0.0; 256], &mut [0; 210]);
    assert_eq!(refused, Err(EncodeError::ReadOnly("q6_k")));
}

#[test]
fn h14_zero_groups_decode_to_zero() {
    for scheme in QUANTIZED {
        for zero in [0.0, -0.0] {
            let decoded = round_trip(scheme, &[zero; 32]);
            assert!(decoded.iter().all(|w| w.to_bits() == 0), "{}: {decoded:?}", scheme.name());
        }
        let mut mixed = [0.0; 32];
        mixed[3] = -0.0;
        assert!(round_trip(scheme, &mixed).iter().all(|w| *w == 0.0));
    }
}

#[test]
fn h14_near_zeros_stay_finite_and_near() {
    for scheme in QUANTIZED {
        // 6e-8 is one step of the subnormal f16: a minimum (q4_1) may round away from zero by half of it.
        for (value, bound) in [(1e-40f32, 1e-40f32), (1e-9, 1e-9), (3e-8, 6e-8), (6e-8, 6e-8)] {
            for sign in [1.0, -1.0] {
                let mut one = [0.0; 32];
                one[5] = sign * value;
                for values in [[sign * value; 32], one] {
                    for (w, v) in round_trip(scheme, &values).iter().zip(values) {
                        assert!((w - v).abs() <= bound, "{}: {v} became {w}", scheme.name());
                    }
                }
            }
        }
    }
}

#[test]
fn h14_a_scale_beyond_f16_saturates_and_zeros_stay_zero() {
    for scheme in QUANTIZED {
        for large in [1e7, -1e7, 1e30, f32::MAX, f32::MIN] {
            let mut values = [0.0; 32];
            values[0] = large;
            let decoded = round_trip(scheme, &values);
            assert!(
                decoded[0].is_finite() && decoded[0].abs() >= 65_504.0,
                "{}: {}",
                scheme.name(),
                decoded[0]
            );
            assert_eq!(decoded[0].signum(), large.signum());
            assert!(decoded[1..].iter().all(|w| *w == 0.0), "{}: {decoded:?}", scheme.name());
        }
        round_trip(scheme, &[[f32::MAX; 16], [f32::MIN; 16]].concat());
    }
}

#[test]
fn h14_the_signed_maximum_takes_the_first_of_equals() {
    let mut values = [0.0; 32];
    for (first, second) in [(4.0, -4.0), (-4.0, 4.0)] {
        (values[0], values[1]) = (first, second);
        let decoded = round_trip(Scheme::Q4_0, &values);
        assert_eq!(decoded[0], first);
        assert_eq!(decoded[1], second * 7.0 / 8.0);
        assert!(decoded[2..].iter().all(|w| *w == 0.0));
    }
}

#[test]
fn h14_non_finite_sources_are_refused_by_index() {
    for &scheme in Scheme::ALL {
        for value in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let mut values = vec![1.0; 512];
            values[300] = value;
            let mut bytes = vec![0; scheme.row_bytes(512).unwrap()];
            match scheme.encode_row(&values, &mut bytes) {
                Err(EncodeError::NotFinite { index: 300, .. }) => {}
                other => panic!("{}: {other:?}", scheme.name()),
            }
        }
    }
}

/// The index of the first weight that is not finite, found by decoding all.
fn first_non_finite(scheme: Scheme, bytes: &[u8]) -> Option<usize> {
    let mut decoded = vec![0.0; bytes.len() / scheme.group_bytes() * scheme.group_len()];
    scheme.decode_row(bytes, &mut decoded);
    decoded.iter().position(|w| !w.is_finite())
}

#[test]
fn h14_non_finite_weights_are_found_without_decoding_all() {
    for &scheme in Scheme::ALL {
        let size = scheme.group_bytes();
        let mut poisons = 0;
        for at in [0, 1, 127, 128, 200, 256, 299] {
            for seed in 0..400 {
                let mut row = vec![0; 300 * size];
                row[at * size..].copy_from_slice(&bytes((300 - at) * size, seed));
                row[(at + 1).min(299) * size..].fill(0);
                let expected = first_non_finite(scheme, &row);
                assert_eq!(scheme.find_non_finite(&row), expected, "{}, group {at}", scheme.name());
                poisons += usize::from(expected.is_some());
            }
        }
        // An f32's exponent of eight bits is the rarest to be all ones.
        assert!(poisons > 4 && poisons < 1400, "{}: {poisons}", scheme.name());
    }
}

/// The largest scales with all codes: no finite scale gives a weight past f32.
#[test]
fn h14_the_largest_finite_scales_give_finite_weights() {
    for &scheme in Scheme::ALL.iter().filter(|scheme| !scheme.is_dense()) {
        for (low, high) in [(0xff, 0x7b), (0xff, 0xfb)] {
            for code in 0..=255u8 {
                let mut group = vec![code; scheme.group_bytes()];
                for at in 0..scheme.group_bytes() - 1 {
                    let kept = [group[at], group[at + 1]];
                    (group[at], group[at + 1]) = (low, high);
                    assert_eq!(scheme.find_non_finite(&group), first_non_finite(scheme, &group));
                    (group[at], group[at + 1]) = (kept[0], kept[1]);
                }
            }
        }
    }
}

#[test]
fn lengths_that_do_not_belong_together_are_refused() {
    let refused = Scheme::Q8_0.encode_row(&[0.0; 32], &mut [0; 33]);
    assert!(matches!(refused, Err(EncodeError::Length { scheme: "q8_0", values: 32, bytes: 33 })));
}
