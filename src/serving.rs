//! An HTTP server on a listener until it is told to end: under the simulated engine, and under the status of a session.

use std::io;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use axum::serve::ListenerExt;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// A server that runs; once this is dropped it takes no connection any more.
pub struct Serving {
    close: oneshot::Sender<()>,
    server: JoinHandle<io::Result<()>>,
}

impl Serving {
    /// Serves on the current runtime.
    pub fn start(listener: TcpListener, router: Router) -> Self {
        // Nagle's algorithm would hold streamed tokens back for some 40 ms.
        let listener = listener.tap_io(|connection| drop(connection.set_nodelay(true)));
        let (close, closed) = oneshot::channel::<()>();
        let server = axum::serve(listener, router).with_graceful_shutdown(async { drop(closed.await) });
        Self { close, server: tokio::spawn(server.into_future()) }
    }

    /// Takes no connection any more, and cuts those that are still open after `grace`.
    pub async fn end(self, grace: Duration) {
        let Self { close, mut server } = self;
        // A server that has failed has nobody to tell.
        let _ = close.send(());
        drop(tokio::time::timeout(grace, &mut server).await);
        server.abort();
    }
}

/// An answer; a status that there is not becomes 500.
pub fn respond(status: u16, content_type: Option<&'static str>, body: Body) -> Response {
    let mut response = Response::new(body);
    *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    if let Some(content_type) = content_type {
        response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    }
    response
}
