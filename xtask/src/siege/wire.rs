//! HTTP as bytes on a socket: a client that can be as slow, as rude and as wrong as the siege wants, and that keeps what
//! came when.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};

/// Whoever waits this long has found something that hangs.
const PATIENCE: Duration = Duration::from_secs(120);

/// An answer.
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) body: String,
    /// When each line of a stream was there.
    pub(super) lines_at: Vec<Instant>,
}

/// A connection to the server.
pub(super) struct Wire {
    reader: BufReader<TcpStream>,
}

impl Wire {
    pub(super) fn open(port: u16) -> Result<Self> {
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        let stream = TcpStream::connect_timeout(&address, PATIENCE).context("no connection")?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(Self { reader: BufReader::new(stream) })
    }

    pub(super) fn socket(&mut self) -> &mut TcpStream {
        self.reader.get_mut()
    }

    /// Sends a request with a body, or without.
    pub(super) fn send(&mut self, method: &str, path: &str, body: Option<&str>) -> Result<()> {
        let mut text = format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\n");
        if let Some(body) = body {
            text += &format!("Content-Type: application/json\r\nContent-Length: {}\r\n", body.len());
        }
        text = text + "\r\n" + body.unwrap_or_default();
        self.socket().write_all(text.as_bytes()).context("the request could not be sent")
    }

    /// The whole answer. `pause` is called after each line of a stream: a slow reader sleeps there.
    pub(super) fn answer(&mut self, mut pause: impl FnMut()) -> Result<Answer> {
        let first = self.line()?;
        let status = first.split(' ').nth(1).and_then(|status| status.parse().ok());
        let status = status.with_context(|| format!("no status: {first:?}"))?;
        let (mut chunked, mut length) = (false, None);
        loop {
            let line = self.line()?.to_ascii_lowercase();
            match line.split_once(':').map(|(name, value)| (name, value.trim())) {
                Some(("transfer-encoding", "chunked")) => chunked = true,
                Some(("content-length", value)) => length = value.parse::<usize>().ok(),
                None if line.is_empty() => break,
                _ => {}
            }
        }
        let (mut body, mut lines_at) = (Vec::new(), Vec::new());
        if chunked {
            while let Some(chunk) = self.chunk()? {
                let lines = chunk.iter().filter(|byte| **byte == b'\n').count();
                lines_at.extend(std::iter::repeat_n(Instant::now(), lines));
                body.extend(chunk);
                pause();
            }
        } else {
            body.resize(length.context("an answer without a length")?, 0);
            self.reader.read_exact(&mut body).context("the answer broke off")?;
        }
        let body = String::from_utf8(body).context("an answer that is not UTF-8")?;
        Ok(Answer { status, body, lines_at })
    }

    fn chunk(&mut self) -> Result<Option<Vec<u8>>> {
        let line = self.line()?;
        let bytes = usize::from_str_radix(&line, 16).with_context(|| format!("a chunk of {line:?}"))?;
        ensure!(bytes < 1 << 24, "a chunk of {bytes} bytes");
        let mut chunk = vec![0; bytes + 2];
        self.reader.read_exact(&mut chunk).context("a stream broke off")?;
        chunk.truncate(bytes);
        Ok((bytes > 0).then_some(chunk))
    }

    fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        self.reader.read_line(&mut line).context("no answer")?;
        match line.strip_suffix("\r\n") {
            Some(text) => Ok(text.to_owned()),
            None => bail!("the connection was closed after {line:?}"),
        }
    }

    /// Reads so many bytes of whatever comes, or what there is before the end.
    pub(super) fn read_some(&mut self, bytes: usize) -> usize {
        let mut taken = 0;
        let mut buffer = vec![0; bytes];
        while taken < bytes {
            match self.reader.read(&mut buffer[taken..]) {
                Ok(read @ 1..) => taken += read,
                _ => break,
            }
        }
        taken
    }

    /// Reads what the server still says, within this time; whether it closed the connection.
    pub(super) fn farewell(&mut self, within: Duration) -> Result<(String, bool)> {
        let end = Instant::now() + within;
        let (mut said, mut buffer) = (Vec::new(), [0; 4096]);
        while let Some(left) = end.checked_duration_since(Instant::now()).filter(|left| !left.is_zero()) {
            self.socket().set_read_timeout(Some(left))?;
            match self.reader.read(&mut buffer) {
                Ok(0) => return Ok((text(said), true)),
                Ok(read) => said.extend(&buffer[..read]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                // A reset is an end as well.
                Err(_) => return Ok((text(said), true)),
            }
        }
        Ok((text(said), false))
    }
}

fn text(bytes: Vec<u8>) -> String {
    String::from_utf8_lossy(&bytes).into_owned()
}

/// One request on a connection of its own.
pub(super) fn request(port: u16, method: &str, path: &str, body: Option<&str>) -> Result<Answer> {
    let mut wire = Wire::open(port)?;
    wire.send(method, path, body)?;
    wire.answer(|| ())
}
