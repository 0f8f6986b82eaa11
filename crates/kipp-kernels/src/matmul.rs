//! Matrix products: prepared weights times coded activations, one algorithm for one token and for five hundred.
//!
//! ```text
//! for each stretch of tokens whose coded input fits in half of the L2 cache:
//!     for each panel of 16 rows:                        the panel leaves memory once
//!         for each tile of N tokens of the stretch:
//!             sums[N] = 0                               16 rows in lanes, N tokens in registers
//!             for each block of columns, ascending:     one weight vector serves N tokens
//!                 sums[t] += weights * x[t]
//!             store sums
//! ```
//!
//! Nothing is ever added across lanes and each (row, token) has one chain of additions, in an order that depends on K
//! alone: so the number of tokens, the tile and the instruction set cannot change a bit. Floats go by pairs of columns,
//! the odd one first, as the bf16 dot products of the hardware do.

use std::ops::Range;

use crate::activations::{CodedLayout, DECODED_TOKENS, GROUP_COLS, GROUP_ROWS, Words};
use crate::columns::Columns;
use crate::isa::Isa;
use crate::schemes::{Scheme, SchemeVisitor, WeightScheme};
use crate::tile::{PANEL_ROWS, TileKind, Tiles, splat, splat_word};

/// Bytes of coded input that a part of a matrix is multiplied with before the next are taken: half of the smallest L2
/// cache that matters (1 MiB, Zen 4), the other half being for the part's panels.
const STRETCH_BYTES: usize = 512 << 10;

/// Multiplies the rows of `panels` with all coded tokens. `out` is `[tokens, rows of those panels]`.
pub(crate) fn matmul<I: Isa>(
    isa: I,
    tiles: Tiles<'_>,
    layout: &CodedLayout,
    coded: &[u8],
    panels: Range<usize>,
    out: Columns<'_>,
) {
    let weights = tiles.layout;
    let rows = (panels.start * PANEL_ROWS).min(weights.rows())..(panels.end * PANEL_ROWS).min(weights.rows());
    assert_eq!(weights.cols(), layout.cols(), "weights and activations of different widths");
    assert_eq!(tiles.bytes.len(), weights.bytes(), "tiles of another shape");
    assert_eq!(coded.len(), layout.bytes(), "activations of another shape");
    assert_eq!(out.rows(), layout.tokens(), "an output of another height");
    assert_eq!(out.width(), rows.len(), "an output of another width");
    if rows.is_empty() || weights.panel_bytes() == 0 {
        return fill_zero(out);
    }
    let bytes = &tiles.bytes[panels.start * weights.panel_bytes()..panels.end * weights.panel_bytes()];
    weights.scheme().visit(Product {
        isa,
        scheme: weights.scheme(),
        bytes,
        panel_bytes: weights.panel_bytes(),
        layout,
        coded,
        out,
    });
}

/// The product over no columns.
fn fill_zero(mut out: Columns<'_>) {
    for row in 0..out.rows() {
        out.row_mut(row).fill(0.0);
    }
}

struct Product<'a, I> {
    isa: I,
    scheme: Scheme,
    /// The panels to multiply.
    bytes: &'a [u8],
    panel_bytes: usize,
    layout: &'a CodedLayout,
    coded: &'a [u8],
    out: Columns<'a>,
}

impl<I: Isa> SchemeVisitor for Product<'_, I> {
    type Output = ();

    fn visit<S: WeightScheme>(self) {
        let (isa, words) = (self.isa, self.layout.coding().words);
        assert!(S::Tile::CODED || words != Words::S8, "{} weights have no codes", S::NAME);
        assert!(self.scheme == Scheme::Bf16 || words != Words::Bf16Pairs, "{} is not bf16", S::NAME);
        isa.vectorize(
            #[inline(always)]
            || match words {
                Words::S8 => self.run::<S::Tile, Codes>(),
                Words::Bf16Pairs => self.run::<S::Tile, Pairs>(),
                Words::F32 | Words::Bf16 => self.run::<S::Tile, Floats>(),
            },
        );
    }
}

impl<I: Isa> Product<'_, I> {
    #[inline(always)]
    fn run<T: TileKind, P: Inner<I, T>>(mut self) {
        let (panels, blocks) = (self.bytes.len() / self.panel_bytes, self.layout.blocks());
        let stretch = (STRETCH_BYTES / self.layout.block_bytes()).max(1);
        for first in (0..blocks).step_by(stretch) {
            let stretch = first..blocks.min(first + stretch);
            let mut panel = 0;
            // One chain of additions is slower than memory; two panels at once have two.
            while P::TWO_CHAINS && self.layout.tokens() <= TWO_CHAIN_TOKENS && panel + 2 <= panels {
                self.panels::<T, P, 2>(panel, stretch.clone());
                panel += 2;
            }
            for panel in panel..panels {
                self.panels::<T, P, 1>(panel, stretch.clone());
            }
        }
    }

    /// `R` panels times the tokens of some blocks.
    #[inline(always)]
    fn panels<T: TileKind, P: Inner<I, T>, const R: usize>(&mut self, first: usize, blocks: Range<usize>) {
        let bytes = &self.bytes[first * self.panel_bytes..];
        let panels: [&[u8]; R] = std::array::from_fn(|r| &bytes[r * self.panel_bytes..][..self.panel_bytes]);
        let ahead = Ahead::of(self.layout.tokens(), self.panel_bytes);
        let last = (blocks.end * self.layout.coding().tile_tokens).min(self.layout.tokens());
        let largest = const { P::LARGEST };
        for tile in self.layout.tiles(blocks) {
            let ahead = ahead.bytes(tile.end == last);
            let small = R > 1;
            match tile.len() {
                24 if largest >= 24 && !small => self.tile::<T, P, R, 24>(panels, tile.start, ahead, first),
                12 if largest >= 12 && !small => self.tile::<T, P, R, 12>(panels, tile.start, ahead, first),
                8 if largest >= 8 && !small => self.tile::<T, P, R, 8>(panels, tile.start, ahead, first),
                6 if largest >= 6 && !small => self.tile::<T, P, R, 6>(panels, tile.start, ahead, first),
                4 => self.tile::<T, P, R, 4>(panels, tile.start, ahead, first),
                2 => self.tile::<T, P, R, 2>(panels, tile.start, ahead, first),
                1 => self.tile::<T, P, R, 1>(panels, tile.start, ahead, first),
                tokens => unreachable!("a tile of {tokens} tokens"),
            }
        }
    }

    /// One register tile: `R` panels x `N` tokens from `token` on.
    #[inline(always)]
    fn tile<T: TileKind, P: Inner<I, T>, const R: usize, const N: usize>(
        &mut self,
        panels: [&[u8]; R],
        token: usize,
        ahead: usize,
        panel: usize,
    ) {
        let bytes = self.layout.token_bytes();
        let x = self.coded[token * bytes..(token + N) * bytes].as_chunks::<4>().0.as_chunks::<N>().0;
        let sums: [[I::F32; N]; R] = P::sums(self.isa, panels, x, ahead);
        for t in 0..N {
            let row = &mut self.out.row_mut(token + t)[panel * PANEL_ROWS..];
            for r in 0..R {
                let row = &mut row[(r * PANEL_ROWS)..];
                match row.first_chunk_mut() {
                    Some(full) => self.isa.store(full, sums[r][t]),
                    None => self.isa.store_partial(row, sums[r][t]),
                }
            }
        }
    }
}

/// Tokens up to which two panels at once are multiplied where a chain of additions would be the limit.
const TWO_CHAIN_TOKENS: usize = 4;

/// How far ahead of their use a panel's bytes are asked for.
#[derive(Clone, Copy)]
enum Ahead {
    /// The hardware's own prefetching does better.
    No,
    /// So many bytes, which reach into the next panel.
    Bytes(usize),
    /// The next panel, while the last tokens are multiplied: until then the caches hold this one.
    NextPanel(usize),
}

impl Ahead {
    fn of(tokens: usize, panel_bytes: usize) -> Ahead {
        match tokens {
            1 => Ahead::Bytes(1 << 10),
            2..=4 => Ahead::No,
            5..=12 => Ahead::Bytes(8 << 10),
            _ => Ahead::NextPanel(panel_bytes),
        }
    }

    /// The distance for a tile; zero for none.
    fn bytes(self, last: bool) -> usize {
        match self {
            Ahead::Bytes(bytes) => bytes,
            Ahead::NextPanel(bytes) if last => bytes,
            Ahead::No | Ahead::NextPanel(_) => 0,
        }
    }
}

/// The inner loop over the columns, one implementation a kind of words.
trait Inner<I: Isa, T: TileKind> {
    /// Tokens of the largest tile.
    const LARGEST: usize;
    /// Whether one token is bound by its chain of additions.
    const TWO_CHAINS: bool;

    /// The sums of `R` panels (all their blocks) and `N` tokens, `x` being the rows of their tile.
    fn sums<const R: usize, const N: usize>(
        isa: I,
        panels: [&[u8]; R],
        x: &[[[u8; 4]; N]],
        ahead: usize,
    ) -> [[I::F32; N]; R];
}

/// Asks for what lies `ahead` bytes after a block, if anything.
#[inline(always)]
fn prefetch<I: Isa>(isa: I, block: &[u8], ahead: usize) {
    if ahead > 0 {
        for line in (0..block.len()).step_by(64) {
            isa.prefetch(block, ahead + line);
        }
    }
}

/// Floats: one chain of fused multiply-adds a (row, token), pairs of columns ascending, odd before even.
struct Floats;

impl<I: Isa, T: TileKind> Inner<I, T> for Floats {
    const LARGEST: usize = if T::CODED { DECODED_TOKENS } else { I::DENSE_TOKENS };
    const TWO_CHAINS: bool = !T::CODED;

    #[inline(always)]
    fn sums<const R: usize, const N: usize>(
        isa: I,
        panels: [&[u8]; R],
        x: &[[[u8; 4]; N]],
        ahead: usize,
    ) -> [[I::F32; N]; R] {
        let mut sums = [[isa.splat(0.0); N]; R];
        let mut blocks = panels.map(|panel| panel.chunks_exact(T::BLOCK_BYTES));
        for x in x.chunks_exact(T::BLOCK_COLS) {
            for (sums, blocks) in sums.iter_mut().zip(&mut blocks) {
                let Some(block) = blocks.next() else { break };
                prefetch(isa, block, ahead);
                T::pairs(
                    isa,
                    block,
                    #[inline(always)]
                    |pair, even, odd| {
                        for t in 0..N {
                            sums[t] = isa.fma(odd, splat(isa, x[2 * pair + 1][t]), sums[t]);
                        }
                        for t in 0..N {
                            sums[t] = isa.fma(even, splat(isa, x[2 * pair][t]), sums[t]);
                        }
                    },
                );
            }
        }
        sums
    }
}

/// Pairs of bf16: the same chain, two links an instruction. A block of bf16 weights is one line of words.
struct Pairs;

impl<I: Isa, T: TileKind> Inner<I, T> for Pairs {
    const LARGEST: usize = I::DENSE_TOKENS;
    const TWO_CHAINS: bool = true;

    #[inline(always)]
    fn sums<const R: usize, const N: usize>(
        isa: I,
        panels: [&[u8]; R],
        x: &[[[u8; 4]; N]],
        ahead: usize,
    ) -> [[I::F32; N]; R] {
        let mut sums = [[isa.splat(0.0); N]; R];
        let mut lines = panels.map(|panel| panel.as_chunks::<64>().0.iter());
        for x in x {
            for (sums, lines) in sums.iter_mut().zip(&mut lines) {
                let Some(line) = lines.next() else { break };
                prefetch(isa, line, ahead);
                let weights = isa.load_words(line);
                for t in 0..N {
                    sums[t] = isa.bf16_dot(sums[t], weights, splat_word(isa, x[t]));
                }
            }
        }
        sums
    }
}

/// Codes: exact integers inside a group, one chain of f32 over the groups.
struct Codes;

impl<I: Isa, T: TileKind> Inner<I, T> for Codes {
    const LARGEST: usize = I::CODED_TOKENS;
    const TWO_CHAINS: bool = false;

    #[inline(always)]
    fn sums<const R: usize, const N: usize>(
        isa: I,
        panels: [&[u8]; R],
        x: &[[[u8; 4]; N]],
        ahead: usize,
    ) -> [[I::F32; N]; R] {
        let mut sums = [[isa.splat(0.0); N]; R];
        let mut blocks = panels.map(|panel| panel.chunks_exact(T::BLOCK_BYTES));
        for x in x.as_chunks::<GROUP_ROWS>().0.chunks_exact(T::BLOCK_COLS / GROUP_COLS) {
            for (sums, blocks) in sums.iter_mut().zip(&mut blocks) {
                let Some(block) = blocks.next() else { break };
                prefetch(isa, block, ahead);
                T::dot(isa, block, x, sums);
            }
        }
        sums
    }
}
