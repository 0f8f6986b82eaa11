//! The bytes of one file, mapped into memory: `unsafe` behind a safe type.
//!
//! Nothing is interpreted here. A mapping shows the file as it is on the disk, also where a mapping is private, so it
//! holds only while nobody rewrites the file in place or shortens it: the former changes bytes that were checked, and the
//! system ends a program that reads past a new end. No reader can prevent either; writers of model files should write
//! a new file and rename it, as `kipp convert` does.
#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::ops::Deref;
use std::path::Path;
use std::sync::Arc;

#[cfg(unix)]
use memmap2::UncheckedAdvice;
use memmap2::{Mmap, MmapOptions};

/// The bytes of one file: mapped, embedded in the program, or owned. Cheap to clone.
#[derive(Clone)]
pub struct Bytes(Storage);

#[derive(Clone)]
enum Storage {
    Mapped(Arc<Mmap>),
    Embedded(&'static [u8]),
    Owned(Arc<Vec<u8>>),
}

impl Bytes {
    /// Maps a regular file. An empty file gives no bytes; a folder, a pipe or a device is refused.
    pub fn open(path: &Path) -> io::Result<Bytes> {
        // Asked before opening: opening a pipe would wait for its writer.
        let metadata = std::fs::metadata(path)?;
        if !metadata.is_file() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
        }
        let file = File::open(path)?;
        if metadata.len() == 0 {
            return Ok(Bytes::from(Vec::new()));
        }
        // SAFETY: nothing in this process writes to the mapping (read-only, copy-on-write) or reads past its length;
        // the fact relied on, which only users can keep, is that no process rewrites or shortens the file in place
        // while it is mapped (see the top).
        let map = unsafe { MmapOptions::new().map_copy_read_only(&file)? };
        Ok(Bytes(Storage::Mapped(Arc::new(map))))
    }

    /// Gives the memory of a mapped file back to the system; what the system keeps of the file in its cache is its own
    /// affair. The bytes stay what they are: whoever reads them again gets them from the file, at the cost of a page
    /// fault. Bytes that are no mapping stay where they are, and a system that cannot do it loses nothing but memory.
    pub fn release_pages(&self) {
        #[cfg(unix)]
        if let Storage::Mapped(map) = &self.0 {
            // SAFETY: the advice discards what was written to private pages, and these were mapped read-only, so nothing
            // was; a later read finds the bytes of the file, whose constancy is the fact that `open` relies on.
            let _ = unsafe { map.unchecked_advise(UncheckedAdvice::DontNeed) };
        }
    }

    /// Bytes that are part of the program.
    pub fn embedded(bytes: &'static [u8]) -> Bytes {
        Bytes(Storage::Embedded(bytes))
    }
}

impl From<Vec<u8>> for Bytes {
    fn from(bytes: Vec<u8>) -> Bytes {
        Bytes(Storage::Owned(Arc::new(bytes)))
    }
}

impl Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.0 {
            Storage::Mapped(map) => map,
            Storage::Embedded(bytes) => bytes,
            Storage::Owned(bytes) => bytes,
        }
    }
}

impl std::fmt::Debug for Bytes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} bytes", self.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn released_pages_come_back_from_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("bytes");
        let written: Vec<u8> = (0..100_000u32).map(|i| (i / 7) as u8).collect();
        std::fs::write(&path, &written).unwrap();
        let bytes = Bytes::open(&path).unwrap();
        let (again, part) = (bytes.clone(), &bytes[5000..]);
        again.release_pages();
        assert!(part == &written[5000..] && bytes[..] == written);
        for unmapped in [Bytes::embedded(b"abc"), Bytes::from(b"abc".to_vec())] {
            unmapped.release_pages();
            assert_eq!(&unmapped[..], b"abc");
        }
    }
}
