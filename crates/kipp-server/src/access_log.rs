//! The log's line of a request: written when its answer has been sent to the end, or nobody reads it any more. So it tells
//! how long a stream took, and how much came of it.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use axum::body::{Body, Bytes};
use axum::response::Response;
use http_body::{Body as _, Frame, SizeHint};

use crate::app::{App, LogLine};
use crate::running::Tally;

/// What stands for the status of a request whose client left before there was one: the number that other servers log.
const CLIENT_LEFT: u16 = 499;

/// A request on its way; dropping it writes its line.
pub(crate) struct Line {
    app: Arc<App>,
    id: String,
    method: String,
    endpoint: String,
    status: u16,
    started: Instant,
    tally: Option<Arc<Tally>>,
    complete: bool,
}

impl Line {
    pub(crate) fn new(app: Arc<App>, id: String, method: String, endpoint: String) -> Line {
        let (status, started) = (CLIENT_LEFT, Instant::now());
        Line { app, id, method, endpoint, status, started, tally: None, complete: false }
    }

    pub(crate) fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// The answer, whose body carries the line with it.
    pub(crate) fn with(mut self, response: Response) -> Response {
        self.status = response.status().as_u16();
        self.tally = response.extensions().get::<Arc<Tally>>().cloned();
        response.map(|body| Body::new(Logged { body, line: self }))
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        let tally = self.tally.take();
        let failed = tally.as_ref().is_some_and(|tally| tally.has_failed());
        (self.app.info.log)(LogLine::Request {
            id: std::mem::take(&mut self.id),
            method: std::mem::take(&mut self.method),
            endpoint: std::mem::take(&mut self.endpoint),
            status: self.status,
            duration_ms: self.started.elapsed().as_secs_f64() * 1000.0,
            tokens: tally.map(|tally| tally.counts()),
            complete: self.complete && !failed,
        });
    }
}

/// A body that knows whether it was sent to its end.
struct Logged {
    body: Body,
    line: Line,
}

impl http_body::Body for Logged {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let poll = Pin::new(&mut self.body).poll_frame(context);
        if matches!(poll, Poll::Ready(None)) {
            self.line.complete = true;
        }
        poll
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for Logged {
    fn drop(&mut self) {
        // A body whose length is known is not asked again behind its last byte.
        self.line.complete |= self.body.is_end_stream();
    }
}
