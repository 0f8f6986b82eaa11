//! Every way in which a GGUF file can be wrong.

use crate::artifact::escaped::Escaped;

/// Why a GGUF file is refused. Offsets and sizes are in bytes.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum GgufError {
    /// The file does not begin with the format's mark.
    #[error("not a GGUF file: it begins with {found:?}")]
    Magic {
        /// The first bytes.
        found: Escaped,
    },
    /// A big-endian file.
    #[error("the file is big-endian (version {version}); Kipp reads little-endian GGUF")]
    BigEndian {
        /// The version, read as big-endian.
        version: u32,
    },
    /// A version that is not read.
    #[error("GGUF version {version} is not supported (2 and 3 are)")]
    Version {
        /// The version found.
        version: u32,
    },
    /// More metadata entries than bytes for them.
    #[error("the file claims {count} metadata entries, but {left} bytes are left")]
    MetadataCount {
        /// Entries claimed.
        count: u64,
        /// Bytes left.
        left: usize,
    },
    /// More tensors than bytes for their descriptions.
    #[error("the file claims {count} tensors, but {left} bytes are left")]
    TensorCount {
        /// Tensors claimed.
        count: u64,
        /// Bytes left.
        left: usize,
    },
    /// The file ends inside its header.
    #[error("the file ends inside {what}: at offset {offset} {wanted} bytes are needed, {left} are left")]
    Truncated {
        /// What was being read.
        what: Escaped,
        /// Where.
        offset: usize,
        /// Bytes needed, as the file claims.
        wanted: u64,
        /// Bytes left.
        left: usize,
    },
    /// A metadata key of no length.
    #[error("the metadata key at offset {offset} is empty")]
    EmptyKey {
        /// Where the key should be.
        offset: usize,
    },
    /// A metadata key longer than the format allows, or than the file.
    #[error("the metadata key at offset {offset} claims {length} bytes (at most {limit})")]
    KeyLength {
        /// Where the key begins.
        offset: usize,
        /// Bytes claimed.
        length: u64,
        /// What is possible here.
        limit: u64,
    },
    /// A metadata key that is not UTF-8.
    #[error("the metadata key {key} at offset {offset} is not UTF-8")]
    KeyNotUtf8 {
        /// Where the key begins.
        offset: usize,
        /// The key.
        key: Escaped,
    },
    /// A metadata key that occurs twice.
    #[error("the metadata key {key} occurs twice")]
    DuplicateKey {
        /// The key.
        key: Escaped,
    },
    /// A value type that the format does not have.
    #[error("{key}: value type {id} does not exist")]
    ValueType {
        /// The key.
        key: Escaped,
        /// The type's id.
        id: u32,
    },
    /// A string longer than what is left of the file.
    #[error("{key}: a string of {length} bytes is claimed, {left} are left")]
    StringLength {
        /// The key.
        key: Escaped,
        /// Bytes claimed.
        length: u64,
        /// Bytes left.
        left: usize,
    },
    /// A string that is not UTF-8.
    #[error("{key}: the string {value} is not UTF-8")]
    StringNotUtf8 {
        /// The key.
        key: Escaped,
        /// The string.
        value: Escaped,
    },
    /// An array longer than what is left of the file.
    #[error("{key}: an array of {count} items is claimed, {left} bytes are left")]
    ArrayLength {
        /// The key.
        key: Escaped,
        /// Items claimed.
        count: u64,
        /// Bytes left.
        left: usize,
    },
    /// Arrays in arrays, too deep.
    #[error("{key}: arrays are nested more than {limit} deep")]
    ArrayDepth {
        /// The key.
        key: Escaped,
        /// The bound.
        limit: usize,
    },
    /// A truth value that is neither 0 nor 1.
    #[error("{key}: {value} is neither 0 nor 1")]
    Bool {
        /// The key.
        key: Escaped,
        /// The byte found.
        value: u8,
    },
    /// `general.alignment` is no usable alignment.
    #[error("general.alignment is {value}; it must be a power of two from {min} to {max}")]
    Alignment {
        /// The value found.
        value: u64,
        /// Smallest alignment.
        min: u64,
        /// Largest alignment.
        max: u64,
    },
    /// A tensor name that is empty or too long.
    #[error("the tensor name at offset {offset} claims {length} bytes (1 to {limit})")]
    NameLength {
        /// Where the name begins.
        offset: usize,
        /// Bytes claimed.
        length: u64,
        /// What the format allows.
        limit: u64,
    },
    /// A tensor name that is not UTF-8.
    #[error("the tensor name {tensor} at offset {offset} is not UTF-8")]
    NameNotUtf8 {
        /// Where the name begins.
        offset: usize,
        /// The name.
        tensor: Escaped,
    },
    /// A tensor name that occurs twice.
    #[error("the tensor {tensor} occurs twice")]
    DuplicateTensor {
        /// The tensor.
        tensor: Escaped,
    },
    /// A number of dimensions outside 1 to 4.
    #[error("tensor {tensor}: {found} dimensions (1 to 4 are possible)")]
    Dimensions {
        /// The tensor.
        tensor: Escaped,
        /// Dimensions claimed.
        found: u32,
    },
    /// A dimension of zero.
    #[error("tensor {tensor}: dimension {dimension} is zero")]
    ZeroDimension {
        /// The tensor.
        tensor: Escaped,
        /// Which, from 0.
        dimension: usize,
    },
    /// The size does not fit 64 bits.
    #[error("tensor {tensor}: the size of {shape:?} overflows")]
    SizeOverflow {
        /// The tensor.
        tensor: Escaped,
        /// Its dimensions, in the file's order.
        shape: Vec<u64>,
    },
    /// A tensor type that does not exist.
    #[error("tensor {tensor}: tensor type {id} is unknown")]
    UnknownType {
        /// The tensor.
        tensor: Escaped,
        /// The type's id.
        id: u32,
    },
    /// A tensor type that the format dropped.
    #[error(
        "tensor {tensor}: tensor type {id} ({name}) was removed from the format; convert the model again"
    )]
    RemovedType {
        /// The tensor.
        tensor: Escaped,
        /// The type's id.
        id: u32,
        /// Its former name.
        name: &'static str,
    },
    /// Rows that are no whole number of groups.
    #[error("tensor {tensor}: rows of {cols} weights are no whole number of {scheme} groups of {group}")]
    PartialGroup {
        /// The tensor.
        tensor: Escaped,
        /// Weights in a row.
        cols: u64,
        /// The tensor type.
        scheme: &'static str,
        /// Weights in a group.
        group: u64,
    },
    /// A tensor that does not begin at a multiple of the alignment.
    #[error("tensor {tensor}: offset {offset} is no multiple of the alignment {alignment}")]
    Misaligned {
        /// The tensor.
        tensor: Escaped,
        /// Its offset in the data.
        offset: u64,
        /// The alignment.
        alignment: u64,
    },
    /// A tensor that reaches beyond the file.
    #[error(
        "tensor {tensor}: {size} bytes at data offset {offset} reach beyond the file \
         ({data_bytes} bytes of data, file of {file_bytes})"
    )]
    OutsideFile {
        /// The tensor.
        tensor: Escaped,
        /// Its offset in the data.
        offset: u64,
        /// Its size.
        size: u64,
        /// Bytes of data in the file.
        data_bytes: usize,
        /// Bytes of the whole file.
        file_bytes: usize,
    },
    /// Two tensors share bytes.
    #[error("tensors {first} and {second} share bytes")]
    Overlap {
        /// One.
        first: Escaped,
        /// The other.
        second: Escaped,
    },
    /// A required metadata key is absent.
    #[error("the metadata key {key} is absent")]
    MissingKey {
        /// The key.
        key: Escaped,
    },
    /// A metadata value of another type than its key demands.
    #[error("{key}: expected {expected}, found {found}")]
    WrongType {
        /// The key.
        key: Escaped,
        /// What the key demands.
        expected: &'static str,
        /// What was found.
        found: &'static str,
    },
    /// A metadata value out of its range.
    #[error("{key}: {value} is out of range ({expected})")]
    OutOfRange {
        /// The key.
        key: Escaped,
        /// The value.
        value: Escaped,
        /// What is possible.
        expected: &'static str,
    },
    /// A setting that would change the results and that Kipp does not implement.
    #[error("{key}: {value} is not supported ({supported})")]
    Unsupported {
        /// The key.
        key: Escaped,
        /// The value.
        value: Escaped,
        /// What is.
        supported: &'static str,
    },
    /// The file is one part of several and cannot be found from here.
    #[error("part {part} of {count}: {reason}")]
    Split {
        /// Which part, from 1.
        part: u64,
        /// Parts in all.
        count: u64,
        /// What is wrong.
        reason: &'static str,
    },
    /// The parts together do not hold the tensors that the first one promises.
    #[error("the parts hold {found} tensors, split.tensors.count says {expected}")]
    SplitTensors {
        /// What the first part says.
        expected: u64,
        /// What was found.
        found: u64,
    },
}
