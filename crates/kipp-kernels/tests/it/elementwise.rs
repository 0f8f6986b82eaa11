//! Norms, rotation, SwiGLU and sums against f64, and bit by bit between the classes.

use kipp_kernels::conformance::{F32_NMSE, elementwise as reference, near, numbers, same_bits};

use super::{all_kernels, scalar};

const WIDTHS: [usize; 12] = [1, 2, 3, 15, 16, 17, 31, 64, 70, 160, 416, 1024];

#[test]
fn rms_norm_is_near_the_reference_and_the_same_everywhere() {
    for width in WIDTHS {
        let (x, weight) = (numbers(3 * width, 1), numbers(width, 2));
        let mut expected = vec![0.0; 3 * width];
        scalar().rms_norm(&x, &weight, 1e-6, &mut expected);
        let wanted: Vec<f64> = x.chunks(width).flat_map(|x| reference::rms_norm(x, &weight, 1e-6)).collect();
        near("rms_norm", &expected, &wanted, F32_NMSE).unwrap();
        for kernels in all_kernels() {
            let mut out = vec![f32::NAN; 3 * width];
            kernels.rms_norm(&x, &weight, 1e-6, &mut out);
            same_bits(&format!("rms_norm, width {width}"), &out, &expected).unwrap();
        }
    }
}

#[test]
fn norm_rope_is_near_the_reference_and_the_same_everywhere() {
    for head_dim in [2, 10, 32, 34, 64, 96, 128] {
        let (x, weight) = (numbers(head_dim, 3), numbers(head_dim, 4));
        let angles: Vec<f32> = (0..head_dim / 2).map(|i| 0.3 + i as f32).collect();
        let cos: Vec<f32> = angles.iter().map(|a| a.cos()).collect();
        let sin: Vec<f32> = angles.iter().map(|a| a.sin()).collect();
        let mut expected = x.clone();
        scalar().norm_rope(&mut expected, &weight, 1e-6, &cos, &sin);
        let wanted = reference::rope(&reference::rms_norm(&x, &weight, 1e-6), &cos, &sin);
        near("norm_rope", &expected, &wanted, F32_NMSE).unwrap();
        for kernels in all_kernels() {
            let mut head = x.clone();
            kernels.norm_rope(&mut head, &weight, 1e-6, &cos, &sin);
            same_bits(&format!("norm_rope, width {head_dim}"), &head, &expected).unwrap();
        }
    }
}

/// Unit vectors at far positions: the pairs are (i, i + 64), and the angles are computed in f64 by the caller.
#[test]
fn h13_rotation_pairs_halves_and_survives_far_positions() {
    let cases = [
        (0, 15_962, -0.908_016, 0.418_936),
        (31, 4_096, 0.362_074, -0.932_149),
        (63, 40_959, 0.998_709, 0.050_806),
    ];
    for (dimension, position, cosine, sine) in cases {
        let angle = |i: usize| f64::from(position) * 1e6f64.powf(-(i as f64) / 64.0);
        let cos: Vec<f32> = (0..64).map(|i| angle(i).cos() as f32).collect();
        let sin: Vec<f32> = (0..64).map(|i| angle(i).sin() as f32).collect();
        // The norm makes a unit vector sqrt(128) long; the weight takes it back.
        let weight = [1.0 / 128f32.sqrt(); 128];
        for kernels in all_kernels() {
            let mut head = [0.0; 128];
            head[dimension] = 1.0;
            kernels.norm_rope(&mut head, &weight, 0.0, &cos, &sin);
            for (i, value) in head.iter().enumerate() {
                let wanted = match i {
                    i if i == dimension => cosine,
                    i if i == dimension + 64 => sine,
                    _ => 0.0,
                };
                assert!((value - wanted).abs() <= 2e-5, "position {position}, dimension {i}: {value}");
            }
        }
    }
}

#[test]
fn swiglu_and_add_are_near_the_reference_and_the_same_everywhere() {
    for width in WIDTHS {
        let gate: Vec<f32> = numbers(width, 5).iter().map(|v| v * 12.0).collect();
        let up = numbers(width, 6);
        let mut expected = gate.clone();
        scalar().swiglu(&mut expected, &up);
        near("swiglu", &expected, &reference::swiglu(&gate, &up), F32_NMSE).unwrap();
        for kernels in all_kernels() {
            let (mut out, mut sum) = (gate.clone(), gate.clone());
            kernels.swiglu(&mut out, &up);
            same_bits(&format!("swiglu, width {width}"), &out, &expected).unwrap();
            kernels.add(&mut sum, &up);
            let added: Vec<f32> = gate.iter().zip(&up).map(|(a, b)| a + b).collect();
            same_bits("add", &sum, &added).unwrap();
        }
    }
}

/// A gate that is far negative or positive, or no number.
#[test]
fn swiglu_at_the_ends() {
    for kernels in all_kernels() {
        let mut out = [-200.0, 200.0, f32::NAN, 0.0];
        kernels.swiglu(&mut out, &[2.0; 4]);
        assert_eq!((out[0], out[1], out[3]), (0.0, 400.0, 0.0));
        assert!(out[2].is_nan());
    }
}
