//! An HTTP server on a listener until it is told to end. The simulated engine, a lent rig and the status of a session use it.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::{HeaderValue, Request, StatusCode, header};
use axum::response::Response;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::{JoinHandle, JoinSet};
use tower_service::Service;

/// A system without a free file is asked again so soon.
const AGAIN_AFTER: Duration = Duration::from_millis(100);

/// Limits on a server's clients.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Connections at the same time; others wait.
    pub connections: usize,
    /// How long the head of a request may take to come.
    pub head: Duration,
    /// How long a request may take, its body included, until its answer begins; without end where none is given.
    pub request: Option<Duration>,
}

impl Limits {
    /// Of a server for clients that we start ourselves.
    pub const OWN: Self = Self { connections: Semaphore::MAX_PERMITS, head: Duration::from_secs(60), request: None };
    /// Of a port that anybody may reach: the files of the process are for its work.
    pub const OPEN: Self =
        Self { connections: 32, head: Duration::from_secs(5), request: Some(Duration::from_secs(40)) };
}

/// A server that runs; once this is dropped it takes no connection any more.
pub struct Serving {
    close: watch::Sender<bool>,
    server: JoinHandle<()>,
}

impl Serving {
    /// Serves on the current runtime.
    pub fn start(listener: TcpListener, router: Router, limits: Limits) -> Self {
        let (close, closed) = watch::channel(false);
        Self { close, server: tokio::spawn(serve(listener, router, limits, closed)) }
    }

    /// Takes no connection any more, and cuts those that are still open after `grace`.
    pub async fn end(self, grace: Duration) {
        let Self { close, mut server } = self;
        // A server that has failed has nobody to tell.
        let _ = close.send(true);
        drop(tokio::time::timeout(grace, &mut server).await);
        server.abort();
    }
}

async fn serve(listener: TcpListener, router: Router, limits: Limits, mut closed: watch::Receiver<bool>) {
    let places = Arc::new(Semaphore::new(limits.connections));
    let mut connections = JoinSet::new();
    loop {
        let next = async {
            let place = Arc::clone(&places).acquire_owned().await;
            (place, listener.accept().await)
        };
        tokio::select! {
            (place, accepted) = next => match accepted {
                Ok((stream, _)) => {
                    let connection = answer(stream, router.clone(), limits, closed.clone());
                    connections.spawn(async move {
                        connection.await;
                        drop(place);
                    });
                }
                // No file is free, or the client is gone already.
                Err(_) => tokio::time::sleep(AGAIN_AFTER).await,
            },
            Some(_) = connections.join_next() => {}
            _ = closed.changed() => break,
        }
    }
    drop(listener);
    while connections.join_next().await.is_some() {}
}

/// Answers the requests of one connection to its end.
async fn answer(stream: TcpStream, router: Router, limits: Limits, mut closed: watch::Receiver<bool>) {
    // Nagle's algorithm would hold streamed tokens back for some 40 ms.
    drop(stream.set_nodelay(true));
    let service = service_fn(move |request: Request<Incoming>| {
        let answered = router.clone().call(request.map(Body::new));
        async move {
            let Some(within) = limits.request else { return answered.await };
            let late = |_| Ok::<_, Infallible>(respond(408, None, Body::empty()));
            tokio::time::timeout(within, answered).await.unwrap_or_else(late)
        }
    });
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(limits.head);
    let connection = builder.serve_connection(TokioIo::new(stream), service);
    tokio::pin!(connection);
    tokio::select! {
        // What breaks a connection is its client's affair.
        _ = &mut connection => return,
        _ = closed.changed() => {}
    }
    connection.as_mut().graceful_shutdown();
    drop(connection.await);
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

#[cfg(test)]
mod tests {
    use axum::routing::{get, post};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    /// What a server with few places answers to one more client, behind so many that send this and then nothing.
    async fn beside_the_silent(sent: &str, count: usize) -> String {
        let limits =
            Limits { connections: 4, head: Duration::from_millis(200), request: Some(Duration::from_millis(200)) };
        let router = Router::new()
            .route("/", get(async || respond(200, None, Body::from("well"))))
            .route("/body", post(async |body: String| body));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let serving = Serving::start(listener, router, limits);
        let mut silent = Vec::new();
        for _ in 0..count {
            let mut stream = TcpStream::connect(address).await.unwrap();
            stream.write_all(sent.as_bytes()).await.unwrap();
            silent.push(stream);
        }
        let mut client = TcpStream::connect(address).await.unwrap();
        client.write_all(b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").await.unwrap();
        let mut said = String::new();
        let reading = tokio::time::timeout(Duration::from_secs(60), client.read_to_string(&mut said));
        reading.await.unwrap().unwrap();
        serving.end(Duration::ZERO).await;
        said
    }

    #[tokio::test]
    async fn requests_that_never_come_to_their_end_keep_nobody_else_out() {
        for sent in ["", "GET / HTTP/1.1\r\nhost:", "POST /body HTTP/1.1\r\nhost: x\r\ncontent-length: 9\r\n\r\nhalf"] {
            let said = beside_the_silent(sent, 12).await;
            assert!(said.starts_with("HTTP/1.1 200") && said.ends_with("well"), "{sent:?}: {said}");
        }
    }
}
