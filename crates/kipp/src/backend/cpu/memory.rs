//! Memory for weights and KV: page-aligned, zeroed, on huge pages where the system grants them.

use memmap2::{MmapMut, MmapOptions};

use crate::backend::BackendError;

/// Zeroed bytes that start on a page, and so on a cache line.
pub(super) struct AlignedBytes {
    map: MmapMut,
    len_bytes: usize,
}

impl AlignedBytes {
    /// Takes `len_bytes` from the system; `what` is named when it refuses.
    pub(super) fn zeroed(len_bytes: usize, what: &str) -> Result<AlignedBytes, BackendError> {
        let refused = |_| BackendError::Memory { what: what.to_owned(), bytes: len_bytes };
        // An empty mapping is an error to the system, not to us.
        let map = MmapOptions::new().len(len_bytes.max(1)).map_anon().map_err(refused)?;
        // A request only: without it streaming weights is up to a quarter slower, and nothing else changes.
        #[cfg(target_os = "linux")]
        let _ = map.advise(memmap2::Advice::HugePage);
        Ok(AlignedBytes { map, len_bytes })
    }

    /// The bytes.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.map[..self.len_bytes]
    }

    /// The bytes, to be written.
    pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.map[..self.len_bytes]
    }
}
