//! GGUF metadata: keys and typed values. Strings and arrays stay in the file and are decoded when asked for, so that a
//! vocabulary costs nothing until a tokenizer wants it.

use std::collections::HashSet;
use std::ops::Range;

use super::error::GgufError;
use crate::artifact::cursor::{Cursor, EndOfFile};
use crate::artifact::escaped::Escaped;
use crate::artifact::map::Bytes;

/// Longest key, as the format says.
const MAX_KEY_BYTES: u64 = 65_535;
/// Deepest nesting of arrays. No known writer nests at all; the bound keeps a hostile file off the stack.
const MAX_ARRAY_DEPTH: usize = 4;
/// Fewest bytes of an entry: key length, one byte of key, type, one byte of value.
const MIN_ENTRY_BYTES: u64 = 8 + 1 + 4 + 1;

/// The types of metadata values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ValueType {
    U8,
    I8,
    U16,
    I16,
    U32,
    I32,
    F32,
    Bool,
    String,
    Array,
    U64,
    I64,
    F64,
}

impl ValueType {
    const BY_ID: [ValueType; 13] = {
        use ValueType::*;
        [U8, I8, U16, I16, U32, I32, F32, Bool, String, Array, U64, I64, F64]
    };

    fn from_id(id: u32) -> Option<ValueType> {
        ValueType::BY_ID.get(usize::try_from(id).ok()?).copied()
    }

    pub(crate) fn id(self) -> u32 {
        self as u32
    }

    fn name(self) -> &'static str {
        ["u8", "i8", "u16", "i16", "u32", "i32", "f32", "bool", "string", "array", "u64", "i64", "f64"]
            [self as usize]
    }

    /// Bytes of a value, or the fewest possible for strings and arrays.
    fn min_bytes(self) -> u64 {
        match self {
            ValueType::U8 | ValueType::I8 | ValueType::Bool => 1,
            ValueType::U16 | ValueType::I16 => 2,
            ValueType::U32 | ValueType::I32 | ValueType::F32 => 4,
            ValueType::U64 | ValueType::I64 | ValueType::F64 | ValueType::String => 8,
            ValueType::Array => 12,
        }
    }
}

#[derive(Clone, Debug)]
enum Value {
    Unsigned(u64),
    Signed(i64),
    Float(f64),
    Bool(bool),
    String(Range<usize>),
    Array { item: ValueType, count: usize, bytes: Range<usize> },
}

#[derive(Clone, Debug)]
struct Entry {
    key: String,
    kind: ValueType,
    value: Value,
}

/// All metadata of one file.
#[derive(Clone, Debug)]
pub(crate) struct Metadata {
    bytes: Bytes,
    entries: Vec<Entry>,
}

impl Metadata {
    /// Reads `count` entries and checks each value's shape; nothing is allocated that the bytes do not hold.
    pub(super) fn read(bytes: &Bytes, cursor: &mut Cursor<'_>, count: u64) -> Result<Metadata, GgufError> {
        if count > cursor.left() as u64 / MIN_ENTRY_BYTES {
            return Err(GgufError::MetadataCount { count, left: cursor.left() });
        }
        let mut entries = Vec::new();
        let mut keys = HashSet::new();
        for _ in 0..count {
            let key = read_key(cursor)?;
            if !keys.insert(key) {
                return Err(GgufError::DuplicateKey { key: key.into() });
            }
            let kind = read_type(cursor, key)?;
            let value = read_value(cursor, key, kind)?;
            entries.push(Entry { key: key.to_owned(), kind, value });
        }
        Ok(Metadata { bytes: bytes.clone(), entries })
    }

    fn entry(&self, key: &str) -> Option<&Entry> {
        self.entries.iter().find(|entry| entry.key == key)
    }

    fn wrong<T>(entry: &Entry, expected: &'static str) -> Result<T, GgufError> {
        Err(GgufError::WrongType { key: entry.key.as_str().into(), expected, found: entry.kind.name() })
    }

    /// All keys, in file order.
    pub(crate) fn keys(&self) -> impl Iterator<Item = &str> {
        self.entries.iter().map(|entry| entry.key.as_str())
    }

    /// A whole number that is not negative, of any integer type.
    pub(crate) fn unsigned(&self, key: &str) -> Result<Option<u64>, GgufError> {
        let Some(entry) = self.entry(key) else { return Ok(None) };
        match entry.value {
            Value::Unsigned(value) => Ok(Some(value)),
            Value::Signed(value) => match u64::try_from(value) {
                Ok(value) => Ok(Some(value)),
                Err(_) => Err(GgufError::OutOfRange {
                    key: key.into(),
                    value: Escaped::text(&value.to_string()),
                    expected: "not negative",
                }),
            },
            _ => Metadata::wrong(entry, "an integer"),
        }
    }

    /// A number of any type; it must be finite.
    pub(crate) fn number(&self, key: &str) -> Result<Option<f64>, GgufError> {
        let Some(entry) = self.entry(key) else { return Ok(None) };
        let value = match entry.value {
            Value::Float(value) => value,
            Value::Unsigned(value) => value as f64,
            Value::Signed(value) => value as f64,
            _ => return Metadata::wrong(entry, "a number"),
        };
        if !value.is_finite() {
            let value = Escaped::text(&value.to_string());
            return Err(GgufError::OutOfRange { key: key.into(), value, expected: "finite" });
        }
        Ok(Some(value))
    }

    /// A number meant as the decimal that a person wrote: 0.6 stored in 32 bits is 0.6, not 0.6000000238.
    pub(crate) fn decimal(&self, key: &str) -> Result<Option<f64>, GgufError> {
        let value = self.number(key)?;
        let is_f32 = self.entry(key).is_some_and(|entry| entry.kind == ValueType::F32);
        Ok(value
            .map(|value| if is_f32 { (value as f32).to_string().parse().unwrap_or(value) } else { value }))
    }

    /// A truth value.
    pub(crate) fn boolean(&self, key: &str) -> Result<Option<bool>, GgufError> {
        match self.entry(key) {
            None => Ok(None),
            Some(Entry { value: Value::Bool(value), .. }) => Ok(Some(*value)),
            Some(entry) => Metadata::wrong(entry, "a bool"),
        }
    }

    /// A string.
    pub(crate) fn string(&self, key: &str) -> Result<Option<&str>, GgufError> {
        match self.entry(key) {
            None => Ok(None),
            Some(Entry { value: Value::String(range), .. }) => {
                let bytes = &self.bytes[range.clone()];
                std::str::from_utf8(bytes).map(Some).map_err(|_| not_utf8(key, bytes))
            }
            Some(entry) => Metadata::wrong(entry, "a string"),
        }
    }

    /// An array of strings.
    pub(crate) fn strings(&self, key: &str) -> Result<Option<Vec<&str>>, GgufError> {
        let Some(entry) = self.entry(key) else { return Ok(None) };
        let Value::Array { item: ValueType::String, count, bytes } = &entry.value else {
            return Metadata::wrong(entry, "an array of strings");
        };
        let mut cursor = Cursor::new(&self.bytes[bytes.clone()]);
        let mut strings = Vec::with_capacity(*count); // as many were walked when the file was opened
        for _ in 0..*count {
            let text = cursor.u64().and_then(|length| cursor.take(length)).map_err(|end| ends(key, end))?;
            strings.push(std::str::from_utf8(text).map_err(|_| not_utf8(key, text))?);
        }
        Ok(Some(strings))
    }

    /// An array of whole numbers of any type.
    pub(crate) fn integers(&self, key: &str) -> Result<Option<Vec<i64>>, GgufError> {
        let Some(entry) = self.entry(key) else { return Ok(None) };
        let Value::Array { item, count, bytes } = &entry.value else {
            return Metadata::wrong(entry, "an array of integers");
        };
        let mut cursor = Cursor::new(&self.bytes[bytes.clone()]);
        let mut integers = Vec::with_capacity(*count);
        for _ in 0..*count {
            integers.push(match read_value(&mut cursor, key, *item)? {
                Value::Signed(value) => value,
                Value::Unsigned(value) => i64::try_from(value).map_err(|_| GgufError::OutOfRange {
                    key: key.into(),
                    value: Escaped::text(&value.to_string()),
                    expected: "below 2^63",
                })?,
                _ => return Metadata::wrong(entry, "an array of integers"),
            });
        }
        Ok(Some(integers))
    }
}

pub(super) fn ends(what: &str, end: EndOfFile) -> GgufError {
    GgufError::Truncated { what: what.into(), offset: end.offset, wanted: end.wanted, left: end.left }
}

fn not_utf8(key: &str, bytes: &[u8]) -> GgufError {
    GgufError::StringNotUtf8 { key: key.into(), value: Escaped::bytes(bytes) }
}

fn read_key<'a>(cursor: &mut Cursor<'a>) -> Result<&'a str, GgufError> {
    let length = cursor.u64().map_err(|end| ends("a metadata key", end))?;
    let offset = cursor.offset();
    if length == 0 {
        return Err(GgufError::EmptyKey { offset });
    }
    if length > MAX_KEY_BYTES {
        return Err(GgufError::KeyLength { offset, length, limit: MAX_KEY_BYTES });
    }
    let key = cursor.take(length).map_err(|end| ends("a metadata key", end))?;
    std::str::from_utf8(key).map_err(|_| GgufError::KeyNotUtf8 { offset, key: Escaped::bytes(key) })
}

fn read_type(cursor: &mut Cursor<'_>, key: &str) -> Result<ValueType, GgufError> {
    let id = cursor.u32().map_err(|end| ends(key, end))?;
    ValueType::from_id(id).ok_or_else(|| GgufError::ValueType { key: key.into(), id })
}

fn read_value(cursor: &mut Cursor<'_>, key: &str, kind: ValueType) -> Result<Value, GgufError> {
    let end = |end| ends(key, end);
    Ok(match kind {
        ValueType::U8 => Value::Unsigned(u64::from(cursor.array::<1>().map_err(end)?[0])),
        ValueType::I8 => Value::Signed(i64::from(i8::from_le_bytes(cursor.array().map_err(end)?))),
        ValueType::U16 => Value::Unsigned(u64::from(u16::from_le_bytes(cursor.array().map_err(end)?))),
        ValueType::I16 => Value::Signed(i64::from(i16::from_le_bytes(cursor.array().map_err(end)?))),
        ValueType::U32 => Value::Unsigned(u64::from(cursor.u32().map_err(end)?)),
        ValueType::I32 => Value::Signed(i64::from(i32::from_le_bytes(cursor.array().map_err(end)?))),
        ValueType::U64 => Value::Unsigned(cursor.u64().map_err(end)?),
        ValueType::I64 => Value::Signed(i64::from_le_bytes(cursor.array().map_err(end)?)),
        ValueType::F32 => Value::Float(f64::from(f32::from_le_bytes(cursor.array().map_err(end)?))),
        ValueType::F64 => Value::Float(f64::from_le_bytes(cursor.array().map_err(end)?)),
        ValueType::Bool => match cursor.array::<1>().map_err(end)?[0] {
            0 => Value::Bool(false),
            1 => Value::Bool(true),
            value => return Err(GgufError::Bool { key: key.into(), value }),
        },
        ValueType::String => Value::String(read_string(cursor, key)?),
        ValueType::Array => {
            let (item, count) = read_array_head(cursor, key)?;
            let start = cursor.offset();
            walk_array(cursor, key, (item, count), 1)?;
            let count = usize::try_from(count).unwrap_or(usize::MAX); // below the file's length, checked above
            Value::Array { item, count, bytes: start..cursor.offset() }
        }
    })
}

fn read_string(cursor: &mut Cursor<'_>, key: &str) -> Result<Range<usize>, GgufError> {
    let length = cursor.u64().map_err(|end| ends(key, end))?;
    let start = cursor.offset();
    let text = cursor.take(length).map_err(|end| GgufError::StringLength {
        key: key.into(),
        length,
        left: end.left,
    })?;
    std::str::from_utf8(text).map_err(|_| not_utf8(key, text))?;
    Ok(start..cursor.offset())
}

fn read_array_head(cursor: &mut Cursor<'_>, key: &str) -> Result<(ValueType, u64), GgufError> {
    let item = read_type(cursor, key)?;
    let count = cursor.u64().map_err(|end| ends(key, end))?;
    if count > cursor.left() as u64 / item.min_bytes() {
        return Err(GgufError::ArrayLength { key: key.into(), count, left: cursor.left() });
    }
    Ok((item, count))
}

/// Passes over the items of an array, checking them. `depth` counts this array too.
fn walk_array(
    cursor: &mut Cursor<'_>,
    key: &str,
    (item, count): (ValueType, u64),
    depth: usize,
) -> Result<(), GgufError> {
    match item {
        ValueType::String => (0..count).try_for_each(|_| read_string(cursor, key).map(drop)),
        ValueType::Bool => (0..count).try_for_each(|_| read_value(cursor, key, item).map(drop)),
        ValueType::Array if depth == MAX_ARRAY_DEPTH => {
            Err(GgufError::ArrayDepth { key: key.into(), limit: MAX_ARRAY_DEPTH })
        }
        ValueType::Array => (0..count).try_for_each(|_| {
            let head = read_array_head(cursor, key)?;
            walk_array(cursor, key, head, depth + 1)
        }),
        // Cannot overflow: the count was compared with the bytes left.
        number => cursor.range(count * number.min_bytes()).map(drop).map_err(|end| ends(key, end)),
    }
}
