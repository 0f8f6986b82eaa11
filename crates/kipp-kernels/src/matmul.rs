//! Matrix products: prepared weights times coded activations, one algorithm for one token and for five hundred.
//!
//! ```text
//! for each stretch of tokens whose coded input fits in half of the L2 cache:
//!     for each panel of 16 rows:                        the panel leaves memory once
//!         for each stretch of columns, ascending:       its weights stay in the L1 cache
//!             for each tile of N tokens of the stretch:
//!                 load sums[N], or zero                 16 rows in lanes, N tokens in registers
//!                 for each block of columns, ascending: one weight vector serves N tokens
//!                     sums[t] += weights * x[t]
//!                 store sums                            to the output and back: exact
//! ```
//!
//! Nothing is ever added across lanes and each (row, token) has one chain of additions, in an order that depends on K
//! alone: so the number of tokens, the tile and the instruction set cannot change a bit. Floats go by pairs of columns,
//! the odd one first, as the bf16 dot products of the hardware do.

use std::ops::Range;

use crate::activations::{CodedLayout, DECODED_TOKENS, GROUP_COLS, GROUP_ROWS, PADDED_COLS, Words};
use crate::columns::Columns;
use crate::isa::{Isa, LANES};
use crate::processor::prefetch_ahead;
use crate::schemes::{Scheme, SchemeVisitor, WeightScheme};
use crate::tile::{DenseBf16, MAX_BLOCK_COLS, PANEL_ROWS, TileKind, Tiles, splat, splat_word};

/// Bytes of coded input that a part of a matrix is multiplied with before the next are taken: half of the smallest L2
/// cache that matters (1 MiB, Zen 4), the other half being for the part's panels.
const STRETCH_BYTES: usize = 512 << 10;

/// Bytes of a panel and of a tile's coded input that are multiplied at once where many tokens meet a panel, so that the
/// panel's stay in the L1 cache: the smallest that matters is 32 KiB.
const L1_BYTES: usize = 32 << 10;

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
    let panel_bytes = weights.panel_bytes();
    match layout.coding().words {
        Words::Bf16Pairs if I::HAS_BF16_DOT => {
            assert!(weights.scheme() == Scheme::Bf16, "{} is not bf16", weights.scheme().name());
            let product = Product { isa, bytes, panel_bytes, layout, coded, out };
            isa.vectorize(
                #[inline(always)]
                || product.run::<DenseBf16, Pairs>(),
            );
        }
        Words::Bf16Pairs => unreachable!("pairs for a class without dot products of pairs"),
        Words::S8 => {
            let isa = isa.of_codes();
            weights.scheme().visit(OfCodes(Product { isa, bytes, panel_bytes, layout, coded, out }));
        }
        Words::F32 | Words::Bf16 => {
            let isa = isa.of_floats();
            weights.scheme().visit(OfFloats(Product { isa, bytes, panel_bytes, layout, coded, out }));
        }
    }
}

/// The product over no columns.
fn fill_zero(mut out: Columns<'_>) {
    for row in 0..out.rows() {
        out.row_mut(row).fill(0.0);
    }
}

struct Product<'a, I> {
    isa: I,
    /// The panels to multiply.
    bytes: &'a [u8],
    panel_bytes: usize,
    layout: &'a CodedLayout,
    coded: &'a [u8],
    out: Columns<'a>,
}

/// The product of codes.
struct OfCodes<'a, I>(Product<'a, I>);

impl<I: Isa> SchemeVisitor for OfCodes<'_, I> {
    type Output = ();

    fn visit<S: WeightScheme>(self) {
        assert!(S::Tile::CODED, "{} weights have no codes", S::NAME);
        self.0.isa.vectorize(
            #[inline(always)]
            || self.0.run::<S::Tile, Codes>(),
        );
    }
}

/// The product of floats.
struct OfFloats<'a, I>(Product<'a, I>);

impl<I: Isa> SchemeVisitor for OfFloats<'_, I> {
    type Output = ();

    fn visit<S: WeightScheme>(self) {
        self.0.isa.vectorize(
            #[inline(always)]
            || self.0.run::<S::Tile, Floats>(),
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
        let tiles = self.layout.tiles(blocks.clone()).count();
        let cols = self.layout.padded_cols();
        let stretch = if tiles > 2 { self.l1_cols() } else { cols };
        for start in (0..cols).step_by(stretch) {
            let cols = start..cols.min(start + stretch);
            for (turn, tile) in self.layout.tiles(blocks.clone()).enumerate() {
                let ahead = Ahead::of(self.layout.tokens(), self.panel_bytes, turn, tiles);
                self.tile_of::<T, P, R>(first, tile, cols.clone(), ahead);
            }
        }
    }

    /// Columns whose weights and coded input fill the L1 cache: whole blocks of every kind.
    fn l1_cols(&self) -> usize {
        let tile_bytes = self.layout.block_bytes() + self.panel_bytes;
        (L1_BYTES * self.layout.padded_cols() / tile_bytes / MAX_BLOCK_COLS).max(1) * MAX_BLOCK_COLS
    }

    #[inline(always)]
    fn tile_of<T: TileKind, P: Inner<I, T>, const R: usize>(
        &mut self,
        panel: usize,
        tokens: Range<usize>,
        cols: Range<usize>,
        ahead: Ahead,
    ) {
        let at = At { panel, token: tokens.start, cols, ahead };
        // Constant conditions keep tiles that never come from being compiled.
        match tokens.len() {
            24 if const { P::LARGEST >= 24 && R == 1 } => self.tile::<T, P, R, 24>(at),
            12 if const { P::LARGEST >= 12 && R == 1 } => self.tile::<T, P, R, 12>(at),
            8 if const { P::LARGEST >= 8 && R == 1 } => self.tile::<T, P, R, 8>(at),
            6 if const { P::LARGEST >= 6 && R == 1 } => self.tile::<T, P, R, 6>(at),
            4 => self.tile::<T, P, R, 4>(at),
            2 => self.tile::<T, P, R, 2>(at),
            1 => self.tile::<T, P, R, 1>(at),
            tokens => unreachable!("a tile of {tokens} tokens"),
        }
    }

    /// One register tile: `R` panels x `N` tokens over some columns.
    #[inline(always)]
    fn tile<T: TileKind, P: Inner<I, T>, const R: usize, const N: usize>(&mut self, at: At) {
        let At { panel, token, cols, ahead } = at;
        let of_panel = |col: usize| col / T::BLOCK_COLS * T::BLOCK_BYTES;
        let end = of_panel(cols.end).min(self.panel_bytes);
        let panels: [&[u8]; R] = std::array::from_fn(
            #[inline(always)]
            |r| &self.bytes[(panel + r) * self.panel_bytes..][of_panel(cols.start)..end],
        );
        let padded_bytes = N * self.layout.token_bytes() / (self.layout.padded_cols() / PADDED_COLS);
        let of_tile = |col: usize| col / PADDED_COLS * padded_bytes;
        let x = &self.coded[token * self.layout.token_bytes()..][of_tile(cols.start)..of_tile(cols.end)];
        let x = x.as_chunks::<4>().0.as_chunks::<N>().0;
        // Through a buffer of whole lanes: loops over the output's rows, in which tails are told apart, would keep the sums
        // themselves in memory.
        let mut lanes = [[[0.0; PANEL_ROWS]; N]; R];
        if cols.start > 0 {
            for t in 0..N {
                let row = &self.out.row_mut(token + t)[panel * PANEL_ROWS..];
                for (lanes, row) in lanes.iter_mut().zip(row.chunks(PANEL_ROWS)) {
                    match row.first_chunk() {
                        Some(full) => lanes[t] = *full,
                        None => lanes[t][..row.len()].copy_from_slice(row),
                    }
                }
            }
        }
        let mut sums = [[self.isa.splat(0.0); N]; R];
        for r in 0..R {
            for t in 0..N {
                sums[r][t] = self.isa.load(&lanes[r][t]);
            }
        }
        let sums = P::add::<R, N>(self.isa, panels, x, ahead, sums);
        for r in 0..R {
            for t in 0..N {
                self.isa.store(&mut lanes[r][t], sums[r][t]);
            }
        }
        for t in 0..N {
            let row = &mut self.out.row_mut(token + t)[panel * PANEL_ROWS..];
            for (lanes, row) in lanes.iter().zip(row.chunks_mut(PANEL_ROWS)) {
                match row.first_chunk_mut() {
                    Some(full) => *full = lanes[t],
                    None => row.copy_from_slice(&lanes[t][..row.len()]),
                }
            }
        }
    }
}

/// Where a register tile lies.
struct At {
    /// The first of its panels.
    panel: usize,
    /// The first of its tokens.
    token: usize,
    cols: Range<usize>,
    ahead: Ahead,
}

/// Tokens up to which two panels at once are multiplied where a chain of additions would be the limit.
const TWO_CHAIN_TOKENS: usize = 4;

/// Which blocks of a panel ask for bytes ahead of their use, and how far ahead: the next panel, if a panel is multiplied
/// several times, each time asking for its share.
#[derive(Clone, Copy)]
struct Ahead {
    bytes: usize,
    /// Blocks until the next one that asks.
    wait: usize,
    /// Of so many blocks one asks.
    every: usize,
}

impl Ahead {
    /// For the `turn`-th of so many tiles that are multiplied with one panel.
    fn of(tokens: usize, panel_bytes: usize, turn: usize, tiles: usize) -> Ahead {
        let (bytes, wait, every) = match tokens {
            0..=12 => match prefetch_ahead(tokens) {
                0 => (0, usize::MAX, 1),
                bytes => (bytes, 0, 1),
            },
            _ => (panel_bytes, turn, tiles),
        };
        Ahead { bytes, wait, every }
    }

    /// Asks, if it is this block's turn.
    #[inline(always)]
    fn prefetch<I: Isa>(&mut self, isa: I, block: &[u8]) {
        if self.wait > 0 {
            self.wait -= 1;
            return;
        }
        self.wait = self.every - 1;
        for line in (0..block.len()).step_by(64) {
            isa.prefetch(block, self.bytes + line);
        }
    }
}

/// The inner loop over the columns, one implementation a kind of words.
trait Inner<I: Isa, T: TileKind> {
    /// Tokens of the largest tile.
    const LARGEST: usize;
    /// Whether one token is bound by its chain of additions.
    const TWO_CHAINS: bool;

    /// Adds the products of some blocks of `R` panels with `N` tokens, `x` being the rows of their tile that meet them.
    fn add<const R: usize, const N: usize>(
        isa: I,
        panels: [&[u8]; R],
        x: &[[[u8; 4]; N]],
        ahead: Ahead,
        sums: [[I::F32; N]; R],
    ) -> [[I::F32; N]; R];
}

/// Floats: one chain of fused multiply-adds a (row, token), pairs of columns ascending, odd before even.
struct Floats;

impl<I: Isa, T: TileKind> Inner<I, T> for Floats {
    const LARGEST: usize = if T::CODED { DECODED_TOKENS } else { I::DENSE_TOKENS };
    const TWO_CHAINS: bool = !T::CODED;

    #[inline(always)]
    fn add<const R: usize, const N: usize>(
        isa: I,
        panels: [&[u8]; R],
        x: &[[[u8; 4]; N]],
        mut ahead: Ahead,
        mut sums: [[I::F32; N]; R],
    ) -> [[I::F32; N]; R] {
        if T::CODED {
            for (sums, panel) in sums.iter_mut().zip(panels) {
                *sums = add_decoded::<I, T, N>(isa, panel, x, *sums);
            }
            return sums;
        }
        let mut blocks = panels.map(|panel| panel.chunks_exact(T::BLOCK_BYTES));
        for x in x.chunks_exact(T::BLOCK_COLS) {
            for (sums, blocks) in sums.iter_mut().zip(&mut blocks) {
                let Some(block) = blocks.next() else { break };
                ahead.prefetch(isa, block);
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

/// The columns of 16 rows as lines of f32.
type DecodedBlock = [[f32; LANES]; MAX_BLOCK_COLS];

/// Coded weights that meet floats: decoded block by block, so that the code that decodes exists once a scheme and not
/// once for each number of tokens. A path for gates.
#[inline(always)]
fn add_decoded<I: Isa, T: TileKind, const N: usize>(
    isa: I,
    panel: &[u8],
    x: &[[[u8; 4]; N]],
    mut sums: [I::F32; N],
) -> [I::F32; N] {
    let mut decoded: DecodedBlock = [[0.0; LANES]; MAX_BLOCK_COLS];
    for (block, x) in panel.chunks_exact(T::BLOCK_BYTES).zip(x.chunks_exact(T::BLOCK_COLS)) {
        decode_block::<I, T>(isa, block, &mut decoded);
        for (weights, x) in decoded.as_chunks::<2>().0.iter().zip(x.as_chunks::<2>().0) {
            for column in [1, 0] {
                for t in 0..N {
                    sums[t] = isa.fma(isa.load(&weights[column]), splat(isa, x[column][t]), sums[t]);
                }
            }
        }
    }
    sums
}

#[inline(never)]
fn decode_block<I: Isa, T: TileKind>(isa: I, block: &[u8], decoded: &mut DecodedBlock) {
    isa.vectorize(
        #[inline(always)]
        || {
            T::pairs(
                isa,
                block,
                #[inline(always)]
                |pair, even, odd| {
                    isa.store(&mut decoded[2 * pair], even);
                    isa.store(&mut decoded[2 * pair + 1], odd);
                },
            );
        },
    );
}

/// Pairs of bf16: the same chain, two links an instruction. A block of bf16 weights is one line of words.
struct Pairs;

impl<I: Isa, T: TileKind> Inner<I, T> for Pairs {
    const LARGEST: usize = I::DENSE_TOKENS;
    const TWO_CHAINS: bool = true;

    #[inline(always)]
    fn add<const R: usize, const N: usize>(
        isa: I,
        panels: [&[u8]; R],
        x: &[[[u8; 4]; N]],
        mut ahead: Ahead,
        mut sums: [[I::F32; N]; R],
    ) -> [[I::F32; N]; R] {
        let mut lines = panels.map(|panel| panel.as_chunks::<64>().0.iter());
        for x in x {
            for (sums, lines) in sums.iter_mut().zip(&mut lines) {
                let Some(line) = lines.next() else { break };
                ahead.prefetch(isa, line);
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
    fn add<const R: usize, const N: usize>(
        isa: I,
        panels: [&[u8]; R],
        x: &[[[u8; 4]; N]],
        mut ahead: Ahead,
        mut sums: [[I::F32; N]; R],
    ) -> [[I::F32; N]; R] {
        let mut blocks = panels.map(|panel| panel.chunks_exact(T::BLOCK_BYTES));
        for x in x.as_chunks::<GROUP_ROWS>().0.chunks_exact(T::BLOCK_COLS / GROUP_COLS) {
            for (sums, blocks) in sums.iter_mut().zip(&mut blocks) {
                let Some(block) = blocks.next() else { break };
                ahead.prefetch(isa, block);
                T::dot(isa, block, x, sums);
            }
        }
        sums
    }
}
