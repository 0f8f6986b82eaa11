//! Those who want to do harm: heads and bodies that come a byte at a time, bodies of 100 MB. They are refused soon, cost
//! little memory and time, and keep nobody waiting.

use std::io::Write;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use super::questions::Question;
use super::server::{BODY_SECONDS, HEADER_SECONDS, MAX_BODY_MIB, Server};
use super::wire::{self, Wire};

/// Clients of each kind.
const SLOW_CLIENTS: usize = 64;
const LARGE_CLIENTS: usize = 4;

/// Between the bytes of a slow client.
const DRIP: Duration = Duration::from_millis(150);
/// How much later than its limit the server may let a slow client go.
const GRACE: Duration = Duration::from_secs(5);

const LARGE_BYTES: usize = 100 << 20;
const CHUNK_BYTES: usize = 1 << 16;
/// A refusal of what a head announces needs no body.
const REFUSED_WITHIN: Duration = Duration::from_secs(3);
/// What refusals may take of memory: buffers of sockets and of their heads.
const CHEAP_KIB: u64 = 8 << 10;

/// How the server bore it, a line each.
pub(super) fn attack(server: &Server, questions: &[Question]) -> Result<Vec<String>> {
    Ok(vec![
        slow(server, questions, &SLOW_HEAD)?,
        slow(server, questions, &SLOW_BODY)?,
        announced(server)?,
        unannounced(server)?,
    ])
}

/// A kind of slow client.
struct Slow {
    name: &'static str,
    start: &'static [u8],
    limit_seconds: u64,
    /// What the server says before it closes, where it can.
    status: &'static str,
}

const SLOW_HEAD: Slow = Slow {
    name: "heads",
    start: b"POST /v1/completions HTTP/1.1\r\nHost: h\r\nX: ",
    limit_seconds: HEADER_SECONDS,
    status: "",
};

const SLOW_BODY: Slow = Slow {
    name: "bodies",
    start: b"POST /v1/completions HTTP/1.1\r\nHost: h\r\nContent-Length: 100000\r\n\r\n",
    limit_seconds: BODY_SECONDS,
    status: "HTTP/1.1 408",
};

fn slow(server: &Server, questions: &[Question], kind: &Slow) -> Result<String> {
    let before = server.resident_kib();
    let watch = server.watch();
    let started = Instant::now();
    let lasted = thread::scope(|scope| -> Result<Duration> {
        let clients: Vec<_> = (0..SLOW_CLIENTS).map(|_| scope.spawn(|| drip(server.port, kind))).collect();
        // Meanwhile others are answered, and rightly.
        for question in questions.iter().take(4) {
            let answer = wire::request(server.port, "POST", question.path, Some(&question.body(false)))?;
            question.check(&answer, false)?;
        }
        let mut longest = Duration::ZERO;
        for client in clients {
            let lasted = client.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
            longest = longest.max(lasted);
        }
        Ok(longest)
    });
    let grown = grown_kib(before, watch.end());
    let lasted = lasted?;
    ensure!(grown <= CHEAP_KIB, "{SLOW_CLIENTS} slow {} took {grown} KiB of memory", kind.name);
    Ok(format!(
        "{SLOW_CLIENTS} slow {}: let go after {:.1} s at most, {grown} KiB more memory, {:.1} s in all",
        kind.name,
        lasted.as_secs_f64(),
        started.elapsed().as_secs_f64()
    ))
}

/// A byte at a time, until the server has enough of it.
fn drip(port: u16, kind: &Slow) -> Result<Duration> {
    let mut wire = Wire::open(port)?;
    let started = Instant::now();
    let limit = Duration::from_secs(kind.limit_seconds) + GRACE;
    wire.socket().write_all(kind.start)?;
    let mut said = String::new();
    loop {
        let (more, is_closed) = wire.farewell(DRIP)?;
        said += &more;
        if is_closed || !said.is_empty() {
            break;
        }
        ensure!(started.elapsed() < limit, "slow {} are not let go after {limit:?}", kind.name);
        let _ = wire.socket().write_all(b" ");
    }
    ensure!(said.starts_with(kind.status), "slow {}: the server said {said:?}", kind.name);
    Ok(started.elapsed())
}

/// Bodies whose size stands in the head.
fn announced(server: &Server) -> Result<String> {
    let head = format!("POST /v1/completions HTTP/1.1\r\nHost: h\r\nContent-Length: {LARGE_BYTES}\r\n\r\n");
    let Large { grown, longest, sent } = large(server, &head, None)?;
    ensure!(grown <= CHEAP_KIB, "refused bodies of 100 MB took {grown} KiB of memory");
    ensure!(longest <= REFUSED_WITHIN, "bodies of 100 MB were refused after {longest:?}");
    Ok(format!(
        "{LARGE_CLIENTS} bodies of 100 MB, announced: 413 after {:.0} ms at most, {} KiB taken at most, {grown} KiB more \
         memory",
        longest.as_secs_f64() * 1e3,
        sent >> 10
    ))
}

/// Bodies in chunks, whose size shows only as they come; twice, for what an allocator keeps after the first time must serve
/// it the second time.
fn unannounced(server: &Server) -> Result<String> {
    let head = "POST /v1/completions HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n";
    let before = server.resident_kib();
    let first = large(server, head, Some(CHUNK_BYTES))?;
    // Up to the limit each of them might have been a request.
    let bound = LARGE_CLIENTS as u64 * (MAX_BODY_MIB << 10) * 5 / 4 + CHEAP_KIB;
    ensure!(first.grown <= bound, "bodies in chunks took {} KiB of memory, more than {bound}", first.grown);
    let between = server.resident_kib();
    let second = large(server, head, Some(CHUNK_BYTES))?;
    let kept = grown_kib(before, between.unwrap_or(0));
    let again = grown_kib(between, server.resident_kib().unwrap_or(0));
    ensure!(again <= 2 * CHEAP_KIB, "{again} KiB more are kept each time that bodies are refused");
    Ok(format!(
        "{LARGE_CLIENTS} bodies of 100 MB, in chunks: 413 after {:.0} ms at most, {} KiB more memory meanwhile, {kept} KiB \
         after; {again} KiB more after the same again",
        first.longest.max(second.longest).as_secs_f64() * 1e3,
        first.grown
    ))
}

/// How large bodies were borne.
struct Large {
    grown: u64,
    longest: Duration,
    /// Bytes that the server let one client send, at most.
    sent: usize,
}

fn large(server: &Server, head: &str, chunk: Option<usize>) -> Result<Large> {
    let before = server.resident_kib();
    let watch = server.watch();
    let results: Vec<Result<(Duration, usize)>> = thread::scope(|scope| {
        let clients: Vec<_> =
            (0..LARGE_CLIENTS).map(|_| scope.spawn(|| pour(server.port, head, chunk))).collect();
        let joined = clients.into_iter().map(|it| it.join());
        joined.map(|it| it.unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
    });
    let grown = grown_kib(before, watch.end());
    let (mut longest, mut sent) = (Duration::ZERO, 0);
    for result in results {
        let (took, bytes) = result?;
        longest = longest.max(took);
        sent = sent.max(bytes);
    }
    Ok(Large { grown, longest, sent })
}

/// Sends until the server takes no more, as clients do that look at no answer before they have sent everything; time and
/// bytes until then. They must find the refusal all the same.
fn pour(port: u16, head: &str, chunk: Option<usize>) -> Result<(Duration, usize)> {
    let mut wire = Wire::open(port)?;
    let started = Instant::now();
    wire.socket().write_all(head.as_bytes())?;
    let piece = match chunk {
        Some(bytes) => [format!("{bytes:x}\r\n").into_bytes(), vec![b' '; bytes], b"\r\n".to_vec()].concat(),
        None => vec![b' '; 1 << 16],
    };
    let mut sent = 0;
    while sent < LARGE_BYTES && wire.socket().write_all(&piece).is_ok() {
        sent += piece.len();
    }
    let (said, _) = wire.farewell(Duration::from_secs(10))?;
    ensure!(said.starts_with("HTTP/1.1 413"), "after {sent} bytes the server said {said:?}");
    Ok((started.elapsed(), sent))
}

fn grown_kib(before: Option<u64>, after: u64) -> u64 {
    after.saturating_sub(before.unwrap_or(after))
}
