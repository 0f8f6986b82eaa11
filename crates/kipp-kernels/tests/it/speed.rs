//! No figure of speed, only a collapse: a closure that is not inlined, or sums that leave the registers for calls, cost
//! a factor of 100 and nothing else would show it. Products reach 60 % of the multiply-add peak; a tenth is asked for.

use std::time::{Duration, Instant};

use kipp_kernels::conformance::{cpu::prepare, product::*};
use kipp_kernels::isa::{Isa, avx2::Avx2, avx512::Avx512};
use kipp_kernels::{CodedLayout, Columns, KernelClass, Scheme, Tiles, select};

/// The shortest of many runs: others may use the machine.
fn shortest(mut work: impl FnMut()) -> Duration {
    let mut best = Duration::MAX;
    for _ in 0..40 {
        let start = Instant::now();
        work();
        best = best.min(start.elapsed());
    }
    best
}

/// Multiply-adds a nanosecond, in registers.
fn peak<I: Isa>(isa: I) -> f64 {
    let rounds = 4000u32;
    let time = shortest(|| {
        isa.vectorize(
            #[inline(always)]
            || {
                let factor = isa.splat(std::hint::black_box(0.5));
                let mut sums = [isa.splat(1.0); 6];
                for _ in 0..rounds {
                    for sum in &mut sums {
                        *sum = isa.fma(*sum, factor, factor);
                    }
                }
                std::hint::black_box(sums.map(|sum| isa.reduce_add(sum)));
            },
        );
    });
    f64::from(rounds * 6 * 16) / time.as_nanos() as f64
}

fn check(class: KernelClass, peak: f64) {
    let Some(kernels) = select(class) else { return };
    for &scheme in Scheme::ALL {
        for kind in kinds(scheme) {
            let case = ProductCase::arbitrary(scheme, kind, [12, 64, 1024]);
            let Some((layout, tiles)) = prepare(&case) else { continue };
            let input = CodedLayout::new(kernels.coding(scheme, kind), case.tokens, case.cols);
            let mut coded = vec![0; input.bytes()];
            kernels.code(&input, &case.x, 0..input.blocks(), &mut coded);
            let mut out = vec![0.0; case.tokens * case.rows];
            let time = shortest(|| {
                let tiles = Tiles { layout: &layout, bytes: &tiles };
                let window = Columns::new(&mut out, case.rows);
                kernels.matmul(tiles, &input, &coded, 0..layout.panels(), window);
            });
            let speed = (case.tokens * case.rows * case.cols) as f64 / time.as_nanos() as f64;
            let (share, class) = (speed / peak, class.name());
            assert!(share > 0.1, "{class}, {}: {:.1} % of the peak", case.name(), share * 100.0);
        }
    }
}

#[test]
fn products_do_not_collapse() {
    if let Some(isa) = Avx2::<false>::detect() {
        check(KernelClass::Avx2, peak(isa));
    }
    if let Some(isa) = Avx512::<false, false>::detect() {
        check(KernelClass::Avx512, peak(isa));
    }
}
