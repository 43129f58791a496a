//! Answers whoever asks where the session stands: `/status`, `/metrics`, `/healthz`.
//!
//! It has a thread of its own, so that no answer ever waits for the session, and the session for no answer.

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::response::Response;
use axum::routing::get;
use tokio::sync::oneshot;

use super::board::Board;
use super::{exposition, metrics};
use crate::serving::{Limits, Serving, respond};

/// How long an answer may still be read once the session has ended.
const GRACE: Duration = Duration::from_millis(200);

/// Why nobody can be answered.
#[derive(Debug, thiserror::Error)]
#[error(
    "failed to listen on {address}: {source}; hint: --listen takes an address of this machine with a free port, such as 0.0.0.0:9090, \
or port 0 for any that is free"
)]
pub struct ListenError {
    address: SocketAddr,
    source: std::io::Error,
}

/// An address that is taken. Connections wait until there is something to tell.
#[derive(Debug)]
pub struct Bound {
    listener: TcpListener,
    address: SocketAddr,
}

impl Bound {
    /// Takes an address; port 0 is any that is free.
    ///
    /// # Errors
    /// If it is taken, is not this machine's, or needs a right.
    pub fn to(asked: SocketAddr) -> Result<Self, ListenError> {
        let failed = |source| ListenError { address: asked, source };
        let listener = TcpListener::bind(asked).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        Ok(Self { listener, address })
    }

    /// One that the system does not poll: a file in place of a socket.
    #[cfg(test)]
    pub fn that_cannot_be_polled() -> Self {
        let file = std::os::fd::OwnedFd::from(tempfile::tempfile().unwrap());
        let listener = TcpListener::from(file);
        listener.set_nonblocking(true).unwrap();
        Self { listener, address: SocketAddr::from(([127, 0, 0, 1], 1)) }
    }

    /// The address, with the port that was found.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

/// Answers until it is dropped.
pub struct Listening {
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Listening {
    /// Begins to answer.
    ///
    /// # Errors
    /// If the system has no thread or no poll for it.
    pub fn start(bound: Bound, board: Arc<Board>) -> std::io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let listener = {
            let _inside = runtime.enter();
            tokio::net::TcpListener::from_std(bound.listener)?
        };
        let (stop, stopped) = oneshot::channel::<()>();
        let serve = async move {
            let serving = Serving::start(listener, router(board), Limits::OPEN);
            drop(stopped.await);
            serving.end(GRACE).await;
        };
        let thread = std::thread::Builder::new().name("listen".to_owned()).spawn(move || runtime.block_on(serve));
        Ok(Self { stop: Some(stop), thread: Some(thread?) })
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        drop(self.stop.take());
        // The port is free when this returns; a thread that panicked has nothing to add.
        self.thread.take().map(JoinHandle::join);
    }
}

fn router(board: Arc<Board>) -> Router {
    Router::new()
        .route("/status", get(status))
        .route("/metrics", get(page))
        .route("/healthz", get(async || respond(200, Some(PLAIN), Body::from("ok\n"))))
        .fallback(async || respond(404, Some(PLAIN), Body::from("here are /status, /metrics and /healthz\n")))
        .with_state(board)
}

const PLAIN: &str = "text/plain; charset=utf-8";

async fn status(State(board): State<Arc<Board>>) -> Response {
    match serde_json::to_string_pretty(&board.standing()) {
        Ok(text) => respond(200, Some("application/json"), Body::from(text + "\n")),
        Err(error) => respond(500, Some(PLAIN), Body::from(error.to_string())),
    }
}

async fn page(State(board): State<Arc<Board>>) -> Response {
    respond(200, Some(exposition::CONTENT_TYPE), Body::from(metrics::page(&board.standing())))
}
