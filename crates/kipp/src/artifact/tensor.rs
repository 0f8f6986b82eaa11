//! One tensor of a file: where it lies and what it is, whatever the format.

use std::ops::Range;

use kipp_kernels::Scheme;

/// A tensor whose range is known to lie inside its file.
#[derive(Clone, Debug)]
pub(crate) struct TensorEntry {
    /// The name that the file gives it.
    pub(crate) name: String,
    /// How its weights are stored; `None` for a type that Kipp does not read.
    pub(crate) scheme: Option<Scheme>,
    /// The type's name in the file, for refusals.
    pub(crate) type_name: &'static str,
    /// Outermost dimension first: `[rows, cols]`.
    pub(crate) shape: Vec<usize>,
    /// Which file of the artifact.
    pub(crate) file: usize,
    /// Bytes in that file.
    pub(crate) range: Range<usize>,
}

impl TensorEntry {
    /// Weights in the tensor. Does not overflow: the formats check that the bytes are there.
    pub(crate) fn len(&self) -> usize {
        self.shape.iter().product()
    }
}
