//! Matrix products beside what the machine can do at most: the f32 FMA peak and the bare read.
//!
//! `cargo bench -p kipp-kernels` prints, for each class, scheme and number of tokens, the time of one product with
//! some rows of a matrix of Qwen3-0.6B ([128, 1024]: short enough to run undisturbed on a shared machine), its
//! operations a second ("item/s", two a weight and token) and the bytes of weights that it reads a second. Weights are
//! cycled through more memory than the caches hold. Compare the fastest runs.

use divan::Bencher;
use divan::counter::{BytesCount, ItemsCount};
use kipp_kernels::conformance::{cpu::prepare, numbers, product::ProductCase};
use kipp_kernels::{
    Activations, Attended, AttentionTask, Cache, CodedLayout, Columns, KernelClass, KvLayout, KvScheme,
    Scheme, Tiles, attention_scratch_len, kv, select, tile::prepare_panel,
};

fn main() {
    divan::main();
}

const ROWS: usize = 128;
const COLS: usize = 1024;
/// Enough copies of a matrix that none is in the L2 cache when its turn comes.
const CYCLED_BYTES: usize = 64 << 20;

/// One benchmark case of a class, named for the report.
#[derive(Clone, Copy)]
struct Case {
    class: KernelClass,
    scheme: Scheme,
    activations: Activations,
    tokens: usize,
}

impl std::fmt::Display for Case {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Case { class, scheme, activations, tokens } = self;
        write!(f, "{} {} x {} M={tokens}", class.name(), scheme.name(), activations.name())
    }
}

fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for class in KernelClass::available().into_iter().filter(|class| *class != KernelClass::Scalar) {
        for &scheme in Scheme::ALL {
            for tokens in [1, 8, 128] {
                cases.push(Case { class, scheme, activations: scheme.activations(), tokens });
            }
        }
        for scheme in [Scheme::Q8_0, Scheme::Q4_0] {
            cases.push(Case { class, scheme, activations: Activations::F32, tokens: 128 });
        }
    }
    cases
}

#[divan::bench(args = cases(), sample_count = 50)]
fn product(bencher: Bencher<'_, '_>, case: Case) {
    let Some(kernels) = select(case.class) else { return };
    let input = ProductCase::arbitrary(case.scheme, case.activations, [case.tokens, ROWS, COLS]);
    let Some((layout, tiles)) = prepare(&input) else { return };
    let copies = CYCLED_BYTES.div_ceil(tiles.len());
    let all = tiles.repeat(copies);
    let coded_layout = CodedLayout::new(kernels.coding(case.scheme, case.activations), case.tokens, COLS);
    let mut coded = vec![0; coded_layout.bytes()];
    kernels.code(&coded_layout, &input.x, 0..coded_layout.blocks(), &mut coded);
    let mut out = vec![0.0; case.tokens * ROWS];
    let mut turn = 0;
    let bencher = bencher.counter(ItemsCount::new(2 * ROWS * COLS * case.tokens));
    bencher.counter(BytesCount::new(tiles.len())).bench_local(|| {
        turn = (turn + 1) % copies;
        let bytes = &all[turn * tiles.len()..][..tiles.len()];
        let window = Columns::new(&mut out, ROWS);
        kernels.matmul(Tiles { layout: &layout, bytes }, &coded_layout, &coded, 0..layout.panels(), window);
    });
}

/// Coding the input of a block of twelve tokens.
#[divan::bench(args = ["f32", "bf16", "s8"], sample_count = 50)]
fn code(bencher: Bencher<'_, '_>, activations: &str) {
    let Some(activations) = Activations::from_name(activations) else { return };
    let Some(kernels) = select(KernelClass::best()) else { return };
    let scheme = if activations == Activations::S8 { Scheme::Q8_0 } else { Scheme::Bf16 };
    let layout = CodedLayout::new(kernels.coding(scheme, activations), 12, COLS);
    let x = numbers(12 * COLS, 1);
    let mut coded = vec![0; layout.bytes()];
    let bencher = bencher.counter(ItemsCount::new(12 * COLS));
    bencher.bench_local(|| kernels.code(&layout, &x, 0..1, &mut coded));
}

/// Re-laying one panel of 16 rows.
#[divan::bench(args = Scheme::ALL.iter().map(|scheme| scheme.name()), sample_count = 50)]
fn prepare_one_panel(bencher: Bencher<'_, '_>, scheme: &str) {
    let Some(scheme) = Scheme::from_name(scheme) else { return };
    let case = ProductCase::arbitrary(scheme, scheme.activations(), [1, 16, COLS]);
    let Some((layout, mut tiles)) = prepare(&case) else { return };
    let bencher = bencher.counter(BytesCount::new(tiles.len()));
    bencher.bench_local(|| prepare_panel(&layout, &case.weights, 0, &mut tiles));
}

/// One kv head of Qwen3-0.6B (two query heads of 128), `rows` query rows after 1,024 positions; "item/s" counts two
/// operations for each product in scores and values.
#[divan::bench(args = [1, 64], sample_count = 50)]
fn attention(bencher: Bencher<'_, '_>, rows: usize) {
    let Some(kernels) = select(KernelClass::best()) else { return };
    let layout = KvLayout { scheme: KvScheme::Bf16, n_kv_heads: 1, head_dim: 128 };
    let (start, width) = (1024, 256);
    let n_blocks = (start + rows).div_ceil(kv::BLOCK_TOKENS);
    let blocks = vec![0x3c; n_blocks * layout.block_bytes()];
    let table: Vec<u32> = (0..n_blocks as u32).collect();
    let q = numbers(rows * width, 2);
    let mut out = vec![0.0; rows * width];
    let mut scratch = vec![0.0; attention_scratch_len(&layout)];
    let attended = rows * start + rows * (rows + 1) / 2;
    bencher.counter(ItemsCount::new(attended * 2 * 128 * 4)).bench_local(|| {
        kernels.attention(AttentionTask {
            cache: Cache { layout, blocks: &blocks, table: &table },
            start,
            q: &q,
            q_stride: width,
            n_heads: 2,
            kv_heads: 0..1,
            scale: 0.088,
            out: Attended::Rows(Columns::new(&mut out, width)),
            scratch: &mut scratch,
        });
    });
}

/// Storing one position of Qwen3-0.6B: eight heads of 128.
#[divan::bench(sample_count = 50)]
fn write_kv(bencher: Bencher<'_, '_>) {
    let Some(kernels) = select(KernelClass::best()) else { return };
    let layout = KvLayout { scheme: KvScheme::Bf16, n_kv_heads: 8, head_dim: 128 };
    let mut block = vec![0; layout.block_bytes()];
    let row = numbers(1024, 3);
    bencher.bench_local(|| kernels.write_kv(&layout, &mut block, 5, &row, &row));
}

/// The bare read: sums of words over as much memory as the products cycle through.
#[divan::bench(sample_count = 50)]
fn bare_read(bencher: Bencher<'_, '_>) {
    let data = vec![1u64; CYCLED_BYTES / 8];
    bencher.counter(BytesCount::new(CYCLED_BYTES)).bench_local(|| peak::read(&data));
}

/// The f32 FMA peak: 16 independent chains in registers.
#[divan::bench(sample_count = 50)]
fn fma_peak(bencher: Bencher<'_, '_>) {
    bencher.counter(ItemsCount::new(peak::FLOPS)).bench_local(|| peak::fma(divan::black_box(0.5)));
}

mod peak {
    use kipp_kernels::isa::Isa;

    const ROUNDS: usize = 10_000;
    const CHAINS: usize = 12;
    pub(super) const FLOPS: usize = ROUNDS * CHAINS * 16 * 2;

    #[inline(always)]
    fn chains<I: Isa>(isa: I, factor: f32) -> f32 {
        isa.vectorize(
            #[inline(always)]
            || {
                let factor = isa.splat(factor);
                let mut sums = [isa.splat(1.0); CHAINS];
                for _ in 0..ROUNDS {
                    for sum in &mut sums {
                        *sum = isa.fma(*sum, factor, factor);
                    }
                }
                sums.iter().map(|sum| isa.reduce_add(*sum)).sum()
            },
        )
    }

    #[inline(always)]
    fn sum<I: Isa>(isa: I, data: &[u64]) -> u64 {
        isa.vectorize(
            #[inline(always)]
            || {
                let mut sums = [0u64; 32];
                for words in data.as_chunks::<32>().0 {
                    for (sum, word) in sums.iter_mut().zip(words) {
                        *sum = sum.wrapping_add(*word);
                    }
                }
                sums.into_iter().fold(0, u64::wrapping_add)
            },
        )
    }

    pub(super) fn fma(factor: f32) -> f32 {
        #[cfg(target_arch = "x86_64")]
        {
            if let Some(isa) = kipp_kernels::isa::avx512::Avx512::<false, false>::detect() {
                return chains(isa, factor);
            }
            if let Some(isa) = kipp_kernels::isa::avx2::Avx2::<false>::detect() {
                return chains(isa, factor);
            }
        }
        chains(kipp_kernels::isa::scalar::Scalar, factor)
    }

    pub(super) fn read(data: &[u64]) -> u64 {
        #[cfg(target_arch = "x86_64")]
        {
            if let Some(isa) = kipp_kernels::isa::avx512::Avx512::<false, false>::detect() {
                return sum(isa, data);
            }
            if let Some(isa) = kipp_kernels::isa::avx2::Avx2::<false>::detect() {
                return sum(isa, data);
            }
        }
        sum(kipp_kernels::isa::scalar::Scalar, data)
    }
}
