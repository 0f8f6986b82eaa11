//! Answers over time: as server-sent events, or gathered into one document. A client that leaves is noticed in the queue,
//! while the prompt is evaluated and between tokens, because dropping what runs cancels it.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::{Body, Bytes};
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::http::{HeaderName, HeaderValue};
use axum::response::{IntoResponse, Response};
use http_body::Frame;
use kipp::engine::Event;
use serde_json::Value;
use tokio::sync::mpsc::{Receiver, Sender, channel};

use crate::error::ApiError;
use crate::running::Running;

/// Chunks that wait for a slow reader; behind them the engine's own bound counts.
const WAITING_CHUNKS: usize = 16;

/// What an endpoint makes of events.
pub(crate) trait Shape: Send + 'static {
    /// What a stream begins with, before anything has happened.
    fn first_chunks(&mut self) -> Vec<Value> {
        Vec::new()
    }

    /// What is streamed of an event.
    fn chunks(&mut self, prompt: usize, event: Event) -> Result<Vec<Value>, ApiError>;

    /// What a stream ends with, before `[DONE]`.
    fn last_chunks(&mut self) -> Vec<Value>;

    /// What a stream ends with instead, where something went wrong.
    fn failed_chunks(&mut self, error: &ApiError) -> Vec<Value> {
        vec![error.body()]
    }

    /// Keeps an event for the whole answer.
    fn keep(&mut self, prompt: usize, event: Event) -> Result<(), ApiError>;

    /// The whole answer.
    fn whole(self) -> Value;

    /// Whether events carry their type as a name, as Anthropic's and those of responses do; such a stream has no `[DONE]`.
    fn named_events(&self) -> bool {
        false
    }
}

/// An answer with a JSON document.
pub(crate) fn json(value: &Value) -> Response {
    let mut response = Response::new(Body::from(value.to_string()));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// Streams the answer, or waits for all of it.
pub(crate) async fn answer(running: Running, shape: impl Shape, streams: bool) -> Response {
    let tally = running.tally();
    let mut response = if streams {
        stream(running, shape)
    } else {
        match gather(running, shape).await {
            Ok(whole) => json(&whole),
            Err(error) => error.into_response(),
        }
    };
    // For the log, once the answer has ended.
    response.extensions_mut().insert(tally);
    response
}

async fn gather(mut running: Running, mut shape: impl Shape) -> Result<Value, ApiError> {
    while let Some(told) = running.next().await {
        let (prompt, event) = told?;
        shape.keep(prompt, event)?;
    }
    Ok(shape.whole())
}

fn stream(running: Running, shape: impl Shape) -> Response {
    let (sender, receiver) = channel(WAITING_CHUNKS);
    tokio::spawn(write(running, shape, sender));
    let mut response = Response::new(Body::new(Events(receiver)));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream; charset=utf-8"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    // Proxies must not gather what is meant to arrive piece by piece.
    headers.insert(HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no"));
    response
}

/// Writes until the answer ends or nobody reads. Returning drops what runs.
async fn write(mut running: Running, mut shape: impl Shape, sender: Sender<Bytes>) {
    let named = shape.named_events();
    if send(&sender, &shape.first_chunks(), named).await.is_err() {
        return;
    }
    loop {
        let told = tokio::select! {
            () = sender.closed() => return,
            told = running.next() => told,
        };
        let chunks = match told {
            Some(Ok((prompt, event))) => shape.chunks(prompt, event),
            Some(Err(error)) => Err(error),
            None => break,
        };
        match chunks {
            Ok(chunks) => {
                if send(&sender, &chunks, named).await.is_err() {
                    return;
                }
            }
            Err(error) => {
                let _ = send(&sender, &shape.failed_chunks(&error), named).await;
                return;
            }
        }
    }
    if send(&sender, &shape.last_chunks(), named).await.is_ok() && !named {
        let _ = sender.send(Bytes::from_static(b"data: [DONE]\n\n")).await;
    }
}

/// Sends chunks as one piece; an error is a reader that left.
async fn send(sender: &Sender<Bytes>, chunks: &[Value], named: bool) -> Result<(), ()> {
    if chunks.is_empty() {
        return Ok(());
    }
    let event = |chunk: &Value| match chunk["type"].as_str().filter(|_| named) {
        Some(name) => format!("event: {name}\ndata: {chunk}\n\n"),
        None => format!("data: {chunk}\n\n"),
    };
    let text: String = chunks.iter().map(event).collect();
    sender.send(text.into()).await.map_err(|_| ())
}

/// The body of a stream.
struct Events(Receiver<Bytes>);

impl http_body::Body for Events {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0.poll_recv(context).map(|bytes| bytes.map(|bytes| Ok(Frame::data(bytes))))
    }
}
