//! Reading GGUF: versions 2 and 3, little-endian, whole or in parts.
//!
//! The header is a count of tensors, a count of metadata entries, the entries, then one description a tensor; the data
//! follows at the next multiple of the alignment. Everything is checked here: a [`GgufFile`] holds only tensors that
//! lie inside the file, disjoint, with sizes that fit. What the metadata *means* is read in `spec` and
//! `vocabulary`; which tensors a model needs is decided by the binding.

mod error;
pub(crate) mod metadata;
pub(crate) mod spec;
mod split;
mod types;
pub(crate) mod vocabulary;
pub mod writer;

use std::collections::HashSet;

pub use error::GgufError;
pub(crate) use split::{open_parts, parts};

use super::cursor::Cursor;
use super::escaped::Escaped;
use super::map::Bytes;
use super::tensor::TensorEntry;
use metadata::{Metadata, ends};
use types::TensorType;

/// The first four bytes of every file.
pub(crate) const MAGIC: &[u8; 4] = b"GGUF";
/// Alignment where the file names none, as the format says.
pub(crate) const DEFAULT_ALIGNMENT: u64 = 32;
/// The format asks for a multiple of 8; no writer needs more than a page or a huge-page fraction.
const ALIGNMENT_RANGE: std::ops::RangeInclusive<u64> = 8..=65_536;
/// Longest tensor name, as the format says.
const MAX_NAME_BYTES: u64 = 64;
/// Fewest bytes of a tensor's description: name length, one byte, dimension count, one dimension, type, offset.
const MIN_TENSOR_BYTES: u64 = 8 + 1 + 4 + 8 + 4 + 8;

/// The checked header of one GGUF file.
#[derive(Clone, Debug)]
pub struct GgufFile {
    pub(crate) bytes: Bytes,
    pub(crate) metadata: Metadata,
    pub(crate) tensors: Vec<TensorEntry>,
    version: u32,
}

/// A tensor's description, not yet compared with the file's size.
struct Description<'a> {
    name: &'a str,
    /// In the file's order: innermost first.
    dimensions: Vec<u64>,
    kind: TensorType,
    size: u64,
    offset: u64,
}

impl GgufFile {
    /// Reads and checks a header.
    pub fn parse(bytes: Bytes) -> Result<GgufFile, GgufError> {
        let mut cursor = Cursor::new(&bytes);
        let version = read_version(&mut cursor)?;
        let tensor_count = cursor.u64().map_err(|end| ends("the header", end))?;
        let metadata_count = cursor.u64().map_err(|end| ends("the header", end))?;
        if tensor_count > cursor.left() as u64 / MIN_TENSOR_BYTES {
            return Err(GgufError::TensorCount { count: tensor_count, left: cursor.left() });
        }
        let metadata = Metadata::read(&bytes, &mut cursor, metadata_count)?;
        let alignment = metadata.unsigned("general.alignment")?.unwrap_or(DEFAULT_ALIGNMENT);
        if !ALIGNMENT_RANGE.contains(&alignment) || !alignment.is_power_of_two() {
            let (min, max) = (*ALIGNMENT_RANGE.start(), *ALIGNMENT_RANGE.end());
            return Err(GgufError::Alignment { value: alignment, min, max });
        }

        let mut names = HashSet::new();
        let mut descriptions = Vec::new();
        for _ in 0..tensor_count {
            let description = read_description(&mut cursor)?;
            if !names.insert(description.name) {
                return Err(GgufError::DuplicateTensor { tensor: description.name.into() });
            }
            descriptions.push(description);
        }
        let tensors = place(&descriptions, alignment, cursor.offset(), bytes.len())?;
        Ok(GgufFile { metadata, tensors, version, bytes: bytes.clone() })
    }

    /// The format's version: 2 or 3.
    pub fn version(&self) -> u32 {
        self.version
    }

    /// Number of tensors.
    pub fn tensor_count(&self) -> usize {
        self.tensors.len()
    }
}

fn read_version(cursor: &mut Cursor<'_>) -> Result<u32, GgufError> {
    let end = |end| ends("the header", end);
    let magic: [u8; 4] = cursor.array().map_err(end)?;
    if &magic != MAGIC {
        return Err(GgufError::Magic { found: Escaped::bytes(&magic) });
    }
    match cursor.u32().map_err(end)? {
        version @ 2..=3 => Ok(version),
        version if (1..=3).contains(&version.swap_bytes()) => {
            Err(GgufError::BigEndian { version: version.swap_bytes() })
        }
        version => Err(GgufError::Version { version }),
    }
}

fn read_description<'a>(cursor: &mut Cursor<'a>) -> Result<Description<'a>, GgufError> {
    let length = cursor.u64().map_err(|end| ends("a tensor name", end))?;
    let offset = cursor.offset();
    if length == 0 || length > MAX_NAME_BYTES {
        return Err(GgufError::NameLength { offset, length, limit: MAX_NAME_BYTES });
    }
    let name = cursor.take(length).map_err(|end| ends("a tensor name", end))?;
    let name = std::str::from_utf8(name)
        .map_err(|_| GgufError::NameNotUtf8 { offset, tensor: Escaped::bytes(name) })?;

    let end = |end| ends(name, end);
    let count = cursor.u32().map_err(end)?;
    if !(1..=4).contains(&count) {
        return Err(GgufError::Dimensions { tensor: name.into(), found: count });
    }
    let mut dimensions = Vec::with_capacity(4);
    for _ in 0..count {
        dimensions.push(cursor.u64().map_err(end)?);
    }
    let id = cursor.u32().map_err(end)?;
    let offset = cursor.u64().map_err(end)?;
    let kind = TensorType::from_id(id).ok_or_else(|| match TensorType::removed(id) {
        Some(removed) => GgufError::RemovedType { tensor: name.into(), id, name: removed },
        None => GgufError::UnknownType { tensor: name.into(), id },
    })?;
    let size = size_bytes(name, &dimensions, kind)?;
    Ok(Description { name, dimensions, kind, size, offset })
}

fn size_bytes(name: &str, dimensions: &[u64], kind: TensorType) -> Result<u64, GgufError> {
    if let Some(dimension) = dimensions.iter().position(|&d| d == 0) {
        return Err(GgufError::ZeroDimension { tensor: name.into(), dimension });
    }
    let cols = dimensions[0];
    if !cols.is_multiple_of(kind.group_len) {
        return Err(GgufError::PartialGroup {
            tensor: name.into(),
            cols,
            scheme: kind.name,
            group: kind.group_len,
        });
    }
    // Both the bytes and the number of weights must fit; a tensor of 4-bit weights has more weights than bytes.
    let overflow = || GgufError::SizeOverflow { tensor: name.into(), shape: dimensions.to_vec() };
    let weights = dimensions.iter().try_fold(1u64, |size, &d| size.checked_mul(d)).ok_or_else(overflow)?;
    (weights / kind.group_len).checked_mul(kind.group_bytes).ok_or_else(overflow)
}

/// Compares every tensor with the file's size and with its neighbours.
fn place(
    descriptions: &[Description<'_>],
    alignment: u64,
    header_bytes: usize,
    file_bytes: usize,
) -> Result<Vec<TensorEntry>, GgufError> {
    let data_start = header_bytes.next_multiple_of(alignment as usize); // both far below the word size
    let data_bytes = file_bytes.saturating_sub(data_start);
    let mut tensors = Vec::with_capacity(descriptions.len());
    for d in descriptions {
        if !d.offset.is_multiple_of(alignment) {
            return Err(GgufError::Misaligned { tensor: d.name.into(), offset: d.offset, alignment });
        }
        // Compared with what is left, so that no sum can wrap.
        let inside = d.offset <= data_bytes as u64 && d.size <= data_bytes as u64 - d.offset;
        if !inside {
            return Err(GgufError::OutsideFile {
                tensor: d.name.into(),
                offset: d.offset,
                size: d.size,
                data_bytes,
                file_bytes,
            });
        }
        let start = data_start + d.offset as usize;
        tensors.push(TensorEntry {
            name: d.name.to_owned(),
            scheme: d.kind.scheme(),
            type_name: d.kind.name,
            shape: d.dimensions.iter().rev().map(|&d| d as usize).collect(),
            file: 0,
            range: start..start + d.size as usize,
        });
    }
    check_disjoint(&tensors)?;
    Ok(tensors)
}

fn check_disjoint(tensors: &[TensorEntry]) -> Result<(), GgufError> {
    let mut order: Vec<&TensorEntry> = tensors.iter().collect();
    order.sort_by_key(|tensor| tensor.range.start);
    for pair in order.windows(2) {
        if pair[1].range.start < pair[0].range.end {
            return Err(GgufError::Overlap {
                first: pair[0].name.as_str().into(),
                second: pair[1].name.as_str().into(),
            });
        }
    }
    Ok(())
}
