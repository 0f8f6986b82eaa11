//! Every way in which a safetensors file or its index can be wrong.

use crate::artifact::escaped::Escaped;

/// Why a safetensors file is refused. Offsets and sizes are in bytes.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum SafetensorsError {
    /// Not even the header's length is there.
    #[error("the file has {file_bytes} bytes; the header's length alone takes 8")]
    TooShort {
        /// Bytes of the file.
        file_bytes: usize,
    },
    /// A header that the file does not hold, or beyond the format's bound.
    #[error("the header claims {length} bytes; at least 2 and at most {limit} are possible, {left} are left")]
    HeaderLength {
        /// Bytes claimed.
        length: u64,
        /// The format's bound.
        limit: u64,
        /// Bytes left in the file.
        left: usize,
    },
    /// A header that is not UTF-8.
    #[error("the header is not UTF-8 at offset {offset}")]
    HeaderNotUtf8 {
        /// Where in the file.
        offset: usize,
    },
    /// A header or index that is no JSON.
    #[error("malformed JSON: {reason}")]
    Json {
        /// What and where.
        reason: Escaped,
    },
    /// A header or index whose JSON is no object.
    #[error("the JSON must be an object, found {found}")]
    NotAnObject {
        /// What was found.
        found: Escaped,
    },
    /// A key (a tensor's name, usually) that occurs twice.
    #[error("{key} occurs twice")]
    DuplicateKey {
        /// The key.
        key: Escaped,
    },
    /// `__metadata__` that does not map strings to strings.
    #[error("__metadata__: {key} must be a string")]
    Metadata {
        /// The entry.
        key: Escaped,
    },
    /// A tensor's description lacks a field.
    #[error("tensor {tensor}: {field} is absent")]
    MissingField {
        /// The tensor.
        tensor: Escaped,
        /// The field.
        field: &'static str,
    },
    /// A tensor's description has a field that the format does not know.
    #[error("tensor {tensor}: the field {field} is unknown")]
    UnknownField {
        /// The tensor.
        tensor: Escaped,
        /// The field.
        field: Escaped,
    },
    /// A field of the wrong kind: a negative or broken number, a missing element.
    #[error("tensor {tensor}: {field} must be {expected}, found {found}")]
    Field {
        /// The tensor.
        tensor: Escaped,
        /// The field.
        field: &'static str,
        /// What the format demands.
        expected: &'static str,
        /// What was found.
        found: Escaped,
    },
    /// A type that the format does not have.
    #[error("tensor {tensor}: the dtype {dtype} is unknown")]
    Dtype {
        /// The tensor.
        tensor: Escaped,
        /// The type's name.
        dtype: Escaped,
    },
    /// Offsets in the wrong order.
    #[error("tensor {tensor}: it ends at {end} before it begins at {begin}")]
    OffsetOrder {
        /// The tensor.
        tensor: Escaped,
        /// First byte.
        begin: u64,
        /// Byte after the last.
        end: u64,
    },
    /// The size does not fit 64 bits.
    #[error("tensor {tensor}: the size of {shape:?} overflows")]
    SizeOverflow {
        /// The tensor.
        tensor: Escaped,
        /// Its shape.
        shape: Vec<u64>,
    },
    /// Shape and type say another size than the offsets.
    #[error("tensor {tensor}: shape and dtype need {expected} bytes, data_offsets span {found}")]
    SizeMismatch {
        /// The tensor.
        tensor: Escaped,
        /// What shape and type need.
        expected: u64,
        /// What the offsets span.
        found: u64,
    },
    /// A tensor that reaches beyond the file.
    #[error("tensor {tensor}: data {begin}..{end} reaches beyond the file ({data_bytes} bytes of data)")]
    OutsideFile {
        /// The tensor.
        tensor: Escaped,
        /// First byte of the data.
        begin: u64,
        /// Byte after the last.
        end: u64,
        /// Bytes of data in the file.
        data_bytes: usize,
    },
    /// Two tensors share bytes.
    #[error("tensors {first} and {second} share bytes")]
    Overlap {
        /// One.
        first: Escaped,
        /// The other.
        second: Escaped,
    },
    /// Bytes that belong to no tensor.
    #[error("{bytes} bytes of data at {offset} belong to no tensor")]
    Hole {
        /// Where in the data.
        offset: usize,
        /// How many.
        bytes: usize,
    },
    /// An index without its map.
    #[error("the index has no weight_map")]
    NoWeightMap,
    /// A shard name that is no plain file name.
    #[error("tensor {tensor}: the shard {shard} is no plain *.safetensors file name")]
    ShardName {
        /// The tensor.
        tensor: Escaped,
        /// The name.
        shard: Escaped,
    },
    /// A tensor that its shard does not hold.
    #[error("tensor {tensor}: the index puts it into {shard}, which does not hold it")]
    NotInShard {
        /// The tensor.
        tensor: Escaped,
        /// The shard.
        shard: Escaped,
    },
    /// A tensor that the index does not list for this shard.
    #[error("tensor {tensor}: the index does not put it into this shard")]
    NotInIndex {
        /// The tensor.
        tensor: Escaped,
    },
}
