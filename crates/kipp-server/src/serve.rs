//! The server's life: connections are taken until it is told to drain, what runs may end within a time, then it is over.

use std::future::Future;
use std::io;
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use kipp::engine::EngineHandle;
use tokio::time::{Instant, sleep};

use crate::app::{App, Phase, ServerInfo};
use crate::{connection, router};

/// Between two looks at whether something has ended.
const LOOK: Duration = Duration::from_millis(20);

/// How long answers that were told to end have for saying so.
const FAREWELL: Duration = Duration::from_secs(2);

/// A pause where the system has no more sockets.
const NO_SOCKETS: Duration = Duration::from_millis(50);

/// Threads that read requests: enough that a grammar which compiles keeps nobody waiting, and few enough that large bodies do
/// not fill the memory all at once.
const READERS: usize = 8;

/// Stack of such a thread, which handles grammars' trees: as much as a main thread has.
const STACK_BYTES: usize = 8 << 20;

/// How long the server waits, for what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// For the rest of a request's head, once it has begun.
    pub header: Duration,
    /// For a next request, and for a reader that takes nothing.
    pub idle: Duration,
    /// For what runs, once the server drains.
    pub drain: Duration,
}

/// An engine's interface, ready for sockets.
pub struct Server {
    app: Arc<App>,
}

impl Server {
    /// The interface over an engine.
    pub fn new(engine: EngineHandle, info: ServerInfo) -> Server {
        Server { app: Arc::new(App::new(engine, info)) }
    }

    /// Its routes, for whoever brings sockets of his own.
    pub fn router(&self) -> Router {
        router::of_app(&self.app)
    }

    /// Serves on this thread, until `drain` says that the server is to end and what runs has ended.
    ///
    /// # Errors
    /// Where the system gives no runtime or the listener is broken.
    pub fn run(self, listener: TcpListener, patience: Patience, drain: impl Fn() -> bool) -> io::Result<()> {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        let builder = builder.max_blocking_threads(READERS).thread_stack_size(STACK_BYTES);
        let runtime = builder.enable_all().build()?;
        let told = async {
            while !drain() {
                sleep(LOOK).await;
            }
        };
        let ended = runtime.block_on(self.serve(listener, patience, told));
        // Blocking work that is still on belongs to nobody any more.
        runtime.shutdown_timeout(Duration::from_millis(100));
        ended
    }

    async fn serve(
        self,
        listener: TcpListener,
        patience: Patience,
        drain: impl Future<Output = ()>,
    ) -> io::Result<()> {
        listener.set_nonblocking(true)?;
        let listener = tokio::net::TcpListener::from_std(listener)?;
        let answering = Arc::new(AtomicUsize::new(0));
        let accepting = tokio::spawn(accept(listener, self.router(), patience, Arc::clone(&answering)));
        drain.await;
        self.app.phase.send_replace(Phase::Draining);
        let is_quiet = || answering.load(Ordering::Acquire) == 0;
        let running = self.app.engine.stats().running_requests;
        self.app.note(format!("draining: {running} requests still run"));
        until(patience.drain, is_quiet).await;
        self.app.phase.send_replace(Phase::Ending);
        until(FAREWELL, is_quiet).await;
        accepting.abort();
        Ok(())
    }
}

/// Waits until something is true, but no longer than this.
async fn until(limit: Duration, is_true: impl Fn() -> bool) {
    let end = Instant::now() + limit;
    while !is_true() && Instant::now() < end {
        sleep(LOOK).await;
    }
}

/// Takes connections; also while draining, to tell probes and clients so.
async fn accept(
    listener: tokio::net::TcpListener,
    router: Router,
    patience: Patience,
    answering: Arc<AtomicUsize>,
) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                let (router, answering) = (router.clone(), Arc::clone(&answering));
                tokio::spawn(connection::serve(stream, router, patience, answering));
            }
            // Its client left at once, or there are no sockets: in a moment there may be.
            Err(_) => sleep(NO_SOCKETS).await,
        }
    }
}
