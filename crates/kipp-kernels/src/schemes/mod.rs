//! Weight schemes: how groups of weights are stored in files (ggml's byte layouts) and what they mean.
//!
//! Each scheme is one file: the byte picture and formula in its docs, a `repr(C)` group of alignment 1, `decode` (the
//! definition), `encode` (plain rounding) and `codes`. How a CPU arranges weights for its lanes is `tile`'s business.

pub mod bf16;
pub mod f16;
pub mod f32;
pub mod iq4_nl;
pub mod iq4_xs;
mod k_scales;
mod nibbles;
pub mod q2_k;
pub mod q3_k;
pub mod q4_0;
pub mod q4_1;
pub mod q4_k;
pub mod q5_0;
pub mod q5_1;
pub mod q5_k;
pub mod q6_k;
pub mod q8_0;
mod registry;

pub use registry::{Scheme, SchemeVisitor};

use bytemuck::Pod;

use crate::activations::Activations;
use crate::half::{F16_MAX_BITS, f16_to_f32, f32_to_f16};
use crate::tile::TileKind;

/// The longest group of any scheme: the super-block of the K-quants.
pub const MAX_GROUP_LEN: usize = 256;

/// One weight scheme.
pub trait WeightScheme: 'static {
    /// The name, as flags and reports spell it.
    const NAME: &'static str;
    /// The type id that GGUF files carry.
    const GGML_TYPE: u32;
    /// The number that llama.cpp gives to GGUF files by their main scheme: `general.file_type`.
    const FILE_TYPE: u32;
    /// Whether models are converted to it. Not where nothing can be encoded, and not to f32, which no checkpoint needs
    /// for its matrices.
    const CONVERTS: bool;
    /// Weights in one group: 1 for dense schemes, at most [`MAX_GROUP_LEN`].
    const GROUP_LEN: usize;
    /// Weights that share one scale and offset: 16 or 32, and 0 for dense schemes, which have no codes.
    const CODES_LEN: usize;
    /// What products with these weights make of their input unless something finer is asked for.
    const ACTIVATIONS: Activations;
    /// The bytes of one group, `repr(C)`, of alignment 1.
    type Group: Pod;
    /// How a CPU arranges these groups for its lanes.
    type Tile: TileKind<Group = Self::Group>;

    /// The definition of the scheme. `out` is `[GROUP_LEN]`.
    fn decode(group: &Self::Group, out: &mut [f32]);

    /// The group that stands for `values`, `[GROUP_LEN]` finite numbers, or `None` if the scheme is only read.
    fn encode(values: &[f32]) -> Option<Self::Group> {
        let _ = values;
        None
    }

    /// Whether every weight of the group is finite. Told from the f16 scales alone where there are codes: a scale that is
    /// not finite shows in every weight, and finite ones stay far below the largest f32 whatever the codes.
    #[inline(always)]
    fn is_finite(group: &Self::Group) -> bool {
        let bytes = bytemuck::bytes_of(group);
        Self::Tile::F16_AT.iter().fold(true, |all, &at| all & is_finite_f16([bytes[at], bytes[at + 1]]))
    }

    /// The integer codes of weights `part * CODES_LEN ..` of the group; `None` for dense schemes.
    fn codes(group: &Self::Group, part: usize) -> Option<Codes>;
}

/// Weights as integers: `w = scale * code + offset`, computed in f32 in this order.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Codes {
    /// Factor of every code.
    pub scale: f32,
    /// Added to every product.
    pub offset: f32,
    /// The codes, of which the scheme's `CODES_LEN` first count.
    pub codes: [i8; 32],
}

/// Why values cannot be encoded.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum EncodeError {
    /// A NaN or an infinity, at this index of the row.
    #[error("value {value} at index {index} is not finite")]
    NotFinite {
        /// Index in the row.
        index: usize,
        /// The offending value.
        value: f32,
    },
    /// Kipp reads this scheme but does not write it.
    #[error("the scheme {0} is read but not written")]
    ReadOnly(&'static str),
    /// The output does not have the length of the row's bytes.
    #[error("a row of {values} weights in scheme {scheme} does not make {bytes} bytes")]
    Length {
        /// Name of the scheme.
        scheme: &'static str,
        /// Values given.
        values: usize,
        /// Bytes given to write into.
        bytes: usize,
    },
}

impl Scheme {
    /// The name, as flags and reports spell it: `q8_0`.
    pub fn name(self) -> &'static str {
        self.facts().name
    }

    /// The scheme of that name.
    pub fn from_name(name: &str) -> Option<Scheme> {
        Scheme::ALL.iter().copied().find(|s| s.name() == name)
    }

    /// The type id that GGUF files carry.
    pub fn ggml_type(self) -> u32 {
        self.facts().ggml_type
    }

    /// The scheme with that GGUF type id, if it is one that Kipp reads.
    pub fn from_ggml_type(id: u32) -> Option<Scheme> {
        Scheme::ALL.iter().copied().find(|s| s.ggml_type() == id)
    }

    /// The number that GGUF files name their main scheme by: `general.file_type`.
    pub fn file_type(self) -> u32 {
        self.facts().file_type
    }

    /// Whether models are converted to it.
    pub fn converts(self) -> bool {
        self.facts().converts
    }

    /// Weights in one group (1 for dense schemes).
    pub fn group_len(self) -> usize {
        self.facts().group_len
    }

    /// Bytes of one group.
    pub fn group_bytes(self) -> usize {
        self.facts().group_bytes
    }

    /// Where the f16 scales and minimums of a group begin; none for dense schemes.
    pub fn f16_at(self) -> &'static [usize] {
        self.facts().f16_at
    }

    /// What products with these weights make of their input unless something finer is asked for: s8 for quantized
    /// weights, bf16 for bf16, f32 for f16 and f32.
    pub fn activations(self) -> Activations {
        self.facts().activations
    }

    /// True where weights are plain floats, without codes and scales.
    pub fn is_dense(self) -> bool {
        self.group_len() == 1
    }

    /// Bytes of a row of `cols` weights; `None` when `cols` is no whole number of groups or the size overflows.
    pub fn row_bytes(self, cols: usize) -> Option<usize> {
        let facts = self.facts();
        if !cols.is_multiple_of(facts.group_len) {
            return None;
        }
        (cols / facts.group_len).checked_mul(facts.group_bytes)
    }

    /// Decodes one row: the definition of the scheme, used by the oracle and by tests.
    ///
    /// `bytes` is `row_bytes(out.len())` long; what one of the two has too much is left alone.
    pub fn decode_row(self, bytes: &[u8], out: &mut [f32]) {
        self.visit(DecodeRow { bytes, out });
    }

    /// Encodes one row by plain rounding into `out`, `row_bytes(values.len())` long.
    ///
    /// # Errors
    /// A value that is not finite, a scheme that is only read, or lengths that do not belong together.
    pub fn encode_row(self, values: &[f32], out: &mut [u8]) -> Result<(), EncodeError> {
        if self.row_bytes(values.len()) != Some(out.len()) {
            let (values, bytes) = (values.len(), out.len());
            return Err(EncodeError::Length { scheme: self.name(), values, bytes });
        }
        self.visit(EncodeRow { values, out })
    }

    /// The index of the first weight of the row that decodes to NaN or infinity, if any.
    pub fn find_non_finite(self, bytes: &[u8]) -> Option<usize> {
        self.visit(FindNonFinite { bytes })
    }

    fn facts(self) -> Facts {
        self.visit(FactsOf)
    }
}

struct Facts {
    name: &'static str,
    ggml_type: u32,
    file_type: u32,
    converts: bool,
    group_len: usize,
    group_bytes: usize,
    f16_at: &'static [usize],
    activations: Activations,
}

struct FactsOf;

impl SchemeVisitor for FactsOf {
    type Output = Facts;

    #[inline]
    fn visit<S: WeightScheme>(self) -> Facts {
        Facts {
            name: S::NAME,
            ggml_type: S::GGML_TYPE,
            file_type: S::FILE_TYPE,
            converts: S::CONVERTS,
            group_len: S::GROUP_LEN,
            group_bytes: size_of::<S::Group>(),
            f16_at: S::Tile::F16_AT,
            activations: S::ACTIVATIONS,
        }
    }
}

/// The whole groups of `bytes`; a rest shorter than a group is left out.
pub(crate) fn groups<S: WeightScheme>(bytes: &[u8]) -> &[S::Group] {
    const { assert!(align_of::<S::Group>() == 1, "file bytes have no alignment") };
    const { assert!(S::GROUP_LEN <= MAX_GROUP_LEN) };
    let whole_bytes = bytes.len() / size_of::<S::Group>() * size_of::<S::Group>();
    bytemuck::cast_slice(&bytes[..whole_bytes])
}

struct DecodeRow<'a> {
    bytes: &'a [u8],
    out: &'a mut [f32],
}

impl SchemeVisitor for DecodeRow<'_> {
    type Output = ();

    fn visit<S: WeightScheme>(self) {
        for (group, out) in groups::<S>(self.bytes).iter().zip(self.out.chunks_exact_mut(S::GROUP_LEN)) {
            S::decode(group, out);
        }
    }
}

struct EncodeRow<'a> {
    values: &'a [f32],
    out: &'a mut [u8],
}

impl SchemeVisitor for EncodeRow<'_> {
    type Output = Result<(), EncodeError>;

    fn visit<S: WeightScheme>(self) -> Self::Output {
        if let Some(index) = self.values.iter().position(|v| !v.is_finite()) {
            return Err(EncodeError::NotFinite { index, value: self.values[index] });
        }
        let groups = self.out.chunks_exact_mut(size_of::<S::Group>());
        for (values, out) in self.values.chunks_exact(S::GROUP_LEN).zip(groups) {
            let group = S::encode(values).ok_or(EncodeError::ReadOnly(S::NAME))?;
            out.copy_from_slice(bytemuck::bytes_of(&group));
        }
        Ok(())
    }
}

struct FindNonFinite<'a> {
    bytes: &'a [u8],
}

/// Groups that are looked at together: enough for a loop without exits to run in vectors, at memory speed.
const GROUPS_AT_ONCE: usize = 128;

impl SchemeVisitor for FindNonFinite<'_> {
    type Output = Option<usize>;

    fn visit<S: WeightScheme>(self) -> Option<usize> {
        let groups = groups::<S>(self.bytes);
        let all_finite = |groups: &[S::Group]| groups.iter().fold(true, |all, g| all & S::is_finite(g));
        let (chunks, rest) = groups.as_chunks::<GROUPS_AT_ONCE>();
        let whole = chunks.iter().take_while(|chunk| all_finite(&chunk[..])).count();
        if whole == chunks.len() && all_finite(rest) {
            return None;
        }
        let first = groups.iter().skip(whole * GROUPS_AT_ONCE).position(|group| !S::is_finite(group))?;
        let index = whole * GROUPS_AT_ONCE + first;
        let mut decoded = [0.0f32; MAX_GROUP_LEN];
        S::decode(&groups[index], &mut decoded[..S::GROUP_LEN]);
        let offset = decoded.iter().position(|w| !w.is_finite())?;
        Some(index * S::GROUP_LEN + offset)
    }
}

/// The f16 nearest to `value`, and the largest finite one where that would be infinity: no scale that is written is
/// ever infinite. Minus zero becomes zero.
fn finite_f16(value: f32) -> u16 {
    let bits = f32_to_f16(value + 0.0);
    if bits & 0x7fff > F16_MAX_BITS { (bits & 0x8000) | F16_MAX_BITS } else { bits }
}

/// Whether a little-endian f16 of a file is neither infinite nor NaN.
#[inline(always)]
fn is_finite_f16(bytes: [u8; 2]) -> bool {
    u16::from_le_bytes(bytes) & 0x7fff <= F16_MAX_BITS
}

/// A little-endian f16 of a file, widened.
#[inline(always)]
fn read_f16(bytes: [u8; 2]) -> f32 {
    f16_to_f32(u16::from_le_bytes(bytes))
}

#[cfg(test)]
mod tests;
