//! What answers while the model is being loaded: 503 to everybody, so that probes and routers know that somebody is there.

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use axum::http::StatusCode;

use crate::error::ApiError;

/// Between two looks at the socket.
const LOOK: Duration = Duration::from_millis(10);

/// How long a client may take for its request; the answer is the same whatever it says.
const PATIENCE: Duration = Duration::from_millis(200);

/// A socket that says that the server is loading, until this is dropped.
pub struct Loading {
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Loading {
    /// Begins to answer; the listener goes on being its owner's.
    ///
    /// # Errors
    /// Where the system gives no thread or handle.
    pub fn start(listener: &TcpListener) -> io::Result<Loading> {
        let listener = listener.try_clone()?;
        listener.set_nonblocking(true)?;
        let over = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&over);
        let thread = std::thread::Builder::new().name("kipp-loading".to_owned()).spawn(move || {
            while !told.load(Ordering::Relaxed) {
                match listener.accept() {
                    // A client that left is no reason to stop.
                    Ok((stream, _)) => drop(answer(stream)),
                    Err(_) => std::thread::sleep(LOOK),
                }
            }
        })?;
        Ok(Loading { over, thread: Some(thread) })
    }
}

impl Drop for Loading {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // It ends by itself, and a panic of it changes nothing.
            let _ = thread.join();
        }
    }
}

fn answer(mut stream: TcpStream) -> io::Result<()> {
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    // A request that is not read at all would make the system reset the answer.
    let _ = stream.read(&mut [0; 4096]);
    let body = ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "loading", "the model is being loaded").body();
    let body = body.to_string();
    let head = "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nConnection: close\r\nRetry-After: 1";
    write!(stream, "{head}\r\nContent-Length: {}\r\n\r\n{body}", body.len())
}
