//! The body of an answer as it comes: chunks, a length or the end of the connection, read as lines.

use std::io::{self, BufRead, BufReader, Read};
use std::net::TcpStream;
use std::time::Instant;

use super::http::{HttpError, Patience, shown};

/// Bytes of a line, and of a body that is taken whole, at most.
const MAX_BODY_BYTES: u64 = 16 << 20;
/// Bytes of a line between chunks at most.
const MAX_FRAME_BYTES: u64 = 1024;

/// How the end of a body is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Framing {
    Chunked,
    Length(u64),
    UntilClosed,
}

/// A socket that is read until a moment: one that drips is as bad as one that is silent.
pub(super) struct Timed<'a> {
    pub(super) reader: &'a mut BufReader<TcpStream>,
    pub(super) deadline: Instant,
}

impl Timed<'_> {
    fn check(&self) -> io::Result<()> {
        if Instant::now() > self.deadline { Err(io::ErrorKind::TimedOut.into()) } else { Ok(()) }
    }
}

impl Read for Timed<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.check()?;
        self.reader.read(buffer)
    }
}

impl BufRead for Timed<'_> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        self.check()?;
        self.reader.fill_buf()
    }

    fn consume(&mut self, bytes: usize) {
        self.reader.consume(bytes);
    }
}

/// A body.
pub(super) struct Body<'a> {
    lines: BufReader<Framed<'a>>,
    patience: Patience,
}

impl<'a> Body<'a> {
    pub(super) fn new(timed: Timed<'a>, framing: Framing, patience: Patience) -> Body<'a> {
        let left = if let Framing::Length(bytes) = framing { bytes } else { 0 };
        let framed = Framed { timed, framing, left, behind_chunk: false, is_over: false };
        Body { lines: BufReader::new(framed), patience }
    }

    /// The next line without its end, into `line`; false after the last. Returns as soon as the line is there.
    pub(super) fn line(&mut self, line: &mut Vec<u8>) -> Result<bool, HttpError> {
        line.clear();
        let read = self.lines.by_ref().take(MAX_BODY_BYTES).read_until(b'\n', line);
        let read = read.map_err(|error| self.patience.explain(error))?;
        if read as u64 == MAX_BODY_BYTES && line.last() != Some(&b'\n') {
            return Err(HttpError::TooLong(MAX_BODY_BYTES));
        }
        while matches!(line.last(), Some(b'\n' | b'\r')) {
            line.pop();
        }
        Ok(read > 0)
    }

    /// All that is left.
    pub(super) fn rest(&mut self) -> Result<Vec<u8>, HttpError> {
        let mut all = Vec::new();
        let read = self.lines.by_ref().take(MAX_BODY_BYTES + 1).read_to_end(&mut all);
        match read.map_err(|error| self.patience.explain(error))? as u64 {
            read if read > MAX_BODY_BYTES => Err(HttpError::TooLong(MAX_BODY_BYTES)),
            _ => Ok(all),
        }
    }
}

/// The bytes of one body on a connection that goes on behind it.
struct Framed<'a> {
    timed: Timed<'a>,
    framing: Framing,
    /// Bytes of this chunk, or of the whole body.
    left: u64,
    /// A chunk was read to its end, but not the line behind it, which may come later.
    behind_chunk: bool,
    is_over: bool,
}

impl Framed<'_> {
    /// A chunk's length, or the end.
    fn next_chunk(&mut self) -> io::Result<()> {
        if std::mem::take(&mut self.behind_chunk) {
            self.frame_line()?;
        }
        let size = self.frame_line()?;
        let digits = size.split(';').next().unwrap_or_default().trim();
        let bad = |_| io::Error::new(io::ErrorKind::InvalidData, format!("a chunk of {}", shown(digits)));
        self.left = u64::from_str_radix(digits, 16).map_err(bad)?;
        if self.left == 0 {
            self.is_over = true;
            // Trailers, up to an empty line.
            while !self.frame_line()?.is_empty() {}
        }
        Ok(())
    }

    fn frame_line(&mut self) -> io::Result<String> {
        let mut line = Vec::new();
        self.timed.by_ref().take(MAX_FRAME_BYTES).read_until(b'\n', &mut line)?;
        if line.last() != Some(&b'\n') {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(String::from_utf8_lossy(&line).trim_end().to_owned())
    }
}

impl Read for Framed<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.framing == Framing::UntilClosed {
            return self.timed.read(buffer);
        }
        if self.framing == Framing::Chunked && self.left == 0 && !self.is_over {
            self.next_chunk()?;
        }
        let wanted = buffer.len().min(usize::try_from(self.left).unwrap_or(usize::MAX));
        if wanted == 0 {
            return Ok(0);
        }
        let read = self.timed.read(&mut buffer[..wanted])?;
        if read == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.left -= read as u64;
        self.behind_chunk = self.left == 0 && self.framing == Framing::Chunked;
        Ok(read)
    }
}
