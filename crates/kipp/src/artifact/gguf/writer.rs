//! Writing GGUF version 3: the header; the tensors' bytes follow it in order, each padded to the alignment.

use super::metadata::ValueType;
use super::{DEFAULT_ALIGNMENT, MAGIC};

/// The version that is written.
const VERSION: u32 = 3;

/// A metadata value to write.
#[derive(Clone, Debug, PartialEq)]
pub enum MetadataValue {
    /// A 32-bit number.
    U32(u32),
    /// A float.
    F32(f32),
    /// A truth value.
    Bool(bool),
    /// A string.
    String(String),
    /// A list of strings.
    Strings(Vec<String>),
    /// A list of 32-bit signed numbers.
    I32s(Vec<i32>),
}

/// A tensor to write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorPlan {
    /// Its name, at most 64 bytes.
    pub name: String,
    /// Outermost dimension first.
    pub shape: Vec<usize>,
    /// The format's type id.
    pub ggml_type: u32,
    /// Its size.
    pub bytes: u64,
}

/// The header of a file to be.
#[derive(Clone, Debug, Default)]
pub struct GgufWriter {
    metadata: Vec<(String, MetadataValue)>,
    tensors: Vec<TensorPlan>,
}

impl GgufWriter {
    /// Adds an entry; keys must differ.
    pub fn set(&mut self, key: &str, value: MetadataValue) {
        self.metadata.push((key.to_owned(), value));
    }

    /// Adds a tensor; its bytes must be written in this order.
    pub fn tensor(&mut self, plan: TensorPlan) {
        self.tensors.push(plan);
    }

    /// The header, padded: the first tensor's bytes follow at once.
    pub fn header(&self) -> Vec<u8> {
        let mut out = Vec::new();
        out.extend(MAGIC);
        out.extend(VERSION.to_le_bytes());
        out.extend((self.tensors.len() as u64).to_le_bytes());
        out.extend((self.metadata.len() as u64).to_le_bytes());
        for (key, value) in &self.metadata {
            put_string(&mut out, key);
            put_value(&mut out, value);
        }
        let mut offset = 0u64;
        for tensor in &self.tensors {
            put_string(&mut out, &tensor.name);
            out.extend((tensor.shape.len() as u32).to_le_bytes());
            for &dimension in tensor.shape.iter().rev() {
                out.extend((dimension as u64).to_le_bytes());
            }
            out.extend(tensor.ggml_type.to_le_bytes());
            out.extend(offset.to_le_bytes());
            offset += tensor.bytes + padding(tensor.bytes) as u64;
        }
        out.resize(out.len() + padding(out.len() as u64), 0);
        out
    }
}

/// Zero bytes that follow `bytes` bytes of a tensor.
pub fn padding(bytes: u64) -> usize {
    (bytes.next_multiple_of(DEFAULT_ALIGNMENT) - bytes) as usize
}

fn put_string(out: &mut Vec<u8>, text: &str) {
    out.extend((text.len() as u64).to_le_bytes());
    out.extend(text.as_bytes());
}

fn put_type(out: &mut Vec<u8>, kind: ValueType) {
    out.extend(kind.id().to_le_bytes());
}

fn put_value(out: &mut Vec<u8>, value: &MetadataValue) {
    match value {
        MetadataValue::U32(value) => {
            put_type(out, ValueType::U32);
            out.extend(value.to_le_bytes());
        }
        MetadataValue::F32(value) => {
            put_type(out, ValueType::F32);
            out.extend(value.to_le_bytes());
        }
        MetadataValue::Bool(value) => {
            put_type(out, ValueType::Bool);
            out.push(u8::from(*value));
        }
        MetadataValue::String(text) => {
            put_type(out, ValueType::String);
            put_string(out, text);
        }
        MetadataValue::Strings(items) => {
            put_type(out, ValueType::Array);
            put_type(out, ValueType::String);
            out.extend((items.len() as u64).to_le_bytes());
            items.iter().for_each(|item| put_string(out, item));
        }
        MetadataValue::I32s(items) => {
            put_type(out, ValueType::Array);
            put_type(out, ValueType::I32);
            out.extend((items.len() as u64).to_le_bytes());
            items.iter().for_each(|item| out.extend(item.to_le_bytes()));
        }
    }
}
