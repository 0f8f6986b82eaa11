//! A safetensors file of any bytes: its header, and that an accepted one counts its tensors.

use kipp::artifact::Bytes;
use kipp::artifact::safetensors::SafetensorsFile;

/// Reads the header.
pub fn safetensors(bytes: &[u8]) {
    if let Ok(file) = SafetensorsFile::parse(Bytes::from(bytes.to_vec())) {
        assert!(file.tensor_count() <= bytes.len());
    }
}
