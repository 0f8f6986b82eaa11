//! The client's side of HTTP/1.1 on one socket that is kept: a request, and an answer whose body is read line by line as it
//! comes. Nothing waits for ever, and nothing that a server says makes it take memory without end. Threads and blocking
//! sockets: a few clients need no runtime, and a thread that waits costs the server that is measured nothing.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

use super::body::{Body, Framing, Timed};

/// For a connection to come about.
const CONNECT: Duration = Duration::from_secs(10);
/// Bytes of an answer's head at most.
const MAX_HEAD_BYTES: u64 = 64 << 10;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum HttpError {
    #[error("cannot connect to {authority}: {reason}")]
    Connect { authority: String, reason: String },
    #[error("the connection broke: {0}")]
    Broken(#[from] io::Error),
    #[error("nothing came for {0:.0} s")]
    Silent(f64),
    #[error("the answer was not over after {0:.0} s")]
    Late(f64),
    #[error("the answer is not HTTP: {0}")]
    NotHttp(String),
    #[error("the answer has a line or a body of more than {0} bytes")]
    TooLong(u64),
}

/// How long is waited.
#[derive(Clone, Copy, Debug)]
pub(super) struct Patience {
    /// For the next byte.
    pub(super) silence: Duration,
    /// For the whole answer.
    pub(super) answer: Duration,
}

impl Patience {
    /// What a failed read means. The system says `WouldBlock` where nothing came; the deadline says `TimedOut`.
    pub(super) fn explain(&self, error: io::Error) -> HttpError {
        match error.kind() {
            io::ErrorKind::WouldBlock => HttpError::Silent(self.silence.as_secs_f64()),
            io::ErrorKind::TimedOut => HttpError::Late(self.answer.as_secs_f64()),
            _ => HttpError::Broken(error),
        }
    }
}

/// What is sent.
#[derive(Clone, Copy, Debug)]
pub(super) struct HttpRequest<'a> {
    pub(super) method: &'a str,
    pub(super) path: &'a str,
    pub(super) key: Option<&'a str>,
    /// JSON.
    pub(super) body: &'a str,
}

/// A connection that answers come over one after the other.
pub(super) struct Connection {
    reader: BufReader<TcpStream>,
    authority: String,
    patience: Patience,
    /// When the answer that is awaited must be over.
    deadline: Instant,
}

/// The head of an answer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Head {
    pub(super) status: u16,
    framing: Framing,
    /// Whether the server takes another request over this connection.
    pub(super) stays_open: bool,
}

impl Connection {
    /// Connects to `host:port`.
    pub(super) fn open(authority: &str, patience: Patience) -> Result<Connection, HttpError> {
        let failed = |error: io::Error| HttpError::Connect {
            authority: authority.to_owned(),
            reason: error.to_string(),
        };
        let mut last = io::Error::new(io::ErrorKind::NotFound, "no address");
        for address in authority.to_socket_addrs().map_err(failed)? {
            match TcpStream::connect_timeout(&address, CONNECT) {
                Ok(stream) => return Ok(Connection::over(stream, authority, patience)?),
                Err(error) => last = error,
            }
        }
        Err(failed(last))
    }

    fn over(stream: TcpStream, authority: &str, patience: Patience) -> io::Result<Connection> {
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(patience.silence))?;
        stream.set_write_timeout(Some(patience.silence))?;
        Ok(Connection {
            reader: BufReader::new(stream),
            authority: authority.to_owned(),
            patience,
            deadline: Instant::now() + patience.answer,
        })
    }

    /// Sends a request as one piece.
    pub(super) fn send(&mut self, request: &HttpRequest<'_>) -> Result<(), HttpError> {
        let HttpRequest { method, path, key, body } = *request;
        let authorization = key.map_or_else(String::new, |key| format!("Authorization: Bearer {key}\r\n"));
        let text = format!(
            "{method} {path} HTTP/1.1\r\nHost: {}\r\n{authorization}Content-Type: application/json\r\nAccept: \
             application/json, text/event-stream\r\nContent-Length: {}\r\n\r\n{body}",
            self.authority,
            body.len()
        );
        self.deadline = Instant::now() + self.patience.answer;
        Ok(self.reader.get_mut().write_all(text.as_bytes())?)
    }

    fn timed(&mut self) -> Timed<'_> {
        Timed { reader: &mut self.reader, deadline: self.deadline }
    }

    /// Reads the head of the answer.
    pub(super) fn head(&mut self) -> Result<Head, HttpError> {
        let patience = self.patience;
        let mut limited = self.timed().take(MAX_HEAD_BYTES);
        let first = head_line(&mut limited, patience)?;
        let status = status(&first).ok_or_else(|| HttpError::NotHttp(shown(&first)))?;
        let mut head =
            Head { status, framing: Framing::UntilClosed, stays_open: first.starts_with("HTTP/1.1") };
        loop {
            let line = head_line(&mut limited, patience)?;
            if line.is_empty() {
                break;
            }
            let Some((name, value)) = line.split_once(':') else { continue };
            let value = value.trim();
            match name.to_ascii_lowercase().as_str() {
                "transfer-encoding" if value.eq_ignore_ascii_case("chunked") => {
                    head.framing = Framing::Chunked;
                }
                "content-length" if head.framing != Framing::Chunked => {
                    let length = value.parse().map_err(|_| HttpError::NotHttp(shown(&line)))?;
                    head.framing = Framing::Length(length);
                }
                "connection" if value.eq_ignore_ascii_case("close") => head.stays_open = false,
                _ => {}
            }
        }
        head.stays_open &= head.framing != Framing::UntilClosed;
        Ok(head)
    }

    /// The body behind a head.
    pub(super) fn body(&mut self, head: &Head) -> Body<'_> {
        let patience = self.patience;
        Body::new(self.timed(), head.framing, patience)
    }
}

fn head_line(reader: &mut io::Take<Timed<'_>>, patience: Patience) -> Result<String, HttpError> {
    let mut line = Vec::new();
    reader.read_until(b'\n', &mut line).map_err(|error| patience.explain(error))?;
    match line.strip_suffix(b"\n") {
        Some(text) => Ok(String::from_utf8_lossy(text).trim_end().to_owned()),
        None if reader.limit() == 0 => Err(HttpError::TooLong(MAX_HEAD_BYTES)),
        None if line.is_empty() => Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
        None => Err(HttpError::NotHttp(shown(&String::from_utf8_lossy(&line)))),
    }
}

fn status(line: &str) -> Option<u16> {
    let (version, rest) = line.split_once(' ')?;
    version.strip_prefix("HTTP/1.")?;
    rest.get(..3)?.parse().ok()
}

/// The beginning of what a server said.
pub(super) fn shown(text: &str) -> String {
    text.trim().chars().take(200).collect::<String>().escape_debug().to_string()
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    const PATIENCE: Patience =
        Patience { silence: Duration::from_millis(300), answer: Duration::from_millis(900) };

    /// A server that says these things to the first client, with a pause of `pause_ms` before each.
    fn saying(pieces: &'static [&'static str], pause_ms: u64) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let authority = listener.local_addr().unwrap().to_string();
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            for piece in pieces {
                std::thread::sleep(Duration::from_millis(pause_ms));
                if stream.write_all(piece.as_bytes()).is_err() {
                    return;
                }
            }
            // Open for a while, as a server that hangs.
            std::thread::sleep(Duration::from_secs(2));
        });
        authority
    }

    fn lines(authority: &str) -> Result<(u16, Vec<String>, bool), HttpError> {
        let mut connection = Connection::open(authority, PATIENCE)?;
        connection.send(&HttpRequest { method: "GET", path: "/", key: None, body: "" })?;
        let head = connection.head()?;
        let mut body = connection.body(&head);
        let (mut line, mut lines) = (Vec::new(), Vec::new());
        while body.line(&mut line)? {
            lines.push(String::from_utf8(line.clone()).unwrap());
        }
        Ok((head.status, lines, head.stays_open))
    }

    #[test]
    fn chunks_and_lines_need_not_end_together() {
        let chunked = saying(
            &[
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\none\nt\r\n",
                "6;x=y\r\nwo\r\n\nt\r\n1\r\nh\r\n0\r\n\r\n",
            ],
            20,
        );
        let expected = ["one", "two", "", "th"].map(str::to_owned).to_vec();
        assert_eq!(lines(&chunked).unwrap(), (200, expected, true));
        let counted = saying(&["HTTP/1.1 404 no\r\nContent-Length: 3\r\nConnection: close\r\n\r\na\nbcd"], 0);
        assert_eq!(lines(&counted).unwrap(), (404, vec!["a".to_owned(), "b".to_owned()], false));
    }

    #[test]
    fn what_is_no_http_or_broken_or_silent_is_an_error_soon() {
        let started = Instant::now();
        let error = |pieces, pause_ms| lines(&saying(pieces, pause_ms)).unwrap_err();
        assert!(matches!(error(&["SSH-2.0-x\r\n"], 0), HttpError::NotHttp(_)));
        assert!(matches!(error(&["HTTP/1.1 200 OK\r\n"], 0), HttpError::Silent(_)));
        let bad_chunk = &["HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"];
        assert!(matches!(error(bad_chunk, 0), HttpError::Broken(_)));
        // A byte now and then is no silence, but the answer never ends.
        let drip =
            &["HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n", "\n", "\n", "\n", "\n", "\n", "\n", "\n"];
        assert!(matches!(error(drip, 200), HttpError::Late(_)));
        let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
        assert!(matches!(lines(&nobody).unwrap_err(), HttpError::Connect { .. }));
        assert!(started.elapsed() < Duration::from_secs(10));
    }
}
