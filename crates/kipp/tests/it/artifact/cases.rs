//! The malformed files themselves: each a name, its bytes and the error that it must meet.

use kipp::artifact::gguf::GgufError as G;
use kipp::artifact::safetensors::SafetensorsError as S;

use super::raw::{Gguf, safetensors};

/// One malformed file.
pub(crate) struct Case<E> {
    pub(crate) name: &'static str,
    pub(crate) bytes: Vec<u8>,
    pub(crate) expected: fn(&E) -> bool,
}

macro_rules! case {
    ($name:literal, $bytes:expr, $expected:pat $(if $guard:expr)?) => {
        Case { name: $name, bytes: $bytes, expected: |error| matches!(error, $expected $(if $guard)?) }
    };
}

/// A header with one entry, cut off after its key.
fn entry(key: &[u8], kind: u32) -> Gguf {
    Gguf::new(3, 0, 1).key(key, kind)
}

/// A file with one tensor and 64 bytes of data.
fn tensor(name: &[u8], dimensions: &[u64], kind: u32, offset: u64) -> Vec<u8> {
    Gguf::new(3, 1, 0).tensor(name, dimensions, kind, offset).data(64)
}

pub(crate) fn nested_arrays(depth: usize) -> Vec<u8> {
    let arrays = (0..depth).fold(entry(b"k", 9), |gguf, _| gguf.u32(9).u64(1));
    arrays.u32(0).u64(1).raw(&[7]).end()
}

fn header_cases() -> Vec<Case<G>> {
    vec![
        case!("empty", vec![], G::Truncated { offset: 0, .. }),
        case!("magic-only", b"GGUF".to_vec(), G::Truncated { offset: 4, .. }),
        case!("wrong-magic", b"GGML\x03\0\0\0 and more".to_vec(), G::Magic { .. }),
        case!("control-bytes-as-magic", b"\x1b[2J\x03\0\0\0".to_vec(), G::Magic { found } if found == "\\u{1b}[2J"),
        case!("version-0", Gguf::new(0, 0, 0).end(), G::Version { version: 0 }),
        case!("version-1", Gguf::new(1, 0, 1).u32(0).u32(4).u32(1).end(), G::Version { version: 1 }),
        case!("version-4", Gguf::new(4, 0, 0).end(), G::Version { version: 4 }),
        case!("big-endian", Gguf::new(3u32.swap_bytes(), 0, 0).end(), G::BigEndian { version: 3 }),
        case!("tensor-count-2-63", Gguf::new(3, 1 << 63, 0).end(), G::TensorCount { .. }),
        case!(
            "tensor-count-one-too-many",
            Gguf::new(3, 2, 0).tensor(b"t", &[1], 0, 0).end(),
            G::TensorCount { .. }
        ),
        case!("metadata-count-2-62", Gguf::new(3, 0, 1 << 62).end(), G::MetadataCount { .. }),
        case!("key-length-max", Gguf::new(3, 0, 1).u64(u64::MAX).raw(&[0; 16]).end(), G::KeyLength { .. }),
        case!(
            "key-length-beyond-file",
            Gguf::new(3, 0, 1).u64(60_000).raw(&[b'k'; 16]).end(),
            G::Truncated { .. }
        ),
        case!("key-empty", entry(b"", 4).u32(1).raw(&[0; 8]).end(), G::EmptyKey { .. }),
        case!("key-not-utf8", entry(b"a\xff", 4).u32(1).end(), G::KeyNotUtf8 { key, .. } if key == "a\\xff"),
        case!("key-twice", Gguf::new(3, 0, 2).number("k", 1).number("k", 2).end(), G::DuplicateKey { key } if key == "k"),
        case!("value-type-13", entry(b"k", 13).u64(0).end(), G::ValueType { id: 13, .. }),
        case!("value-type-max", entry(b"k", u32::MAX).u64(0).end(), G::ValueType { .. }),
        case!(
            "string-length-2-62",
            entry(b"k", 8).u64(1 << 62).raw(b"abc").end(),
            G::StringLength { left: 3, .. }
        ),
        case!("string-not-utf8", entry(b"k", 8).string(b"\xc3\x28").end(), G::StringNotUtf8 { .. }),
        case!(
            "array-of-bytes-2-60",
            entry(b"k", 9).u32(0).u64(1 << 60).raw(&[0; 9]).end(),
            G::ArrayLength { .. }
        ),
        case!(
            "array-of-strings-2-60",
            entry(b"k", 9).u32(8).u64(1 << 60).u64(0).end(),
            G::ArrayLength { .. }
        ),
        case!(
            "array-of-strings-64-mib",
            entry(b"k", 9).u32(8).u64(1 << 26).u64(0).end(),
            G::ArrayLength { .. }
        ),
        case!("array-item-type-13", entry(b"k", 9).u32(13).u64(1).u64(0).end(), G::ValueType { .. }),
        case!(
            "array-item-string-too-long",
            entry(b"k", 9).u32(8).u64(1).u64(99).end(),
            G::StringLength { .. }
        ),
        case!("array-nested-32-deep", nested_arrays(32), G::ArrayDepth { .. }),
        case!("bool-2", entry(b"k", 7).raw(&[2]).raw(&[0; 8]).end(), G::Bool { value: 2, .. }),
        case!("value-cut-off", entry(b"key", 10).u32(1).end(), G::Truncated { what, .. } if what == "key"),
        case!(
            "alignment-0",
            Gguf::new(3, 0, 1).number("general.alignment", 0).end(),
            G::Alignment { value: 0, .. }
        ),
        case!("alignment-3", Gguf::new(3, 0, 1).number("general.alignment", 3).end(), G::Alignment { .. }),
        case!(
            "alignment-2-30",
            Gguf::new(3, 0, 1).number("general.alignment", 1 << 30).end(),
            G::Alignment { .. }
        ),
        case!(
            "alignment-string",
            Gguf::new(3, 0, 1).text("general.alignment", "32").end(),
            G::WrongType { .. }
        ),
        case!(
            "alignment-negative",
            entry(b"general.alignment", 5).u32((-32i32).cast_unsigned()).end(),
            G::OutOfRange { .. }
        ),
        case!("no-architecture", Gguf::new(3, 0, 1).number("k", 1).end(), G::MissingKey { .. }),
        case!(
            "architecture-llama",
            Gguf::new(3, 0, 1).text("general.architecture", "llama").end(),
            G::Unsupported { .. }
        ),
        case!(
            "architecture-number",
            Gguf::new(3, 0, 1).number("general.architecture", 3).end(),
            G::WrongType { .. }
        ),
        case!(
            "second-part",
            Gguf::new(3, 0, 2).number("split.no", 1).number("split.count", 2).end(),
            G::Split { part: 2, count: 2, .. }
        ),
        case!(
            "part-of-unknown-name",
            Gguf::new(3, 0, 2).number("split.no", 0).number("split.count", 2).end(),
            G::Split { part: 1, count: 2, .. }
        ),
        case!("parts-2-32", Gguf::new(3, 0, 1).number("split.count", u32::MAX).end(), G::OutOfRange { .. }),
        case!(
            "parts-without-number",
            Gguf::new(3, 0, 1).number("split.count", 2).end(),
            G::MissingKey { .. }
        ),
    ]
}

fn tensor_cases() -> Vec<Case<G>> {
    let two = |second: &[u8], offset: u64| {
        Gguf::new(3, 2, 0).tensor(b"a", &[16], 0, 0).tensor(second, &[16], 0, offset).data(128)
    };
    vec![
        case!("name-empty", tensor(b"", &[1], 0, 0), G::NameLength { length: 0, .. }),
        case!("name-length-max", Gguf::new(3, 1, 0).u64(u64::MAX).raw(&[0; 64]).end(), G::NameLength { .. }),
        case!("name-beyond-file", Gguf::new(3, 1, 0).u64(60).raw(&[b'n'; 40]).end(), G::Truncated { .. }),
        case!("name-not-utf8", tensor(b"t\xfe", &[1], 0, 0), G::NameNotUtf8 { .. }),
        case!("name-twice", two(b"a", 64), G::DuplicateTensor { .. }),
        case!(
            "name-with-escape-twice",
            Gguf::new(3, 2, 0).tensor(b"\x1b[31m", &[1], 0, 0).tensor(b"\x1b[31m", &[1], 0, 32).data(64),
            G::DuplicateTensor { tensor } if tensor == "\\u{1b}[31m"
        ),
        case!("dimensions-0", tensor(b"t", &[], 0, 0), G::Dimensions { found: 0, .. }),
        case!("dimensions-5", tensor(b"t", &[1; 5], 0, 0), G::Dimensions { found: 5, .. }),
        case!("dimensions-9", tensor(b"t", &[1; 9], 0, 0), G::Dimensions { found: 9, .. }),
        case!(
            "dimensions-max",
            Gguf::new(3, 1, 0).string(b"t").u32(u32::MAX).raw(&[1; 40]).end(),
            G::Dimensions { found: u32::MAX, .. }
        ),
        case!("dimension-zero", tensor(b"t", &[4, 0], 0, 0), G::ZeroDimension { dimension: 1, .. }),
        case!("size-wraps-in-two", tensor(b"t", &[u64::MAX, 2], 0, 0), G::SizeOverflow { .. }),
        case!("size-wraps-to-small", tensor(b"t", &[(1 << 42) + 1, 1 << 22], 0, 0), G::SizeOverflow { .. }),
        case!(
            "size-wraps-in-four",
            tensor(b"t", &[1 << 31, 1 << 31, 1 << 31, 2], 0, 0),
            G::SizeOverflow { .. }
        ),
        case!("size-in-bytes-wraps", tensor(b"t", &[1 << 62], 0, 0), G::SizeOverflow { .. }),
        case!("size-2-60", tensor(b"t", &[1 << 30, 1 << 28], 0, 0), G::OutsideFile { .. }),
        case!("type-999", tensor(b"t", &[32], 999, 0), G::UnknownType { id: 999, .. }),
        case!("type-removed-4", tensor(b"t", &[32], 4, 0), G::RemovedType { id: 4, .. }),
        case!("type-removed-31", tensor(b"t", &[32], 31, 0), G::RemovedType { id: 31, .. }),
        case!("type-removed-38", tensor(b"t", &[32], 38, 0), G::RemovedType { id: 38, .. }),
        case!("partial-group", tensor(b"t", &[33], 8, 0), G::PartialGroup { cols: 33, group: 32, .. }),
        case!("offset-wraps", tensor(b"t", &[8], 0, u64::MAX - 31), G::OutsideFile { .. }),
        case!("offset-at-end", tensor(b"t", &[8], 0, 64), G::OutsideFile { .. }),
        case!("offset-misaligned", tensor(b"t", &[4], 0, 8), G::Misaligned { offset: 8, .. }),
        case!("one-byte-short", tensor(b"t", &[16], 0, 0)[..127].to_vec(), G::OutsideFile { .. }),
        case!("ranges-equal", two(b"b", 0), G::Overlap { .. }),
        case!("ranges-overlap", two(b"b", 32), G::Overlap { .. }),
    ]
}

/// A header with one tensor `t` whose description ends so.
fn described(description: &str) -> Vec<u8> {
    safetensors(format!(r#"{{"t":{{{description}}}}}"#), 8)
}

pub(crate) fn safetensors_cases() -> Vec<Case<S>> {
    let two = |a: &str, b: &str, data: usize| {
        let entry = |range: &str| format!(r#"{{"dtype":"F32","shape":[2],"data_offsets":{range}}}"#);
        safetensors(format!(r#"{{"a":{},"b":{}}}"#, entry(a), entry(b)), data)
    };
    let length = |length: u64| [length.to_le_bytes().as_slice(), b"{}      "].concat();
    vec![
        case!("empty", vec![], S::TooShort { file_bytes: 0 }),
        case!("seven-bytes", vec![0; 7], S::TooShort { file_bytes: 7 }),
        case!("header-length-max", length(u64::MAX), S::HeaderLength { .. }),
        case!("header-length-0", length(0), S::HeaderLength { length: 0, .. }),
        case!("header-length-1", length(1), S::HeaderLength { length: 1, .. }),
        case!("header-length-file-size", length(16), S::HeaderLength { length: 16, left: 8, .. }),
        case!("header-length-64-mib", length(1 << 26), S::HeaderLength { .. }),
        case!("header-list", safetensors("[]", 0), S::NotAnObject { .. }),
        case!("header-cut", safetensors("{ ", 0), S::Json { .. }),
        case!("header-not-utf8", safetensors(b"{\"a\xff\":1}", 0), S::HeaderNotUtf8 { offset: 11 }),
        case!("header-followed-by-text", safetensors("{} x", 0), S::Json { .. }),
        case!("header-nested-300-deep", safetensors("[".repeat(300), 0), S::Json { .. }),
        case!(
            "tensor-twice",
            safetensors(
                r#"{"t":{"dtype":"U8","shape":[8],"data_offsets":[0,8]},"t":{"dtype":"I8","shape":[8],"data_offsets":[0,8]}}"#,
                8
            ),
            S::DuplicateKey { key } if key == "t"
        ),
        case!("field-twice", described(r#""dtype":"U8","dtype":"I8","shape":[8],"data_offsets":[0,8]"#), S::DuplicateKey { key } if key == "dtype"),
        case!("metadata-number", safetensors(r#"{"__metadata__":{"format":1}}"#, 0), S::Metadata { .. }),
        case!("tensor-is-number", safetensors(r#"{"t":5}"#, 0), S::NotAnObject { .. }),
        case!(
            "dtype-absent",
            described(r#""shape":[8],"data_offsets":[0,8]"#),
            S::MissingField { field: "dtype", .. }
        ),
        case!(
            "shape-absent",
            described(r#""dtype":"U8","data_offsets":[0,8]"#),
            S::MissingField { field: "shape", .. }
        ),
        case!(
            "offsets-absent",
            described(r#""dtype":"U8","shape":[8]"#),
            S::MissingField { field: "data_offsets", .. }
        ),
        case!(
            "field-unknown",
            described(r#""dtype":"U8","shape":[8],"data_offsets":[0,8],"strides":[1]"#),
            S::UnknownField { .. }
        ),
        case!(
            "dtype-unknown",
            described(r#""dtype":"Q9","shape":[8],"data_offsets":[0,8]"#),
            S::Dtype { .. }
        ),
        case!(
            "dtype-number",
            described(r#""dtype":8,"shape":[8],"data_offsets":[0,8]"#),
            S::Field { field: "dtype", .. }
        ),
        case!(
            "shape-negative",
            described(r#""dtype":"U8","shape":[-8],"data_offsets":[0,8]"#),
            S::Field { field: "shape", .. }
        ),
        case!(
            "shape-text",
            described(r#""dtype":"U8","shape":"8","data_offsets":[0,8]"#),
            S::Field { field: "shape", .. }
        ),
        case!(
            "shape-2-64",
            described(r#""dtype":"U8","shape":[18446744073709551616],"data_offsets":[0,8]"#),
            S::Field { .. }
        ),
        case!(
            "shape-wraps",
            described(r#""dtype":"U8","shape":[9223372036854775808,2,4],"data_offsets":[0,8]"#),
            S::SizeOverflow { .. }
        ),
        case!(
            "shape-in-bytes-wraps",
            described(r#""dtype":"F64","shape":[4611686018427387904],"data_offsets":[0,8]"#),
            S::SizeOverflow { .. }
        ),
        case!(
            "shape-not-span",
            described(r#""dtype":"F32","shape":[3],"data_offsets":[0,8]"#),
            S::SizeMismatch { expected: 12, found: 8, .. }
        ),
        case!(
            "offsets-reversed",
            described(r#""dtype":"U8","shape":[8],"data_offsets":[8,0]"#),
            S::OffsetOrder { .. }
        ),
        case!(
            "offsets-2-63",
            described(r#""dtype":"U8","shape":[8],"data_offsets":[0,9223372036854775808]"#),
            S::OutsideFile { .. }
        ),
        case!(
            "offsets-one",
            described(r#""dtype":"U8","shape":[8],"data_offsets":[8]"#),
            S::Field { field: "data_offsets", .. }
        ),
        case!(
            "offsets-three",
            described(r#""dtype":"U8","shape":[8],"data_offsets":[0,4,8]"#),
            S::Field { field: "data_offsets", .. }
        ),
        case!(
            "offsets-negative",
            described(r#""dtype":"U8","shape":[8],"data_offsets":[-8,0]"#),
            S::Field { field: "data_offsets", .. }
        ),
        case!(
            "offsets-float",
            described(r#""dtype":"U8","shape":[8],"data_offsets":[0,8.0]"#),
            S::Field { field: "data_offsets", .. }
        ),
        case!("ranges-equal", two("[0,8]", "[0,8]", 8), S::Overlap { .. }),
        case!("ranges-overlap", two("[0,8]", "[4,12]", 12), S::Overlap { .. }),
        case!("hole-of-4", two("[0,8]", "[12,20]", 20), S::Hole { offset: 8, bytes: 4 }),
        case!(
            "hole-at-start",
            described(r#""dtype":"U8","shape":[4],"data_offsets":[4,8]"#),
            S::Hole { offset: 0, bytes: 4 }
        ),
        case!(
            "trailing-bytes",
            described(r#""dtype":"U8","shape":[4],"data_offsets":[0,4]"#),
            S::Hole { offset: 4, bytes: 4 }
        ),
        case!("data-without-tensors", safetensors("{}", 1), S::Hole { offset: 0, bytes: 1 }),
    ]
}

pub(crate) fn gguf_cases() -> Vec<Case<G>> {
    header_cases().into_iter().chain(tensor_cases()).collect()
}
