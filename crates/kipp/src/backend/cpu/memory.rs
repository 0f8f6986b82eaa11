//! Memory for weights and KV: page-aligned, zeroed, on huge pages where the system grants them.

use std::ops::Range;
use std::sync::{Arc, OnceLock};

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

/// Memory of many matrices, in few large mappings. With a mapping for each, all that does not fill a huge page by itself
/// lies on small pages: more than half of a model whose matrices have one to three megabytes.
///
/// A mapping is written while it fills, and closed before it is read: so one matrix can be written while others that lie
/// beside it are held.
#[derive(Default)]
pub(super) struct WeightMemory {
    filling: Option<Filling>,
    /// Bytes of the last mapping.
    last_bytes: usize,
}

struct Filling {
    map: AlignedBytes,
    used_bytes: usize,
    /// Takes the mapping when it is closed.
    closed: Arc<OnceLock<AlignedBytes>>,
}

/// A matrix's bytes, in one of the mappings.
pub(super) struct Place {
    mapping: Arc<OnceLock<AlignedBytes>>,
    range: Range<usize>,
}

/// The first mapping's bytes, then doubled: a small model takes little, even where the system counts what is not touched.
const FIRST_MAPPING_BYTES: usize = 32 << 20;

/// Bytes of a mapping at most, unless one matrix is larger. The last huge page of each is partly wasted, a megabyte on
/// average.
const MAX_MAPPING_BYTES: usize = 256 << 20;

/// Where the system's pages begin; a matrix begins on one.
const PAGE_BYTES: usize = 4096;

impl WeightMemory {
    /// Room for a matrix, and its zeroed bytes to be written. `what` is named when the system refuses.
    pub(super) fn take(&mut self, len_bytes: usize, what: &str) -> Result<(Place, &mut [u8]), BackendError> {
        let room = |filling: &Filling| filling.map.len_bytes - filling.used_bytes >= len_bytes;
        let filling = match self.filling.take() {
            Some(filling) if room(&filling) => filling,
            full => {
                full.into_iter().for_each(Filling::close);
                let bytes =
                    (self.last_bytes * 2).clamp(FIRST_MAPPING_BYTES, MAX_MAPPING_BYTES).max(len_bytes);
                self.last_bytes = bytes.min(MAX_MAPPING_BYTES);
                Filling { map: AlignedBytes::zeroed(bytes, what)?, used_bytes: 0, closed: Arc::default() }
            }
        };
        let filling = self.filling.insert(filling);
        let range = filling.used_bytes..filling.used_bytes + len_bytes;
        filling.used_bytes = range.end.next_multiple_of(PAGE_BYTES).min(filling.map.len_bytes);
        let place = Place { mapping: Arc::clone(&filling.closed), range: range.clone() };
        Ok((place, &mut filling.map.bytes_mut()[range]))
    }

    /// Makes all that was written readable.
    pub(super) fn close(&mut self) {
        self.filling.take().into_iter().for_each(Filling::close);
    }
}

impl Filling {
    fn close(self) {
        // Nobody else fills this lock.
        let _ = self.closed.set(self.map);
    }
}

impl Place {
    /// The bytes; none as long as the memory was not closed.
    pub(super) fn bytes(&self) -> &[u8] {
        self.mapping.get().map_or(&[], |mapping| &mapping.bytes()[self.range.clone()])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn matrices_beside_each_other_keep_their_bytes() {
        let mut memory = WeightMemory::default();
        let lens = [1, PAGE_BYTES, 0, FIRST_MAPPING_BYTES - 3 * PAGE_BYTES, 5 << 20, 40 << 20, 70 << 20, 100];
        let mut places = Vec::new();
        for (n, len) in lens.into_iter().enumerate() {
            let (place, bytes) = memory.take(len, "weights").unwrap();
            assert_eq!((bytes.len(), bytes.as_ptr() as usize % 64), (len, 0));
            if let Some(first) = bytes.first_mut() {
                assert_eq!(*first, 0);
                *first = n as u8 + 1;
            }
            if n == 3 {
                // In the middle of a load, as where two models share a backend.
                memory.close();
            }
            places.push(place);
        }
        memory.close();
        memory.close();
        for ((n, len), place) in lens.into_iter().enumerate().zip(&places) {
            assert_eq!(place.bytes().len(), len);
            assert!(place.bytes().first().is_none_or(|first| *first == n as u8 + 1));
        }
    }

    #[test]
    fn memory_that_cannot_be_had_is_an_error() {
        let mut memory = WeightMemory::default();
        assert!(matches!(memory.take(usize::MAX >> 2, "w"), Err(BackendError::Memory { .. })));
        assert!(memory.take(10, "w").is_ok());
    }
}
