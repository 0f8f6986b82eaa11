//! Files written byte by byte, so that they can be wrong in exactly one place.

/// A GGUF header under construction; nothing in it is checked.
#[derive(Clone)]
pub(crate) struct Gguf(pub(crate) Vec<u8>);

impl Gguf {
    pub(crate) fn new(version: u32, tensors: u64, entries: u64) -> Gguf {
        Gguf(b"GGUF".to_vec()).u32(version).u64(tensors).u64(entries)
    }

    pub(crate) fn u32(self, value: u32) -> Gguf {
        self.raw(&value.to_le_bytes())
    }

    pub(crate) fn u64(self, value: u64) -> Gguf {
        self.raw(&value.to_le_bytes())
    }

    pub(crate) fn raw(mut self, bytes: &[u8]) -> Gguf {
        self.0.extend(bytes);
        self
    }

    /// A length and the bytes.
    pub(crate) fn string(self, bytes: &[u8]) -> Gguf {
        self.u64(bytes.len() as u64).raw(bytes)
    }

    /// A key and the id of its value's type.
    pub(crate) fn key(self, key: &[u8], kind: u32) -> Gguf {
        self.string(key).u32(kind)
    }

    pub(crate) fn text(self, key: &str, value: &str) -> Gguf {
        self.key(key.as_bytes(), 8).string(value.as_bytes())
    }

    pub(crate) fn number(self, key: &str, value: u32) -> Gguf {
        self.key(key.as_bytes(), 4).u32(value)
    }

    /// A tensor's description; dimensions innermost first.
    pub(crate) fn tensor(self, name: &[u8], dimensions: &[u64], kind: u32, offset: u64) -> Gguf {
        let head = self.string(name).u32(dimensions.len() as u32);
        dimensions.iter().fold(head, |gguf, &d| gguf.u64(d)).u32(kind).u64(offset)
    }

    /// Padding to 32 and this much data.
    pub(crate) fn data(mut self, bytes: usize) -> Vec<u8> {
        self.0.resize(self.0.len().next_multiple_of(32) + bytes, 0);
        self.0
    }

    pub(crate) fn end(self) -> Vec<u8> {
        self.0
    }
}

/// A safetensors file with this header and this much data.
pub(crate) fn safetensors(header: impl AsRef<[u8]>, data_bytes: usize) -> Vec<u8> {
    let header = header.as_ref();
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend(header);
    bytes.resize(bytes.len() + data_bytes, 0);
    bytes
}
