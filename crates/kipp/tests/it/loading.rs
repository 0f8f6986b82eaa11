//! Loading on the CPU: weights that are not finite are refused wherever they stand, by any number of threads.

use kipp::artifact::BindingError;
use kipp::backend::Backend;
use kipp::backend::cpu::{CpuBackend, CpuOptions};
use kipp_kernels::Scheme;

/// Several parts of rows, so that threads look at different ones.
const ROWS: usize = 1500;
const COLS: usize = 512;

#[test]
fn the_first_weight_that_is_not_finite_is_named_for_any_number_of_threads() {
    let scheme = Scheme::F32;
    for threads in [1, 2, 3] {
        let mut backend =
            CpuBackend::new(CpuOptions { threads: Some(threads), ..CpuOptions::default() }).unwrap();
        for bad in [vec![], vec![0], vec![ROWS * COLS - 1], vec![700 * COLS + 3, 1400 * COLS, 701 * COLS]] {
            let mut bytes = vec![0u8; ROWS * COLS * 4];
            for (at, value) in bad.iter().zip([f32::NAN, f32::INFINITY, f32::NEG_INFINITY]) {
                bytes[at * 4..][..4].copy_from_slice(&value.to_le_bytes());
            }
            let matrix = kipp::artifact::Matrix { name: "w", scheme, rows: ROWS, cols: COLS, bytes: &bytes };
            match (backend.check_finite(&matrix), bad.iter().min()) {
                (Ok(()), None) => {}
                (Err(BindingError::NotFinite { index, .. }), Some(first)) => assert_eq!(index, *first),
                (result, first) => panic!("{result:?} and not {first:?}"),
            }
        }
    }
}
