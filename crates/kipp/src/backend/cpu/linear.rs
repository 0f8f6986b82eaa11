//! Matrix products: one coded input, many matrices, rows of weights divided among the threads.

use kipp_kernels::activations::{CodedLayout, Coding};
use kipp_kernels::columns::Columns;
use kipp_kernels::kernels::Kernels;
use kipp_kernels::tile::{self, PANEL_ROWS, TileLayout, Tiles};

use super::memory::{Place, WeightMemory};
use super::threads::Pool;
use super::{CpuBackend, CpuRows};
use crate::artifact::Matrix;
use crate::backend::{BackendError, Product};

/// Parts that each thread gets of a product, so that one that is disturbed does not keep the others waiting.
const PARTS_A_THREAD: usize = 16;

/// Panels that a part has at least where many tokens are multiplied: each reads all of the coded input, which does not
/// fit in the L2 cache then.
const PART_PANELS: usize = 8;
const FEW_TOKENS: usize = 32;

/// A matrix, re-laid once for the lanes.
pub struct CpuMatrix {
    layout: TileLayout,
    tiles: Place,
    coding: Coding,
}

impl CpuMatrix {
    /// Re-lays `matrix`, panels divided among the threads.
    pub(super) fn prepare(
        matrix: &Matrix<'_>,
        coding: Coding,
        pool: &mut Pool,
        memory: &mut WeightMemory,
    ) -> Result<CpuMatrix, BackendError> {
        let Some(layout) = TileLayout::new(matrix.scheme, matrix.rows, matrix.cols) else {
            return Err(BackendError::Unsupported {
                tensor: matrix.name.to_owned(),
                backend: "cpu",
                scheme: matrix.scheme.name(),
                rows: matrix.rows,
                cols: matrix.cols,
            });
        };
        let (tiles, bytes) = memory.take(layout.bytes(), matrix.name)?;
        let panels = bytes.chunks_exact_mut(layout.panel_bytes()).enumerate();
        pool.for_each(panels, |_, (panel, dst)| tile::prepare_panel(&layout, matrix.bytes, panel, dst));
        Ok(CpuMatrix { layout, tiles, coding })
    }

    /// One row as f32, exactly as the scheme decodes it.
    pub(super) fn decode_row(&self, row: usize, out: &mut [f32]) {
        tile::decode_row(&self.layout, self.tiles.bytes(), row, out);
    }

    fn tiles(&self) -> Tiles<'_> {
        Tiles { layout: &self.layout, bytes: self.tiles.bytes() }
    }
}

/// The buffer of the coded input; 64-byte units keep it aligned for the lanes.
#[derive(Default)]
pub(super) struct CodedInput {
    lines: Vec<Line>,
}

#[derive(Clone, Copy, bytemuck::Zeroable, bytemuck::Pod)]
#[repr(C, align(64))]
struct Line([u8; 64]);

impl CodedInput {
    fn bytes_mut(&mut self, len_bytes: usize) -> &mut [u8] {
        let lines = len_bytes.div_ceil(size_of::<Line>());
        if self.lines.len() < lines {
            self.lines.resize(lines, Line([0; 64]));
        }
        &mut bytemuck::cast_slice_mut(&mut self.lines)[..len_bytes]
    }
}

/// `out = x * matrix^T` for each product; matrices with the same coding share the coded input.
pub(super) fn multiply(
    kernels: &dyn Kernels,
    pool: &mut Pool,
    coded: &mut CodedInput,
    x: &CpuRows,
    products: &mut [Product<'_, CpuBackend>],
) {
    let mut codings: Vec<Coding> = Vec::with_capacity(products.len());
    for product in products.iter() {
        if !codings.contains(&product.matrix.coding) {
            codings.push(product.matrix.coding);
        }
    }
    for coding in codings {
        let mut parts = Vec::new();
        for product in products.iter_mut().filter(|p| p.matrix.coding == coding) {
            let out = Columns::new(product.out.filled_mut(), product.matrix.layout.rows());
            divide(product.matrix.tiles(), out, pool.threads(), &mut parts);
        }
        if parts.is_empty() || x.rows == 0 {
            continue;
        }
        let layout = CodedLayout::new(coding, x.rows, x.width);
        let bytes = coded.bytes_mut(layout.bytes());
        let blocks = bytes.chunks_mut(layout.block_bytes()).enumerate();
        let code =
            |(block, dst): (usize, &mut [u8])| kernels.code(&layout, x.filled(), block..block + 1, dst);
        match layout.blocks() {
            1 => blocks.for_each(code),
            _ => pool.for_each(blocks, |_, part| code(part)),
        }
        let coded = &*bytes;
        pool.for_each(parts.into_iter(), |_, part: Part<'_>| {
            kernels.matmul(part.tiles, &layout, coded, part.panels, part.out);
        });
    }
}

/// Some panels of a matrix and the output columns they fill.
struct Part<'a> {
    tiles: Tiles<'a>,
    panels: std::ops::Range<usize>,
    out: Columns<'a>,
}

fn divide<'a>(tiles: Tiles<'a>, out: Columns<'a>, threads: usize, parts: &mut Vec<Part<'a>>) {
    let tokens = out.rows();
    let panels = tiles.layout.panels();
    let least = if tokens > FEW_TOKENS { PART_PANELS } else { 1 };
    let each = panels.div_ceil(threads * PARTS_A_THREAD).max(least);
    let mut rest = out;
    let mut first = 0;
    while first + each < panels {
        let (out, after) = rest.split_columns_at(each * PANEL_ROWS);
        parts.push(Part { tiles, panels: first..first + each, out });
        rest = after;
        first += each;
    }
    parts.push(Part { tiles, panels: first..panels, out: rest });
}

impl CpuBackend {
    /// Logits of some of the hidden rows, into the backend's own buffer.
    pub(super) fn head_product(&mut self, hidden: &CpuRows, rows: std::ops::Range<usize>, head: &CpuMatrix) {
        let width = hidden.width;
        let x = CpuRows {
            data: hidden.data[rows.start * width..rows.end * width].to_vec(),
            rows: rows.len(),
            width,
        };
        let vocab_size = head.layout.rows();
        let mut logits = std::mem::replace(&mut self.logits, CpuRows { data: Vec::new(), rows: 0, width: 0 });
        logits.width = vocab_size;
        logits.rows = x.rows;
        logits.data.resize(logits.data.len().max(x.rows * vocab_size), 0.0);
        let products = &mut [Product { matrix: head, out: &mut logits }];
        multiply(self.kernels, &mut self.pool, &mut self.coded, &x, products);
        self.logits = logits;
    }
}
