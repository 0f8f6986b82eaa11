//! Reading numbers and byte runs from a hostile file: every length is compared with the bytes left before anything is
//! taken or allocated, and no sum can wrap.

use std::ops::Range;

/// A position in a file. Integers are little-endian.
#[derive(Clone, Debug)]
pub(crate) struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

/// The file ends before what it declares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EndOfFile {
    /// Where the read began.
    pub(crate) offset: usize,
    /// Bytes wanted there; what a length claims, so it may be absurd.
    pub(crate) wanted: u64,
    /// Bytes that are left there.
    pub(crate) left: usize,
}

impl<'a> Cursor<'a> {
    /// At the beginning of `bytes`.
    pub(crate) fn new(bytes: &'a [u8]) -> Cursor<'a> {
        Cursor { bytes, at: 0 }
    }

    /// Bytes read so far.
    pub(crate) fn offset(&self) -> usize {
        self.at
    }

    /// Bytes not yet read.
    pub(crate) fn left(&self) -> usize {
        self.bytes.len() - self.at
    }

    /// The next `length` bytes, as a range of the file; a length beyond the end moves nothing.
    pub(crate) fn range(&mut self, length: u64) -> Result<Range<usize>, EndOfFile> {
        let left = self.left();
        match usize::try_from(length) {
            Ok(length) if length <= left => {
                let start = self.at;
                self.at += length; // at most the file's length, by the comparison above
                Ok(start..self.at)
            }
            _ => Err(EndOfFile { offset: self.at, wanted: length, left }),
        }
    }

    /// The next `length` bytes.
    pub(crate) fn take(&mut self, length: u64) -> Result<&'a [u8], EndOfFile> {
        let range = self.range(length)?;
        Ok(&self.bytes[range])
    }

    /// The next `N` bytes.
    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], EndOfFile> {
        let bytes = self.take(N as u64)?;
        let mut out = [0; N];
        out.copy_from_slice(bytes);
        Ok(out)
    }

    /// A 32-bit number.
    pub(crate) fn u32(&mut self) -> Result<u32, EndOfFile> {
        self.array().map(u32::from_le_bytes)
    }

    /// A 64-bit number.
    pub(crate) fn u64(&mut self) -> Result<u64, EndOfFile> {
        self.array().map(u64::from_le_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_length_beyond_the_end_is_refused_and_moves_nothing() {
        let mut cursor = Cursor::new(&[1, 0, 0, 0, 9]);
        assert_eq!(cursor.u32(), Ok(1));
        for length in [2, u64::MAX, 1 << 63] {
            assert_eq!(cursor.take(length), Err(EndOfFile { offset: 4, wanted: length, left: 1 }));
        }
        assert_eq!(cursor.take(1), Ok(&[9][..]));
        assert_eq!(cursor.take(0), Ok(&[][..]));
        assert_eq!(cursor.u64(), Err(EndOfFile { offset: 5, wanted: 8, left: 0 }));
    }
}
