//! Kipp's engine behind HTTP: OpenAI's interface as clients speak it. The only place that knows HTTP, JSON wire shapes and
//! async; what is asked of the engine is a [`kipp::engine::Request`], and what comes of it events.
//!
//! A request's way: `router` finds the endpoint, `body` takes the bytes, `fields` reads them by type and path, `terms` and
//! the endpoint's own module make requests of the engine, `running` submits them and waits, and `sse` answers over time or
//! at once. `error` is the one place where something wrong becomes a status.

mod access_log;
mod app;
mod auth;
mod body;
mod chat;
mod completions;
mod connection;
mod error;
mod exposition;
mod fields;
mod loading;
mod logprobs;
mod messages;
mod metrics;
mod models;
mod openapi;
mod page;
mod responses;
mod router;
mod running;
mod serve;
mod sse;
mod state;
mod terms;
mod tokens;
mod usage;
mod vllm_metrics;

pub use app::{Log, LogLine, ServerInfo, TokenCounts};
pub use loading::Loading;
pub use router::router;
pub use serve::{Patience, Server};
