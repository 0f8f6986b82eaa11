//! The server as clients meet it: real HTTP on a port of this machine, with the model of this repository.
#![allow(clippy::unwrap_used, clippy::panic, reason = "the whole crate is tests")]

mod access;
mod chats;
mod client;
mod completions;
mod disconnects;
mod drain;
mod fields;
mod limits;
mod loading;
mod messages;
mod page;
mod responses;
mod served;
mod status;
mod tools;
