//! One connection: HTTP/1.1 on a socket that is watched. A client that is slow to send a head, has nothing to say, or does
//! not read what it asked for is let go; reading and writing themselves never wait for the watch.

use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::{Body, Bytes};
use http_body::{Frame, SizeHint};
use hyper::body::Incoming;
use hyper::service::{Service, service_fn};
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use crate::serve::Patience;

/// Between two looks at a connection's times.
const LOOK: Duration = Duration::from_millis(200);

/// Bytes of a head at most, with all its headers; beyond it the answer is 431.
const MAX_HEAD_BYTES: usize = 64 << 10;

/// What a connection is doing, since when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Doing {
    /// Nothing, between requests.
    Idle,
    /// Sending a head.
    Head,
    /// A request is being answered.
    Answer,
}

struct Times {
    doing: Doing,
    since: Instant,
    /// Since when its reader takes nothing.
    stalled: Option<Instant>,
}

/// The times of one connection.
#[derive(Clone)]
struct Watch(Arc<Mutex<Times>>);

impl Watch {
    fn new() -> Watch {
        Watch(Arc::new(Mutex::new(Times { doing: Doing::Idle, since: Instant::now(), stalled: None })))
    }

    fn change(&self, change: impl FnOnce(&mut Times)) {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }

    fn set(&self, doing: Doing) {
        self.change(|times| (times.doing, times.since) = (doing, Instant::now()));
    }

    /// Whether the connection took longer than anybody should wait.
    fn is_over(&self, patience: &Patience) -> bool {
        let mut over = false;
        self.change(|times| {
            let limit = match times.doing {
                Doing::Idle => Some(patience.idle),
                Doing::Head => Some(patience.header),
                // How long an answer takes is nobody's fault.
                Doing::Answer => None,
            };
            over = limit.is_some_and(|limit| times.since.elapsed() > limit)
                || times.stalled.is_some_and(|since| since.elapsed() > patience.idle);
        });
        over
    }
}

/// A request that is being answered, until its body is written or dropped.
struct Answering {
    watch: Watch,
    count: Arc<AtomicUsize>,
}

impl Answering {
    fn new(watch: &Watch, count: &Arc<AtomicUsize>) -> Answering {
        watch.set(Doing::Answer);
        count.fetch_add(1, Ordering::AcqRel);
        Answering { watch: watch.clone(), count: Arc::clone(count) }
    }
}

impl Drop for Answering {
    fn drop(&mut self) {
        self.watch.set(Doing::Idle);
        self.count.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Serves a connection until either side ends it. `answering` counts requests that are being answered.
pub(super) async fn serve(
    stream: TcpStream,
    router: Router,
    patience: Patience,
    answering: Arc<AtomicUsize>,
) {
    // Tokens are small and must not wait for each other.
    let _ = stream.set_nodelay(true);
    let watch = Watch::new();
    let io = TokioIo::new(Watched { stream, watch: watch.clone() });
    let router = TowerToHyperService::new(router);
    let of_request = watch.clone();
    let service = service_fn(move |request: hyper::Request<Incoming>| {
        let answering = Answering::new(&of_request, &answering);
        let answer = router.call(request.map(Body::new));
        async move { answer.await.map(|response| response.map(|body| Answer { body, _answering: answering })) }
    });
    let mut http = hyper::server::conn::http1::Builder::new();
    // The watch does this, since it also knows idle connections.
    http.max_buf_size(MAX_HEAD_BYTES).header_read_timeout(None);
    let connection = http.serve_connection(io, service);
    tokio::select! {
        // What ends a connection is its client's business.
        _ = connection => {}
        () = over(&watch, &patience) => {}
    }
}

async fn over(watch: &Watch, patience: &Patience) {
    while !watch.is_over(patience) {
        tokio::time::sleep(LOOK).await;
    }
}

/// An answer's body, which counts as being answered until it is gone.
struct Answer {
    body: Body,
    _answering: Answering,
}

impl http_body::Body for Answer {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// A socket whose bytes are noticed.
struct Watched {
    stream: TcpStream,
    watch: Watch,
}

impl AsyncRead for Watched {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let poll = Pin::new(&mut self.stream).poll_read(context, buffer);
        if buffer.filled().len() > before {
            self.watch.change(|times| {
                if times.doing == Doing::Idle {
                    (times.doing, times.since) = (Doing::Head, Instant::now());
                }
            });
        }
        poll
    }
}

impl AsyncWrite for Watched {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let poll = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.watch.change(|times| {
            times.stalled =
                if poll.is_pending() { times.stalled.or_else(|| Some(Instant::now())) } else { None };
        });
        poll
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
