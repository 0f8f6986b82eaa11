//! Prepared tiles decode to what the file holds.

use kipp_kernels::Scheme;
use kipp_kernels::conformance::{cpu::prepare, product::*, same_bits};
use kipp_kernels::tile::{TileLayout, decode_row};

#[test]
fn a_prepared_row_decodes_as_in_the_file() {
    for &scheme in Scheme::ALL {
        for [_, rows, cols] in ragged_shapes(scheme) {
            let case = ProductCase::arbitrary(scheme, scheme.activations(), [1, rows, cols]);
            let (layout, tiles) = prepare(&case).unwrap();
            for (row, bytes) in case.weights.chunks(scheme.row_bytes(cols).unwrap()).enumerate() {
                let (mut expected, mut found) = (vec![0.0; cols], vec![1.0; cols]);
                scheme.decode_row(bytes, &mut expected);
                decode_row(&layout, &tiles, row, &mut found);
                same_bits(&format!("{}, row {row}", case.name()), &found, &expected).unwrap();
            }
        }
    }
}

/// The shapes of the registered checkpoints.
#[test]
fn at_true_shapes_tiles_are_at_most_three_percent_larger_than_the_file() {
    for &scheme in Scheme::ALL {
        for [rows, cols] in [
            [1024, 1024],
            [3072, 1024],
            [1024, 3072],
            [6144, 2048],
            [151_936, 2560],
            [2560, 9728],
            [4096, 4096],
            [4096, 12288],
            [5120, 17408],
        ] {
            let layout = TileLayout::new(scheme, rows, cols).unwrap();
            let file = scheme.row_bytes(cols).unwrap() * rows;
            assert!(layout.bytes() as f64 <= file as f64 * 1.03, "{} {rows} x {cols}", scheme.name());
            assert_eq!(layout.panels() * 16, rows);
        }
    }
}

#[test]
fn shapes_that_cannot_be_are_refused() {
    assert_eq!(TileLayout::new(Scheme::Q8_0, 4, 33), None);
    for &scheme in Scheme::ALL {
        assert_eq!(TileLayout::new(scheme, usize::MAX / 2, 256), None);
        assert_eq!(TileLayout::new(scheme, 1 << 40, 1 << 40), None);
        assert_eq!(TileLayout::new(scheme, 0, 256).unwrap().bytes(), 0);
    }
}
