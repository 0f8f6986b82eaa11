//! Prepared weights: a matrix re-laid so that one load holds the same columns of 16 rows.
//!
//! ```text
//! matrix  = panels of 16 rows (the last padded by zero rows), one after the other
//! panel   = blocks of columns, ascending (K padded to whole blocks by zero groups)
//! block   = the scales of its 16 rows first, then lines of 64 bytes: one u32 word a row
//! word    = 4 codes of a byte | 8 nibbles, in the order of the file | 16 codes of two bits | 2 bf16 or f16 | 1 f32
//! ```
//!
//! A kernel touches a panel's bytes in strictly ascending order, which the memory prefetcher needs. Nothing of a group
//! is lost or changed: [`decode_row`] takes the file's groups back out and decodes them by their definition.

mod coded;
mod codes;
mod dense;
mod scales;

pub use coded::{Coded, CodedWeights};
pub(crate) use coded::{add_scaled, byte_dots};
pub use codes::{CodeLines, CodeProducts, U2, U3, U4, U4Table, U5, U6, U8};
pub use dense::{DenseBf16, DenseF16, DenseF32};
pub use scales::{ByteOf16, FourBitMinOf16, Head, Scaling, Single, SingleMin, SixBit, SixBitMin, SixBitOf16};

use bytemuck::{Pod, Zeroable};

use crate::activations::CodedGroup;
use crate::isa::{Isa, LANES};
use crate::schemes::{Scheme, SchemeVisitor, WeightScheme, groups};

/// Rows of a panel: the lanes of a vector.
pub const PANEL_ROWS: usize = LANES;

/// The columns of the widest block, a multiple of those of all others.
pub(crate) const MAX_BLOCK_COLS: usize = 256;

/// The most groups that a block has of one row.
const MAX_BLOCK_GROUPS: usize = 2;

/// How the groups of some schemes lie in a block, and how lanes read them.
pub trait TileKind: 'static {
    /// The file's group.
    type Group: Pod;
    /// Where the group's f16 scales and minimums begin: weights of codes are finite where these are.
    const F16_AT: &'static [usize] = &[];
    /// Columns of a block.
    const BLOCK_COLS: usize;
    /// Groups of a block and row, two at most.
    const BLOCK_GROUPS: usize;
    /// Bytes of a block of 16 rows.
    const BLOCK_BYTES: usize;
    /// Whether [`TileKind::dot`] exists: dense weights have no codes.
    const CODED: bool;

    /// Puts one row's groups, `[BLOCK_GROUPS]`, into a block.
    fn store_lane(block: &mut [u8], lane: usize, groups: &[Self::Group]);

    /// Takes one row's groups, `[BLOCK_GROUPS]`, out of a block.
    fn load_lane(block: &[u8], lane: usize, groups: &mut [Self::Group]);

    /// Gives the block's weights by pairs of columns, ascending: index of the pair, even column, odd column, exactly
    /// as the scheme decodes them.
    fn pairs<I: Isa>(isa: I, block: &[u8], each: impl FnMut(usize, I::F32, I::F32));

    /// Adds the block's products with s8 activations (`x`, one [`CodedGroup`] for each 32 columns) to the sums of `N`
    /// tokens: exact integers inside a group, one f32 fused multiply-add a group (one more for a minimum), groups
    /// ascending.
    fn dot<I: Isa, const N: usize>(isa: I, block: &[u8], x: &[CodedGroup<N>], sums: &mut [I::F32; N]);
}

/// The lines of a block, 64 bytes each.
#[inline(always)]
fn lines(block: &[u8]) -> &[[u8; 64]] {
    block.as_chunks().0
}

/// A token's word, in every lane.
#[inline(always)]
pub(crate) fn splat_word<I: Isa>(isa: I, word: [u8; 4]) -> I::I32 {
    isa.splat_word(i32::from_le_bytes(word))
}

/// A token's f32, in every lane.
#[inline(always)]
pub(crate) fn splat<I: Isa>(isa: I, word: [u8; 4]) -> I::F32 {
    isa.splat(f32::from_le_bytes(word))
}

/// One lane's word of a line.
fn word_mut(block: &mut [u8], line: usize, lane: usize) -> &mut [u8] {
    &mut block[line * 64 + lane * 4..][..4]
}

/// One lane's word of a line.
fn word(block: &[u8], line: usize, lane: usize) -> &[u8] {
    &block[line * 64 + lane * 4..][..4]
}

/// Where the parts of a prepared matrix lie. Sizes in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TileLayout {
    scheme: Scheme,
    rows: usize,
    cols: usize,
    panel_bytes: usize,
    bytes: usize,
}

impl TileLayout {
    /// The layout of `[rows, cols]` weights; `None` when `cols` is no whole number of groups or a size overflows.
    pub fn new(scheme: Scheme, rows: usize, cols: usize) -> Option<TileLayout> {
        scheme.row_bytes(cols)?.checked_mul(rows)?;
        let panel_bytes = scheme.visit(PanelBytes { cols })?;
        let bytes = panel_bytes.checked_mul(rows.div_ceil(PANEL_ROWS))?;
        Some(TileLayout { scheme, rows, cols, panel_bytes, bytes })
    }

    /// How the weights are stored.
    pub fn scheme(&self) -> Scheme {
        self.scheme
    }

    /// Rows of the matrix: outputs.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Columns of the matrix: inputs.
    pub fn cols(&self) -> usize {
        self.cols
    }

    /// Panels of 16 rows.
    pub fn panels(&self) -> usize {
        self.rows.div_ceil(PANEL_ROWS)
    }

    /// Bytes of one panel; panel `p` begins at `p * panel_bytes()`.
    pub fn panel_bytes(&self) -> usize {
        self.panel_bytes
    }

    /// Bytes of all panels.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

/// A prepared matrix.
#[derive(Clone, Copy)]
pub struct Tiles<'a> {
    /// Its shape and scheme.
    pub layout: &'a TileLayout,
    /// Its panels, `layout.bytes()` long.
    pub bytes: &'a [u8],
}

struct PanelBytes {
    cols: usize,
}

impl SchemeVisitor for PanelBytes {
    type Output = Option<usize>;

    fn visit<S: WeightScheme>(self) -> Option<usize> {
        self.cols.div_ceil(S::Tile::BLOCK_COLS).checked_mul(S::Tile::BLOCK_BYTES)
    }
}

/// Prepares one panel. `src` is the whole matrix as the file has it, row-major; `dst` is the panel's bytes.
///
/// # Panics
/// If a length is not the layout's.
pub fn prepare_panel(layout: &TileLayout, src: &[u8], panel: usize, dst: &mut [u8]) {
    let row_bytes = layout.scheme.row_bytes(layout.cols).unwrap_or(0);
    assert_eq!(src.len(), row_bytes * layout.rows, "weights of another shape");
    assert_eq!(dst.len(), layout.panel_bytes, "room of another size");
    let first = (panel * PANEL_ROWS).min(layout.rows);
    let end = (first + PANEL_ROWS).min(layout.rows);
    let rows = &src[first * row_bytes..end * row_bytes];
    layout.scheme.visit(PreparePanel { rows, row_bytes, dst });
}

struct PreparePanel<'a> {
    rows: &'a [u8],
    row_bytes: usize,
    dst: &'a mut [u8],
}

impl SchemeVisitor for PreparePanel<'_> {
    type Output = ();

    fn visit<S: WeightScheme>(self) {
        let in_block = S::Tile::BLOCK_GROUPS;
        for lane in 0..PANEL_ROWS {
            let start = (lane * self.row_bytes).min(self.rows.len());
            let row = &self.rows[start..(start + self.row_bytes).min(self.rows.len())];
            let row = groups::<S>(row);
            let blocks = self.dst.chunks_exact_mut(S::Tile::BLOCK_BYTES);
            for (b, block) in blocks.enumerate() {
                let from = (b * in_block).min(row.len());
                let present = &row[from..(from + in_block).min(row.len())];
                let mut padded = [S::Group::zeroed(); MAX_BLOCK_GROUPS];
                padded[..present.len()].copy_from_slice(present);
                S::Tile::store_lane(block, lane, &padded[..in_block]);
            }
        }
    }
}

/// Decodes one row of a prepared matrix: exactly what [`Scheme::decode_row`] gives for the row in the file.
///
/// # Panics
/// If `row` is outside the matrix or a length is not the layout's.
pub fn decode_row(layout: &TileLayout, tiles: &[u8], row: usize, out: &mut [f32]) {
    assert!(row < layout.rows, "row {row} of {}", layout.rows);
    assert_eq!(tiles.len(), layout.bytes, "tiles of another shape");
    assert_eq!(out.len(), layout.cols, "a row of another width");
    let panel = &tiles[row / PANEL_ROWS * layout.panel_bytes..][..layout.panel_bytes];
    layout.scheme.visit(DecodeRow { panel, lane: row % PANEL_ROWS, out });
}

struct DecodeRow<'a> {
    panel: &'a [u8],
    lane: usize,
    out: &'a mut [f32],
}

impl SchemeVisitor for DecodeRow<'_> {
    type Output = ();

    fn visit<S: WeightScheme>(self) {
        let mut groups = [S::Group::zeroed(); MAX_BLOCK_GROUPS];
        let groups = &mut groups[..S::Tile::BLOCK_GROUPS];
        let blocks = self.panel.chunks_exact(S::Tile::BLOCK_BYTES);
        for (block, out) in blocks.zip(self.out.chunks_mut(S::Tile::BLOCK_COLS)) {
            S::Tile::load_lane(block, self.lane, groups);
            for (group, out) in groups.iter().zip(out.chunks_exact_mut(S::GROUP_LEN)) {
                S::decode(group, out);
            }
        }
    }
}
