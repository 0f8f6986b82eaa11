//! Matrix products: every scheme, coding and class on ragged shapes.

use kipp_kernels::conformance::{cpu, product::*, same_bits};
use kipp_kernels::{Activations, Scheme};

use super::{all_kernels, scalar};

/// Runs a check for every scheme and every kind of activations it may have.
fn for_every_kind(mut check: impl FnMut(Scheme, Activations)) {
    for &scheme in Scheme::ALL {
        kinds(scheme).for_each(|kind| check(scheme, kind));
    }
}

#[test]
fn products_are_near_the_reference() {
    for_every_kind(|scheme, kind| {
        for shape in ragged_shapes(scheme) {
            let case = ProductCase::arbitrary(scheme, kind, shape);
            near_the_reference(&case, |case| cpu::product(scalar(), case, 100)).unwrap();
        }
    });
}

#[test]
fn every_class_has_the_bits_of_the_scalar_one() {
    for_every_kind(|scheme, kind| {
        for shape in ragged_shapes(scheme) {
            let case = ProductCase::arbitrary(scheme, kind, shape);
            let expected = cpu::product(scalar(), &case, 100);
            for kernels in all_kernels() {
                for panels_at_once in [1, 2, 100] {
                    let what = format!("{}, {}", kernels.class().name(), case.name());
                    same_bits(&what, &cpu::product(kernels, &case, panels_at_once), &expected).unwrap();
                }
            }
        }
    });
}

#[test]
fn one_to_forty_tokens_have_the_bits_of_single_ones() {
    for_every_kind(|scheme, kind| {
        let case = ProductCase::arbitrary(scheme, kind, [40, 19, whole_cols(scheme, 70)]);
        for kernels in all_kernels() {
            tokens_are_independent(&case, |case| cpu::product(kernels, case, 100)).unwrap();
        }
    });
}

#[test]
fn whole_numbers_are_exact() {
    for_every_kind(|scheme, kind| {
        for shape in ragged_shapes(scheme) {
            let case = ProductCase::whole(scheme, kind, shape);
            for kernels in all_kernels() {
                exact_on_whole_numbers(&case, |case| cpu::product(kernels, case, 100)).unwrap();
            }
        }
    });
}

/// The largest codes of both sides: no partial sum may saturate.
#[test]
fn extreme_codes_are_exact() {
    for &scheme in Scheme::ALL.iter().filter(|scheme| scheme.activations() == Activations::S8) {
        for byte in [0x00, 0x7f, 0x80, 0xff] {
            for sign in [127.0, -127.0] {
                let case = ProductCase::whole(scheme, Activations::S8, [3, 16, 256]).with_all(byte, sign);
                for kernels in all_kernels() {
                    exact_on_whole_numbers(&case, |case| cpu::product(kernels, case, 100)).unwrap();
                }
            }
        }
    }
}

/// A NaN or an infinity in the input shows in every output of its token and in no other.
#[test]
fn non_finite_inputs_are_not_hidden() {
    for_every_kind(|scheme, kind| {
        for odd in [f32::NAN, f32::INFINITY] {
            let mut case = ProductCase::arbitrary(scheme, kind, [3, 17, whole_cols(scheme, 64)]);
            case.x[case.cols + 5] = odd;
            for kernels in all_kernels() {
                let out = cpu::product(kernels, &case, 100);
                for (token, row) in out.chunks(case.rows).enumerate() {
                    assert!(
                        row.iter().all(|v| v.is_finite() == (token != 1)),
                        "{}, token {token}",
                        case.name()
                    );
                }
            }
        }
    });
}
