//! Matrix products: prepared weights times coded activations, one algorithm for one token and for five hundred.
//!
//! ```text
//! for each panel of 16 rows:                        the panel leaves memory once
//!     for each block of tokens, for each tile of N tokens that fits in registers:
//!         sums[N] = 0                               16 rows in lanes, N tokens in registers
//!         for each block of columns, ascending:     one weight vector serves N tokens
//!             sums[t] += weights * x[t]
//!         store sums
//! ```
//!
//! Nothing is ever added across lanes and each (row, token) has one chain of additions, in an order that depends on K
//! alone: so the number of tokens, the tile and the instruction set cannot change a bit. Floats go by pairs of columns,
//! the odd one first, as the bf16 dot products of the hardware do.

use std::ops::Range;

use crate::activations::{Activations, CodedLayout, GROUP_COLS, GROUP_WORDS};
use crate::columns::Columns;
use crate::isa::Isa;
use crate::schemes::{SchemeVisitor, WeightScheme};
use crate::tile::{PANEL_ROWS, TileKind, Tiles, TokenRows};

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
    weights.scheme().visit(Product { isa, tiles, layout, coded, panels, out });
}

/// The product over no columns.
fn fill_zero(mut out: Columns<'_>) {
    for row in 0..out.rows() {
        out.row_mut(row).fill(0.0);
    }
}

struct Product<'a, I> {
    isa: I,
    tiles: Tiles<'a>,
    layout: &'a CodedLayout,
    coded: &'a [u8],
    panels: Range<usize>,
    out: Columns<'a>,
}

impl<I: Isa> SchemeVisitor for Product<'_, I> {
    type Output = ();

    fn visit<S: WeightScheme>(self) {
        let coded = self.layout.activations() == Activations::S8;
        assert!(S::Tile::CODED || !coded, "{} weights have no product with s8 activations", S::NAME);
        if coded {
            self.isa.vectorize(
                #[inline(always)]
                || self.panels::<S::Tile, true>(),
            );
        } else {
            self.isa.vectorize(
                #[inline(always)]
                || self.panels::<S::Tile, false>(),
            );
        }
    }
}

impl<I: Isa> Product<'_, I> {
    #[inline(always)]
    fn panels<T: TileKind, const CODED: bool>(mut self) {
        let panel_bytes = self.tiles.layout.panel_bytes();
        let bytes = &self.tiles.bytes[self.panels.start * panel_bytes..];
        for (p, panel) in bytes.chunks_exact(panel_bytes).take(self.panels.len()).enumerate() {
            for block in 0..self.layout.blocks() {
                self.tokens::<T, CODED>(panel, p * PANEL_ROWS, block);
            }
        }
    }

    /// One panel times one token block, by the largest register tiles that fit.
    #[inline(always)]
    fn tokens<T: TileKind, const CODED: bool>(&mut self, panel: &[u8], column: usize, block: usize) {
        let most = if CODED { I::CODED_TOKENS } else { I::DENSE_TOKENS };
        let range = self.layout.block_range(block);
        let mut x = TokenRows { words: self.layout.block(self.coded, block), tokens: range.len(), first: 0 };
        while x.first < range.len() {
            let at = (range.start + x.first, column);
            let left = (range.len() - x.first).min(most);
            x.first += match left {
                12.. if most >= 12 => self.tile::<T, CODED, 12>(panel, x, at),
                8.. if most >= 8 => self.tile::<T, CODED, 8>(panel, x, at),
                6.. if most >= 6 => self.tile::<T, CODED, 6>(panel, x, at),
                4.. if most >= 4 => self.tile::<T, CODED, 4>(panel, x, at),
                2.. if most >= 2 => self.tile::<T, CODED, 2>(panel, x, at),
                _ => self.tile::<T, CODED, 1>(panel, x, at),
            };
        }
    }

    /// One register tile, 16 rows x `N` tokens, stored at (token, column). Returns `N`.
    #[inline(always)]
    fn tile<T: TileKind, const CODED: bool, const N: usize>(
        &mut self,
        panel: &[u8],
        x: TokenRows<'_>,
        (token, column): (usize, usize),
    ) -> usize {
        let isa = self.isa;
        let sums: [I::F32; N] =
            if CODED { coded::<I, T, N>(isa, panel, x) } else { dense::<I, T, N>(isa, panel, x) };
        for (t, sums) in sums.iter().enumerate() {
            let row = &mut self.out.row_mut(token + t)[column..];
            match row.first_chunk_mut() {
                Some(full) => isa.store(full, *sums),
                None => isa.store_partial(row, *sums),
            }
        }
        N
    }
}

/// One chain of fused multiply-adds a (row, token): pairs of columns ascending, odd before even.
#[inline(always)]
fn dense<I: Isa, T: TileKind, const N: usize>(isa: I, panel: &[u8], x: TokenRows<'_>) -> [I::F32; N] {
    let mut sums = [isa.splat(0.0); N];
    let words = x.words.chunks_exact(T::BLOCK_COLS * x.tokens);
    for (block, words) in panel.chunks_exact(T::BLOCK_BYTES).zip(words) {
        let x = TokenRows { words, ..x };
        T::pairs(
            isa,
            block,
            #[inline(always)]
            |pair, even, odd| {
                let (x_even, x_odd) = (x.row::<N>(2 * pair), x.row::<N>(2 * pair + 1));
                for t in 0..N {
                    sums[t] = isa.fma(odd, isa.splat(f32::from_le_bytes(x_odd[t])), sums[t]);
                }
                for t in 0..N {
                    sums[t] = isa.fma(even, isa.splat(f32::from_le_bytes(x_even[t])), sums[t]);
                }
            },
        );
    }
    sums
}

/// Exact integers inside a group, one chain of f32 over the groups.
#[inline(always)]
fn coded<I: Isa, T: TileKind, const N: usize>(isa: I, panel: &[u8], x: TokenRows<'_>) -> [I::F32; N] {
    let mut sums = [isa.splat(0.0); N];
    let words = x.words.chunks_exact(T::BLOCK_COLS / GROUP_COLS * GROUP_WORDS * x.tokens);
    for (block, words) in panel.chunks_exact(T::BLOCK_BYTES).zip(words) {
        T::dot(isa, block, TokenRows { words, ..x }, &mut sums);
    }
    sums
}
