//! Reading safetensors: an 8-byte length, a JSON header of that length, then the tensors' bytes.
//!
//! The ranges must be what the format promises: inside the file, disjoint, without gaps, covering everything; a file
//! that breaks the promise could make one tensor stand for another without anybody noticing.

mod error;
mod shards;

use kipp_kernels::Scheme;

pub use error::SafetensorsError;
pub(crate) use shards::open_shards;

use super::cursor::Cursor;
use super::escaped::Escaped;
use super::json::{Json, JsonError};
use super::map::Bytes;
use super::tensor::TensorEntry;

/// Longest header, as the format's own reader has it.
const MAX_HEADER_BYTES: u64 = 100_000_000;

/// The types of the format: name, bits a value, scheme where Kipp reads it.
const DTYPES: &[(&str, u64, Option<Scheme>)] = &[
    ("BF16", 16, Some(Scheme::Bf16)),
    ("F16", 16, Some(Scheme::F16)),
    ("F32", 32, Some(Scheme::F32)),
    ("F64", 64, None),
    ("F8_E4M3", 8, None),
    ("F8_E5M2", 8, None),
    ("F8_E8M0", 8, None),
    ("F6_E2M3", 6, None),
    ("F6_E3M2", 6, None),
    ("F4", 4, None),
    ("BOOL", 8, None),
    ("U8", 8, None),
    ("I8", 8, None),
    ("U16", 16, None),
    ("I16", 16, None),
    ("U32", 32, None),
    ("I32", 32, None),
    ("U64", 64, None),
    ("I64", 64, None),
    ("C64", 64, None),
];

/// The checked header of one safetensors file.
#[derive(Clone, Debug)]
pub struct SafetensorsFile {
    pub(crate) bytes: Bytes,
    /// In the order of their data.
    pub(crate) tensors: Vec<TensorEntry>,
}

impl SafetensorsFile {
    /// Reads and checks a header.
    pub fn parse(bytes: Bytes) -> Result<SafetensorsFile, SafetensorsError> {
        let mut cursor = Cursor::new(&bytes);
        let too_short = |_| SafetensorsError::TooShort { file_bytes: bytes.len() };
        let length = cursor.u64().map_err(too_short)?;
        let left = cursor.left();
        if !(2..=MAX_HEADER_BYTES.min(left as u64)).contains(&length) {
            return Err(SafetensorsError::HeaderLength { length, limit: MAX_HEADER_BYTES, left });
        }
        let header = cursor.take(length).map_err(too_short)?;
        if let Err(error) = std::str::from_utf8(header) {
            return Err(SafetensorsError::HeaderNotUtf8 { offset: 8 + error.valid_up_to() });
        }
        let data_start = cursor.offset();
        let mut tensors = Vec::new();
        for (name, description) in object(&parse_json(header)?)? {
            if name == "__metadata__" {
                check_metadata(description)?;
            } else {
                tensors.push(read_tensor(name, description, data_start, cursor.left())?);
            }
        }
        tensors.sort_by_key(|tensor: &TensorEntry| (tensor.range.start, tensor.range.end));
        check_covering(&tensors, data_start, bytes.len())?;
        Ok(SafetensorsFile { tensors, bytes: bytes.clone() })
    }

    /// Number of tensors.
    pub fn tensor_count(&self) -> usize {
        self.tensors.len()
    }
}

fn parse_json(bytes: &[u8]) -> Result<Json, SafetensorsError> {
    Json::parse(bytes).map_err(|error| match error {
        JsonError::Syntax(reason) => SafetensorsError::Json { reason },
        JsonError::DuplicateKey(key) => SafetensorsError::DuplicateKey { key },
    })
}

fn object(json: &Json) -> Result<&[(String, Json)], SafetensorsError> {
    json.as_object().ok_or_else(|| SafetensorsError::NotAnObject { found: json.shown() })
}

fn check_metadata(metadata: &Json) -> Result<(), SafetensorsError> {
    match object(metadata)?.iter().find(|(_, value)| value.as_str().is_none()) {
        Some((key, _)) => Err(SafetensorsError::Metadata { key: key.as_str().into() }),
        None => Ok(()),
    }
}

fn read_tensor(
    name: &str,
    description: &Json,
    data_start: usize,
    data_bytes: usize,
) -> Result<TensorEntry, SafetensorsError> {
    let Description { type_name, bits, scheme, shape, begin, end } = read_description(name, description)?;
    let tensor = || Escaped::text(name);
    if end < begin {
        return Err(SafetensorsError::OffsetOrder { tensor: tensor(), begin, end });
    }
    if end > data_bytes as u64 {
        return Err(SafetensorsError::OutsideFile { tensor: tensor(), begin, end, data_bytes });
    }
    let bits = shape
        .iter()
        .try_fold(1u64, |size, &d| size.checked_mul(d))
        .and_then(|weights| weights.checked_mul(bits))
        .filter(|_| shape.iter().all(|&d| usize::try_from(d).is_ok()))
        .ok_or_else(|| SafetensorsError::SizeOverflow { tensor: tensor(), shape: shape.clone() })?;
    if bits.div_ceil(8) != end - begin {
        let (expected, found) = (bits.div_ceil(8), end - begin);
        return Err(SafetensorsError::SizeMismatch { tensor: tensor(), expected, found });
    }
    Ok(TensorEntry {
        name: name.to_owned(),
        scheme,
        type_name,
        shape: shape.iter().map(|&d| d as usize).collect(),
        file: 0,
        range: data_start + begin as usize..data_start + end as usize,
    })
}

/// A tensor's description, not yet compared with the file's size.
struct Description {
    type_name: &'static str,
    /// Bits a value.
    bits: u64,
    scheme: Option<Scheme>,
    /// Outermost dimension first.
    shape: Vec<u64>,
    /// Where its bytes lie, counted from the end of the header.
    begin: u64,
    end: u64,
}

fn read_description(name: &str, description: &Json) -> Result<Description, SafetensorsError> {
    let tensor = || Escaped::text(name);
    for (field, _) in object(description)? {
        if !["dtype", "shape", "data_offsets"].contains(&field.as_str()) {
            return Err(SafetensorsError::UnknownField { tensor: tensor(), field: field.as_str().into() });
        }
    }
    let field = |field: &'static str| {
        description.get(field).ok_or_else(|| SafetensorsError::MissingField { tensor: tensor(), field })
    };
    let broken = |field: &'static str, expected: &'static str, found: &Json| SafetensorsError::Field {
        tensor: tensor(),
        field,
        expected,
        found: found.shown(),
    };

    let dtype = field("dtype")?;
    let dtype = dtype.as_str().ok_or_else(|| broken("dtype", "a string", dtype))?;
    let (type_name, bits, scheme) = *DTYPES
        .iter()
        .find(|(name, ..)| *name == dtype)
        .ok_or_else(|| SafetensorsError::Dtype { tensor: tensor(), dtype: dtype.into() })?;

    let shape = unsigned_list(field("shape")?)
        .map_err(|found| broken("shape", "a list of numbers that are not negative", found))?;
    let offsets = field("data_offsets")?;
    let bounds = unsigned_list(offsets)
        .map_err(|found| broken("data_offsets", "two numbers that are not negative", found))?;
    let &[begin, end] = bounds.as_slice() else {
        return Err(broken("data_offsets", "two numbers that are not negative", offsets));
    };
    Ok(Description { type_name, bits, scheme, shape, begin, end })
}

/// The numbers of a list, or what stands in their place.
fn unsigned_list(json: &Json) -> Result<Vec<u64>, &Json> {
    json.as_array().ok_or(json)?.iter().map(|item| item.as_u64().ok_or(item)).collect()
}

/// Sorted tensors must follow each other without gap or overlap, to the end of the file.
fn check_covering(
    tensors: &[TensorEntry],
    data_start: usize,
    file_bytes: usize,
) -> Result<(), SafetensorsError> {
    let mut at = data_start;
    let mut last = None::<&TensorEntry>;
    for tensor in tensors {
        if tensor.range.start > at {
            return Err(SafetensorsError::Hole { offset: at - data_start, bytes: tensor.range.start - at });
        }
        if tensor.range.start < at {
            let first = last.map_or("", |tensor| tensor.name.as_str()).into();
            return Err(SafetensorsError::Overlap { first, second: tensor.name.as_str().into() });
        }
        at = tensor.range.end;
        last = Some(tensor);
    }
    if at < file_bytes {
        return Err(SafetensorsError::Hole { offset: at - data_start, bytes: file_bytes - at });
    }
    Ok(())
}
